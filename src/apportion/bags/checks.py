"""Checks of the fields of bags."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import BagError, Option, Words, and_more, count, listing

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Names = Sequence[Hashable]

SUM_TOLERANCE = 1e-6


def check_unmasked(what: str, array: Any) -> None:
    """Check that an array has no mask, which numpy drops silently where it copies."""
    if np.ma.isMaskedArray(array):
        n = int(np.ma.getmaskarray(array).sum())
        raise BagError(
            f"{what} is a masked array; {count(n, 'value')} of {array.size:,} are masked.",
            "Pass a plain array: fill what is masked, for example array.filled(nan), or leave out "
            "these rows.",
        )


def check_array(name: str, array: NDArray[Any], shape: tuple[int, ...], dtype: type) -> None:
    """Check the shape and the type of an array."""
    if array.shape != shape or array.dtype != dtype:
        raise BagError(
            f"{name} must be of shape {shape} and {dtype.__name__}; "
            f"it is of shape {array.shape} and {array.dtype}.",
            "Bags.from_rows and Bags.from_members build the arrays from your tables.",
        )


def check_unique(names: Names, what: str) -> None:
    """Check that no name occurs twice."""
    if len(set(names)) < len(names):
        name, times = Counter(names).most_common(1)[0]
        raise BagError(
            f"{what} {name!r} occurs {times} times.",
            f"Every {what} must occur once: merge what is the same, rename what is not.",
        )


def check_filled(sizes: Ints, ids: Names) -> None:
    """Check that every bag has instances."""
    empty = sizes <= 0
    if empty.any():
        raise BagError(
            f"bag {ids[int(empty.argmax())]!r} has 0 instances{and_more(int(empty.sum()))}.",
            "Leave the bag out of the table, or add its rows.",
        )


def check_rows(rows: Ints, ends: Ints, ids: Names, n_rows: int | None) -> None:
    """Check that `x` has the rows that bags hold; those of bag i end before ``rows[ends[i]]``."""
    if not rows.size or (rows.min() >= 0 and (n_rows is None or rows.max() < n_rows)):
        return
    first = int(((rows < 0) | (rows >= (n_rows or np.inf))).argmax())
    bag = ids[int(np.searchsorted(ends, first, side="right"))]
    has, last = "", ""
    if n_rows is not None:
        has, last = f", but x has {count(n_rows, 'row')}", f" to {n_rows - 1}"
    raise BagError(f"bag {bag!r} holds row {rows[first]}{has}.", f"Rows are numbered from 0{last}.")


def check_values(
    values: NDArray[Any],
    sizes: Ints,
    ids: Names,
    classes: Names,
    *,
    counts: bool = False,
    tolerance: float = SUM_TOLERANCE,
    total: float = 1.0,
) -> None:
    """Check proportions, or counts: no value below 0, and rows that sum to 1, or to the size.

    The error names the first bag with such a value, or else the one whose sum is furthest off.
    """
    valid = np.isfinite(values) & (values >= 0)
    if counts:
        valid &= values == np.floor(values)
    sums = values.sum(axis=1, where=valid)
    away = np.abs(sums - (sizes if counts else total))
    odd = ~valid.all(axis=1)
    bad = odd | (away > 0 if counts else (away > tolerance) | (sums <= 0))
    if not bad.any():
        return
    i = int(odd.argmax() if odd.any() else away.argmax())
    noun = "count" if counts else "proportion"
    remedy: Words
    problem = f"bag {ids[i]!r} has {count(int(sizes[i]), 'instance')}, but its {noun}"
    if not valid[i].all():
        c = int((~valid[i]).argmax())
        problem += f" of class {classes[c]!r} is {values[i, c]:.8g}"
        rule = "counts are whole and not negative" if counts else "proportions are 0 to 1"
        remedy = f"Correct it, or leave out the bag and its rows: {rule}."
        if np.isnan(values[i, c]):
            problem += ", as that of an empty cell"
            remedy = "Fill it in, with 0 if there are none, or leave out the bag and its rows."
    elif counts:
        problem += f"s sum to {sums[i]:.15g}"
        remedy = ("Add the missing rows or class, or pass ", Option("normalize"), " to rescale.")
    else:
        within = f"{tolerance:.2g}".replace("e-0", "e-")
        of_hundred = total == 1 and 50 < np.median(sums) < 150
        percent = ", or 100 as percentages" if of_hundred else ""
        problem += f"s sum to {sums[i]:.8g} (they must sum to {total:g} ± {within}{percent})"
        remedy = "Add the column of the missing class, or correct the values."
        if total == 1 and np.median(sums) > 1.5:  # percentages or counts, and not rescaled yet
            remedy = (
                "Add the column of the missing class, pass ",
                Option("counts"),
                " if these are counts, or ",
                Option("normalize"),
                " to rescale.",
            )
    form = ".15g" if counts else ".2f"
    row = [f"{name} {value:{form}}" for name, value in zip(classes, values[i], strict=True)]
    raise BagError(f"{problem}{and_more(int(bad.sum()))}.", listing(row, " · "), remedy)
