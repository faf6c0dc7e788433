r"""The average of a net's weights along its training: another net, which decides and is kept.

After step t each weight w of it becomes :math:`d_t\, w + (1 - d_t)\, v`, where v is that of the
net and :math:`d_t = \min(d, t / (9 + t))` at a decay of d: about the last 1 / (1 − d) steps count,
and at first about a ninth of those so far, so that few steps do not leave it at the initial
weights. Running statistics are those of the net. The average of labels that come and go in the
course of training is what such a net has learned.

Reference: A. Tarvainen, H. Valpola, "Mean teachers are better role models", NeurIPS 2017.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

__all__ = ["AveragedNet"]

WARM_UP = 9  # steps: as many times longer than the average reaches back at first


class AveragedNet:
    """A net beside another one, which follows it step by step, in place.

    Examples
    --------
    >>> net = nn.Linear(1, 1, bias=False)
    >>> averaged = AveragedNet(net, decay=0.75)
    >>> _ = averaged.steps.fill_(100)
    >>> with torch.no_grad():
    ...     _ = averaged.net.weight.fill_(0), net.weight.fill_(1)
    >>> averaged.follow()
    >>> averaged.net.weight.item()
    0.25
    """

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.net, self.decay = copy.deepcopy(net).requires_grad_(False), decay
        self.followed = net
        device = next(net.parameters()).device
        self.steps = torch.zeros((), dtype=torch.float64, device=device)  # which a recording counts

    @torch.no_grad()
    def follow(self) -> None:
        """Go a part of the way towards the net."""
        self.steps += 1
        share = 1 - (self.steps / (self.steps + WARM_UP)).clamp(max=self.decay)
        own: list[Tensor] = [*self.net.parameters()]
        theirs: list[Tensor] = [*self.followed.parameters()]
        way = torch._foreach_sub(theirs, own)
        torch._foreach_mul_(way, share)
        torch._foreach_add_(own, way)
        for buffer, like in zip(self.net.buffers(), self.followed.buffers(), strict=True):
            buffer.copy_(like)
