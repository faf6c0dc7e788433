"""Tables that are read in pieces: CSV and Parquet files of any size, and DataFrames."""

from __future__ import annotations

import logging
import os
import re
import warnings
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from apportion.data._cells import check_distinct
from apportion.errors import ApportionError, DataError, suggestion

log = logging.getLogger("apportion")

FORMATS = (".csv", ".csv.gz", ".parquet")
CELLS = 2**21  # of one piece: 16 MiB of numbers
MOST_ROWS = 2**17

# How pandas and pyarrow call the index of a frame that was saved with it, but had no name.
NAMELESS = re.compile(r"Unnamed: \d+|__index_level_\d+__")


def check_file(path: Path, formats: Collection[str]) -> None:
    """Check that there is such a file, and that its name ends in one of the formats."""
    if not path.name.lower().endswith(tuple(formats)):
        raise DataError(
            f"{path} is neither .csv nor .parquet by its name.",
            "Save the table in one of these formats; on the command line, --names takes any file "
            "of commas that has no line of names.",
        )
    if not path.is_file():
        there = sorted(
            near.name for near in path.parent.glob("*") if near.name.endswith(tuple(formats))
        )
        raise DataError(
            f"{path} is missing.",
            suggestion(path.name, there) if there else "Pass the path of a .csv or .parquet file.",
        )


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what can go wrong in pandas and pyarrow into an error that names the file."""
    try:
        with warnings.catch_warnings():
            # It says that cells were lost, since rows have more of them than there are names.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except DataError:
        raise
    except (
        OSError,
        ValueError,
        EOFError,
        zlib.error,
        pa.ArrowException,
        pd.errors.ParserWarning,
    ) as error:
        first = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(
            f"{path} cannot be read: {first}.",
            "Save it again: as .parquet, or as .csv in UTF-8 with commas and a line of names.",
        ) from error


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Begin an error with the name of the table that it is about."""
    try:
        yield
    except ApportionError as error:
        error.about(source)
        raise


def csv_names(path: Path) -> list[str]:
    """Give the names of the columns as they stand in the file: pandas renames the second of two."""
    with reading(path):
        line = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
    names = [name or f"Unnamed: {j}" for j, name in enumerate(line.iloc[0].tolist())]
    if len(names) == 1 and ";" in names[0]:
        raise DataError(
            f"{path} has one column, {names[0]!r}: its cells seem to be apart by semicolons.",
            "Save it with commas.",
        )
    return distinct_names(names, str(path))


def nameless_options(path: Path, names: Collection[str]) -> dict[str, Any]:
    """Give what pandas needs to read a file of commas whose columns have these names, not its own.

    Spaces behind commas are no part of a cell, and a first line with a bar is a remark: so are the
    files of the UCI repository.
    """
    if is_parquet(path):
        raise DataError(
            f"{path} has names of its own, but {len(names)} are given.", "Leave them out."
        )
    if not path.is_file():
        raise DataError(f"{path} is missing.", "Pass the path of a file of rows with commas.")
    columns = distinct_names(names, "the given names")
    options: dict[str, Any] = {"header": None, "skipinitialspace": True}
    with reading(path):
        with path.open(encoding="utf-8") as file:
            options["skiprows"] = int(file.readline().startswith("|"))
        n_columns = pd.read_csv(path, nrows=1, **options).shape[1]
    if n_columns != len(columns):
        raise DataError(
            f"{path} has {n_columns} columns, but {len(columns)} names are given: "
            f"{', '.join(columns)}.",
            "Name every column, in the order of the file.",
        )
    return {**options, "names": columns}


def open_nameless(rows: str | os.PathLike[str], names: Collection[str]) -> Pieces:
    """Open a file of commas that has no line of names."""
    path = Path(rows).expanduser()
    options = nameless_options(path, names)
    return Pieces(str(path), list(options["names"]), path=path, options=options)


def distinct_names(names: Iterable[Any], source: str) -> list[str]:
    names = list(names)
    with naming(source):
        check_distinct(names)
    return list(map(str, names))


def named(names: Iterable[str], source: str) -> list[str]:
    """Leave out columns without a name, as the row numbers of a frame that was saved with them."""
    names = list(names)
    nameless = [name for name in names if NAMELESS.fullmatch(name)]
    for name in nameless:
        log.warning("%s: a column without a name is left out (%s).", source, name)
    return [name for name in names if name not in nameless]


