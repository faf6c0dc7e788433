"""Readers of the input of `Bags`: instances, names of rows, rows by bag, tables of proportions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.bags.checks import Floats, Ints, Names, check_rows, check_unique, check_unmasked
from apportion.bags.items import Items, is_dataset
from apportion.bags.names import Register
from apportion.errors import BagError, and_more, count, listing

__all__ = [
    "Placed",
    "Table",
    "as_instances",
    "by_bag",
    "count_rows",
    "factorize",
    "locate",
    "read_members",
]

FEW = 20_000  # rows: with fewer, Python is faster than importing scipy or pandas


@dataclass(frozen=True, eq=False)
class Placed:
    """Rows placed in bags: instance j is a row of x in the bag ``keys[codes[j]]``."""

    keys: Names
    codes: Ints  # (N,)
    rows: Ints | None = None  # (N,) rows of x; None where instance j is row j

    def at(self, names: Names) -> Ints:
        """Return the position among `names` of every instance's bag."""
        remedy = "Add it to the table, or leave its rows out."
        return locate(self.keys, self.codes, names, "bag", remedy)


def as_instances(x: Any) -> Any:
    """Return `x` itself if it is an array or a tuple of arrays, and arrays in place of lists."""
    check_unmasked("x", x)
    if hasattr(x, "tocsr"):
        return x.tocsr()
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
            f"x is a list that makes no array: {error}.", "Pass rows of the same shape."
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


def factorize(values: Any, what: str, n_rows: int | None) -> tuple[Names, Ints]:
    """Return the distinct names in order of appearance, and the code of each row's name.

    Many rows are factorized by pandas, few in Python.
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
    missing = codes < 0
    if missing.any():
        raise BagError(
            f"the {what} of {count(int(missing.sum()), 'row')} is missing; "
            f"row {missing.argmax()} is the first.",
            f"Add the {what} of each of them, or leave these rows out of x.",
        )
    return names, codes


def _factorize_few(array: Any) -> tuple[Names, Ints]:
    """Factorize in Python, which is faster than importing pandas."""
    dates = isinstance(array, np.ndarray) and array.dtype.kind in "mM"
    items = list(array) if dates else array.tolist()  # which makes plain numbers of numpy's dates
    seen: dict[Hashable, int] = {}
    codes = np.fromiter((seen.setdefault(item, len(seen)) for item in items), np.int64, len(items))
    missing = [code for name, code in seen.items() if _is_missing(name)]
    if missing:
        codes[np.isin(codes, missing)] = -1
    return list(seen), codes


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
    for bag, group in zip(ids, groups, strict=True):
        if group.ndim != 1 or (group.size and group.dtype.kind not in "iu"):
            raise BagError(
                f"the rows of bag {bag!r} are of shape {group.shape} and {group.dtype}.",
                "Pass a flat list of row numbers for every bag.",
            )
    sizes = [len(group) for group in groups]
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

    @classmethod
    def read(cls, table: Any, classes: Iterable[Hashable] | None, keys: Names) -> Table:
        """Read a frame, a mapping or an array; `keys` are the bags that are looked for in it."""
        named: Names | None = None
        if hasattr(table, "columns") and hasattr(table, "index"):
            ids, named, rows = list(table.index), list(table.columns), table
        elif isinstance(table, Mapping):
            named, rows = _read_mapping(table)
            ids = list(table)
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


def _as_numbers(rows: Any) -> Floats:
    for part in rows if isinstance(rows, list) else [rows]:
        check_unmasked("the table", part)
    try:
        values = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
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


def _read_mapping(table: Mapping[Hashable, Any]) -> tuple[Names | None, list[Any]]:
    """Return the class names, if rows have any, and the rows with their values in that order."""
    rows = list(table.values())
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


def locate(keys: Names, codes: Ints, names: Names, what: str, remedy: str) -> Ints:
    """Return the position among `names` of every row's key, ``keys[code]``."""
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
    return positions[codes]


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
