r"""The average of several nets, which is more accurate than most of them, as one net.

Let :math:`p_i` be the confidences of net i. Within a group, such as nets that differ in their seed
alone, log-probabilities are averaged:

.. math:: q_g \propto \exp\Bigl(\tfrac{1}{|g|} \sum_{i \in g} \log p_i\Bigr).

Between groups, such as those of different methods, probabilities are: none of them is below
:math:`e^{-8}`, so that no group alone decides that a class is impossible. The logits are
:math:`a \log \bar q + b`, of a calibration with `slope` a and `bias` b.

One call costs as much as one of every net in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from apportion.errors import ConfigError
from apportion.nets.recipe import average_of

__all__ = ["Average"]

LEAST = math.exp(-8)  # probability of a class in a group


class Average(nn.Module):
    """The average of nets of this library, over the same instances and classes.

    Parameters
    ----------
    groups : sequence of sequences of nn.Module
        Nets with a recipe, as `build_net` builds them; at most 64 in all. They are not copied.

    Attributes
    ----------
    slope : Tensor
        A scalar buffer, by which log-probabilities are multiplied: 1 at first.
    bias : Tensor
        A buffer (C,) that is then added: 0 at first.
    recipe : dict
        The recipes of its nets: input of `from_recipe`.

    Raises
    ------
    ConfigError
        If there are no nets, more than 64, some without a recipe, or for other instances or
        classes than the rest.

    Examples
    --------
    >>> from apportion.bags.bags import Bags
    >>> from apportion.nets.build import build_net
    >>> bags = Bags.from_rows([[1.0, 7.0], [3.0, 7.0]], ["a", "a"], {"a": [0.5, 0.5]})
    >>> nets = [build_net("mlp", bags, seed=seed) for seed in range(3)]
    >>> net = Average([nets[:2], nets[2:]])
    >>> net(torch.tensor(bags.x)).shape
    torch.Size([2, 2])
    >>> net
    Average(mlp, mlp | mlp)
    """

    slope: Tensor
    bias: Tensor

    def __init__(self, groups: Sequence[Sequence[nn.Module]]) -> None:
        super().__init__()
        recipes = [[getattr(net, "recipe", None) for net in group] for group in groups]
        if any(recipe is None for group in recipes for recipe in group):
            raise ConfigError(
                "a net of an average has no recipe, and could not be loaded again.",
                "Average nets that build_net built.",
            )
        self.recipe: dict[str, Any] = average_of(recipes)
        self.groups = nn.ModuleList(map(_Group, groups))
        n_classes = self.recipe["groups"][0][0]["classes"]
        device = next(iter(self.state_dict().values())).device
        self.register_buffer("slope", torch.ones((), device=device))
        self.register_buffer("bias", torch.zeros(n_classes, device=device))

    @property
    def nets(self) -> list[nn.Module]:
        """All nets, group by group."""
        return [net for group in self.groups for net in group.children()]

    def forward(self, *x: Tensor) -> Tensor:
        """Return the logits of instances as they are stored."""
        found = torch.stack([group(*x) for group in self.groups])
        return self.slope * found.mean(dim=0).log() + self.bias

    def __repr__(self) -> str:
        groups = (", ".join(net["net"] for net in group) for group in self.recipe["groups"])
        return f"Average({' | '.join(groups)})"


class _Group(nn.ModuleList):
    """Nets whose log-probabilities are averaged."""

    def forward(self, *x: Tensor) -> Tensor:
        """Return the probabilities."""
        logs = torch.stack([net(*x).float().log_softmax(dim=1) for net in self])
        found = logs.mean(dim=0).softmax(dim=1).clamp(min=LEAST)
        return found / found.sum(dim=1, keepdim=True)
