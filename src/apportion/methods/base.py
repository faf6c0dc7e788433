"""The interface of methods: frozen settings, and the state of one run that they start.

A method is added in four steps: one file here, one line in `METHODS`, one test
(`apportion.testing` checks the rest), one row in the documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.engine.batches import Batch, Unit
from apportion.engine.distributed import Ranks

__all__ = ["Method", "Supervision"]


class Supervision:
    """The state of a method in one run, which supervises the network.

    A method's state inherits from it and overrides what it needs. What a step reads is allocated
    at the start and changed in place only.
    """

    labels: Tensor | None = None  # (N,) the pseudo labels now, where the method decides any
    needs_confidence: bool = False  # whether `epoch_end` wants a pass over the training rows
    decides_first: bool = False  # whether to call `epoch_end(0, …)` on the untrained network
    next_epoch: int | None = None  # to call `epoch_end` with, where the method counts epochs
    views: int = 1  # how often a batch goes through the net together, each time augmented anew
    mixes: bool = False  # whether what `mixed` returns of an instance depends on the others
    decides_for_own: bool = (
        False  # whether `epoch_end` wants the confidences of this rank's bags alone
    )
    resolved: Mapping[str, float] = {}  # settings that depend on the run, for its record

    def mixed(self, batch: Batch) -> Batch:
        """Return the batch that goes through the net, of one that is augmented: as it is.

        A method may change it, and give it targets. It must draw from torch's own generators.
        """
        return batch

    def instance_loss(self, net: nn.Module, batch: Batch, logits: Tensor) -> Tensor | None:
        """Return the mean loss of a batch's instances.

        `logits` is what the net, in training mode, returned for ``batch.x``. Further
        passes must run in `apportion.engine.step.frozen_statistics`.
        """
        return None

    def moments(self, confidence: Tensor) -> Tensor:
        """Return the numbers (b, F) of each instance whose means over bags `bag_loss` takes.

        By default the confidences (b, C) themselves. A loss of bags that do not fit into memory is
        a function of such means.
        """
        return confidence

    def bag_loss(self, means: Tensor, proportions: Tensor, sizes: Tensor) -> Tensor | None:
        """Return the mean loss of bags, for methods whose unit is the bag.

        `means` (k, F) are those of `moments` in each bag, `proportions` (k, C) what is known of
        it, and `sizes` (k,) the numbers of instances.
        """
        return None

    def epoch_end(self, epoch: int, confidence: Tensor | None) -> dict[str, float]:
        """Learn from the confidences (N, C) after an epoch; return numbers for its log."""
        return {}

    def share_with(self, ranks: Ranks) -> None:
        """Share all later decisions with other ranks, and set `decides_for_own`, if the method can.

        It may decide for the bags of ``bags.shard(ranks.rank, ranks.world)`` alone, and gather what
        the others have decided for theirs. By default each rank decides for all bags.
        """
        return

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that is needed to go on, as tensors: with several ranks, that of them all."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state_dict` returned."""
        return


class Method(Protocol):
    """A way of learning from proportions: a frozen dataclass of settings, shared between runs."""

    @property
    def unit(self) -> Unit:
        """The unit of mini-batches: "instances", "rows" (distinct ones) or "bags"."""

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
