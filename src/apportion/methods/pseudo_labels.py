"""Online pseudo labels by Follow the Perturbed Leader: the paper's method, and its ablations.

The network trains on labels that `apportion.labels.leader.Leader` decides anew after every epoch:
its module has the equations. Here labels are kept on the device, where steps read them.
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
from apportion.labels.leader import First, Leader, Unlikelihood, check_settings
from apportion.methods.base import Supervision

__all__ = ["FPL", "PseudoLabels"]


@dataclass(frozen=True, eq=False)
class FPL:
    """Pseudo labels that are decided anew after every epoch.

    Parameters
    ----------
    eta : float, optional
        The rate η of the perturbation. Unlikelihoods add up over the epochs while the perturbation
        does not, so the default grows with them: 5 · epochs / 400, the paper's 5 at 400.
    unlikelihood, accumulate
        As in `apportion.labels.leader.Leader`.
    first : str, labels (N,), or callable
        As in `apportion.labels.leader.Leader`; and, in `fit`, labels from features: those that a
        callable returns, a tensor (b, …), for a batch as the net takes it; or with "mean-map", if
        instances are no rows of a table, those of the net as it is before training (see
        `apportion.training.features`, and `apportion.labels.start.fit_features`).
    first_weight : float, optional
        How many epochs the first labels count as, as in `apportion.labels.leader.Leader`. By
        default 3 if they follow from features, and else none.
    """

    eta: float | None = None
    unlikelihood: Unlikelihood = "relative"
    accumulate: bool = True
    first: First = "random"
    first_weight: float | None = None

    unit: ClassVar[Unit] = "instances"

    def __post_init__(self) -> None:
        """Check the settings."""
        eta, weight = self.eta or 0, self.first_weight or 0
        check_settings(eta, self.unlikelihood, self.first, weight)

    def start(
        self,
        bags: Bags,
        *,
        epochs: int,
        device: torch.device,
        seed: int,
        threads: int | None = None,
    ) -> PseudoLabels:
        """Resolve η and decide the first labels."""
        leader = Leader(
            bags,
            eta=5 * epochs / 400 if self.eta is None else self.eta,
            unlikelihood=self.unlikelihood,
            accumulate=self.accumulate,
            first=self.first,
            first_weight=self.first_weight or 0,
            seed=seed,
            threads=threads,
        )
        return PseudoLabels(leader, device)


class PseudoLabels(Supervision):
    """A leader's labels on a device: the state of `FPL` in one run."""

    needs_confidence = True

    def __init__(self, leader: Leader, device: torch.device) -> None:
        self.leader, self.decides_first = leader, leader.decides_first
        self.resolved = {"eta": leader.eta}
        self.labels: Tensor = torch.from_numpy(leader.labels).to(device)

    @property
    def next_epoch(self) -> int:  # type: ignore[override]
        """The epoch that the next decision ends."""
        return self.leader.epoch

    def instance_loss(self, net: nn.Module, batch: Batch, logits: Tensor) -> Tensor:
        """Return the cross-entropy with the pseudo labels."""
        return cross_entropy(logits, self.labels.index_select(0, batch.position))

    def epoch_end(self, epoch: int, confidence: Tensor | None) -> dict[str, float]:
        """Decide the next labels. The leader counts the epochs itself."""
        assert confidence is not None
        decided = self.leader.decide(confidence.detach().cpu().numpy())
        self.labels.copy_(torch.from_numpy(decided.labels))
        return {"changed": decided.changed, "regret": decided.regret}

    def state_dict(self) -> dict[str, Tensor]:
        """Return the leader's state."""
        return {name: torch.from_numpy(value) for name, value in self.leader.state().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the leader's state."""
        self.leader.load({name: value.cpu().numpy() for name, value in state.items()})
        self.labels.copy_(torch.from_numpy(self.leader.labels))
