"""Recipes: how a net was built, in values that JSON has, to build it again without the data."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from apportion.config import MOST_NETS
from apportion.errors import ConfigError, must_be, suggestion
from apportion.nets.measure import MOST_CATEGORIES_IN_ALL

Nets = Mapping[str, Callable[..., Any]]

MOST_AXES = 8  # of an instance
SHARED = ("classes", "features", "categories", "channels", "masked")  # by the nets of an average
REMEDY = "Pass the unchanged recipe of a net that build_net returned."
OPTIONS = {  # what those must be that do not follow from the data
    "hidden": "a list of integers ≥ 1, for example (128, 64)",
    "skip": "True or False",
    "stem": "'imagenet' or 'cifar'",
    "mirror": "True or False",
}
AVERAGE = "It must be of groups of at least one net each."


def check_name(name: str, nets: Nets) -> None:
    """Check that there is such a net."""
    if name not in nets:
        raise ConfigError(
            f"there is no net {name!r:.60}.",
            f"{suggestion(str(name), nets)} Any other nn.Module can be passed as it is.",
        )


def options_of(name: str, nets: Nets) -> list[str]:
    """Return the options of a net that do not follow from the data."""
    return [option for option in inspect.signature(nets[name]).parameters if option in OPTIONS]


def check_options(name: str, nets: Nets, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options of a net by their names and values; return them in plain types."""
    known, found = options_of(name, nets), {}
    for option, value in options.items():
        if option not in known:
            raise ConfigError(
                f"the net {name!r} has no option {option!r:.60}.",
                suggestion(str(option), known) if known else "Leave it out: it has none.",
            )
        sequence = isinstance(value, list | tuple | np.ndarray | np.generic)
        found[option] = np.asarray(value).tolist() if sequence else value
        if not _ENTRIES[option](found[option]):
            raise must_be(option, OPTIONS[option], value)
    return found


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


# ------------------------------------------------------------------------------------- averages


def average_of(groups: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the recipe of an average of nets, after a check that they can be averaged."""
    recipe = {"net": "average", "groups": [list(group) for group in groups]}
    nets = [net for group in groups_of(recipe) for net in group]
    for key in SHARED:
        found = [net[key] for net in nets if key in net]
        if other := [value for value in found if value != found[0]]:
            raise ConfigError(
                f"{key} is {found[0]!r:.60} in one net of an average and {other[0]!r:.60} in "
                "another.",
                "Average nets of the same instances and classes.",
            )
    return recipe


def groups_of(recipe: Any) -> list[list[Any]]:
    """Return the recipes of an average's nets, group by group; of another net, its own alone.

    The groups are checked, the recipes in them are not.
    """
    if not isinstance(recipe, Mapping) or recipe.get("net") != "average":
        return [[recipe]]
    groups: Any = recipe.get("groups")
    if recipe.keys() != {"net", "groups"} or not isinstance(groups, list) or not groups:
        raise ConfigError(f"{recipe!r:.60} is no recipe of an average.", AVERAGE)
    for n, group in enumerate(groups, 1):
        if not isinstance(group, list) or not group:
            raise ConfigError(f"group {n} of an average is {group!r:.60}.", AVERAGE)
        if any(isinstance(net, Mapping) and net.get("net") == "average" for net in group):
            raise ConfigError(f"group {n} of an average holds an average.", "Average its nets.")
    if (nets := sum(map(len, groups))) > MOST_NETS:
        raise ConfigError(f"an average is of {nets:,} nets.", f"Average at most {MOST_NETS}.")
    return groups


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
    "skip": lambda value: isinstance(value, bool),
    "masked": lambda value: isinstance(value, bool),
    "stem": lambda value: isinstance(value, str) and value in ("imagenet", "cifar"),
    "mirror": lambda value: isinstance(value, bool),
    "mean_shape": lambda value: _all_whole(value, 0) and len(value) <= MOST_AXES,
    "std_shape": lambda value: _all_whole(value, 0) and len(value) <= MOST_AXES,
}
