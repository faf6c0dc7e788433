"""ResNet-18 over images or over signals.

Weights have the names and the shapes of torchvision's. Signals are images of height 1, and their
kernels have one row: a GPU has faster kernels for images, with the channels last. Some convolutions
are computed in another way than usual, with the same result: where the result is a single place,
they are a product of matrices, and on a GPU the first one reads blocks of pixels.

Signals may be of unequal length, padded to one: a mask of their real places goes with them. A place
of a layer is real if the one it is centred on is, so that a stride of 2 keeps every other one. All
others are 0 after every normalisation, as they are in the padding of a convolution: a signal meets
the same numbers whether something follows it or not.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Literal

import torch
from torch import Tensor, nn

from apportion.errors import ApportionError, ConfigError

__all__ = ["ResNet", "conv1d", "resnet18"]

Stem = Literal["imagenet", "cifar"]


class ResNet(nn.Sequential):
    """ResNet-18 for images or signals. Make one with `resnet18` or `conv1d`.

    Weights have the names and the shapes of torchvision's ``resnet18``, and are drawn as there; of
    signals their kernels are of shape (1, size).
    """

    def __init__(
        self,
        classes: int,
        channels: int,
        *,
        signals: bool = False,
        small: bool = False,
        masked: bool = False,
        mirror: bool = False,
    ) -> None:
        size, stride = (3, 1) if small else (7, 2)
        conv1, bn1 = _convolution(channels, 64, size, stride, signals)
        pool = nn.MaxPool2d(_plane(3, signals, 1), _plane(2, signals, 1), _plane(1, signals, 0))
        layers = OrderedDict[str, nn.Module](
            conv1=conv1,
            bn1=bn1,
            relu=nn.ReLU(inplace=True),
            maxpool=nn.Identity() if small else pool,
            layer1=_stage(64, 64, 1, signals),
            layer2=_stage(64, 128, 2, signals),
            layer3=_stage(128, 256, 2, signals),
            layer4=_stage(256, 512, 2, signals),
            avgpool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(512, classes),
        )
        super().__init__(layers)
        self.signals, self.masked, self.mirror = signals, masked, mirror
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the logits; `lengths` says how many frames of each signal are real."""
        if self.masked != (lengths is not None):
            raise ApportionError(
                f"the network is {'' if self.masked else 'not '}masked, but it is called with "
                f"{'no ' if self.masked else ''}lengths.",
                "Call it as net(frames, lengths) if it was built with lengths, else net(x).",
            )
        if self.signals:
            x = x[:, :, None]
        if x.is_cuda:
            mixed = torch.is_autocast_enabled("cuda")
            dtype = torch.get_autocast_dtype("cuda") if mixed else x.dtype
            x = x.to(dtype, memory_format=torch.channels_last)
        if lengths is not None:
            return self._masked(x, lengths)
        features = self._features(x)
        if self.mirror and not self.training:
            features = (features + self._features(x.flip(-1))) / 2
        layers: Any = self
        logits: Tensor = layers.fc(features)
        return logits

    def _features(self, x: Tensor) -> Tensor:
        """Return what the last layer gets of each instance."""
        for layer in list(self)[:-1]:
            x = layer(x)
        return x

    def _masked(self, x: Tensor, lengths: Tensor) -> Tensor:
        layers: Any = self
        places = torch.arange(x.shape[3], device=x.device)
        real = (places < lengths.clamp(min=1)[:, None])[:, None, None]
        x = layers.conv1(x.where(real, 0))
        real = real[..., ::2]
        x = _normalized(layers.bn1, x, real).relu_()
        real = real[..., ::2]
        x = layers.maxpool(x).where(real, 0)  # the last real place may reach into the one behind it
        for stage in (layers.layer1, layers.layer2, layers.layer3, layers.layer4):
            for block in stage:
                real = real[..., :: block.stride]
                x = block(x, real)
        average: Tensor = x.sum(dim=(2, 3)) / real.sum(dim=(2, 3))
        logits: Tensor = layers.fc(average)
        return logits


