"""Tables in Excel files, which the extra `excel` reads: one sheet, with names in its first row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from apportion.bags.notes import notes
from apportion.data.dialect import TableFormat, find_decimal
from apportion.errors import DataError, Option, listing, suggestion


def read_sheet(path: Path, form: TableFormat) -> tuple[pd.DataFrame, str]:
    """Read a sheet, by default the first one; return it, and the decimal sign of its texts.

    Cells keep their types: a percentage is a number of 0 to 1, and 007 may be a text. Columns may
    be of several types. Spaces around texts are left out, and so are rows without any value, as
    empty lines of a text file are.
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
        frame = pd.read_excel(book, sheet_name=chosen, dtype=object)
    if sheet is None and len(names) > 1:
        notes.info(
            "%s: sheet %r is read, the first of %s; %s chooses another.",
            path,
            chosen,
            listing(map(repr, names)),
            Option(form.sheet_option, repr(names[1]), names[1]),
        )
    frame = frame.dropna(how="all").reset_index(drop=True)
    frame = frame.map(lambda cell: cell.strip() if isinstance(cell, str) else cell).infer_objects()
    if not frame.shape[1]:
        raise DataError(f"sheet {chosen!r} of {path} is empty.", "Choose another sheet.")
    texts = ([c for c in cells if isinstance(c, str)] for _, cells in frame.items())
    return frame, form.decimal or find_decimal(texts, str(path), "")


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
