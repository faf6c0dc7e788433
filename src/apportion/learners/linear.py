"""A linear model as a net of this library, so that it is saved, exported and reported as any."""

from __future__ import annotations

from typing import Any

import torch

from apportion.labels.linear import Linear
from apportion.nets.build import from_recipe
from apportion.nets.normalized import Normalized

__all__ = ["linear_net"]


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
        "mean_shape": shape,
        "std_shape": shape,
    }
    net = from_recipe(recipe)
    (last,) = (module for module in net.modules() if isinstance(module, torch.nn.Linear))
    with torch.no_grad():
        net.mean.copy_(torch.from_numpy(encoding.mean))
        net.std.copy_(torch.from_numpy(encoding.std))
        last.weight.copy_(torch.from_numpy(linear.weights.T.copy()))
        last.bias.copy_(torch.from_numpy(linear.bias.copy()))
    return net
