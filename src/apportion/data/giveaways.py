"""Columns that give the truth away, found by what they hold.

If a column is the truth, or stands for it, then the numbers of its values in every bag are the
class counts. Whether it holds texts, 0 and 1 or floats makes no difference, so what is compared are
the encoded columns, and the columns that say where values are missing.

A column of few distinct values is compared in three ways: value by value with the classes, one to
one; groups of values with the classes; and each value alone with each class, as in a column that
tells one class from all others. The first two ask for 5 bags of 5 rows or more, whose proportions
differ. The last has many chances to be met by accident, so it asks for bags in which that would
happen once in 10⁹ tables. Most columns fail on a part of the bags, and only the others are read
whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln, xlogy

from apportion.bags.bags import Bags
from apportion.errors import DataError, Option, Words, comma_list, count, listing

__all__ = ["Giveaway", "check_for_truth", "find_giveaways"]

log = logging.getLogger("apportion")

FEWEST_BAGS, FEWEST_ROWS = 5, 5
NEARLY = 0.02  # of the rows, that may be in another class
OF_CHANCE = 0.2  # of what differs if all bags had the same proportions
MOST_VALUES = 64  # of one column, or twice the number of classes
FIRST_ROWS = 2**16  # read of every column, and at least FIRST_BAGS
FIRST_BAGS = 8
CELLS = 2**21  # read at once
CHANCE = np.log(1e-9)

Ints = NDArray[np.int64]


class Giveaway(NamedTuple):
    """A column whose values meet the class counts."""

    name: str
    what: str  # the column, in words
    where: str  # the bags, in words
    off: float  # the share of the rows that are in another class; 0 if the counts are met exactly

    def __str__(self) -> str:
        return (
            f"{self.what} nearly gives the truth away: its values meet the class counts of "
            f"{self.where}, except for {self.off:.2%} of the rows. Leave it out, unless it is "
            "known wherever the model will be used."
        )


def check_for_truth(
    bags: Bags, keep: Collection[str] = (), remedy: Callable[[str], Words] | None = None
) -> None:
    """Check that no column gives the classes away: results would look too good.

    Parameters
    ----------
    keep : collection of column names
        Columns that may.
    remedy : callable, optional
        Returns the remedy for a column, for an interface without the options of `read_table`.

    Raises
    ------
    DataError
        If the values of a column meet the counts of all bags exactly; if they nearly do, a warning
        is logged.
    """
    unknown = [name for name in keep if bags.columns is None or name not in bags.columns.names]
    if unknown:
        raise DataError(
            f"column {unknown[0]!r} is to be kept, but is not one of those that are learned from.",
            "Correct the name, or do not name it.",
        )
    found = [given for given in find_giveaways(bags) if given.name not in keep]
    exact = [given for given in found if not given.off]
    if exact:
        problem = f"{exact[0].what} meets the class counts of {exact[0].where} exactly"
        others = list(dict.fromkeys(given.name for given in exact))[1:]
        also = f"; so do {listing(map(repr, others))}" if others else ""
        words = _remedy(exact[0].name, *others) if remedy is None else remedy(exact[0].name)
        raise DataError(f"{problem}: it gives the truth away{also}.", words)
    for given in found:
        log.warning("%s", given)


def _remedy(name: str, *others: str) -> Words:
    names = [name, *others]
    return (
        "Pass ",
        Option("label", repr(name), name),
        " if it is the truth, which is then used for accuracies alone; leave it out (",
        Option("columns", "[…]", comma_list(names)),
        "); or pass ",
        Option("keep", repr(names), comma_list(names)),
        " to learn from it.",
    )


def find_giveaways(bags: Bags) -> list[Giveaway]:
    """Find the columns whose values meet, or nearly meet, the class counts of the bags."""
    columns = bags.columns
    if columns is None or bags.n_classes < 2:
        return []
    large = np.flatnonzero(bags.sizes >= FEWEST_ROWS)
    shares = np.unique((bags.counts[large] / bags.sizes[large, None]).round(9), axis=0)
    if len(large) < FEWEST_BAGS or len(shares) < 2:
        return []
    where = f"{count(len(large), 'bag')} of {FEWEST_ROWS} rows or more"
    names = [(name, f"column {name!r}") for name in columns.numeric]
    names += [(name, f"where column {name!r} has no value") for name in columns.gaps]
    places = [(0, j, *named) for j, named in enumerate(names)]
    places += [(1, j, name, f"column {name!r}") for j, name in enumerate(columns.categorical)]
    spread = large[np.linspace(0, len(large) - 1, min(len(large), 512)).astype(np.int64)]
    first = spread[: max(FIRST_BAGS, int((bags.sizes[spread].cumsum() <= FIRST_ROWS).sum()))]
    near = {place: off for place, off in _compared(bags, first, places) if off <= 5 * NEARLY}
    if len(first) < len(large) and near:
        near = dict(_compared(bags, large, list(near)))
    return [
        Giveaway(name, what, where, off)
        for (_, _, name, what), off in near.items()
        if off <= NEARLY
    ]


def _compared(bags: Bags, chosen: Ints, places: list[Any]) -> Iterator[tuple[Any, float]]:
    """Yield the share of the rows by which each column of few values misses the counts."""
    counts = bags.counts[chosen]
    used = counts.sum(axis=0) > 0
    for place, values in _count_values(bags, chosen, places):
        if values.shape[1] > 1:
            yield place, _off(values, counts[:, used], bags.sizes[chosen])


def _count_values(bags: Bags, chosen: Ints, places: list[Any]) -> Iterator[tuple[Any, Ints]]:
    """Yield the number of each value in each of the chosen bags, for columns of few values."""
    most = max(MOST_VALUES, 2 * bags.n_classes)
    rows = bags.index[bags.positions(chosen)]
    bag = np.repeat(np.arange(len(chosen)), bags.sizes[chosen])
    found: dict[Any, dict[Any, Any]] = {place: {} for place in places}
    for part, x in enumerate(bags.parts):
        step = max(CELLS // max(x.shape[1], 1), 1)
        for begin in range(0, len(rows), step):
            live = [place for place in found if place[0] == part]
            if not live:
                break
            block, own = x[rows[begin : begin + step]], bag[begin : begin + step]
            for place in live:
                column = np.ascontiguousarray(block[:, place[1]])
                if not begin and len(np.unique(column[:1000])) > most:
                    del found[place]
                    continue
                code, values = pd.factorize(column)
                seen = found[place]
                if len(seen.keys() | set(values.tolist())) > most:
                    del found[place]
                    continue
                cells = np.bincount(own * len(values) + code, minlength=len(chosen) * len(values))
                for value, n in zip(values.tolist(), cells.reshape(len(chosen), -1).T, strict=True):
                    seen[value] = seen[value] + n if value in seen else n
    for place, seen in found.items():
        if seen:
            yield place, np.stack(list(seen.values()), axis=1)


def _off(values: Ints, counts: Ints, sizes: Ints) -> float:
    """Return the share of the rows by which values miss the class counts, at best; 1 if far."""
    n_bags, n_classes = counts.shape
    n_values, n_rows = values.shape[1], int(sizes.sum())
    expected = sizes[:, None] * (counts.sum(axis=0) / n_rows)
    moved = np.abs(counts - expected).sum(axis=0)  # if all bags had the same proportions
    best = 1.0

    def offer(off: float, by_chance: float) -> None:
        nonlocal best
        if off <= OF_CHANCE * by_chance:
            best = min(best, off / n_rows)

    pairs = np.abs(values[:, :, None] - counts[:, None, :]).sum(axis=0)  # (values, classes)
    if n_values >= n_classes:
        own, classes = linear_sum_assignment(pairs)
        others = int(values.sum()) - int(values[:, own].sum())
        offer((int(pairs[own, classes].sum()) + others) / 2, moved.sum() / 2)
    if n_values > n_classes and n_bags >= 2 * n_values:
        fitted = np.linalg.lstsq(values.astype(np.float64), counts.astype(np.float64))[0]
        grouped = values @ np.eye(n_classes, dtype=np.int64)[fitted.argmax(axis=1)]
        offer(float(np.abs(grouped - counts).sum()) / 2, moved.sum() / 2)
    unlikely = _log_chance(counts, sizes) < CHANCE
    if n_classes > 2 and unlikely.any():
        least = pairs[:, unlikely].min(axis=0)
        for off, by_chance in zip(least, moved[unlikely], strict=True):
            offer(float(off), by_chance)
    return best


def _log_chance(counts: Ints, sizes: Ints) -> NDArray[np.float64]:
    """Return the chance that independent rows of the same overall shares have each class's counts.

    The binomial probabilities of all bags, as the logarithm of their product.
    """
    share, n = counts.sum(axis=0) / sizes.sum(), sizes[:, None]
    ways = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    chance = ways + xlogy(counts, share) + xlogy(n - counts, 1 - share)
    total: NDArray[np.float64] = chance.sum(axis=0)
    return total
