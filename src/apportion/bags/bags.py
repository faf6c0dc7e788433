r"""Instances in bags whose class proportions are known.

Of bag :math:`B^i` only the share :math:`p^i_c` of every class c is known. Its whole-number form,
:math:`k^i = |B^i| p^i`, says how many instances of each class the bag holds; where
:math:`|B^i| p^i_c` is not whole, the *largest remainder* decides (`counts_from_proportions`).

All bags share one flat layout: bag i holds the rows ``index[offsets[i]:offsets[i + 1]]`` of ``x``.
That covers bags of unequal size, rows that stand in several bags and data that stay on disk,
without a copy. Building it sorts the N instances once. Everything is checked here and only here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from apportion.bags.checks import (
    Floats,
    Ints,
    check_array,
    check_filled,
    check_rows,
    check_unique,
    check_values,
)
from apportion.bags.describe import BagsSummary, summarize
from apportion.bags.read import as_instances, assemble, count_rows, factorize, read_members
from apportion.errors import BagError, count, listing

__all__ = ["Bags", "Overlap", "Split"]


@dataclass(frozen=True, eq=False)
class Bags:
    """Instances in bags with known class counts.

    Make one with `Bags.from_rows` or `Bags.from_members`. It has N instances, bag after
    bag; there are n bags, C classes and M rows of `x`.

    Examples
    --------
    >>> x = np.arange(10.0).reshape(5, 2)
    >>> bags = Bags.from_rows(x, ["b", "a", "b", "a", "b"], {"a": [0.5, 0.5], "b": [0.3, 0.7]})
    >>> bags
    Bags(2 bags of 2–2.5–3 instances, 5 in all, from 5 rows; 2 classes: 0, 1; truth unknown)
    >>> bags.counts
    array([[1, 1],
           [1, 2]])
    >>> bags.rows(1)
    array([0, 2, 4])
    """

    x: Any  # (M, …) the instances in any order, never copied; a tuple where they have parts
    index: Ints  # (N,) bag after bag, the rows of x that each bag holds
    offsets: Ints  # (n + 1,) bag i is index[offsets[i]:offsets[i + 1]]
    proportions: Floats  # (n, C) as given; counts / size where counts were given
    counts: Ints  # (n, C) their whole-number form
    classes: tuple[Hashable, ...]  # names of the C classes
    ids: tuple[Hashable, ...]  # names of the n bags
    labels: Ints | None = None  # (N,) the truth where known, as positions in `classes`

    def __post_init__(self) -> None:
        """Check that the fields agree with one another."""
        n, c, total = self.n_bags, self.n_classes, self.n_instances
        if not n or not c:
            raise BagError(
                f"there are {count(n, 'bag')} and {count(c, 'class')}.",
                "Pass at least one of each.",
            )
        check_unique(self.ids, "bag")
        check_unique(self.classes, "class")
        check_array("index", self.index, (total,), np.int64)
        check_array("offsets", self.offsets, (n + 1,), np.int64)
        check_array("proportions", self.proportions, (n, c), np.float64)
        check_array("counts", self.counts, (n, c), np.int64)
        if self.offsets[0] != 0 or self.offsets[-1] != total:
            raise BagError(
                f"offsets run from {self.offsets[0]} to {self.offsets[-1]}.",
                f"Let them run from 0 to the length of index, {total}.",
            )
        check_filled(self.sizes, self.ids)
        check_rows(self.index, self.offsets[1:], self.ids, self.n_rows)
        check_values(self.proportions, self.sizes, self.ids, self.classes)
        check_values(self.counts, self.sizes, self.ids, self.classes, counts=True)
        if self.labels is not None:
            check_array("labels", self.labels, (total,), np.int64)
            if self.labels.min() < 0 or self.labels.max() >= c:
                raise BagError(
                    f"labels run from {self.labels.min()} to {self.labels.max()}, "
                    f"but there are {count(c, 'class')}.",
                    f"Labels are positions in classes: let them lie between 0 and {c - 1}.",
                )

    @classmethod
    def from_rows(
        cls,
        x: Any,
        bag: Iterable[Hashable],
        proportions: Any = None,
        *,
        counts: bool = False,
        normalize: bool = False,
        classes: Iterable[Hashable] | None = None,
        labels: Iterable[Hashable] | None = None,
    ) -> Bags:
        """Build bags from one bag id per row of `x`.

        Parameters
        ----------
        x : array of shape (M, …), or a tuple of such arrays
            Kept as it is: a memory-mapped array stays on disk, a tensor a tensor.
        bag : sequence of M bag ids
            Anything hashable, in any order. Matched by position, not by a pandas index.
        proportions : DataFrame, mapping, array of shape (n, C) or None
            The table of proportions: a frame indexed by bag id with one column a class, a mapping
            from bag id to a sequence or to {class: value}, or an array if bag ids are the numbers
            of its rows. It orders the bags. Without a table the counts are those of `labels`, and
            bags come in the order of their first row.
        counts : bool
            Whether the table holds counts.
        normalize : bool
            Whether to divide each row of the table by its sum. Counts that do not sum to the
            size of the bag are then taken as proportions.
        classes : sequence of class names, optional
            Names the columns of a table without names, or orders those of a table with names.
        labels : sequence of M class names, optional
            The truth, for evaluation only.

        Examples
        --------
        >>> bags = Bags.from_rows(np.zeros((4, 1)), [7, 7, 3, 3], labels=["no", "yes", "no", "no"])
        >>> bags.ids, bags.classes, bags.counts.tolist()
        ((7, 3), ('no', 'yes'), [[1, 1], [2, 0]])
        """
        x = as_instances(x)
        keys, codes = factorize(bag, "bag id", count_rows(x))
        placed = keys, codes, np.arange(len(codes))
        return cls(x, *assemble(x, placed, proportions, counts, normalize, classes, labels))

    @classmethod
    def from_members(
        cls,
        x: Any,
        members: Mapping[Any, ArrayLike] | ArrayLike,
        proportions: Any = None,
        *,
        counts: bool = False,
        normalize: bool = False,
        classes: Iterable[Hashable] | None = None,
        labels: Iterable[Hashable] | None = None,
    ) -> Bags:
        """Build bags from the rows of `x` that each holds; a row may stand in several bags.

        Parameters
        ----------
        members : mapping from bag id to rows, or an array of shape (n, size) for bags 0 to n − 1
            Rows keep the order in which they are given.
        x, proportions, counts, normalize, classes, labels
            As in `Bags.from_rows`; `labels` has one entry per row of `x`.

        Examples
        --------
        >>> members, table = {"a": [0, 1, 2], "b": [2, 3]}, {"a": [2, 1], "b": [0, 2]}
        >>> bags = Bags.from_members(np.eye(4), members, table, counts=True)
        >>> bags.n_instances, bags.n_rows
        (5, 4)
        """
        x = as_instances(x)
        placed = read_members(members, count_rows(x))
        return cls(x, *assemble(x, placed, proportions, counts, normalize, classes, labels))

    @property
    def n_bags(self) -> int:
        """The number of bags, n."""
        return len(self.ids)

    @property
    def n_instances(self) -> int:
        """The number of instances in all bags, N; a row in two bags is two instances."""
        return len(self.index)

    @property
    def n_rows(self) -> int:
        """The number of rows of `x`, M."""
        return count_rows(self.x)

    @property
    def n_classes(self) -> int:
        """The number of classes, C."""
        return len(self.classes)

    @property
    def sizes(self) -> Ints:
        """The number of instances of each bag, of shape (n,)."""
        return np.diff(self.offsets)

    def rows(self, bag: int) -> Ints:
        """Give the rows of `x` that the bag at a position holds, without a copy."""
        bag = range(self.n_bags)[bag]
        return self.index[self.offsets[bag] : self.offsets[bag + 1]]

    def subset(self, bags: Any) -> Bags:
        """Give the bags at some positions: integers, a boolean mask or a slice.

        Examples
        --------
        >>> bags = Bags.from_members(np.eye(4), [[0, 1], [1, 2], [2, 3]], [[0.5, 0.5]] * 3)
        >>> bags.subset([2, 0]).ids, bags.subset([2, 0]).index.tolist()
        ((2, 0), [2, 3, 0, 1])
        """
        kept = np.atleast_1d(np.arange(self.n_bags)[bags])
        sizes = self.sizes[kept]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        position = np.arange(offsets[-1]) + np.repeat(self.offsets[kept] - offsets[:-1], sizes)
        return replace(
            self,
            index=self.index[position],
            offsets=offsets,
            proportions=self.proportions[kept],
            counts=self.counts[kept],
            ids=tuple(self.ids[i] for i in kept),
            labels=None if self.labels is None else self.labels[position],
        )

    def without_labels(self) -> Bags:
        """Give the same bags without the truth: what a method may see."""
        return replace(self, labels=None)

    def split(self, fraction: float, *, seed: int) -> Split:
        """Hold out a fraction of the bags, whole and at random, but at least one on each side.

        Examples
        --------
        >>> bags = Bags.from_members(np.eye(6), [[0, 1], [1, 2], [4, 5], [5, 0]], [[0.5, 0.5]] * 4)
        >>> train, held_out, overlap = bags.split(0.25, seed=0)
        >>> train.ids, held_out.ids
        ((0, 1, 3), (2,))
        >>> print(overlap)
        1 of 2 held-out rows (50.0%) also stand in training bags: results will flatter.
        """
        if not 0 < fraction < 1 or self.n_bags < 2:
            raise BagError(
                f"{count(self.n_bags, 'bag')} cannot be split to hold out {fraction:g} of them.",
                "Pass at least two bags and a fraction between 0 and 1.",
            )
        n_held_out = min(max(round(fraction * self.n_bags), 1), self.n_bags - 1)
        held_out = np.zeros(self.n_bags, dtype=bool)
        held_out[np.random.default_rng(seed).permutation(self.n_bags)[:n_held_out]] = True
        train, rest = self.subset(~held_out), self.subset(held_out)
        in_train, in_rest = (np.bincount(b.index, minlength=self.n_rows) > 0 for b in (train, rest))
        return Split(train, rest, Overlap(int((in_train & in_rest).sum()), int(in_rest.sum())))

    def describe(self) -> BagsSummary:
        """Summarise the bags, what rounding moved, and whether classes can be told apart.

        Examples
        --------
        >>> table = {"north": {"yes": 0.9, "no": 0.1}, "south": {"yes": 0.25, "no": 0.75}}
        >>> print(Bags.from_rows(np.eye(7), ["north"] * 3 + ["south"] * 4, table).describe())
        2 bags, 7 instances, 7 rows
        sizes     3 – 3.5 – 4 (least – median – most)
        rows      0 in several bags, 0 in none
        classes   yes 4 (57.1%) · no 3 (42.9%)
        rounding  moved 0.6 in all, 0.3 at most (bag 'north')
        truth     unknown
        The proportions differ between bags along 1 of 1 direction; the weakest has a spread of 0.66
        (bags of one class each: 1; bags filled at random: 0.54). Hardest to tell apart: yes, no.
        """
        return summarize(self)

    def __repr__(self) -> str:
        sizes = self.sizes
        truth = "unknown" if self.labels is None else "known"
        return (
            f"Bags({count(self.n_bags, 'bag')} of {sizes.min():,}–{np.median(sizes):,g}–"
            f"{sizes.max():,} instances, {self.n_instances:,} in all, from "
            f"{count(self.n_rows, 'row')}; {count(self.n_classes, 'class')}: "
            f"{listing(self.classes)}; truth {truth})"
        )


@dataclass(frozen=True)
class Overlap:
    """How many of the held-out rows also stand in training bags."""

    shared_rows: int
    held_out_rows: int

    def __str__(self) -> str:
        return (
            f"{self.shared_rows:,} of {count(self.held_out_rows, 'held-out row')} "
            f"({self.shared_rows / self.held_out_rows:.1%}) also stand in training bags"
            + (": results will flatter." if self.shared_rows else ".")
        )


class Split(NamedTuple):
    """Bags to train on, bags held out, and the rows that they share."""

    train: Bags
    held_out: Bags
    overlap: Overlap
