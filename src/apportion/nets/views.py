"""Random views of images and of signals: zoomed, in other colours, and with a part cut out.

As in `augment`, all instances are changed at once on the device that holds them, each in its own
way, and nothing waits for the host. Numbers are computed in float32, or in float64 where the batch
has 64 bits or is of int32; what comes back is of the type that came in, integers rounded.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Generator, Tensor, nn

from apportion.errors import ConfigError

__all__ = ["check_axes", "colour", "cutout", "zoom"]

# Red, green and blue in luminance, orange–blue and purple–green, as in NTSC's television; and back.
# They are Python's numbers, because a tensor of them would be copied from the host.
YIQ = [[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]]
RGB: list[list[float]] = np.linalg.inv(YIQ).tolist()

RATIO = 4 / 3  # the most by which a random crop is wider, or higher, than its image
JITTERED = 0.8  # the share of images whose colours change


def zoom(x: Tensor, generator: Generator, *, least: float = 0.35, turn: float = 0.0) -> Tensor:
    """Crop each image at random, turn the crop, and scale it back to the size of the image.

    The area of a crop is uniform from `least` to 1 of the image; the ratio of its sides, as
    multiples of the image's, is log-uniform from 3/4 to 4/3, or in a narrower range where the crop
    would not fit. Its place is uniform within the image. Then it is turned about its own middle;
    what lies beyond the image is the image mirrored there. All of it is one bilinear interpolation.

    Of a signal it is a stretch, of a length uniform from `least` to 1, that is scaled back to the
    whole length by linear interpolation.

    Parameters
    ----------
    x : tensor of shape (b, channels, length) or (b, channels, height, width)
    least : float
        The smallest share of the image, above 0 and at most 1.
    turn : float
        The largest angle of a turn, in radians, in either direction. Signals are not turned.

    Examples
    --------
    >>> x = torch.arange(0, 90, 10, dtype=torch.uint8).expand(3, 1, 9)
    >>> zoom(x, Generator().manual_seed(0), least=0.5)[:, 0]
    tensor([[ 2,  9, 17, 24, 32, 39, 47, 54, 62],
            [ 3, 11, 20, 29, 38, 47, 56, 65, 73],
            [24, 29, 35, 40, 45, 51, 56, 62, 67]], dtype=torch.uint8)
    """
    check_axes("zoom", x, most=2)
    size, across, down, ratio, angle = torch.rand(
        (5, len(x)), generator=generator, device=x.device
    ).to(_wide(x).dtype)
    size = least + (1 - least) * size
    if x.ndim == 3:
        given = _resampled(x[:, :, None], size, torch.ones_like(size), 2 * across - 1)
        return given[:, :, 0]
    room = (-size.log()).clamp(max=math.log(RATIO))  # the wider side is then 1 at most
    stretch = (room * (ratio - 0.5)).exp()
    width, height = size.sqrt() * stretch, size.sqrt() / stretch
    return _resampled(x, width, height, 2 * across - 1, 2 * down - 1, turn * (2 * angle - 1))


def _resampled(
    x: Tensor,
    width: Tensor,
    height: Tensor,
    across: Tensor,
    down: Tensor | None = None,
    angle: Tensor | None = None,
) -> Tensor:
    """Return one crop of each image (b, channels, h, w), in the size of the image.

    Parameters
    ----------
    width, height : tensor of shape (b,)
        The sides of the crops, as shares of the image's.
    across, down : tensor of shape (b,)
        Where they are: from −1, at the left or upper border, to 1.
    angle : tensor of shape (b,)
        By how much they are turned, in radians: from the axis to the right to the one downwards.
    """
    wide = _wide(x)
    zero = torch.zeros_like(width)
    down, angle = zero if down is None else down, zero if angle is None else angle
    rows, columns = x.shape[2:]
    # Where a pixel of the crop is, seen from the crop's middle, in pixels of the image. These are
    # sums of their own, because affine_grid multiplies matrices, which autocast and TF32 round.
    right = (_middles(columns, wide) * (columns / 2))[:, None, :] * width[:, None, None]
    below = (_middles(rows, wide) * (rows / 2))[:, :, None] * height[:, None, None]
    cosine, sine = angle.cos()[:, None, None], angle.sin()[:, None, None]
    place_x = (cosine * right - sine * below) * (2 / columns)
    place_y = (sine * right + cosine * below) * (2 / rows)
    place_x = place_x + (across * (1 - width))[:, None, None]
    place_y = place_y + (down * (1 - height))[:, None, None]
    given = nn.functional.grid_sample(
        wide,
        torch.stack([place_x, place_y], dim=-1),
        mode="bilinear",
        padding_mode="reflection",
        align_corners=False,
    )
    return _as(x, given)


def _middles(size: int, like: Tensor) -> Tensor:
    """Return where the middles of the pixels are on an axis from −1 to 1, of shape (1, size)."""
    steps = torch.arange(size, device=like.device, dtype=like.dtype)
    return ((2 * steps + 1) / size - 1)[None]


def colour(x: Tensor, generator: Generator, *, strength: float = 0.3, grey: float = 0.05) -> Tensor:
    """Change the brightness and the contrast of four images in five, and their colours.

    Brightness, contrast (about the mean of the image) and saturation are each multiplied by a
    number within 1 ± `strength`; the hue is turned by up to `strength` / 4 of a full turn in either
    direction, at the same luminance. Apart from that, each image may become grey. Images that do
    not have three channels change in brightness and contrast alone.

    Values stay in their range: 0 to 255 for uint8, and else from the smallest to the largest one of
    the batch, of which the smallest counts as black.

    Parameters
    ----------
    x : tensor of shape (b, channels, height, width)
    strength : float
        From 0 to 1.
    grey : float
        The probability that an image loses its colours.

    Examples
    --------
    >>> x = torch.tensor([200, 100, 50], dtype=torch.uint8).view(1, 3, 1, 1).expand(3, 3, 1, 1)
    >>> colour(x, Generator().manual_seed(1), grey=0.3)[:, :, 0, 0]
    tensor([[190,  94,  36],
            [144, 144, 144],
            [208, 105,  53]], dtype=torch.uint8)
    """
    check_axes("colour", x, least=2, most=2)
    if x.numel() == 0:
        return x  # which has no range
    wide = _wide(x)
    low, span = _range(x)
    draws = torch.rand((6, len(x)), generator=generator, device=x.device).to(wide.dtype)
    jittered, greyed = draws[0] < JITTERED, draws[1] < grey
    changes = ((2 * draws[2:] - 1) * strength).where(jittered, 0.0)[:, :, None, None, None]
    bright, contrast, saturation, hue = changes
    y = (wide - low) / span * (1 + bright)
    mean = y.mean((1, 2, 3), keepdim=True)
    y = (y - mean) * (1 + contrast) + mean
    if x.shape[1] == 3:
        saturation = (1 + saturation).where(~greyed[:, None, None, None], 0.0)
        y = _tinted(y, saturation, hue * (math.tau / 4))
    return _as(x, y.clamp(0, 1) * span + low)


def _range(x: Tensor) -> tuple[Tensor | float, Tensor | float]:
    """Return which value is black, and by how much white is above it."""
    if x.dtype == torch.uint8:
        return 0.0, 255.0
    low, high = _wide(x).aminmax()
    return low, (high - low).where(high > low, 1.0)


def _tinted(x: Tensor, saturation: Tensor, angle: Tensor) -> Tensor:
    """Return images with their saturation multiplied and their hue turned, at their luminance."""
    channels = x[:, :1], x[:, 1:2], x[:, 2:]
    light, orange, purple = (_weighted(channels, weights) for weights in YIQ)
    cosine, sine = saturation * angle.cos(), saturation * angle.sin()
    turned = light, orange * cosine - purple * sine, orange * sine + purple * cosine
    return torch.cat([_weighted(turned, weights) for weights in RGB], dim=1)


def _weighted(channels: tuple[Tensor, ...], weights: list[float]) -> Tensor:
    first, second, third = (c * w for c, w in zip(channels, weights, strict=True))
    return first + second + third


def cutout(x: Tensor, generator: Generator, *, share: float = 0.375) -> Tensor:
    """Replace a square of each image by the mean of the image, channel by channel.

    The middle of the square is any pixel, all equally likely; what would lie beyond a border is
    left out. Of a signal it is a stretch.

    Parameters
    ----------
    x : tensor of shape (b, channels, length) or (b, channels, height, width)
    share : float
        The side of the square, as a share of the image's shorter side: from 0 to 1.

    Examples
    --------
    >>> x = torch.arange(8, dtype=torch.uint8).expand(3, 1, 8)
    >>> cutout(x, Generator().manual_seed(0))[:, 0]
    tensor([[0, 1, 2, 4, 4, 4, 6, 7],
            [0, 1, 2, 3, 4, 5, 4, 4],
            [0, 1, 2, 3, 4, 4, 4, 7]], dtype=torch.uint8)
    """
    check_axes("cutout", x)
    side = round(share * min(x.shape[2:]))
    cut = None
    for axis, size in enumerate(x.shape[2:], start=2):
        shape = [1] * x.ndim
        shape[0] = len(x)
        middle = torch.randint(size, shape, generator=generator, device=x.device)
        shape[0], shape[axis] = 1, size
        away = torch.arange(size, device=x.device).view(shape) - (middle - side // 2)
        inside = (away >= 0) & (away < side)
        cut = inside if cut is None else cut & inside
    assert cut is not None  # an instance has a spatial axis
    mean = _wide(x).mean(tuple(range(2, x.ndim)), keepdim=True)
    return _as(x, mean).where(cut, x)


def check_axes(name: str, x: Tensor, *, least: int = 1, most: int | None = None) -> None:
    """Check how many spatial axes the instances of a batch have."""
    axes = x.ndim - 2
    if least <= axes and (most is None or axes <= most):
        return
    signals, shapes = "", ""
    if least == 1:
        signals, shapes = " or signals", "(rows, channels, length) or "
    raise ConfigError(
        f"{name} takes images{signals}, but the batch is of shape {tuple(x.shape)}.",
        f"Leave it out, or shape x as {shapes}(rows, channels, height, width). For tables there is "
        "noise.",
    )


def _wide(x: Tensor) -> Tensor:
    """Return the batch in the type that is computed in, which holds the numbers of its own."""
    wide = x.dtype in (torch.float64, torch.int32, torch.int64)
    return x.to(torch.float64 if wide else torch.float32)


def _as(x: Tensor, given: Tensor) -> Tensor:
    """Return what was computed in the type of the batch."""
    return given.to(x.dtype) if x.is_floating_point() else given.round().to(x.dtype)
