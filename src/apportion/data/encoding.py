"""Columns of a table learned, and applied: numbers as float32, categories as codes.

Learning takes one pass over the table, in pieces of any size.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Collection, Iterable
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.bags.columns import Columns
from apportion.bags.notation import decimal_of
from apportion.data._cells import (
    MOST,
    Rows,
    find_columns,
    has_texts,
    kind_of,
    numbers_written,
    read_dates,
    read_number,
    read_numbers,
    read_texts,
    unmixed,
)
from apportion.data._statistics import Statistics
from apportion.errors import DataError, Option, Words, and_more, count, suggestion

log = logging.getLogger("apportion")

Numbers = NDArray[np.float32]
Codes = NDArray[np.int16]

FEW = 64  # rows, whose numbers are encoded all at once


def learn_columns(
    frames: pd.DataFrame | Iterable[pd.DataFrame], keep: Collection[str] = ()
) -> Columns:
    """Learn the columns of a table.

    Columns of numbers and booleans are numeric, and so are those of dates, also of dates that are
    written as text: 2024-12-31, 31.12.2024 and 12/31/2024, if it is clear whether the day or the
    month comes first. Other columns of text are categorical, and so are pandas categoricals
    whatever their categories are. Categories are distinguished by their text. Columns that are
    empty or have one value in all rows are left out.

    Parameters
    ----------
    frames : DataFrame, or iterable of DataFrames
        The rows to learn from, or pieces of them, all of which have the same columns.
    keep : collection of column names
        Columns that are not left out.

    Raises
    ------
    DataError
        If a column is neither numbers nor text, or numbers in one piece and text in another,
        or occurs twice, or is infinite somewhere.

    Examples
    --------
    >>> pieces = (pd.DataFrame({"x": [k, k + 1]}) for k in (0, 2))
    >>> learn_columns(pieces).means
    {'x': 1.5}
    """
    statistics = Statistics(keep=keep)
    for frame in [frames] if isinstance(frames, pd.DataFrame) else frames:
        statistics.add(frame)
    return Columns(**statistics.fields())


def encode(
    columns: Columns, frame: pd.DataFrame, *, warn: bool = True, decimal: str | None = None
) -> Numbers | tuple[Numbers, Codes]:
    """Turn rows into arrays.

    Parameters
    ----------
    frame : DataFrame
        Its columns are found by their names, in any order; further ones are ignored.
    warn : bool
        Whether to warn of categories that were not learned, or only to log them.
    decimal : str, optional
        The decimal sign of numbers that are texts, in rows of a text or Excel file. Without it, as
        in a frame, texts are numbers only if they are percentages, as when they were learned.

    Returns
    -------
    ndarray of float32 of shape (n, F)
        If no column is categorical. Otherwise a tuple of it and of the codes, an ndarray of
        int16 of shape (n, K).

    Warns
    -----
    UserWarning
        If a column has categories that the rows learned from did not have: they count as missing.

    Raises
    ------
    DataError
        If a column is missing, or text where it was numbers, or infinite somewhere.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [30, None, 50], "job": ["cook", "nurse", "cook"]})
    >>> columns = learn_columns(frame)
    >>> columns
    Columns(1 numeric: age (with gaps); 1 categorical: job (2))
    >>> numbers, codes = encode(columns, frame)
    >>> numbers
    array([[30.,  0.],
           [40.,  1.],
           [50.,  0.]], dtype=float32)
    >>> codes.T
    array([[1, 2, 1]], dtype=int16)
    """
    n_rows = len(frame)
    numbers = np.empty((n_rows, columns.n_numbers), np.float32)
    codes = np.empty((n_rows, len(columns.categories)), np.int16)
    unseen = encode_into(columns, frame, np.arange(n_rows), numbers, codes, decimal)
    if unseen.rows and warn:
        warnings.warn(str(unseen), stacklevel=2)
    elif unseen.rows:
        log.info("%s", unseen)
    return (numbers, codes) if columns.categories else numbers


def encode_array(columns: Columns, values: NDArray[Any]) -> Numbers:
    """Turn rows of numbers, in the order of the columns, into an array as `encode` does.

    Examples
    --------
    >>> columns = learn_columns(pd.DataFrame({"x": [1.0, 3.0, None], "y": [0, 1, 2]}))
    >>> encode_array(columns, np.array([[np.nan, 7.0]]))
    array([[2., 7., 1.]], dtype=float32)
    """
    if (
        values.ndim == 2
        and len(values) <= FEW
        and values.dtype.kind in "biuf"
        and not columns.dates
        and not columns.percent
        and values.shape[1:] == (len(columns.names),)
    ):
        numbers = np.empty((len(values), columns.n_numbers), np.float32)
        if _encode_values(columns, values.astype(np.float64, copy=False), numbers):
            return numbers
    frame = pd.DataFrame(values, columns=list(columns.names), copy=False)
    return np.asarray(encode(columns, frame))


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

    def __str__(self) -> str:
        columns = (
            f"{name!r} in {count(n, 'row')} (such as {self.example[name]!r})"
            for name, n in self.rows.items()
        )
        return (
            "Some categories do not occur in the rows that the columns were learned from, and "
            f"count as missing: {', '.join(columns)}."
        )


def encode_into(
    columns: Columns,
    frame: pd.DataFrame,
    rows: Rows,
    numbers: Numbers,
    codes: Codes,
    decimal: str | None = None,
) -> Unseen:
    """Encode a frame into arrays of the same length. `rows` are the row numbers in errors."""
    places = _find(columns, frame)
    unseen, numeric = Unseen(), columns.numeric
    indicators = {name: len(numeric) + j for j, name in enumerate(columns.gaps)}
    few = len(frame) <= FEW and _encode_few(columns, frame, [places[n] for n in numeric], numbers)
    for j, name in enumerate(() if few else numeric):
        cells = frame.iloc[:, places[name]]
        values = _values(columns, name, cells, rows, decimal)
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
        codes[:, j] = code[number]  # a missing cell has number −1: the last code
        unknown = code[:-1] == 0
        if unknown.any() and name not in columns.left_out:  # rare ones were there
            n_rows = int(np.bincount(number[number >= 0], minlength=len(texts))[unknown].sum())
            unseen.add(name, n_rows, texts[int(unknown.argmax())])
    return unseen


def _values(
    columns: Columns, name: str, cells: pd.Series[Any], rows: Rows, decimal: str | None
) -> NDArray[np.float64]:
    """Return the values of a numeric column."""
    if name in columns.dates:
        cells = cells if decimal is None else unmixed(cells)
        days = read_dates(cells, columns.dates[name])
        if days is None:
            raise _not_dates(name, cells, rows, columns.dates[name])
        return days
    in_percent, percent = name in columns.percent, np.zeros(len(cells), np.bool_)
    if decimal is not None or in_percent:
        written = numbers_written(cells, "." if decimal is None else decimal, mixed=True)
        if written is not None:
            cells, percent = written.cells, written.percent
        elif has_texts(cells):
            raise _text_for_numbers(name, cells, rows, decimal)
    kind = kind_of(name, cells)
    if kind == "text" and cells.notna().any():
        raise _text_for_numbers(name, cells, rows, decimal)
    if kind == "dates":
        raise DataError(
            f"column {name!r} held numbers when it was learned, but holds dates now.",
            "Pass numbers, as when it was learned.",
        )
    values = read_numbers(name, cells, rows)
    if (wrong := ~np.isnan(values) & (percent != in_percent)).any():
        at = int(wrong.argmax())
        how = ("with", "without") if in_percent else ("without", "with")
        raise DataError(
            f"column {name!r} held numbers {how[0]} percent signs when it was learned, but "
            f"{values[at] * (1 if in_percent else 100):g} in row {rows[at]:,} (counted from 0) is "
            f"{how[1]} one.",
            "Write them as when it was learned: 45 % is 0.45, and 45 is 45.",
        )
    return values


def _encode_few(columns: Columns, frame: pd.DataFrame, places: list[int], numbers: Numbers) -> bool:
    """Encode the numeric columns of few rows all at once, if they are plain and fit in float32.

    Return whether they were. For one row, pandas takes longer to hand out a column than all the
    rest of a prediction; for many rows, a column at a time takes less memory.
    """
    if columns.dates or columns.percent:
        return False
    if places != list(range(frame.shape[1])):
        frame = frame.take(places, axis=1)
    if not all(isinstance(t, np.dtype) and t.kind in "biuf" for t in frame.dtypes.array):
        return False
    return _encode_values(columns, frame.to_numpy(dtype=np.float64), numbers)


def _encode_values(columns: Columns, values: NDArray[np.float64], numbers: Numbers) -> bool:
    values = values + 0.0  # not in place; see `read_numbers`
    if (np.abs(values) > MOST).any():
        return False
    missing = np.isnan(values)
    means = [columns.means[name] for name in columns.numeric]
    shifted = [name in columns.shifted for name in columns.numeric]
    if any(shifted):
        values -= np.where(shifted, means, 0.0)
    if missing.any():
        values = np.where(missing, np.where(shifted, 0.0, means), values)
    numbers[:, : len(means)] = values
    if columns.gaps:
        with_gaps = [columns.numeric.index(name) for name in columns.gaps]
        numbers[:, len(means) :] = missing[:, with_gaps]
    return True


def _find(columns: Columns, frame: pd.DataFrame) -> dict[str, int]:
    places = find_columns(frame)
    absent = [name for name in columns.names if name not in places]
    if absent:
        raise DataError(
            f"there is no column {absent[0]!r}, which the columns were learned with"
            f"{and_more(len(absent))}.",
            suggestion(absent[0], places),
        )
    if len(places) < frame.shape[1]:
        times = Counter(map(str, frame.columns))
        for name in columns.names:
            if times[name] > 1:
                raise DataError(
                    f"column {name!r} occurs {times[name]} times.",
                    "Rename or leave out all but the one that was learned.",
                )
    return places


def _not_dates(name: str, cells: pd.Series[Any], rows: Rows, order: str) -> DataError:
    known = np.flatnonzero(cells.notna()).tolist()
    at = next((k for k in known if read_dates(cells.iloc[[k]], order) is None), 0)
    read = f" ({order})" if order else ""
    return DataError(
        f"column {name!r} held dates{read} when it was learned, but row {rows[at]:,} (counted from "
        f"0) is {str(cells.iloc[at])!r}.",
        "Write dates as 2024-12-31, and leave cells empty whose value is not known.",
    )


def _text_for_numbers(
    name: str, cells: pd.Series[Any], rows: Rows, decimal: str | None
) -> DataError:
    known, sign = np.flatnonzero(cells.notna()).tolist(), "." if decimal is None else decimal
    odd = (k for k in known if not isinstance(cells.iloc[k], Real))
    at = next((k for k in odd if read_number(str(cells.iloc[k]), sign) is None), known[0])
    text = str(cells.iloc[at])
    remedy: Words = "Convert it to numbers, and leave cells empty whose value is not known."
    if decimal is not None and (own := decimal_of(text)) in (".", ","):
        remedy = ("Read its file with ", Option("decimal", repr(own), f"'{own}'"), ".")
    return DataError(
        f"column {name!r} held numbers when it was learned, but holds text now: "
        f"row {rows[at]:,} (counted from 0) is {text!r}.",
        remedy,
    )
