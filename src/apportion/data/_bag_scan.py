"""The first pass over a table: its columns, and the bag and the label of every row."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.bags.columns import Columns
from apportion.bags.names import Register
from apportion.data._cells import Rows
from apportion.data._column_statistics import Statistics
from apportion.data._names import Names
from apportion.data._pieces import Pieces, naming
from apportion.data.proportions import BagTable
from apportion.errors import DataError, suggestion

log = logging.getLogger("apportion")


class Scan:
    """What a first pass finds in a table, whose bags stand in another one if it is given."""

    def __init__(self, source: Pieces, bag: str, label: str | None, table: BagTable | None) -> None:
        self.source, self.bag, self.label, self.table = source, bag, label, table
        self.as_text = {bag} if label is None else {bag, label}  # read as it stands in a CSV file
        self.register = Register(()) if table is None else Register(table.ids)

    def learn(self, features: list[str], columns: Columns | None) -> Columns:
        """Read the table once, and learn its columns if none are given."""
        if columns is not None:
            self.as_text.update(columns.categorical)
            for _ in self._pieces([]):
                pass
            return columns
        while True:
            statistics = Statistics()
            try:
                for frame, rows in self._pieces(features):
                    with naming(self.source.source):
                        statistics.add(frame, rows, features)
                with naming(self.source.source):
                    return Columns(**statistics.fields())
            except DataError:
                # What a column of a CSV file holds is known only once all of it is read.
                mixed = statistics.mixed
                if mixed is None or not self.source.is_csv or mixed in self.as_text:
                    raise
                self.as_text.add(mixed)
                log.info("%s: column %r is read as text", self.source.source, mixed)

    def _pieces(self, features: list[str]) -> Iterator[tuple[pd.DataFrame, Rows]]:
        """Give the rows of the bags that are wanted, and keep what bags and labels they have."""
        name, is_csv = self.source.source, self.source.is_csv
        more = f", and learning {len(features)} columns" if features else ""
        log.info("%s: reading the bags of all rows%s", name, more)
        self.bags = Names(name, self.bag, "bag", from_csv=is_csv)
        self.labels = Names(name, self.label or "", "label", from_csv=is_csv)
        self.n_rows, self.n_kept = 0, 0
        self.place: list[int] = []  # in the table, of every bag of `bags`
        wanted = [*features, self.bag, *(() if self.label is None else (self.label,))]
        for first, piece in self.source.read(wanted, self.as_text):
            rows = np.arange(first, first + len(piece))
            bags, frame = self.bags.add(piece[self.bag], rows), piece
            self._find_new_bags()
            kept = self.kept(bags)
            if kept is not None:
                frame, rows = piece[kept], rows[kept]
            self.bags.keep(bags)
            if self.label is not None:
                self.labels.keep(self.labels.add(frame[self.label], rows))
            self.n_rows += len(piece)
            self.n_kept += len(frame)
            yield frame, rows
        if not self.n_rows:
            raise DataError(f"{name} has 0 rows below its names.", "Pass a table with rows.")
        self._check_filled()

    def kept(self, bags: NDArray[np.int32]) -> NDArray[np.bool_] | None:
        """Say which rows are in bags that are wanted, by the numbers of their bags."""
        if self.table is None or self.table.kept is None:
            return None
        mask: NDArray[np.bool_] = self.table.kept[self.place][bags]
        return mask

    def _find_new_bags(self) -> None:
        if self.table is None:
            return
        known = len(self.place)
        for name, row in zip(
            islice(self.bags.numbers, known, None), self.bags.first_rows[known:], strict=True
        ):
            place = self.register.place(name)
            if place is None:
                raise self._unknown_bag(name, row, self.table)
            self.place.append(place)

    def _check_filled(self) -> None:
        """Check that every bag of the table that is wanted has rows."""
        if self.table is None:
            return
        wanted = self.table.kept
        empty = np.ones(len(self.table.ids), bool) if wanted is None else wanted.copy()
        empty[self.place] = False
        if empty.any():
            more = int(empty.sum()) - 1
            raise DataError(
                f"bag {self.table.ids[int(empty.argmax())]!r} of {self.table.source} has 0 rows in "
                f"{self.source.source}{f' (and {more:,} more like it)' if more else ''}.",
                "Leave the bag out of the one table, or add its rows to the other.",
            )

    def _unknown_bag(self, name: Any, row: int, table: BagTable) -> DataError:
        known = list(table.ids)
        problem = (
            f"{self.source.source}: row {row:,} (counted from 0) is in bag {name!r}, which is not "
            f"in {table.source}."
        )
        close = difflib.get_close_matches(str(name), map(str, known[:1000]), n=1)
        meant = f"Did you mean {close[0]!r}? " if close else ""
        return DataError(
            problem,
            f"{meant}It has {len(known):,} bags, such as {known[0]!r}.",
            "Add the bag to that table, or leave its rows out of this one.",
        )

    def truth(self, classes: tuple[Hashable, ...]) -> NDArray[np.int64]:
        """Give the place among the classes of the label of every row that is kept."""
        known = Register(classes)
        codes = []
        for name, row in zip(self.labels.names, self.labels.first_rows, strict=True):
            code = known.place(name)
            if code is None:
                raise DataError(
                    f"{self.source.source}: row {row:,} (counted from 0) has label {name!r}, "
                    f"which is none of the {len(classes):,} classes.",
                    suggestion(str(name), map(str, classes)),
                )
            codes.append(code)
        found: NDArray[np.int64] = np.array(codes, np.int64)[self.labels.all_rows]
        return found
