r"""SimCLR: features from instances alone, by which two views of one can be told from all others.

Every row of a step is augmented twice. Of the 2 b projections z, made of length 1, each must find
that of the other view of its row among all the others,

.. math:: \ell = - \frac1{2b} \sum_i \log
          \frac{\exp(z_i \cdot z_{i'} / \tau)}{\sum_{k \ne i} \exp(z_i \cdot z_k / \tau)}.

What the net has to know for that is what the views leave alone, and nothing of the bags. It is no
method of `fit`: `apportion.training.pretrain` trains a net with it before any labels are decided.
A step takes (2 b)² products besides the net's own.

Reference: T. Chen, S. Kornblith, M. Norouzi, G. Hinton, "A Simple Framework for Contrastive
Learning of Visual Representations", ICML 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from apportion.bags.bags import Bags
from apportion.engine.batches import Batch, Unit
from apportion.errors import must_be
from apportion.methods.base import Supervision

__all__ = ["SimCLR", "contrast"]


@dataclass(frozen=True)
class SimCLR:
    """Contrast of two views of each row.

    Parameters
    ----------
    temperature : float
        The temperature τ: with a lower one, only the most similar of the others count.
    """

    temperature: float = 0.2

    unit: ClassVar[Unit] = "rows"
    classifies: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 1e-3 <= self.temperature < float("inf"):
            raise must_be("temperature", "a number ≥ 0.001", self.temperature)

    def start(self, bags: Bags, **run: object) -> Views:
        """Return the state of a run; there is nothing to resolve."""
        return Views(self.temperature)


class Views(Supervision):
    """The views supervise each other: there is no state."""

    views = 2

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def instance_loss(self, net: nn.Module, batch: Batch, logits: Tensor) -> Tensor:
        """Return the mean contrast of projections: first views of all rows, then second ones."""
        return contrast(logits, self.temperature)


def contrast(projections: Tensor, temperature: float) -> Tensor:
    """Compute the loss of the projections (2 b, D) of first views, and then of second ones.

    Examples
    --------
    >>> contrast(torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 2), temperature=0.1) < 1e-3
    tensor(True)
    >>> contrast(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), 0.1) > 1
    tensor(True)
    """
    unit = normalize(projections, dim=1)
    similar = (unit @ unit.T).float() / temperature
    similar = similar - torch.eye(len(unit), device=unit.device) * 1e4  # none finds itself
    other = torch.arange(len(unit), device=unit.device).roll(len(unit) // 2)
    return cross_entropy(similar, other)
