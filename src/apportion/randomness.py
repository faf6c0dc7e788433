"""Random numbers as a pure function of (seed, purpose, epoch, position): no state to save.

Each purpose has numbers of its own, from numpy's Philox, whose key holds seed, purpose and epoch.
To draw the numbers of some instances only, begin at their position, or at their block.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

__all__ = ["Purpose", "generator"]


class Purpose(IntEnum):
    """The purposes of random numbers."""

    FIRST_LABELS = 1
    SHUFFLE = 2
    PERTURBATION = 3
    NETWORK = 4
    FOLDS = 5
    EFFECTS = 9


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
