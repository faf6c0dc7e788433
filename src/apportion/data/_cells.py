"""The cells of one column: whether they are numbers or texts, and their values."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from apportion.bags.notation import (
    OTHER,
    Written,
    decimal_of,
    is_ordered,
    parse_date,
    parse_number,
)
from apportion.errors import DataError, Words

Kind = Literal["numbers", "dates", "text"]
# The number of each row of a frame in its table, counted from 0.
Rows = NDArray[np.int64]

LEAVE_OUT = "Convert it to numbers, dates or text, or leave it out."
DATES = ("date", "datetime", "datetime64")
DAY = pd.Timedelta(days=1)
MOST = float(np.finfo(np.float32).max)
BOOLEANS = {"TRUE": "1", "FALSE": "0"}  # as pandas reads them, in any case of letters
INFINITY = re.compile(r"\s*[+-]?inf(inity)?\s*", re.IGNORECASE)
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
    """Numbers of which some, or all, were texts."""

    cells: pd.Series[Any]
    percent: NDArray[np.bool_]  # which of them have a percent sign
    grouped: bool  # whether thousands are separated in some


def numbers_written(
    cells: pd.Series[Any], decimal: str, *, mixed: bool = False
) -> NumbersWritten | None:
    """Return the numbers that texts such as 1.234,5 and 45,2 % stand for; True is 1.

    None if a cell is no number or boolean, or if none is a text.

    Parameters
    ----------
    cells : Series
        Of texts, or of texts and numbers as in an Excel file.
    decimal : "." or ",", or "" if it is not known: then a number with either is none.
    mixed : bool
        Whether there may be booleans beside numbers.
    """
    if not has_texts(cells):
        return None
    first = next(cell for cell in cells if isinstance(cell, str))
    if all(read_number(first, sign) is None for sign in OTHER):  # most texts are not
        return None
    codes, distinct = pd.factorize(cells)
    values, percent, grouped = np.full(len(distinct) + 1, np.nan), [False], False
    booleans = {is_boolean(cell) for cell in distinct.tolist()}
    if len(booleans) > 1 and not mixed:
        return None
    for k, cell in enumerate(distinct.tolist()):
        number = Written(float(cell), False, False, 0) if isinstance(cell, Real) else None
        if isinstance(cell, str):
            number = read_number(cell, decimal)
        if number is None:
            return None
        values[k] = number.number
        percent.insert(k, number.percent)
        grouped = grouped or number.grouped
    found = pd.Series(values[codes], index=cells.index)  # a missing cell has code −1
    return NumbersWritten(found, np.array(percent)[codes], grouped)


def read_number(text: str, decimal: str) -> Written | None:
    """Read a number, a boolean or an infinity, as pandas reads cells of a text file."""
    if not decimal and decimal_of(text):
        return None
    plain = BOOLEANS.get(text.strip().upper(), text)
    if INFINITY.fullmatch(plain):
        return Written(float(plain), False, False, 0)
    return parse_number(plain, decimal or ".")


def is_boolean(cell: Any) -> bool:
    """Tell whether a cell is a boolean, or a text that is one."""
    return isinstance(cell, bool) or (isinstance(cell, str) and cell.strip().upper() in BOOLEANS)


def has_texts(cells: pd.Series[Any]) -> bool:
    """Tell whether some of the cells are texts."""
    if isinstance(cells.dtype, pd.StringDtype):
        return bool(cells.notna().any())
    return cells.dtype == object and any(isinstance(cell, str) for cell in cells)


def unmixed(cells: pd.Series[Any]) -> pd.Series[Any]:
    """Return texts in place of cells of an Excel file, if some of these are texts."""
    if cells.dtype != object or not has_texts(cells):
        return cells
    return cells.map(_as_text, na_action="ignore").astype("str")


def _as_text(value: Any) -> str:
    """Return a cell as text; whole numbers without a point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def is_written(text: str) -> bool:
    """Tell whether a text is a number with a decimal point or a decimal comma."""
    return any(parse_number(text, decimal) is not None for decimal in OTHER)
