"""Tables of proportions by bag: one column per class, or one row per bag and class."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.bags.names import Register, as_written, sorted_names
from apportion.bags.notation import OTHER, Written, decimal_of, parse_number
from apportion.bags.read import Table, as_pandas
from apportion.bags.rounding import MOST_DIGITS, digits_of
from apportion.data._cells import unmixed
from apportion.data._excel import sheet_names
from apportion.data.dialect import PLAIN, TableFormat, find_decimal, other_decimal
from apportion.data.pieces import (
    KINDS,
    check_columns,
    check_file,
    check_sheet,
    distinct_names,
    is_excel,
    is_parquet,
    named,
    naming,
    open_pieces,
    parquet_files,
    reading,
)
from apportion.errors import DataError, Option, Words, and_more, count, listing, suggestion

__all__ = ["SETS", "BagTable", "read_proportions"]

SPLIT = "split"  # the column of the set that a bag belongs to; `apportion bag` writes it
SETS = ("train", "valid", "test")  # its values
# Names of the columns of a long table, in the singular or the plural.
CLASS_NAMES = ("class", "classes", "label", "labels", "category", "categories")
CLASSES = Option("classes", '["yes", "no"]', "yes,no")
NAMED = "Name the column of the bags as in the rows."
SHAPE = (
    "A table has the bags and one column of numbers per class; or, with one row per bag and class, "
    "a column of classes and one of numbers."
)
VALUE_NAMES = ("value", "values", "count", "counts", "proportion", "proportions", "share", "shares")


@dataclass(frozen=True, eq=False)
class BagTable(Table):
    """A table of bags with its name, and possibly the set that each bag belongs to."""

    source: str = "proportions"  # its name in errors
    split: tuple[str, ...] | None = None  # "train", "valid" or "test", bag by bag

    def with_rows(self, sizes: NDArray[np.int64]) -> BagTable:
        """Return the table without the bags that have no rows."""
        made, split = cast("BagTable", super().with_rows(sizes)), self.split
        if split is None:
            return made
        return replace(made, split=tuple(split[i] for i in np.flatnonzero(sizes)))


def read_proportions(
    given: Any,
    bag: str,
    classes: Iterable[Hashable] | None = None,
    form: TableFormat = PLAIN,
) -> BagTable:
    """Read a table of proportions, or of counts, in any of its forms; a file is read once.

    Parameters
    ----------
    given : mapping, Series, frame, or path of a text, Excel or Parquet file
        Or what was read before, which is returned.
    bag : str
        The column of the bags. A pandas DataFrame may have them in its index instead.
    classes : sequence, optional
        The classes, in this order. Of a wide table of a file or frame only these columns are read;
        a class that a long table does not have is 0 in all bags.
    form : TableFormat
        What is known of the format of a file.

    Examples
    --------
    >>> frame = pd.DataFrame({"ward": ["a", "b"], "split": ["train", "test"], "no": 0.2})
    >>> table = read_proportions(frame.assign(yes=0.8), "ward")
    >>> table.ids, table.classes, table.split
    (['a', 'b'], ['no', 'yes'], ('train', 'test'))
    """
    if isinstance(given, BagTable):
        return given
    if isinstance(given, Mapping | pd.Series):
        table = Table.read(given, classes, ())
        return BagTable(table.ids, table.classes, table.values)
    with form.naming_options(), _naming_sheet(given, form):
        return _read(given, bag, classes, form)


@contextmanager
def _naming_sheet(given: Any, form: TableFormat) -> Iterator[None]:
    """Name the sheet that was read in an error, if nobody chose it: the rows may be on it."""
    try:
        yield
    except DataError as error:
        names: list[str] = []
        if isinstance(given, str | os.PathLike) and is_excel(Path(given)) and form.sheet is None:
            with suppress(DataError, OSError):
                names = sheet_names(Path(given).expanduser())
        if len(names) > 1:
            other = Option("sheet", repr(names[1]), names[1])
            read = f"This is sheet {names[0]!r}, the first of {listing(map(repr, names))}: pass "
            error.args = (*error.args, (read, other, " to read another."))
        raise


def _read(given: Any, bag: str, classes: Iterable[Hashable] | None, form: TableFormat) -> BagTable:
    """Read a frame or a file."""
    source, frame, decimal = _load(given, bag, form)
    from_csv = decimal is not None
    if not len(frame):
        raise DataError(f"{source} has 0 bags.", "Add one row per bag.")
    cells = frame.pop(bag)
    if cells.isna().any():
        raise DataError(
            f"{source}: row {int(cells.isna().to_numpy().argmax()):,} (counted from 0) has no bag.",
            f"Fill in the cells of column {bag!r}, or leave out these rows.",
        )
    code, distinct = pd.factorize(cells)
    ids = as_written(distinct.tolist()) if from_csv else distinct.tolist()
    said = frame.pop(SPLIT) if SPLIT in frame.columns else None
    split = None if said is None else _split(source, said, code, ids)
    columns = [str(name).lower() for name in frame.columns]
    says_long = len(columns) == 2 and columns[0] in CLASS_NAMES and columns[1] in VALUE_NAMES
    if not from_csv:
        texts = (c.dropna().astype(str).tolist() for _, c in frame.items() if _is_text(c))
        decimal = form.decimal or find_decimal(texts, source, "")
    read = _Numbers(source, decimal or ".")
    if len(ids) == len(cells) and not says_long:
        names, values = _wide(read, frame, ids, classes)
    else:
        names, values = _long(read, frame, code, ids, classes, from_csv=from_csv)
    return BagTable(ids, names, values, read.digits if from_csv else None, source, split)


def _is_text(cells: pd.Series[Any]) -> bool:
    return cells.dtype.kind not in "biufmM" and any(isinstance(cell, str) for cell in cells)


def _load(given: Any, bag: str, form: TableFormat) -> tuple[str, pd.DataFrame, str | None]:
    """Return the name of a table, a frame of its own that has a column of bags, and its decimal.

    The decimal sign is that of a text file, whose cells are all texts.
    """
    indexed = isinstance(given, pd.DataFrame)
    given = as_pandas(given)
    if isinstance(given, pd.DataFrame):
        distinct_names(given.columns, "proportions")
        frame = given.rename(columns={name: bag for name in given.columns if str(name) == bag})
        if bag not in frame.columns and not indexed:
            check_columns("proportions", list(frame.columns), [bag], NAMED)
        if bag not in frame.columns:
            frame.insert(0, bag, frame.index)
        return "proportions", frame, None
    if not isinstance(given, str | os.PathLike):
        raise DataError(
            f"proportions are a {type(given).__name__}.",
            f"Pass a frame or a dict by bag, or the path of {KINDS}.",
        )
    path = Path(given).expanduser()
    if not is_parquet(path):
        pieces = open_pieces(path, form=form)
        pieces.check_columns([bag], NAMED)
        if pieces.frame is not None:  # numbers stay numbers beside those that are texts
            frame = pieces.frame[named(pieces.names, str(path))]
            return str(path), frame.assign(**{bag: unmixed(frame[bag])}), None
        # As text a cell stays what it was, and a class may be called NA.
        read = list(pieces.read_as_written(named(pieces.names, str(path))))
        frame = pd.concat(read, ignore_index=True)
        return str(path), frame.replace("", np.nan), pieces.decimal
    check_file(path)
    check_sheet(path, form)
    with reading(path):
        parts = [pd.read_parquet(file) for file in parquet_files(path)]
        frame = pd.concat(parts) if len(parts) > 1 else parts[0]
    if bag not in frame.columns and bag in frame.index.names:
        frame = frame.reset_index()
    check_columns(str(path), distinct_names(frame.columns, str(path)), [bag], NAMED)
    return str(path), frame, None


def _split(
    source: str, said: pd.Series[Any], code: NDArray[Any], ids: Sequence[Any]
) -> tuple[str, ...]:
    """Return the set of each bag, after a check that all of its rows have the same."""
    found: dict[int, str] = {}
    for k, part in zip(code.tolist(), said.astype(object).fillna("").tolist(), strict=True):
        if part not in SETS:
            has = f"has split {part!r}" if part else "has no split: its cell is empty"
            remedy = f"Write one of them into column {SPLIT!r}, or leave out the column."
            raise DataError(f"{source}: bag {ids[k]!r} {has}.", suggestion(str(part), SETS), remedy)
        if found.setdefault(k, part) != part:
            raise DataError(
                f"{source}: bag {ids[k]!r} is in split {found[k]!r} and in {part!r}.",
                "All rows of a bag must be of one split.",
            )
    if "train" not in found.values():
        raise DataError(
            f"{source} has no bag of split 'train'.",
            "Write train into the column 'split' of the bags to learn from, and valid or test into "
            "that of the others; or leave the column out.",
        )
    return tuple(found[k] for k in range(len(ids)))


class _Numbers:
    """The numbers in the cells of a table, and how many digits they are written with."""

    def __init__(self, source: str, decimal: str) -> None:
        self.source, self.decimal = source, decimal
        self.digits = 0  # after the decimal sign

    def read(self, cells: pd.Series[Any], bags: Sequence[Any], what: str) -> NDArray[np.float64]:
        """Return the numbers in a column; `bags` has the name of each cell's bag.

        Percent signs are left out: shares of 100 are recognised by their sums.
        """
        values, bad = self._parsed(cells)
        if bad.any():
            at = int(bad.argmax())
            cell = cells.iloc[at]
            to_choose: Words = ("Pass ", CLASSES, " to name the columns of the classes.")
            remedies: tuple[Words, ...] = (SHAPE, to_choose)
            if decimal_of(str(cell)) == OTHER[self.decimal]:
                remedies = (other_decimal(self.decimal),)
            raise DataError(
                f"{self.source}: {what} of bag {bags[at]!r} is {cell!r}, which is not a number"
                f"{and_more(int(bad.sum()))}.",
                *remedies,
            )
        return values

    def are_numbers(self, cells: pd.Series[Any]) -> bool:
        """Tell whether all cells of a column are numbers or missing."""
        return not self._parsed(cells)[1].any()

    def _parsed(self, cells: pd.Series[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the numbers, and which cells are neither numbers, nor missing, nor NaN."""
        if cells.dtype.kind in "biuf":
            return cells.to_numpy(dtype=np.float64, na_value=np.nan), np.zeros(len(cells), bool)
        try:
            codes, found = pd.factorize(cells.astype(object))
            distinct = found.tolist()
        except TypeError:  # lists, for example
            codes, distinct = np.arange(len(cells)), cells.tolist()
        values, bad = np.full(len(distinct) + 1, np.nan), np.zeros(len(distinct) + 1, bool)
        for k, cell in enumerate(distinct):
            if isinstance(cell, str):
                written = parse_number(cell, self.decimal)
                bad[k] = written is None and cell.strip().lower() != "nan"
                if written is not None:
                    values[k] = written.value
                    self.digits = max(self.digits, _digits(written))
            else:
                try:
                    values[k] = float(cell)
                except (TypeError, ValueError):
                    bad[k] = True
        return values[codes], bad[codes]


