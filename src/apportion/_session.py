"""What `fit` needs around its loop: data and model on the device, the method, and the history."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from apportion.augment import augmented
from apportion.bags import BagError, Bags
from apportion.config import ConfigError, TrainConfig
from apportion.engine.batches import Instances, place
from apportion.engine.device import precision_for
from apportion.engine.step import Stepper
from apportion.methods import Method, Supervision
from apportion.metrics import bag_means, proportion_error, share_equal

log = logging.getLogger("apportion")

Weights = dict[str, Tensor]


class TrainingError(RuntimeError):
    """A training that cannot go on. The message names the place, the number and the remedy."""

    __module__ = "apportion.train"  # where it is imported from: tracebacks show this name

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}\n  {remedy}")


@dataclass(eq=False)
class History:
    """What happened: the record of every epoch, and what came out."""

    records: list[dict[str, Any]] = field(default_factory=list)  # as in log.jsonl
    best_epoch: int | None = None  # the selected one; None where there was no validation
    best_error: float = math.inf  # its validation proportion error
    selected: Weights = field(default_factory=dict)  # that epoch's weights, or the last ones
    last: Weights = field(default_factory=dict)
    labels: Tensor | None = None  # (N,) the last pseudo labels, as positions in `Bags.classes`

    @property
    def epoch(self) -> int:
        """The last epoch."""
        return len(self.records)

    def __getitem__(self, name: str) -> list[Any]:
        """Give one number of every epoch: ``history["loss"]``."""
        return [record[name] for record in self.records]

    def __repr__(self) -> str:
        chosen = "no selection" if self.best_epoch is None else f"epoch {self.best_epoch} selected"
        return f"History({self.epoch} epochs, {chosen})"


class Session:
    """One training."""

    def __init__(
        self,
        model: nn.Module,
        train: Bags,
        valid: Bags | None,
        test: Bags | None,
        method: Method,
        config: TrainConfig,
        device: torch.device,
    ) -> None:
        _check_input(model, config, train, valid, test)
        self.model, self.method, self.config, self.device = model, method, config, device
        self.precision = precision_for(config.precision, self.device)
        self.train, self.valid, self.test = train, valid, test
        self.history = History()
        self.model.to(self.device)
        self.on_train, self.on_valid, self.on_test = place((train, valid, test), self.device)
        _check_batch(self.model, self.on_train, config)
        self.supervision: Supervision = self.method.start(
            self.train.without_labels(),
            epochs=config.epochs,
            device=self.device,
            seed=config.seed,
            threads=config.threads,
        )
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.step = Stepper(
            self.model,
            self.optimizer,
            self.supervision,
            self.on_train,
            precision=self.precision,
            instances_per_pass=config.instances_per_pass,
            augment=lambda x, generator: augmented(x, config.augment, generator),
        )

    def begin(self) -> None:
        """Do what comes before the first epoch."""
        if self.valid is None:
            log.warning("No validation bags: nothing is selected, and the last model is kept.")
        if self.supervision.decides_first:
            self.supervision.epoch_end(0, self.confidence_to_learn_from())

    def is_finished(self) -> bool:
        """Tell whether the epochs are over, or the validation error has stopped to improve."""
        best, patience = self.history.best_epoch, self.config.patience
        stopped = (
            best is not None and patience is not None and self.history.epoch - best >= patience
        )
        return stopped or self.history.epoch >= self.config.epochs

    def train_epoch(self, epoch: int) -> float:
        """Train on every instance once; give the mean loss."""
        self.model.train()
        losses, weights = [], []
        for step in self.on_train.steps(self.method.unit, self.config, epoch):
            for group in self.optimizer.param_groups:
                group["lr"] = self.config.learning_rate_at(step.progress)
            losses.append(self.step(step))
            weights.append(len(step.position if step.proportions is None else step.proportions))
        found = torch.stack(losses).double().cpu()
        if not found.isfinite().all():
            bad = int((~found.isfinite()).int().argmax())
            raise self._diverged(
                f"the loss is {found[bad]:.3g} at epoch {epoch}, step {bad + 1} of {len(found)}"
            )
        finite = torch.stack([p.detach().isfinite().all() for p in self.parameters])
        if not finite.all():
            raise self._diverged(f"the weights are no longer finite after epoch {epoch}")
        share = torch.tensor(weights, dtype=torch.float64)
        return float(found @ share / share.sum())

    def confidence_to_learn_from(self) -> Tensor | None:
        """Give the confidences of the training instances, if the method wants them."""
        return self._confidence(self.on_train) if self.supervision.needs_confidence else None

    def _confidence(self, instances: Instances) -> Tensor:
        return instances.confidence(self.model, self.precision, self.config.instances_per_pass)

    def evaluate(self) -> dict[str, float]:
        """Measure the validation error, and accuracies where the truth is known."""
        found = {}
        if self.supervision.labels is not None and self.train.labels is not None:
            found["label_accuracy"] = _accuracy(self.supervision.labels, self.train)
        for name, instances, bags in (
            ("valid", self.on_valid, self.valid),
            ("test", self.on_test, self.test),
        ):
            if instances is not None and bags is not None:
                confidence = self._confidence(instances)
                if not confidence.isfinite().all():
                    raise self._diverged(
                        f"the confidences of the {'validation' if name == 'valid' else name} "
                        f"instances are not finite after epoch {self.history.epoch + 1}"
                    )
                predicted = bag_means(confidence, instances.offsets)
                found[f"{name}_error"] = proportion_error(instances.proportions, predicted)
                if bags.labels is not None:
                    found[f"{name}_accuracy"] = _accuracy(confidence.argmax(dim=1), bags)
        return found

    def keep(self, record: dict[str, Any]) -> None:
        """Take an epoch into the history, and select it if it is the best so far."""
        history = self.history
        history.records.append(record)
        if self.valid is not None and record["valid_error"] < history.best_error:
            history.best_epoch, history.best_error = record["epoch"], record["valid_error"]
            history.selected = _copy(self.model)

    def finish(self) -> History:
        """Leave the selected weights in the model."""
        history = self.history
        history.last = _copy(self.model)
        history.selected = history.selected or history.last
        if self.supervision.labels is not None:
            history.labels = self.supervision.labels.cpu()
        self.model.load_state_dict(history.selected)
        self.model.eval()
        return history

    def _diverged(self, what: str) -> TrainingError:
        return TrainingError(
            f"{what}.",
            f"Lower the learning rate (it is {self.config.learning_rate:g}), or look for NaN and "
            "for very large values in x. A checkpoint, if there is one, is from before that.",
        )


# ------------------------------------------------------------------------------------------ checks


def _check_input(
    model: nn.Module, config: TrainConfig, train: Bags, valid: Bags | None, test: Bags | None
) -> None:
    for name, bags in (("validation", valid), ("test", test)):
        if bags is not None and bags.classes != train.classes:
            raise BagError(
                f"the {name} bags have the classes {bags.classes}, but the training bags "
                f"{train.classes}.",
                "Pass classes= to Bags, so that all have the same in the same order.",
            )
    if test is not None and test.labels is None:
        raise BagError(
            "the test bags come without labels.", "Pass labels= to Bags, or leave them out of fit."
        )
    if config.patience is not None and valid is None:
        raise ConfigError(
            f"patience is {config.patience}, but there are no validation bags to stop by.",
            "Pass valid=, or leave patience out.",
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise TrainingError(
            f"{type(model).__name__} has no parameters to train.",
            "Let requires_grad of some be True.",
        )


def _check_batch(model: nn.Module, instances: Instances, config: TrainConfig) -> None:
    """See that two instances can be augmented, and that the model gives them a logit a class."""
    bags = instances.bags
    was_training = model.training
    model.eval()
    rows = instances.distinct[:2]
    x = augmented(instances.rows(rows), config.augment, torch.Generator(instances.device))
    try:
        with torch.no_grad():
            given = model(*x)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        took = ", ".join(f"{tuple(part.shape)} {str(part.dtype)[6:]}" for part in x)
        raise TrainingError(
            f"{type(model).__name__} cannot take a batch of {took}: {error}",
            "Let it take instances as they are stored, or store them as it takes them.",
        ) from error
    finally:
        model.train(was_training)
    wanted = (len(rows), bags.n_classes)
    if not isinstance(given, Tensor) or tuple(given.shape) != wanted:
        found = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else str(type(given))
        raise TrainingError(
            f"{type(model).__name__} gives {found} for {len(rows)} instances of {bags.n_classes} "
            f"classes, not {wanted}.",
            f"Let it return {bags.n_classes} logits for each instance, and nothing else.",
        )


def _accuracy(labels: Tensor, bags: Bags) -> float:
    return share_equal(labels, torch.from_numpy(bags.labels).to(labels.device))


def _copy(model: nn.Module) -> Weights:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
