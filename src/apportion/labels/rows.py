"""Rows of a table as linear models see them: standardised numbers beside 0 or 1 per category.

The 0/1 columns are never stored as a dense matrix: a row has one entry per categorical column,
however many categories there are. A code of 0, for missing and unknown values, has none, and
neither has a code that is too large. That is what `apportion.nets.mlp.mlp` does as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from apportion.bags.bags import Bags
from apportion.bags.sparse import is_sparse, scale_of
from apportion.errors import ConfigError, DataError

__all__ = ["Design", "RowEncoding"]

Floats = NDArray[Any]
Ints = NDArray[np.int64]

LARGE = 2**27  # numbers: beyond it they are kept in float32


@dataclass(frozen=True, eq=False)
class Design:
    """A matrix of rows: dense numbers (N, F) beside sparse categories (N, S)."""

    numbers: Floats
    hot: Any  # scipy.sparse.csr_array; None without categories

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> Design:
        return Design(self.numbers[rows], None if self.hot is None else self.hot[rows])

    @property
    def width(self) -> int:
        """The number of columns, F + S."""
        return int(self.numbers.shape[1] + (0 if self.hot is None else self.hot.shape[1]))

    def times(self, weights: Floats) -> Floats:
        """Return the products (C, N) of all rows and weights (F + S, C)."""
        f = self.numbers.shape[1]
        product: Floats = weights[:f].T.astype(self.numbers.dtype, copy=False) @ self.numbers.T
        product = product.astype(np.float64, copy=False)
        if self.hot is not None:
            product += (self.hot @ weights[f:]).T
        return product

    def sums(self, values: Floats) -> Floats:
        """Return the sums (F + S, C) of all rows, each times its values in (C, N)."""
        dense = self.numbers.T @ values.T.astype(self.numbers.dtype, copy=False)
        if self.hot is None:
            return np.asarray(dense, np.float64)
        return np.concatenate([dense, self.hot.T @ np.ascontiguousarray(values.T)])

    def means(self, offsets: Ints) -> Design:
        """Return the mean rows (n, F + S) of bags of consecutive rows."""
        sizes = np.diff(offsets)
        shares = np.repeat(1 / sizes, sizes)
        average = sparse.csr_array((shares, np.arange(len(self)), offsets))
        return Design(average @ self.numbers, None if self.hot is None else average @ self.hot)

    def matrix(self, most_dense: int = 256) -> Any:
        """Return one matrix: dense up to so many columns, sparse beyond, always float32."""
        numbers = self.numbers.astype(np.float32)
        if self.hot is None:
            return numbers
        hot = self.hot.astype(np.float32)
        if self.width <= most_dense:
            return np.concatenate([numbers, hot.toarray()], axis=1)
        return sparse.csr_array(sparse.hstack([sparse.csr_array(numbers), hot]))


@dataclass(frozen=True, eq=False)
class RowEncoding:
    """How rows become standardised numbers and 0/1 columns.

    Examples
    --------
    >>> numbers, codes = np.array([[1.0], [3.0]]), np.array([[2], [0]])
    >>> bags = Bags.from_rows((numbers, codes), ["a", "a"], {"a": [0.5, 0.5]})
    >>> RowEncoding.learn(bags).design(bags.x).matrix()
    array([[-1.,  0.,  1.],
           [ 1.,  0.,  0.]], dtype=float32)
    """

    mean: Floats  # (F,) of the numbers, in float32
    std: Floats  # (F,) likewise; 1 where a column is constant
    categories: tuple[int, ...] | None  # the number of codes of every column, including code 0

    @classmethod
    def learn(cls, bags: Bags) -> RowEncoding:
        """Measure the distinct rows that stand in bags.

        Raises
        ------
        ConfigError
            If instances are no rows of a table.
        DataError
            If numbers are missing or infinite, or codes are not integers ≥ 0.
        """
        if is_sparse(bags.x):
            return cls._of_sparse(bags.x, bags.distinct())
        parts = [np.asarray(part) for part in bags.parts]
        if len(parts) > 2 or any(part.ndim != 2 for part in parts):
            shapes = " and ".join(str(part.shape) for part in parts)
            raise ConfigError(
                f"linear models and learners need rows of features, but x is of shape {shapes}.",
                "Pass bags of features of these instances: bags.with_rows(features).",
            )
        rows = bags.distinct()
        numbers = parts[0][rows].astype(np.float32).astype(np.float64)
        bad = ~np.isfinite(numbers)
        if bad.any():
            at = int(bad.any(axis=1).argmax())
            column = int(bad[at].argmax())
            raise DataError(
                f"x is {numbers[at, column]} in row {rows[at]:,}, column {column}.",
                "Replace values of x that are missing, infinite or too large for float32.",
            )
        pivot = numbers[0]  # minus it, a constant is exactly 0
        mean, std = (numbers - pivot).mean(axis=0) + pivot, (numbers - pivot).std(axis=0)
        std = np.where(std > 0, std, 1.0)
        return cls(
            mean.astype(np.float32),
            std.astype(np.float32),
            None if len(parts) == 1 else _categories(parts[1], rows, bags),
        )

    @classmethod
    def _of_sparse(cls, x: Any, rows: Ints) -> RowEncoding:
        """Scale all columns alike, and centre none: rows stay sparse."""
        scale = scale_of(x, rows)
        mean = np.zeros(x.shape[1], np.float32)
        return cls(mean, np.full_like(mean, scale), None)

    def design(self, x: Any, rows: Ints | None = None) -> Design:
        """Return the design matrix of rows as they come in `Bags.x`, or of some of them."""
        parts = x if isinstance(x, tuple) else (x,)
        chosen = slice(None) if rows is None else rows
        if is_sparse(parts[0]):
            scaled = sparse.csr_array(parts[0][chosen], dtype=np.float64)
            scaled.data /= self.std[scaled.indices]
            return Design(np.empty((scaled.shape[0], 0)), scaled)
        numbers = np.asarray(parts[0])[chosen]
        wide = np.float64 if numbers.size <= LARGE else np.float32
        numbers = numbers.astype(np.float32, copy=False).astype(wide)
        numbers -= self.mean
        numbers /= self.std
        hot = None if self.categories is None else self._hot(np.asarray(parts[1])[chosen])
        return Design(numbers, hot)

    def _hot(self, codes: Any) -> Any:
        sizes = np.array(self.categories, np.int64)
        before = np.cumsum(sizes - 1) - (sizes - 1)
        known = (codes > 0) & (codes < sizes)
        places = (codes.astype(np.int64) - 1 + before)[known]
        offsets = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        shape = len(codes), int((sizes - 1).sum())
        return sparse.csr_array((np.ones(len(places)), places, offsets), shape=shape)


def _categories(codes: Any, rows: Ints, bags: Bags) -> tuple[int, ...]:
    if codes.dtype.kind not in "iub" or codes[rows].min(initial=0) < 0:
        raise DataError(
            f"the second part of x holds {codes.dtype}, from {codes[rows].min()} on.",
            "It holds the codes of categories, integers ≥ 0; 0 is for missing values.",
        )
    if bags.columns is not None:
        return bags.columns.codes
    return tuple(int(most) + 1 for most in codes[rows].max(axis=0))
