"""The cells of one column: whether they are numbers or texts, and their values."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from apportion.errors import DataError, Words

Kind = Literal["numbers", "text"]
# The number of each row of a frame in its table, counted from 0.
Rows = NDArray[np.int64]

LEAVE_OUT = "Convert it to numbers or to text, or leave it out."
MOST = float(np.finfo(np.float32).max)
BOOLEANS = {"TRUE": "1", "FALSE": "0"}  # as pandas reads them, in any case of letters
NUMBERS = ("integer", "floating", "boolean", "mixed-integer-float")


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
                "Every column must have a name of its own: rename one, or leave it out.",
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
    if dtype.kind in "biuf":
        return None if cells.isna().all() else "numbers"
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        found = pd.api.types.infer_dtype(cells, skipna=True)
        if found in NUMBERS:
            return "numbers"
        if found in ("string", "empty"):
            return "text" if found == "string" else None
    raise DataError(
        f"column {name!r} is of type {dtype}{f' ({found})' if found else ''}, "
        "which is neither numbers nor text.",
        remedy,
    )


def read_numbers(name: str, cells: pd.Series[Any], rows: Rows) -> NDArray[np.float64]:
    """Return the values, with NaN for a missing one; each of the others fits in float32."""
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


def read_texts(cells: pd.Series[Any]) -> tuple[NDArray[np.intp], list[str]]:
    """Return the code of each cell's text, -1 if it is missing, and the distinct texts."""
    codes, distinct = pd.factorize(cells)
    return codes, [str(value) for value in distinct.tolist()]


def read_alone(cells: pd.Series[Any]) -> pd.Series[Any]:
    """Return texts as pandas reads them from a CSV file that has no other cells.

    A file has one type per column, so other rows may have made texts of numbers or booleans.
    """
    codes, texts = read_texts(cells)
    return _parse(texts).reindex(codes)  # a missing cell has code −1, and no value


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
