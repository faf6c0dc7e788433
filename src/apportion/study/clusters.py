"""K-means of rows that may lie on disk: they are read in parts, and standardised as they are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import BagError, count
from apportion.study._pool import Ints, pool_of, positive

MOST_AT_ONCE = 10_000  # rows that are clustered together; with more it is done batch by batch
BATCH = 4096  # rows of a batch, at least
PASSES = 5  # of the batches over all rows
PART = 2**22  # values that are read at a time: 32 MiB of float64


def clusters(
    x: Any,
    size: int | None = None,
    n_bags: int | None = None,
    *,
    rows: ArrayLike | None = None,
    seed: int,
) -> dict[int, Ints]:
    """Cluster rows by k-means, one bag a cluster, so that every row stands in exactly one.

    Bags hold rows that are alike, as those of one place or one customer are; their sizes differ,
    and so do their proportions as far as classes can be seen in x. Every column is standardised
    over the pool first. Up to 10,000 rows are clustered together, more of them in batches
    (scikit-learn's `KMeans` and `MiniBatchKMeans`), which are read one after the other: a
    memory-mapped array stays on disk. The cost grows with rows × bags × columns.

    The seed decides everything on one machine; another, or other versions of the libraries, may
    round a distance the other way. `apportion.study.manifests` keeps bags as they were made.

    Parameters
    ----------
    x : array of shape (M, …), or a tuple of such arrays
        Numbers, of which each row is flattened.
    size : int, optional
        The number of rows of a bag on average: ⌈rows / size⌉ bags are made.
    n_bags : int, optional
        The number of bags, instead of `size`. There are fewer where k-means leaves clusters empty,
        as it must if fewer rows are distinct.
    rows : array of int, optional
        The pool to take, in any order; all M rows by default.
    seed : int

    Returns
    -------
    dict of {int: ndarray of int64}
        The rows of bags 0, 1, …: for `Bags.from_members`.

    Examples
    --------
    >>> x = np.array([[0.0], [9.1], [0.2], [9.0], [0.1]])
    >>> members = clusters(x, n_bags=2, seed=0)
    >>> sorted(sorted(rows.tolist()) for rows in members.values())
    [[0, 2, 4], [1, 3]]
    """
    if (size is None) == (n_bags is None):
        given = "neither size nor n_bags is" if size is None else "both size and n_bags are"
        raise BagError(f"{given} given.", "Pass the mean size of a bag, or the number of bags.")
    instances = _Instances(x)
    pool = pool_of(instances.n_rows, rows)
    if n_bags is None:
        n_clusters = -(-len(pool) // positive("size", size or 0))
    else:
        n_clusters = positive("n_bags", n_bags)
    if n_clusters > len(pool):
        raise BagError(
            f"{n_clusters:,} bags cannot be made of {count(len(pool), 'row')}, each in one.",
            f"Make {len(pool):,} bags at most, or take more rows.",
        )
    rng = np.random.default_rng(seed)
    cluster = _cluster(instances, pool, n_clusters, rng)
    shuffled = rng.permutation(len(pool))
    order = shuffled[np.argsort(cluster[shuffled], kind="stable")]
    ends = np.flatnonzero(np.diff(cluster[order])) + 1
    return dict(enumerate(np.split(pool[order], ends)))


class _Instances:
    """Rows of numbers, flattened: one array of them, or a tuple of parts side by side."""

    def __init__(self, x: Any) -> None:
        given = x if isinstance(x, tuple) else (x,)
        for part in given:
            if hasattr(part, "iloc"):
                raise BagError(
                    f"x is a {type(part).__name__}, whose rows are not found by their position.",
                    "Pass an array: x.to_numpy(), of columns of numbers.",
                )
        self.parts = [part if hasattr(part, "shape") else np.asarray(part) for part in given]
        lengths = [int(part.shape[0]) if part.shape else 0 for part in self.parts]
        if len(set(lengths)) != 1 or not lengths[0]:
            raise BagError(
                f"x has {' and '.join(map(str, lengths)) or 'no'} rows.",
                "Pass at least one row, and parts of equal length where x is a tuple.",
            )
        self.n_rows = lengths[0]
        self.n_columns = sum(int(np.prod(part.shape[1:])) for part in self.parts)
        for part in self.parts:
            kind = np.asarray(part[:1]).dtype
            if kind.kind not in "biuf" or not self.n_columns:
                raise BagError(
                    f"x has rows of shape {tuple(part.shape[1:])} and {kind}, which have no "
                    "distances.",
                    "Pass numbers: encode text, and leave out what says nothing of the rows.",
                )

    def read(self, rows: Ints) -> NDArray[np.float64]:
        flat = [np.asarray(part[rows], np.float64).reshape(len(rows), -1) for part in self.parts]
        values = np.concatenate(flat, axis=1)
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise BagError(
                f"row {rows[row]} of x holds {values[row, column]} in column {column}.",
                "Fill in what is missing, or leave the row out of rows.",
            )
        return values

    def cut(self, rows: Ints) -> Iterator[Ints]:
        """Cut rows into parts that are small enough to be read."""
        step = max(1, PART // self.n_columns)
        return (rows[start : start + step] for start in range(0, len(rows), step))


class _Standardised:
    """Rows of mean 0 and variance 1 in every column over a pool; constant columns are 0."""

    def __init__(self, instances: _Instances, pool: Ints) -> None:
        self.instances = instances
        # Sums of squares around some row, not around 0: dates are far from it, and would cancel.
        around = instances.read(pool[:1])
        total, squares = np.zeros_like(around), np.zeros_like(around)
        for rows in instances.cut(pool):
            away = instances.read(rows) - around
            total += away.sum(axis=0)
            squares += (away**2).sum(axis=0)
        mean = total / len(pool)
        spread = np.sqrt(np.maximum(squares / len(pool) - mean**2, 0))
        self.mean, self.spread = around + mean, np.where(spread > 0, spread, 1)

    def read(self, rows: Ints) -> NDArray[np.float32]:
        values = np.empty((len(rows), self.instances.n_columns), np.float32)
        done = 0
        for part in self.instances.cut(rows):
            values[done : done + len(part)] = (self.instances.read(part) - self.mean) / self.spread
            done += len(part)
        return values


def _cluster(instances: _Instances, pool: Ints, n_clusters: int, rng: np.random.Generator) -> Ints:
    """Give the number of the cluster of each row of the pool; some numbers may stay unused."""
    # Importing them takes a second, and nothing else of the protocols needs them.
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    seed = int(rng.integers(2**31))
    rows = _Standardised(instances, pool)
    # Several threads would add up the rows of a cluster in the order in which they happen to end.
    with threadpool_limits(1), warnings.catch_warnings():
        # That fewer rows are distinct than clusters were asked for is told by their number.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if len(pool) <= MOST_AT_ONCE:
            model = KMeans(n_clusters, n_init=1, random_state=seed)
            return np.asarray(model.fit_predict(rows.read(pool)), np.int64)
        # The first batch also gives the first centres: k-means++ wants a choice for each.
        batch = max(BATCH, 3 * n_clusters)
        model = MiniBatchKMeans(n_clusters, n_init=1, batch_size=batch, random_state=seed)
        for _ in range(PASSES):
            shuffled = rng.permutation(pool)
            for start in range(0, max(1, len(pool) - batch + 1), batch):
                # In ascending order a disk is read from its beginning to its end.
                model.partial_fit(rows.read(np.sort(shuffled[start : start + batch])))
        parts = [model.predict(rows.read(part)) for part in instances.cut(pool)]
        return np.concatenate(parts).astype(np.int64)
