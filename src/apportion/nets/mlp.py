"""A perceptron over the numbers of a table's rows, and over the codes of its categories."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

__all__ = ["Shortcut", "mlp"]


def mlp(
    features: int,
    classes: int,
    *,
    hidden: Sequence[int] = (256,),
    categories: Sequence[int] | None = None,
    skip: bool = False,
) -> nn.Sequential:
    """Build a perceptron with layers of `hidden` units, ReLU between them.

    Instances may be of any shape whose size is `features`.

    Parameters
    ----------
    categories : sequence of int, optional
        Given if instances are rows of numbers (b, features) and of codes (b, columns): how many
        codes each column has, including 0. The network sees the numbers and a 0
        or 1 for each category; it sees none for code 0, which is for missing and unknown values,
        and for codes that are too large.
    skip : bool
        Whether a linear layer leads from the inputs straight to the logits, beside the others.

    Examples
    --------
    >>> mlp(12, 5, hidden=[8])(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 5])
    >>> mlp(1, 5, categories=[3, 4])(torch.zeros(2, 1), torch.tensor([[0, 3], [2, 1]])).shape
    torch.Size([2, 5])
    >>> mlp(3, 2, hidden=[8], skip=True)[1]
    Shortcut(
      (linear): Linear(in_features=3, out_features=2, bias=True)
      (deep): Sequential(
        (0): Linear(in_features=3, out_features=8, bias=True)
        (1): ReLU(inplace=True)
        (2): Linear(in_features=8, out_features=2, bias=True)
      )
    )
    """
    width = features + sum(n - 1 for n in categories or ())
    layers: list[nn.Module] = []
    before = width
    for size in hidden:
        layers += [nn.Linear(before, size), nn.ReLU(inplace=True)]
        before = size
    layers.append(nn.Linear(before, classes))
    if skip:
        layers = [Shortcut(nn.Linear(width, classes), nn.Sequential(*layers))]
    layers.insert(0, nn.Flatten())
    return nn.Sequential(*layers) if categories is None else _Mixed(categories, layers)


class Shortcut(nn.Module):
    """The sum of a linear layer's logits and of a perceptron's."""

    def __init__(self, linear: nn.Linear, deep: nn.Sequential) -> None:
        super().__init__()
        self.linear, self.deep = linear, deep

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.linear(x) + self.deep(x)
        return logits


class _Mixed(nn.Sequential):
    """Layers over numbers joined with the categories of codes, each of which is 0 or 1."""

    categories: Tensor
    before: Tensor

    def __init__(self, categories: Sequence[int], layers: Sequence[nn.Module]) -> None:
        super().__init__(*layers)
        # The places of each column end here: code 0 has none. They are summed in Python, because
        # the first arithmetic on torch's device "meta" imports its compiler.
        ends = [0, *accumulate(size - 1 for size in categories)]
        self.width = ends.pop()
        of_columns = {"categories": list(categories), "before": ends}
        for name, values in of_columns.items():
            buffer = torch.tensor(values, dtype=torch.int64)
            self.register_buffer(name, buffer, persistent=False)

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:  # type: ignore[override]
        """Return the logits."""
        codes = codes.long()
        known = (codes > 0) & (codes < self.categories)
        places = (codes + self.before).where(known, 0)  # where 0 is left out in the end
        hot = numbers.new_zeros(numbers.shape[0], 1 + self.width).scatter_(1, places, 1.0)
        x = torch.cat([numbers, hot[:, 1:]], dim=1)
        for layer in self:
            x = layer(x)
        return x
