"""A network with its preprocessing: they are moved, saved and loaded together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apportion.errors import DataError

__all__ = ["Normalized", "parts"]


class Normalized(nn.Module):
    """A network with its preprocessing: they are moved, saved and loaded together.

    Parameters
    ----------
    network : nn.Module
        Maps normalised instances to logits.
    mean, std : array_like
        In units of the instances as stored, and shaped to broadcast against *one* instance: (F,)
        for rows of a table, (C, 1) for signals, (C, 1, 1) for images. They become float32 buffers.
        A standard deviation of 0, that of a constant feature, counts as 1.

    Examples
    --------
    >>> net = Normalized(nn.Identity(), mean=[1.0, 5.0], std=[2.0, 0.0])
    >>> net(torch.tensor([[3, 5], [1, 6]], dtype=torch.uint8))
    tensor([[1., 0.],
            [0., 1.]])
    >>> list(net.state_dict())
    ['mean', 'std']
    """

    mean: Tensor
    std: Tensor
    recipe: dict[str, Any] | None = None  # set by `build_net`: input of `from_recipe`

    def __init__(self, network: nn.Module, mean: Any, std: Any) -> None:
        super().__init__()
        given = (v.detach() if isinstance(v, Tensor) else np.array(v) for v in (mean, std))
        center, scale = (torch.as_tensor(v, dtype=torch.float32) for v in given)
        bad = ~(center.isfinite() & scale.isfinite() & (scale >= 0))
        if bad.any():
            place = tuple(bad.nonzero()[0].tolist())
            center, scale = (v.expand(bad.shape)[place] for v in (center, scale))
            raise DataError(
                f"the mean is {center:g} and the standard deviation {scale:g} at position {place}.",
                "Replace values of x that are missing, infinite or too large for float32.",
            )
        self.network = network
        self.register_buffer("mean", center.clone())
        self.register_buffer("std", scale.where(scale > 0, 1.0))

    def prepare(self, x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """Return the instances as the network sees them: float32 and normalised, rest as it is."""
        return (x.to(torch.float32) - self.mean) / self.std, *rest

    def forward(self, *x: Tensor) -> Any:
        """Return the output of the network for instances as they are stored."""
        return self.network(*self.prepare(*x))


def parts(net: nn.Module) -> tuple[Callable[..., tuple[Tensor, ...]], nn.Module]:
    """Return the preprocessing of a net and the network behind it.

    ``network(*prepare(*x))`` is ``net(*x)``; noise on normalised inputs is added in between.

    Examples
    --------
    >>> prepare, network = parts(Normalized(nn.Identity(), mean=1.0, std=2.0))
    >>> prepare(torch.tensor([5]))
    (tensor([2.]),)
    """
    if isinstance(net, Normalized):
        return net.prepare, net.network
    return lambda *x: x, net
