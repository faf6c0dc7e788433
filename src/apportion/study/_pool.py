"""The rows that bags are made of: checked, sorted by class, and listed in messages."""

from __future__ import annotations

import reprlib
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import BagError, count, listing

Ints = NDArray[np.int64]


def pool_of(n_rows: int, rows: ArrayLike | None) -> Ints:
    """Return the rows of the pool in ascending order, so that the given order does not matter."""
    if rows is None:
        return np.arange(n_rows)
    given = np.asarray(rows)
    if given.ndim != 1 or not given.size or given.dtype.kind not in "iu":
        raise BagError(
            f"rows are of shape {given.shape} and {given.dtype}.",
            "Pass a flat list of row numbers, at least one: np.flatnonzero(mask) for a mask.",
        )
    pool = np.sort(given.astype(np.int64))
    if pool[0] < 0 or pool[-1] >= n_rows:
        raise BagError(
            f"rows run from {pool[0]} to {pool[-1]}, but there are {count(n_rows, 'row')}.",
            f"Rows are counted from 0 to {n_rows - 1}.",
        )
    twice = np.diff(pool) == 0
    if twice.any():
        raise BagError(
            f"row {pool[twice.argmax()]} is in rows twice.", "Pass every row of the pool once."
        )
    return pool


def rows_by_class(truth: Any, rows: ArrayLike | None) -> dict[Any, Ints]:
    """Return the rows of every class of the pool, in the order of the classes' names."""
    # From a list of several types numpy would make strings, and one class of 1 and "1".
    names = np.asarray(truth if hasattr(truth, "dtype") else np.array(truth, dtype=object))
    if names.ndim != 1 or not names.size:
        raise BagError(
            f"labels are of shape {names.shape}.",
            "Pass one class name per row of x, in the order of its rows.",
        )
    pool = pool_of(len(names), rows)
    try:
        classes, codes = np.unique(names[pool], return_inverse=True)
    except TypeError as error:
        raise BagError(
            f"the classes cannot be put in order: {error}.",
            "Labels must be all strings or all numbers; leave out rows without a label.",
        ) from error
    missing = classes != classes
    if missing.any():
        first = pool[(names[pool] != names[pool]).argmax()]
        raise BagError(f"the label of row {first} is missing.", "Add it, or leave the row out.")
    return {name: pool[codes == code] for code, name in enumerate(classes.tolist())}


def positive(name: str, value: int) -> int:
    """Return a number that must be an integer ≥ 1."""
    try:
        whole = index(value)
    except TypeError:
        whole = 0
    if whole < 1:
        raise BagError(f"{name} must be an integer ≥ 1; got {reprlib.repr(value)}.")
    return whole


def holdings(pool: dict[Any, Ints]) -> str:
    """List the smallest classes: those that a draw asks too much of."""
    fewest = sorted(pool.items(), key=lambda item: len(item[1]))
    return listing((f"class {name!r} {count(len(own), 'row')}" for name, own in fewest), " · ")
