"""Columns that are constant within every bag of two or more rows, found by what they hold.

Such a column tells bags apart, and not the rows within one. All that is known of a bag are its
proportions, so a model can explain them by the column instead of by the rows, and worst of all if
the column is the bag's own proportions.

What is compared are the encoded columns: a missing value is a value like any other. Most columns
vary within the first bags, and only the others are read whole. A column of few values may be
constant by chance where bags are small and few. It is found only if less than one in 10⁶ random
arrangements of its values would be, or if it is the bag's own proportions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from apportion.bags.bags import Bags
from apportion.errors import DataError, Option, Words, comma_list, listing

__all__ = ["Constant", "check_constants", "find_constants"]

log = logging.getLogger("apportion")

FIRST_ROWS = 2**12  # compared of every column
CELLS = 2**21  # compared at once
CHANCE = np.log(1e-6)
SOME_BAGS = 64  # whose proportions are compared first
FEWEST_SHARES = 5  # distinct ones that tell a column of proportions
WHOLE_PERCENT = 0.005  # what rounding to whole percents moves at most
FOUR_DIGITS = 1e-4  # how well a multiple that is not known beforehand must fit
OF_SPREAD = 0.1  # of the standard deviation of the proportions: the most that they may be off

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Constant(NamedTuple):
    """A column that is constant within every bag, and differs between bags."""

    name: str
    is_proportions: bool  # whether its values are the bag's own proportions, or a multiple of them


def check_constants(
    bags: Bags,
    keep: Collection[str] = (),
    *,
    remedy: Words | None = None,
    leave_out: bool = True,
) -> list[str]:
    """Warn of the columns that are constant within bags, and return those to leave out.

    Parameters
    ----------
    keep : collection of column names
        Columns that are neither left out nor warned of.
    remedy : Words, optional
        How to leave out the other columns, for an interface without the options of `read_table`.
    leave_out : bool
        Whether columns of the bag's own proportions can be left out, or only be warned of.

    Raises
    ------
    DataError
        If there are no columns but those to leave out.
    """
    found = [column for column in find_constants(bags) if column.name not in keep]
    out = [column.name for column in found if column.is_proportions and leave_out]
    others = [column.name for column in found if column.name not in out]
    if others:
        these = _named(others)
        _warn(
            f"{these} constant within every bag of two or more rows: this tells bags apart, not "
            "rows within a bag. Predictions within a bag cannot differ by it, and it can stand "
            "for the bag itself, so that less is learned from the other columns. ",
            remedy or ("Leave such columns out (", _columns(others), ")."),
        )
    if out:
        keeping = Option("keep", repr(out), comma_list(out))
        to_learn: Words = ("Pass ", keeping, " to learn from it.")
        these = _named(out)
        if bags.columns is not None and len(out) == len(bags.columns.names):
            raise DataError(
                f"{these} the bag's own proportions, and there are 0 other columns to learn from.",
                to_learn,
            )
        _warn(f"{these} the bag's own proportions, and left out. ", to_learn)
    return out


def _columns(left_out: list[str]) -> Option:
    return Option("columns", "[…]", comma_list(left_out))


def _named(names: list[str]) -> str:
    listed = listing(map(repr, names), most=20)
    return f"Column {listed} is" if len(names) == 1 else f"Columns {listed} are"


def _warn(problem: str, remedy: Words) -> None:
    words = (remedy,) if isinstance(remedy, str) else remedy
    log.warning("%s" * (1 + len(words)), problem, *words)  # the command line spells options


def find_constants(bags: Bags) -> list[Constant]:
    """Find the columns that are constant within every bag of two or more rows, but not in all.

    Columns of an array that was never a table are named by their positions.
    """
    several = np.flatnonzero(bags.sizes >= 2)
    parts, columns = [np.asarray(part) for part in bags.parts], bags.columns
    if len(several) < 2 or any(part.ndim != 2 for part in parts):
        return []
    if columns is None:
        places = {str(j): (0, j) for j in range(parts[0].shape[1])} if len(parts) == 1 else {}
        gaps = {}
    else:
        places = {name: (0, j) for j, name in enumerate(columns.numeric)}
        gaps = {name: (0, len(places) + j) for j, name in enumerate(columns.gaps)}
        places |= {name: (1, j) for j, name in enumerate(columns.categorical)}
    constant = {
        (k, j) for k, part in enumerate(parts) for j in _constant_within(part, bags, several)
    }
    first = bags.index[bags.offsets[:-1]]
    found = []
    for name, (k, j) in places.items():
        gap = gaps.get(name)
        if (k, j) not in constant or gap not in (None, *constant):
            continue
        values = parts[k][first, j].astype(np.float64)
        if gap is not None:
            values[parts[0][first, gap[1]] > 0] = np.nan
        if k == 0 and _are_proportions(values, bags):
            found.append(Constant(name, is_proportions=True))
        elif _log_chance(values[several], bags.sizes[several]) < CHANCE:
            found.append(Constant(name, is_proportions=False))
    return found


def _constant_within(x: NDArray[Any], bags: Bags, several: Ints) -> list[int]:
    """Return which columns of an array are constant within each of some bags."""
    rows = bags.index[bags.positions(several)]
    same_bag = np.ones(len(rows), bool)  # as the instance before
    same_bag[np.cumsum(bags.sizes[several])[:-1]] = False
    live, begin, step = np.arange(x.shape[1]), 1, FIRST_ROWS
    while begin < len(rows) and len(live):
        end = min(begin + step, len(rows))
        block = x[rows[begin - 1 : end, None], live]
        varies = (block[1:] != block[:-1])[same_bag[begin:end]].any(axis=0)
        live, begin = live[~varies], end
        step = CELLS // max(len(live), 1) + 1
    return live.tolist()


def _log_chance(values: Floats, sizes: Ints) -> float:
    """Return the chance that a column is constant within bags, as a logarithm; 0 if in all.

    Of all arrangements of the values over the instances, as many are as there are arrangements of
    the bags' values over the bags; exactly so if all bags are of one size.
    """
    _, code = np.unique(values, return_inverse=True, equal_nan=True)
    of_bags, of_rows = np.bincount(code), np.bincount(code, sizes)
    return _log_ways(of_bags) - _log_ways(of_rows)


def _log_ways(counts: NDArray[Any]) -> float:
    return float(gammaln(counts.sum() + 1) - gammaln(counts + 1).sum())


def _are_proportions(values: Floats, bags: Bags) -> bool:
    """Tell whether one value per bag is the share or the count of a class, or a multiple of it."""
    known = np.flatnonzero(~np.isnan(values))
    some = known[:: max(len(known) // SOME_BAGS, 1)]
    for c in range(bags.n_classes):
        share = bags.proportions[known, c]
        most = OF_SPREAD * float(share.std()) if len(known) else 0.0
        # Most columns fail on some of the bags.
        if all(_match(values[own], bags, own, c, most) for own in (some, known)):
            return len(np.unique(share.round(2))) >= FEWEST_SHARES
    return False


def _match(values: Floats, bags: Bags, own: Ints, c: int, most: float) -> bool:
    """Tell whether values are the shares or counts of a class in some bags, up to rounding."""
    share, sizes = bags.proportions[own, c], bags.sizes[own]
    if np.array_equal(values, bags.counts[own, c]):
        return True
    whole = min(WHOLE_PERCENT + 1e-6, most)  # float32 has fewer digits than the proportions
    if any(np.abs(made - share).max() <= whole for made in (values, values / 100, values / sizes)):
        return True
    multiple = float(values @ share) / max(float(share @ share), 1e-12)
    off = np.abs(values - multiple * share).max()
    return bool(multiple > 0 and off <= min(FOUR_DIGITS, most) * multiple)
