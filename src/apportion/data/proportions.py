"""Tables of proportions by bag: a column a class (wide), or a row a bag and class (long)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.bags.names import as_written, sorted_names
from apportion.data._pieces import (
    FORMATS,
    check_file,
    csv_names,
    distinct_names,
    is_parquet,
    named,
    naming,
    reading,
)
from apportion.errors import DataError, suggestion

SPLIT = "split"  # the column of what a bag is for, which `apportion bag` writes
# What columns of a long table may be called, in the singular or the plural.
CLASS_NAMES = ("class", "classes", "label", "labels", "category", "categories")
VALUE_NAMES = ("value", "values", "count", "counts", "proportion", "proportions", "share", "shares")


@dataclass(frozen=True, eq=False)
class BagTable:
    """The bags of a table, and what it says of each."""

    source: str  # what errors call it
    ids: Sequence[Any]
    values: Any  # a frame of a row a bag, in that order, and a column a class; or a mapping
    kept: NDArray[np.bool_] | None = None  # the bags of the split that was asked for


def read_proportions(
    given: Any, bag: str, split: str | None, classes: Sequence[Any] | None
) -> BagTable:
    """Read a table of proportions, or of counts, in any of its forms."""
    if isinstance(given, Mapping):
        if split is not None:
            raise _no_split("proportions", split, "which is a dict")
        return BagTable("proportions", list(given), dict(given))
    source, frame = _load(given, bag)
    from_csv = isinstance(given, (str, os.PathLike)) and not is_parquet(Path(given))
    if not len(frame):
        raise DataError(f"{source} has 0 bags.", "Add a row a bag.")
    ids = frame.pop(bag)
    if ids.isna().any():
        raise DataError(
            f"{source}: row {int(ids.isna().to_numpy().argmax()):,} (counted from 0) has no bag.",
            f"Fill in the cells of column {bag!r}, or leave out these rows.",
        )
    code, distinct = pd.factorize(ids)
    names = as_written(distinct.tolist()) if from_csv else distinct.tolist()
    parts = frame.pop(SPLIT) if SPLIT in frame.columns else None
    kept = None if split is None else _choose(source, split, parts, code, names)
    columns = [str(name).lower() for name in frame.columns]
    says_long = len(columns) == 2 and columns[0] in CLASS_NAMES and columns[1] in VALUE_NAMES
    if len(names) == len(ids) and not says_long:
        values = _wide(source, frame, names)
    else:
        values = _long(source, frame, code, names, from_csv=from_csv)
        absent = [name for name in classes or () if name not in values.columns]
        values[absent] = 0.0  # a class without rows is one that no bag has
    return BagTable(source, names, values, kept)


def read_splits(given: str | os.PathLike[str], bag: str) -> dict[Any, str]:
    """Give what each bag is for, by all names that it may have; {} without a column `split`."""
    source, frame = _load(given, bag)
    if SPLIT not in frame.columns:
        return {}
    names, said = frame[bag].tolist(), frame[SPLIT].astype(str).tolist()
    found = dict(zip(names, said, strict=True))
    for name, part in zip(names, said, strict=True):
        if found[name] != part:
            raise DataError(
                f"{source}: bag {name!r} is in split {part!r} and in {found[name]!r}.",
                "Let all rows of a bag be of one split.",
            )
    ids = names if is_parquet(Path(given)) else as_written(names)
    return dict(zip(ids, said, strict=True))


def _load(given: Any, bag: str) -> tuple[str, pd.DataFrame]:
    """Give the name of a table, and a frame of its own that has a column of bags."""
    if isinstance(given, pd.DataFrame):
        distinct_names(given.columns, "proportions")
        frame = given.rename(columns={name: bag for name in given.columns if str(name) == bag})
        if bag not in frame.columns:
            frame.insert(0, bag, frame.index)
        return "proportions", frame
    if not isinstance(given, (str, os.PathLike)):
        raise DataError(
            f"proportions are a {type(given).__name__}.",
            "Pass a DataFrame or a dict by bag, or the path of a .csv or .parquet file.",
        )
    path = Path(given).expanduser()
    check_file(path, FORMATS)
    if is_parquet(path):
        with reading(path):
            frame = pd.read_parquet(path)
        if bag not in frame.columns and bag in frame.index.names:
            frame = frame.reset_index()
        names = distinct_names(frame.columns, str(path))
    else:
        names = csv_names(path)
        with reading(path):
            # As text a cell stays what it was, and a class may be called NA.
            options: Any = {"dtype": str, "keep_default_na": False, "index_col": False}
            frame = pd.read_csv(path, na_values=[""], **options)
    if bag not in names:
        raise DataError(
            f"{path} has no column {bag!r}.",
            suggestion(bag, names),
            "Rename the column of the bags, so that it is called as in the rows.",
        )
    if not is_parquet(path):
        frame = frame[named(names, str(path))]
    return str(path), frame


def _choose(
    source: str, split: str, parts: pd.Series[Any] | None, code: NDArray[Any], names: list[Any]
) -> NDArray[np.bool_]:
    """Give the bags whose column `split` says that they belong to this one."""
    if parts is None:
        raise _no_split(source, split, f"which has no column {SPLIT!r}")
    said = parts.astype(str).to_numpy(dtype=object)
    if split not in said:
        raise DataError(
            f"{source} has no bag of split {split!r}.", suggestion(split, sorted(set(said)))
        )
    mine = said == split
    kept = np.bincount(code, weights=mine, minlength=len(names)) > 0
    torn = kept[code] & ~mine
    if torn.any():
        bag = names[code[int(torn.argmax())]]
        raise DataError(
            f"{source}: bag {bag!r} is in split {split!r} and in {said[int(torn.argmax())]!r}.",
            "Let all rows of a bag be of one split.",
        )
    return kept


def _no_split(source: str, split: str, why: str) -> DataError:
    return DataError(
        f"split {split!r} cannot be found in {source}, {why}.",
        f"Leave out split=, or add a column {SPLIT!r} that says what each bag is for.",
    )


def _values(
    source: str, cells: pd.Series[Any], bags: Sequence[Any], what: str
) -> NDArray[np.float64]:
    """Give the numbers in a column; `bags` has the name of each cell's bag."""
    bad = _not_numbers(cells)
    if bad.any():
        at, more = int(bad.argmax()), int(bad.sum()) - 1
        raise DataError(
            f"{source}: {what} of bag {bags[at]!r} is {cells.iloc[at]!r}, which is not a number"
            f"{f' (and {more:,} more like it)' if more else ''}.",
            "Beside the bags a table has a column of numbers for every class and nothing else, "
            "or, with a row a bag and class, one of classes and one of numbers.",
        )
    return _numbers(cells)


