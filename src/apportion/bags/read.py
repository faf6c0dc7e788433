"""Readers of the input of `Bags`: instances, names of rows, rows by bag, tables of proportions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.bags.checks import (
    Floats,
    Ints,
    Names,
    check_filled,
    check_rows,
    check_unique,
    check_unmasked,
)
from apportion.bags.items import Items, is_dataset
from apportion.bags.names import Register
from apportion.bags.notation import Written, decimal_of, parse_number
from apportion.bags.notes import notes
from apportion.bags.sparse import as_rows, is_sparse
from apportion.errors import BagError, Option, Words, and_more, count, listing

__all__ = [
    "NOT_IN_TABLE",
    "SKIP",
    "Placed",
    "Table",
    "as_instances",
    "as_pandas",
    "by_bag",
    "collected",
    "count_rows",
    "factorize",
    "locate",
    "read_members",
]

NOT_IN_TABLE: Words = "Add it to the table, or leave its rows out."
SKIP = Option("skip_unplaced")
FEW = 20_000  # rows: with fewer, Python is faster than importing scipy or pandas


@dataclass(frozen=True, eq=False)
class Placed:
    """Rows placed in bags: instance j is a row of x in the bag ``keys[codes[j]]``."""

    keys: Names
    codes: Ints  # (N,)
    rows: Ints | None = None  # (N,) rows of x; None where instance j is row j

    def at(self, names: Names, remedy: Words = NOT_IN_TABLE) -> Ints:
        """Return the position among `names` of every instance's bag."""
        return locate(self.keys, self.codes, names, "bag", remedy)

    def among(self, names: Names) -> Placed:
        """Return the instances whose bag is known and one of `names`."""
        known = Register(names).places(self.keys) >= 0
        number = np.append(np.where(known, np.cumsum(known) - 1, -1), -1)  # the last of code −1
        codes = number[self.codes]
        kept = np.flatnonzero(codes >= 0)
        keys = [key for key, is_known in zip(self.keys, known, strict=True) if is_known]
        return Placed(keys, codes[kept], kept if self.rows is None else self.rows[kept])


def as_instances(x: Any) -> Any:
    """Return `x` itself if it is an array or a tuple of arrays, and arrays in place of lists."""
    check_unmasked("x", x)
    if is_sparse(x):
        return as_rows(x)
    if x is None or isinstance(x, Items) or (hasattr(x, "shape") and hasattr(x, "__getitem__")):
        return x
    if is_dataset(x):
        return Items(x)
    if isinstance(x, tuple):
        parts = tuple(map(as_instances, x))
        return x if all(part is own for part, own in zip(parts, x, strict=True)) else parts
    if not isinstance(x, list | range) and not hasattr(x, "__array__"):
        raise BagError(
            f"x is a {type(x).__name__}, which is not an array.",
            "Pass an array or a tensor of all rows, or a tuple of them; Bags.from_dataset takes a "
            "Dataset.",
        )
    try:
        return np.asarray(x)
    except ValueError as error:
        raise BagError(
            f"x is a list that makes no array: {error}.",
            "Pass rows of the same shape. Signals of unequal length are padded first: "
            "x = apportion.data.signals.pad(x).",
        ) from error


def count_rows(x: Any) -> int:
    """Count the rows of x."""
    if isinstance(x, Items):
        return len(x)
    parts = x if isinstance(x, tuple) else (x,)
    for part in parts:
        if hasattr(part, "columns") or hasattr(part, "iloc"):
            raise BagError(
                f"x is a {type(part).__name__}, whose rows are not found by their position.",
                "Pass an array: x.to_numpy(), or a tuple of arrays if columns differ in type.",
            )
    lengths = [int(part.shape[0]) if part.shape else 0 for part in parts]
    if len(set(lengths)) != 1 or not lengths[0]:
        raise BagError(
            f"x has {' and '.join(map(str, lengths)) or 'no'} rows.",
            "Pass at least one row, and parts of equal length if x is a tuple.",
        )
    return lengths[0]


