"""Where and how the arithmetic is done: device, precision, threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from apportion.config import ConfigError

__all__ = ["device_for", "own_settings", "precision_for"]


def device_for(name: str) -> torch.device:
    """Give the device of a name; "auto" is a CUDA device if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device is {name!r}.", "Let it be 'auto', 'cpu' or 'cuda'.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device is 'cuda', but torch sees no GPU.",
            "Pass 'cpu' or 'auto'; `apportion doctor` says more.",
        )
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def precision_for(name: str, device: torch.device) -> torch.dtype:
    """Give the type of mixed precision, or float32 for none."""
    if name == "auto":
        good = device.type == "cuda" and torch.cuda.is_bf16_supported()
        name = "bfloat16" if good else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


@contextmanager
def own_settings(device: torch.device, threads: int | None) -> Iterator[None]:
    """Set the threads, and give them and torch's random state back as they were found."""
    before = torch.get_num_threads()
    cuda = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        try:
            if threads is not None:
                torch.set_num_threads(threads)
            yield
        finally:
            torch.set_num_threads(before)
