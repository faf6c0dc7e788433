"""How an estimator learns: its rows and targets are read, its settings resolved, a model trained.

`LLPClassifier.fit` imports this when it is called: the class itself does not wait for torch.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import nn

from apportion.bags.bags import Bags
from apportion.bags.names import class_array
from apportion.data.giveaways import check_for_truth
from apportion.errors import ConfigError, Words
from apportion.estimator import learning
from apportion.estimator.inputs import encode_rows, n_rows_of, read_rows
from apportion.estimator.learning import OPTIONS, method_for, plan_for, trains_otherwise
from apportion.estimator.targets import known_bags
from apportion.labels.assign import likeliest_labels
from apportion.methods.base import Method
from apportion.methods.registry import method_named
from apportion.model.model import Model, describe_parts
from apportion.nets.build import build_net
from apportion.plan import (
    Choice,
    check_share,
    held_out_share,
    kind_of_rows,
    make_plan,
    share_reported,
)
from apportion.training.fit import fit
from apportion.training.progress import announce

__all__ = ["check_settings", "fit_estimator"]

log = logging.getLogger("apportion")


def fit_estimator(estimator: Any, X: Any, y: Any, bags: Any, proportions: Any) -> None:
    """Learn what `LLPClassifier.fit` is given, and set the attributes that it documents."""
    seed = _seed(estimator.random_state)
    check_settings(estimator)
    rows = read_rows(estimator, X, reset=True)
    method = method_for(estimator, kind_of_rows(rows))
    by_fit = not trains_otherwise(estimator, method.value)
    whole = known_bags(X, n_rows_of(rows), y, bags, proportions)
    estimator.classes_ = class_array(whole.classes)
    asked = estimator.validation_fraction
    check_share(asked, "validation_fraction")
    share = held_out_share(whole.n_bags, asked) if by_fit else share_reported(asked)
    train, valid = whole, None
    if share.value:
        train, valid, overlap = whole.split(share.value, seed=seed)
        if overlap.shared_rows:
            log.warning("%s", overlap)
    if not isinstance(X, Bags):  # columns are those of the training rows
        keep = estimator.keep or ()
        x, columns = encode_rows(rows, train, keep)
        whole, train = whole.with_rows(x, columns), train.with_rows(x, columns)
        valid = None if valid is None else valid.with_rows(x, columns)
        check_for_truth(train, keep, _leave_out)
    told = (
        f"Learning {whole.n_classes} classes from {whole.n_bags:,} bags of "
        f"{whole.n_instances:,} instances in all."
    )
    if by_fit:
        _train_net(estimator, method, train, valid, share, seed, told)
    else:
        estimator.plan_ = plan_for(estimator, method, train)
        announce(f"{told}\n{estimator.plan_}", estimator.verbose)
        trained = learning.train(estimator, method, train, valid, seed)
        estimator.model_, estimator.history_ = trained
    estimator.model_.net.eval()  # predictions change nothing then: threads may share it
    estimator.pseudo_labels_ = _pseudo_labels(estimator, whole, valid, isinstance(X, Bags))


def _train_net(
    estimator: Any,
    chosen: Choice,
    train: Bags,
    valid: Bags | None,
    share: Choice,
    seed: int,
    told: str,
) -> None:
    method = _method(estimator, chosen.value)
    options = {name: getattr(estimator, name) for name in (*OPTIONS, "device")} | {"seed": seed}
    given = {name: value for name, value in options.items() if value is not None}
    if not isinstance(chosen.value, str):
        chosen = Choice(type(method).__name__, chosen.reason)
    net, name = _net(estimator.model, train, seed)
    about: dict[str, Any] = {"net": name, "method": chosen, "unit": method.unit}
    plan = make_plan(train, validation=share, **about, options=given)
    estimator.plan_ = plan
    net = net if net is not None else build_net(plan.net.value, train, seed=seed)
    config, progress = plan.config(given), estimator.verbose
    announce(f"{told}\n{plan}", progress)
    estimator.history_ = fit(net, train, valid, method=method, config=config, progress=progress)
    estimator.model_ = Model(
        net,
        classes=train.classes,
        parts=describe_parts(train),
        columns=train.columns,
        epoch=estimator.history_.selected["epoch"],
        device=estimator.device,
    )


# --------------------------------------------------------------------------------------- settings


def check_settings(estimator: Any) -> None:
    """Check what needs no data; without a method, that of images will do."""
    method = method_for(estimator, "images").value
    if trains_otherwise(estimator, method):
        learning.check_settings(estimator, method)
    else:
        _method(estimator, method)


def _method(estimator: Any, given: str | Method) -> Method:
    method = method_named(given)
    if estimator.eta is None:
        return method
    settings: Any = method
    if not (is_dataclass(method) and hasattr(method, "eta")):
        raise ConfigError(
            f"eta is {estimator.eta!r}, but the method {estimator.method!r} has none.",
            "Leave eta out, or choose a method of pseudo labels, for example fpl.",
        )
    found: Method = replace(settings, eta=estimator.eta)
    return found


def _net(model: Any, train: Bags, seed: int) -> tuple[nn.Module | None, str | None]:
    """Return the user's own net, or the name of one to build, or neither."""
    if model is None or isinstance(model, str):
        return None, model
    if isinstance(model, nn.Module):
        return copy.deepcopy(model), type(model).__name__
    if isinstance(model, type) or not callable(model):
        raise ConfigError(
            f"model is {model!r}.",
            "Pass 'mlp', 'conv1d' or 'resnet18', an nn.Module, a function that makes one for "
            "the training bags, or a classifier of scikit-learn, untrained.",
        )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        made = model(train.without_truth())
    if not isinstance(made, nn.Module):
        raise ConfigError(
            f"model returned a {type(made).__name__}.", "The callable must return an nn.Module."
        )
    return made, type(made).__name__


def _seed(random_state: Any) -> int:
    """Return a seed: the given integer itself, or one that is drawn."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        check_random_state(random_state)
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _leave_out(name: str) -> Words:
    return f"Leave it out of X; or pass LLPClassifier(keep=[{name!r}]) to learn from it."


# ---------------------------------------------------------------------------------- pseudo labels


def _pseudo_labels(
    estimator: Any, whole: Bags, valid: Bags | None, by_instance: bool
) -> NDArray[Any] | None:
    decided, classes = estimator.history_.labels, estimator.classes_
    if decided is None:
        return None
    labels = np.empty(whole.n_instances, np.int64)
    if valid is None:
        labels[:] = decided
    else:
        held_out = set(valid.ids)
        out = np.repeat([bag in held_out for bag in whole.ids], whole.sizes)
        labels[~out] = decided
        labels[out] = likeliest_labels(estimator.model_.confidence(valid), valid)
    found = labels
    if not by_instance:
        found = np.empty_like(labels)
        found[whole.index] = labels
    named: NDArray[Any] = classes[found]
    return named