def factorize(
    values: Any, what: str, n_rows: int | None, *, missing: Words | None = ""
) -> tuple[Names, Ints]:
    """Return the distinct names in order of appearance, and the code of each row's name.

    Many rows are factorized by pandas, few in Python.

    Parameters
    ----------
    missing : words, optional
        A remedy for names that are missing; None if they may be, and have code −1.
    """
    check_unmasked(f"the array of {what}s", values)
    if not hasattr(values, "dtype"):
        array: Any = np.fromiter(values, dtype=object)  # numpy would make strings of mixed lists
    else:
        array = values if hasattr(values, "iloc") else np.asarray(values)
    if array.ndim != 1 or n_rows not in (None, len(array)):
        rows = "any number of rows" if n_rows is None else count(n_rows, "row")
        raise BagError(
            f"x has {rows}, but the {what}s are of shape {array.shape}.",
            f"Pass one {what} per row of x, in the order of its rows.",
        )
    try:
        names, codes = _factorize_few(array) if len(array) < FEW else _factorize_many(array)
    except TypeError as error:
        raise BagError(
            f"the {what}s cannot be compared: {error}.", f"Pass a text or a number per {what}."
        ) from error
    absent = codes < 0
    if missing is not None and absent.any():
        raise BagError(
            f"the {what} of {count(int(absent.sum()), 'row')} is missing; "
            f"row {absent.argmax()} is the first.",
            missing or f"Add the {what} of each of them, or leave these rows out of x.",
        )
    return names, codes


def _factorize_few(array: Any) -> tuple[Names, Ints]:
    """Factorize in Python, which is faster than importing pandas."""
    dates = isinstance(array, np.ndarray) and array.dtype.kind in "mM"
    items = list(array) if dates else array.tolist()  # which makes plain numbers of numpy's dates
    seen: dict[Hashable, int] = {}
    codes = np.fromiter((seen.setdefault(item, len(seen)) for item in items), np.int64, len(items))
    known = [name for name in seen if not _is_missing(name)]
    if len(known) < len(seen):
        number = {name: code for code, name in enumerate(known)}
        codes = np.array([number.get(name, -1) for name in seen], np.int64)[codes]
    return known, codes


def _is_missing(name: Any) -> bool:
    try:
        return name is None or bool(name != name)  # as NaN and NaT are
    except TypeError:  # pandas.NA cannot be compared
        return True


def _factorize_many(array: Any) -> tuple[Names, Ints]:
    import pandas as pd

    codes, distinct = pd.factorize(array)
    dates = isinstance(distinct, np.ndarray) and distinct.dtype.kind in "mM"
    return list(distinct) if dates else distinct.tolist(), codes.astype(np.int64, copy=False)


def read_members(
    members: Mapping[Any, ArrayLike] | Iterable[ArrayLike], n_rows: int | None
) -> Placed:
    """Read the rows that each bag holds."""
    named = members if isinstance(members, Mapping) else dict(enumerate(members))
    ids, groups = list(named), [np.asarray(rows) for rows in named.values()]
    if not ids:
        raise BagError("members holds 0 bags.", "Pass the rows of at least one bag.")
    for bag, group in zip(ids, groups, strict=True):
        if group.ndim != 1 or (group.size and group.dtype.kind not in "iu"):
            raise BagError(
                f"the rows of bag {bag!r} are of shape {group.shape} and {group.dtype}.",
                "Pass a flat list of row numbers for every bag.",
            )
    sizes = [len(group) for group in groups]
    check_filled(np.array(sizes, np.int64), ids)
    codes = np.repeat(np.arange(len(ids)), sizes)
    rows = np.concatenate([np.empty(0, np.int64), *(g.astype(np.int64) for g in groups)])
    check_rows(rows, np.cumsum(sizes), ids, n_rows)
    order = np.lexsort((rows, codes))
    twice = (np.diff(rows[order]) == 0) & (np.diff(codes[order]) == 0)
    if twice.any():
        first = order[twice.argmax()]
        raise BagError(
            f"bag {ids[codes[first]]!r} holds row {rows[first]} twice.",
            "A row may stand in several bags, but only once in each: leave out the other.",
        )
    return Placed(ids, codes, rows)


