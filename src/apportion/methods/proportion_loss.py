r"""Proportion loss (PL): compare each bag's mean confidence with its proportions.

Eq. 7 is the cross-entropy of a bag's proportions p and its mean confidence m,

.. math:: \ell_{prop} = - \sum_c p_c \log m_c,
          \qquad m_c = \frac1{|B|} \sum_j \mathrm{conf}(x_j, c);

`form="l1"` takes :math:`\sum_c |p_c - m_c|`, and `form="squared"` :math:`\sum_c (p_c - m_c)^2`.

Reference: E. M. Ardehaly, A. Culotta, "Co-training for Demographic Classification Using Deep
Learning from Label Proportions", ICDM Workshops 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from apportion.bags.bags import Bags
from apportion.engine.batches import Unit
from apportion.errors import must_be
from apportion.methods.base import Supervision

__all__ = ["ProportionLoss", "Proportions", "cross_entropy", "l1", "squared"]


def cross_entropy(mean_confidence: Tensor, proportions: Tensor) -> Tensor:
    """Compute Eq. 7 of each bag. A class of proportion 0 adds 0, whatever its confidence is.

    Examples
    --------
    >>> half = torch.tensor([[0.5, 0.5]])
    >>> cross_entropy(half, half)
    tensor([0.6931])
    """
    tiny = torch.finfo(mean_confidence.dtype).tiny  # confidences may underflow to 0
    return -(proportions * mean_confidence.clamp_min(tiny).log()).sum(dim=1)


def l1(mean_confidence: Tensor, proportions: Tensor) -> Tensor:
    """Compute the absolute error of each bag."""
    return (mean_confidence - proportions).abs().sum(dim=1)


def squared(mean_confidence: Tensor, proportions: Tensor) -> Tensor:
    """Compute the squared error of each bag."""
    return (mean_confidence - proportions).square().sum(dim=1)


FORMS = {"cross-entropy": cross_entropy, "l1": l1, "squared": squared}


@dataclass(frozen=True)
class ProportionLoss:
    """The proportion loss of whole bags: Eq. 7, or another form.

    Parameters
    ----------
    form : "cross-entropy", "l1" or "squared"
        How proportions are compared.
    by_size : bool
        Whether a bag counts by its size; in the paper all count alike.
    """

    form: Literal["cross-entropy", "l1", "squared"] = "cross-entropy"
    by_size: bool = False

    unit: ClassVar[Unit] = "bags"

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.form not in [*FORMS]:
            raise must_be("form", f"one of {', '.join(FORMS)}", self.form)

    def start(self, bags: Bags, **run: object) -> Proportions:
        """Return the state of a run; there is nothing to resolve."""
        return Proportions(self.form, by_size=self.by_size)


class Proportions(Supervision):
    """The proportions themselves supervise: there is no state."""

    def __init__(self, form: str = "cross-entropy", *, by_size: bool = False) -> None:
        self.form, self.by_size = FORMS[form], by_size

    def bag_loss(self, means: Tensor, proportions: Tensor, sizes: Tensor) -> Tensor:
        """Return the mean over bags."""
        losses = self.form(means, proportions)
        return (losses * sizes / sizes.mean()).mean() if self.by_size else losses.mean()
