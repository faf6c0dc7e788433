r"""Protocols: how bags are made from labelled data, to study what their proportions can teach.

`pools` cuts the rows before any bag is made, so that training, validation and test share none.
From the rows of a pool

- `rand` draws bags whose proportions are random, as in the paper's experiments:
  :math:`p_c = r_c / \sum_b r_b` with :math:`r_c` uniform on [0, 1). Whole counts are those of the
  largest remainder (`apportion.bags.counts.counts_from_proportions`), so that no class is favoured;
- `dirichlet` draws such bags from a Dirichlet distribution, so that `alpha` sets their spread;
- `shuffle` puts every row into one bag at random, so that proportions differ only by chance;
- `apportion.study.clusters.clusters` makes a bag of rows that resemble one another, without looking
  at classes.

`apportion.study.paper_bags.paper` draws nothing: it reads the bags that were published with a
paper, for example those of ``papers/matsuo2023/bags``.

Labels serve to make the bags, and nothing of them remains but the rows that each bag holds. Rows
stand in a bag in random order: sorted by class, they would tell the truth to whatever breaks ties
in their order. All is a function of the seed alone; numpy's global state is neither read nor
changed. Drawing costs a few operations per instance, and about 0.2 ms per bag of ten classes.

Reference: S. Matsuo, R. Bise, S. Uchida, D. Suehiro, "Learning From Label Proportion with Online
Pseudo-Label Decision by Regret Minimization", ICASSP 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from apportion.bags.counts import counts_from_proportions
from apportion.errors import BagError, count
from apportion.study._pool import Ints, holdings, pool_of, positive, rows_by_class

__all__ = ["Drawn", "dirichlet", "pools", "rand", "shuffle"]

MOST_TRIES = 10_000  # draws of one bag's proportions, before the pool is found too small
MOST_ALPHA = 1e9  # far beyond it numpy's draws overflow; proportions have long been equal


@dataclass(frozen=True, eq=False)
class Drawn:
    """Bags that were drawn from labelled rows, and how often a draw had to be repeated."""

    members: Ints  # (n_bags, size) the rows of each bag: for `Bags.from_members`
    redrawn: int  # draws that asked for more rows of a class than there are, and were made again

    def __repr__(self) -> str:
        n_bags, size = self.members.shape
        return f"Drawn({n_bags:,} × {size:,} rows, {self.redrawn:,} redrawn)"


def rand(
    truth: Any,
    size: int,
    n_bags: int | None = None,
    *,
    rows: ArrayLike | None = None,
    seed: int,
) -> Drawn:
    """Draw bags of one size, whose proportions are uniform random numbers divided by their sum.

    No row stands twice in a bag, but it may return in other bags. Proportions that ask for more
    rows of a class than there are get drawn again, which is counted: if it happens often, large
    shares of small classes are rarer than they would be.

    Parameters
    ----------
    truth : array of shape (M,)
        The class name of every row: strings or numbers. The classes are those of `rows`.
    size : int
        The number of rows of each bag.
    n_bags : int, optional
        By default as many bags as it takes to hold all rows once: ⌈rows / size⌉.
    rows : array of int, optional
        The pool to draw from, in any order; all M rows by default.
    seed : int
        With more bags of the same seed, the first ones stay as they are.

    Returns
    -------
    Drawn
        `members`, an int64 array of shape (n_bags, size) for `Bags.from_members`, and `redrawn`.

    Raises
    ------
    BagError
        If `rows` hold fewer than `size`, or a bag could not be served in 10,000 draws.

    Examples
    --------
    >>> from apportion.bags.bags import Bags
    >>> x, truth = np.arange(12.0), np.repeat(["no", "yes"], 6)
    >>> drawn = rand(truth, 4, seed=1)
    >>> drawn
    Drawn(3 × 4 rows, 0 redrawn)
    >>> Bags.from_members(x, drawn.members, truth=truth)
    Bags(3 bags of 4–4–4 instances, 12 in all, from 12 rows; 2 classes: no, yes; truth known)
    """
    return _draw(truth, size, n_bags, rows, seed, None)


def dirichlet(
    truth: Any,
    size: int,
    n_bags: int | None = None,
    *,
    alpha: float,
    rows: ArrayLike | None = None,
    seed: int,
) -> Drawn:
    """Draw bags of one size, whose proportions come from a symmetric Dirichlet distribution.

    Like `rand` in all but the proportions: the variance of each of C is (C − 1) / (C² (C α + 1)).

    Parameters
    ----------
    alpha : float
        How alike the bags are. Near 0 each is of one class, at 1 all proportions are equally
        likely, and the larger it is, the nearer they come to 1/C each.
    truth, size, n_bags, rows, seed
        As in `rand`.

    Returns
    -------
    Drawn
        As from `rand`. Where alpha is small and a class has fewer rows than a bag, `redrawn` will
        be large: bags of that class alone cannot be drawn.

    Raises
    ------
    BagError
        If alpha is not between 0 and 1e9, or as from `rand`.

    Examples
    --------
    >>> truth = np.repeat(["no", "yes"], 500)
    >>> for alpha in (0.01, 100):
    ...     members = dirichlet(truth, 20, 6, alpha=alpha, seed=0).members
    ...     print((truth[members] == "yes").sum(axis=1))
    [ 0  3  0 20  0  0]
    [10 10  9 11 11 10]
    """
    if not 0 < alpha <= MOST_ALPHA:
        raise BagError(
            f"alpha must be more than 0 and at most {MOST_ALPHA:g}; got {alpha!r}.",
            "Pass 1 for proportions that are all equally likely, less for bags that differ more.",
        )
    return _draw(truth, size, n_bags, rows, seed, float(alpha))


def shuffle(n_rows: int, size: int, *, rows: ArrayLike | None = None, seed: int) -> dict[int, Ints]:
    """Shuffle rows and cut them into bags, so that every row stands in exactly one.

    Parameters
    ----------
    n_rows : int
        The number of rows of x.
    size : int
        The number of rows of each bag. What is left over forms a last, smaller bag.
    rows : array of int, optional
        The pool to take, in any order; all rows by default.
    seed : int

    Returns
    -------
    dict of {int: ndarray of int64}
        The rows of bags 0, 1, …: for `Bags.from_members`.

    Examples
    --------
    >>> from apportion.bags.bags import Bags
    >>> members = shuffle(7, 3, seed=0)
    >>> [len(rows) for rows in members.values()]
    [3, 3, 1]
    >>> Bags.from_members(np.eye(7), members, truth=list("aabbabb")).sizes
    array([3, 3, 1])
    """
    size = positive("size", size)
    pool = pool_of(positive("n_rows", n_rows), rows)
    shuffled = np.random.default_rng(seed).permutation(pool)
    return dict(enumerate(np.split(shuffled, range(size, len(pool), size))))


def pools(n_rows: int, fractions: Sequence[float], *, seed: int) -> tuple[Ints, ...]:
    """Cut rows at random into disjoint pools, one for each fraction.

    Parameters
    ----------
    n_rows : int
        The number of rows of x.
    fractions : sequence of float
        The share of each pool. They sum to 1, so that no row is left out; their whole-number form
        is that of the largest remainder.
    seed : int

    Returns
    -------
    tuple of ndarray of int64
        The rows of each pool, in ascending order.

    Examples
    --------
    >>> train, test = pools(10, (0.7, 0.3), seed=0)
    >>> len(train), len(test), sorted({*train.tolist(), *test.tolist()}) == list(range(10))
    (7, 3, True)
    """
    n_rows, share = positive("n_rows", n_rows), np.asarray(fractions, np.float64)
    given = ", ".join(f"{value:g}" for value in share.ravel())
    if share.ndim != 1 or not (share > 0).all() or not abs(share.sum() - 1) <= 1e-6:
        raise BagError(
            f"the fractions of the pools are {given or 'none'}, with a sum of {share.sum():g}.",
            "Each must be more than 0, and all must sum to 1: unused rows are a pool too.",
        )
    sizes = counts_from_proportions(share, n_rows)
    if not sizes.all():
        raise BagError(
            f"{count(n_rows, 'row')} cut into {given} would leave pool {sizes.argmin()} empty.",
            "Pass a larger fraction for it, or more rows.",
        )
    shuffled = np.random.default_rng(seed).permutation(n_rows)
    return tuple(np.sort(part) for part in np.split(shuffled, np.cumsum(sizes)[:-1]))


def _draw(
    truth: Any,
    size: int,
    n_bags: int | None,
    rows: ArrayLike | None,
    seed: int,
    alpha: float | None,
) -> Drawn:
    """Draw bags whose proportions are uniform numbers by their sum, or Dirichlet with an alpha."""
    size = positive("size", size)
    pool = rows_by_class(truth, rows)
    held = np.array([len(own) for own in pool.values()])
    if size > held.sum():
        raise BagError(
            f"a bag of {count(size, 'row')} cannot be drawn from {count(held.sum(), 'row')}, "
            "since none may stand in it twice.",
            holdings(pool),
            f"Draw bags of {held.sum():,} at most, or draw them from more rows.",
        )
    n_bags = -(-int(held.sum()) // size) if n_bags is None else positive("n_bags", n_bags)
    rng = np.random.default_rng(seed)
    members, redrawn = np.empty((n_bags, size), np.int64), 0
    for bag in members:
        short = np.zeros(len(held), np.int64)  # draws that asked for more of each class
        for _ in range(MOST_TRIES):
            if alpha is None:
                shares = rng.random(len(held))
                shares /= shares.sum()
            else:
                shares = rng.dirichlet(np.full(len(held), alpha))
            counts = counts_from_proportions(shares, size)
            if (counts <= held).all():
                break
            short += counts > held
            redrawn += 1
        else:
            scarce = int(short.argmax())
            remedy = "" if alpha is None else " A larger alpha asks for less of it."
            raise BagError(
                f"a bag of {count(size, 'row')} could not be drawn in {MOST_TRIES:,} tries: class "
                f"{list(pool)[scarce]!r} has {count(held[scarce], 'row')}, and {short[scarce]:,} "
                "tries asked for more.",
                holdings(pool),
                f"Draw smaller bags, add rows of this class, or leave its rows out.{remedy}",
            )
        chosen = [
            rng.choice(own, wanted, replace=False, shuffle=False)
            for own, wanted in zip(pool.values(), counts, strict=True)
        ]
        bag[:] = rng.permutation(np.concatenate(chosen))
    return Drawn(members, redrawn)
