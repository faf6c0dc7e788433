r"""What signals are like as a whole: a few numbers of each, and a linear layer on them.

Of every channel of a signal with n real frames these are

- its mean in each of eight pieces of equal length, n/8 frames; where a piece ends within a frame,
  that frame counts in part;
- its standard deviation;
- the mean size of a step from one frame to the next;

and of signals of unequal length the logarithm of n. Pieces tell where something is in a signal,
and the others what it is like wherever that is. A linear model of them is learned in a second, and
few bags are enough for it.

Reference: E. Keogh, K. Chakrabarti, M. Pazzani, S. Mehrotra, "Dimensionality Reduction for Fast
Similarity Search in Large Time Series Databases", Knowledge and Information Systems 3, 2001 (the
means of pieces).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Summary", "summaries"]

PIECES = 8


class Summary(nn.Module):
    """A linear layer on the summaries of signals (b, channels, length).

    Parameters
    ----------
    masked : bool
        Whether it also takes how many frames of each signal are real, of shape (b,). What comes
        after them is then ignored.

    Examples
    --------
    >>> Summary(13, 10)(torch.zeros(2, 13, 93)).shape
    torch.Size([2, 10])
    """

    def __init__(self, channels: int, classes: int, *, masked: bool = False) -> None:
        super().__init__()
        self.fc = nn.Linear(channels * (PIECES + 2) + masked, classes)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.fc(summaries(x, lengths))
        return logits


def summaries(x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return the summaries (b, D) of signals (b, channels, length): see the module.

    Parameters
    ----------
    lengths : tensor of shape (b,), optional
        How many frames of each signal are real. The summary then ends with the logarithm of that.

    Examples
    --------
    >>> x = torch.tensor([[[0.0, 0.0, 4.0, 4.0, 9.0]]])
    >>> summaries(x, torch.tensor([4])).round(decimals=2)
    tensor([[0.0000, 0.0000, 0.0000, 0.0000, 4.0000, 4.0000, 4.0000, 4.0000, 2.0000,
             1.3300, 1.3900]])
    """
    x = x if x.dtype == torch.float64 else x.float()
    places = torch.arange(x.shape[2], device=x.device, dtype=x.dtype)
    n = torch.full_like(x[:, 0, 0], x.shape[2])
    if lengths is not None:
        n = lengths.to(x.dtype).clamp(min=1)
        x = x.where((places < n[:, None])[:, None], 0)
    n = n[:, None]
    means = []
    for piece in range(PIECES):
        first, end = n * (piece / PIECES), n * ((piece + 1) / PIECES)
        inside = (torch.minimum(places + 1, end) - torch.maximum(places, first)).clamp(min=0)
        means.append((x * inside[:, None]).sum(dim=2) * (PIECES / n))
    real = (places < n)[:, None]
    centered = (x - x.sum(dim=2, keepdim=True) / n[:, :, None]).where(real, 0)
    variance = centered.square().sum(dim=2) / n
    varies = variance > 0  # where it does not, the slope of the root is infinite
    spread = variance.where(varies, 1).sqrt().where(varies, 0)
    steps = x.diff(dim=2).abs().where(real[:, :, 1:], 0).sum(dim=2) / (n - 1).clamp(min=1)
    found = [torch.stack(means, dim=2).flatten(1), spread, steps]
    return torch.cat(found if lengths is None else [*found, n.log()], dim=1)
