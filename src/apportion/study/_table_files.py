"""Read labelled tables, and write the rows and proportions of bags made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.data.pieces import check_file, open_pieces, reading
from apportion.errors import DataError, Option, count, suggestion
from apportion.files import replacing
from apportion.study.manifests import Manifest

FORMATS = (".csv", ".parquet")
NAMES = ("rows.csv", "rows.parquet", "proportions.csv", "train.safetensors", "valid.safetensors")
OWN_COLUMNS = ("bag", "split")  # of proportions.csv, beside the classes


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """A table with a column of classes, none of which is missing."""

    path: Path
    label: str
    truth: NDArray[Any]
    others: pd.DataFrame  # all other columns, as they are to be written again
    options: dict[str, Any]  # for pandas.read_csv
    cells: pd.Series[Any] | None = None  # the labels as text, to be written again

    def numbers(self) -> tuple[list[str], NDArray[np.float64]]:
        """Return the names of the numeric columns, and their values."""
        # What is written again was read as text; here numbers are wanted.
        parquet = self.path.suffix.lower() == ".parquet"
        frame = self.others if parquet else _read(self.path, **self.options)
        chosen = frame.drop(columns=self.label, errors="ignore").select_dtypes(["number", "bool"])
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
    path: Path, label: str, *, names: Sequence[str] = (), keep_label: bool = False
) -> LabelledTable:
    """Read a table and its column of classes."""
    parquet = path.suffix.lower() == ".parquet"
    options: dict[str, Any] = {}
    if names:
        pieces = open_pieces(path, names=names)
        options = {"header": None, "names": pieces.names, "skiprows": pieces.skipped}
        options |= pieces.options
    else:
        check_file(path, FORMATS)
    # As text a cell stays what it was: 007 does not become 7, nor 3 with a gap below it 3.0.
    frame = _read(path) if parquet else _read(path, dtype=str, na_filter=False, **options)
    _check_columns(path, label, frame)
    # The classes are named as pandas names them by default.
    column = frame[label] if parquet else _read(path, usecols=[label], **options)[label]
    missing = column.isna().to_numpy()
    if missing.any():
        raise DataError(
            f"column {label!r} of {path} lacks {missing.sum():,} of {len(missing):,} labels; "
            f"row {missing.argmax()} is the first (the rows are counted from 0).",
            "Fill them in, or leave these rows out. A class that is called NA, None or the like "
            "is read as missing: give it another name.",
        )
    truth = np.asarray(column.astype(str) if column.dtype.kind in "mM" else column)
    _check_classes(path, label, truth)
    others, cells = frame.drop(columns=label), frame[label] if keep_label else None
    return LabelledTable(path, label, truth, others, options, cells)


def _read(path: Path, **options: Any) -> pd.DataFrame:
    with reading(path):
        csv = path.suffix.lower() != ".parquet"
        frame: pd.DataFrame = (
            pd.read_csv(path, low_memory=False, **options) if csv else pd.read_parquet(path)
        )
    # An index that was saved is a column like others.
    return frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()


def _check_columns(path: Path, label: str, frame: pd.DataFrame) -> None:
    if label not in frame.columns:
        raise DataError(
            f"{path} has no column {label!r}.", suggestion(label, map(str, frame.columns))
        )
    if "bag" in frame.columns:
        raise DataError(
            f"{path} has a column 'bag' already.",
            "Rename it: the number of each row's bag is written into a column of that name.",
        )
    if not len(frame):
        raise DataError(f"{path} has 0 rows below its names.", "Pass a table with rows.")


def _check_classes(path: Path, label: str, truth: NDArray[Any]) -> None:
    for name in OWN_COLUMNS:
        if name in truth.astype(str):
            raise DataError(
                f"column {label!r} of {path} has a class {name!r}.",
                f"Rename the class: proportions.csv has a column {name!r} for something else.",
            )


def check_folder(folder: Path, table: Path, *, force: bool) -> None:
    """Check that the folder is free or may be overwritten, and does not hold the table itself."""
    for name in NAMES:
        if (folder / name).resolve() == table.resolve():
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


def write_tables(folder: Path, table: LabelledTable, manifests: Mapping[str, Manifest]) -> str:
    """Write rows and proportions in place of older bags; return the name of the file of rows."""
    rows_file = "rows.parquet" if table.path.suffix.lower() == ".parquet" else "rows.csv"
    rows, shares, start = [], [], 0
    for split, manifest in manifests.items():
        sizes = np.diff(manifest.offsets)
        ids = np.arange(start, start + manifest.n_bags)
        start += manifest.n_bags
        own = table.others.iloc[manifest.index]
        own.insert(0, "bag", np.repeat(ids, sizes))
        if table.cells is not None:
            own[table.label] = table.cells.iloc[manifest.index]
        rows.append(own)
        names = list(map(str, manifest.classes))
        frame = pd.DataFrame(manifest.counts / sizes[:, None], columns=names)
        if len(manifests) > 1:
            frame.insert(0, "split", split)
        frame.insert(0, "bag", ids)
        shares.append(frame)
    all_rows, all_shares = pd.concat(rows), pd.concat(shares)
    write_rows: Any = all_rows.to_csv if rows_file.endswith(".csv") else all_rows.to_parquet
    _prepare(folder)
    for name, write in ((rows_file, write_rows), ("proportions.csv", all_shares.to_csv)):
        with replacing(folder / name) as beside:
            write(beside, index=False)
    return rows_file


def _prepare(folder: Path) -> None:
    """Make the folder, and remove the bags that are to be replaced."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "train.safetensors").exists():
            for name in NAMES:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"{folder} cannot be used: {error.strerror or error}.",
            "Pass a folder that you may write to.",
        ) from error
