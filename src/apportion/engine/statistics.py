"""Running statistics of a net that several ranks train: each has seen its share of every step."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from apportion.engine.distributed import Ranks

__all__ = ["average_statistics"]


@torch.no_grad()
def average_statistics(nets: Iterable[nn.Module], ranks: Ranks) -> None:
    """Replace running means and variances of normalisation layers by their means over ranks."""
    if not ranks.are_several:
        return
    own: list[Tensor] = []
    for net in nets:
        for module in net.modules():
            if getattr(module, "track_running_stats", False):
                kept = (getattr(module, name, None) for name in ("running_mean", "running_var"))
                own += [tensor for tensor in kept if isinstance(tensor, Tensor)]
    ranks.sum_(own)
    for tensor in own:
        tensor /= ranks.world
