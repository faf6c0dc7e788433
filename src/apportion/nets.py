"""Networks that are ready to train: a perceptron, and ResNet-18 over images or over signals.

Each travels with its preprocessing: `Normalized` keeps the mean and the standard deviation of the
data beside the weights, so that instances go in as they are stored (uint8 images, raw columns)
wherever the model is used. `build` measures them over the rows that stand in bags, in one pass
that loads a chunk at a time and merges moments as Chan, Golub and LeVeque (1979) do.

The paper trains torchvision's ResNet-18 with random weights, and one with "1D convolution layers
instead of 2D" on signals. Here both are one class, and torchvision's weights fit it. Any other
``nn.Module`` works as well.

Reference: K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition",
CVPR 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion._resnet import ResNet
from apportion.bags import Bags
from apportion.errors import ApportionError, suggestion

__all__ = [
    "NETS",
    "NetError",
    "Normalized",
    "build",
    "conv1d",
    "mlp",
    "move_to",
    "parts",
    "resnet18",
]

Floats = NDArray[np.float64]
Stem = Literal["imagenet", "cifar"]

CHUNK = 2**21  # values that are measured at a time: 16 MiB in float64


class NetError(ApportionError, ValueError):
    """A network that cannot be built as asked. The message names what is wrong and the remedy."""


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


def mlp(features: int, classes: int, *, hidden: Sequence[int] = (256,)) -> nn.Sequential:
    """Build a perceptron with layers of `hidden` units, ReLU between them.

    Instances of any shape will do, if their size is `features`.

    Examples
    --------
    >>> mlp(12, 5, hidden=[8])(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 5])
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for size in hidden:
        layers += [nn.Linear(features, size), nn.ReLU(inplace=True)]
        features = size
    return nn.Sequential(*layers, nn.Linear(features, classes))


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


def conv1d(channels: int, classes: int) -> ResNet:
    """Build ResNet-18 with 1-D convolutions, for signals of shape (b, channels, length).

    Any length will do.

    Examples
    --------
    >>> conv1d(13, 10).eval()(torch.zeros(2, 13, 93)).shape
    torch.Size([2, 10])
    """
    return ResNet(classes, channels, dimensions=1)


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

# What the axes of an instance are, where a net depends on them; the others take any shape.
_AXES = {"conv1d": ("channels", "length"), "resnet18": ("channels", "height", "width")}


def build(name: str, bags: Bags, *, seed: int = 0, **options: Any) -> Normalized:
    """Build the named net for the data, with random weights, on the CPU.

    Classes and shapes come from the bags. Normalisation is measured over the distinct rows that
    stand in bags: every feature on its own for "mlp", every channel for the others.

    Parameters
    ----------
    name : {"mlp", "conv1d", "resnet18"}
    bags : Bags
        Its `x` may be an array, a memory-mapped one or a tensor.
    seed : int
        Decides the weights, to the bit. The caller's random state stays as it is.
    **options
        Passed on: ``hidden`` of `mlp`, ``stem`` of `resnet18`.

    Examples
    --------
    >>> bags = Bags.from_rows([[1.0, 7.0], [3.0, 7.0]], ["a", "a"], {"a": [0.5, 0.5]})
    >>> model = build("mlp", bags, hidden=[16])
    >>> model.mean, model.std
    (tensor([2., 7.]), tensor([1., 1.]))
    """
    if name not in NETS:
        raise NetError(
            f"there is no net {name!r}.",
            f"{suggestion(name, NETS)} Any other nn.Module can be passed as it is.",
        )
    x = _readable(name, bags.x)
    if name in _AXES:
        size, axes = {"channels": int(x.shape[1])}, (0, *range(2, x.ndim))
    else:
        size, axes = {"features": math.prod(x.shape[1:])}, (0,)
    with np.errstate(over="ignore", invalid="ignore"):  # Normalized refuses what is not finite
        mean, std = _moments(x, np.unique(bags.index), axes)
    # Only the CPU's generator is seeded: torch.manual_seed would reach those of every GPU as well.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        return Normalized(NETS[name](classes=bags.n_classes, **size, **options), mean, std)


def _readable(name: str, x: Any) -> Any:
    """The one array that the net reads."""
    arrays = x if isinstance(x, tuple) else (x,)
    if len(arrays) > 1:
        raise NetError(
            f"{name} reads one array, but instances have {len(arrays)} parts.",
            f"Join the parts, or pass an nn.Module whose forward takes {len(arrays)} arguments.",
        )
    shape, axes = tuple(map(int, arrays[0].shape)), _AXES.get(name)
    if len(shape) < 2 or 0 in shape or (axes and len(shape) != 1 + len(axes)):
        wanted = ", ".join(axes or ("features",))
        raise NetError(
            f"{name} takes x of shape (rows, {wanted}), but x is of shape {shape}.",
            "Reshape x, or take another net: conv1d is for signals, resnet18 for images, and mlp "
            "for tables or any other shape.",
        )
    return arrays[0]


def _moments(x: Any, rows: NDArray[np.int64], axes: tuple[int, ...]) -> tuple[Floats, Floats]:
    """The mean and the standard deviation of some rows of x, over some axes."""

    def seen(some: NDArray[np.int64]) -> Floats:
        """Rows in the precision in which the network sees them, for sums in a higher one."""
        if isinstance(x, Tensor):
            taken = x[torch.from_numpy(some).to(x.device)].detach().float().cpu().numpy()
        else:
            taken = np.asarray(x[some]).astype(np.float32)
        return taken.astype(np.float64)

    # A value of each feature. Less of it, numbers are small, and a constant is exactly 0.
    pivot = seen(rows[:1])[tuple(slice(1) if a in axes else slice(None) for a in range(x.ndim))]
    n, mean, squares = 0, np.zeros_like(pivot), np.zeros_like(pivot)
    n_chunks = min(math.ceil(len(rows) * math.prod(x.shape[1:]) / CHUNK), len(rows))
    for some in np.array_split(rows, n_chunks):
        values = seen(some) - pivot
        k = values.size // pivot.size
        delta = values.mean(axis=axes, keepdims=True) - mean
        squares += ((values - mean - delta) ** 2).sum(axis=axes, keepdims=True)
        squares += delta**2 * (n * k / (n + k))
        mean += delta * (k / (n + k))
        n += k
    return (pivot + mean)[0], np.sqrt(squares / n)[0]
