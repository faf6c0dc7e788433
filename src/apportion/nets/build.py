"""Networks that are ready to train: a perceptron, and ResNet-18 over images or over signals.

For signals there is a linear layer on summaries of them as well.

Each contains its preprocessing: `Normalized` keeps the mean and the standard deviation of the data
beside the weights, so that it takes instances as they are stored (uint8 images, raw columns)
wherever it is used. `build_net` measures them over the rows that stand in bags, in one pass
that loads a chunk at a time.

Instances may have two parts: the numbers of a table's row and the codes of its categories, or the
frames of a signal and how many of them are real.

The paper trains torchvision's ResNet-18 with random weights, and one with "1D convolution layers
instead of 2D" on signals. Here both are one class, and torchvision's weights fit it. Any other
``nn.Module`` works as well.

Reference: K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition",
CVPR 2016.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.errors import DataError, count, must_be
from apportion.nets.average import Average
from apportion.nets.measure import has_channels_last, may_be_swapped, measure
from apportion.nets.mlp import mlp
from apportion.nets.normalized import Normalized
from apportion.nets.recipe import (
    check_name,
    check_options,
    groups_of,
    read_recipe,
    write_recipe,
)
from apportion.nets.resnet import ResNet, conv1d, resnet18
from apportion.nets.summary import Summary

__all__ = ["NETS", "build_net", "from_recipe", "move_to"]

log = logging.getLogger("apportion")

MOST_ALONE = 0.5  # of the variance of a channel, which one value may make up
LEAST_ROWS = 20  # of fewer, one value may well be as far off as that


def move_to(device: torch.device, net: nn.Module) -> None:
    """Move a net to a device; on a GPU, every `ResNet` in it becomes channels-last.

    Other networks keep their layout: their `view` may not work with another one. So does everything
    on the CPU, where channels-last convolutions of 8 channels corrupted memory in torch 2.13.
    """
    net.to(device)
    for module in net.modules():
        if isinstance(module, ResNet) and device.type == "cuda":
            # mypy does not know this form, which torch documents
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


# --------------------------------------------------------------------------- a net for the data

NETS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "conv1d": conv1d,
    "resnet18": resnet18,
    "summary": Summary,
}


def build_net(name: str, bags: Bags, *, seed: int = 0, **options: Any) -> Normalized:
    """Build the named net for the data, with random weights, on the CPU.

    Classes and shapes come from the bags. Normalisation is measured over the distinct rows that
    stand in bags: every feature on its own for "mlp", every channel for the others.

    Parameters
    ----------
    name : {"mlp", "conv1d", "resnet18", "summary"}
    bags : Bags
        Its `x` may be an array, a memory-mapped one or a tensor. It may be a tuple of two of them:
        numbers (M, F) and whole codes of categories (M, K) for "mlp", where F may be 0; frames
        (M, channels, length) and how many of each signal's are real (M,) for "conv1d" and
        "summary", which are then all that is measured and seen.
    seed : int
        Decides the weights, to the bit. The caller's random state stays as it is.
    **options
        Passed on: ``hidden``, ``categories`` and ``skip`` of `mlp`, ``stem`` and ``mirror`` of
        `resnet18`. By default the categories are those of ``bags.columns``, or else of the largest
        codes in bags. ``channels`` of `resnet18` need only be said of images that look as if they
        came last.

    Returns
    -------
    Normalized
        Its `recipe` says how it was built, and `from_recipe` builds it again without the data.

    Examples
    --------
    >>> bags = Bags.from_rows([[1.0, 7.0], [3.0, 7.0]], ["a", "a"], {"a": [0.5, 0.5]})
    >>> net = build_net("mlp", bags, hidden=[16])
    >>> net.mean, net.std
    (tensor([2., 7.]), tensor([1., 1.]))
    """
    check_name(name, NETS)
    categories, channels = options.pop("categories", None), options.pop("channels", None)
    options = check_options(name, NETS, options)
    shape = tuple(map(int, bags.parts[0].shape))
    if name == "resnet18" and channels is None and has_channels_last(shape):
        raise DataError(
            f"x is of shape {shape}: its channels seem to be last, but {name} takes (rows, "
            "channels, height, width).",
            "Pass Bags of np.moveaxis(x, -1, 1), or of x.movedim(-1, 1) if x is a tensor; or pass "
            f"channels={shape[1]} if these are {shape[1]} channels.",
        )
    if categories is None and name == "mlp" and bags.columns is not None:
        categories = bags.columns.codes or None
    sizes, mean, std, alone = measure(name, bags.parts, bags.distinct(), categories)
    if may_be_swapped(name, bags.parts):
        log.warning(
            "x, of shape %s, is taken as signals of %s and %s. If these are swapped, pass "
            "np.swapaxes(x, 1, 2); if they are gray images, x[:, None].",
            shape,
            count(shape[1], "channel"),
            count(shape[2], "frame"),
        )
    if name != "mlp" and (alone > MOST_ALONE).any() and bags.n_instances >= LEAST_ROWS:
        log.warning(
            "Channel %d of x (counted from 0) has a single value that makes up %.0f%% of its "
            "variance: beside it all others are nearly the same. Look at the largest and least "
            "values, and replace what is no measurement.",
            alone.ravel().argmax(),
            100 * alone.max(),
        )
    if channels is not None and channels != sizes.get("channels"):
        raise must_be("channels", f"{sizes.get('channels')}, as x has them", channels)
    arguments = {"classes": bags.n_classes, **sizes, **options}
    # Only the CPU's generator is seeded: torch.manual_seed would reach those of every GPU as well.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        net = Normalized(NETS[name](**arguments), mean, std)
    net.recipe = write_recipe(name, NETS[name], arguments, net.mean, net.std)
    return net


def from_recipe(recipe: Mapping[str, Any], *, device: str = "cpu") -> Normalized | Average:
    """Build a net as `build_net` did, but without the data and with untrained weights.

    Saved weights can then be loaded with ``load_state_dict``. JSON can store the recipe.

    Parameters
    ----------
    recipe : mapping
        The `recipe` of a net that `build_net` made, or of an `Average`.
    device : str
        Where to build it. On torch's device "meta" it takes no memory and has no weights, only
        their names, shapes and types.

    Examples
    --------
    >>> bags = Bags.from_rows([[1.0, 7.0], [3.0, 7.0]], ["a", "a"], {"a": [0.5, 0.5]})
    >>> net = build_net("mlp", bags, hidden=[16])
    >>> net.recipe["hidden"], net.recipe["classes"]
    ([16], 2)
    >>> from_recipe(net.recipe).load_state_dict(net.state_dict())
    <All keys matched successfully>
    """
    groups = [[_single(net, device) for net in group] for group in groups_of(recipe)]
    return Average(groups) if recipe["net"] == "average" else groups[0][0]


def _single(recipe: Any, device: str) -> Normalized:
    name, arguments, mean_shape, std_shape = read_recipe(recipe, NETS)
    with torch.random.fork_rng(devices=[]):
        with torch.device(device):
            network = NETS[name](**arguments)
        with torch.device("cpu"):
            net = Normalized(network, 0.0, 1.0)
    net.mean = torch.zeros(mean_shape, device=device)
    net.std = torch.ones(std_shape, device=device)
    net.recipe = write_recipe(name, NETS[name], arguments, net.mean, net.std)
    return net
