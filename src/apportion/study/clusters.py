"""Bags as clusters, by k-means of rows that may stay on disk: they are read piece by piece."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.bags.read import as_instances, count_rows
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
    """Cluster rows by k-means into one bag per cluster, so that every row is in exactly one bag.

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
        The mean number of rows of a bag: ⌈rows / size⌉ bags are made.
    n_bags : int, optional
        The number of bags, instead of `size`. There are fewer if k-means leaves clusters empty,
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
    x = as_instances(x)
    pool, parts = pool_of(count_rows(x), rows), _parts_of(x)
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
    cluster = _cluster(parts, pool, n_clusters, rng)
    shuffled = rng.permutation(len(pool))
    order = shuffled[np.argsort(cluster[shuffled], kind="stable")]
    ends = np.flatnonzero(np.diff(cluster[order])) + 1
    return dict(enumerate(np.split(pool[order], ends)))


def _parts_of(x: Any) -> tuple[Any, ...]:
    """Return the arrays that x consists of, and check that they hold numbers."""
    parts: tuple[Any, ...] = x if isinstance(x, tuple) else (x,)
    for part in parts:
        kind = np.asarray(part[:1]).dtype
        if kind.kind not in "biuf" or not sum(math.prod(own.shape[1:]) for own in parts):
            raise BagError(
                f"x has rows of shape {tuple(part.shape[1:])} and {kind}, which have no distances.",
                "Pass numbers: encode text, and leave out what says nothing of the rows.",
            )
    return parts


def _cut(parts: tuple[Any, ...], rows: Ints) -> list[Ints]:
    """Cut rows into pieces that are small enough to be read."""
    n_columns = sum(math.prod(part.shape[1:]) for part in parts)
    return np.array_split(rows, -(-len(rows) * n_columns // PART))


def _read(parts: tuple[Any, ...], rows: Ints) -> NDArray[np.float64]:
    """Read some rows, flattened, with their parts side by side."""
    flat = [np.asarray(part[rows], np.float64).reshape(len(rows), -1) for part in parts]
    values = np.concatenate(flat, axis=1)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise BagError(
            f"row {rows[row]} of x holds {values[row, column]} in column {column}.",
            "Fill in what is missing, or leave the row out of rows.",
        )
    return values


def _standardised(parts: tuple[Any, ...], pool: Ints) -> Callable[[Ints], NDArray[np.float32]]:
    """Return what reads rows with mean 0 and variance 1 in every column over a pool."""
    from sklearn.preprocessing import StandardScaler

    # Counted from some row, not from 0: scikit-learn takes dates in seconds, all within one, for
    # a constant column.
    scaler, first = StandardScaler(), _read(parts, pool[:1])
    for rows in _cut(parts, pool):
        scaler.partial_fit(_read(parts, rows) - first)

    def read(rows: Ints) -> NDArray[np.float32]:
        pieces = (scaler.transform(_read(parts, some) - first) for some in _cut(parts, rows))
        return np.concatenate([piece.astype(np.float32) for piece in pieces])

    return read


def _cluster(parts: tuple[Any, ...], pool: Ints, n_clusters: int, rng: np.random.Generator) -> Ints:
    """Return the number of the cluster of each row of the pool; some numbers may stay unused."""
    # Importing them takes a second, and no other protocol needs them.
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    seed = int(rng.integers(2**31))
    read = _standardised(parts, pool)
    # Several threads would add up the rows of a cluster in the order in which they happen to end.
    with threadpool_limits(1), warnings.catch_warnings():
        # The caller sees from the number of bags that fewer rows are distinct.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if len(pool) <= MOST_AT_ONCE:
            model = KMeans(n_clusters, n_init=1, random_state=seed)
            return np.asarray(model.fit_predict(read(pool)), np.int64)
        # The first batch also sets the first centres: k-means++ wants a choice for each.
        batch = max(BATCH, 3 * n_clusters)
        model = MiniBatchKMeans(n_clusters, n_init=1, batch_size=batch, random_state=seed)
        for _ in range(PASSES):
            shuffled = rng.permutation(pool)
            for start in range(0, max(1, len(pool) - batch + 1), batch):
                # In ascending order a disk is read from its beginning to its end.
                model.partial_fit(read(np.sort(shuffled[start : start + batch])))
        pieces = [model.predict(read(rows)) for rows in _cut(parts, pool)]
        return np.concatenate(pieces).astype(np.int64)
