"""The parts of `fit` around its loop: data and net on the device, the method, and the history."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.engine.averaged import AveragedNet
from apportion.engine.batches import Instances, Shelf, place
from apportion.engine.copies import Parts
from apportion.engine.device import precision_for, stream_for
from apportion.engine.distributed import ALONE, Ranks
from apportion.engine.feed import readable_part
from apportion.engine.generators import OwnGenerators
from apportion.engine.items import taken_by_name
from apportion.engine.statistics import average_statistics
from apportion.engine.step import Mode, Stepper
from apportion.errors import RunError
from apportion.methods.base import Supervision
from apportion.methods.registry import method_named
from apportion.metrics import accuracy, luck_of_least, proportion_error, total_variation
from apportion.model.model import Model, describe_parts
from apportion.nets.augment import augmented
from apportion.nets.build import move_to
from apportion.runs.evaluation import Evaluation
from apportion.training.checks import (
    check_batch,
    check_input,
    warn_of_bags,
)
from apportion.training.effects import with_effects
from apportion.training.evaluate import evaluate
from apportion.training.features import with_first_labels
from apportion.training.history import BY_CALLER, BY_EPOCHS, BY_PATIENCE, History
from apportion.training.job import Job
from apportion.training.optimizer import Optimization
from apportion.training.ranks import check_shared, check_still_alike
from apportion.training.steps import count_steps

log = logging.getLogger("apportion")

Weights = dict[str, Tensor]

HELD_OUT = {"valid": "validation", "test": "test"}  # in the log, and in errors
MOST_WORSE = 0.5  # of the least validation error, by which the last one may be larger
WORTH_COMPILING = 50_000  # steps that together save the time of compiling


class Session:
    """One training."""

    def __init__(
        self,
        job: Job,
        device: torch.device,
        shelf: Shelf | None = None,
        *,
        resumed: bool = False,
        ranks: Ranks = ALONE,
    ) -> None:
        self.ranks = ranks
        self.net, self.config, self.device = job.net, job.config, device
        self.train, self.valid, self.test = job.train, job.valid, job.test
        self.method, self.augment, config = method_named(job.method), job.augment, job.config
        self.classifies = getattr(self.method, "classifies", True)  # or is it pre-training
        check_input(self.net, config, self.train, self.valid, self.test)
        if ranks.are_several:
            check_shared(ranks, self.net, self.method, config, classifies=self.classifies)
        self.precision = precision_for(config.precision, self.device)
        self.history = History()
        self.selected: Weights = {}  # of the selected epoch
        self.last: Weights = {}  # of the last one, when training has ended
        self.generators = OwnGenerators(device)
        self.generators.reseed(config.seed, 0)
        with self.generators:
            self._place(shelf)
        about: dict[str, Any] = {
            "seed": config.seed,
            "most": config.instances_per_pass,
            "resumed": resumed,
        }
        method = with_first_labels(self.method, self.net, self.on_train, **about)
        with self.generators:
            self.supervision: Supervision = method.start(
                self.train.without_truth(),
                epochs=config.epochs,
                device=self.device,
                seed=config.seed,
                threads=config.threads,
            )
            self.optimization = Optimization(
                self.net,
                config,
                device,
                optimizer=job.optimizer,
                scheduler=job.scheduler,
                validated=self.valid is not None,
            )
        augments = bool(config.augment) or job.augment is not None
        draws = augments or self.supervision.mixes
        self.on_train.reads_all = draws and config.shuffle == "all"
        self.averaged = AveragedNet(self.net, config.average) if config.average else None
        self.parameters, self.optimizer = self.optimization.parameters, self.optimization.optimizer
        self.is_ended = False  # by the caller
        self.aside = stream_for("aside", device)
        self.ahead: dict[str, Tensor] = {}  # confidences on that stream
        self.settled = False
        self.step = Stepper(
            self.net,
            self.optimizer,
            self.supervision,
            self.on_train,
            precision=self.precision,
            instances_per_pass=config.instances_per_pass,
            augment=self._augmented,
            clip_norm=config.clip_norm,
            own_optimizer=not self.optimization.by_config,
            mode=self._mode(),
            generators=self.generators,
            average=self.averaged,
        )

    def _place(self, shelf: Shelf | None) -> None:
        """Move net and data to the device, and check that they fit each other."""
        memory = self.config.device_memory_gib
        limit = None if memory is None else int(memory * 2**30)
        move_to(self.device, self.net)
        self.on_train, *others = place(
            (self.train, self.valid, self.test),
            self.device,
            limit=limit,
            shelf=shelf,
            workers=self.config.workers,
        )
        self.on_train.ranks = self.ranks
        self.own_train = self.on_train.shard(self.ranks)
        sets = zip(HELD_OUT, others, (self.valid, self.test), strict=True)
        self.held_out = [(name, on, on.shard(self.ranks), b) for name, on, b in sets if on and b]
        with ExitStack() as ending:
            ending.enter_context(taken_by_name(self.net, self.on_train.feed.names))
            for instances in (self.on_train, *(on for _, on, _, _ in self.held_out)):
                ending.callback(instances.feed.close)
            check_batch(
                "training", self.net, self.on_train, self._augmented, classifies=self.classifies
            )
            for name, instances, _, _ in self.held_out:
                check_batch(HELD_OUT[name], self.net, instances)
            self.ending = ending.pop_all()
        # Only now, as lazy layers have no weights before their first batch.
        self.ranks.as_of(0, [*self.net.parameters(), *self.net.buffers()])
        if self.device.type == "cuda":  # other runs, on other streams, may share these data
            torch.cuda.current_stream(self.device).synchronize()

    @property
    def kept(self) -> nn.Module:
        """The net that decides labels, is validated, and whose weights are kept."""
        return self.net if self.averaged is None else self.averaged.net

    def _augmented(self, x: Parts, generator: torch.Generator) -> Parts:
        names = self.config.augment
        return augmented(x, names, generator, self.augment, self.on_train.feed.names)

    def _mode(self) -> Mode:
        if self.device.type == "cpu":
            return "eager"
        if self.ranks.are_several:
            log.info("Gradients are summed between processes: steps are no CUDA graphs.")
            return "eager"
        if self.config.step_mode != "eager" and not self.optimization.is_recordable:
            log.warning(
                "Steps of %s cannot be recorded as a CUDA graph, and are slower without: make it "
                "with capturable=True, and lr as a tensor on the device if a scheduler changes it.",
                type(self.optimizer).__name__,
            )
            return "eager"
        if self.config.step_mode != "auto":
            return self.config.step_mode
        n_steps = count_steps(self.train, method=self.method, config=self.config)
        return "compiled" if n_steps >= WORTH_COMPILING else "captured"

    def begin(self) -> None:
        """Prepare the first epoch: log what is to be known of it, and decide the first labels."""
        self.share()
        if self.classifies:
            warn_of_bags(self.train)
        self.optimization.say_unused()
        if self.valid is None and self.classifies:
            log.info("No validation bags: nothing is selected, and the last model is kept.")
        if self.supervision.decides_first:
            with self.generators:
                self.learn_from(0, self.confidence_to_learn_from())

    def share(self) -> None:
        """Share later decisions of the method with other ranks, once its state is that of all."""
        if self.ranks.are_several:
            self.supervision.share_with(self.ranks)

    def is_finished(self) -> bool:
        """Tell whether training has ended, in any way."""
        return self.ended_by() is not None

    def ended_by(self) -> str | None:
        """Tell by what: the epochs are over, the error has stopped improving, or the caller."""
        best, patience = self.history.best_epoch, self.config.patience
        if self.history.n_epochs >= self.config.epochs:
            return BY_EPOCHS
        if best is not None and patience is not None and self.history.n_epochs - best >= patience:
            return BY_PATIENCE
        return BY_CALLER if self.is_ended else None

    def turn(self) -> AbstractContextManager[None]:
        """Return a context that keeps other runs out of torch's global state for an epoch.

        On a GPU, where runs go on in parallel, only the first epoch needs it: kernels are then
        compiled, loaded and recorded, which must not happen in two runs at once. Later steps that
        draw from the global generators lock them one by one.
        """
        alone = self.device.type == "cpu" or not self.settled
        self.settled = True
        return self.generators if alone else nullcontext()

    def train_epoch(self, epoch: int) -> float:
        """Train on every instance once; return the mean loss."""
        check_still_alike(self.ranks, self.net, epoch - 1)
        self.generators.reseed(self.config.seed, epoch)
        self.step.begin_epoch(self.config.seed, epoch)
        self.ahead.clear()
        self.net.train()
        losses: list[Any] = []
        weights, waits = [], self.device.type != "cpu"  # for kernels to end
        for step in self.on_train.steps(self.method.unit, self.config, epoch):
            self.optimization.before_step(step.progress)
            loss = self.step(step)
            # Small tensors would keep the memory between them from being used again.
            losses.append(loss if waits else loss.item())
            self._rely_on(changed=self.optimization.after_step())
            weights.append(len(step.position if step.proportions is None else step.proportions))
        if waits:
            losses = torch.stack(losses).double().tolist()
        found = torch.tensor(losses, dtype=torch.float64)
        if not found.isfinite().all():
            bad = int((~found.isfinite()).int().argmax())
            raise self._diverged(
                f"the loss is {found[bad]:.3g} at epoch {epoch}, step {bad + 1} of {len(found)}"
            )
        finite = torch.stack([p.detach().isfinite().all() for p in self.parameters])
        if not finite.all():
            raise self._diverged(f"the weights are no longer finite after epoch {epoch}")
        average_statistics(dict.fromkeys((self.net, self.kept)), self.ranks)
        share = torch.tensor(weights, dtype=torch.float64)
        return float(found @ share / share.sum())

    def _rely_on(self, *, changed: bool) -> None:
        """Record no more steps where the scheduler changed what a recording holds as numbers."""
        if changed and self.step.mode != "eager":
            self.step.record_no_more(
                "the scheduler changes numbers of the optimiser; lr=torch.tensor(…) on the device "
                "could be recorded"
            )

    def confidence_to_learn_from(self) -> Tensor | None:
        """Return the confidences of the training instances, if the method wants them.

        Of several ranks each gets those of its own bags, if it decides for these alone.

        A GPU goes on with those that `evaluate` will need, while the host decides labels.
        """
        if not self.supervision.needs_confidence:
            return None
        found = self._confidence(self.own_train)
        if not self.supervision.decides_for_own:
            found = self.ranks.gathered(found)
        if self.aside is not None:
            self.aside.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(self.aside):
                self.ahead = {name: self._confidence(own) for name, _, own, _ in self.held_out}
        return found

    def learn_from(self, epoch: int, confidence: Tensor | None) -> dict[str, float]:
        """Update the method with the confidences after an epoch; return its numbers for the log."""
        found = self.supervision.epoch_end(epoch, confidence)
        return {name: float(value) for name, value in found.items()}

    def _confidence(self, instances: Instances) -> Tensor:
        return instances.confidence(self.kept, self.precision, self.config.instances_per_pass)

    def evaluate(self) -> dict[str, float]:
        """Measure the validation error, and accuracies where the truth is known."""
        found = {}
        if self.supervision.labels is not None and self.train.truth is not None:
            found["label_accuracy"] = _accuracy(self.supervision.labels, self.train)
        if self.aside is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.aside)
        for name, instances, own, bags in self.held_out:
            early = self.ahead.pop(name, None)
            confidence = self._confidence(own) if early is None else early
            predicted = self.ranks.gathered(own.bag_means(confidence))
            if not predicted.isfinite().all():
                raise self._diverged(
                    f"the confidences of the {HELD_OUT[name]} instances are not finite after "
                    f"epoch {self.history.n_epochs + 1}"
                )
            found[f"{name}_error"] = proportion_error(instances.proportions, predicted)
            if bags.truth is not None:
                labels = self.ranks.gathered(confidence.argmax(dim=1))
                found[f"{name}_accuracy"] = _accuracy(labels, bags)
            if early is not None:  # its memory belongs to the other stream
                early.record_stream(torch.cuda.current_stream(self.device))
        return found

    def keep(self, record: dict[str, Any]) -> None:
        """Add an epoch to the history, and select it if it is the best so far."""
        history = self.history
        history.records.append(record)
        if self.valid is not None and record["valid_error"] < history.best_error:
            history.best_epoch, history.best_error = record["epoch"], record["valid_error"]
            self.selected = _copy(self.kept)
        self._rely_on(changed=self.optimization.after_epoch(record.get("valid_error")))

    def finish(self) -> History:
        """Leave the selected weights in the net, and no gradients."""
        check_still_alike(self.ranks, self.net, self.history.n_epochs)
        for parameter in self.net.parameters():
            parameter.grad = None  # they are in the memory of the graphs
        self.last = _copy(self.kept)
        self.selected = self.selected or self.last
        self.history.ended = self.ended_by()
        if self.config.select == "last" and self._is_last_as_good():
            last = self.history.records[-1]
            self.selected = self.last
            self.history.best_epoch, self.history.best_error = last["epoch"], last["valid_error"]
        if self.supervision.labels is not None:
            self.history.labels = self.supervision.labels.cpu().numpy()
        for net in dict.fromkeys((self.net, self.kept)):  # the evaluation is of the one kept
            net.load_state_dict(self.selected)
        self.net.eval()
        return self.history

    def _is_last_as_good(self) -> bool:
        """Tell whether chance, of bags and of epochs, may be why the last one is not the best."""
        for name, instances, own, _ in self.held_out:
            if name != "valid" or self.history.best_epoch == self.history.n_epochs:
                continue
            errors = []
            for weights in (self.last, self.selected):
                self.kept.load_state_dict(weights)
                predicted = self.ranks.gathered(own.bag_means(self._confidence(own)))
                errors.append(total_variation(instances.proportions, predicted))
            worse, least = errors[0] - errors[1], float(errors[1].mean())
            chance = worse.std() / len(worse) ** 0.5 if len(worse) > 1 else 0.0
            luck = luck_of_least(self.history["valid_error"])
            # A few bags leave much to chance, but they do not excuse a collapse.
            return bool(worse.mean() <= min(max(2 * chance, luck), MOST_WORSE * least))
        return False

    def evaluations(self) -> dict[str, Evaluation]:
        """Evaluate the model on each set of bags, and the columns of a table on one of them.

        All ranks compute confidences, and the first one alone the rest.
        """
        sets = [("train", self.own_train, self.train)]
        sets += [(name, own, bags) for name, _, own, bags in self.held_out]

        def confidence(parts: Any) -> Any:
            about = self.train.classes, describe_parts(self.train)
            return Model(self.net, *about, device=self.config.device).predict_proba(parts)

        with self.generators:
            confidences = [self.ranks.gathered(self._confidence(placed)) for _, placed, _ in sets]
            if not self.ranks.leads:
                return {}
            found = {
                name: evaluate(bags, known.cpu().numpy())
                for (name, _, bags), known in zip(sets, confidences, strict=True)
            }
            seen = self.config.epochs * self.train.n_instances
            own = {name: bags for name, _, bags in sets}
            return with_effects(found, own, confidence, self.config.seed, seen=seen)

    def close(self) -> None:
        """End the processes that read a Dataset, and leave the net as it is called outside."""
        self.ending.close()

    def _diverged(self, what: str) -> RunError:
        rates = ", ".join(f"{rate:g}" for rate in self.optimization.rates)
        return RunError(
            f"{what}.",
            f"Lower the learning rate (it is {rates}), in another folder; or look for NaN and for "
            "very large values in x. A checkpoint, if there is one, was saved before that.",
        )


def _accuracy(labels: Tensor, bags: Bags) -> float:
    return accuracy(labels, readable_part(bags.truth).to(labels.device))


def _copy(net: nn.Module) -> Weights:
    return {name: value.detach().clone() for name, value in net.state_dict().items()}
