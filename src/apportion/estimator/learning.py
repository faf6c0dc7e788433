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
from apportion.bags.items import Items
from apportion.errors import ConfigError
from apportion.estimator.options import (
    callback_of,
    ignored,
    options_given,
    said_to_be_ignored,
    train_options,
)
from apportion.labels.assign import likeliest_labels
from apportion.learners.alternate import ROUNDS, Round, alternate
from apportion.metrics import accuracy, bag_means, proportion_error
from apportion.model.learner import LearnerNet, is_learner
from apportion.model.model import Model
from apportion.plan.choices import Choice, Choices
from apportion.plan.held_out import share_reported
from apportion.plan.kinds import SPARSE, kind_of_instances
from apportion.plan.methods import AUTO, default_method
from apportion.runs.run import Run
from apportion.training.features import MEAN_MAP
from apportion.training.frozen import fit_frozen
from apportion.training.history import History
from apportion.training.progress import brief, progress_bars, readable

__all__ = ["FrozenPlan", "LearnerPlan", "check_settings", "method_for", "plan_for",
           "say_what_is_ignored", "train", "trains_otherwise"]  # fmt: skip

log = logging.getLogger("apportion")

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
    """Return the method that is given, or else follows from the kind of the instances.

    Its reason says which options have no meaning for it.
    """
    if isinstance(estimator.method, str) and estimator.method == AUTO and kind == SPARSE:
        chosen = default_method(kind, ())
    elif estimator.method is not None:
        chosen = Choice(estimator.method, "given")
    elif is_learner(estimator.model):
        chosen = Choice(SOFT, "the default")
    else:
        chosen = default_method(kind, options_given(estimator), estimator.preset)
    names = ignored(estimator, chosen.value)
    if not names:
        return chosen
    return Choice(chosen.value, f"{chosen.reason}; {said_to_be_ignored(names)}")


def say_what_is_ignored(estimator: Any, method: Any) -> None:
    """Warn of options that have no meaning for a method."""
    if names := ignored(estimator, method):
        what = f"the method {method if isinstance(method, str) else type(method).__name__!r}"
        what = f"{what} of a learner" if is_learner(estimator.model) else what
        them = "it has" if len(names) == 1 else "they have"
        log.warning("%s: %s no meaning for %s.", said_to_be_ignored(names), them, what)


def trains_otherwise(estimator: Any, method: Any) -> bool:
    """Tell whether `fit` does not train this."""
    return is_learner(estimator.model) or (isinstance(method, str) and method in TABLE_METHODS)


def check_settings(estimator: Any, method: Any) -> None:
    """Check settings that ask for no training by `fit`."""
    model = estimator.model
    if _is_frozen(model, method):
        _check_no_run(estimator)
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
    _check_no_run(estimator)


def _check_no_run(estimator: Any) -> None:
    if estimator.run is not None:
        kind = type(estimator.model).__name__
        what = f"a linear layer on a {kind}" if isinstance(estimator.model, nn.Module) else kind
        raise ConfigError(
            f"run is {str(estimator.run)!r}, but the training of {what} keeps no folder.",
            "Leave run out, and save what was learned: classifier.save(path).",
        )


def plan_for(estimator: Any, method: Choice, bags: Bags) -> LearnerPlan | TablePlan | FrozenPlan:
    """Return what a training on these bags will use, and why."""
    validation = share_reported(estimator.validation_fraction)
    if _is_frozen(estimator.model, method.value):
        reason = "given: it stays as it is, below a linear layer that is learned"
        return FrozenPlan(Choice(type(estimator.model).__name__, reason), method, validation)
    if method.value in TABLE_METHODS:
        check_is_table(method.value, kind_of_instances(bags))
        return plan_table(bags, method, validation, train_options(estimator).get("threads"))
    if isinstance(bags.x, Items):
        raise ConfigError(
            f"a {type(estimator.model).__name__} fits rows of a table, but the instances are items "
            "of a Dataset.",
            "Pass the rows as an array, or a net as model.",
        )
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
    """Train what the settings of an estimator ask for."""
    called = _without_end(callback_of(estimator.callbacks))
    if _is_frozen(estimator.model, method.value):
        return _train_frozen(estimator, bags, valid, seed, called)
    if method.value not in TABLE_METHODS:
        return _train_learner(estimator, _targets(method), bags, valid, seed, called)
    options = {"seed": seed, "device": estimator.device, "progress": estimator.verbose}
    options["threads"] = train_options(estimator).get("threads")
    options["run"] = None if estimator.run is None else _run(estimator)
    return train_table(bags, valid, method=method.value, on_net=called, **options)[:2]


def _run(estimator: Any) -> Run:
    asked = estimator.validation_fraction
    model = {} if asked is None else {"validation": float(asked)}
    return Run(estimator.run, {"model": model, "plan": estimator.plan_.reasons()})


def _without_end(callback: Any) -> Any:
    """Return a callback that says once that it cannot end this training, if it asks for that."""
    if callback is None:
        return None
    asked = False

    def call(record: dict[str, Any], net: Any) -> None:
        nonlocal asked
        if callback(record, net) and not asked:
            asked = True
            log.warning(
                "A callback asks to end training after %d, but only that of a single net can be "
                "ended: it goes on.",
                record["epoch"],
            )

    return call


def _train_learner(
    estimator: Any, targets: Any, bags: Bags, valid: Bags | None, seed: int, called: Any
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
            if called is not None:
                called(copy.deepcopy(record), None)

        eta = estimator.eta if targets == "fpl" else None
        options: dict[str, Any] = {"rounds": rounds, "eta": eta, "seed": seed}
        known = bags.without_truth()
        found = alternate(estimator.model, known, targets=targets, on_round=note, **options)
    model = Model.trained_on(bags, LearnerNet(found), epoch=rounds, device=estimator.device)
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
    estimator: Any, bags: Bags, valid: Bags | None, seed: int, called: Any
) -> tuple[Model, History]:
    backbone, device = copy.deepcopy(estimator.model), estimator.device
    options = {"seed": seed, "device": device, "threads": train_options(estimator).get("threads")}
    net, history = fit_frozen(backbone, bags, valid, **options)
    log.info("%s", readable(history.records[-1], 1, "round"))
    if called is not None:
        called(copy.deepcopy(history.records[-1]), net)
    return Model.trained_on(bags, net, epoch=1, device=device), history


def _targets(method: Choice) -> Any:
    return "soft" if method.value == SOFT else "fpl"
