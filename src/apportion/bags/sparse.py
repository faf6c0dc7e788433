"""Sparse matrices of scipy, whose rows become dense a batch at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from apportion.bags.checks import Ints
from apportion.errors import DataError

__all__ = ["as_rows", "is_sparse", "rows_at_once", "scale_of"]

NORM = 1000.0  # mean square of the scaled rows: the best penalty is then among those that are tried
DENSE = 2**26  # bytes of rows that are dense at once, in float32


def is_sparse(x: Any) -> bool:
    """Tell whether something is a sparse matrix or array of scipy, in any format."""
    return hasattr(x, "tocsr")


def as_rows(x: Any) -> Any:
    """Return a sparse matrix in the format of rows, in which each cell has one entry.

    Cells may have several, which are then summed; the caller's matrix stays as it is.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> twice = csr_array((np.array([1.0, 2.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))
    >>> as_rows(twice).data, twice.nnz
    (array([3.]), 2)
    """
    rows = x.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def rows_at_once(x: Any, most: int) -> int:
    """Return how many rows of a matrix are made dense at once: at most so many.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rows_at_once(csr_array((9, 50_000)), 4096), rows_at_once(np.zeros((9, 50_000)), 4096)
    (335, 4096)
    """
    return min(most, max(1, DENSE // (4 * max(1, x.shape[1])))) if is_sparse(x) else most


def scale_of(x: Any, rows: Ints) -> float:
    """Return what all numbers of a sparse matrix are divided by, measured over some rows.

    Sparse rows are not centred, which would make them dense; and their columns are not scaled one
    by one, which would blow up those that are 0 almost everywhere, such as rare words.
    """
    square = float(np.square(x[rows].data, dtype=np.float64).sum()) / max(len(rows), 1)
    if not math.isfinite(square):
        raise DataError(
            "x, a sparse matrix, has numbers that are missing or infinite.",
            "Replace them, or leave out their rows.",
        )
    return math.sqrt(square / NORM) or 1.0