@dataclass(frozen=True, eq=False)
class Table:
    """A table of bags: one value per bag and class."""

    ids: Names
    classes: Names
    values: Floats  # (n, C)
    digits: int | None = None  # after the point, as the values were written, if that is known

    def with_rows(self, sizes: Ints) -> Table:
        """Return the table without the bags that have no rows; say how many are left out."""
        kept, empty = np.flatnonzero(sizes).tolist(), np.flatnonzero(sizes == 0).tolist()
        if not kept:
            raise BagError(
                f"none of {count(len(empty), 'bag')} of the table has rows.",
                "The names of bags must be the same in both tables.",
            )
        names = listing(repr(self.ids[i]) for i in empty)
        notes.info("%s of the table without rows: left out (%s).", count(len(empty), "bag"), names)
        return replace(self, ids=[self.ids[i] for i in kept], values=self.values[kept])

    @classmethod
    def read(cls, table: Any, classes: Iterable[Hashable] | None, keys: Names) -> Table:
        """Read a frame, a mapping, a series or an array.

        Parameters
        ----------
        keys : names
            The bags that are looked for in it. If they are not in the index of a frame, the column
            that has them is that of the bags.
        """
        named: Names | None = None
        table = collected(table)
        if hasattr(table, "columns"):
            ids, named, rows = _read_frame(table, keys)
        elif isinstance(table, Mapping) or _is_series(table):
            own = table if isinstance(table, Mapping) else dict(table.items())
            named, rows = _read_mapping(own)
            ids = list(own)
        else:
            ids, rows = list(range(len(table))), table
            for key in keys:
                if not isinstance(key, (int, np.integer)):
                    raise BagError(
                        f"bag {key!r} cannot be found in an array of proportions.",
                        "Pass a dict or a DataFrame by bag id, or number the bags by the array's "
                        "rows.",
                    )
        values = _as_numbers(rows)
        columns: Names = range(values.shape[1]) if named is None else named
        chosen = columns if classes is None else list(classes)
        check_unique(ids, "bag")
        check_unique(columns, "class")
        check_unique(chosen, "class")
        if named is None and len(chosen) == len(columns):
            return cls(ids, chosen, values)
        places = Register(columns).places(chosen)
        missing = [name for name, place in zip(chosen, places, strict=True) if place < 0]
        extra = [name for place, name in enumerate(columns) if place not in places]
        if missing or extra:
            problem = "not a column of the table" if missing else "in the table, but not in classes"
            raise BagError(
                f"class {(missing or extra)[0]!r} is {problem}.",
                f"classes: {listing(chosen)}; columns: {listing(columns)}",
                "classes must name every column of the table, in any order.",
            )
        return cls(ids, chosen, values[:, places])


def collected(table: Any) -> Any:
    """Return the frame that a LazyFrame of polars becomes, and anything else unchanged."""
    is_lazy = type(table).__name__ == "LazyFrame" and hasattr(table, "collect")
    return table.collect() if is_lazy else table


def as_pandas(table: Any) -> Any:
    """Return a frame of polars or pyarrow as one of pandas, and anything else unchanged."""
    table = collected(table)
    return table.to_pandas() if hasattr(table, "to_pandas") else table


def _is_series(table: Any) -> bool:
    """Tell whether it is a series of pandas: values by bag id."""
    return hasattr(table, "index") and hasattr(table, "items") and not callable(table.index)


def _read_frame(table: Any, keys: Names) -> tuple[Names, Names, Any]:
    """Return the bags, the classes and the values of a frame of pandas, polars or pyarrow."""
    own_index = hasattr(table, "index") and hasattr(table, "iloc")
    frame = as_pandas(table)
    names, index = list(frame.columns), list(frame.index)
    known = Register(index)
    in_index = own_index and any(known.place(key) is not None for key in keys)
    numbered = index == list(range(len(index))) and frame.index.name is None
    if in_index and not numbered:
        return index, names, frame
    found = [j for j in range(len(names)) if _holds(frame.iloc[:, j], keys)]
    for kinds in ("biuf", "f"):  # numbers may be those of bags by chance
        if len(found) > 1:
            found = [j for j in found if frame.iloc[:, j].dtype.kind not in kinds] or found
    if len(found) > 1:
        found = [j for j in found if _is_beside_shares(frame, j)] or found
    if in_index:  # and numbered, so that bags are numbers: a column of counts may have them, too
        found = [j for j in found if _is_beside_shares(frame, j)]
    if len(found) == 1:
        others = [j for j in range(len(names)) if j != found[0]]
        ids = frame.iloc[:, found[0]].tolist()
        return ids, [names[j] for j in others], frame.iloc[:, others]
    if own_index:
        return index, names, frame
    first = next(iter(keys), None)
    raise BagError(
        f"{'several columns' if found else 'no column'} of the table of proportions "
        f"{'have' if found else 'has'} the bag {first!r}.",
        f"columns: {listing(names)}",
        "Pass a table with one column of the bags, named as in bag=, and one column per class.",
    )


def _holds(cells: Any, keys: Names) -> bool:
    """Tell whether a column has all of some bags, and every value once."""
    values = cells.tolist()
    if not keys or any(_is_missing(value) for value in values):
        return False
    try:
        known = Register(values)
        return len(set(values)) == len(values) and min(known.places(list(keys)), default=0) >= 0
    except TypeError:  # lists, for example
        return False


def _is_beside_shares(frame: Any, column: int) -> bool:
    """Tell whether the columns beside one are shares of 1 or 100, or it numbers four rows."""
    others = frame.iloc[:, [j for j in range(frame.shape[1]) if j != column]]
    if others.shape[1] < 2:
        return False
    if frame.iloc[:, column].tolist() == list(range(len(frame))) and len(frame) >= 4:
        return True
    try:
        sums = others.to_numpy(dtype=np.float64).sum(axis=1)
        with_it = sums + frame.iloc[:, column].to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        return False
    off, more = (
        [np.abs(these - total).max() / total for total in (1, 100)] for these in (sums, with_it)
    )
    return bool(min(off) <= 0.02 and min(off) < min(more))