def _digits(written: Written) -> int:
    """Return the digits after the decimal sign; 0.39399999999999996 is 0.394 of a computer."""
    if written.digits <= MOST_DIGITS:
        return written.digits
    return digits_of(np.array([written.value]))


def _wide(
    read: _Numbers, frame: pd.DataFrame, bags: list[Any], classes: Iterable[Hashable] | None
) -> tuple[list[Any], NDArray[np.float64]]:
    source = read.source
    names = list(frame.columns if classes is None else classes)
    places = Register(frame.columns).places(names)
    unknown = [name for name, place in zip(names, places, strict=True) if place < 0]
    check_columns(source, frame.columns, unknown)
    if not names:
        raise DataError(
            f"{source} has 0 classes beside the bags.", "Add one column of numbers per class."
        )
    columns = [
        read.read(frame.iloc[:, place], bags, f"column {name!r}")
        for name, place in zip(names, places, strict=True)
    ]
    return names, np.stack(columns, axis=1)


def _long(
    read: _Numbers,
    frame: pd.DataFrame,
    code: NDArray[Any],
    ids: list[Any],
    classes: Iterable[Hashable] | None,
    *,
    from_csv: bool,
) -> tuple[list[Any], NDArray[np.float64]]:
    source = read.source
    twice = ids[int((np.bincount(code) > 1).argmax())]
    if frame.shape[1] != 2:
        raise DataError(
            f"{source} has {int((code == ids.index(twice)).sum())} rows of bag {twice!r}, and "
            f"{count(frame.shape[1], 'column')} beside the bags: {listing(frame.columns)}.",
            "Keep one row per bag; or, with one row per bag and class, the columns bag, class and "
            "value.",
        )
    with naming(source):
        class_at, value_at = _class_and_value(read, frame, twice)
    cells = frame.iloc[:, class_at]
    if cells.isna().any():
        row = int(cells.isna().to_numpy().argmax())
        raise DataError(
            f"{source}: row {row:,} (counted from 0), of bag {ids[code[row]]!r}, has no class.",
            f"Fill in the cells of column {str(cells.name)!r}, or leave out these rows.",
        )
    class_code, distinct = pd.factorize(cells)
    known = as_written(distinct.tolist()) if from_csv else distinct.tolist()
    bags = [ids[k] for k in code]
    values = read.read(frame.iloc[:, value_at], bags, f"column {frame.columns[value_at]!r}")
    cell = code * len(known) + class_code
    again = pd.Series(cell).duplicated().to_numpy()
    if again.any():
        row = int(again.argmax())
        raise DataError(
            f"{source}: row {row:,} (counted from 0) has bag {bags[row]!r} and class "
            f"{known[class_code[row]]!r}, as row {int((cell == cell[row]).argmax()):,} has.",
            "Keep one of them, or add them up.",
        )
    table = np.zeros((len(ids), len(known) + 1))  # the last column is that of unknown classes
    table[code, class_code] = values
    names = sorted_names(known) if classes is None else list(classes)
    places = Register(known).places(names)  # -1, and so the last column, if no bag has a class
    unknown = [name for place, name in enumerate(known) if place not in places]
    if unknown:
        raise DataError(
            f"{source} has class {unknown[0]!r}, which is not one of the given classes.",
            suggestion(str(unknown[0]), map(str, names)),
        )
    return names, table[:, places]


def _class_and_value(read: _Numbers, frame: pd.DataFrame, twice: Any) -> tuple[int, int]:
    """Decide which of two columns has the classes and which the values."""
    for j, name in enumerate(str(name).lower() for name in frame.columns):
        if name in VALUE_NAMES:
            return 1 - j, j
        if name in CLASS_NAMES:
            return j, 1 - j
    numeric = [read.are_numbers(frame.iloc[:, j]) for j in range(2)]
    if all(numeric):
        names = f"{str(frame.columns[0])!r} nor {str(frame.columns[1])!r}"
        raise DataError(
            f"bag {twice!r} occurs more than once, and both other columns are numbers: neither "
            f"{names} is known to be that of classes.",
            "Keep one row per bag, if these are two classes; or, with one row per bag and class, "
            "name the columns class and value.",
        )
    return (1, 0) if numeric[0] else (0, 1)
