"""A fitted estimator as a file: its model, with the estimator's own parameters in the header."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from apportion.bags.names import class_array
from apportion.errors import ConfigError, RunError, must_be
from apportion.estimator.fitting import check_settings
from apportion.estimator.options import train_options
from apportion.methods.registry import describe, method_from
from apportion.model.learner import LearnerNet
from apportion.model.model import Model
from apportion.nets.build import NETS
from apportion.nets.recipe import check_name
from apportion.runs.header import RESTORE, read_header
from apportion.runs.run import Run, check_records, planned
from apportion.training.history import History

__all__ = ["load_estimator", "save_estimator"]

log = logging.getLogger("apportion")

# Parameters that no file has: of the machine, and functions, which a file cannot hold.
IN_NO_FILE = ("device", "run", "callbacks", "optimizer", "scheduler")
PLAIN = bool | int | float | str | None


def save_estimator(estimator: Any, path: str | PathLike[str]) -> None:
    """Write a fitted estimator, whole or not at all."""
    own = {
        "parameters": _parameters(estimator),
        "records": estimator.history_.records,
        "best_epoch": estimator.history_.best_epoch,
        "n_features_in": getattr(estimator, "n_features_in_", None),
        "feature_names_in": list(getattr(estimator, "feature_names_in_", ())) or None,
    }
    estimator.model_.save(path, about={"estimator": own})


def load_estimator(
    estimator: Any,
    path: str | PathLike[str],
    net: nn.Module | Callable[[], nn.Module] | None,
    *,
    last: bool = False,
) -> Any:
    """Restore the saved state of an estimator, except its device."""
    path = Path(path)
    model = Model.load(path, net=net, last=last, device=estimator.device)
    try:
        own = _saved(path, model, last=last)
        parameters = _read_parameters(own["parameters"])
        _check_parameters(parameters)
        estimator.set_params(**parameters)
        if isinstance(model.net, LearnerNet):
            estimator.model = model.net.ensemble.learner
        check_settings(estimator)
        n_epochs, best = len(own["records"]), own["best_epoch"]
        check_records(path, own["records"], RESTORE)
        if not (best is None or (type(best) is int and 1 <= best <= n_epochs)):
            raise ValueError(f"best_epoch is {best!r:.60}, of {n_epochs} epochs")
        estimator.history_ = History(own["records"], best)
        n_features, names = own["n_features_in"], own["feature_names_in"]
        if n_features is not None:
            if type(n_features) is not int or not 1 <= n_features < 2**31:
                raise ValueError(f"n_features_in is {n_features!r:.60}")
            estimator.n_features_in_ = n_features
        if names is not None:
            if not _are_texts(names) or len(names) != n_features:
                raise ValueError(f"feature_names_in are {names!r:.60}")
            estimator.feature_names_in_ = np.array(names, dtype=object)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = str(error).partition("\n")[0].rstrip(".")
        raise RunError(
            f"{path} lacks something that was saved: {type(error).__name__} {problem}.",
            "Restore it from a copy.",
        ) from error
    if net is not None:
        estimator.model = model.net
    estimator.model_, estimator.classes_ = model, class_array(model.classes)
    estimator.pseudo_labels_, estimator.plan_ = None, None
    return estimator


def _saved(path: Path, model: Model, *, last: bool) -> dict[str, Any]:
    """Return what was saved of an estimator, or what follows from the model of a run or a file."""
    own: dict[str, Any] = {} if path.is_dir() else read_header(path, "model").get("estimator", {})
    if own:
        return own
    run = Run(path) if path.is_dir() else None
    settings = {} if run is None else run.settings()
    method = settings.get("method", {}).get("name")
    records = [] if run is None else run.records()
    records = records[: model.epoch] if last else records  # the log may be ahead of the checkpoint
    names = None if model.columns is None else list(model.columns.names)
    n_features = None if names is None else len(names)
    if names == [str(place) for place in range(n_features or 0)]:  # the columns of an array
        names = None
    name = (getattr(model.net, "recipe", None) or {}).get("net")
    selects = not last and "valid_error" in (records or [{}])[-1]
    parameters: dict[str, Any] = {"model": name} if name in NETS else {}
    if run is not None and planned(settings)[1] == "net":
        selects, parameters = False, {"method": method}
    elif method is not None:
        parameters["method"] = settings["method"]
    return {
        "parameters": parameters,
        "records": records,
        "best_epoch": model.epoch if selects else None,
        "n_features_in": n_features,
        "feature_names_in": names,
    }


def _parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters that a file can store; when it is read, others have their defaults."""
    given = estimator.get_params(deep=False)
    for name in IN_NO_FILE:
        given.pop(name)
    found = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in given.items()
        if isinstance(value, PLAIN | np.generic)
    }
    if not isinstance(given["pretrain"], bool | None):  # a path, of the machine as well
        found.pop("pretrain", None)
    if given["keep"] is not None:
        found["keep"] = list(map(str, given["keep"]))
    if given["augment"] is not None and not callable(given["augment"]):
        found["augment"] = train_options(estimator)["augment"]
    for name in ("net_options", "train_options"):
        if given[name] is not None:
            found[name] = json.loads(json.dumps(dict(given[name]), default=_plain))
    if "method" not in found:  # then it is settings of one's own
        settings = describe(given["method"])
        if _again(settings) != (type(given["method"]), settings):
            log.warning("The method %r cannot be stored in a file.", given["method"])
        else:
            found["method"] = settings
    return found


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist()


def _again(settings: Mapping[str, Any]) -> Any:
    """Return what the settings become when they are read; None if they are those of no method."""
    try:
        method = method_from(settings)
    except (KeyError, TypeError, ValueError):
        return None
    return type(method), describe(method)


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "validation_fraction": ("from 0 to below 1", lambda v: type(v) in (int, float) and 0 <= v < 1),
    "random_state": ("an integer ≥ 0", lambda v: type(v) is int and 0 <= v < 2**63),
    "eta": ("a number ≥ 0", lambda v: type(v) in (int, float) and 0 <= v < 1e300),
    "net_options": ("options by name", lambda v: isinstance(v, dict)),
    "keep": ("a list of texts", lambda v: isinstance(v, list) and _are_texts(v)),
    "pretrain": ("true or false", lambda v: isinstance(v, bool)),
    "verbose": ("true or false", lambda v: isinstance(v, bool)),
}


def _check_parameters(parameters: Mapping[str, Any]) -> None:
    """Check the parameters of a file that `check_settings` does not."""
    named = {name: value for name, value in parameters.items() if value is not None}
    if "model" in named:
        check_name(named["model"], NETS)
    for name, (words, holds) in RULES.items():
        if name in named and not holds(named[name]):
            raise must_be(name, words, named[name])
    for name in {*IN_NO_FILE} & parameters.keys():
        raise ConfigError(f"a file does not decide {name}.")


def _read_parameters(saved: Mapping[str, Any]) -> dict[str, Any]:
    method = saved.get("method")
    return {**saved, "method": method_from(method)} if isinstance(method, Mapping) else dict(saved)