def _as_numbers(rows: Any) -> Floats:
    for part in rows if isinstance(rows, list) else [rows]:
        check_unmasked("the table", part)
    try:
        values = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        if (written := _as_written(rows)) is not None:
            return written
        raise BagError(
            f"the table holds something other than numbers: {error}.",
            "Keep one column per class; in a DataFrame the bag ids are the index (set_index).",
        ) from error
    if values.ndim != 2 or not values.size:
        raise BagError(
            f"the table is of shape {values.shape}.",
            "Pass one row per bag and one column per class, at least one of each.",
        )
    return values


def _as_written(rows: Any) -> Floats | None:
    """Return the numbers that texts such as 45.2 % and 0,158 stand for; None if one is none."""
    cells = np.array(rows, dtype=object)
    texts = [cell for cell in cells.ravel() if isinstance(cell, str)]
    if cells.ndim != 2 or not texts:
        return None
    signs = {decimal_of(text) for text in texts}
    decimal = "," if "," in signs else "."
    found: list[Any] = [
        parse_number(cell, decimal) if isinstance(cell, str) else cell for cell in cells.ravel()
    ]
    if {".", ","} <= signs or (signs >= {"?"} and not signs & {".", ","}) or None in found:
        return None
    try:
        values = [item.value if isinstance(item, Written) else float(item) for item in found]
    except (TypeError, ValueError):
        return None
    return np.array(values).reshape(cells.shape)


def _read_shares(table: Mapping[Hashable, Any]) -> list[Any]:
    """Return the shares of two classes, of which that of the second is given."""
    (shares,) = _as_numbers([list(table.values())])
    whole = 100.0 if (shares > 1).any() else 1.0
    for bag, share in zip(table, shares, strict=True):
        if not 0 <= share <= whole:
            raise BagError(
                f"bag {bag!r} has the share {share:g}.",
                "A single number per bag is the share of the second of two classes, from 0 to 1 or "
                "in percent. Pass one number per class if there are others, or if these are "
                "counts.",
            )
    return [[whole - share, share] for share in shares]


def _read_mapping(table: Mapping[Hashable, Any]) -> tuple[Names | None, list[Any]]:
    """Return the class names, if rows have any, and the rows with their values in that order."""
    rows = list(table.values())
    if rows and all(np.ndim(row) == 0 and not hasattr(row, "keys") for row in rows):
        return None, _read_shares(table)
    named = [list(row.keys()) if hasattr(row, "keys") else range(np.size(row)) for row in rows]
    for bag, own in zip(table, named, strict=True):
        if set(own) != set(named[0]):
            raise BagError(
                f"bag {bag!r} has values for {count(len(own), 'class')} ({listing(own)}), "
                f"but bag {next(iter(table))!r} for {len(named[0])} ({listing(named[0])}).",
                "Every bag needs a value of every class: 0 if it holds none.",
            )
    if not rows or not hasattr(rows[0], "keys"):
        return None, rows
    return named[0], [[row[name] for name in named[0]] for row in rows]


def locate(keys: Names, codes: Ints, names: Names, what: str, remedy: Words) -> Ints:
    """Return the position among `names` of every row's key, ``keys[code]``; −1 of code −1."""
    positions = Register(names).places(keys)
    unknown = positions < 0
    if unknown.any():
        first = int(unknown.argmax())
        raise BagError(
            f"{what} {keys[first]!r} ({count(int(np.sum(codes == first)), 'row')}) is unknown"
            f"{and_more(int(unknown.sum()))}.",
            f"known: {listing(map(repr, names))}",
            remedy,
        )
    return np.append(positions, -1)[codes]


def by_bag(bag: Ints, n_bags: int) -> NDArray[np.int64]:
    """Return the instances bag after bag, in their order within each: a counting sort."""
    if len(bag) < FEW:
        return np.argsort(bag, kind="stable")
    from scipy.sparse import csc_array

    kind: Any = np.int32 if len(bag) < 2**31 else np.int64
    # One entry per column, in the row of its bag: row after row these are the instances by bag.
    ends = np.arange(len(bag) + 1, dtype=kind)
    entries: Any = (np.ones(len(bag), np.int8), bag.astype(kind), ends)
    found: Ints = csc_array(entries, (n_bags, len(bag))).tocsr().indices.astype(np.int64)
    return found
