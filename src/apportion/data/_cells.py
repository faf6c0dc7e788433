"""The cells of one column: whether they are numbers or texts, and their values."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from apportion.bags.notation import decimal_of, is_ordered, parse_date, parse_number
from apportion.errors import DataError, Words

Kind = Literal["numbers", "dates", "text"]
# The number of each row of a frame in its table, counted from 0.
Rows = NDArray[np.int64]

LEAVE_OUT = "Convert it to numbers, dates or text, or leave it out."
DATES = ("date", "datetime", "datetime64")
DAY = pd.Timedelta(days=1)
MOST = float(np.finfo(np.float32).max)
BOOLEANS = {"TRUE": "1", "FALSE": "0"}  # as pandas reads them, in any case of letters
NUMBERS = ("integer", "floating", "boolean", "mixed-integer-float", "decimal", "time")


def find_columns(frame: Any) -> dict[str, int]:
    """Return the place of every column by its name, as text; of several the last."""
    if not isinstance(frame, pd.DataFrame):
        raise DataError(
            f"the table is a {type(frame).__name__}, whose columns have no names.",
            "Pass a pandas DataFrame: pd.DataFrame(array, columns=names).",
        )
    return {str(name): place for place, name in enumerate(frame.columns)}


def check_distinct(names: Iterable[Any]) -> None:
    seen: set[str] = set()
    for name in map(str, names):
        if name in seen:
            raise DataError(
                f"column {name!r} occurs more than once.",
                "Every column must have a name of its own: rename or remove one in the table.",
            )
        seen.add(name)


def kind_of(name: str, cells: pd.Series[Any], remedy: Words = LEAVE_OUT) -> Kind | None:
    """Return what a column holds; None if it has no values that would tell."""
    dtype, found = cells.dtype, ""
    if isinstance(dtype, (pd.CategoricalDtype, pd.StringDtype)) or dtype.kind == "U":
        return "text"
    if isinstance(dtype, pd.ArrowDtype):
        own = dtype.pyarrow_dtype
        if pa.types.is_dictionary(own):
            return "text"
        if pa.types.is_null(own):
            return None
        if pa.types.is_date(own):
            return "dates"
        if pa.types.is_decimal(own) or pa.types.is_time(own):
            return "numbers"
    if dtype.kind == "M":
        return None if cells.isna().all() else "dates"
    if dtype.kind in "biufm":
        return None if cells.isna().all() else "numbers"
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        found = pd.api.types.infer_dtype(cells, skipna=True)
        if found in NUMBERS:
            return "numbers"
        if found in DATES:
            return "dates"
        if found in ("string", "empty"):
            return "text" if found == "string" else None
    raise DataError(
        f"column {name!r} is of type {dtype}{f' ({found})' if found else ''}, "
        "which is neither numbers, nor dates, nor text.",
        remedy,
    )


def read_numbers(name: str, cells: pd.Series[Any], rows: Rows) -> NDArray[np.float64]:
    """Return the values, with NaN for a missing one; each of the others fits in float32.

    Those of durations, and of times of day, are days.
    """
    if cells.dtype.kind == "m":
        cells = cells.dt.total_seconds() / 86400
    elif cells.dtype.kind == "O":
        cells = cells.astype(object).map(_days_of_time, na_action="ignore")
    # Where floats stand below whole numbers, pandas reads "-0" as −0, and otherwise as 0.
    values: NDArray[np.float64] = cells.to_numpy(dtype=np.float64, na_value=np.nan) + 0.0
    outside = np.abs(values) > MOST
    if outside.any():
        first = int(outside.argmax())
        raise DataError(
            f"column {name!r} is {values[first]:g} in row {rows[first]:,} "
            f"(rows are counted from 0), and in {outside.sum():,} of {len(values):,} in all.",
            f"Numbers lie between ±{MOST:.2g}: leave the cell empty if the value is not known.",
        )
    return values


def _days_of_time(cell: Any) -> Any:
    """Return a time of day as a part of it, and another cell unchanged."""
    if not isinstance(cell, datetime.time):
        return cell
    seconds = 3600 * cell.hour + 60 * cell.minute + cell.second + 1e-6 * cell.microsecond
    return seconds / 86400


def read_dates(cells: pd.Series[Any], order: str = "") -> NDArray[np.float64] | None:
    """Return days since 1970-01-01, with NaN for a missing date; None if one is no date.

    Parameters
    ----------
    order : "day first" or "month first", or "" if texts such as 3/4/2024 are no dates.
    """
    kind = kind_of("", cells) if len(cells) else None
    if kind is None:
        return np.full(len(cells), np.nan)
    if kind == "dates":
        days = (pd.to_datetime(cells, utc=True) - pd.Timestamp(0, tz="UTC")) / DAY
        return np.asarray(days.to_numpy(dtype=np.float64, na_value=np.nan), np.float64)
    if kind == "numbers":
        return None
    codes, texts = read_texts(cells)
    found = [None if not order and is_ordered(t) else parse_date(t, order) for t in texts]
    if any(days is None for days in found):
        return None
    return np.array([*found, np.nan], dtype=np.float64)[codes]


def read_texts(cells: pd.Series[Any]) -> tuple[NDArray[np.intp], list[str]]:
    """Return the code of each cell's text, -1 if it is missing, and the distinct texts."""
    codes, distinct = pd.factorize(cells)
    return codes, [str(value) for value in distinct.tolist()]


