r"""Online pseudo labels by Follow the Perturbed Leader: the paper's method, and its ablations.

The network trains on labels that `apportion.labels.leader.Leader` decides anew after every epoch:
its module has the equations. Here labels are kept on the device, where steps read them.

Rows may stand in several bags. In the paper every instance is trained on with its own label. With
``rows=True`` a step takes distinct rows, each once per epoch, and the target of a row is the mean
of the labels that it has in its bags: a vote. With smoothing s a target q becomes
:math:`(1 - s) q + s / C`, and with mixup two instances become one,

.. math:: x = \lambda x_i + (1 - \lambda) x_j, \quad q = \lambda q_i + (1 - \lambda) q_j,
          \qquad \lambda \sim U(\tfrac12, 1),

where j follows i in the shuffled step. A net learns labels that are wrong later, and less of them.

Reference: H. Zhang, M. Cissé, Y. N. Dauphin, D. Lopez-Paz, "mixup: Beyond Empirical Risk
Minimization", ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from apportion.bags.bags import Bags
from apportion.engine.batches import Batch, Unit
from apportion.engine.distributed import ALONE, Ranks
from apportion.errors import ConfigError, must_be
from apportion.labels.leader import First, Leader, check_settings
from apportion.labels.unlikelihood import Unlikelihood
from apportion.methods.base import Supervision
from apportion.metrics import accuracy

__all__ = ["FPL", "PseudoLabels"]


@dataclass(frozen=True, eq=False)
class FPL:
    """Pseudo labels that are decided anew after every epoch.

    Parameters
    ----------
    eta : float, optional
        The rate η of the perturbation. Unlikelihoods add up over the epochs while the perturbation
        does not, so the default grows with them: 5 · epochs / 400, the paper's 5 at 400.
    unlikelihood, memory
        As in `apportion.labels.leader.Leader`.
    joint : bool
        As in `apportion.labels.leader.Leader`: whether labels of a row follow from all of its bags.
    first : str, labels (N,), or callable
        As in `apportion.labels.leader.Leader`; and, in `fit`, labels from features: those that a
        callable returns, a tensor (b, …), for a batch as the net takes it; or with "mean-map", if
        instances are no rows of a table, those of the net as it is before training (see
        `apportion.training.features`, and `apportion.labels.start.fit_features`).
    first_weight : float, optional
        How many epochs the first labels count as, as in `apportion.labels.leader.Leader`. By
        default 3 if they follow from features, and else none.
    rows : bool
        Whether a step takes distinct rows, each with the mean of the labels in its bags; by default
        it takes instances.
    smoothing : float
        The share of every target that is spread over all classes.
    mixup : bool
        Whether a step mixes pairs of instances, and their targets. Integers, such as images of
        uint8, then reach the net as floating-point numbers of the same range in training.
    """

    eta: float | None = None
    unlikelihood: Unlikelihood = "relative"
    memory: float = 1.0
    joint: bool = False
    first: First = "random"
    first_weight: float | None = None
    rows: bool = False
    smoothing: float = 0.0
    mixup: bool = False

    def __post_init__(self) -> None:
        """Check the settings."""
        eta, weight = self.eta or 0, self.first_weight or 0
        check_settings(eta, self.unlikelihood, self.first, weight, self.memory, self.joint)
        is_number = isinstance(self.smoothing, Real) and not isinstance(self.smoothing, bool)
        if not (is_number and 0 <= self.smoothing < 1):
            raise must_be("smoothing", "a number from 0 to below 1", self.smoothing)
        for name in ("rows", "mixup"):
            if not isinstance(value := getattr(self, name), bool):
                raise must_be(name, "true or false", value)

    @property
    def unit(self) -> Unit:
        """The unit of mini-batches."""
        return "rows" if self.rows else "instances"

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
            memory=self.memory,
            first=self.first,
            first_weight=self.first_weight or 0,
            joint=self.joint,
            seed=seed,
            threads=threads,
        )
        if self.rows or self.smoothing or self.mixup:
            return SoftLabels(leader, device, self)
        return PseudoLabels(leader, device)


class PseudoLabels(Supervision):
    """A leader's labels on a device: the state of `FPL` in one run."""

    needs_confidence = True
    ranks = ALONE

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
        if not self.ranks.are_several:
            self._now_are(decided.labels)
            return {"changed": decided.changed, "regret": decided.regret}
        labels = self.ranks.gathered(torch.from_numpy(decided.labels)).numpy()
        changed = 1 - accuracy(labels, self.labels.cpu().numpy())
        self._now_are(labels)
        regret = torch.tensor(decided.regret * len(decided.labels), dtype=torch.float64)
        return {"changed": changed, "regret": float(self.ranks.total(regret)) / len(labels)}

    def share_with(self, ranks: Ranks) -> None:
        """Decide the labels of this rank's bags alone, and gather those of the others.

        Labels that follow from all bags of a row are decided by every rank.
        """
        if self.leader.raking is not None:
            return
        self.leader = self.leader.shard(ranks.rank, ranks.world)
        self.ranks, self.decides_for_own = ranks, True

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of the leader of all bags."""
        state = {name: torch.from_numpy(value) for name, value in self.leader.state().items()}
        of_all = {name: self.ranks.gathered(value) for name, value in state.items() if value.ndim}
        return state | of_all | {"played": self.ranks.total(state["played"])}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the leader's state."""
        self.leader.load({name: value.cpu().numpy() for name, value in state.items()})
        self._now_are(self.leader.labels)

    def _now_are(self, labels: np.ndarray) -> None:
        self.labels.copy_(torch.from_numpy(labels))