def _numbers(cells: pd.Series[Any]) -> NDArray[np.float64]:
    plain = cells if cells.dtype.kind in "biuf" else cells.astype(object)
    numbers = pd.to_numeric(plain, errors="coerce")
    values: NDArray[np.float64] = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _not_numbers(cells: pd.Series[Any]) -> NDArray[np.bool_]:
    """Say which cells are neither numbers, nor missing, nor the text NaN."""
    odd = np.isnan(_numbers(cells)) & cells.notna().to_numpy()
    odd[odd] = cells[odd].astype(str).str.lower().to_numpy(dtype=object) != "nan"
    return odd


def _wide(source: str, frame: pd.DataFrame, bags: list[Any]) -> pd.DataFrame:
    if not frame.shape[1]:
        raise DataError(
            f"{source} has 0 classes beside the bags.", "Add a column of numbers for every class."
        )
    values = [
        _values(source, frame.iloc[:, j], bags, f"column {name!r}")
        for j, name in enumerate(frame.columns)
    ]
    return _by_bag(np.stack(values, axis=1), bags, frame.columns)


def _long(
    source: str, frame: pd.DataFrame, code: NDArray[Any], names: list[Any], *, from_csv: bool
) -> pd.DataFrame:
    twice = names[int((np.bincount(code) > 1).argmax())]
    if frame.shape[1] != 2:
        raise DataError(
            f"{source} has {int((code == names.index(twice)).sum())} rows of bag {twice!r}, and "
            f"{frame.shape[1]} columns beside the bags: {', '.join(map(str, frame.columns))}.",
            "Keep one row a bag; or, with a row a bag and class, the columns bag, class and value.",
        )
    with naming(source):
        class_at, value_at = _class_and_value(frame, twice)
    cells = frame.iloc[:, class_at]
    if cells.isna().any():
        row = int(cells.isna().to_numpy().argmax())
        raise DataError(
            f"{source}: row {row:,} (counted from 0), of bag {names[code[row]]!r}, has no class.",
            f"Fill in the cells of column {str(cells.name)!r}, or leave out these rows.",
        )
    class_code, distinct = pd.factorize(cells)
    classes: list[Any] = distinct.tolist()
    if from_csv:
        classes = as_written(classes)
    bags = [names[k] for k in code]
    values = _values(source, frame.iloc[:, value_at], bags, f"column {frame.columns[value_at]!r}")
    cell = code * len(classes) + class_code
    again = pd.Series(cell).duplicated().to_numpy()
    if again.any():
        row = int(again.argmax())
        raise DataError(
            f"{source}: row {row:,} (counted from 0) has bag {bags[row]!r} and class "
            f"{classes[class_code[row]]!r}, which row {int((cell == cell[row]).argmax()):,} has.",
            "Keep one of them, or add them up.",
        )
    table = np.zeros((len(names), len(classes)))
    table.flat[cell] = values
    ordered = sorted_names(classes)
    return _by_bag(table[:, [classes.index(name) for name in ordered]], names, ordered)


def _class_and_value(frame: pd.DataFrame, twice: Any) -> tuple[int, int]:
    """Say which of two columns has the classes and which the values."""
    for j, name in enumerate(str(name).lower() for name in frame.columns):
        if name in VALUE_NAMES:
            return 1 - j, j
        if name in CLASS_NAMES:
            return j, 1 - j
    numeric = [not _not_numbers(frame.iloc[:, j]).any() for j in range(2)]
    if all(numeric) and (np.mod(_numbers(frame.iloc[:, 0]), 1) != 0).any():
        raise DataError(
            f"bag {twice!r} is there more than once, and neither column "
            f"{frame.columns[0]!r} nor {frame.columns[1]!r} is one of classes.",
            "Keep one row a bag; or, with a row a bag and class, name the columns class and value.",
        )
    return (1, 0) if numeric == [True, False] else (0, 1)


def _by_bag(
    values: NDArray[np.float64], bags: Iterable[Any], classes: Iterable[Any]
) -> pd.DataFrame:
    return pd.DataFrame(values, index=object_index(bags), columns=object_index(classes))


def object_index(names: Iterable[Any]) -> pd.Index[Any]:
    """Give names as an index in which they stay what they are: pandas makes levels of tuples."""
    return pd.Index(list(names), dtype=object, tupleize_cols=False)
