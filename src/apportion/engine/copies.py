"""Batches on their way from the host to the device that computes.

On a GPU they travel from pinned memory on a stream of their own, while it computes; on the CPU they
are there already.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from apportion.engine.device import stream_for

__all__ = ["Copies", "Parts", "as_networks_take"]

Parts = tuple[Tensor, ...]


class Copies:
    """Copies of batches to a device."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.stream = device, stream_for("copies", device)
        self.ahead = 0 if self.stream is None else 1  # batches that are under way

    def pinned(self, parts: Parts) -> Parts:
        """Return parts in memory that a GPU copies from by itself."""
        return parts if self.stream is None else tuple(part.pin_memory() for part in parts)

    def send(self, parts: Parts) -> tuple[Parts, Any]:
        """Start the copies of parts; return the event of their arrival too."""
        if self.stream is None:
            return parts, None
        with torch.cuda.stream(self.stream):
            sent = tuple(part.to(self.device, non_blocking=True) for part in parts)
            return sent, self.stream.record_event()

    def arrived(self, parts: Parts, event: Any) -> Parts:
        """Return parts as networks take them; the current stream waits for their arrival."""
        if event is not None:
            user = torch.cuda.current_stream(self.device)
            user.wait_event(event)
            for part in parts:
                part.record_stream(user)
        return as_networks_take(parts)


def as_networks_take(parts: Iterable[Tensor]) -> Parts:
    """Return float64 as float32, everything else as it is stored."""
    return tuple(part.float() if part.dtype is torch.float64 else part for part in parts)
