"""Which method is the default, and which presets there are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from apportion.config import FOR_TRAINING, TrainConfig
from apportion.errors import ConfigError, Option, suggestion
from apportion.plan.choices import Choice
from apportion.plan.kinds import IMAGES, ITEMS, SIGNALS, SPARSE, TABLE, called

__all__ = [
    "AUTO",
    "FROM_FEATURES",
    "METHOD",
    "OF_EVERY_METHOD",
    "PAPER",
    "PRETRAIN",
    "STRONG",
    "check_preset",
    "default_method",
    "preset_options",
]

METHOD, AUTO = "fpl", "auto"
FROM_FEATURES = "fpl-mean-map"  # the same, but for where its first labels come from
ONE_NET = "count-likelihood"  # the best method of a single net on tables
STRONG, PRETRAIN, PAPER = "strong", "pretrain", "paper"  # presets; the first is also a method
OF_EVERY_METHOD = ("seed", "device", "threads")  # options of `TrainConfig`


def default_method(
    kind: str,
    given: Collection[str],
    preset: str | None = None,
    *,
    settings: Collection[str] = ("eta",),
) -> Choice:
    """Decide the method if none is given.

    Parameters
    ----------
    kind : str
        What the instances are: see `kind_of_instances`.
    given : collection of str
        The names of the options that are given.
    preset : str, optional
        The preset, if it is one of them.
    settings : collection of str, optional
        The names of options that are settings of pseudo labels, and so ask for them.

    Examples
    --------
    >>> print(default_method("table", ["seed"]))
    auto (the default for tables)
    >>> print(default_method("table", ["seed", "epochs"]))
    count-likelihood (the default of a single net on a table, which epochs asks for)
    """
    check_preset(preset, kind)
    if preset == STRONG:
        return Choice(STRONG, f"the preset {preset!r}")
    fpl = "Follow the Perturbed Leader"
    named = FROM_FEATURES if kind == SIGNALS and preset != PAPER else METHOD
    if named == FROM_FEATURES:
        fpl += ", from labels that features of the signals give"
    for name in ("preset", *settings):
        if name in given:
            return Choice(named, f"{fpl}, since {name} is given")
    if kind not in (TABLE, SPARSE, ITEMS):
        return Choice(named, f"the default: {fpl}")
    for_one = [name for name in given if name not in (*OF_EVERY_METHOD, "validation")]
    if not for_one and kind == SPARSE:
        return Choice("linear", "the default for sparse rows: many columns, of which each has few")
    if not for_one and kind == TABLE:
        return Choice(AUTO, "the default for tables")
    asks = "" if for_one in ([], ["net"]) else f", which {' and '.join(for_one)} ask"
    asks += "" if not asks else "s for" if len(for_one) == 1 else " for"
    rows = {TABLE: "a table", SPARSE: "sparse rows"}.get(kind, "rows of a Dataset")
    return Choice(ONE_NET, f"the default of a single net on {rows}{asks}")


def preset_options(name: str) -> dict[str, Any]:
    """Return the options of a preset for training."""
    if name == PRETRAIN:
        raise ConfigError(
            f"the preset {name!r} is for pre-training without labels, not for training.",
            ("Pass ", Option("preset", repr(STRONG), STRONG), ", which pre-trains by it first."),
        )
    if name not in FOR_TRAINING:
        raise ConfigError(f"there is no preset {name!r:.60}.", suggestion(str(name), FOR_TRAINING))
    return asdict(TrainConfig.preset(name))


def check_preset(name: str | None, kind: str) -> None:
    """Check that a preset is one for training, and for such instances."""
    if name is None:
        return
    preset_options(name)
    if name == STRONG and kind != IMAGES:
        remedy = "Leave the preset out" + {
            TABLE: f": {AUTO!r}, an average of nets, is the default for tables.",
            SPARSE: ": a linear model is the default for sparse rows.",
        }.get(kind, ", or choose a method.")
        raise ConfigError(
            f"preset is {name!r}, but the instances are {called(kind)}: it is for images alone.",
            remedy,
        )
