"""Which bags each of several processes looks at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["shard_cuts"]

Ints = NDArray[np.int64]


def shard_cuts(offsets: Ints, world: int) -> Ints:
    """Cut bags into runs of about as many instances: run r has the bags cuts[r] to cuts[r + 1] - 1.

    Runs may be empty, where there are few bags or large ones, but never the first.

    Examples
    --------
    >>> shard_cuts(np.array([0, 3, 4, 8, 9, 12]), 3)
    array([0, 2, 3, 5])
    >>> shard_cuts(np.array([0, 10]), 3)
    array([0, 1, 1, 1])
    """
    wanted = offsets[-1] * np.arange(1, world) / world
    after = np.searchsorted(offsets, wanted)  # the first end of a bag that is not before it
    nearer = wanted - offsets[after - 1] < offsets[after] - wanted
    inner = np.maximum(after - nearer, 1)
    return np.concatenate([[0], inner, [len(offsets) - 1]])
