"""A fitted estimator as one safetensors file: weights, and everything else as JSON beside them."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from apportion.data.columns import Columns
from apportion.engine import checkpoint
from apportion.errors import ApportionError
from apportion.methods import METHODS, describe, method_named
from apportion.nets import from_recipe
from apportion.run import Run
from apportion.train import History

__all__ = ["ModelFileError", "load_estimator", "save_estimator"]

KIND = "LLPClassifier"


class ModelFileError(ApportionError, ValueError):
    """A file of a model that cannot be written or read. The message names it and the remedy."""


def save_estimator(estimator: Any, path: str | PathLike[str]) -> None:
    """Write a fitted estimator, whole or not at all."""
    path = Path(path)
    classes = estimator.classes_
    if classes.dtype.kind not in "biufUO":
        raise ModelFileError(
            f"the classes are of type {classes.dtype}, which a file cannot keep.",
            "Let class names be texts or numbers.",
        )
    scalars = {
        "kind": KIND,
        "parameters": _parameters(estimator),
        "classes": classes.tolist(),
        "classes_type": classes.dtype.str,
        "columns": None if estimator.columns_ is None else estimator.columns_.to_dict(),
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
    if not path.is_file():
        raise ModelFileError(f"{path} is missing.", "Pass a file that LLPClassifier.save wrote.")
    tensors, scalars = checkpoint.load(path)
    if scalars.get("kind") != KIND:
        raise ModelFileError(
            f"{path} is not a saved LLPClassifier.", "Pass a file that LLPClassifier.save wrote."
        )
    estimator.set_params(**scalars["parameters"])
    estimator.module_ = _network(path, scalars["recipe"], module)
    try:
        estimator.module_.load_state_dict(tensors.get("model", {}))
    except RuntimeError as error:
        raise ModelFileError(
            f"the weights in {path} are those of another network: {error}",
            "Pass a module like the one that was trained.",
        ) from error
    estimator.module_.eval()
    if module is not None:
        estimator.module = module
    columns = scalars["columns"]
    estimator.columns_ = None if columns is None else Columns.from_dict(columns)
    estimator.classes_ = np.array(scalars["classes"], dtype=np.dtype(scalars["classes_type"]))
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
            raise ModelFileError(
                f"{path} has the weights of a network that is none of apportion's.",
                "Pass module=, a network like the one that was trained, or a function that makes "
                "one.",
            )
        return from_recipe(recipe)
    made = module if isinstance(module, nn.Module) else module()
    if not isinstance(made, nn.Module):
        raise ModelFileError(
            f"module gave a {type(made).__name__}.", "Let the function give an nn.Module."
        )
    return made


def _parameters(estimator: Any) -> dict[str, Any]:
    """The parameters that a file can keep; others are the defaults in what is read again."""
    plain = bool | int | float | str | None
    given = estimator.get_params(deep=False)
    given.pop("device")
    found = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in given.items()
        if isinstance(value, plain | np.generic)
    }
    for name, method in METHODS.items():
        if "method" not in found and describe(method) == describe(method_named(given["method"])):
            found["method"] = name
    return found
