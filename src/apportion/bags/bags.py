r"""Instances in bags whose class proportions are known.

Of bag :math:`B^i` only the share :math:`p^i_c` of every class c is known. Its whole-number form,
:math:`k^i = |B^i| p^i`, says how many instances of each class the bag holds; where
:math:`|B^i| p^i_c` is not whole, the *largest remainder* decides (`counts_from_proportions`).

All bags share one flat layout: bag i holds the rows ``index[offsets[i]:offsets[i + 1]]`` of ``x``.
That covers bags of unequal size, rows that stand in several bags and data that stay on disk,
without a copy. Building it sorts the N instances once. Everything is checked here and only here.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.bags.checks import (
    Floats,
    Ints,
    Names,
    check_array,
    check_filled,
    check_rows,
    check_unique,
    check_unmasked,
    check_values,
)
from apportion.bags.columns import Columns
from apportion.bags.counts import count_labels, largest_remainder
from apportion.bags.describe import BagsSummary, summarize
from apportion.bags.items import Items
from apportion.bags.names import canonical_order, sorted_names
from apportion.bags.notes import notes
from apportion.bags.read import (
    NOT_IN_TABLE,
    SKIP,
    Placed,
    Table,
    as_instances,
    by_bag,
    count_rows,
    factorize,
    locate,
    read_members,
)
from apportion.bags.rounding import rescaled
from apportion.bags.shards import shard_cuts
from apportion.bags.totals import without_totals
from apportion.errors import BagError, Words, count, listing

__all__ = ["UNKNOWN", "Bags", "Overlap", "Split", "held_out_bags", "put_in_bags"]


UNKNOWN = -1  # in place of a true label


@dataclass(frozen=True, eq=False)
class Bags:
    """Instances in bags with known class counts.

    Make one with `Bags.from_rows`, `Bags.from_members` or `Bags.from_dataset`. It has N instances,
    bag after bag; there are n bags, C classes and M rows of `x`.

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

    x: Any  # (M, …) the rows, never copied; a tuple if they have parts; Items if they are those of
    # a Dataset; None if only bags matter
    index: Ints  # (N,) bag after bag, the rows of x that each bag holds
    offsets: Ints  # (n + 1,) bag i is index[offsets[i]:offsets[i + 1]]
    proportions: Floats  # (n, C) as given; counts / size if counts were given
    counts: Ints  # (n, C) their whole-number form
    classes: tuple[Hashable, ...]  # names of the C classes
    ids: tuple[Hashable, ...]  # names of the n bags
    # (N,) true labels, as positions in `classes`, −1 where unknown; None if all of them are
    truth: Ints | None = None
    columns: Columns | None = None  # how a table became x, if it did

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
                f"They must run from 0 to the length of index, {total}.",
            )
        check_filled(self.sizes, self.ids)
        for part in self.x if isinstance(self.x, tuple) else (self.x,):
            check_unmasked("x", part)
        n_rows = None if self.x is None else self.n_rows
        check_rows(self.index, self.offsets[1:], self.ids, n_rows)
        proportions = rescaled(self.proportions, self.sizes, self.ids, self.classes)
        object.__setattr__(self, "proportions", proportions)
        check_values(self.counts, self.sizes, self.ids, self.classes, counts=True)
        if self.truth is not None:
            check_array("truth", self.truth, (total,), np.int64)
            if self.truth.min() < UNKNOWN or self.truth.max() >= c:
                raise BagError(
                    f"truth runs from {self.truth.min()} to {self.truth.max()}, "
                    f"but there are {count(c, 'class')}.",
                    f"It holds positions in classes, from 0 to {c - 1}, and −1 where it is "
                    "unknown.",
                )
            object.__setattr__(self, "truth", known_truth(self.truth))

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
        truth: Iterable[Hashable] | None = None,
        skip_unplaced: bool = False,
    ) -> Bags:
        """Build bags from one bag id per row of `x`.

        Parameters
        ----------
        x : array of shape (M, …), a tuple of such arrays, a sparse matrix, or None
            Kept as it is: a memory-mapped array stays on disk, a tensor a tensor, a matrix of
            scipy.sparse sparse (as CSR). None if only the bags matter.
        bag : sequence of M bag ids
            Anything hashable, in any order. Matched by position, not by a pandas index.
        proportions : frame, mapping, Series, array of shape (n, C) or None
            The table of proportions: a frame of pandas, polars or pyarrow with one column per
            class, and the bag ids in its index or in the column that has them; a mapping from bag
            id to a sequence or to {class: value}; a Series or a mapping from bag id to the share of
            the second of two classes; or an array if bag ids are the numbers of its rows. It orders
            the bags; those without rows are left out, and so are columns of totals. Without a table
            the counts are those of `truth`, and bags are in the order of their first row.
        counts : bool
            Whether the table holds counts.
        normalize : bool
            Whether the table sums to another constant than 1 or 100, or holds counts that do not
            sum to the sizes of the bags, to be taken as proportions. Sums that differ from 1, or
            from 100 in percentages, by no more than the rounding of their digits need no option.
        classes : sequence of class names, optional
            Names the columns of a table without names, or orders those of a table with names. The
            classes of a table of single shares are 0 and 1 by default.
        truth : sequence of M class names, optional
            The true classes, for evaluation only. They may be missing (None, NaN) for some rows.
        skip_unplaced : bool
            Whether rows without a bag, or of a bag that the table does not have, are left out of
            all bags.

        Examples
        --------
        >>> bags = Bags.from_rows(np.zeros((4, 1)), [7, 7, 3, 3], truth=["no", "yes", "no", "no"])
        >>> bags.ids, bags.classes, bags.counts.tolist()
        ((7, 3), ('no', 'yes'), [[1, 1], [2, 0]])
        """
        x = as_instances(x)
        n_rows = None if x is None else count_rows(x)
        missing: Words = ("Add the bag id of each of them, or pass ", SKIP, " to leave them out.")
        names, codes = factorize(bag, "bag id", n_rows, missing=None if skip_unplaced else missing)
        placed = Placed(names, codes)
        known = None if truth is None else factorize(truth, "label", len(codes), missing=None)
        how: dict[str, Any] = {"counts": counts, "normalize": normalize, "classes": classes}
        table = None if proportions is None else Table.read(proportions, classes, names)
        return put_in_bags(x, placed, table, truth=known, skip_unplaced=skip_unplaced, **how)

    @classmethod
    def from_members(
        cls,
        x: Any,
        members: Mapping[Any, ArrayLike] | Iterable[ArrayLike],
        proportions: Any = None,
        *,
        counts: bool = False,
        normalize: bool = False,
        classes: Iterable[Hashable] | None = None,
        truth: Iterable[Hashable] | None = None,
    ) -> Bags:
        """Build bags from the rows of `x` that each holds; a row may stand in several bags.

        Parameters
        ----------
        members : mapping from bag id to rows, or a sequence of the rows of bags 0 to n − 1
            Rows keep the order in which they are given.
        x, proportions, counts, normalize, classes, truth
            As in `Bags.from_rows`; `truth` has one entry per row of `x`.

        Examples
        --------
        >>> members, table = {"a": [0, 1, 2], "b": [2, 3]}, {"a": [2, 1], "b": [0, 2]}
        >>> bags = Bags.from_members(np.eye(4), members, table, counts=True)
        >>> bags.n_instances, bags.n_rows
        (5, 4)
        """
        x = as_instances(x)
        known = None
        if truth is not None:
            own = None if x is None else count_rows(x)
            known = factorize(truth, "label", own, missing=None)
        n_rows = count_rows(x) if x is not None else None if known is None else len(known[1])
        placed = read_members(members, n_rows)
        table = None if proportions is None else Table.read(proportions, classes, placed.keys)
        return put_in_bags(
            x, placed, table, counts=counts, normalize=normalize, classes=classes, truth=known
        )

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        bag: Iterable[Hashable],
        proportions: Any = None,
        *,
        evaluate: Any = None,
        inputs: int | Sequence[str] | None = None,
        counts: bool = False,
        normalize: bool = False,
        classes: Iterable[Hashable] | None = None,
        truth: Iterable[Hashable] | Literal["items"] | None = None,
    ) -> Bags:
        """Build bags from one bag id per item of a map-style Dataset, whose items are read lazily.

        Nothing is read here, except by ``truth="items"``. Training reads every item anew in every
        epoch, so that the Dataset's own random augmentation differs each time. What it draws from
        torch, numpy or Python is a function of the seed, the epoch and the batch, in any number of
        worker processes (``TrainConfig.workers``).

        Parameters
        ----------
        dataset : torch.utils.data.Dataset, or anything with a length and items by number
            An item is an instance: a tensor, an array or a number; a tuple of several parts, which
            a net takes as ``net(*parts)``; or a mapping, which it takes as ``net(**item)``. If the
            item is a tuple ``(x, y, …)``, the instance is x, and the rest is not used.
        bag : sequence of bag ids, one per item
        evaluate : Dataset, optional
            The same items without random augmentation. Confidences, from which labels are decided
            and errors measured, are computed of these. Without it they are computed of `dataset`,
            with the same random numbers every time.
        inputs : int or sequence of str, optional
            How many elements of a tuple are parts of the instance, or which entries of a mapping
            are. By default one element, and all entries but ``label``, ``labels`` and
            ``label_ids``.
        truth : sequence of class names, or "items", optional
            "items" reads every item once, and takes the y of ``(x, y)`` or the entry ``label``.
        proportions, counts, normalize, classes
            As in `Bags.from_rows`.

        Examples
        --------
        >>> dataset = [(np.full(2, i), i % 2) for i in range(4)]  # map-style: len() and dataset[i]
        >>> bags = Bags.from_dataset(dataset, ["a", "a", "b", "b"], {"a": [1, 1], "b": [0, 2]},
        ...                          counts=True)
        >>> bags
        Bags(2 bags of 2–2–2 instances, 4 in all, from 4 rows; 2 classes: 0, 1; truth unknown)
        """
        items = Items(dataset, evaluate, inputs)
        known: Any = items.truth() if isinstance(truth, str) and truth == "items" else truth
        about: dict[str, Any] = {"counts": counts, "normalize": normalize, "classes": classes}
        return cls.from_rows(items, bag, proportions, **about, truth=known)

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
        """The number of rows of `x`, M; without x, one more than the last row in a bag."""
        return int(self.index.max()) + 1 if self.x is None else count_rows(self.x)

    @property
    def n_classes(self) -> int:
        """The number of classes, C."""
        return len(self.classes)

    @property
    def sizes(self) -> Ints:
        """The number of instances of each bag, of shape (n,)."""
        return np.diff(self.offsets)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The arrays that `x` consists of.

        Raises
        ------
        BagError
            If the bags have no rows.
        """
        if self.x is None:
            raise BagError(
                f"x is None: only how {count(self.n_rows, 'row')} are put in bags is known.",
                "Add the rows: bags.with_rows(x).",
            )
        if isinstance(self.x, Items):
            return self.x.parts
        return self.x if isinstance(self.x, tuple) else (self.x,)

    def distinct(self) -> Ints:
        """Return the rows of `x` that stand in bags, each once, in their order.

        Examples
        --------
        >>> Bags.from_members(np.eye(4), [[3, 1], [1, 0]], [[0.5, 0.5]] * 2).distinct()
        array([0, 1, 3])
        """
        in_bags = np.zeros(int(self.index.max(initial=-1)) + 1, bool)
        in_bags[self.index] = True
        return np.flatnonzero(in_bags)

    def rows(self, bag: int) -> Ints:
        """Return the rows of `x` that the bag at a position holds, without a copy."""
        bag = range(self.n_bags)[bag]
        return self.index[self.offsets[bag] : self.offsets[bag + 1]]

    def positions(self, bags: Ints) -> Ints:
        """Return the positions in `index` of the instances of some bags, bag after bag."""
        sizes = self.sizes[bags]
        starts = np.cumsum(sizes) - sizes
        positions: Ints = np.arange(sizes.sum()) + np.repeat(self.offsets[bags] - starts, sizes)
        return positions

    def __getitem__(self, positions: Any) -> Bags:
        """Return the bags at some positions: integers, a boolean mask or a slice; never ids.

        Examples
        --------
        >>> bags = Bags.from_members(np.eye(4), [[0, 1], [1, 2], [2, 3]], [[0.5, 0.5]] * 3)
        >>> bags[[2, 0]].ids, bags[[2, 0]].index.tolist()
        ((2, 0), [2, 3, 0, 1])
        """
        kept = np.atleast_1d(np.arange(self.n_bags)[positions])
        if not len(kept):
            raise BagError("0 of the bags are chosen.", "Choose at least one.")
        check_unique(kept.tolist(), "position")
        place = self.positions(kept)
        return self._changed(
            index=self.index[place],
            offsets=np.concatenate([[0], np.cumsum(self.sizes[kept])]),
            proportions=self.proportions[kept],
            counts=self.counts[kept],
            ids=tuple(self.ids[i] for i in kept),
            truth=None if self.truth is None else known_truth(self.truth[place]),
        )

    def shard(self, rank: int, world: int) -> Bags:
        """Return one of several runs of consecutive bags, of about as many instances, as a view.

        It may hold no bags at all, which no other `Bags` does.

        Examples
        --------
        >>> bags = Bags.from_rows(None, list("aabccc"), truth=[0, 1, 0, 1, 1, 0])
        >>> [bags.shard(rank, 2).ids for rank in range(2)]
        [('a', 'b'), ('c',)]
        """
        first, last = shard_cuts(self.offsets, world)[rank : rank + 2].tolist()
        rows = slice(self.offsets[first], self.offsets[last])
        return self._changed(
            index=self.index[rows],
            offsets=self.offsets[first : last + 1] - self.offsets[first],
            proportions=self.proportions[first:last],
            counts=self.counts[first:last],
            ids=self.ids[first:last],
            truth=None if self.truth is None else self.truth[rows],
        )

    def with_rows(self, x: Any, columns: Columns | None = None) -> Bags:
        """Return the same bags of other rows, as many or more.

        Examples
        --------
        >>> bags = Bags.from_rows(None, ["a", "a", "b"], {"a": [1, 1], "b": [0, 1]}, counts=True)
        >>> bags.with_rows(np.eye(3)).x.shape
        (3, 3)
        """
        x = as_instances(x)
        check_rows(self.index, self.offsets[1:], self.ids, count_rows(x))
        return self._changed(x=x, columns=columns)

    def without_truth(self) -> Bags:
        """Return the same bags without the truth: what a method may see."""
        return self._changed(truth=None)

    def _changed(self, **fields: Any) -> Bags:
        """Return a copy with other fields, which follow from checked ones: no check is needed."""
        made = copy.copy(self)
        for name, value in fields.items():
            object.__setattr__(made, name, value)
        return made

    def split(self, fraction: float, *, seed: int) -> Split:
        """Hold out a fraction of the bags, whole and at random, but at least one on each side.

        Which they are depends on their names and the seed, and not on the order of the bags.

        Examples
        --------
        >>> bags = Bags.from_members(np.eye(6), [[0, 1], [1, 2], [4, 5], [5, 0]], [[0.5, 0.5]] * 4)
        >>> train, held_out, overlap = bags.split(0.25, seed=0)
        >>> train.ids, held_out.ids
        ((0, 1, 3), (2,))
        >>> print(overlap)
        1 of 2 held-out rows (50.0%) also stand in training bags: results will look too good.
        """
        held_out = held_out_bags(self.ids, fraction, seed=seed)
        train, rest = self[~held_out], self[held_out]
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
        if not self.n_bags:  # of a shard
            return "Bags(0 bags)"
        sizes = self.sizes
        truth = "unknown" if self.truth is None else "known"
        if self.truth is not None and (n := int((self.truth >= 0).sum())) < len(self.truth):
            truth = f"known for {count(n, 'instance')}"
        return (
            f"Bags({count(self.n_bags, 'bag')} of {sizes.min():,}–{np.median(sizes):,g}–"
            f"{sizes.max():,} instances, {self.n_instances:,} in all, from "
            f"{count(self.n_rows, 'row')}; {count(self.n_classes, 'class')}: "
            f"{listing(self.classes)}; truth {truth})"
        )


def held_out_bags(ids: Names, fraction: float, *, seed: int) -> NDArray[np.bool_]:
    """Draw which bags are held out: a fraction of them, but at least one on each side.

    They depend on the names of the bags and on the seed, but not on the order of the bags.
    """
    n_bags = len(ids)
    if not 0 < fraction < 1 or n_bags < 2:
        raise BagError(
            f"{count(n_bags, 'bag')} cannot be split to hold out {fraction:g} of them.",
            "Pass at least two bags and a fraction between 0 and 1.",
        )
    n_held_out = min(max(round(fraction * n_bags), 1), n_bags - 1)
    held_out = np.zeros(n_bags, dtype=bool)
    drawn = np.random.default_rng(seed).permutation(n_bags)[:n_held_out]
    held_out[canonical_order(ids)[drawn]] = True
    return held_out


def known_truth(truth: Ints) -> Ints | None:
    """Return true labels; None if all of them are unknown."""
    return truth if (truth >= 0).any() else None


def put_in_bags(
    x: Any,
    placed: Placed,
    table: Table | None,
    *,
    counts: bool = False,
    normalize: bool = False,
    classes: Iterable[Hashable] | None = None,
    truth: tuple[Names, Ints] | None = None,
    skip_unplaced: bool | None = None,
) -> Bags:
    """Build bags from the bag of every instance, and from the proportions of the bags.

    Parameters
    ----------
    table : Table, optional
        Orders the bags; those without instances are left out. Without it the classes are counted
        from `truth`.
    truth : names and codes, optional
        The class of row j of x is ``names[codes[j]]``, or unknown if the code is −1.
    skip_unplaced : bool, optional
        Whether instances without a bag, or of a bag that the table does not have, are left out. If
        it is None, the caller has no such option.
    """
    if table is None and truth is None:
        raise BagError(
            "neither proportions nor truth are given.",
            "Pass a table of proportions, or the truth to count the classes of every bag.",
        )
    ids = placed.keys if table is None else table.ids
    if skip_unplaced:
        placed = _without_unplaced(placed, ids)
    remedy: Words = NOT_IN_TABLE
    if skip_unplaced is not None:
        remedy = ("Add it to the table, or pass ", SKIP, " to leave its rows out.")
    bag = placed.at(ids, remedy)
    sizes = np.bincount(bag, minlength=len(ids))
    if table is not None and not sizes.all():
        kept = np.flatnonzero(sizes)
        table = table.with_rows(sizes)
        ids, bag, sizes = table.ids, np.cumsum(sizes > 0)[bag] - 1, sizes[kept]
    if table is not None:
        table = without_totals(table, sizes)
    order = by_bag(bag, len(ids))
    index = order if placed.rows is None else placed.rows[order]
    names = _classes_of(table, truth, classes)
    known = None
    if truth is not None:
        to_correct = "Add the class to the table and to classes, or correct the label."
        known = known_truth(locate(*truth, names, "label", to_correct)[index])
        if table is not None:
            _say_known(known, len(index))
    if table is None:
        values, counts = _counted(known, sizes, len(names), ids).astype(np.float64), True
    else:
        values = table.values.copy()
    if counts and not normalize:
        check_values(values, sizes, ids, names, counts=True)
        whole = values.astype(np.int64)
        values /= sizes[:, None]
    else:
        digits = None if table is None else table.digits
        how = {"normalize": normalize, "counts": counts, "percentages": True}
        values = rescaled(values, sizes, ids, names, digits=digits, **how)
        whole = largest_remainder(values, sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Bags(x, index, offsets, values, whole, tuple(names), tuple(ids), known)


def _classes_of(
    table: Table | None, truth: tuple[Names, Ints] | None, classes: Iterable[Hashable] | None
) -> list[Hashable]:
    if table is not None:
        return list(table.classes)
    assert truth is not None
    return sorted_names(truth[0]) if classes is None else list(classes)


def _without_unplaced(placed: Placed, ids: Names) -> Placed:
    found = placed.among(ids)
    left_out = len(placed.codes) - len(found.codes)
    if left_out:
        notes.info("%s in no known bag: left out.", count(left_out, "row"))
    if not len(found.codes):
        raise BagError(
            f"none of {count(left_out, 'row')} is in a known bag.",
            f"known: {listing(map(repr, ids))}",
            "Add the bags of the rows, or correct their names.",
        )
    return found


def _say_known(truth: Ints | None, n_instances: int) -> None:
    n_known = 0 if truth is None else int((truth >= 0).sum())
    if n_known < n_instances:
        notes.info(
            "The truth is known for %s of %s: accuracies are over these alone.",
            f"{n_known:,}",
            count(n_instances, "instance"),
        )


def _counted(truth: Ints | None, sizes: Ints, n_classes: int, ids: Names) -> Ints:
    """Count the classes of every bag, all of whose labels must be known."""
    unknown = np.ones(int(sizes.sum()), bool) if truth is None else truth < 0
    if unknown.any():
        first = int(np.searchsorted(np.cumsum(sizes), int(unknown.argmax()), side="right"))
        raise BagError(
            f"the label of {count(int(unknown.sum()), 'row')} is missing, the first of them in bag "
            f"{ids[first]!r}, and the classes of a bag are counted from its labels.",
            "Add the labels, pass a table of proportions, or leave these rows out.",
        )
    assert truth is not None
    return count_labels(truth, sizes, n_classes)


@dataclass(frozen=True)
class Overlap:
    """The number of held-out rows that also stand in training bags."""

    shared_rows: int
    held_out_rows: int

    def __str__(self) -> str:
        return (
            f"{self.shared_rows:,} of {count(self.held_out_rows, 'held-out row')} "
            f"({self.shared_rows / self.held_out_rows:.1%}) also stand in training bags"
            + (": results will look too good." if self.shared_rows else ".")
        )


class Split(NamedTuple):
    """Bags to train on, bags held out, and the rows that they share."""

    train: Bags
    held_out: Bags
    overlap: Overlap
