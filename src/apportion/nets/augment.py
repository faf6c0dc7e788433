"""Random changes to instances that leave their class alone, by their names.

These are crop, flip and noise, and those of `views`: zoom, colour and cutout. Each is a function of
a batch and a generator, and returns a batch of the same shape and type, so that uint8 images stay
uint8. All instances are changed at once on the device that holds them; nothing waits for the host,
so that a step with augmentation can be captured as a CUDA graph. All random numbers come from the
generator, which must live on the device of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from apportion.config import Rule
from apportion.errors import ConfigError, count, must_be, suggestion
from apportion.nets.views import check_axes, colour, cutout, zoom

__all__ = [
    "AUGMENTATIONS",
    "BUNDLES",
    "Augment",
    "augmented",
    "check_augmentations",
    "crop",
    "flip",
    "noise",
]

# A function of the parts of a batch, as the net takes them.
Augment = Callable[..., Tensor | Sequence[Tensor] | Mapping[str, Tensor]]


def crop(x: Tensor, generator: Generator, *, padding: int = 4) -> Tensor:
    """Move each instance by up to `padding` steps along each of its spatial axes.

    That is a random crop of the padded instance: what enters at a border is the instance mirrored
    there, without repeating the border itself. All offsets from −padding to padding are equally
    likely.

    Parameters
    ----------
    x : tensor of shape (b, channels, length) or (b, channels, height, width)
    padding : int
        May exceed the size of an instance, which is then mirrored again and again.

    Examples
    --------
    >>> x = torch.arange(5).expand(3, 1, 5)
    >>> crop(x, Generator().manual_seed(3), padding=2)[:, 0]
    tensor([[1, 0, 1, 2, 3],
            [1, 2, 3, 4, 3],
            [0, 1, 2, 3, 4]])
    """
    check_axes("crop", x)
    if padding < 0:
        raise must_be("padding", "an integer ≥ 0", padding)

    for axis, size in enumerate(x.shape[2:], start=2):
        moves = torch.randint(
            -padding, padding + 1, (len(x), 1), generator=generator, device=x.device
        )
        # Past its ends a line is read back and forth: … 2 1 0 1 2 … last−1 last last−1 …
        last = size - 1
        places = torch.arange(size, device=x.device) + moves
        places = last - (places % max(2 * last, 1) - last).abs()
        shape = [len(x), *[1] * (x.ndim - 1)]
        shape[axis] = size
        x = x.gather(axis, places.view(shape).expand_as(x))
    return x


def flip(x: Tensor, generator: Generator) -> Tensor:
    """Mirror each instance along its last axis, with probability 1/2.

    Parameters
    ----------
    x : tensor of shape (b, channels, length) or (b, channels, height, width)

    Examples
    --------
    >>> x = torch.arange(3).expand(4, 1, 3)
    >>> flip(x, Generator().manual_seed(0))[:, 0]
    tensor([[2, 1, 0],
            [0, 1, 2],
            [2, 1, 0],
            [2, 1, 0]])
    """
    check_axes("flip", x)
    mirrored = torch.rand(len(x), generator=generator, device=x.device) < 0.5
    return x.flip(-1).where(mirrored.view(-1, *[1] * (x.ndim - 1)), x)


def noise(x: Tensor, generator: Generator, *, std: float = 0.1) -> Tensor:
    """Add Gaussian noise, in proportion to how much each feature varies within the batch.

    So it suits columns of different units and images of any range. Integers stay integers within
    the range of their type: noise is rounded, and sums are clipped (to 0 and 255 for uint8). A
    feature that does not vary gets no noise, for example in a table's batch of one row.

    Parameters
    ----------
    x : tensor of shape (b, features), (b, channels, length) or (b, channels, height, width)
    std : float
        The standard deviation of the noise, as a share of that of the batch in the same column of
        a table, or in the same channel of signals and images.

    Examples
    --------
    >>> x = torch.tensor([[0, 7], [100, 7]], dtype=torch.uint8)
    >>> noise(x, Generator().manual_seed(0))
    tensor([[ 8,  7],
            [89,  7]], dtype=torch.uint8)
    """
    if x.ndim == 2 and x.dtype in (torch.int32, torch.int64):
        raise ConfigError(
            f"noise would change rows of {str(x.dtype)[6:]}, which may be ids.",
            "Pass numbers as float32, or leave noise out of augment.",
        )
    wide = x if x.dtype == torch.float64 else x.float()
    axes = (0, *range(2, x.ndim))
    spread = (wide - wide.mean(axes, keepdim=True)).square().mean(axes, keepdim=True).sqrt()
    change = torch.randn(x.shape, generator=generator, device=x.device) * (std * spread)
    if x.is_floating_point():
        return (wide + change).to(x.dtype)
    ends = torch.iinfo(x.dtype)
    return (x.long() + change.round().long()).clamp(ends.min, ends.max).to(x.dtype)


AUGMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "crop": crop,
    "flip": flip,
    "noise": noise,
    "zoom": zoom,
    "colour": colour,
    "cutout": cutout,
}

_WHOLE = Rule("an integer ≥ 0", lambda value: 0 <= value < 2**31)
_SHARE = Rule("a number from 0 to 1", lambda value: 0 <= value <= 1)
# What the numbers behind a name are, in this order.
NUMBERS: dict[str, dict[str, Rule]] = {
    "crop": {"padding": _WHOLE},
    "flip": {},
    "noise": {"std": Rule("a number above 0", lambda value: 0 < value < math.inf)},
    "zoom": {
        "least": Rule("a number above 0 and at most 1", lambda value: 0 < value <= 1),
        "turn": Rule("an angle in radians from 0 to π", lambda value: 0 <= value <= math.pi),
    },
    "colour": {"strength": _SHARE, "grey": _SHARE},
    "cutout": {"share": _SHARE},
}

# Names of several together. Mirror images are not among them: digits are others in the mirror.
BUNDLES: dict[str, tuple[str, ...]] = {
    "strong": ("zoom:0.35:0.25", "colour:0.3:0.05", "cutout:0.375"),
    "views": ("zoom:0.2", "colour:0.4:0.2"),
}


def augmented(
    x: tuple[Tensor, ...],
    names: Sequence[str],
    generator: Generator,
    own: Augment | None = None,
    parts: Sequence[str] | None = None,
) -> tuple[Tensor, ...]:
    """Apply the named augmentations, in that order, to the first part of the instances.

    Behind a name may stand its numbers, in the order of its parameters: "crop:2", "zoom:0.5:0.2".

    Other parts, for example the lengths of signals, stay as they are. Then a function of the
    caller's gets all parts, ``own(*x)``, and returns them changed; or, if `parts` have names,
    ``own(**x)``, and returns a mapping.

    Examples
    --------
    >>> frames, lengths = torch.rand(2, 13, 93), torch.tensor([93, 60])
    >>> x = augmented((frames, lengths), ["crop:2", "noise"], Generator().manual_seed(0))
    >>> x[0].shape, x[1]
    (torch.Size([2, 13, 93]), tensor([93, 60]))
    """
    first, *rest = x
    for change, numbers in [_read(name) for name in _unbundled(names)]:
        first = change(first, generator, **numbers)
    changed = (first, *rest)
    return changed if own is None else _by(own, changed, parts)


def _by(own: Augment, x: tuple[Tensor, ...], names: Sequence[str] | None) -> tuple[Tensor, ...]:
    """Return what a function of the caller's makes of a batch: tensors of as many rows."""
    found: Any = own(*x) if names is None else own(**dict(zip(names, x, strict=True)))
    if names is not None:
        if not isinstance(found, Mapping) or {*found} != {*names}:
            returned = list(found) if isinstance(found, Mapping) else f"a {type(found).__name__}"
            raise ConfigError(
                f"augment returned {returned} for a batch of the parts {', '.join(names)}.",
                "It must return a mapping with the same names, as the net takes them.",
            )
        found = tuple(found[name] for name in names)
    parts = (found,) if isinstance(found, Tensor) else found
    rows = len(x[0])
    if not isinstance(parts, tuple | list) or not all(isinstance(p, Tensor) for p in parts):
        returned = f"a {type(found).__name__}"
    elif bad := [p for p in parts if p.ndim == 0 or len(p) != rows]:
        returned = f"a tensor of shape {tuple(bad[0].shape)}"
    else:
        return tuple(parts)
    raise ConfigError(
        f"augment returned {returned} for a batch of {rows:,} rows.",
        "It must return what the net takes: a tensor with one row per instance, in the same "
        "order, or a tuple of them.",
    )


