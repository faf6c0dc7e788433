"""Proportions that were rounded when they were written: the one rule for their sums.

Proportions of k digits are each off by half a unit of the last one at most, so those of C classes
sum to 1 ± C · 0.5 · 10^−k: such rows are divided by their sum. Where there are 5 different rows or
more, their sums must also lie around 1: rounding errs in both directions, but a class that is
missing from the table only in one, and it must not be rescaled away. Rows that sum to 100 in the
same way are percentages.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from apportion.bags.checks import SUM_TOLERANCE, Floats, Ints, Names, check_values
from apportion.bags.notes import notes
from apportion.errors import BagError, Option, count

__all__ = ["digits_of", "rescaled"]

log = logging.getLogger("apportion")

MOST_DIGITS = 6
FEWEST_BAGS = 5  # whose mean sum tells rounding from a missing class
CONSTANTS = (1.0, 100.0, 1000.0)  # that tables of proportions sum to
SPREAD = 5.0  # standard deviations of that mean
ALIKE = 0.1  # of a unit per class, by which shares of few counts may all be rounded down


def digits_of(values: Floats) -> int:
    """Return how many decimal digits the values have: 0 if all are whole, at most 6.

    Examples
    --------
    >>> [digits_of(np.array(row)) for row in ([0.33, 0.5], [1.0, 0.0], [1 / 3, 2 / 3])]
    [2, 0, 6]
    """
    known = values[np.isfinite(values)]
    single = (known == known.astype(np.float32)).all()  # in which 0.33 is 0.33000001
    close = 1e-7 if single else 1e-12
    for k in range(MOST_DIGITS):
        shifted = known * 10.0**k
        if (np.abs(shifted - np.rint(shifted)) <= close * np.maximum(np.abs(shifted), 1)).all():
            return k
    return MOST_DIGITS


def rescaled(
    values: Floats,
    sizes: Ints,
    ids: Names,
    classes: Names,
    *,
    digits: int | None = None,
    normalize: bool = False,
    counts: bool = False,
    percentages: bool = False,
) -> Floats:
    """Return proportions that sum to 1, after a check that nothing but rounding kept them from it.

    Parameters
    ----------
    digits : int, optional
        How many decimal digits the values were written with, if that is known.
    normalize : bool
        Whether the table sums to another constant than 1, such as 100.
    counts : bool
        Whether they are counts, which may sum to anything. Whole numbers are taken as such, unless
        more than half of the bags sum to 100 or 1000.
    percentages : bool
        Whether they may be percentages, which is recognised by their sums.

    Raises
    ------
    BagError
        Which names the bag that is furthest off.
    """
    if not normalize and _sum_to_one(values):
        return values
    own = digits_of(values)
    unit = 10.0 ** -min(own if digits is None else digits, MOST_DIGITS)
    sums, total = values.sum(axis=1), 1.0
    if percentages and not normalize:
        total = _constant(sums, values.shape[1] * unit / 2, CONSTANTS[:2]) or 1.0
    of_hundred = total == 100.0
    if normalize:
        total = _constant(sums, values.shape[1] * unit / 2, CONSTANTS if own else CONSTANTS[1:])
        if counts or not (total or own):
            _check_counted(sums, counts=counts)
            values = _divided(values, sums)
            check_values(values, sizes, ids, classes)
            return values
        total = total or float(np.median(sums))  # from which some bags are far off
    elif not own and not of_hundred:
        unit = 0.0  # whole numbers were not rounded
    # Sums of decimals are off by floating point as well: 0.7 + 0.2 < 0.9.
    tolerance = max(values.shape[1] * unit / 2 + 1e-9 * total, SUM_TOLERANCE * total)
    check_values(values, sizes, ids, classes, tolerance=tolerance, total=total)
    worst = int(np.abs(sums - total).argmax())
    _check_mean(values / total, sizes, unit / total, f"bag {ids[worst]!r} to {sums[worst]:.8g}")
    off = np.abs(sums - total) > SUM_TOLERANCE * total
    if off.any():
        log.info(
            "The proportions of %s sum to %g but for rounding (bag %r to %.8g), and are rescaled.",
            count(int(off.sum()), "bag"),
            total,
            ids[worst],
            sums[worst],
        )
    if of_hundred:
        notes.info("The proportions of a bag sum to 100: they are read as percentages.")
    whole = normalize or of_hundred
    return _divided(values, sums) if whole else _divided(values, np.where(off, sums, 1.0))


def _check_counted(sums: Floats, *, counts: bool) -> None:
    """Check that whole numbers are counts, and not percentages of which a class is missing."""
    if not counts and sums.max() <= 100 and np.median(sums) >= 50:
        raise BagError(
            f"the bags' numbers are whole and sum to {sums.min():g} to {sums.max():g}, as "
            "percentages would if a class is missing.",
            (
                "Add the column of the missing class; or pass ",
                Option("counts"),
                " as well as ",
                Option("normalize"),
                " if these are counts.",
            ),
        )


def _sum_to_one(values: Floats) -> bool:
    return bool((values >= 0).all() and (np.abs(values.sum(axis=1) - 1) <= SUM_TOLERANCE).all())


def _divided(values: Floats, sums: Floats) -> Floats:
    return np.divide(
        values,
        sums[:, None],
        out=values.copy(),
        where=(np.isfinite(sums) & (sums > 0))[:, None],
    )


def _constant(sums: Floats, allowed: float, constants: Sequence[float]) -> float:
    """Return the constant that more than half of the bags sum to; 0 if there is none."""
    for total in constants:
        if np.mean(np.abs(sums - total) <= max(allowed, SUM_TOLERANCE * total)) > 0.5:
            return total
    return 0.0


def _check_mean(values: Floats, sizes: Ints, unit: float, worst: str) -> None:
    """Check that sums lie on both sides of 1, as those of rounded values do.

    Bags of one size are shares of the same few counts, which may all be rounded down: those that
    whole counts explain are left out.
    """
    size = sizes[:, None]
    counts = np.rint(values * size)
    near = np.abs(counts - values * size) <= size * unit * (0.5 + 1e-6)
    whole = near.all(axis=1) & (counts.sum(axis=1) == sizes) & (sizes * unit < 1)
    distinct = np.unique(values[~whole], axis=0)  # equal bags are rounded alike
    n, n_classes = distinct.shape
    if n < FEWEST_BAGS:
        return
    short = 1 - distinct.sum(axis=1).mean()
    zeros = (distinct == 0).sum() / n  # which are only ever rounded down
    random, alike = SPREAD * np.sqrt(n_classes / (12 * n)), ALIKE * n_classes
    allowed = unit * (random + alike + zeros / 2)
    if short > max(allowed, SUM_TOLERANCE):
        raise BagError(
            f"the proportions of {count(n, 'bag')} sum to {1 - short:.8g} of the whole on average, "
            f"and {worst}: rounding would miss it in both directions.",
            "Add the column of the missing class; if none is missing, divide each bag by its sum.",
        )
