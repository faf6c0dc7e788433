"""Random numbers as a pure function of (seed, purpose, epoch): there is no state to save.

Each purpose has numbers of its own, from numpy's Philox, whose key holds seed, purpose and epoch.
Where torch insists on its global generators (dropout), each run has states of its own to put there
while it draws (`OwnGenerators`), so that neither the caller nor a run beside it notices. They are
seeded anew before every epoch, so that a run that goes on after any epoch draws what an
uninterrupted one does.
"""

from __future__ import annotations

import threading
from enum import IntEnum
from typing import Any

import numpy as np
import torch

__all__ = ["OwnGenerators", "Purpose", "generator", "reseed", "stream"]


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


class OwnGenerators:
    """The states of torch's global generators in one run: ``with`` them, torch draws from these.

    Only one run at a time has the global generators; other code that draws from them meanwhile, in
    a thread beside it, would draw from these. A CUDA graph that is captured meanwhile keeps
    to the run's own states ever after, and needs no such turn to be replayed.

    Examples
    --------
    >>> one, other = (OwnGenerators(torch.device("cpu")) for _ in range(2))
    >>> one.reseed(seed=0, epoch=1)
    >>> other.reseed(seed=0, epoch=1)
    >>> with one:
    ...     drawn = torch.rand(3)
    >>> with other:
    ...     bool((drawn == torch.rand(3)).all())
    True
    """

    turn = threading.RLock()  # torch's generators are one for the whole process

    def __init__(self, device: torch.device) -> None:
        self.device, self.depth = device, 0
        self.cpu: torch.Tensor = torch.default_generator.get_state()
        self.cuda: Any = generator(device).clone_state() if device.type == "cuda" else None
        self.callers: tuple[torch.Tensor, Any] | None = None

    def reseed(self, seed: int, epoch: int) -> None:
        """Seed them for an epoch."""
        with self:
            reseed(seed, epoch, self.device)

    def renew(self) -> None:
        """Leave the state on the GPU to a recording that failed, and go on from a copy."""
        seed, offset = self.cuda.initial_seed(), self.cuda.get_offset()
        self.cuda = torch.Generator(self.device)
        self.cuda.manual_seed(seed)
        self.cuda.set_offset(offset)
        if self.depth:
            generator(self.device).graphsafe_set_state(self.cuda)

    def __enter__(self) -> None:
        self.turn.acquire()
        self.depth += 1
        if self.depth == 1:
            on_gpu = generator(self.device) if self.cuda is not None else None
            self.callers = (
                torch.default_generator.get_state(),
                None if on_gpu is None else on_gpu.graphsafe_get_state(),
            )
            torch.default_generator.set_state(self.cpu)
            if on_gpu is not None:  # by reference: what is drawn advances the run's own state
                on_gpu.graphsafe_set_state(self.cuda)

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            assert self.callers is not None
            self.cpu = torch.default_generator.get_state()
            torch.default_generator.set_state(self.callers[0])
            if self.cuda is not None:
                generator(self.device).graphsafe_set_state(self.callers[1])
        self.turn.release()
