"""Random numbers as a pure function of (seed, purpose, epoch, position): no state to save.

Each purpose has numbers of its own, from numpy's Philox, whose key holds seed, purpose and epoch.
To draw the numbers of some instances only, begin at their position, or at their block.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

__all__ = ["Purpose", "generator", "kept_generators", "seed_generators", "seeds_of_rows"]


class Purpose(IntEnum):
    """The purposes of random numbers."""

    FIRST_LABELS = 1
    SHUFFLE = 2
    PERTURBATION = 3
    NETWORK = 4
    FOLDS = 5
    ITEMS = 6
    EFFECTS = 7


def generator(
    seed: int, purpose: Purpose, epoch: int, *, block: int = 0, position: int = 0
) -> np.random.Generator:
    """Return the generator of one purpose in one epoch.

    Parameters
    ----------
    block : int
        The number of a block. Blocks are so far apart that they never overlap.
    position : int
        How many 64-bit numbers of the block to skip. A uniform float64 takes one; others,
        such as normal numbers, take a number that is random itself.

    Examples
    --------
    >>> first, again = (generator(0, Purpose.SHUFFLE, epoch=3).random(9) for _ in range(2))
    >>> bool((first == again).all())
    True
    >>> bool((first[5:] == generator(0, Purpose.SHUFFLE, epoch=3, position=5).random(4)).all())
    True
    """
    key = np.array((seed, purpose << 32 | epoch), np.uint64)
    numbers = np.random.Philox(key=key, counter=(position // 4, 0, 0, block))  # 4 at a time
    numbers.random_raw(position % 4, output=False)
    return np.random.Generator(numbers)


def seeds_of_rows(seed: int, epoch: int, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a seed for each row in one epoch, whatever the other rows are.

    Examples
    --------
    >>> both = seeds_of_rows(0, 1, np.array([3, 9]))
    >>> bool(both[1] == seeds_of_rows(0, 1, np.array([9]))[0])
    True
    """
    base = generator(seed, Purpose.ITEMS, epoch).integers(2**63, dtype=np.uint64)
    mixed = base + rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # SplitMix64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    found: NDArray[np.uint64] = (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1)
    return found


def seed_generators(seed: int) -> None:
    """Seed the generators of the process that other people's code draws from."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002 (it is theirs)
    if torch := sys.modules.get("torch"):  # where it is not loaded, nobody draws from it
        torch.default_generator.manual_seed(seed)


@contextmanager
def kept_generators() -> Iterator[None]:
    """Leave these generators at the end of the block as they were before it.

    Examples
    --------
    >>> with kept_generators():
    ...     seed_generators(1)
    ...     drawn = random.random()
    >>> drawn == random.random()
    False
    """
    torch = sys.modules.get("torch")
    pythons, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002
    torchs = torch.default_generator.get_state() if torch else None
    try:
        yield
    finally:
        random.setstate(pythons)
        np.random.set_state(numpys)  # noqa: NPY002
        if torch and torchs is not None:
            torch.default_generator.set_state(torchs)
