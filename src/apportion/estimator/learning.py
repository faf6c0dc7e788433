"""How an estimator trains what `fit` does not: a learner, a linear model, or an average."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

from apportion.auto import in_words, learn, members_of
from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.errors import ConfigError
from apportion.labels.assign import likeliest_labels
from apportion.labels.linear import LINEAR_FITS
from apportion.learners.alternate import ROUNDS, Round, alternate
from apportion.learners.linear import linear_net
from apportion.metrics import accuracy, bag_means, proportion_error
from apportion.model.learner import LearnerNet, is_learner
from apportion.model.model import Model, describe_parts
from apportion.plan import AUTO, Choice, Choices
from apportion.training.checks import warn_of_bags
from apportion.training.history import History
from apportion.training.progress import brief, progress_bars, readable

__all__ = ["AutoPlan", "LearnerPlan", "LinearPlan", "check_settings", "plan_for", "train",
           "trains_otherwise"]  # fmt: skip

log = logging.getLogger("apportion")

# Options of `TrainConfig` that an estimator has, beside the device. Learners have epochs as well.
OPTIONS = ("epochs", "batch_size", "learning_rate", "weight_decay")
OF_NETS: tuple[str, ...] = OPTIONS[1:]


@dataclass(frozen=True)
class LearnerPlan(Choices):
    """What the training of a learner uses, and why."""

    learner: Choice
    method: Choice
    epochs: Choice  # rounds
    validation: Choice


@dataclass(frozen=True)
class LinearPlan(Choices):
    """What the fit of a linear model uses, and why."""

    net: Choice
    method: Choice
    validation: Choice


@dataclass(frozen=True)
class AutoPlan(Choices):
    """What an average uses, and why."""

    net: Choice
    method: Choice
    validation: Choice


def trains_otherwise(estimator: Any) -> bool:
    """Tell whether the settings of an estimator ask for something that `fit` does not train."""
    return is_learner(estimator.model) or _is_linear(estimator.method) or _is_auto(estimator.method)


def check_settings(estimator: Any) -> None:
    """Check settings that ask for no training by `fit`."""
    method, model = estimator.method, estimator.model
    if _is_linear(method) or _is_auto(method):
        if model is not None:
            chosen = "chooses its nets itself" if _is_auto(method) else "fits a linear model"
            raise ConfigError(
                f"model is {model!r:.60}, but the method {method!r} {chosen}.",
                "Leave model out, or choose another method.",
            )
        if _is_auto(method):  # whose nets have such options
            TrainConfig.from_dict(_given(estimator))
        return
    if method is not None and not (isinstance(method, str) and method == "fpl"):
        raise ConfigError(
            f"the method {method!r} trains nets, not a {type(model).__name__}.",
            "With a learner leave method out, for soft labels, or pass method='fpl' and eta.",
        )
    if estimator.eta is not None and method is None:
        raise ConfigError(
            f"eta is {estimator.eta!r}, but soft labels, which a learner gets by default, have "
            "none.",
            "Leave eta out, or pass method='fpl'.",
        )
    if estimator.epochs is not None:
        TrainConfig.from_dict({"epochs": estimator.epochs})


def share_for(estimator: Any) -> Choice:
    """Decide which share of the bags is held out, whole, from a training that selects nothing."""
    if estimator.validation_fraction is None:
        return Choice(0.0, "nothing is selected, so all bags are learned from")
    share = float(estimator.validation_fraction)
    return Choice(share, "given; it selects nothing, and is only reported")


def plan_for(estimator: Any, bags: Bags) -> AutoPlan | LearnerPlan | LinearPlan:
    """Return what a training on these bags will use, and why."""
    validation = share_for(estimator)
    if _is_linear(estimator.method):
        net = Choice("mlp", "without hidden layers: a linear model")
        return LinearPlan(net, Choice(estimator.method, "given"), validation)
    if _is_auto(estimator.method):
        n = sum(member.kept for member in members_of(bags))
        net = Choice(f"average of {n} nets", in_words(bags))
        return AutoPlan(net, Choice(AUTO, "given"), validation)
    targets = _targets(estimator)
    epochs = Choice(ROUNDS[targets], "the default: rounds of fitting and labelling")
    return LearnerPlan(
        Choice(type(estimator.model).__name__, "given"),
        Choice("soft labels", "the default") if targets == "soft" else Choice(targets, "given"),
        epochs if estimator.epochs is None else Choice(estimator.epochs, "given, as rounds"),
        validation,
    )


def train(estimator: Any, bags: Bags, valid: Bags | None, seed: int) -> tuple[Model, History]:
    """Train what the settings of an estimator ask for, and note which of them are ignored."""
    fit: Any = _fit_learner
    what, unused = type(estimator.model).__name__, OF_NETS
    if _is_linear(estimator.method):
        fit, what = _fit_linear, f"the method {estimator.method!r}"
        unused = (*OF_NETS, "epochs", "eta")
    elif _is_auto(estimator.method):
        fit, what, unused = _fit_auto, "the method 'auto'", ("eta",)
    for name in unused:
        if getattr(estimator, name) is not None:
            log.warning("%s is ignored: it has no meaning for %s.", name, what)
    net, records = fit(estimator, bags.without_truth(), seed)
    about = {"columns": bags.columns, "epoch": len(records), "device": estimator.device}
    model = Model(net, bags.classes, describe_parts(bags), **about)
    history = History(records)
    if isinstance(net, LearnerNet):
        history.labels = likeliest_labels(model.confidence(bags), bags)
        if bags.truth is not None:
            records[-1]["label_accuracy"] = accuracy(history.labels, bags.truth)
    if valid is not None:
        confidence = model.confidence(valid)
        found = bag_means(confidence, valid.offsets)
        records[-1]["valid_error"] = proportion_error(valid.proportions, found)
        if valid.truth is not None:
            records[-1]["valid_accuracy"] = accuracy(confidence.argmax(axis=1), valid.truth)
    log.info("%s", readable(records[-1], len(records)))
    return model, history


def _fit_learner(estimator: Any, bags: Bags, seed: int) -> tuple[LearnerNet, list[dict[str, Any]]]:
    targets, records = _targets(estimator), list[dict[str, Any]]()
    rounds = ROUNDS[targets] if estimator.epochs is None else estimator.epochs
    with progress_bars([rounds], estimator.verbose) as (show,):

        def note(done: Round) -> None:
            record = {
                "epoch": done.number,
                "proportion_error": done.proportion_error,
                "changed": done.changed,
                "seconds": {"round": round(done.seconds, 4)},
            }
            records.append(record)
            if done.number < rounds:  # the last one is told with what is measured at the end
                log.info("%s", readable(record, rounds))
            show(done.number, brief(record))

        options: dict[str, Any] = {"rounds": rounds, "eta": estimator.eta, "seed": seed}
        found = alternate(estimator.model, bags, targets=targets, on_round=note, **options)
    return LearnerNet(found), records


def _fit_linear(estimator: Any, bags: Bags, seed: int) -> tuple[Any, list[dict[str, Any]]]:
    warn_of_bags(bags)
    began = time.perf_counter()
    linear = LINEAR_FITS[estimator.method](bags, seed=seed)
    seconds = round(time.perf_counter() - began, 4)
    found = bag_means(linear.confidence(bags.x, bags.index), bags.offsets)
    error = proportion_error(bags.proportions, found)
    record = {"epoch": 1, "proportion_error": error, "l2": linear.l2, "seconds": {"fit": seconds}}
    return linear_net(linear), [record]


def _fit_auto(estimator: Any, bags: Bags, seed: int) -> tuple[Any, list[dict[str, Any]]]:
    members, records = members_of(bags), list[dict[str, Any]]()
    with progress_bars([len(members)], estimator.verbose) as (show,):

        def note(record: dict[str, Any], _: Any) -> None:
            records.append(record)
            show(record["epoch"], record["member"])

        found = learn(
            bags, seed=seed, device=estimator.device, options=_given(estimator), on_member=note
        )
    if found.expectation is not None:
        tell = log.info if found.expectation.learned else log.warning
        tell("auto: %s.", found.expectation)
        records[-1]["skill"] = found.expectation.skill
    return found.net, records


def _given(estimator: Any) -> dict[str, Any]:
    """Return the options of nets that are set."""
    return {name: v for name in OPTIONS if (v := getattr(estimator, name)) is not None}


def _is_auto(method: Any) -> bool:
    return isinstance(method, str) and method == AUTO


def _targets(estimator: Any) -> Any:
    return "soft" if estimator.method is None else "fpl"


def _is_linear(method: Any) -> bool:
    return isinstance(method, str) and method in LINEAR_FITS
