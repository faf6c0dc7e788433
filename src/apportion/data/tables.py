"""Bags from tables: text and Parquet files, larger than memory if need be, Excel files and frames.

A table has one row per instance, a column that names its bag, and columns that become numbers
(`apportion.bags.columns`); another table has the proportions by bag. Rows are read in pieces and
twice: once for the bags and the columns, once to encode. Columns are learned from the rows of
training bags alone, so where no table names the bags it takes one pass more. Encoded rows of up to
1 GiB stay in memory; more are written to files, which are mapped into it.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from apportion.bags.bags import Bags, held_out_bags
from apportion.bags.columns import Columns
from apportion.bags.read import Placed
from apportion.data._named import put
from apportion.data._row_store import RowStore, check_store
from apportion.data._scan import Scan
from apportion.data.constants import check_constants
from apportion.data.dialect import FormatOptions, formats
from apportion.data.encoding import Unseen, encode_into
from apportion.data.giveaways import check_for_truth
from apportion.data.pieces import Pieces, Rows, named, naming, open_pieces
from apportion.data.proportions import SETS, BagTable, read_proportions
from apportion.errors import ConfigError, DataError, Option, count
from apportion.plan.held_out import held_out_share

__all__ = ["read_sets", "read_table", "split_bags"]

log = logging.getLogger("apportion")

Masks = dict[str, NDArray[np.bool_]]


def read_table(
    rows: Rows | Pieces,
    *,
    bag: str,
    proportions: Any = None,
    counts: bool = False,
    normalize: bool = False,
    classes: Iterable[Hashable] | None = None,
    label: str | None = None,
    columns: Columns | Sequence[str] | None = None,
    keep: Sequence[str] = (),
    store: str | os.PathLike[str] | None = None,
    skip_unplaced: bool = False,
    **form: Unpack[FormatOptions],
) -> Bags:
    """Read bags from a table of rows and a table of proportions.

    Columns are learned from all rows; `read_sets` learns them from the training bags alone.

    Parameters
    ----------
    rows : path of a .csv, .tsv, .txt, .xlsx or .parquet file, or a frame
        One row per instance. Text files may also end in .gz; a folder of Parquet files is one
        table; a frame is one of pandas, polars or pyarrow.
    bag : str
        The column of `rows` that names each row's bag.
    proportions : path of such a file, frame, Series or dict, optional
        By bag. Either wide: a column named as `bag`, or else the index of a DataFrame, and one
        column per class; or long, if bags repeat: a column named as `bag`, one of classes and one
        of values, where a class that a bag does not have is 0. A column `split` is not a class, nor
        is one of totals; bags without rows are left out. A Series or dict of single numbers has the
        shares of the second of two classes. Without a table the classes of every bag are counted
        from `label`.
    counts, normalize
        Whether the table holds counts, and whether to rescale it: as in `Bags.from_rows`.
    classes : sequence of class names, optional
        The classes, in this order; other columns of a wide table are left out. By default as in a
        wide table, or sorted.
    label : str, optional
        The column of `rows` with the true classes, for evaluation only. Some cells may be empty.
    columns : Columns, or list of column names, optional
        Columns that were learned before, to be used as they are; or the columns to learn. By
        default all but those of the bag and the label. Columns that are empty, or have one value
        in all rows, are left out.
    keep : list of column names
        Columns to learn from even if they are empty or have one value in all rows, give the truth
        away, or are the bag's own proportions.
        Others are refused if the numbers of their values meet the class counts exactly, in 5 bags
        of 5 rows or more with differing proportions, and warned of if they nearly do. They are left
        out if they are the shares or counts of a class in every bag, and warned of if they are
        constant within every bag in another way.
    store : path, optional
        A new folder for the encoded rows. By default they stay in memory if they take no more than
        1 GiB, and otherwise go into a temporary folder, which is removed when they are not used
        any more.
    skip_unplaced : bool
        Whether rows without a bag, or of a bag that `proportions` do not have, are left out.
    sep, decimal, encoding : str, optional
        Of a text file of rows: the separator of cells ("," ";" "|" or "tab"), the decimal sign
        ("." or ","), and the encoding. By default they are recognised. The decimal sign is also
        that of texts in an Excel file.
    sheet : str, optional
        The sheet of an Excel file of rows; by default the first.
    proportions_sep, proportions_decimal, proportions_encoding, proportions_sheet : str, optional
        The same of the table of proportions.

    Returns
    -------
    Bags
        With `columns`, which say how the table became numbers.

    Raises
    ------
    DataError
        If a file cannot be read, or a column, a bag or a value in it is missing or wrong.
    BagError
        If the proportions are not those of bags.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"ward": ["a", "a", "b", "b", "b"], "age": [30, 50, 40, None, 60]})
    >>> bags = read_table(rows, bag="ward", proportions={"a": [0.5, 0.5], "b": [0.3, 0.7]})
    >>> bags
    Bags(2 bags of 2–2.5–3 instances, 5 in all, from 5 rows; 2 classes: 0, 1; truth unknown)
    >>> bags.columns
    Columns(1 numeric: age (with gaps); 0 categorical)
    >>> bags.x[3]
    array([45.,  1.], dtype=float32)
    """
    known = bag, proportions, classes, label, columns, keep, store, skip_unplaced
    table = _Reading(rows, *known, **form)
    return table.read(counts, normalize, None)[0]


def read_sets(
    rows: Rows | Pieces,
    *,
    validation: float | None = None,
    seed: int = 0,
    counts: bool = False,
    normalize: bool = False,
    **options: Any,
) -> dict[str, Bags]:
    """Read bags to train on, to select by and to test on; columns are those of the first alone.

    Parameters
    ----------
    validation : float, optional
        The share of the bags that is held out at random, if the table of proportions has no column
        `split` that says train, valid or test; by default as `apportion.plan` decides. 0 is none.
    seed : int
        Decides which.
    rows, counts, normalize, **options
        As in `read_table`.

    Returns
    -------
    dict
        Bags by "train", "valid" and "test", those there are.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"ward": ["a", "a", "b", "b"], "age": [30, 50, 4000, None]})
    >>> wards = pd.DataFrame({"ward": ["a", "b"], "split": ["train", "test"], "no": 0.5})
    >>> sets = read_sets(rows, bag="ward", proportions=wards.assign(yes=0.5))
    >>> list(sets), sets["test"].columns.means
    (['train', 'test'], {'age': 40.0})
    """
    whole, masks = _Reading(rows, **options).read(counts, normalize, (validation, seed))
    return {name: whole[mask] for name, mask in masks.items()}


def split_bags(
    bags: Bags, table: BagTable | None, validation: float | None, seed: int
) -> dict[str, Bags]:
    """Split bags as the column `split` of their table says, or at random."""
    if table is not None and table.split is not None:
        said = dict(zip(table.ids, table.split, strict=True))
        masks = _masks([said[name] for name in bags.ids], bags.ids, validation, seed)
        return {name: bags[mask] for name, mask in masks.items()}
    share = held_out_share(bags.n_bags, validation).value
    if not share:
        return {"train": bags}
    train, valid, overlap = bags.split(share, seed=seed)
    if overlap.shared_rows:
        log.warning("%s", overlap)
    return {"train": train, "valid": valid}


def _masks(
    split: Sequence[str] | None, ids: Sequence[Hashable], validation: float | None, seed: int
) -> Masks:
    """Decide which bags belong to which set."""
    if split is None:
        share = held_out_share(len(ids), validation).value
        if not share:
            return {"train": np.ones(len(ids), bool)}
        held_out = held_out_bags(ids, share, seed=seed)
        return {"train": ~held_out, "valid": held_out}
    if validation:
        raise ConfigError(
            f"validation is {validation:g}, but the proportions have a column 'split' that says "
            "which bags are for validation.",
            ("Leave out ", Option("validation", f"{validation:g}", f"{validation:g}"), "."),
        )
    if "train" not in split:
        raise DataError(
            "no bag of split 'train' has rows.", "Add the rows of the bags to learn from."
        )
    return {name: np.array(split) == name for name in SETS if name in split}


class _Reading:
    """A table that is about to be read."""

    def __init__(
        self,
        rows: Rows | Pieces,
        bag: str,
        proportions: Any = None,
        classes: Iterable[Hashable] | None = None,
        label: str | None = None,
        columns: Columns | Sequence[str] | None = None,
        keep: Sequence[str] = (),
        store: str | os.PathLike[str] | None = None,
        skip_unplaced: bool = False,
        **form: Unpack[FormatOptions],
    ) -> None:
        of_rows, of_proportions = formats(**form)
        bag, label = str(bag), None if label is None else str(label)
        self.folder = None if store is None else Path(store).expanduser()
        if self.folder is not None:
            check_store(self.folder)
        own = [bag] if label is None else [bag, label]
        self.source = open_pieces(rows, index=own, form=of_rows)
        self.columns = columns if isinstance(columns, Columns) else None
        self.features = _choose_columns(self.source, bag, label, columns)
        if proportions is None and label is None:
            raise DataError(
                f"neither proportions nor a label are given for {self.source.source}.",
                "Pass a table of proportions, by bag.",
            )
        self.keep = [keep] if isinstance(keep, str) else list(keep)
        self.classes = None if classes is None else list(classes)
        self.table = None
        if proportions is not None:
            self.table = read_proportions(proportions, bag, self.classes, of_proportions)
        self.skip_unplaced = skip_unplaced
        how: dict[str, Any] = {"skip_unplaced": skip_unplaced, "keep": self.keep}
        self.scan = Scan(self.source, bag, label, self.table, **how)

    def read(
        self, counts: bool, normalize: bool, split: tuple[float | None, int] | None
    ) -> tuple[Bags, Masks]:
        """Return all bags, and the set of each; without `split` all are learned from."""
        scan, table, masks = self.scan, self.table, Masks()
        learn = [] if self.columns is not None else self.features
        if split is not None and table is not None:
            masks = _masks(table.split, table.ids, *split)
        elif split is not None:
            scan.read([])  # only now it is known which bags there are
            masks = _masks(None, scan.bags.names, *split)
        columns = scan.read(learn, masks.get("train")) or self.columns
        if table is not None and len(masks) > 1 and not scan.sizes().all():
            # Only now it is known which bags have rows: sets are drawn from these alone.
            table = self.table = scan.table = table.with_rows(scan.sizes())
            masks = _masks(table.split, table.ids, *split)  # type: ignore[misc]
            columns = scan.read(learn, masks["train"]) or self.columns
        assert columns is not None
        bags = self._placed(counts, normalize)
        if len(masks) == 1:
            masks = {"train": np.ones(bags.n_bags, bool)}
        self.warns = split is None and self.columns is not None  # encoded by columns learned before
        n_rows, n_bags = count(scan.n_rows, "row"), count(bags.n_bags, "bag")
        log.info("%s: %s in %s", self.source.source, n_rows, n_bags)
        return self._encode(bags, columns, masks.get("train")), masks

    def _placed(self, counts: bool, normalize: bool) -> Bags:
        """Put the rows into bags, which get their x later."""
        scan, table = self.scan, self.table
        ids = scan.bags.names if table is None else table.ids
        classes = self.classes if table is None else table.classes
        if scan.label is not None and classes is not None:
            scan.labels.check_among(classes)
        truth = None if scan.label is None else (scan.labels.names, scan.labels.all_rows)
        placed, how = Placed(ids, scan.bags.all_rows), {"counts": counts, "normalize": normalize}
        how["skip_unplaced"] = self.skip_unplaced
        return put(self.source, placed, table, classes=self.classes, truth=truth, **how)

    def _encode(
        self,
        bags: Bags,
        columns: Columns,
        train: NDArray[np.bool_] | None,
        *,
        settled: bool = False,
    ) -> Bags:
        """Read the table once more, and write its rows into arrays.

        If columns are left out for what they hold, all is read and written again without them: the
        arrays may be files larger than memory. Then it is `settled` which are left out.
        """
        source, scan, unseen, read, left_out = self.source, self.scan, Unseen(), 0, list[str]()
        log.info("%s: encoding %s", source.source, count(scan.n_rows, "row"))
        wanted = {
            "numbers": ((scan.n_rows, columns.n_numbers), np.float32),
            "codes": ((scan.n_rows, len(columns.categories)), np.int16),
        }
        store = RowStore(wanted, self.folder)
        placed = scan.bags.all_rows >= 0  # the others, totals for example, may hold anything
        try:
            for first, frame in source.read(columns.names, {*scan.as_text, *columns.categorical}):
                read += len(frame)
                if read > scan.n_rows:
                    break
                numbers, codes = store.part(first, read)
                with naming(source.source):
                    rows, some = np.arange(first, read), placed[first:read]
                    own = numbers, codes
                    if not some.all():
                        frame, rows = frame[some], rows[some]
                        own = numbers[some], codes[some]
                        numbers[:], codes[:] = 0, 0
                    unseen.update(encode_into(columns, frame, rows, *own, source.decimal))
                    if not some.all():
                        numbers[some], codes[some] = own
            if read != scan.n_rows:
                raise DataError(
                    f"{source.source} had {scan.n_rows:,} rows, but their number has changed.",
                    "Do not write to the file while it is read.",
                )
            if unseen.rows and self.warns:
                warnings.warn(f"{source.source}: {unseen}", stacklevel=4)
            elif unseen.rows:
                log.info("%s: %s", source.source, unseen)
            numbers, codes = store.finish()
            whole = bags.with_rows((numbers, codes) if columns.categories else numbers, columns)
            if self.columns is None:
                learned = whole if train is None else whole[train]
                with naming(source.source):
                    left_out = [] if settled else check_constants(learned, self.keep)
                    if not left_out:
                        check_for_truth(learned, self.keep)
        except BaseException:
            store.remove()
            raise
        if not left_out:
            return whole
        store.remove()
        return self._encode(bags, columns.without(left_out), train, settled=True)


def _choose_columns(
    source: Pieces, bag: str, label: str | None, columns: Columns | Sequence[str] | None
) -> list[str]:
    """Return the names of the features, after a check that all columns are there."""
    own = [name for name in (bag, label) if name is not None]
    chosen = None
    if isinstance(columns, Columns):
        chosen = list(columns.names)
    elif columns is not None:
        chosen = [columns] if isinstance(columns, str) else list(map(str, columns))
        if both := [name for name in chosen if name in own]:
            what = "bag" if both[0] == bag else "label"
            raise DataError(
                f"column {both[0]!r} is the {what}, and cannot be one of the columns to learn.",
                "Leave it out of columns.",
            )
    source.check_columns([*own, *(chosen or ())])
    if chosen is None:
        chosen = named((name for name in source.names if name not in own), source.source)
    if not chosen:
        raise DataError(
            f"{source.source} has 0 columns to learn from beside {' and '.join(map(repr, own))}.",
            "Add the columns that describe the rows.",
        )
    return list(dict.fromkeys(chosen))
