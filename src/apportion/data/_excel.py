"""Tables in Excel files, which the extra `excel` reads: one sheet, with names in its first row."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pandas as pd

from apportion.data._cells import numbers_written
from apportion.data.dialect import TableFormat, find_decimal
from apportion.errors import DataError, Option, listing, suggestion

notes = logging.getLogger("apportion.reading")


def read_sheet(path: Path, form: TableFormat) -> pd.DataFrame:
    """Read a sheet, by default the first one.

    Cells keep their types: a percentage is a number of 0 to 1. Columns in which some cells are
    texts are columns of texts, unless all of these are numbers. Rows without any value are left
    out, as empty lines of a text file are.
    """
    sheet = form.sheet
    try:
        import openpyxl  # noqa: F401
    except ImportError as error:
        raise DataError(
            f"{path} is an Excel file, and openpyxl is not installed.",
            "Install it: pip install 'apportion[excel]'; or save the table as .csv.",
        ) from error
    with _opened(path) as book:
        names = list(map(str, book.sheet_names))
        if sheet is not None and sheet not in names:
            raise DataError(f"{path} has no sheet {sheet!r}.", suggestion(sheet, names))
        chosen = names[0] if sheet is None else sheet
        frame = pd.read_excel(book, sheet_name=chosen)
    if sheet is None and len(names) > 1:
        notes.info(
            "%s: sheet %r is read, the first of %s; %s chooses another.",
            path,
            chosen,
            listing(map(repr, names)),
            Option(form.sheet_option, repr(names[1]), names[1]),
        )
    frame = frame.dropna(how="all").reset_index(drop=True)
    if not frame.shape[1]:
        raise DataError(f"sheet {chosen!r} of {path} is empty.", "Choose another sheet.")
    return _settled(frame, path)


def sheet_names(path: Path) -> list[str]:
    """Return the names of the sheets."""
    with _opened(path) as book:
        return list(map(str, book.sheet_names))


def _opened(path: Path) -> Any:
    import warnings
    from zipfile import BadZipFile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of openpyxl, on styles that it does not know
        try:
            return pd.ExcelFile(path, engine="openpyxl")
        except (BadZipFile, KeyError) as error:
            raise DataError(f"{path} is not an Excel file: {error}.", "Save it again.") from error


def _settled(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a frame whose columns are of one type each."""
    is_text = {name: frame[name].map(lambda cell: isinstance(cell, str)) for name in frame.columns}
    texts = {name: frame[name][where] for name, where in is_text.items() if where.any()}
    if not texts:
        return frame
    settled = frame.copy(deep=False)
    decimal = find_decimal([cells.tolist() for cells in texts.values()], str(path), "")
    for name, cells in texts.items():
        others = frame[name][~is_text[name]].dropna()
        # A cell may be a number that is stored as text.
        numbers = numbers_written(cells, decimal)
        if numbers is None or not all(isinstance(other, int | float) for other in others):
            settled[name] = frame[name].map(_as_text, na_action="ignore").astype("str")
            continue
        remark = f", {numbers.remark}" if numbers.remark else ""
        notes.info("%s: column %r is read as numbers%s.", path, str(name), remark)
        values = numbers.cells.reindex(frame.index)
        values[others.index] = others.astype(float)
        settled[name] = values
    return settled


def _as_text(value: Any) -> str:
    """Return a cell as text; whole numbers without a point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip() if isinstance(value, str) else str(value)
