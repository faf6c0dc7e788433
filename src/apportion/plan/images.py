"""What images are given that other instances are not: pre-training, and options of ResNet-18."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from apportion.bags.bags import Bags
from apportion.config import PRESETS, TrainConfig
from apportion.errors import ConfigError, count
from apportion.plan.choices import Choice
from apportion.plan.kinds import IMAGES, called
from apportion.plan.methods import PRETRAIN, STRONG

__all__ = [
    "Pretrain",
    "Pretraining",
    "check_pretrain",
    "epochs_after_pretraining",
    "is_path",
    "options_of_resnet",
    "planned_pretraining",
    "planned_stem",
    "steps_fitting",
    "views_for",
]

MOST_VIEWED = 2e7  # rows that the net is shown in all epochs of pre-training together
MOST_TUNED = 2.65e6  # rows that it is shown after that: 80 epochs of the paper's bags of CIFAR-10
SMALL_IMAGE = 64  # pixels of the longer side: larger ones may be halved twice at once

Pretrain = bool | str | PathLike[str] | None  # whether to pre-train, or what has been


@dataclass(frozen=True)
class Pretraining:
    """How a net learns features of rows without labels, before it is trained."""

    epochs: int
    rows: int

    def __str__(self) -> str:
        return f"{count(self.epochs, 'epoch')} on {count(self.rows, 'row')} without labels"


def planned_pretraining(
    kind: str, rows: int, preset: str | None, asked: Pretrain, *, is_own_net: bool = False
) -> Choice:
    """Decide whether a net is pre-trained on so many rows without labels, and for how long.

    Examples
    --------
    >>> print(planned_pretraining("images", 33_000, "strong", None))
    500 epochs on 33,000 rows without labels (the preset 'strong')
    >>> print(planned_pretraining("images", 33_000, None, None))
    none (the preset 'strong' does that)
    """
    check_pretrain(asked, kind)
    if is_path(asked):
        return Choice(None, f"loaded from {_short(asked)}")
    if asked is None and is_own_net:
        return Choice("none", "the net that was passed is taken to be trained already")
    if asked is None and preset != STRONG:
        return Choice("none", f"the preset {STRONG!r} does that")
    if asked is False:
        return Choice("none", "given")
    most = PRESETS[PRETRAIN].epochs
    epochs = int(np.clip(round(MOST_VIEWED / rows), 20, most))
    reason = "given" if asked else f"the preset {preset!r}"
    return Choice(Pretraining(epochs, rows), reason)


def check_pretrain(asked: Any, kind: str) -> Pretrain:
    """Check what says whether a net for such instances is pre-trained, or where that is kept."""
    if asked is None or asked is False:
        return asked
    if asked is not True and not (isinstance(asked, str | PathLike) and str(asked)):
        raise ConfigError(
            f"pretrain is {asked!r:.60}.",
            "Pass True, False, or the folder of a run of apportion pretrain.",
        )
    if kind != IMAGES:
        value = repr(str(asked)) if is_path(asked) else asked
        raise ConfigError(
            f"pretrain is {value}, but the instances are {called(kind)}: views are known of "
            "images alone.",
            "Leave it out.",
        )
    return asked


def is_path(asked: Pretrain) -> bool:
    """Tell whether something that was pre-trained is to be read."""
    return not (asked is None or isinstance(asked, bool))


def views_for(augment: Sequence[str]) -> tuple[str, ...]:
    """Return the augmentations of pre-training, if these are those of training.

    Examples
    --------
    >>> views_for(("strong",)), views_for(("flip", "strong"))
    (('views',), ('flip', 'views'))
    """
    return ("flip", "views") if _flips(augment) else ("views",)


def steps_fitting(rows: int) -> int:
    """Return a power of two from 32 to 1024, of which rows make eight steps or more.

    Examples
    --------
    >>> steps_fitting(35_000), steps_fitting(1_500), steps_fitting(100)
    (1024, 128, 32)
    """
    return int(2 ** np.clip(np.floor(np.log2(max(rows, 2) / 8)), 5, 10))


def epochs_after_pretraining(rows: int) -> int:
    """Return how many epochs of training follow, of so many rows."""
    return int(max(20, round(MOST_TUNED / rows)))


def planned_stem(height: int, width: int) -> Choice:
    """Decide how resnet18 begins: whether it halves images twice at once.

    Examples
    --------
    >>> print(planned_stem(32, 32))
    cifar (images of 32 × 32 would be halved twice at once)
    """
    size = f"images of {height} × {width}"
    if max(height, width) <= SMALL_IMAGE:
        return Choice("cifar", f"{size} would be halved twice at once")
    return Choice("imagenet", f"{size} can be halved twice at once")


def options_of_resnet(
    train: Bags, config: TrainConfig, given: Mapping[str, Any]
) -> dict[str, Choice]:
    """Decide how a ResNet-18 for these images begins, and whether it mirrors them."""
    height, width = map(int, train.parts[0].shape[2:])
    flips = _flips(config.augment)
    why = "flip is" if flips else "flip is not"
    found = {
        "stem": planned_stem(height, width),
        "mirror": Choice(flips, f"{why} among the augmentations"),
    }
    return found | {name: Choice(given[name], "given") for name in found if name in given}


def _flips(augment: Sequence[str]) -> bool:
    return any(name.partition(":")[0] == "flip" for name in augment)


def _short(path: Any) -> str:
    """Return a path for readers elsewhere: never an absolute one."""
    found = Path(path).expanduser()
    return found.name if found.is_absolute() else str(found)
