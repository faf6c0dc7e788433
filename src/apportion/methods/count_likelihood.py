r"""Count likelihood: how likely a bag's counts are, if the confidences are right.

If instance j of a bag B is of class c with the probability :math:`p_{jc} = \mathrm{conf}(x_j, c)`,
and independently of the others, the bag's counts K are a sum of independent draws (a Poisson
multinomial variable) with

.. math:: \mu = \sum_j p_j, \qquad
          S = \sum_j \big(\mathrm{diag}\, p_j - p_j p_j^\top\big) + \tfrac14 I,

of which the first C − 1 classes are enough. The quarter keeps S regular where the net is certain of
every instance. The loss is the negative logarithm of the normal density,

.. math:: \ell = \tfrac12 (K - \mu)^\top S^{-1} (K - \mu) + \tfrac12 \log\det S
          + \tfrac{C - 1}{2} \log 2\pi.

Eq. 7 is the same with another covariance: |B| times Eq. 7 is, up to a constant, the negative
logarithm of the multinomial probability of the counts, whose covariance
:math:`|B| (\mathrm{diag}\, m - m m^\top)` is that of instances which all have the bag's mean
confidence m. It does not shrink as the net grows certain, so that Eq. 7 takes the counts of a large
bag for less than they say. But while the net is wrong, the covariance of its own confidences claims
too much, and what is rewarded is certainty of any kind: deep networks on few large bags collapsed
so. Training therefore begins with Eq. 7 and passes over, along the share a of the epochs done,

.. math:: (1 - a)\, |B|\, \ell_{prop} + a\, \ell, \qquad a = \min(1, (t - 1) / (r\, T)),

in epoch t of T. (Of Eq. 7 its least value is subtracted, so that the two are of one size.)

The covariance takes (C − 1)² numbers per instance, and its inverse about C³ operations per bag:
little at 10 classes, a good part of the time at 100.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn.functional import pad

from apportion.bags.bags import Bags
from apportion.engine.batches import Unit
from apportion.methods.base import Supervision
from apportion.methods.pi_model import check_not_negative
from apportion.methods.proportion_loss import cross_entropy

__all__ = ["CountLikelihood", "Counts", "normal_loss"]


@dataclass(frozen=True)
class CountLikelihood:
    """The likelihood of a bag's counts under the net's confidences.

    Parameters
    ----------
    ramp : float
        The share of training over which the loss passes from Eq. 7 to the likelihood; with 0 it is
        the likelihood from the start.
    """

    ramp: float = 0.5

    unit: ClassVar[Unit] = "bags"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_not_negative(ramp=self.ramp)

    def start(self, bags: Bags, *, epochs: int, device: torch.device, **run: object) -> Counts:
        """Resolve the number of epochs over which the loss passes over."""
        return Counts(self.ramp * epochs, device)


class Counts(Supervision):
    """The counts supervise; the state is how far the loss has passed over to their likelihood."""

    def __init__(self, ramp_epochs: float, device: torch.device) -> None:
        self.ramp_epochs, self.resolved = ramp_epochs, {"ramp_epochs": ramp_epochs}
        self.share = torch.tensor(self._share_after(0), dtype=torch.float64, device=device)

    def moments(self, confidence: Tensor) -> Tensor:
        """Return each instance's confidences, and the covariance of its label (C − 1 by C − 1)."""
        first = confidence[:, :-1]
        others = torch.eye(first.shape[1], device=first.device) - first[:, None, :]
        covariance = first[:, :, None] * others  # small ones are sums of small numbers
        return torch.cat([confidence, covariance.flatten(1)], dim=1)

    def bag_loss(self, means: Tensor, proportions: Tensor, sizes: Tensor) -> Tensor:
        """Return the mean over bags."""
        C = proportions.shape[1]
        mean, n = means[:, :C], sizes.double()
        residual = n[:, None] * (proportions - mean)[:, :-1]
        covariance = n[:, None, None] * means[:, C:].reshape(len(means), C - 1, C - 1)
        own = normal_loss(residual, covariance + torch.eye(C - 1, device=means.device) / 4)
        first = n * (cross_entropy(mean, proportions) - cross_entropy(proportions, proportions))
        return ((1 - self.share) * first + self.share * own).mean().to(means.dtype)

    def epoch_end(self, epoch: int, confidence: Tensor | None) -> dict[str, float]:
        """Pass over a little more."""
        self.share.fill_(self._share_after(epoch))
        return {}

    def _share_after(self, epoch: int) -> float:
        return min(1.0, epoch / self.ramp_epochs) if self.ramp_epochs else 1.0

    def state_dict(self) -> dict[str, Tensor]:
        """Return the share, and over how many epochs it rises: more epochs do not change that."""
        return {"share": self.share, "ramp_epochs": self.share.new_tensor(self.ramp_epochs)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load both."""
        share, ramp_epochs = float(state["share"]), float(state["ramp_epochs"])
        if not (0 <= share <= 1 and 0 <= ramp_epochs < math.inf):
            raise ValueError(f"a share of {share:g} after a ramp over {ramp_epochs:g} epochs")
        self.share.fill_(share)
        self.ramp_epochs = ramp_epochs


def normal_loss(residual: Tensor, covariance: Tensor) -> Tensor:
    """Compute −log N(r; 0, S) of each residual (k, D) and symmetric covariance (k, D, D).

    Examples
    --------
    >>> normal_loss(torch.tensor([[1.0, 0.0]]), torch.eye(2)[None])
    tensor([2.3379])
    """
    loss: Tensor = _NormalLoss.apply(residual, covariance)  # type: ignore[no-untyped-call]
    return loss


class _NormalLoss(Function):
    """Sweeps [[S, r], [rᵀ, 0]] to [[−S⁻¹, S⁻¹ r], [·, −rᵀ S⁻¹ r]], one class after another.

    Only single numbers are multiplied, in any number of bags at once. So nothing waits for the
    device, as solvers of libraries may, and mixed precision, which is for matrices, stays out.
    """

    @staticmethod
    def forward(ctx: Any, residual: Tensor, covariance: Tensor) -> Tensor:
        swept = torch.cat([covariance, residual[:, None]], dim=1)
        swept = torch.cat([swept, pad(residual, (0, 1))[:, :, None]], dim=2)
        loss = residual.new_zeros(len(residual))
        D = residual.shape[1]
        for c in range(D):
            row = swept[:, c].clone()
            variance = row[:, c, None]  # of this count, given those before it
            loss += 0.5 * (2 * math.pi * variance[:, 0]).log()
            slopes = row / variance
            swept -= row[:, :, None] * slopes[:, None, :]
            swept[:, c] = swept[:, :, c] = slopes
            swept[:, c, c] = -1 / variance[:, 0]
        ctx.save_for_backward(swept)
        return loss - 0.5 * swept[:, D, D]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        (swept,) = ctx.saved_tensors
        solved = swept[:, -1, :-1]  # S⁻¹ r
        outer = solved[:, :, None] * solved[:, None, :]
        half = 0.5 * slope[:, None, None]
        return slope[:, None] * solved, -half * (swept[:, :-1, :-1] + outer)