class _Block(nn.Module):
    """Two convolutions, added to what came in: itself, or its projection where shapes differ."""

    def __init__(self, before: int, width: int, stride: int, signals: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(before, width, 3, stride, signals)
        self.conv2, self.bn2 = _convolution(width, width, 3, 1, signals)
        self.stride = stride
        self.downsample: nn.Module = nn.Identity()
        if stride > 1:
            self.downsample = nn.Sequential(*_convolution(before, width, 1, stride, signals))

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        inner = _normalized(self.bn1, self.conv1(x), real).relu_()
        outer = _normalized(self.bn2, self.conv2(inner), real)
        if isinstance(self.downsample, nn.Sequential):
            conv, norm = self.downsample
            x = _normalized(norm, conv(x), real)
        return outer.add_(x).relu_()


def _normalized(norm: Any, x: Tensor, real: Tensor | None) -> Tensor:
    """Apply BatchNorm where only some places (b, 1, 1, length) are real; all others become 0.

    Statistics are those of real places, so that learning does not depend on the padding either.
    """
    given: Tensor
    if real is None or not norm.training:
        given = norm(x)
        return given if real is None else given.where(real, 0)
    wide = x if x.dtype == torch.float64 else x.float()
    n = real.sum()
    mean = wide.where(real, 0).sum(dim=(0, 2, 3)) / n
    centered = (wide - mean[:, None, None]).where(real, 0)
    variance = centered.square().sum(dim=(0, 2, 3)) / n
    if norm.track_running_stats:
        with torch.no_grad():
            norm.num_batches_tracked.add_(1)
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(variance * n / (n - 1).clamp(min=1), norm.momentum)
    scale = norm.weight * (variance + norm.eps).rsqrt()
    given = centered * scale[:, None, None] + norm.bias[:, None, None]
    return given.where(real, 0).to(x.dtype)


def _stage(before: int, width: int, stride: int, signals: bool) -> nn.Module:
    blocks = _Block(before, width, stride, signals), _Block(width, width, 1, signals)
    return nn.Sequential(*blocks)


def _plane(n: int, signals: bool, high: int) -> tuple[int, int]:
    """Return n for both directions, but for the height of signals."""
    return (high if signals else n), n


def _convolution(
    before: int, width: int, size: int, stride: int, signals: bool
) -> tuple[nn.Module, nn.Module]:
    """Build a convolution, and the normalisation that follows it."""
    shape = _plane(size, signals, 1), _plane(stride, signals, 1), _plane(size // 2, signals, 0)
    return _Convolution(before, width, *shape, bias=False), nn.BatchNorm2d(width)


def _as_matrix(x: Tensor, conv: nn.Conv2d) -> Tensor | None:
    """Compute a convolution whose result is a single place as a product of matrices; else None.

    Only the part of the kernel that lies on x counts, so the padding need not be multiplied: on
    maps of one place, at the end of ResNet-18 on images of 32 × 32, that is a ninth of the kernel.
    """
    taps = []
    for places, size, stride, padding in zip(
        x.shape[2:], conv.kernel_size, conv.stride, map(int, conv.padding), strict=True
    ):
        if (places + 2 * padding - size) // stride != 0:
            return None
        taps.append((padding, min(size - padding, places)))
    (top, high), (left, wide) = taps
    seen = x.permute(0, 2, 3, 1)[:, :high, :wide]  # channels last, as both are in memory on a GPU
    kernel = conv.weight.permute(0, 2, 3, 1)[:, top : top + high, left : left + wide]
    return nn.functional.linear(seen.flatten(1), kernel.flatten(1))[:, :, None, None]


def _in_blocks(x: Tensor, weight: Tensor) -> Tensor:
    """Compute a convolution of stride 2 with blocks of 2 × 2 pixels as channels.

    Tensor cores read channels in groups of eight, and an image has three; in blocks it has twelve.
    A row and a column of zeros in front make the kernel, of odd size, one of whole blocks.
    """

    def blocks(t: Tensor, before: int, after: int) -> Tensor:
        t = nn.functional.pad(t.permute(0, 2, 3, 1), (0, 0, before, after, before, after))
        n, height, width, channels = t.shape
        t = t.reshape(n, height // 2, 2, width // 2, 2, channels).permute(0, 1, 3, 2, 4, 5)
        t = t.reshape(n, height // 2, width // 2, 4 * channels)
        return nn.functional.pad(t, (0, -4 * channels % 8)).permute(0, 3, 1, 2)

    half = (weight.shape[2] + 1) // 2
    return nn.functional.conv2d(blocks(x, half, half - 2), blocks(weight, 1, 0))


class _Convolution(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        given = _as_matrix(x, self)
        if given is not None:
            return given
        halves = x.is_cuda and self.stride == (2, 2) and self.in_channels < 8
        if halves and x.shape[2] % 2 == x.shape[3] % 2 == 0:
            return _in_blocks(x, self.weight)
        return super().forward(x)


def resnet18(
    classes: int, *, channels: int = 3, stem: Stem = "imagenet", mirror: bool = False
) -> ResNet:
    """Build ResNet-18 for images of shape (b, channels, height, width).

    Parameters
    ----------
    stem : {"imagenet", "cifar"}
        How an image enters. The first, which is the paper's for images of 32 × 32 as well, halves
        it twice: a 7 × 7 convolution of stride 2, then max pooling. The second keeps its size for
        small images: a 3 × 3 convolution of stride 1. It takes about 16 times the computation.
    mirror : bool
        Whether predictions are those of the mean features of an image and of its mirror image,
        which takes twice the computation; in training it changes nothing.

    Examples
    --------
    >>> network = resnet18(10)
    >>> sum(weight.numel() for weight in network.parameters())
    11181642
    """
    if stem not in ("imagenet", "cifar"):
        raise ConfigError(f"there is no stem {stem!r}.", "Pass 'imagenet' or 'cifar'.")
    return ResNet(classes, channels, small=stem == "cifar", mirror=mirror)


def conv1d(channels: int, classes: int, *, masked: bool = False) -> ResNet:
    """Build ResNet-18 with 1-D convolutions, for signals of shape (b, channels, length).

    Signals may be of any length.

    Parameters
    ----------
    masked : bool
        Whether it also takes how many frames of each signal are real, of shape (b,). What comes
        after them is then ignored: neither the logits nor what the network learns depend on it.

    Examples
    --------
    >>> conv1d(13, 10).eval()(torch.zeros(2, 13, 93)).shape
    torch.Size([2, 10])
    >>> conv1d(13, 10, masked=True).eval()(torch.zeros(2, 13, 93), torch.tensor([93, 40])).shape
    torch.Size([2, 10])
    """
    return ResNet(classes, channels, signals=True, masked=masked)
