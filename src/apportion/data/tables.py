"""Bags from tables: CSV and Parquet files, larger than memory if need be, and DataFrames.

A table has a row an instance, a column that names its bag, and columns that become the numbers of
`Columns`; another table has the proportions by bag. Rows are read in pieces and twice: once to
learn the columns and the bags, once to encode them. Encoded rows of up to 1 GiB stay in memory;
more are written to files, which are mapped into it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from apportion.bags.bags import Bags
from apportion.bags.columns import Columns
from apportion.bags.names import sorted_names
from apportion.data._bag_scan import Scan
from apportion.data._pieces import Pieces, named, naming, open_pieces
from apportion.data._row_store import RowStore, check_store
from apportion.data.encoding import Unseen, encode_into
from apportion.data.proportions import object_index, read_proportions
from apportion.errors import DataError, suggestion

__all__ = ["Table", "read_bags"]

log = logging.getLogger("apportion")


@dataclass(frozen=True, eq=False)
class Table:
    """Bags, and how the columns of their table became the numbers that they hold."""

    bags: Bags
    columns: Columns


def read_bags(
    rows: str | os.PathLike[str] | pd.DataFrame | Pieces,
    *,
    bag: str,
    proportions: Any = None,
    counts: bool = False,
    normalize: bool = False,
    classes: Iterable[Hashable] | None = None,
    label: str | None = None,
    split: str | None = None,
    columns: Columns | Sequence[str] | None = None,
    store: str | os.PathLike[str] | None = None,
) -> Table:
    """Read bags from a table of rows and a table of proportions.

    Parameters
    ----------
    rows : path of a .csv, .csv.gz or .parquet file, or DataFrame
        One row an instance.
    bag : str
        The column of `rows` that names each row's bag.
    proportions : path of such a file, DataFrame or dict, optional
        By bag. Either wide: a column named as `bag`, or else the index of a DataFrame, and a
        column a class; or long, if bags repeat: a column named as `bag`, one of classes and one of
        values, where a class that a bag does not have is 0. A column `split` is not a class.
        Without a table the classes of every bag are counted from `label`.
    counts, normalize
        Whether the table holds counts, and whether to rescale it: as in `Bags.from_rows`.
    classes : sequence of class names, optional
        The order of the classes: of a wide table all, of a long one or of labels at least those
        that are there. By default as in a wide table, or sorted.
    label : str, optional
        The column of `rows` with the truth, for evaluation only.
    split : str, optional
        Keep only bags for which the column `split` of the table says so, and their rows.
    columns : Columns, or list of column names, optional
        Columns that were learned before, to be used as they are; or the columns to learn. By
        default all but those of the bag and the label.
    store : path, optional
        A new folder for the encoded rows. By default they stay in memory if they take no more than
        1 GiB, and otherwise go into a temporary folder, which is removed when they are not used
        any more.

    Raises
    ------
    DataError
        If a file cannot be read, or a column, a bag or a value in it is missing or wrong.
    BagError
        If the proportions are not those of bags.

    Examples
    --------
    >>> rows = pd.DataFrame({"ward": ["a", "a", "b", "b", "b"], "age": [30, 50, 40, None, 60]})
    >>> table = read_bags(rows, bag="ward", proportions={"a": [0.5, 0.5], "b": [0.3, 0.7]})
    >>> table.bags
    Bags(2 bags of 2–2.5–3 instances, 5 in all, from 5 rows; 2 classes: 0, 1; truth unknown)
    >>> table.columns
    Columns(1 numeric: age (with gaps); 0 categorical)
    >>> table.bags.x[3]
    array([45.,  1.], dtype=float32)
    """
    bag, label = str(bag), None if label is None else str(label)
    folder = None if store is None else Path(store).expanduser()
    if folder is not None:
        check_store(folder)
    source = open_pieces(rows, index=[bag] if label is None else [bag, label])
    features = _choose_columns(source, bag, label, columns)
    if proportions is None and (label is None or split is not None):
        raise DataError(
            f"neither proportions nor a label are given for {source.source}."
            if label is None
            else f"split {split!r} is asked for, but no table of proportions is given.",
            "Pass a table of proportions, by bag.",
        )
    order = None if classes is None else list(classes)
    table = None if proportions is None else read_proportions(proportions, bag, split, order)
    scan = Scan(source, bag, label, table)
    learned = scan.learn(features, columns if isinstance(columns, Columns) else None)
    bags = _as_bags(scan, order, counts=counts, normalize=normalize)
    log.info("%s: %s rows in %s bags", source.source, f"{scan.n_kept:,}", f"{bags.n_bags:,}")
    return Table(bags.with_rows(_encode(scan, learned, folder), learned), learned)


def _choose_columns(
    source: Pieces, bag: str, label: str | None, columns: Columns | Sequence[str] | None
) -> list[str]:
    """Give the names of the features, after a look at whether all columns are there."""
    chosen = None
    if isinstance(columns, Columns):
        chosen = list(columns.names)
    elif columns is not None:
        chosen = [columns] if isinstance(columns, str) else list(map(str, columns))
        if own := [name for name in chosen if name in (bag, label)]:
            what = "bag" if own[0] == bag else "label"
            raise DataError(
                f"column {own[0]!r} is the {what}, and cannot be one of the columns to learn from.",
                "Leave it out of columns.",
            )
    for name in (bag, *(() if label is None else (label,)), *(chosen or ())):
        if name not in source.names:
            raise DataError(
                f"{source.source} has no column {name!r}.", suggestion(name, source.names)
            )
    if chosen is None:
        rest = [name for name in source.names if name not in (bag, label)]
        chosen = named(rest, source.source)
    if not chosen:
        beside = " and ".join(repr(name) for name in (bag, label) if name is not None)
        raise DataError(
            f"{source.source} has 0 columns to learn from beside {beside}.",
            "Add the columns that describe the rows.",
        )
    return list(dict.fromkeys(chosen))


def _as_bags(scan: Scan, classes: list[Hashable] | None, *, counts: bool, normalize: bool) -> Bags:
    """Put the rows into bags. What these hold is yet to come."""
    table, truth, values = scan.table, None, None
    position, ids = scan.bags.all_rows.astype(np.int64), scan.bags.names
    if table is not None:
        kept = scan.kept(scan.bags.all_rows)
        position = np.array(scan.place)[position]
        ids = list(table.ids)
        values = table.values
        if kept is not None and table.kept is not None:
            position = (np.cumsum(table.kept) - 1)[position[kept]]
            ids = list(compress(ids, table.kept))
            values = values[table.kept]
        if isinstance(values, pd.DataFrame):
            values = values.set_axis(object_index(ids))
    else:
        classes = sorted_names(scan.labels.names) if classes is None else classes
        truth = scan.truth(tuple(classes))
        cell = position * len(classes) + truth
        counted = np.bincount(cell, minlength=len(ids) * len(classes))
        values, counts, normalize = counted.reshape(-1, len(classes)), True, False
        values = pd.DataFrame(values, object_index(ids), object_index(classes))
    sizes = np.bincount(position, minlength=len(ids))
    # numpy sorts 16-bit integers several times faster, and most tables have fewer bags.
    order = np.argsort(position.astype(np.min_scalar_type(len(ids))), kind="stable")
    members = dict(zip(ids, np.split(order, np.cumsum(sizes)[:-1]), strict=True))
    with naming(scan.source.source if table is None else table.source):
        bags = Bags.from_members(
            None, members, values, counts=counts, normalize=normalize, classes=classes
        )
    if scan.label is not None:
        truth = scan.truth(bags.classes) if truth is None else truth
        bags = replace(bags, truth=truth[bags.index])
    return bags


def _encode(scan: Scan, columns: Columns, folder: Path | None) -> Any:
    """Read the table once more, and write its rows into arrays."""
    source, unseen = scan.source, Unseen()
    bags, written, read = scan.bags.all_rows, 0, 0
    log.info("%s: encoding %s rows", source.source, f"{scan.n_kept:,}")
    wanted = {
        "numbers": ((scan.n_kept, columns.n_numbers), np.float32),
        "codes": ((scan.n_kept, len(columns.categories)), np.int16),
    }
    store = RowStore(wanted, folder)
    try:
        for first, frame in source.read(columns.names, scan.as_text):
            rows = np.arange(first, first + len(frame))
            read += len(frame)
            if read > scan.n_rows:
                break
            kept = scan.kept(bags[rows])
            if kept is not None:
                frame, rows = frame[kept], rows[kept]
            numbers, codes = store.part(written, written + len(rows))
            with naming(source.source):
                unseen.update(encode_into(columns, frame, rows, numbers, codes))
            written += len(rows)
        if read != scan.n_rows:
            raise DataError(
                f"{source.source} had {scan.n_rows:,} rows, and has others now.",
                "Let nothing write to the file while it is read.",
            )
        unseen.warn(stacklevel=3)
    except BaseException:
        store.remove()
        raise
    numbers, codes = store.finish()
    return (numbers, codes) if columns.categories else numbers
