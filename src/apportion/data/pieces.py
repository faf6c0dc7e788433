"""Tables that are read in pieces: CSV and Parquet files of any size, and DataFrames.

A file is opened once per pass over it: what its header says and what the first pass reads come from
the same opening.
"""

from __future__ import annotations

import csv
import gzip
import logging
import os
import re
import warnings
import weakref
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from apportion.data._cells import check_distinct
from apportion.errors import ApportionError, DataError, and_more, count, suggestion

log = logging.getLogger("apportion")

FORMATS = (".csv", ".csv.gz", ".parquet")
CELLS = 2**21  # of one piece: 16 MiB of numbers
MOST_ROWS = 2**17
MOST_COLUMNS = 20_000  # each takes about a millisecond per piece, whatever its length

# The names that pandas and pyarrow use for an index without a name, when it is saved.
NAMELESS = re.compile(r"Unnamed: \d+|__index_level_\d+__")

Rows = str | os.PathLike[str] | pd.DataFrame


@dataclass(eq=False)
class Pieces:
    """A table, and the way to read it piece by piece, as often as needed."""

    source: str  # its name in errors
    names: list[str]  # of its columns
    frame: pd.DataFrame | None = None
    path: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of pandas.read_csv
    opened: Any = None  # the file, until the first pass uses it

    @property
    def is_csv(self) -> bool:
        """Whether the types of the cells have to be inferred."""
        return self.path is not None and not is_parquet(self.path)

    def check_columns(self, names: Iterable[str], remedy: str = "") -> None:
        """Check that the table has some columns."""
        check_columns(self.source, self.names, names, remedy)

    def read(
        self, names: Collection[str], as_text: Collection[str] = ()
    ) -> Iterator[tuple[int, pd.DataFrame]]:
        """Yield pieces that have these columns at least, each with the number of its first row.

        Parameters
        ----------
        names : collection of column names
        as_text : collection of column names
            Columns of a CSV file whose cells are read as text, unchanged.
        """
        n_rows = self._rows_per_piece()
        if self.frame is not None:
            pieces = self._cut(self.frame, n_rows)
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
                log.info("%s: %s", self.source, count(first, "row"))
        if not first:
            raise DataError(
                f"{self.source} has 0 rows below its header.", "Pass a table with rows."
            )

    def read_as_written(self, names: Collection[str]) -> Iterator[pd.DataFrame]:
        """Yield the same pieces with these columns alone, whose cells can be written again."""
        n_rows, columns = self._rows_per_piece(), list(names)
        if self.frame is not None:
            return self._cut(self.frame[columns], n_rows)
        if self.is_csv:
            # Only missing cells may stand behind the last name: na_filter=False would have none.
            pieces = self._read_csv(n_rows, str, keep_default_na=False, na_values=[""])
            return (piece[columns].fillna("") for piece in pieces)
        return self._read_parquet(n_rows, columns, types_mapper=pd.ArrowDtype)

    def _rows_per_piece(self) -> int:
        return min(max(CELLS // max(len(self.names), 1), 1), MOST_ROWS)

    @staticmethod
    def _cut(whole: pd.DataFrame, n_rows: int) -> Iterator[pd.DataFrame]:
        return (whole.iloc[k : k + n_rows] for k in range(0, len(whole), n_rows))

    def _read_csv(self, n_rows: int, dtype: Any, **more: Any) -> Iterator[pd.DataFrame]:
        assert self.path is not None
        # Without index_col pandas takes cells past the names for those of an index, and with
        # usecols it drops them silently. With low_memory a column may be of several types.
        options: Any = {"index_col": False, "low_memory": False, "chunksize": n_rows}
        options |= {"header": 0, "names": self.names, "dtype": dtype, **self.options, **more}
        with reading(self.path):
            file, self.opened = self.opened or _open_text(self.path), None
        with file:
            with reading(self.path):
                reader = pd.read_csv(file, **options)
            yield from _each(self.path, reader)

    def _read_parquet(
        self, n_rows: int, names: list[str], **options: Any
    ) -> Iterator[pd.DataFrame]:
        assert self.path is not None
        with reading(self.path):
            file, self.opened = self.opened or _open_parquet(self.path), None
        with file:
            batches = file.iter_batches(n_rows, columns=names)
            tables = (pa.Table.from_batches([batch]) for batch in batches)
            # Without the metadata of pandas, which turns some columns into an index.
            plain = (table.replace_schema_metadata(None) for table in tables)
            yield from _each(self.path, (table.to_pandas(**options) for table in plain))


def _each(path: Path, pieces: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield pieces; an error while one is read names the file, unlike one of the caller."""
    while True:
        with reading(path):
            piece = next(pieces, None)
        if piece is None:
            return
        yield piece


# ------------------------------------------------------------------------------------ opening


def open_pieces(
    rows: Rows | Pieces, *, index: Collection[str] = (), names: Collection[str] = ()
) -> Pieces:
    """Open a table.

    Parameters
    ----------
    index : collection of str
        Names that may also be those of a frame's index.
    names : collection of str
        The names of the columns, for a file of commas without a header row.
    """
    if isinstance(rows, Pieces):
        return rows
    if isinstance(rows, pd.DataFrame):
        levels = [
            name for name in rows.index.names if str(name) in index and name not in rows.columns
        ]
        frame = rows.reset_index(level=levels) if levels else rows
        own = distinct_names(frame.columns, "rows")
        if own != list(frame.columns):
            frame = frame.set_axis(own, axis=1)
        return Pieces("rows", own, frame=frame)
    if not isinstance(rows, str | os.PathLike):
        raise DataError(
            f"rows are a {type(rows).__name__}.",
            "Pass a DataFrame, or the path of a .csv or .parquet file.",
        )
    path = Path(rows).expanduser()
    if names and is_parquet(path):
        raise DataError(
            f"{path} has names of its own, but {len(names)} are given.", "Leave them out."
        )
    if names and not path.is_file():
        raise DataError(f"{path} does not exist.", "Pass the path of a file of rows with commas.")
    if not names:
        check_file(path)
    with reading(path):
        file = _open_parquet(path) if is_parquet(path) else _open_text(path)
    try:
        with reading(path):
            pieces = _opened(path, file, names)
            _check_width(pieces)
    except BaseException:
        file.close()
        raise
    weakref.finalize(pieces, file.close)  # if no pass ever uses it
    return pieces


def _opened(path: Path, file: Any, names: Collection[str]) -> Pieces:
    """Read the header of a file that was opened."""
    if is_parquet(path):
        own = distinct_names(file.schema_arrow.names, str(path))
        return Pieces(str(path), own, path=path, opened=file)
    if names:
        return _without_header(path, file, distinct_names(names, "the given names"))
    header = _header(file)
    if len(header) == 1 and ";" in header[0]:
        raise DataError(
            f"{path} has one column, {header[0]!r}: its cells seem to be separated by semicolons.",
            "Save it with commas.",
        )
    file.seek(0)  # pandas counts lines from where it begins
    own = distinct_names(header, str(path))
    return Pieces(str(path), own, path=path, opened=file)


def _without_header(path: Path, file: TextIO, names: list[str]) -> Pieces:
    """Look at the first row of a file of commas that has no header row.

    As in files of the UCI repository, spaces after commas are no part of a cell, and a first line
    that begins with a bar is a remark.
    """
    remark = file.readline().startswith("|")
    if not remark:
        file.seek(0)
    n_columns = len(_header(file))
    file.seek(0)
    if n_columns != len(names):
        raise DataError(
            f"{path} has {count(n_columns, 'column')}, but {count(len(names), 'name')} for them: "
            f"{', '.join(names)}.",
            "Name every column, in the order of the file.",
        )
    options = {"header": None, "skipinitialspace": True, "skiprows": int(remark)}
    return Pieces(str(path), names, path=path, options=options, opened=file)


def _open_text(path: Path) -> TextIO:
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    file: TextIO = opener(path, "rt", encoding="utf-8-sig", newline="")
    return file


def _header(file: TextIO) -> list[str]:
    """Read the first line that is not empty, unchanged: pandas would rename repeated names."""
    for cells in csv.reader(iter(file.readline, "")):
        if cells:
            return [name or f"Unnamed: {j}" for j, name in enumerate(cells)]
    raise ValueError("it has no header row")


def _open_parquet(path: Path) -> Any:
    # Otherwise pyarrow reads whole row groups, and keeps them.
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20)


# ------------------------------------------------------------------------- checks and errors


def check_file(path: Path) -> None:
    """Check that there is such a file, and that its name ends in one of the formats."""
    if not path.name.lower().endswith(FORMATS):
        raise DataError(
            f"{path} is neither .csv nor .parquet by its name.",
            "Save the table in one of these formats.",
        )
    if not path.is_file():
        there = sorted(near.name for near in path.parent.glob("*") if near.name.endswith(FORMATS))
        raise DataError(
            f"{path} does not exist.",
            suggestion(path.name, there) if there else "Pass the path of a .csv or .parquet file.",
        )


def _check_width(pieces: Pieces) -> None:
    if len(pieces.names) > MOST_COLUMNS:
        raise DataError(
            f"{pieces.source} has {len(pieces.names):,} columns, more than {MOST_COLUMNS:,}.",
            "Leave some out, or read the numbers into an array: Bags.from_rows takes it.",
        )


def check_columns(
    source: str, known: Collection[Any], names: Iterable[Any], remedy: str = ""
) -> None:
    """Check that a table has some columns."""
    missing = [name for name in names if name not in known]
    if missing:
        raise DataError(
            f"{source} has no column {missing[0]!r}{and_more(len(missing))}.",
            *([remedy] if remedy else []),
            suggestion(str(missing[0]), map(str, known)),
        )


def is_parquet(path: Path) -> bool:
    """Tell whether a file is a Parquet file by its name."""
    return path.suffix.lower() == ".parquet"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of pandas and pyarrow into one that names the file."""
    try:
        with warnings.catch_warnings():
            # It warns that cells were lost: a row had more cells than there are names.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except DataError:
        raise
    except (
        OSError,
        ValueError,
        EOFError,
        csv.Error,
        zlib.error,
        pa.ArrowException,
        pd.errors.ParserWarning,
    ) as error:
        first = str(error).strip().partition("\n")[0].rstrip(".")
        if isinstance(error, pd.errors.ParserWarning):
            first = "its rows have more cells than it has columns"
        raise DataError(
            f"{path} cannot be read: {first}.",
            "Save it again: as .parquet, or as .csv in UTF-8 with commas and a header row.",
        ) from error


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Begin an error with the name of the table that it is about."""
    try:
        yield
    except ApportionError as error:
        error.about(source)
        raise


def distinct_names(names: Iterable[Any], source: str) -> list[str]:
    """Return the names of columns as text, after a check that no two are the same."""
    known = list(names)
    with naming(source):
        check_distinct(known)
    return list(map(str, known))


def named(names: Iterable[str], source: str) -> list[str]:
    """Leave out columns without a name, for example the row numbers that pandas saves."""
    known = list(names)
    nameless = [name for name in known if NAMELESS.fullmatch(name)]
    for name in nameless:
        log.warning("%s: a column without a name is left out (%s).", source, name)
    return [name for name in known if name not in nameless]
