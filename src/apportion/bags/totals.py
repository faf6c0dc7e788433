"""Columns of totals in a table of proportions or counts, which are no classes.

The table as a whole does not sum to 1, to 100 or to the sizes of the bags, but it does without one
or two columns: these are left out. So is a column of counts that is the sum of all others. Where
columns are two families of classes, each of which is whole, it is not known which is meant.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from apportion.bags.checks import SUM_TOLERANCE, Floats, Ints
from apportion.bags.notes import notes
from apportion.bags.read import Table
from apportion.bags.rounding import MOST_DIGITS, digits_of
from apportion.errors import BagError, Option, comma_list, listing

__all__ = ["without_totals"]


MOST_COLUMNS = 64  # of which pairs are tried
FEWEST_BAGS = 3  # whose sums tell a total from a class


def without_totals(table: Table, sizes: Ints) -> Table:
    """Return a table without its columns of totals, if it has any.

    Examples
    --------
    >>> votes = np.array([[20.0, 80, 100, 512], [50, 50, 100, 498], [70, 30, 100, 731]])
    >>> table = Table(["a", "b", "c"], ["yes", "no", "sum", "voters"], votes)
    >>> list(without_totals(table, np.array([10, 10, 10])).classes)
    ['yes', 'no']
    """
    out = _totals(table, sizes)
    if not out:
        return table
    kept = [c for c in range(len(table.classes)) if c not in out]
    columns = listing(repr(table.classes[c]) for c in out)
    what = "Column %s is the total" if len(out) == 1 else "Columns %s are totals"
    notes.warning(f"{what} of the bags, not of a class, and left out.", columns)
    classes = [table.classes[c] for c in kept]
    return replace(table, classes=classes, values=table.values[:, kept])


def _totals(table: Table, sizes: Ints) -> tuple[int, ...]:
    """Return the columns of totals.

    Raises
    ------
    BagError
        If the columns are two families of classes.
    """
    values, n_columns = table.values, len(table.classes)
    sums = values.sum(axis=1)
    if n_columns < 3 or not np.isfinite(values).all() or (values < 0).any():
        return ()
    digits = digits_of(values) if table.digits is None else table.digits
    unit = 10.0 ** -min(digits, MOST_DIGITS)
    # What rows sum to, and how far they may be off. Whole numbers are not rounded shares of 1.
    wholes: list[tuple[Any, float]] = [
        (1.0, n_columns * unit / 2 + SUM_TOLERANCE if digits else SUM_TOLERANCE),
        (100.0, n_columns * unit / 2 + 100 * SUM_TOLERANCE),
        (sizes, 0.0),
    ]
    if any((np.abs(sums - whole) <= allowed).all() for whole, allowed in wholes):
        return ()
    found: list[tuple[int, ...]] = []
    for n_out in (1, 2) if n_columns <= MOST_COLUMNS else (1,):
        found = [
            out
            for out in combinations(range(n_columns), n_out)
            if n_columns - n_out >= 2 and _are_totals(values, out, sums, wholes)
        ]
        if found:
            break
    if not (found and len(found[0]) == 1):
        beside = [tuple(range(k, n_columns)) for k in range(2, n_columns - 1)]
        for out in [*found, *(beside if len(values) >= FEWEST_BAGS else [])]:
            if _are_families(values, out, wholes):
                raise _two_families(table, out)
    if found:
        return found[0] if len(found) == 1 else ()
    varied = len(np.unique(sums)) >= FEWEST_BAGS
    same = [(c,) for c in range(n_columns) if (values[:, c] == sums - values[:, c]).all()]
    return same[0] if varied and len(same) == 1 else ()


def _are_families(values: Floats, some: tuple[int, ...], wholes: list[tuple[Any, float]]) -> bool:
    """Tell whether bags are whole in some columns alone, and in all others alone."""
    sums = values[:, list(some)].sum(axis=1)
    rest = values.sum(axis=1) - sums
    return any(
        bool(((np.abs(sums - whole) <= allowed) & (np.abs(rest - whole) <= allowed)).all())
        for whole, allowed in wholes
    )


def _two_families(table: Table, some: tuple[int, ...]) -> BagError:
    second = [str(table.classes[c]) for c in some]
    first = [str(name) for c, name in enumerate(table.classes) if c not in some]
    return BagError(
        f"the columns {listing(map(repr, first))} are whole in every bag, and so are "
        f"{listing(map(repr, second))}: they are the classes of two questions.",
        (
            "Name those of one of them, ",
            Option("classes", repr(first), comma_list(first)),
            ", or leave the others out of the table.",
        ),
    )


def _are_totals(
    values: Floats, out: tuple[int, ...], sums: Floats, wholes: list[tuple[Any, float]]
) -> bool:
    """Tell whether bags are whole without some columns, none of which could be a rare class."""
    columns = values[:, list(out)]
    rest, least = sums - columns.sum(axis=1), columns.min()
    return any(
        bool((np.abs(rest - whole) <= allowed).all()) and least > 2 * allowed
        for whole, allowed in wholes
    )
