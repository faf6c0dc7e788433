r"""The average of a net's weights along its training: another net, which decides and is kept.

After every step each weight w of it becomes :math:`d\, w + (1 - d)\, v`, where v is that of the
net and d the decay: about the last 1 / (1 − d) steps count. Running statistics are those of the
net. The average of labels that come and go in the course of training is what such a net has
learned.

Reference: A. Tarvainen, H. Valpola, "Mean teachers are better role models", NeurIPS 2017.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

__all__ = ["AveragedNet"]


class AveragedNet:
    """A net beside another one, which follows it step by step, in place.

    Examples
    --------
    >>> net = nn.Linear(1, 1, bias=False)
    >>> averaged = AveragedNet(net, decay=0.75)
    >>> with torch.no_grad():
    ...     _ = averaged.net.weight.fill_(0), net.weight.fill_(1)
    >>> averaged.follow()
    >>> averaged.net.weight.item()
    0.25
    """

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.net, self.decay = copy.deepcopy(net).requires_grad_(False), decay
        self.followed = net

    @torch.no_grad()
    def follow(self) -> None:
        """Go a part of the way towards the net."""
        own: list[Tensor] = [*self.net.parameters()]
        theirs: list[Tensor] = [*self.followed.parameters()]
        torch._foreach_lerp_(own, theirs, 1 - self.decay)
        for buffer, like in zip(self.net.buffers(), self.followed.buffers(), strict=True):
            buffer.copy_(like)
