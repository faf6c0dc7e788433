"""Columns of a table that name things: files, signals, bags and classes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pandas as pd

from apportion.bags.bags import Bags, put_in_bags
from apportion.bags.names import as_written
from apportion.bags.read import SKIP, Placed
from apportion.data.dialect import PLAIN, TableFormat
from apportion.data.pieces import Pieces, Rows, naming, open_pieces
from apportion.data.proportions import BagTable
from apportion.errors import DataError


def read_columns(
    table: Rows | Pieces,
    names: Iterable[str | None],
    *,
    values: str | None = None,
    others: bool = False,
    may_miss: Collection[str | None] = (),
    bag: str | None = None,
    form: TableFormat = PLAIN,
) -> tuple[Pieces, pd.DataFrame]:
    """Read columns of a table, which must have a value in every row.

    Parameters
    ----------
    names : iterable of column names
        Columns that name something; the cells of a CSV file are read as text.
    values : column name, optional
        A column whose cells are read as values: numbers are numbers.
    others : bool
        Whether to read all other columns as well, in the same way. Their cells may be missing.
    may_miss : collection of column names
        Columns whose cells may be missing as well: None.
    bag : column name, optional
        The one of bag ids: `skip_unplaced` leaves out the rows where it is missing.
    form : TableFormat
        What is known of the format of a file.
    """
    texts = list(dict.fromkeys(name for name in names if name is not None))
    wanted = texts if values is None else [*texts, values]
    pieces = open_pieces(table, index=wanted, form=form)
    pieces.check_columns(wanted)
    chosen = pieces.names if others else wanted
    read = [piece[chosen] for _, piece in pieces.read(chosen, as_text=texts)]
    frame = pd.concat(read, ignore_index=True)
    for name in wanted:
        missing = frame[name].isna().to_numpy()
        if missing.any() and name in may_miss:
            frame[name] = frame[name].astype(object).where(~missing, None)
        elif missing.any():
            skips = ("pass ", SKIP, " to ") if name == bag else ()
            raise DataError(
                f"{pieces.source}: row {missing.argmax():,} (counted from 0) has no {name!r}; "
                f"{missing.sum():,} of {len(missing):,} rows have none.",
                (
                    "Fill them in, or ",
                    *skips,
                    "leave these rows out. In a text file NA, ",
                    "None and similar texts are read as missing: rename them.",
                ),
            )
    return pieces, frame


def names_in(pieces: Pieces, cells: pd.Series[Any], table: BagTable | None) -> list[Any]:
    """Return the names in a column; in a CSV file they may be numbers, unless a table is given."""
    if not pieces.is_csv or table is not None:
        return cells.tolist()
    known = iter(as_written(cells.dropna()))
    return [None if missing else next(known) for missing in cells.isna()]


def put(pieces: Pieces, placed: Placed, table: BagTable | None, **options: Any) -> Bags:
    """Put rows in bags, which get their x later; an error names both tables."""
    with naming(pieces.source if table is None else f"{pieces.source} and {table.source}"):
        return put_in_bags(None, placed, table, **options)


def other_zeros(name: Any, known: Iterable[Any]) -> list[str]:
    """Return a hint if a known name is the same number with other leading zeros."""
    same = [own for own in known if str(own).lstrip("0") == str(name).lstrip("0")]
    return [f"It is written differently from {same[0]!r}: leading zeros count."] if same else []


def agreed(
    source: str, thing: str, names: Sequence[Any], what: str, said: Sequence[Any]
) -> dict[Any, Any]:
    """Return the value of each thing by its name: all of its rows must have the same."""
    found: dict[Any, Any] = {}
    for row, (name, value) in enumerate(zip(names, said, strict=True)):
        if found.setdefault(name, value) != value:
            raise DataError(
                f"{source}: {thing} {name!r} has the {what} {found[name]!r}, but in row {row:,} "
                f"(counted from 0) {value!r}.",
                f"All rows of a {thing} must have one {what}: correct one, or rename the {thing}.",
            )
    return found
