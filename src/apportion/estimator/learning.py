"""How an estimator trains what `fit` does not: a learner, a linear model, or an average."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from typing import Any

from torch import nn

from apportion.auto.members import TABLE_METHODS, TablePlan, check_is_table, plan_table
from apportion.auto.train import train_table
from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.errors import ConfigError
from apportion.labels.assign import likeliest_labels
from apportion.learners.alternate import ROUNDS, Round, alternate
from apportion.metrics import accuracy, bag_means, proportion_error
from apportion.model.learner import LearnerNet, is_learner
from apportion.model.model import Model, describe_parts
from apportion.plan import (
    AUTO,
    Choice,
    Choices,
    default_method,
    kind_of_instances,
    share_reported,
)
from apportion.training.features import MEAN_MAP
from apportion.training.frozen import fit_frozen
from apportion.training.history import History
from apportion.training.progress import brief, progress_bars, readable

__all__ = ["OPTIONS", "FrozenPlan", "LearnerPlan", "check_settings", "method_for", "plan_for",
           "train", "trains_otherwise"]  # fmt: skip

log = logging.getLogger("apportion")

# Options of `TrainConfig` that an estimator has, beside the device. Learners have epochs as well.
OPTIONS = ("epochs", "batch_size", "learning_rate", "weight_decay")
SOFT = "soft labels"


@dataclass(frozen=True)
class LearnerPlan(Choices):
    """What the training of a learner uses, and why."""

    learner: Choice
    method: Choice
    epochs: Choice  # rounds
    validation: Choice


@dataclass(frozen=True)
class FrozenPlan(Choices):
    """What the training of a linear layer on a frozen net uses, and why."""

    net: Choice
    method: Choice
    validation: Choice


def method_for(estimator: Any, kind: str) -> Choice:
    """Return the method that is given, or else follows from the kind of the instances."""
    if estimator.method is not None:
        return Choice(estimator.method, "given")
    if is_learner(estimator.model):
        return Choice(SOFT, "the default")
    names = (*OPTIONS, "model", "eta")
    return default_method(kind, [name for name in names if getattr(estimator, name) is not None])


def trains_otherwise(estimator: Any, method: Any) -> bool:
    """Tell whether `fit` does not train this."""
    return is_learner(estimator.model) or (isinstance(method, str) and method in TABLE_METHODS)


def check_settings(estimator: Any, method: Any) -> None:
    """Check settings that ask for no training by `fit`."""
    model = estimator.model
    if _is_frozen(model, method):
        return
    if method in TABLE_METHODS:
        if model is not None:
            chosen = "chooses its nets itself" if method == AUTO else "fits a linear model"
            raise ConfigError(
                f"model is {model!r:.60}, but the method {method!r} {chosen}.",
                "Leave model out, or choose another method; mean-map also takes an nn.Module that "
                "maps a batch to features.",
            )
        return
    if method not in (SOFT, "fpl"):
        raise ConfigError(
            f"the method {method!r} trains nets, not a {type(model).__name__}.",
            "With a learner leave method out, for soft labels, or pass method='fpl' and eta.",
        )
    if estimator.eta is not None and method == SOFT:
        raise ConfigError(
            f"eta is {estimator.eta!r}, but soft labels, which a learner gets by default, have "
            "none.",
            "Leave eta out, or pass method='fpl'.",
        )
    if estimator.epochs is not None:
        TrainConfig.from_dict({"epochs": estimator.epochs})


def plan_for(estimator: Any, method: Choice, bags: Bags) -> LearnerPlan | TablePlan | FrozenPlan:
    """Return what a training on these bags will use, and why."""
    validation = share_reported(estimator.validation_fraction)
    if _is_frozen(estimator.model, method.value):
        reason = "given: it stays as it is, below a linear layer that is learned"
        return FrozenPlan(Choice(type(estimator.model).__name__, reason), method, validation)
    if method.value in TABLE_METHODS:
        check_is_table(method.value, kind_of_instances(bags))
        return plan_table(bags, method, validation)
    epochs = Choice(ROUNDS[_targets(method)], "the default: rounds of fitting and labelling")
    return LearnerPlan(
        Choice(type(estimator.model).__name__, "given"),
        method,
        epochs if estimator.epochs is None else Choice(estimator.epochs, "given, as rounds"),
        validation,
    )


def train(
    estimator: Any, method: Choice, bags: Bags, valid: Bags | None, seed: int
) -> tuple[Model, History]:
    """Train what the settings of an estimator ask for, and note which of them are ignored."""
    of_table = method.value in TABLE_METHODS
    what = f"the method {method.value!r}" if of_table else type(estimator.model).__name__
    for name in (*OPTIONS, "eta") if of_table else OPTIONS[1:]:
        if getattr(estimator, name) is not None:
            log.warning("%s is ignored: it has no meaning for %s.", name, what)
    if _is_frozen(estimator.model, method.value):
        return _train_frozen(estimator, bags, valid, seed)
    if of_table:
        options = {"seed": seed, "device": estimator.device, "progress": estimator.verbose}
        return train_table(bags, valid, method=method.value, **options)[:2]
    return _train_learner(estimator, _targets(method), bags, valid, seed)


def _train_learner(
    estimator: Any, targets: Any, bags: Bags, valid: Bags | None, seed: int
) -> tuple[Model, History]:
    records = list[dict[str, Any]]()
    rounds = ROUNDS[targets] if estimator.epochs is None else estimator.epochs
    with progress_bars([rounds], estimator.verbose, "round") as (show,):

        def note(done: Round) -> None:
            record = {
                "epoch": done.number,
                "proportion_error": done.proportion_error,
                "changed": done.changed,
                "seconds": {"round": round(done.seconds, 4)},
            }
            records.append(record)
            if done.number < rounds:  # the last one is told with what is measured at the end
                log.info("%s", readable(record, rounds, "round"))
            show(done.number, brief(record))

        options: dict[str, Any] = {"rounds": rounds, "eta": estimator.eta, "seed": seed}
        known = bags.without_truth()
        found = alternate(estimator.model, known, targets=targets, on_round=note, **options)
    about = {"columns": bags.columns, "epoch": rounds, "device": estimator.device}
    model = Model(LearnerNet(found), bags.classes, describe_parts(bags), **about)
    labels = likeliest_labels(model.confidence(bags), bags)
    if bags.truth is not None:
        records[-1]["label_accuracy"] = accuracy(labels, bags.truth)
    if valid is not None:
        confidence = model.confidence(valid)
        predicted = bag_means(confidence, valid.offsets)
        records[-1]["valid_error"] = proportion_error(valid.proportions, predicted)
        if valid.truth is not None:
            records[-1]["valid_accuracy"] = accuracy(confidence.argmax(axis=1), valid.truth)
    log.info("%s", readable(records[-1], rounds, "round"))
    return model, History(records, labels=labels)


def _is_frozen(model: Any, method: Any) -> bool:
    """Tell whether a linear layer is learned on the features of a net that stays as it is."""
    return isinstance(model, nn.Module) and isinstance(method, str) and method == MEAN_MAP


def _train_frozen(
    estimator: Any, bags: Bags, valid: Bags | None, seed: int
) -> tuple[Model, History]:
    backbone, device = copy.deepcopy(estimator.model), estimator.device
    net, history = fit_frozen(backbone, bags, valid, seed=seed, device=device)
    log.info("%s", readable(history.records[-1], 1, "round"))
    about = {"columns": bags.columns, "epoch": 1, "device": device}
    return Model(net, bags.classes, describe_parts(bags), **about), history


def _targets(method: Choice) -> Any:
    return "soft" if method.value == SOFT else "fpl"
