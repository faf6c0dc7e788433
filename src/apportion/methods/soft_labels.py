r"""Soft labels under the counts: a net learns from its own confidences, sharpened and corrected.

The targets of an instance are its confidences raised to a power and corrected so that they sum to
the counts of its bag (`apportion.labels.soft`). They are computed before training and again after
each of some rounds of epochs; in between the net is trained on their cross-entropy. It sharpens
what a net has learned from whole bags, and is of little use from random weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from apportion.bags.bags import Bags
from apportion.engine.batches import Batch, Unit
from apportion.errors import must_be
from apportion.labels.soft import soft_labels
from apportion.methods.base import Supervision

__all__ = ["SoftLabels"]


@dataclass(frozen=True)
class SoftLabels:
    """Learning from one's own confidences under the counts.

    Parameters
    ----------
    power : float
        What confidences are raised to: above 1 they become surer.
    rounds : int
        How often the targets are computed, over all epochs.
    """

    power: float = 2.0
    rounds: int = 4

    unit: ClassVar[Unit] = "instances"

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 < self.power < float("inf"):
            raise must_be("power", "a number above 0", self.power)
        if self.rounds < 1:
            raise must_be("rounds", "an integer ≥ 1", self.rounds)

    def start(self, bags: Bags, *, epochs: int, device: torch.device, **run: object) -> _Targets:
        """Allocate the targets, which the untrained net decides."""
        return _Targets(bags, self.power, max(1, -(-epochs // self.rounds)), device)


class _Targets(Supervision):
    """The targets (N, C) of all instances; the state is what they are now."""

    decides_first = True
    needs_confidence = True

    def __init__(self, bags: Bags, power: float, every: int, device: torch.device) -> None:
        self.bags, self.power, self.every = bags, power, every
        self.targets = torch.zeros((bags.n_instances, bags.n_classes), device=device)
        self.epochs = torch.zeros((), dtype=torch.int64)  # that are done

    def instance_loss(self, net: nn.Module, batch: Batch, logits: Tensor) -> Tensor:
        """Return the cross-entropy of the targets."""
        return cross_entropy(logits, self.targets[batch.position])

    def epoch_end(self, epoch: int, confidence: Tensor | None) -> dict[str, float]:
        """Compute the targets anew where a round ends."""
        if confidence is not None:
            log_confidence = self.power * confidence.double().clamp_min(1e-12).log()
            found = soft_labels(log_confidence.softmax(dim=1).cpu().numpy(), self.bags)
            self.targets.copy_(torch.from_numpy(found))
        self._count(epoch)
        return {}

    def _count(self, epochs: int) -> None:
        self.epochs.fill_(epochs)
        self.needs_confidence = (epochs + 1) % self.every == 0

    def state_dict(self) -> dict[str, Tensor]:
        """Return the targets, and how many epochs are done."""
        return {"targets": self.targets, "epochs": self.epochs}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there."""
        self.targets.copy_(state["targets"])
        self._count(int(state["epochs"]))
