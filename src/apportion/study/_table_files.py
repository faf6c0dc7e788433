"""Read labelled tables, and write the rows and proportions of bags made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.data.dialect import PLAIN, TableFormat
from apportion.data.pieces import is_parquet, open_pieces, parquet_files, reading
from apportion.errors import DataError, Option, count
from apportion.files import replacing, writing
from apportion.study.manifests import Manifest

NAMES = ("rows.csv", "rows.parquet", "proportions.csv", "train.safetensors", "valid.safetensors")
OWN_COLUMNS = ("bag", "split")  # of proportions.csv, beside the classes


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """A table with a column of classes, none of which is missing."""

    path: Path
    label: str
    truth: NDArray[Any]
    typed: pd.DataFrame  # as pandas reads it
    written: pd.DataFrame  # as it is to be written again: the label is the last column, or left out

    @property
    def rows_file(self) -> str:
        """The name of the file that its rows are written to."""
        return "rows.parquet" if is_parquet(self.path) else "rows.csv"

    def numbers(self) -> tuple[list[str], NDArray[np.float64]]:
        """Return the names of the numeric columns, and their values."""
        chosen = self.typed.drop(columns=self.label).select_dtypes(["number", "bool"])
        if not chosen.shape[1]:
            raise DataError(
                f"{self.path} has 0 columns of numbers beside {self.label!r}, so that there are no "
                "distances between rows.",
                "Add such columns, or choose another protocol than clusters.",
            )
        missing = chosen.isna().sum()
        if missing.any():
            raise DataError(
                f"column {missing.idxmax()!r} of {self.path} lacks {missing.max():,} values, "
                "and the protocol clusters needs them all.",
                "Fill them in, or leave out the column or these rows.",
            )
        return list(map(str, chosen.columns)), chosen.to_numpy(np.float64)


def read_labelled(
    path: Path,
    label: str,
    *,
    names: Sequence[str] = (),
    keep_label: bool = False,
    form: TableFormat = PLAIN,
) -> LabelledTable:
    """Read a table and its column of classes."""
    pieces = open_pieces(path, names=names, form=form)
    pieces.check_columns([label])
    if "bag" in pieces.names:
        raise DataError(
            f"{path} has a column 'bag' already.",
            "Rename it: the number of each row's bag is written into a column of that name.",
        )
    options: dict[str, Any] = {"low_memory": False, "encoding": pieces.dialect.encoding}
    options |= {**pieces.dialect.options, **pieces.options}
    if names:
        options["names"] = pieces.names
    with reading(path):
        if pieces.is_csv:
            typed = pd.read_csv(path, **options)
            # As text a cell stays what it was: 007 does not become 7, nor 3 with a gap below 3.0.
            as_text = {"dtype": str, "na_filter": False, **options}
            written = pd.read_csv(path, **as_text)
        elif pieces.frame is not None:
            typed = written = pieces.frame
        else:
            parts = [pd.read_parquet(file) for file in parquet_files(path)]
            typed = written = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
    if not isinstance(typed.index, pd.RangeIndex):  # one that was saved is a column like others
        typed, written = typed.reset_index(), written.reset_index()
    others = written.drop(columns=label)
    if keep_label:
        others[label] = written[label]
    return LabelledTable(path, label, _truth(path, typed[label]), typed, others)


def _truth(path: Path, column: pd.Series[Any]) -> NDArray[Any]:
    """Return the classes, named as pandas names them by default."""
    if not len(column):
        raise DataError(f"{path} has 0 rows below its names.", "Pass a table with rows.")
    missing = column.isna().to_numpy()
    if missing.any():
        raise DataError(
            f"column {column.name!r} of {path} lacks {missing.sum():,} of {len(missing):,} labels; "
            f"row {missing.argmax()} is the first (the rows are counted from 0).",
            "Fill them in, or leave these rows out. A class that is called NA, None or the like "
            "is read as missing: give it another name.",
        )
    truth = np.asarray(column.astype(str) if column.dtype.kind in "mM" else column)
    for name in OWN_COLUMNS:
        if name in truth.astype(str):
            raise DataError(
                f"column {column.name!r} of {path} has a class {name!r}.",
                f"Rename the class: proportions.csv has a column {name!r} for something else.",
            )
    return truth


def check_folder(folder: Path, table: Path, *, force: bool) -> None:
    """Check that the folder is free or may be overwritten, and does not hold the table itself."""
    if table.resolve() in [(folder / name).resolve() for name in NAMES]:
        raise DataError(
            f"bags in {folder} would replace the table itself, {table}.", "Pass another folder."
        )
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file.", "Pass a folder, which need not exist yet.")
    there = sorted(path.name for path in folder.glob("*"))
    if there and not force:
        raise DataError(
            f"{folder} already has {count(len(there), 'file')}, for example {there[0]}.",
            ("Pass another folder, or ", Option("force"), " to replace the bags in this one."),
        )


def write_tables(folder: Path, table: LabelledTable, manifests: Mapping[str, Manifest]) -> None:
    """Write rows and proportions in place of older bags, which are numbered through."""
    made = [manifest.bags() for manifest in manifests.values()]
    shares = pd.concat(
        pd.DataFrame(bags.proportions, columns=list(map(str, bags.classes))) for bags in made
    )
    if len(made) > 1:
        shares.insert(0, "split", np.repeat(list(manifests), [bags.n_bags for bags in made]))
    ids = np.arange(len(shares))
    shares.insert(0, "bag", ids)
    rows = table.written.iloc[np.concatenate([bags.index for bags in made])]
    rows.insert(0, "bag", np.repeat(ids, np.concatenate([bags.sizes for bags in made])))
    write_rows: Any = rows.to_parquet if is_parquet(table.path) else rows.to_csv
    with writing(folder, remedy="Pass a folder that you may write to."):
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "train.safetensors").exists():
            for name in NAMES:
                (folder / name).unlink(missing_ok=True)
    for name, write in ((table.rows_file, write_rows), ("proportions.csv", shares.to_csv)):
        with replacing(folder / name) as beside:
            write(beside, index=False)
