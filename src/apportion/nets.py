"""Networks that are ready to train: a perceptron, and ResNet-18 over images or over signals.

Each travels with its preprocessing: `Normalized` keeps the mean and the standard deviation of the
data beside the weights, so that instances go in as they are stored (uint8 images, raw columns)
wherever the model is used. `build` measures them over the rows that stand in bags, in one pass
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

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from apportion._net_inputs import NetError, measure
from apportion._net_recipes import check_name, read_recipe, write_recipe
from apportion._resnet import ResNet
from apportion.bags import Bags

__all__ = [
    "NETS",
    "NetError",
    "Normalized",
    "build",
    "conv1d",
    "from_recipe",
    "mlp",
    "move_to",
    "parts",
    "resnet18",
]

Stem = Literal["imagenet", "cifar"]


# ------------------------------------------------------------------------------- preprocessing


class Normalized(nn.Module):
    """A network with its preprocessing, so that the two travel together.

    Parameters
    ----------
    network : nn.Module
        What sees the normalised instances.
    mean, std : array_like
        In units of the instances as stored, and shaped to broadcast against *one* instance: (F,)
        for rows of a table, (C, 1) for signals, (C, 1, 1) for images. They become float32 buffers.
        A standard deviation of 0, that of a constant feature, counts as 1.

    Examples
    --------
    >>> model = Normalized(nn.Identity(), mean=[1.0, 5.0], std=[2.0, 0.0])
    >>> model(torch.tensor([[3, 5], [1, 6]], dtype=torch.uint8))
    tensor([[1., 0.],
            [0., 1.]])
    >>> list(model.state_dict())
    ['mean', 'std']
    """

    mean: Tensor
    std: Tensor
    recipe: dict[str, Any] | None = None  # set by `build`: how to make it again with `from_recipe`

    def __init__(self, network: nn.Module, mean: Any, std: Any) -> None:
        super().__init__()
        given = (v.detach() if isinstance(v, Tensor) else np.array(v) for v in (mean, std))
        center, scale = (torch.as_tensor(v, dtype=torch.float32) for v in given)
        bad = ~(center.isfinite() & scale.isfinite() & (scale >= 0))
        if bad.any():
            place = tuple(bad.nonzero()[0].tolist())
            center, scale = (v.expand(bad.shape)[place] for v in (center, scale))
            raise NetError(
                f"the mean is {center:g} and the standard deviation {scale:g} at position {place}.",
                "Replace values of x that are missing, infinite or too large for float32.",
            )
        self.network = network
        self.register_buffer("mean", center.clone())
        self.register_buffer("std", scale.where(scale > 0, 1.0))

    def prepare(self, x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """Give the instances as the network sees them: float32 and normalised, rest as it is."""
        return (x.to(torch.float32) - self.mean) / self.std, *rest

    def forward(self, *x: Tensor) -> Any:
        """Give what the network makes of instances as they are stored."""
        return self.network(*self.prepare(*x))


def parts(model: nn.Module) -> tuple[Callable[..., tuple[Tensor, ...]], nn.Module]:
    """Take a model apart into its preprocessing and the network proper.

    ``network(*prepare(*x))`` is ``model(*x)``; in between is where noise on normalised inputs goes.

    Examples
    --------
    >>> prepare, network = parts(Normalized(nn.Identity(), mean=1.0, std=2.0))
    >>> prepare(torch.tensor([5]))
    (tensor([2.]),)
    """
    if isinstance(model, Normalized):
        return model.prepare, model.network
    return lambda *x: x, model


# ------------------------------------------------------------------------------------ networks


def mlp(
    features: int,
    classes: int,
    *,
    hidden: Sequence[int] = (256,),
    categories: Sequence[int] | None = None,
) -> nn.Sequential:
    """Build a perceptron with layers of `hidden` units, ReLU between them.

    Instances of any shape will do, if their size is `features`.

    Parameters
    ----------
    categories : sequence of int, optional
        Lets instances be rows of numbers (b, features) and of codes (b, columns): how many codes
        each column has, with 0. The network sees the numbers beside a 0 or 1 for each category;
        code 0, for what is missing or unknown, has none, and neither has a code that is not below
        the column's number of them.

    Examples
    --------
    >>> mlp(12, 5, hidden=[8])(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 5])
    >>> mlp(1, 5, categories=[3, 4])(torch.zeros(2, 1), torch.tensor([[0, 3], [2, 1]])).shape
    torch.Size([2, 5])
    """
    width = features + sum(n - 1 for n in categories or ())
    layers: list[nn.Module] = [nn.Flatten()]
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU(inplace=True)]
        width = size
    layers.append(nn.Linear(width, classes))
    return nn.Sequential(*layers) if categories is None else _Mixed(categories, layers)


class _Mixed(nn.Sequential):
    """Layers over numbers joined with the categories of codes, each of which is 0 or 1."""

    categories: Tensor
    before: Tensor

    def __init__(self, categories: Sequence[int], layers: Sequence[nn.Module]) -> None:
        super().__init__(*layers)
        counts = torch.tensor(list(categories), dtype=torch.int64)
        own = counts - 1  # places of each column: code 0 has none
        self.width = int(own.sum())
        self.register_buffer("categories", counts, persistent=False)
        self.register_buffer("before", own.cumsum(0) - own, persistent=False)

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:  # type: ignore[override]
        """Give the logits."""
        codes = codes.long()
        known = (codes > 0) & (codes < self.categories)
        places = (codes + self.before).where(known, 0)  # where 0 is left out in the end
        hot = numbers.new_zeros(numbers.shape[0], 1 + self.width).scatter_(1, places, 1.0)
        x = torch.cat([numbers, hot[:, 1:]], dim=1)
        for layer in self:
            x = layer(x)
        return x


def resnet18(classes: int, *, channels: int = 3, stem: Stem = "imagenet") -> ResNet:
    """Build ResNet-18 for images of shape (b, channels, height, width).

    Parameters
    ----------
    stem : {"imagenet", "cifar"}
        How an image enters. The first, which is the paper's for images of 32 × 32 as well, halves
        it twice: a 7 × 7 convolution of stride 2, then max pooling. The second keeps its size for
        small images: a 3 × 3 convolution of stride 1. It takes about 16 times the computation.

    Examples
    --------
    >>> network = resnet18(10)
    >>> sum(weight.numel() for weight in network.parameters())
    11181642
    """
    if stem not in ("imagenet", "cifar"):
        raise NetError(f"there is no stem {stem!r}.", "Pass 'imagenet' or 'cifar'.")
    return ResNet(classes, channels, dimensions=2, small=stem == "cifar")


def conv1d(channels: int, classes: int, *, masked: bool = False) -> ResNet:
    """Build ResNet-18 with 1-D convolutions, for signals of shape (b, channels, length).

    Any length will do.

    Parameters
    ----------
    masked : bool
        Whether it also takes how many frames of each signal are real, of shape (b,). What is behind
        them is then nothing to the network: neither the logits nor what it learns depend on what
        is there, or on how much.

    Examples
    --------
    >>> conv1d(13, 10).eval()(torch.zeros(2, 13, 93)).shape
    torch.Size([2, 10])
    >>> conv1d(13, 10, masked=True).eval()(torch.zeros(2, 13, 93), torch.tensor([93, 40])).shape
    torch.Size([2, 10])
    """
    return ResNet(classes, channels, dimensions=1, masked=masked)


def move_to(device: torch.device, model: nn.Module) -> None:
    """Bring a model to a device, those of its nets that are known to allow it in the best layout.

    On a GPU that is channels-last. Networks of others stay as they are: their `view` may not take
    it. So does everything on the CPU, where such convolutions of 8 channels corrupted memory in
    torch 2.13.
    """
    model.to(device)
    for module in model.modules():
        if isinstance(module, ResNet) and device.type == "cuda":
            # mypy does not know this form, which torch documents
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


# --------------------------------------------------------------------------- a net for the data

NETS: dict[str, Callable[..., nn.Module]] = {"mlp": mlp, "conv1d": conv1d, "resnet18": resnet18}


def build(name: str, bags: Bags, *, seed: int = 0, **options: Any) -> Normalized:
    """Build the named net for the data, with random weights, on the CPU.

    Classes and shapes come from the bags. Normalisation is measured over the distinct rows that
    stand in bags: every feature on its own for "mlp", every channel for the others.

    Parameters
    ----------
    name : {"mlp", "conv1d", "resnet18"}
    bags : Bags
        Its `x` may be an array, a memory-mapped one or a tensor. It may be a tuple of two of them:
        numbers (M, F) and whole codes of categories (M, K) for "mlp", where F may be 0; frames
        (M, channels, length) and how many of each signal's are real (M,) for "conv1d", which are
        then all that is measured and seen.
    seed : int
        Decides the weights, to the bit. The caller's random state stays as it is.
    **options
        Passed on: ``hidden`` and ``categories`` of `mlp`, ``stem`` of `resnet18`. By default the
        categories are those of the largest codes in x.

    Returns
    -------
    Normalized
        Its `recipe` says how it was made, and `from_recipe` makes it again without the data.

    Examples
    --------
    >>> bags = Bags.from_rows([[1.0, 7.0], [3.0, 7.0]], ["a", "a"], {"a": [0.5, 0.5]})
    >>> model = build("mlp", bags, hidden=[16])
    >>> model.mean, model.std
    (tensor([2., 7.]), tensor([1., 1.]))
    """
    check_name(name, NETS)
    sizes, mean, std = measure(name, bags.x, np.unique(bags.index), options.pop("categories", None))
    arguments = {"classes": bags.n_classes, **sizes, **options}
    # Only the CPU's generator is seeded: torch.manual_seed would reach those of every GPU as well.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        model = Normalized(NETS[name](**arguments), mean, std)
    model.recipe = write_recipe(name, NETS[name], arguments, model.mean, model.std)
    return model


def from_recipe(recipe: Mapping[str, Any]) -> Normalized:
    """Make a net as `build` did, but without the data and with untrained weights.

    It is ready for ``load_state_dict`` of those that were saved. The recipe is plain: JSON keeps
    it.

    Parameters
    ----------
    recipe : mapping
        The `recipe` of a model that `build` made.

    Examples
    --------
    >>> bags = Bags.from_rows([[1.0, 7.0], [3.0, 7.0]], ["a", "a"], {"a": [0.5, 0.5]})
    >>> model = build("mlp", bags, hidden=[16])
    >>> model.recipe["hidden"], model.recipe["classes"]
    ([16], 2)
    >>> from_recipe(model.recipe).load_state_dict(model.state_dict())
    <All keys matched successfully>
    """
    name, arguments, mean_shape, std_shape = read_recipe(recipe, NETS)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        network = NETS[name](**arguments)
        model = Normalized(network, torch.zeros(mean_shape), torch.ones(std_shape))
    model.recipe = write_recipe(name, NETS[name], arguments, model.mean, model.std)
    return model
