"""Where and how the arithmetic is done: device, memory, precision, threads, stream."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from apportion.errors import ConfigError, must_be

__all__ = [
    "MOST_RUNS",
    "device_for",
    "memory_for",
    "own_stream",
    "own_threads",
    "precision_for",
    "stream_for",
]

MOST_RUNS = 10  # at once: torch has 32 streams, and a run takes three
USABLE = 0.8  # of the memory that is free; the rest is for what training needs besides its data


def device_for(name: str) -> torch.device:
    """Return the device of a name; "auto" is a CUDA device if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise must_be("device", "'auto', 'cpu' or 'cuda'", name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device is 'cuda', but torch sees no GPU.",
            "Pass 'cpu' or 'auto'; `apportion doctor` says more.",
        )
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def precision_for(name: str, device: torch.device) -> torch.dtype:
    """Return the type of mixed precision, or float32 for none."""
    if name == "auto":
        good = device.type == "cuda" and torch.cuda.is_bf16_supported()
        name = "bfloat16" if good else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def memory_for(parts: Iterable[Any], device: torch.device) -> int:
    """Return how many bytes of instances fit into the memory of a device."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(USABLE * (torch.cuda.mem_get_info(device)[0] + unused))
    if not any(isinstance(part, np.memmap) for part in parts) or not hasattr(os, "sysconf"):
        return 2**63  # they are in memory already, or the system cannot tell
    return int(USABLE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


@contextmanager
def own_threads(threads: int | None) -> Iterator[None]:
    """Set the number of threads, and restore it at the end of the block."""
    before = torch.get_num_threads()
    try:
        if threads is not None:
            torch.set_num_threads(threads)
        yield
    finally:
        torch.set_num_threads(before)


_of_thread = threading.local()


def stream_for(purpose: str, device: torch.device) -> Any:
    """Return this thread's CUDA stream of a purpose, the same every time; None on the CPU.

    torch has 32 streams and reuses them in turn: a new one for every run would soon be shared.
    """
    if device.type != "cuda":
        return None
    streams = _of_thread.__dict__.setdefault("streams", {})
    if (purpose, device) not in streams:
        streams[purpose, device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return streams[purpose, device]


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Compute on a separate CUDA stream: beside other runs, and where graphs can be captured.

    It waits for the pending work of the caller, and the caller for its own.
    """
    if device.type != "cuda":
        yield
        return
    callers: Any = torch.cuda.current_stream(device)
    own = stream_for("steps", device)
    own.wait_stream(callers)
    with torch.cuda.stream(own):
        try:
            yield
        finally:
            callers.wait_stream(own)
