"""A fitted estimator as one safetensors file: weights, and everything else as JSON beside them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from apportion.bags.columns import Columns
from apportion.errors import ConfigError, RunError
from apportion.estimator.targets import class_array
from apportion.methods.registry import describe, method_from
from apportion.model.trained import Trained, read_trained
from apportion.nets.build import from_recipe
from apportion.runs.run import Run
from apportion.training import checkpoint
from apportion.training.session import History

__all__ = ["load_estimator", "save_estimator"]

log = logging.getLogger("apportion")

KIND = "LLPClassifier"
PLAIN = bool | int | float | str | None


def save_estimator(estimator: Any, path: str | PathLike[str]) -> None:
    """Write a fitted estimator, whole or not at all."""
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise RunError(f"{path} {problem}.", "Pass the path of a file in an existing folder.")
    classes = estimator.classes_
    for name in classes.tolist():
        if not isinstance(name, PLAIN):
            raise RunError(
                f"class {name!r} is a {type(name).__name__}, which a file cannot keep.",
                "Let class names be texts or numbers.",
            )
    scalars = {
        "kind": KIND,
        "parameters": _parameters(estimator),
        "classes": classes.tolist(),
        "classes_type": classes.dtype.str,
        "columns": None if estimator.columns_ is None else estimator.columns_.to_dict(),
        "layout": estimator.layout_,
        "recipe": getattr(estimator.module_, "recipe", None),
        "n_features_in": getattr(estimator, "n_features_in_", None),
        "feature_names_in": list(getattr(estimator, "feature_names_in_", ())) or None,
        "records": estimator.history_.records,
        "best_epoch": estimator.history_.best_epoch,
    }
    checkpoint.save(Run(path.parent), path, {"model": estimator.module_.state_dict()}, scalars)


def load_estimator(
    estimator: Any,
    path: str | PathLike[str],
    module: nn.Module | Callable[[], nn.Module] | None,
) -> Any:
    """Bring an estimator into the state that was saved, but for where it computes."""
    path = Path(path)
    if path.is_dir():
        return _of_run(estimator, read_trained(path))
    if not path.is_file():
        raise RunError(
            f"{path} is missing.",
            "Pass a file that LLPClassifier.save wrote, or the folder of a finished run.",
        )
    tensors, scalars = checkpoint.load(path)
    if scalars.get("kind") != KIND:
        raise RunError(
            f"{path} is not a saved LLPClassifier.", "Pass a file that LLPClassifier.save wrote."
        )
    try:
        return _restored(estimator, path, tensors, scalars, module)
    except (KeyError, TypeError) as error:
        raise RunError(
            f"{path} lacks something that was saved: {type(error).__name__} {error}.",
            "Restore the file from a copy.",
        ) from error


def _of_run(estimator: Any, trained: Trained) -> Any:
    """Bring an estimator into the state of one that was trained in a run folder."""
    estimator.module = trained.model.recipe["net"] if trained.model.recipe else "mlp"
    estimator.module_, estimator.columns_ = trained.model, trained.columns
    estimator.classes_ = class_array(trained.classes)
    shapes = [part["shape"] for part in trained.parts]
    estimator.layout_ = tuple((1 + len(shape), shape[0] if shape else 1) for shape in shapes)
    selected = trained.epoch if "valid_error" in trained.records[-1] else None
    estimator.history_ = History(trained.records, selected)
    estimator.pseudo_labels_ = None
    if trained.columns is not None:
        estimator.n_features_in_ = len(trained.columns.names)
        estimator.feature_names_in_ = np.array(trained.columns.names, dtype=object)
    return estimator


def _restored(
    estimator: Any, path: Path, tensors: dict[str, Any], scalars: dict[str, Any], module: Any
) -> Any:
    estimator.set_params(**_read_parameters(scalars["parameters"]))
    estimator.module_ = _network(path, scalars["recipe"], module)
    try:
        estimator.module_.load_state_dict(tensors.get("model", {}))
    except RuntimeError as error:
        raise RunError(
            f"the weights in {path} are those of another network: {error}",
            "Pass a module like the one that was trained.",
        ) from error
    estimator.module_.eval()
    if module is not None:
        estimator.module = estimator.module_
    columns = scalars["columns"]
    estimator.columns_ = None if columns is None else Columns.from_dict(columns)
    estimator.classes_ = np.array(scalars["classes"], dtype=np.dtype(scalars["classes_type"]))
    estimator.layout_ = tuple((axes, features) for axes, features in scalars["layout"])
    estimator.history_ = History(scalars["records"], scalars["best_epoch"])
    estimator.pseudo_labels_ = None
    for name, value in (
        ("n_features_in_", scalars["n_features_in"]),
        ("feature_names_in_", scalars["feature_names_in"]),
    ):
        if value is not None:
            setattr(estimator, name, np.array(value, object) if isinstance(value, list) else value)
    return estimator


def _network(path: Path, recipe: Any, module: Any) -> nn.Module:
    if module is None:
        if recipe is None:
            raise RunError(
                f"{path} has the weights of a network that is none of apportion's.",
                "Pass module=, a network like the one that was trained, or a function that makes "
                "one.",
            )
        return from_recipe(recipe)
    try:
        made = module if isinstance(module, nn.Module) else module()
    except TypeError as error:
        raise RunError(
            f"module cannot be called without arguments: {error}.",
            "Pass a network like the one that was trained, or a function without arguments that "
            "makes one: the data that it was built for are not there any more.",
        ) from error
    if not isinstance(made, nn.Module):
        raise RunError(
            f"module gave a {type(made).__name__}.", "Let the function give an nn.Module."
        )
    return made


def _parameters(estimator: Any) -> dict[str, Any]:
    """The parameters that a file can keep; others are the defaults in what is read again."""
    given = estimator.get_params(deep=False)
    given.pop("device")
    found = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in given.items()
        if isinstance(value, PLAIN | np.generic)
    }
    if "method" not in found:
        settings = describe(given["method"])
        try:
            again = method_from(settings)
        except ConfigError:  # one of its own, or with arrays
            again = None
        if again is None or type(again) is not type(given["method"]):
            log.warning("The method %r cannot be kept in a file.", given["method"])
        else:
            found["method"] = settings
    return found


def _read_parameters(saved: Mapping[str, Any]) -> dict[str, Any]:
    method = saved.get("method")
    return {**saved, "method": method_from(method)} if isinstance(method, Mapping) else dict(saved)