@dataclass(frozen=True, eq=False)
class Pieces:
    """A table, and the way to read it piece by piece, as often as needed."""

    source: str  # what errors call it
    names: list[str]  # of its columns
    frame: pd.DataFrame | None = None
    path: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # how pandas is to read the file

    @property
    def is_csv(self) -> bool:
        """Whether it is to be found out what the cells mean."""
        return self.path is not None and not is_parquet(self.path)

    def read(
        self, names: Collection[str], as_text: Collection[str] = ()
    ) -> Iterator[tuple[int, pd.DataFrame]]:
        """Give pieces that have these columns at least, each with the number of its first row.

        Parameters
        ----------
        names : collection of column names
        as_text : collection of column names
            In a CSV file their cells are kept as they stand.
        """
        pieces: Iterator[pd.DataFrame]
        n_rows = self._rows_of_a_piece()
        if self.frame is not None:
            whole = self.frame
            pieces = (whole.iloc[k : k + n_rows] for k in range(0, len(whole), n_rows))
        elif self.is_csv:
            pieces = self._read_csv(n_rows, dict.fromkeys(as_text, str))
        else:
            pieces = self._read_parquet(n_rows, [name for name in self.names if name in names])
        first, said = 0, 0
        for piece in pieces:
            yield first, piece
            first += len(piece)
            if first - said >= 2**20:
                said = first
                log.info("%s: %s rows", self.source, f"{first:,}")

    def read_as_written(self, names: Collection[str]) -> Iterator[pd.DataFrame]:
        """Give the same pieces with these columns alone, whose cells can be written as they are."""
        n_rows = self._rows_of_a_piece()
        if self.frame is not None:
            whole = self.frame[list(names)]
            return (whole.iloc[k : k + n_rows] for k in range(0, len(whole), n_rows))
        if self.is_csv:
            pieces = self._read_csv(n_rows, str, na_filter=False)
            return (piece[list(names)] for piece in pieces)
        return self._read_parquet(n_rows, list(names), types_mapper=pd.ArrowDtype)

    def _rows_of_a_piece(self) -> int:
        return min(max(CELLS // max(len(self.names), 1), 1), MOST_ROWS)

    def _read_csv(self, n_rows: int, dtype: Any, **more: Any) -> Iterator[pd.DataFrame]:
        # Without index_col pandas takes cells past the names for those of an index, and with
        # usecols it drops them silently. With low_memory a column may be of several types.
        assert self.path is not None
        options: Any = {"index_col": False, "low_memory": False, "chunksize": n_rows}
        options |= {**self.options, **more}
        with reading(self.path):
            reader = pd.read_csv(self.path, dtype=dtype, **options)
        with reader:
            while True:
                with reading(self.path):
                    piece = next(reader, None)
                if piece is None:
                    return
                yield piece

    def _read_parquet(
        self, n_rows: int, names: list[str], **options: Any
    ) -> Iterator[pd.DataFrame]:
        assert self.path is not None
        with reading(self.path):
            # Otherwise pyarrow reads whole row groups, and keeps them.
            file = pq.ParquetFile(self.path, pre_buffer=False, buffer_size=2**20)
        with file:
            batches = file.iter_batches(n_rows, columns=names)
            while True:
                with reading(self.path):
                    batch = next(batches, None)
                    if batch is None:
                        return
                    # Without the notes of pandas, in which some columns are an index.
                    whole = pa.Table.from_batches([batch]).replace_schema_metadata(None)
                    piece = whole.to_pandas(**options)
                yield piece


def open_pieces(
    rows: str | os.PathLike[str] | pd.DataFrame | Pieces, index: Collection[str] = ()
) -> Pieces:
    """Open a table. `index` are names that may also be those of a frame's index."""
    if isinstance(rows, Pieces):
        return rows
    if isinstance(rows, pd.DataFrame):
        levels = [
            name for name in rows.index.names if str(name) in index and name not in rows.columns
        ]
        frame = rows.reset_index(level=levels) if levels else rows
        names = distinct_names(frame.columns, "rows")
        if names != list(frame.columns):
            frame = frame.set_axis(names, axis=1)
        return Pieces("rows", names, frame=frame)
    if not isinstance(rows, (str, os.PathLike)):
        raise DataError(
            f"rows are a {type(rows).__name__}.",
            "Pass a DataFrame, or the path of a .csv or .parquet file.",
        )
    path = Path(rows).expanduser()
    check_file(path, FORMATS)
    if not is_parquet(path):
        return Pieces(str(path), csv_names(path), path=path)
    with reading(path), pq.ParquetFile(path) as file:
        found = list(file.schema_arrow.names)
    return Pieces(str(path), distinct_names(found, str(path)), path=path)