def check_augmentations(names: Sequence[str]) -> None:
    """Check that there are augmentations of these names, and that they take their numbers."""
    for name in _unbundled(names):
        _read(name)


def _unbundled(names: Sequence[str]) -> list[str]:
    return [own for name in names for own in BUNDLES.get(name, (name,))]


def _read(entry: str) -> tuple[Callable[..., Tensor], dict[str, float]]:
    """Return the function of an entry such as "zoom:0.5:0.2", and its numbers by their names."""
    name, *texts = entry.split(":")
    if name in BUNDLES:
        raise ConfigError(
            f"the augmentation {entry!r:.60} has numbers, but {name} stands for several.",
            f"Write {name} alone, or its own: {', '.join(BUNDLES[name])}.",
        )
    if name not in AUGMENTATIONS:
        raise ConfigError(
            f"there is no augmentation {name!r:.60}.",
            suggestion(name, [*AUGMENTATIONS, *BUNDLES]),
        )
    rules = NUMBERS[name]
    if len(texts) > len(rules):
        form = ":".join([name, *(number.upper() for number in rules)])
        raise ConfigError(
            f"the augmentation {entry!r:.60} has {count(len(texts), 'number')}, but {name} takes "
            f"{len(rules) or 'none'}.",
            f"Write {form}." if rules else f"Write {name} alone.",
        )
    return AUGMENTATIONS[name], {
        number: _number(entry, text, number, rule)
        for text, (number, rule) in zip(texts, rules.items(), strict=False)
    }


def _number(entry: str, text: str, number: str, rule: Rule) -> float:
    try:
        value = int(text) if rule is _WHOLE else float(text)
    except ValueError:
        value = math.nan  # which meets no rule
    if not rule.holds(value):
        raise must_be(f"{number} of the augmentation {entry!r:.60}", rule.words, text)
    return value
