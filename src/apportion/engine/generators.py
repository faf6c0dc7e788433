"""torch's global generators, for one run at a time.

Where torch uses its global generators (dropout), each run has states of its own that replace theirs
while it draws (`OwnGenerators`), so that neither the caller nor another run is affected. They are
seeded anew before every epoch, so that a run that goes on after any epoch draws what an
uninterrupted one does.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from apportion.randomness import Purpose, generator

__all__ = ["OwnGenerators", "global_generator", "reseed"]


def global_generator(device: torch.device) -> torch.Generator:
    """Return torch's global generator of a device."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator


def reseed(seed: int, epoch: int, device: torch.device) -> None:
    """Seed torch's global generators for an epoch."""
    value = int(generator(seed, Purpose.NETWORK, epoch).integers(2**63))
    for where in {torch.device("cpu"), device}:
        global_generator(where).manual_seed(value)


class OwnGenerators:
    """The states of torch's global generators in one run: ``with`` them, torch draws from these.

    Only one run at a time has the global generators; other code that draws from them meanwhile, in
    a thread beside it, would draw from these. A CUDA graph that is captured meanwhile always
    uses the run's own states, and can be replayed outside of the block.

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
        self.cuda: Any = global_generator(device).clone_state() if device.type == "cuda" else None
        self.callers: tuple[torch.Tensor, Any] | None = None

    def reseed(self, seed: int, epoch: int) -> None:
        """Seed them for an epoch."""
        with self:
            reseed(seed, epoch, self.device)

    def renew(self) -> None:
        """Replace the state on the GPU by a copy: a recording that failed still has the old one."""
        seed, offset = self.cuda.initial_seed(), self.cuda.get_offset()
        self.cuda = torch.Generator(self.device)
        self.cuda.manual_seed(seed)
        self.cuda.set_offset(offset)
        if self.depth:
            global_generator(self.device).graphsafe_set_state(self.cuda)

    def __enter__(self) -> None:
        self.turn.acquire()
        self.depth += 1
        if self.depth == 1:
            on_gpu = global_generator(self.device) if self.cuda is not None else None
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
                global_generator(self.device).graphsafe_set_state(self.callers[1])
        self.turn.release()
