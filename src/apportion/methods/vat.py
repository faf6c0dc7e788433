r"""LLP-VAT: the proportion loss, and confidences that the worst small change should not change.

To Eq. 7 it adds, with a weight that ramps up, the virtual adversarial loss

.. math:: w \cdot \frac1n \sum_j KL\big(\mathrm{conf}(x_j) \,\Vert\, \mathrm{conf}(x_j + r_j)\big),
          \qquad \lVert r_j \rVert = \varepsilon,

where x is the normalised input, its own confidence is held fixed, and the direction of r is that in
which the divergence grows fastest, found by power iteration: starting from a random unit d,
:math:`d \leftarrow \nabla_d KL(\mathrm{conf}(x), \mathrm{conf}(x + \xi d))`, normalised.

The default ξ = 1e-6 is that of the experiments it is compared in, but float32 cannot resolve so
small a change: in a trial on random images and an untrained ResNet-18, the direction found in
float32 had a cosine of −0.01 with that in float64, so it was one more random direction. At ξ = 1e-2
it was 0.996 (in bfloat16 0.03): ``xi=1e-2`` in float32 is what the equations mean.

Reference: K.-H. Tsai, H.-T. Lin, "Learning from Label Proportions with Consistency
Regularization", ACML 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

from apportion.bags.bags import Bags
from apportion.engine.batches import Batch, Unit
from apportion.engine.step import frozen_statistics
from apportion.errors import must_be
from apportion.methods.pi_model import check_not_negative, check_perturbable, ramp
from apportion.methods.proportion_loss import Proportions
from apportion.nets.normalized import parts

__all__ = ["LLPVAT", "AdversarialConsistency"]


@dataclass(frozen=True)
class LLPVAT:
    """Eq. 7 with virtual adversarial training.

    Parameters
    ----------
    epsilon : float
        The length of the adversarial change of a normalised input, or of each of its parts.
    xi : float
        The length of the change along which its direction is sought.
    iterations : int
        Power iterations.
    weight, ramp : float
        As in `apportion.methods.pi_model.PiModel`.
    """

    epsilon: float = 6.0
    xi: float = 1e-6
    iterations: int = 1
    weight: float = 0.05
    ramp: float = 0.4

    unit: ClassVar[Unit] = "bags"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_not_negative(epsilon=self.epsilon, xi=self.xi, weight=self.weight, ramp=self.ramp)
        if not isinstance(self.iterations, Integral) or self.iterations < 1:
            raise must_be("iterations", "an integer ≥ 1", self.iterations)

    def start(self, bags: Bags, **run: object) -> AdversarialConsistency:
        """Return the state of a run; there is nothing to resolve."""
        return AdversarialConsistency(self)


class AdversarialConsistency(Proportions):
    """The proportions and the consistency supervise: there is no state."""

    def __init__(self, method: LLPVAT) -> None:
        super().__init__()
        self.method = method

    def instance_loss(self, net: nn.Module, batch: Batch, logits: Tensor) -> Tensor:
        """Return the weighted divergence, averaged over the instances."""
        prepare, network = parts(net)
        x = tuple(part.detach() for part in prepare(*batch.x))
        check_perturbable(x)
        own = logits.detach().softmax(dim=1)
        with frozen_statistics(net):
            noise = (batch.noise_like(p) if p.is_floating_point() else None for p in x)
            change = [None if p is None else _unit(p) for p in noise]
            for _ in range(self.method.iterations):
                change = self._steepest(network, x, change, own)
            changed = _moved(x, change, self.method.epsilon)
            distance = _divergence(own, network(*changed))
        return self.method.weight * ramp(batch.progress, self.method.ramp) * distance

    def _steepest(
        self, network: nn.Module, x: tuple[Tensor, ...], change: list[Tensor | None], own: Tensor
    ) -> list[Tensor | None]:
        sought = [None if d is None else d.requires_grad_() for d in change]
        distance = _divergence(own, network(*_moved(x, sought, self.method.xi)))
        # The gradient of the sum: that of the mean would shrink with the batch.
        free = [d for d in sought if d is not None]
        found = iter(torch.autograd.grad(distance * len(own), free))
        return [None if d is None else _unit(next(found)) for d in sought]


def _divergence(own: Tensor, logits: Tensor) -> Tensor:
    return kl_div(logits.float().log_softmax(dim=1), own, reduction="batchmean")


def _moved(x: tuple[Tensor, ...], change: list[Tensor | None], length: float) -> list[Tensor]:
    return [p if d is None else p + length * d for p, d in zip(x, change, strict=True)]


def _unit(direction: Tensor) -> Tensor:
    """Scale each instance's direction to length 1; its largest entry first, against underflow."""
    flat = direction.reshape(len(direction), -1)
    tiny = torch.finfo(flat.dtype).tiny
    flat = flat / flat.abs().amax(dim=1, keepdim=True).clamp_min(tiny)
    lengths = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    scaled: Tensor = flat / lengths.clamp_min(tiny)
    return scaled.reshape(direction.shape)
