"""Random numbers as a pure function of (seed, purpose, epoch): there is no state to save.

Each purpose has numbers of its own, from numpy's Philox, whose key holds seed, purpose and epoch.
Where torch insists on its global generators (dropout), they are seeded anew before every epoch, so
that a run that goes on after any epoch draws what an uninterrupted one does.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch

__all__ = ["Purpose", "generator", "reseed", "stream"]


class Purpose(IntEnum):
    """What random numbers are for."""

    FIRST_LABELS = 1
    SHUFFLE = 2
    PERTURBATION = 3
    NETWORK = 4


def stream(seed: int, purpose: Purpose, epoch: int, block: int = 0) -> np.random.Generator:
    """Give the generator of one purpose in one epoch; its blocks are far apart in one stream.

    Examples
    --------
    >>> first, again = (stream(0, Purpose.SHUFFLE, epoch=3).random() for _ in range(2))
    >>> first == again, first == stream(0, Purpose.SHUFFLE, epoch=4).random()
    (True, False)
    """
    key = np.array((seed, purpose << 32 | epoch), np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=(0, 0, 0, block)))


def generator(device: torch.device) -> torch.Generator:
    """Give torch's global generator of a device."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator


def reseed(seed: int, epoch: int, device: torch.device) -> None:
    """Seed torch's global generators for an epoch."""
    value = int(stream(seed, Purpose.NETWORK, epoch).integers(2**63))
    for where in {torch.device("cpu"), device}:
        generator(where).manual_seed(value)
