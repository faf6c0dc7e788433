r"""Π-model: the proportion loss, and confidences that noise on the inputs should not change.

To Eq. 7 it adds, with a weight w that ramps up,

.. math:: w \cdot \frac1n \sum_j \lVert \mathrm{conf}(x_j) - \mathrm{conf}(x_j + \epsilon_j)
          \rVert^2, \qquad \epsilon_j \sim N(0, \sigma^2),

where x is the normalised input and the noisy side is held fixed.

Reference: S. Laine, T. Aila, "Temporal Ensembling for Semi-Supervised Learning", ICLR 2017.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import torch
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.engine.batches import Batch, Unit
from apportion.engine.step import frozen_statistics
from apportion.errors import ConfigError, must_be
from apportion.methods.proportion_loss import Proportions
from apportion.nets.normalized import parts

__all__ = ["PiConsistency", "PiModel", "check_not_negative", "check_perturbable", "ramp"]


@dataclass(frozen=True)
class PiModel:
    """Eq. 7 with a Π-model's consistency.

    Parameters
    ----------
    std : float
        The standard deviation of the noise on normalised inputs.
    weight : float
        The weight of the consistency at the end of its ramp.
    ramp : float
        The share of training over which that weight rises.
    """

    std: float = 0.15
    weight: float = 0.05
    ramp: float = 0.4

    unit: ClassVar[Unit] = "bags"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_not_negative(std=self.std, weight=self.weight, ramp=self.ramp)

    def start(self, bags: Bags, **run: object) -> PiConsistency:
        """Return the state of a run; there is nothing to resolve."""
        return PiConsistency(self)


class PiConsistency(Proportions):
    """The proportions and the consistency supervise: there is no state."""

    def __init__(self, method: PiModel) -> None:
        super().__init__()
        self.method = method

    def instance_loss(self, net: nn.Module, batch: Batch, logits: Tensor) -> Tensor:
        """Return the weighted consistency, averaged over the instances."""
        prepare, network = parts(net)
        x = prepare(*batch.x)
        check_perturbable(x)
        with torch.no_grad(), frozen_statistics(net):
            noisy = (_with_noise(part, self.method.std, batch) for part in x)
            other: Tensor = network(*noisy).float().softmax(dim=1)
        distance = (logits.softmax(dim=1) - other).square().sum(dim=1).mean()
        weight = self.method.weight * ramp(batch.progress, self.method.ramp)
        return weight * distance


def ramp(progress: Tensor, length: float) -> Tensor:
    """Rise along a sigmoid from almost 0 to 1 over a share of the training.

    Examples
    --------
    >>> ramp(torch.tensor([0.0, 0.2, 0.4, 1.0]), 0.4)
    tensor([0.0067, 0.2865, 1.0000, 1.0000])
    """
    left = (1 - progress / length).clamp_min(0) if length else torch.zeros_like(progress)
    return torch.exp(-5 * left**2)


def check_not_negative(**settings: float) -> None:
    """Check that settings are numbers ≥ 0."""
    for name, value in settings.items():
        if not (isinstance(value, Real) and 0 <= float(value) < math.inf):
            raise must_be(name, "a number ≥ 0", value)


def check_perturbable(x: Iterable[Tensor]) -> None:
    """Check that some input is a floating-point number, to which a small change can be added."""
    if not any(part.is_floating_point() and part.numel() for part in x):
        raise ConfigError(
            "the method changes its inputs a little, but none of them holds floating-point "
            "numbers.",
            "Wrap the network in apportion.nets.normalized.Normalized, which returns such "
            "numbers, or choose 'proportion-loss', which accepts codes of categories alone.",
        )


def _with_noise(part: Tensor, std: float, batch: Batch) -> Tensor:
    """Add noise to measurements; codes of categories and lengths stay what they are."""
    return part + std * batch.noise_like(part) if part.is_floating_point() else part
