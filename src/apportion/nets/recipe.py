"""Recipes: how a net was built, in values that JSON has, to build it again without the data."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from apportion.errors import ConfigError, suggestion
from apportion.nets.measure import MOST_CATEGORIES_IN_ALL

Nets = Mapping[str, Callable[..., Any]]

MOST_AXES = 8  # of an instance
REMEDY = "Pass the unchanged recipe of a net that build_net returned."


def check_name(name: str, nets: Nets) -> None:
    """Check that there is such a net."""
    if name not in nets:
        raise ConfigError(
            f"there is no net {name!r:.60}.",
            f"{suggestion(str(name), nets)} Any other nn.Module can be passed as it is.",
        )


def write_recipe(
    name: str, make: Callable[..., Any], arguments: dict[str, Any], mean: Tensor, std: Tensor
) -> dict[str, Any]:
    """Return how a net was built, in values that JSON has."""
    bound = inspect.signature(make).bind(**arguments)
    bound.apply_defaults()  # today's: they may be others when it is built again
    shapes = {"mean_shape": mean.shape, "std_shape": std.shape}
    text = json.dumps(
        {"net": name, **bound.arguments, **shapes}, default=lambda value: np.asarray(value).tolist()
    )
    recipe: dict[str, Any] = json.loads(text)
    return recipe


def read_recipe(recipe: Any, nets: Nets) -> tuple[str, dict[str, Any], list[int], list[int]]:
    """Check a recipe; return the name of the net, its arguments, and the shapes of mean and std."""
    if not isinstance(recipe, Mapping) or not isinstance(recipe.get("net"), str):
        raise ConfigError(f"{recipe!r:.60} is no recipe of a net.", REMEDY)
    entries = dict(recipe)
    name = entries.pop("net")
    check_name(name, nets)
    wanted = [*inspect.signature(nets[name]).parameters, "mean_shape", "std_shape"]
    for key in {**dict.fromkeys(wanted), **entries}:
        if key not in entries:
            raise ConfigError(f"the recipe of {name} lacks {key!r}.", REMEDY)
        if key not in wanted:
            raise ConfigError(
                f"the recipe of {name} has an entry {key!r}.", suggestion(str(key), wanted)
            )
        if not _ENTRIES[key](entries[key]):
            raise ConfigError(f"{key} is {entries[key]!r:.60} in the recipe of {name}.", REMEDY)
    return name, entries, entries.pop("mean_shape"), entries.pop("std_shape")


def _whole(value: Any, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**31


def _all_whole(values: Any, least: int = 1) -> bool:
    return isinstance(values, list | tuple) and all(_whole(value, least) for value in values)


# What the entries of a recipe may be.
_ENTRIES: dict[str, Callable[[Any], bool]] = {
    "features": lambda value: _whole(value, 0),
    "classes": _whole,
    "channels": _whole,
    "hidden": _all_whole,
    "categories": lambda value: (
        value is None or (_all_whole(value) and sum(value) <= MOST_CATEGORIES_IN_ALL)
    ),
    "masked": lambda value: isinstance(value, bool),
    "stem": lambda value: value in ("imagenet", "cifar"),
    "mean_shape": lambda value: _all_whole(value, 0) and len(value) <= MOST_AXES,
    "std_shape": lambda value: _all_whole(value, 0) and len(value) <= MOST_AXES,
}