class NumbersWritten(NamedTuple):
    """Numbers that were texts."""

    cells: pd.Series[Any]
    remark: str  # what is said of them


def numbers_written(cells: pd.Series[Any], decimal: str) -> NumbersWritten | None:
    """Return the numbers that texts such as 1.234,5 and 45,2 % stand for; None if one is no number.

    Parameters
    ----------
    decimal : "." or ",", or "" if it is not known: then a number with either is none.
    """
    known = cells.dropna()
    if not len(known) or not is_written(str(known.iloc[0])):
        return None
    codes, texts = read_texts(cells)
    read = []
    for text in texts:
        number = parse_number(text, decimal or ".")
        if number is None or (not decimal and decimal_of(text)):
            return None
        read.append(number)
    remarks = [("percentages", any(n.percent for n in read))]
    remarks += [("numbers with separated thousands", any(n.grouped for n in read))]
    values = np.array([*(number.number for number in read), np.nan])
    return NumbersWritten(
        pd.Series(values[codes], index=cells.index), ", ".join(r for r, holds in remarks if holds)
    )


def is_written(text: str) -> bool:
    """Tell whether a text is a number with a decimal point or a decimal comma."""
    return any(parse_number(text, decimal) is not None for decimal in ".,")


def read_alone(cells: pd.Series[Any], decimal: str = ".") -> pd.Series[Any]:
    """Return texts as they are read from a text file that has no other cells.

    A file has one type per column, so other rows may have made texts of numbers or booleans.
    """
    codes, texts = read_texts(cells)
    numbers = numbers_written(pd.Series(texts, dtype=str), decimal)
    parsed = _parse(texts) if numbers is None else numbers.cells
    return parsed.reindex(codes)  # a missing cell has code −1, and no value


def read_mixed(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return a piece of a CSV file with columns of text as numbers.

    Each of their cells must be a number or a boolean, or else the column stays text.
    """
    for name in [name for name in names if kind_of(name, frame[name]) == "text"]:
        codes, texts = read_texts(frame[name])
        with suppress(ValueError):
            numbers = _parse([BOOLEANS.get(text.upper(), text) for text in texts], float)
            frame = frame.assign(**{name: numbers.reindex(codes).to_numpy()})
    return frame


def _parse(texts: list[str], dtype: Any = None) -> pd.Series[Any]:
    lines = io.StringIO(newline="")
    csv.writer(lines, quoting=csv.QUOTE_ALL).writerows([text] for text in texts)
    lines.seek(0)
    return pd.read_csv(lines, names=["x"], index_col=False, low_memory=False, dtype=dtype)["x"]