class SoftLabels(PseudoLabels):
    """Labels as targets that may be mixed: one target per instance, or per distinct row."""

    def __init__(self, leader: Leader, device: torch.device, method: FPL) -> None:
        super().__init__(leader, device)
        self.smoothing, self.mixup = method.smoothing, method.mixup
        self.mixes = self.mixup
        index, n = leader.bags.index, leader.bags.n_instances
        rows, place = (
            np.unique(index, return_inverse=True) if method.rows else (index, np.arange(n))
        )
        self.place = torch.from_numpy(place).to(device)  # (N,) of the target of each instance
        votes = torch.from_numpy(np.bincount(place, minlength=len(rows))).to(device)
        self.votes = votes[:, None].float()
        self.targets = torch.empty(len(rows), leader.bags.n_classes, device=device)
        self._now_are(leader.labels)

    def mixed(self, batch: Batch) -> Batch:
        """Mix each instance with the next one, if the method says so."""
        target = self.targets.index_select(0, batch.position)
        if not self.mixup:
            return batch._replace(target=target)
        first, *rest = batch.x
        # Rows of whole numbers may be ids; images and signals are not.
        ids = first.ndim < 2 or (first.ndim == 2 and first.dtype in (torch.int32, torch.int64))
        if rest or (ids and not first.is_floating_point()):
            raise ConfigError(
                "mixup averages instances, but these are "
                + (f"of {len(batch.x)} parts." if rest else f"{str(first.dtype)[6:]}, maybe ids."),
                "Pass images, signals or columns as one array of float32 or uint8, or leave "
                "mixup out.",
            )
        share = 0.5 + 0.5 * torch.rand(len(first), device=first.device)
        wide = first if first.is_floating_point() else first.float()
        mixed = _with_next(wide, share.to(wide.dtype))
        return batch._replace(x=(mixed,), target=_with_next(target, share))

    def instance_loss(self, net: nn.Module, batch: Batch, logits: Tensor) -> Tensor:
        """Return the cross-entropy with the targets."""
        assert batch.target is not None
        return cross_entropy(logits, batch.target)

    def _now_are(self, labels: np.ndarray) -> None:
        super()._now_are(labels)
        told = one_hot(self.labels, self.targets.shape[1]).float()
        means = torch.zeros_like(self.targets).index_add_(0, self.place, told) / self.votes
        self.targets.copy_((1 - self.smoothing) * means + self.smoothing / means.shape[1])


def _with_next(values: Tensor, share: Tensor) -> Tensor:
    own = share.view(-1, *[1] * (values.ndim - 1))
    return own * values + (1 - own) * values.roll(-1, 0)
