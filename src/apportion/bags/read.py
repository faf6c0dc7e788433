"""Reading what users bring: instances, one name a row, rows by bag, and tables of proportions."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from apportion.bags.checks import (
    Floats,
    Ints,
    Names,
    check_filled,
    check_rows,
    check_unique,
    check_values,
)
from apportion.bags.counts import count_labels, largest_remainder
from apportion.errors import BagError, and_more, count, listing

# Instance j is row rows[j] of x, in the bag keys[codes[j]]: (keys, codes, rows).
Placed = tuple[Names, Ints, Ints]


def as_instances(x: Any) -> Any:
    """Give `x` itself where it is an array or a tuple of arrays, and arrays in place of lists."""
    if isinstance(x, tuple):
        parts = tuple(map(as_instances, x))
        return x if all(part is own for part, own in zip(parts, x, strict=True)) else parts
    return x if hasattr(x, "shape") and hasattr(x, "__getitem__") else np.asarray(x)


def count_rows(x: Any) -> int:
    """Count the rows of x."""
    parts = x if isinstance(x, tuple) else (x,)
    for part in parts:
        if hasattr(part, "columns") or hasattr(part, "iloc"):
            raise BagError(
                f"x is a {type(part).__name__}, whose rows are not found by their position.",
                "Pass an array: x.to_numpy(), or a tuple of arrays where columns differ in type.",
            )
    lengths = [int(part.shape[0]) if part.shape else 0 for part in parts]
    if len(set(lengths)) != 1 or not lengths[0]:
        raise BagError(
            f"x has {' and '.join(map(str, lengths)) or 'no'} rows.",
            "Pass at least one row, and parts of equal length where x is a tuple.",
        )
    return lengths[0]


def factorize(values: Iterable[Hashable], what: str, n_rows: int) -> tuple[Names, Ints]:
    """Give the distinct names in order of appearance, and the number of each row's name."""
    array = np.asarray(values) if hasattr(values, "dtype") else None
    # numpy would turn its dates into plain numbers, and mixed lists into strings.
    items = list(values) if array is None or array.dtype.kind in "mM" else array.tolist()
    shape = (len(items),) if array is None else array.shape
    if shape != (n_rows,):
        raise BagError(
            f"x has {count(n_rows, 'row')}, but the {what}s are of shape {shape}.",
            f"Pass one {what} per row of x, in the order of its rows.",
        )
    seen: dict[Hashable, int] = {}
    codes = np.fromiter((seen.setdefault(item, len(seen)) for item in items), np.int64, n_rows)
    missing = np.isin(codes, [code for name, code in seen.items() if _is_missing(name)])
    if missing.any():
        raise BagError(
            f"the {what} of {count(int(missing.sum()), 'row')} is missing; "
            f"row {missing.argmax()} is the first.",
            f"Give each of them a {what}, or leave these rows out of x.",
        )
    return list(seen), codes


def _is_missing(name: Any) -> bool:
    try:
        return name is None or bool(name != name)  # as NaN and NaT are
    except TypeError:  # pandas.NA will not say
        return True


def read_members(members: Mapping[Any, ArrayLike] | ArrayLike, n_rows: int) -> Placed:
    """Read the rows that each bag holds."""
    by_bag = members if isinstance(members, Mapping) else dict(enumerate(np.asarray(members)))
    ids, groups = list(by_bag), [np.asarray(rows) for rows in by_bag.values()]
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
    return ids, codes, rows


