"""Tables as arrays: numbers as float32, categories as codes."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.data._cells import Rows, find_columns, kind_of, read_numbers, read_texts
from apportion.errors import DataError, suggestion

if TYPE_CHECKING:
    from apportion.data.columns import Columns

Numbers = NDArray[np.float32]
Codes = NDArray[np.int16]


class Unseen:
    """By column: how many rows have categories that were not learned, and one of these."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.example: dict[str, str] = {}

    def add(self, name: str, n_rows: int, example: str) -> None:
        """Add rows of one column."""
        self.rows[name] += n_rows
        self.example.setdefault(name, example)

    def update(self, other: Unseen) -> None:
        """Add those of another piece."""
        for name, n_rows in other.rows.items():
            self.add(name, n_rows, other.example[name])

    def warn(self, stacklevel: int) -> None:
        """Warn once, if there are any."""
        if not self.rows:
            return
        columns = [
            f"{name!r} in {n:,} row{'' if n == 1 else 's'} (such as {self.example[name]!r})"
            for name, n in self.rows.items()
        ]
        warnings.warn(
            "Some categories were not there when the columns were learned, and count as missing: "
            f"{', '.join(columns)}.",
            stacklevel=stacklevel + 1,
        )


def encode_into(
    columns: Columns, frame: pd.DataFrame, rows: Rows, numbers: Numbers, codes: Codes
) -> Unseen:
    """Write what a frame holds into arrays of as many rows. `rows` are their names in errors."""
    places = _find(columns, frame)
    unseen, n_numeric = Unseen(), len(columns.means)
    indicators = {name: n_numeric + j for j, name in enumerate(columns.gaps)}
    for j, name in enumerate(columns.numeric):
        cells = frame.iloc[:, places[name]]
        if kind_of(name, cells) == "text":
            raise _text_for_numbers(name, cells, rows)
        values = read_numbers(name, cells, rows)
        missing = np.isnan(values)
        numbers[:, j] = values - columns.means[name] if name in columns.shifted else values
        if missing.any():
            numbers[missing, j] = 0.0 if name in columns.shifted else columns.means[name]
        if name in indicators:
            numbers[:, indicators[name]] = missing
    for j, name in enumerate(columns.categorical):
        cells = frame.iloc[:, places[name]]
        kind_of(name, cells)  # numbers are found by their text, other types are refused
        number, texts = read_texts(cells)
        code_of = {text: code for code, text in enumerate(columns.categories[name], start=1)}
        code = np.array([*(code_of.get(text, 0) for text in texts), 0], dtype=np.int16)
        codes[:, j] = code[number]  # of a missing cell, whose number is −1, the last
        unknown = code[:-1] == 0
        if unknown.any() and name not in columns.left_out:  # rare ones were there, if unseen
            n_rows = int(np.bincount(number[number >= 0], minlength=len(texts))[unknown].sum())
            unseen.add(name, n_rows, texts[int(unknown.argmax())])
    return unseen


def _find(columns: Columns, frame: pd.DataFrame) -> dict[str, int]:
    places = find_columns(frame)
    absent = [name for name in columns.names if name not in places]
    if absent:
        more = f" (and {len(absent) - 1:,} more)" if len(absent) > 1 else ""
        raise DataError(
            f"column {absent[0]!r} is missing{more}: the columns were learned with it.",
            suggestion(absent[0], places),
        )
    if len(places) < frame.shape[1]:
        times = Counter(map(str, frame.columns))
        for name in columns.names:
            if times[name] > 1:
                raise DataError(
                    f"column {name!r} is there {times[name]} times.",
                    "Rename or leave out all but the one that was learned.",
                )
    return places


def _text_for_numbers(name: str, cells: pd.Series[Any], rows: Rows) -> DataError:
    known = cells.notna().to_numpy()
    bad = known & pd.to_numeric(cells.astype(object), errors="coerce").isna().to_numpy()
    at = int((bad if bad.any() else known).argmax())
    return DataError(
        f"column {name!r} was numbers when learned, but is text now: "
        f"row {rows[at]:,} (counted from 0) is {str(cells.iloc[at])!r}.",
        "Convert it with pd.to_numeric, and leave cells empty whose value is not known.",
    )
