"""The cells of one column: whether they are numbers or texts, and their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from apportion.errors import DataError

Kind = Literal["numbers", "text"]
# The number of each row of a frame in its table, counted from 0.
Rows = NDArray[np.int64]

MOST = float(np.finfo(np.float32).max)
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


def kind_of(name: str, cells: pd.Series[Any]) -> Kind | None:
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
        "Convert it to numbers or to text, or leave it out.",
    )


def read_numbers(name: str, cells: pd.Series[Any], rows: Rows) -> NDArray[np.float64]:
    """Return the values, with NaN for a missing one; each of the others fits in float32."""
    values: NDArray[np.float64] = cells.to_numpy(dtype=np.float64, na_value=np.nan)
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
