"""Columns of a table that name things, and the proportions of the bags that they name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from apportion.bags.names import as_written
from apportion.data._pieces import Pieces, open_pieces
from apportion.data.proportions import read_proportions
from apportion.errors import DataError, suggestion


def read_columns(
    table: str | os.PathLike[str] | pd.DataFrame | Pieces,
    names: Iterable[str | None],
    *,
    values: str | None = None,
    others: bool = False,
) -> tuple[Pieces, pd.DataFrame]:
    """Read columns of a table, none of which may be missing, in any row.

    Parameters
    ----------
    names : iterable of column names
        Of columns that name something: as they stand, in a CSV file as text.
    values : column name, optional
        A column that is read as what it says: numbers are numbers.
    others : bool
        Whether to read all other columns as well, in the same way. Their cells may be missing.
    """
    texts = list(dict.fromkeys(name for name in names if name is not None))
    wanted = texts if values is None else [*texts, values]
    pieces = open_pieces(table, wanted)
    for name in wanted:
        if name not in pieces.names:
            raise DataError(
                f"{pieces.source} has no column {name!r}.", suggestion(name, pieces.names)
            )
    chosen = pieces.names if others else wanted
    read = [piece[chosen] for _, piece in pieces.read(chosen, as_text=texts)]
    if not sum(map(len, read)):
        raise DataError(f"{pieces.source} has 0 rows below its names.", "Pass a table with rows.")
    frame = pd.concat(read, ignore_index=True)
    for name in wanted:
        missing = frame[name].isna().to_numpy()
        if missing.any():
            raise DataError(
                f"{pieces.source}: row {missing.argmax():,} (counted from 0) has no {name!r}, "
                f"as {missing.sum():,} of {len(missing):,} have not.",
                "Fill them in, or leave these rows out. In a .csv file NA, None and the like are "
                "read as missing: give these another name.",
            )
    return pieces, frame


def name_bags(
    rows: Sequence[Any], proportions: Any, bag: str, *, from_csv: bool
) -> tuple[list[Any], Any]:
    """Give each row's bag as the table of proportions calls it, and that table.

    Without one, the bags of a CSV file are numbers if nothing else is among them.
    """
    if proportions is None:
        return as_written(rows) if from_csv else list(rows), None
    table = read_proportions(proportions, bag, split=None, classes=None)
    return list(rows), table.values


def name_classes(labels: Sequence[Any], table: Any, *, from_csv: bool) -> list[Any]:
    """Give the labels as the table of proportions calls the classes: 1 may stand there as '1'."""
    if table is None:
        return as_written(labels) if from_csv else list(labels)
    return list(labels)


def agreed(
    source: str, thing: str, names: Sequence[Any], what: str, said: Sequence[Any]
) -> dict[Any, Any]:
    """Give what rows say of each thing, by its name: they must say the same."""
    found: dict[Any, Any] = {}
    for row, (name, value) in enumerate(zip(names, said, strict=True)):
        if found.setdefault(name, value) != value:
            raise DataError(
                f"{source}: {thing} {name!r} has the {what} {found[name]!r}, but in row {row:,} "
                f"(counted from 0) {value!r}.",
                f"Let all rows of a {thing} have one {what}, or give one of them another name.",
            )
    return found
