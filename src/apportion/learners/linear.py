"""A linear model as a net of this library, or as the start of one.

As a net it is saved, exported and reported as any.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from apportion.errors import ConfigError
from apportion.labels.linear import Linear
from apportion.nets.build import from_recipe
from apportion.nets.mlp import Shortcut
from apportion.nets.normalized import Normalized

__all__ = ["linear_net", "start_as"]


def linear_net(linear: Linear) -> Normalized:
    """Build the net ``mlp`` without hidden layers whose logits are those of a linear model.

    Examples
    --------
    >>> import numpy as np
    >>> from apportion.bags.bags import Bags
    >>> from apportion.labels.linear import fit_linear
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)
    >>> bags = Bags.from_rows(x, list("aabb"), {"a": [1, 0], "b": [0, 1]})
    >>> linear = fit_linear(bags, l2=1.0)
    >>> net = linear_net(linear)
    >>> bool(np.allclose(net(torch.from_numpy(x)).detach(), linear.logits(x), atol=1e-6))
    True
    """
    encoding = linear.encoding
    shape = [len(encoding.mean)]
    recipe: dict[str, Any] = {
        "net": "mlp",
        "features": shape[0],
        "classes": len(linear.bias),
        "hidden": [],
        "categories": None if encoding.categories is None else list(encoding.categories),
        "skip": False,
        "mean_shape": shape,
        "std_shape": shape,
    }
    net = cast("Normalized", from_recipe(recipe))
    (layer,) = (module for module in net.modules() if isinstance(module, nn.Linear))
    _copy(linear, net, layer)
    return net


def start_as(net: Normalized, linear: Linear) -> None:
    """Change the weights of an ``mlp`` with ``skip`` so that its logits are a linear model's.

    The linear layer, the mean and the standard deviation become those of the model, and the last
    layer of the perceptron becomes 0: training then adds what is not linear.

    Examples
    --------
    >>> import numpy as np
    >>> from apportion.bags.bags import Bags
    >>> from apportion.labels.linear import fit_linear
    >>> from apportion.nets.build import build_net
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)
    >>> bags = Bags.from_rows(x, list("aabb"), {"a": [1, 0], "b": [0, 1]})
    >>> linear, net = fit_linear(bags, l2=1.0), build_net("mlp", bags, skip=True)
    >>> start_as(net, linear)
    >>> bool(np.allclose(net(torch.from_numpy(x)).detach(), linear.logits(x), atol=1e-6))
    True
    """
    shortcuts = [module for module in net.modules() if isinstance(module, Shortcut)]
    if not shortcuts:
        raise ConfigError(
            "the net has no layer from its inputs to its logits.",
            'Build it with build_net("mlp", bags, skip=True).',
        )
    (shortcut,) = shortcuts
    own, theirs = tuple(shortcut.linear.weight.shape), linear.weights.T.shape
    if own != theirs or net.mean.shape != linear.encoding.mean.shape:
        raise ConfigError(
            f"the net has {own} weights of (classes, inputs), but the linear model {theirs}.",
            "Build the net for the bags that the linear model was fitted to.",
        )
    _copy(linear, net, shortcut.linear)
    last = cast("nn.Linear", shortcut.deep[-1])
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)


@torch.no_grad()
def _copy(linear: Linear, net: Normalized, layer: nn.Linear) -> None:
    net.mean.copy_(torch.from_numpy(linear.encoding.mean))
    net.std.copy_(torch.from_numpy(linear.encoding.std))
    layer.weight.copy_(torch.from_numpy(linear.weights.T.copy()))
    layer.bias.copy_(torch.from_numpy(linear.bias.copy()))
