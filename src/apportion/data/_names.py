"""Names that stand in the rows of a table, such as those of bags: which, and where."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.bags.names import as_written
from apportion.data._cells import Rows
from apportion.errors import DataError


class Names:
    """The distinct names in a column, by their first rows, and the number of each row's name."""

    def __init__(self, source: str, column: str, what: str, *, from_csv: bool) -> None:
        self.source, self.column, self.what, self.from_csv = source, column, what, from_csv
        self.numbers: dict[Any, int] = {}
        self.first_rows: list[int] = []
        self._pieces: list[NDArray[np.int32]] = []

    def add(self, cells: pd.Series[Any], rows: Rows) -> NDArray[np.int32]:
        """Add a piece of the column, and give the number of each of its names."""
        codes, distinct = pd.factorize(cells)
        if (codes < 0).any():
            first = rows[int((codes < 0).argmax())]
            raise DataError(
                f"{self.source}: row {first:,} (counted from 0) has no {self.what}: "
                f"its cell in column {self.column!r} is empty.",
                f"Fill it in, or leave such rows out. In a .csv file, a {self.what} that is "
                "called NA, None or the like is read as missing: give it another name.",
            )
        # The first row of each, from behind, so that the first one stays.
        firsts = np.empty(len(distinct), np.int64)
        firsts[codes[::-1]] = rows[::-1]
        number = np.empty(len(distinct), np.int32)
        for k, name in enumerate(distinct.tolist()):
            known = self.numbers.setdefault(name, len(self.numbers))
            if known == len(self.first_rows):
                self.first_rows.append(int(firsts[k]))
            number[k] = known
        return number[codes]

    def keep(self, numbers: NDArray[np.int32]) -> None:
        """Keep the numbers of rows for `all_rows`."""
        self._pieces.append(numbers)

    @property
    def all_rows(self) -> NDArray[np.int32]:
        """The numbers of all rows that were kept."""
        return np.concatenate([np.empty(0, np.int32), *self._pieces])

    @property
    def names(self) -> list[Hashable]:
        """The distinct names; as numbers where a CSV file has nothing else."""
        found = list(self.numbers)
        return as_written(found) if self.from_csv else found
