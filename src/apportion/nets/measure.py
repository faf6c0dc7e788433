"""Measurements of the data that a net needs: shape, categories, mean and standard deviation.

Data are read a chunk at a time, so that they may lie on disk, and moments are merged as Chan, Golub
and LeVeque (1979) do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from apportion.bags.sparse import is_sparse, scale_of
from apportion.errors import DataError, and_more

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHUNK = 2**21  # values that are read at a time: 16 MiB in float64
MOST_CATEGORIES_IN_ALL = 2**20  # of all columns: with 256 units above them, weights of 1 GiB

# What the axes of an instance are, where a net depends on them; the others take any shape.
OF_SIGNALS = ("channels", "length")
AXES = {
    "conv1d": OF_SIGNALS,
    "summary": OF_SIGNALS,
    "resnet18": ("channels", "height", "width"),
}

# What an index of each of these axes is called; that of a row of a table is a column.
PLACES = {"channels": "channel", "length": "frame", "height": "line", "width": "column"}

# What the second part holds, and the axes of the two parts.
PAIRS = {
    "mlp": ("codes", ("features",), ("columns",)),
    "conv1d": ("lengths", OF_SIGNALS, ()),
    "summary": ("lengths", OF_SIGNALS, ()),
}


CHANNELS = (1, 3, 4)  # of images: grey, colours, and colours with transparency


def has_channels_last(shape: Sequence[int]) -> bool:
    """Tell whether an array of images has its channels last, by its shape.

    Examples
    --------
    >>> has_channels_last((600, 32, 32, 3)), has_channels_last((600, 3, 32, 32))
    (True, False)
    """
    return len(shape) == 4 and shape[3] in CHANNELS and shape[1] not in CHANNELS


def channels_first(x: Any, instance: Sequence[int]) -> Any:
    """Return images with their channels first, if an instance has so many and they are last.

    They are copied: on the CPU nets take contiguous images alone.

    Parameters
    ----------
    instance : sequence of int
        The shape of an instance that a net takes.

    Examples
    --------
    >>> channels_first(np.zeros((5, 32, 32, 3)), [3, 32, 32]).shape
    (5, 3, 32, 32)
    """
    shape = tuple(map(int, x.shape))
    last = len(instance) == 3 and len(shape) == 4 and shape[1] != instance[0] == shape[3]
    if not last:
        return x
    if isinstance(x, Tensor):
        return x.movedim(-1, 1).contiguous()
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def may_be_swapped(name: str, parts: Sequence[Any]) -> bool:
    """Tell whether signals for a net have as many channels as frames, or more.

    Those with lengths have been padded, which says what their frames are.

    Examples
    --------
    >>> x = np.zeros((9, 60, 3))
    >>> may_be_swapped("conv1d", [x]), may_be_swapped("conv1d", [np.swapaxes(x, 1, 2)])
    (True, False)
    """
    if AXES.get(name) != OF_SIGNALS or len(parts) > 1:
        return False
    _, channels, frames = map(int, parts[0].shape)
    return channels >= max(frames, 2)


class Measured(NamedTuple):
    """The measurements, as arguments of the function that builds the net."""

    sizes: dict[str, Any]
    mean: Floats  # these three in the shape of one instance, with 1 for the axes they are over
    std: Floats
    alone: Floats  # the share of the variance that is due to one value


def measure(name: str, x: Any, rows: Ints, categories: Sequence[int] | None) -> Measured:
    """Measure some rows of x for the named net."""
    first, second = _readable(name, x)
    if categories is not None and (name != "mlp" or second is None):
        raise DataError(
            "categories are given, but there are no codes.",
            "Pass x as a tuple (numbers, codes) to mlp, or leave categories out.",
        )
    sizes: dict[str, Any] = {}
    lengths = None
    if name in AXES:
        sizes["channels"], axes = int(first.shape[1]), (0, *range(2, first.ndim))
        if second is not None:
            sizes["masked"], lengths = True, _read_lengths(second, rows, int(first.shape[2]))
    else:
        sizes["features"], axes = math.prod(map(int, first.shape[1:])), (0,)
        if second is not None:
            sizes["categories"] = _count_categories(second, rows, categories)
            if sizes["features"] + sum(sizes["categories"]) == len(sizes["categories"]):
                raise DataError(
                    "x has 0 numbers, and 0 categories beside those that are missing.",
                    "Pass at least one column that says something.",
                )
    if sizes.get("features") == 0:
        return Measured(sizes, np.empty(0), np.empty(0), np.empty(0))
    if is_sparse(first):
        shape = tuple(first.shape[1:])
        return Measured(
            sizes, np.zeros(shape), np.full(shape, scale_of(first, rows)), np.zeros(shape)
        )
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found below
        mean, std, alone = _moments(first, rows, axes, lengths)
    if not (np.isfinite(mean).all() and np.isfinite(std).all()):
        raise _not_finite(name, first, rows, lengths)
    return Measured(sizes, mean, std, alone)


def _readable(name: str, x: Any) -> tuple[Any, Any]:
    """Return the array that the net reads, and the codes or lengths that belong to it, if any."""
    arrays = x if isinstance(x, tuple) else (x,)
    shapes = [tuple(map(int, array.shape)) for array in arrays]
    if len(arrays) == 2 and name in PAIRS:
        second, *wanted = PAIRS[name]
        fits = all(len(s) == 1 + len(w) for s, w in zip(shapes, wanted, strict=True))
        if not fits or not _whole(arrays[1]) or (second == "lengths" and 0 in shapes[0]):
            axes = ("(" + ", ".join(("rows", *own)) + ")" for own in wanted)
            raise DataError(
                f"{name} takes two parts of shapes {' and '.join(axes)}, the second of which holds "
                f"{second}, whole numbers; but they are of shapes {shapes[0]} and {shapes[1]}, "
                f"the second {str(arrays[1].dtype).removeprefix('torch.')}.",
                "Reshape the parts, or join them into one array.",
            )
        return arrays
    if len(arrays) > 1:
        raise DataError(
            f"{name} cannot read instances of {len(arrays)} parts.",
            "Two parts can be read by mlp, (numbers, codes), and by conv1d and summary, (frames, "
            "lengths). Join the parts, or pass an nn.Module whose forward takes "
            f"{len(arrays)} arguments.",
        )
    shape, own = shapes[0], AXES.get(name)
    if len(shape) < 2 or 0 in shape or (own and len(shape) != 1 + len(own)):
        names = ", ".join(own or ("features",))
        raise DataError(
            f"{name} takes x of shape (rows, {names}), but x is of shape {shape}.",
            "Reshape x, or take another net: conv1d and summary are for signals, resnet18 for "
            "images, and mlp for tables or any other shape.",
        )
    return arrays[0], None


def _whole(part: Any) -> bool:
    if isinstance(part, Tensor):
        return not (part.is_floating_point() or part.is_complex())
    return np.dtype(part.dtype).kind in "iub"


def _taken(part: Any, rows: Ints) -> NDArray[Any]:
    if isinstance(part, Tensor):
        given: NDArray[Any] = part[from_numpy(rows).to(part.device)].detach().cpu().numpy()
        return given
    return np.asarray(part[rows])


def _read_lengths(lengths: Any, rows: Ints, most: int) -> Ints:
    given = _taken(lengths, rows).astype(np.int64)
    bad = (given < 1) | (given > most)
    if bad.any():
        raise DataError(
            f"row {rows[bad.argmax()]} has a length of {given[bad.argmax()]}"
            f"{and_more(int(bad.sum()))}; the frames are {most:,} long.",
            f"Every length must be an integer from 1 to {most:,}.",
        )
    return given


def _count_categories(codes: Any, rows: Ints, given: Sequence[int] | None) -> list[int]:
    """Count the codes that each column may hold, with 0; check that the rows hold no others."""
    n_columns = int(codes.shape[1])
    asked = None if given is None else np.asarray(given)
    if asked is not None and (asked.shape != (n_columns,) or asked.dtype.kind not in "iu"):
        raise DataError(
            f"categories is {given!r}, but there are {n_columns:,} columns of codes.",
            "Pass one integer per column: the number of its codes, including 0 for missing values.",
        )
    most = np.zeros(n_columns, np.int64)
    step = max(CHUNK // max(n_columns, 1), 1)
    for first in range(0, len(rows) if n_columns else 0, step):
        some = rows[first : first + step]
        values = _taken(codes, some)
        bad = values < 0 if asked is None else (values < 0) | (values >= asked)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            allowed = "≥ 0" if asked is None else f"from 0 to {asked[column] - 1}"
            raise DataError(
                f"row {some[row]} has the code {values[row, column]} in column {column}.",
                f"Codes of this column must be {allowed}; 0 is for missing and unknown values.",
            )
        most = np.maximum(most, values.max(axis=0).astype(np.int64))
    found = [int(n) for n in (most + 1 if asked is None else asked)]
    if min(found, default=1) < 1 or sum(found) > MOST_CATEGORIES_IN_ALL:
        largest = int(np.argmax(found)) if min(found) >= 1 else int(np.argmin(found))
        raise DataError(
            f"column {largest} of the codes has {found[largest]:,} categories, all columns "
            f"{sum(found):,}.",
            f"Each must be ≥ 1, and their sum ≤ {MOST_CATEGORIES_IN_ALL:,}: number the categories "
            "of each column 1, 2, 3 and so on, with one number for all rare ones.",
        )
    return found


def _moments(
    x: Any, rows: Ints, axes: tuple[int, ...], lengths: Ints | None
) -> tuple[Floats, Floats, Floats]:
    """Compute mean, standard deviation, and the share of the variance that is due to one value.

    They are those of some rows of x, over some axes, without padding.
    """
    # A value of each feature. Minus it, numbers are small, and a constant is exactly 0.
    pivot = _seen(x, rows[:1])[tuple(slice(1) if a in axes else slice(None) for a in range(x.ndim))]
    n, mean, squares = 0, np.zeros_like(pivot), np.zeros_like(pivot)
    least, most = np.full_like(pivot, np.inf), np.full_like(pivot, -np.inf)
    n_chunks = min(math.ceil(len(rows) * math.prod(x.shape[1:]) / CHUNK), len(rows))
    for some in np.array_split(np.arange(len(rows)), n_chunks):
        values = _seen(x, rows[some]) - pivot
        real: Any = True
        k = values.size // pivot.size
        if lengths is not None:
            real = _real(lengths[some], values.shape[2])
            k = int(lengths[some].sum())
        delta = values.mean(axis=axes, keepdims=True, where=real) - mean
        squares += ((values - mean - delta) ** 2).sum(axis=axes, keepdims=True, where=real)
        squares += delta**2 * (n * k / (n + k))
        mean += delta * (k / (n + k))
        n += k
        own = values if lengths is None else np.where(real, values, 0)  # the pivot is real
        least = np.minimum(least, own.min(axis=axes, keepdims=True))
        most = np.maximum(most, own.max(axis=axes, keepdims=True))
    farthest = np.maximum(most - mean, mean - least) ** 2
    alone = np.divide(farthest, squares, out=np.zeros_like(squares), where=squares > 0)
    return (pivot + mean)[0], np.sqrt(squares / n)[0], alone[0]


def _seen(x: Any, rows: Ints) -> Floats:
    """Return rows in the precision in which the network sees them, for sums in a higher one."""
    return _taken(x, rows).astype(np.float32).astype(np.float64)


def _real(lengths: Ints, most: int) -> Any:
    """Tell which frames of signals are real: (M, 1, length)."""
    return (np.arange(most) < lengths[:, None])[:, None]


def _not_finite(name: str, x: Any, rows: Ints, lengths: Ints | None) -> DataError:
    """Return an error that names the first value that is not finite: there is one."""
    bad: Any = np.zeros(0, bool)
    for i in range(len(rows)):
        row = rows[i : i + 1]
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(_seen(x, row))
        if lengths is not None:
            bad &= _real(lengths[i : i + 1], bad.shape[2])
        if bad.any():
            break
    _, *place = np.argwhere(bad)[0].tolist()
    axes = [PLACES[axis] for axis in AXES.get(name, ())] or ["column"]
    where = ", ".join(f"{axis} {k}" for axis, k in zip(axes, place, strict=False))
    where = where if len(axes) == len(place) else f"at {tuple(place)}"
    value = float(_taken(x, row)[0][tuple(place)])
    return DataError(
        f"x is {value:g} in row {row[0]:,}, {where} (all counted from 0).",
        "Replace values of x that are missing, infinite or too large for float32.",
    )