def read_table(
    table: Any, classes: Iterable[Hashable] | None, keys: Names
) -> tuple[Names, Names, Floats]:
    """Give the bag ids, the class names and the values of a frame, a mapping or an array."""
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
                    "Pass a dict or a DataFrame by bag id, or number the bags by the array's rows.",
                )
    try:
        values = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BagError(
            f"the table holds something other than numbers: {error}.",
            "Keep one column a class; in a DataFrame the bag ids are the index (set_index).",
        ) from error
    if values.ndim != 2 or not values.size:
        raise BagError(
            f"the table is of shape {values.shape}.",
            "Pass one row a bag and one column a class, at least one of each.",
        )
    columns: Names = range(values.shape[1]) if named is None else named
    chosen = columns if classes is None else list(classes)
    check_unique(ids, "bag")
    check_unique(columns, "class")
    check_unique(chosen, "class")
    if named is None and len(chosen) == len(columns):
        return ids, chosen, values
    missing = [name for name in chosen if name not in columns]
    extra = [name for name in columns if name not in chosen]
    if missing or extra:
        problem = "not a column of the table" if missing else "in the table, but not in classes"
        raise BagError(
            f"class {(missing or extra)[0]!r} is {problem}.",
            f"classes: {listing(chosen)}; columns: {listing(columns)}",
            "Let classes hold every column of the table, in the order you like.",
        )
    return ids, chosen, values[:, [columns.index(name) for name in chosen]]


def _read_mapping(table: Mapping[Hashable, Any]) -> tuple[Names | None, list[Any]]:
    """Give the class names, where rows have any, and the rows with their values in that order."""
    rows = list(table.values())
    named = [list(row.keys()) if hasattr(row, "keys") else range(np.size(row)) for row in rows]
    for bag, own in zip(table, named, strict=True):
        if set(own) != set(named[0]):
            raise BagError(
                f"bag {bag!r} has values for {count(len(own), 'class')} ({listing(own)}), "
                f"but bag {next(iter(table))!r} for {len(named[0])} ({listing(named[0])}).",
                "Give every bag a value of every class: 0 where it holds none.",
            )
    if not rows or not hasattr(rows[0], "keys"):
        return None, rows
    return named[0], [[row[name] for name in named[0]] for row in rows]


def locate(keys: Names, codes: Ints, names: Names, what: str, remedy: str) -> Ints:
    """Give the position among `names` of every row's key, ``keys[code]``."""
    place = {name: position for position, name in enumerate(names)}
    positions = np.array([place.get(key, -1) for key in keys], dtype=np.int64)
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


def assemble(
    x: Any,
    placed: Placed,
    table: Any,
    as_counts: bool,
    normalize: bool,
    classes: Iterable[Hashable] | None,
    labels: Iterable[Hashable] | None,
) -> tuple[Ints, Ints, Floats, Ints, tuple[Hashable, ...], tuple[Hashable, ...], Ints | None]:
    """Give the fields of `Bags` after `x`, in their order."""
    keys, codes, rows = placed
    if table is None and labels is None:
        raise BagError(
            "neither proportions nor labels are given.",
            "Pass a table of proportions, or labels to count the classes of every bag.",
        )
    if labels is not None:
        found, label_codes = factorize(labels, "label", count_rows(x))
    if table is not None:
        ids, names, values = read_table(table, classes, keys)
    else:
        ids, names = keys, _sorted(found) if classes is None else list(classes)
    bag = locate(keys, codes, ids, "bag", "Add it to the table, or leave its rows out.")
    sizes = np.bincount(bag, minlength=len(ids))
    check_filled(sizes, ids)
    # numpy sorts 16-bit integers several times faster, and most tables have fewer bags.
    order = np.argsort(bag.astype(np.min_scalar_type(len(ids))), kind="stable")
    index, truth = rows[order], None
    if labels is not None:
        remedy = "Add the class to the table and to classes, or correct the label."
        truth = locate(found, label_codes, names, "label", remedy)[index]
    if table is None and truth is not None:
        values, as_counts = count_labels(truth, sizes, len(names)).astype(np.float64), True
    if as_counts and not normalize:
        check_values(values, sizes, ids, names, counts=True)
        counts = values.astype(np.int64)
        values /= sizes[:, None]
    else:
        if normalize:
            sums = values.sum(axis=1, keepdims=True)
            np.divide(values, sums, out=values, where=np.isfinite(sums) & (sums > 0))
        check_values(values, sizes, ids, names)
        counts = largest_remainder(values, sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return index, offsets, values, counts, tuple(names), tuple(ids), truth


def _sorted(names: Sequence[Any]) -> Names:
    try:
        return sorted(names)
    except TypeError:  # names of several kinds
        return names
