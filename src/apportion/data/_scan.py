"""A pass over the rows of a table: the bag and the label of every row, and its columns."""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.bags.columns import Columns
from apportion.bags.names import Register, as_written
from apportion.bags.read import SKIP
from apportion.data._cells import Rows
from apportion.data._named import other_zeros
from apportion.data._statistics import Statistics
from apportion.data.pieces import Pieces, naming
from apportion.data.proportions import BagTable
from apportion.errors import DataError, Option, count, suggestion

log = logging.getLogger("apportion")

Ints = NDArray[np.int64]


LEAVE_OUT = (
    "Convert it to numbers, dates or text, or leave it out (",
    Option("columns", "[…]"),
    ").",
)


class Names:
    """The names in a column, read piece by piece and stored as numbers.

    Numbers are positions among the names of a table, or else by the order of appearance.
    """

    def __init__(
        self,
        source: Pieces,
        column: str,
        what: str,
        table: BagTable | None,
        *,
        may_miss: bool = False,
    ) -> None:
        self.source, self.column, self.what, self.table = source, column, what, table
        self.may_miss = may_miss  # names that are missing or not in the table have number −1
        self.register = None if table is None else Register(table.ids)
        self.numbers: dict[Any, int] = {}
        self.first_rows: dict[Any, int] = {}
        self.taken: set[int] = set()
        self.pieces: list[NDArray[np.int32]] = []

    def add(self, cells: pd.Series[Any], rows: Rows) -> NDArray[np.int32]:
        """Add a piece of the column, and return the number of each of its cells."""
        codes, distinct = pd.factorize(cells)
        if (codes < 0).any() and not self.may_miss:
            first = rows[int((codes < 0).argmax())]
            renamed = f"a {self.what} called NA, None or similar is read as missing: rename it."
            raise DataError(
                f"{self.source.source}: row {first:,} (counted from 0) has no {self.what}: "
                f"its cell in column {self.column!r} is empty.",
                (
                    "Fill it in, or pass ",
                    SKIP,
                    f" to leave such rows out. In a text file, {renamed}",
                ),
            )
        firsts = np.empty(len(distinct) + 1, np.int64)
        firsts[codes[::-1]] = rows[::-1]  # backwards, so that the first row of each stays
        number = np.full(len(distinct) + 1, -1, np.int32)  # the last one is of missing names
        for k, name in enumerate(distinct.tolist()):
            if name not in self.numbers:
                place = self._place(name)
                if place is None and self.may_miss:
                    continue
                if place is None:
                    raise self._unknown(name, int(firsts[k]))
                self.numbers[name] = place
                self.first_rows[name] = int(firsts[k])
            number[k] = self.numbers[name]
        self.pieces.append(number[codes])
        return self.pieces[-1]

    def _place(self, name: Any) -> int | None:
        if self.register is None:
            return len(self.numbers)
        return self.register.take(name, self.taken)  # of "7" and "7.0" only one can be bag 7

    def _unknown(self, name: Any, row: int) -> DataError:
        assert self.table is not None
        return DataError(
            f"{self.source.source}: row {row:,} (counted from 0) is in bag {name!r}, which is not "
            f"in {self.table.source}.",
            suggestion(str(name), map(str, self.table.ids)),
            *other_zeros(name, self.table.ids),
            ("Add the bag to that table, or pass ", SKIP, " to leave its rows out of this one."),
        )

    def check_among(self, classes: Sequence[Hashable]) -> None:
        """Check that all names are those of classes."""
        known = Register(classes)
        for name, row in self.first_rows.items():
            if known.place(name) is None:
                raise DataError(
                    f"{self.source.source}: row {row:,} (counted from 0) has {self.what} {name!r}, "
                    f"which is none of {count(len(classes), 'class')}.",
                    suggestion(str(name), map(str, classes)),
                )

    @property
    def all_rows(self) -> Ints:
        """The numbers of all rows."""
        return np.concatenate([np.empty(0, np.int64), *self.pieces]).astype(np.int64)

    @property
    def names(self) -> list[Hashable]:
        """The distinct names by their numbers; of a CSV file as numbers, if all of them are."""
        found = list(self.numbers)
        return as_written(found) if self.source.is_csv else found


class Scan:
    """The bags, the labels and the columns that a pass over a table finds."""

    def __init__(
        self,
        source: Pieces,
        bag: str,
        label: str | None,
        table: BagTable | None,
        *,
        skip_unplaced: bool = False,
        keep: Collection[str] = (),
    ) -> None:
        self.source, self.bag, self.label, self.table = source, bag, label, table
        self.skip_unplaced, self.keep = skip_unplaced, keep
        self.as_text = {bag} if label is None else {bag, label}  # read as text in a CSV file

    def read(
        self, features: list[str], training: NDArray[np.bool_] | None = None
    ) -> Columns | None:
        """Read the table once: the bags of all rows, and the columns of the training rows.

        Parameters
        ----------
        features : list of str
            The columns to learn; if there are none, nothing is learned.
        training : array of bool, optional
            Which bags the columns are learned from; by default all.
        """
        while True:
            how: dict[str, Any] = {"in_sheet": not self.source.is_csv, "keep": self.keep}
            statistics = Statistics(LEAVE_OUT, self.source.decimal, **how)
            try:
                return self._read(features, training, statistics)
            except DataError:
                # What a column of a text or Excel file holds is known once all of it is read.
                mixed = statistics.mixed
                if mixed is None or self.source.decimal is None or mixed in self.as_text:
                    raise
                self.as_text.add(mixed)
                log.info("%s: column %r is read as text", self.source.source, mixed)

    def _read(
        self, features: list[str], training: NDArray[np.bool_] | None, statistics: Statistics
    ) -> Columns | None:
        name = self.source.source
        more = f", and learning {count(len(features), 'column')}" if features else ""
        log.info("%s: reading the bags of all rows%s", name, more)
        self.bags = Names(self.source, self.bag, "bag", self.table, may_miss=self.skip_unplaced)
        self.labels = Names(self.source, self.label or "", "label", None, may_miss=True)
        self.n_rows = 0
        for first, piece in self.source.read([*features, *self.as_text], self.as_text):
            rows = np.arange(first, first + len(piece))
            self.n_rows += len(piece)
            bags = self.bags.add(piece[self.bag], rows)
            if self.label is not None:
                self.labels.add(piece[self.label], rows)
            if not features:
                continue
            with naming(name):
                kept = bags >= 0 if training is None else np.append(training, False)[bags]
                if not kept.all():
                    piece, rows = piece[kept], rows[kept]
                statistics.add(piece, rows, features, self.as_text)
        if not features or (self.table is not None and not statistics.n_rows and self.n_rows):
            return None  # all rows may be in bags that are held out
        with naming(name):
            return Columns(**statistics.fields())

    def sizes(self) -> Ints:
        """Return the number of rows of every bag of the table."""
        assert self.table is not None
        placed = self.bags.all_rows
        return np.bincount(placed[placed >= 0], minlength=len(self.table.ids))
