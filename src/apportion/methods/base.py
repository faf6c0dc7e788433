"""What a method is: frozen settings, and the state of one run that they start.

A method is added in four steps: one file here, one line in `METHODS`, one test (the conformance
suite comes free), one row in the documentation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.engine.batches import Batch, Unit
from apportion.engine.step import Losses

__all__ = ["Method", "Supervision", "describe"]


class Supervision(Losses, Protocol):
    """What the network is trained on during one run: a method's state.

    A method's state inherits from it and overrides what it needs. What a step reads is allocated
    at the start and changed in place only.
    """

    labels: Tensor | None = None  # (N,) the pseudo labels now, where the method decides any
    needs_confidence: bool = False  # whether `epoch_end` wants a pass over the training rows
    decides_first: bool = False  # whether to call `epoch_end(0, …)` on the untrained network
    resolved: Mapping[str, float] = {}  # settings that depend on the run, for its record

    def instance_loss(self, model: nn.Module, batch: Batch, logits: Tensor) -> Tensor | None:
        """Give the mean loss of a batch's instances.

        `logits` is what the model, in training mode, gave for ``batch.x``. Passes beyond that one
        are to run in `apportion.engine.step.frozen_statistics`.
        """
        return None

    def bag_loss(self, mean_confidence: Tensor, proportions: Tensor) -> Tensor | None:
        """Give the mean loss of bags (k, C), for methods whose unit is the bag."""
        return None

    def epoch_end(self, epoch: int, confidence: Tensor | None) -> dict[str, float]:
        """Learn from the confidences (N, C) after an epoch; give numbers for its log."""
        return {}

    def state_dict(self) -> dict[str, Tensor]:
        """Give all that is needed to go on, as tensors."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take what `state_dict` gave."""
        return


class Method(Protocol):
    """A way of learning from proportions: a frozen dataclass of settings, shared between runs."""

    @property
    def unit(self) -> Unit:
        """What one mini-batch is made of."""

    def start(
        self,
        bags: Bags,
        *,
        epochs: int,
        device: torch.device,
        seed: int,
        threads: int | None = None,
    ) -> Supervision:
        """Resolve what depends on the run, and allocate its state. `bags` come without truth."""


def _digest(value: Any) -> str:
    data = np.asarray(value)
    if data.dtype.kind not in "fiub":
        return repr(value)
    digest = hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()
    return f"{data.dtype} {data.shape} {digest}"


def describe(method: Method) -> dict[str, Any]:
    """Give a method's class and settings as plain values: arrays by hash, functions by name.

    Examples
    --------
    >>> from apportion.methods.registry import METHODS
    >>> describe(METHODS["proportion-loss"])
    {'class': 'ProportionLoss', 'form': 'cross-entropy'}
    """
    found: dict[str, Any] = {"class": type(method).__name__}
    settings: Any = method
    for field in fields(settings) if is_dataclass(settings) else ():
        value = getattr(method, field.name)
        if not isinstance(value, bool | int | float | str | None):
            value = getattr(value, "__qualname__", None) or _digest(value)
        found[field.name] = value
    return found
