"""The update of the weights by AdamW, without what torch wraps around it.

A step of torch's optimiser on the CPU spends more time on hooks, profiling and sorting its tensors
than on the arithmetic of a small net. The function that it calls in the end is called here at once,
on the same state, with the same result. Hooks of optimisers are not called.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.adamw import adamw

__all__ = ["update"]


@torch.no_grad()
def update(optimizer: torch.optim.Optimizer) -> None:
    """Take one step of an optimiser."""
    groups = optimizer.param_groups
    weights = [[weight for weight in own["params"] if weight.grad is not None] for own in groups]
    states: list[list[Any]] = [[optimizer.state.get(weight) for weight in own] for own in weights]
    if not (type(optimizer) is torch.optim.AdamW and all(map(all, states)) and _plain(groups)):
        optimizer.step()  # the first one creates the states
        return
    for group, own, state in zip(groups, weights, states, strict=True):
        beta1, beta2 = group["betas"]
        adamw(
            own,
            [weight.grad for weight in own],
            [entry["exp_avg"] for entry in state],
            [entry["exp_avg_sq"] for entry in state],
            [],
            [entry["step"] for entry in state],
            fused=group["fused"],
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def _plain(groups: list[dict[str, Any]]) -> bool:
    special = ("amsgrad", "maximize", "differentiable", "capturable")
    return not any(group[name] for group in groups for name in special)
