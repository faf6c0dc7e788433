"""How an estimator learns: its rows and targets are read, its settings resolved, a model trained.

`LLPClassifier.fit` imports this when it is called: the class itself does not wait for torch.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import nn

from apportion.bags.bags import Bags
from apportion.bags.items import Items
from apportion.bags.names import class_array
from apportion.data.giveaways import check_for_truth
from apportion.engine.distributed import Ranks, together
from apportion.errors import ConfigError, DataError, RunError, Words, must_be
from apportion.estimator import learning
from apportion.estimator.inputs import encode_rows, n_rows_of, read_rows
from apportion.estimator.learning import (
    method_for,
    plan_for,
    say_what_is_ignored,
    trains_otherwise,
)
from apportion.estimator.options import (
    callback_of,
    check_net_options,
    functions_of,
    has_eta,
    is_own_net,
    train_options,
)
from apportion.estimator.searching import check_search
from apportion.estimator.targets import known_bags
from apportion.labels.assign import likeliest_labels
from apportion.methods.base import Method
from apportion.methods.registry import method_named
from apportion.model.model import Model
from apportion.nets.build import NETS, build_net
from apportion.nets.measure import has_channels_last
from apportion.nets.normalized import Normalized
from apportion.plan.choices import Choice, Choices
from apportion.plan.held_out import check_share, held_out_share, share_reported
from apportion.plan.images import Pretraining, check_pretrain, is_path
from apportion.plan.kinds import kind_of_instances, kind_of_rows
from apportion.plan.methods import preset_options
from apportion.plan.plan import make_plan
from apportion.runs.run import Run
from apportion.training.fit import fit
from apportion.training.job import Job
from apportion.training.pretrained import (
    check_same_pretraining,
    load_as_planned,
    net_as_before,
    pretrain_as_planned,
)
from apportion.training.progress import announce

__all__ = ["check_settings", "fit_estimator"]

log = logging.getLogger("apportion")


def fit_estimator(estimator: Any, X: Any, y: Any, bags: Any, proportions: Any) -> None:
    """Learn what `LLPClassifier.fit` is given, and set the attributes that it documents."""
    check_settings(estimator)
    with together(estimator.device) as ranks:
        _fit(estimator, X, y, bags, proportions, ranks)


def _fit(estimator: Any, X: Any, y: Any, bags: Any, proportions: Any, ranks: Ranks) -> None:
    if not isinstance(X, Bags):
        check_search(estimator.run, bags)
    seed = ranks.told(_seed(estimator))
    rows = read_rows(estimator, X, reset=True)
    method = method_for(estimator, kind_of_rows(rows))
    say_what_is_ignored(estimator, method.value)
    by_fit = not trains_otherwise(estimator, method.value)
    normalize = bool(estimator.normalize)
    whole = known_bags(X, n_rows_of(rows), y, bags, proportions, normalize=normalize)
    estimator.classes_ = class_array(whole.classes)
    asked = estimator.validation_fraction
    check_share(asked, "validation_fraction")
    share = share_reported(asked)
    if by_fit:
        patient = "" if estimator.patience is None else "patience"
        share = held_out_share(whole.n_bags, asked, needed_by=patient)
        _check_patience(estimator, share)
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

    def tell(plan: Choices) -> None:
        if ranks.leads:
            what = f"{whole.n_classes} classes from {whole.n_bags:,} bags"
            text = f"Learning {what} of {whole.n_instances:,} instances in all.\n{plan}"
            announce(text, estimator.verbose)

    if by_fit:
        _train_net(estimator, method, train, valid, share, seed, tell)
    else:
        estimator.plan_ = plan_for(estimator, method, train)
        tell(estimator.plan_)
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
    tell: Callable[[Choices], None],
) -> None:
    method = _method(estimator, chosen.value)
    given = {**train_options(estimator), "device": estimator.device, "seed": seed}
    given |= {} if estimator.preset is None else {"preset": estimator.preset}
    if not isinstance(chosen.value, str):
        chosen = Choice(type(method).__name__, chosen.reason)
    net, name = _net(estimator.model, train, seed)
    run = None if estimator.run is None else Run(estimator.run)
    begun = run is not None and run.checkpoint.exists()
    pretrain: Any = check_pretrain(estimator.pretrain, kind_of_instances(train))
    asked, is_read = dict(estimator.net_options or {}), is_path(pretrain) and not begun
    before: dict[str, str] = {}
    if is_path(pretrain) and net is None:
        with suppress(*[RunError] * begun):  # a run that has its weights can do without
            before = net_as_before(pretrain, {"net": name, **asked})
        name = before.get("net", name)
        asked |= {key: value for key, value in before.items() if key != "net"}
    about: dict[str, Any] = {"net": name, "method": chosen, "unit": method.unit, "options": given}
    about |= {"net_options": asked, "pretrain": pretrain, "is_own_net": net is not None}
    plan = make_plan(train, validation=share, **about)
    config, functions = plan.config(given), functions_of(estimator)
    if "optimizer" in functions:  # which has a weight decay of its own: that of a plan is none
        plan = replace(plan, weight_decay=Choice(None, "the optimizer that was passed decides"))
        config = replace(config, weight_decay=given.get("weight_decay", 0.0))
    own: dict[str, Any] = {}
    if net is None:
        asked = plan.net_options | asked
        net = _built(plan.net.value, train, seed, asked)
        own = {name: (net.recipe or {})[name] for name in asked}  # in plain types
    if is_read:
        plan = load_as_planned(net, train, pretrain, plan, before)
    check_same_pretraining(run, plan)
    estimator.plan_ = plan
    tell(plan)
    how: dict[str, Any] = {"method": method, "config": config, "run": run, **functions}
    if run is not None:
        own = {"net": plan.net.value, **own, "validation": share.value}
        run.about = {"model": own, "plan": plan.reasons()}
    if plan.pretraining is not None and isinstance(plan.pretraining.value, Pretraining):
        job, first = Job(net, train, valid, **how), plan.pretraining.value
        pretrain_as_planned(job, first, progress=estimator.verbose)
    shown: dict[str, Any] = {"progress": estimator.verbose}
    shown["on_epoch"] = callback_of(estimator.callbacks)
    estimator.history_ = fit(net, train, valid, **how, **shown)
    epoch = estimator.history_.selected["epoch"]
    estimator.model_ = Model.trained_on(train, net, epoch=epoch, device=estimator.device)


# --------------------------------------------------------------------------------------- settings


def check_settings(estimator: Any) -> None:
    """Check what needs no data; without a method, that of images will do."""
    train_options(estimator)
    if estimator.preset is not None:
        preset_options(estimator.preset)
    check_pretrain(estimator.pretrain, "images")
    functions_of(estimator)
    callback_of(estimator.callbacks)
    if not isinstance(estimator.normalize, bool | np.bool_):
        raise must_be("normalize", "True or False", estimator.normalize)
    if not (estimator.run is None or isinstance(estimator.run, str | PathLike)):
        raise must_be("run", "the path of a folder", estimator.run)
    check_net_options(estimator.net_options, estimator.model)
    method = method_for(estimator, "images").value
    if trains_otherwise(estimator, method):
        learning.check_settings(estimator, method)
    else:
        _method(estimator, method)


def _method(estimator: Any, given: str | Method) -> Method:
    method: Any = method_named(given)
    if estimator.eta is None or not has_eta(method):
        return method  # type: ignore[no-any-return]
    found: Method = replace(method, eta=estimator.eta)
    return found


def _check_patience(estimator: Any, share: Choice) -> None:
    if estimator.patience is not None and not share.value:
        given = estimator.validation_fraction is not None
        raise ConfigError(
            f"patience is {estimator.patience}, but no bags are held out to stop by: "
            f"{'validation_fraction is 0' if given else 'there is only one'}.",
            "Pass validation_fraction=0.1 or another share of the bags, or leave patience out."
            if given
            else "Leave patience out.",
        )


def _net(model: Any, train: Bags, seed: int) -> tuple[nn.Module | None, str | None]:
    """Return the user's own net, or the name of one to build, or neither."""
    if model is None or isinstance(model, str):
        return None, model
    if isinstance(model, nn.Module):
        return copy.deepcopy(model), type(model).__name__
    if not is_own_net(model):
        raise ConfigError(
            f"model is {model!r}.",
            f"Pass one of {', '.join(map(repr, NETS))}; an nn.Module, or a function that makes one "
            "for the training bags; or a classifier of scikit-learn, untrained.",
        )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        made = model(train.without_truth())
    if not isinstance(made, nn.Module):
        raise ConfigError(
            f"model returned a {type(made).__name__}.", "The callable must return an nn.Module."
        )
    return made, type(made).__name__


def _built(name: str, train: Bags, seed: int, options: Mapping[str, Any]) -> Normalized:
    """Build a net for the data; the remedy for channels that come last is one of this door."""
    try:
        return build_net(name, train, seed=seed, **options)
    except DataError as error:
        shape = tuple(map(int, train.parts[0].shape))
        if name != "resnet18" or not has_channels_last(shape):
            raise
        moved = "Pass Bags of np.moveaxis(x, -1, 1), or of x.movedim(-1, 1) if x is a tensor"
        if isinstance(train.x, Items):
            moved = "Return x.movedim(-1, 0) from the Dataset, or np.moveaxis(x, -1, 0) of an array"
        own = f'lambda bags: apportion.build_net("{name}", bags, channels={shape[1]})'
        raise error.remedied(f"{moved}; if these are {shape[1]} channels, model={own}.") from None


def _seed(estimator: Any) -> int:
    """Return a seed: the given integer, that of a run to go on with, or one that is drawn."""
    random_state = estimator.random_state
    if random_state is None and estimator.run is not None and Run(estimator.run).config.is_file():
        return int(Run(estimator.run).settings()["train"]["seed"])
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
