"""Tables that are read in pieces: text and Parquet files of any size, Excel files and frames.

A file is opened once per pass over it: what its header says and what the first pass reads come from
the same opening. How a text file writes its table is recognised first (`apportion.data.dialect`).
"""

from __future__ import annotations

import csv
import gzip
import io
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

from apportion.bags.notes import notes
from apportion.bags.read import as_pandas
from apportion.data._cells import check_distinct, unmixed
from apportion.data._excel import read_sheet
from apportion.data.dialect import PLAIN, SEP, Dialect, TableFormat, not_encoded, recognise
from apportion.errors import (
    ApportionError,
    DataError,
    Option,
    Words,
    and_more,
    count,
    listing,
    suggestion,
)

log = logging.getLogger("apportion")

TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")
FORMATS = (*TEXT, ".parquet", ".xlsx")
KINDS = "a .csv, .tsv, .txt, .xlsx or .parquet file, or a folder of .parquet files"
CELLS = 2**21  # of one piece: 16 MiB of numbers
MOST_ROWS = 2**17
MOST_COLUMNS = 20_000  # each takes about a millisecond per piece, whatever its length

# The texts that pandas reads as missing cells.
MISSING = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"}
MISSING |= {"1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
# The names that pandas and pyarrow use for an index without a name, when it is saved.
NAMELESS = re.compile(r"Unnamed: \d+|__index_level_\d+__")

# Or a frame of polars or pyarrow.
Rows = str | os.PathLike[str] | pd.DataFrame | Any


@dataclass(eq=False)
class Pieces:
    """A table, and the way to read it piece by piece, as often as needed."""

    source: str  # its name in errors
    names: list[str]  # of its columns
    frame: pd.DataFrame | None = None
    path: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of pandas.read_csv
    dialect: Dialect = field(default_factory=Dialect)  # of a text file
    opened: Any = None  # the file, until the first pass uses it
    in_sheet: str | None = None  # the decimal sign of texts in a frame that was a file

    @property
    def is_csv(self) -> bool:
        """Whether it is a text file: the types of its cells have to be inferred."""
        return self.path is not None and not is_parquet(self.path)

    @property
    def decimal(self) -> str | None:
        """The decimal sign of numbers in texts; None if the table has types of its own.

        "" if it is not known.
        """
        return self.dialect.decimal if self.is_csv else self.in_sheet

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
            Columns of a CSV file whose cells are read as text, unchanged; and of an Excel file, if
            some are texts.
        """
        n_rows = self._rows_per_piece()
        if self.frame is not None:
            pieces = self._cut(self._unmixed(as_text), n_rows)
        elif self.is_csv:
            pieces = self._read_csv(n_rows, dict.fromkeys(as_text, str))
        else:
            pieces = self._read_parquet(n_rows, [name for name in self.names if name in names])
        first, said = 0, 0
        for piece in pieces:
            yield first, _with_gaps(piece) if self.is_csv else piece
            first += len(piece)
            if first - said >= 2**20:
                said = first
                log.info("%s: %s", self.source, count(first, "row"))
        if not first:
            raise DataError(
                f"{self.source} has 0 rows below its header.", "Pass a table with rows."
            )

    def _unmixed(self, names: Iterable[str]) -> pd.DataFrame:
        """Return the frame with texts in columns of an Excel file that have any."""
        assert self.frame is not None
        if self.in_sheet is None:
            return self.frame
        return self.frame.assign(**{name: unmixed(self.frame[name]) for name in names})

    def read_as_written(self, names: Collection[str]) -> Iterator[pd.DataFrame]:
        """Yield the same pieces with these columns alone, whose cells can be written again."""
        n_rows, columns = self._rows_per_piece(), list(names)
        if self.frame is not None:
            return self._cut(self._unmixed(columns)[columns], n_rows)
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
        options |= {"header": 0, "names": self.names, "dtype": dtype}
        options |= {**self.dialect.options, **self.options, **more}
        with reading(self.path):
            file = self.opened or _as_text(_open_binary(self.path), self.dialect.encoding)
            self.opened = None
        with file:
            with reading(self.path):
                reader = pd.read_csv(file, **options)
            yield from _each(self.path, reader)

    def _read_parquet(
        self, n_rows: int, names: list[str], **options: Any
    ) -> Iterator[pd.DataFrame]:
        assert self.path is not None
        for path in parquet_files(self.path):
            with reading(path):
                file, self.opened = self.opened or _open_parquet(path), None
            with file:
                batches = file.iter_batches(n_rows, columns=names)
                tables = (pa.Table.from_batches([batch]) for batch in batches)
                # Without the metadata of pandas, which turns some columns into an index.
                plain = (table.replace_schema_metadata(None) for table in tables)
                yield from _each(path, (table.to_pandas(**options) for table in plain))


def _with_gaps(piece: pd.DataFrame) -> pd.DataFrame:
    """Return a piece of a text file with gaps that pandas has left as texts.

    It does so in columns that begin with a whole number of more than 64 bits.
    """
    found = {}
    for name, cells in piece.items():
        if isinstance(cells.dtype, pd.StringDtype) and not cells.hasnans:
            missing = cells.isin(MISSING)
            if missing.any():
                found[str(name)] = cells.mask(missing)
    return piece.assign(**found) if found else piece


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
    rows: Rows | Pieces,
    *,
    index: Collection[str] = (),
    names: Collection[str] = (),
    form: TableFormat = PLAIN,
) -> Pieces:
    """Open a table.

    Parameters
    ----------
    index : collection of str
        Names that may also be those of a frame's index.
    names : collection of str
        The names of the columns, for a text file without a header row.
    form : TableFormat
        What is known of the format of a file.
    """
    if isinstance(rows, Pieces):
        return rows
    rows = as_pandas(rows)
    if isinstance(rows, pd.DataFrame):
        levels = [
            name for name in rows.index.names if str(name) in index and name not in rows.columns
        ]
        frame = rows.reset_index(level=levels) if levels else rows
        return _of_frame("rows", frame)
    if not isinstance(rows, str | os.PathLike):
        raise DataError(
            f"rows are a {type(rows).__name__}.",
            f"Pass a frame of pandas, polars or pyarrow, or the path of {KINDS}.",
        )
    path = Path(rows).expanduser()
    if names and (is_parquet(path) or is_excel(path)):
        raise DataError(
            f"{path} has names of its own, but {len(names)} are given.", "Leave them out."
        )
    if names and not path.is_file():
        raise DataError(f"{path} does not exist.", "Pass the path of a file of rows.")
    if not names:
        check_file(path)
    check_sheet(path, form)
    if is_excel(path):
        with reading(path):
            return _of_frame(str(path), *read_sheet(path, form))
    with reading(path):
        if is_parquet(path):
            file, dialect = _open_parquet(parquet_files(path)[0]), Dialect()
        else:
            binary = _open_binary(path)
            try:
                dialect = recognise(binary, path, form, list(names))
            except BaseException:
                binary.close()
                raise
            file = _as_text(binary, dialect.encoding)
    try:
        with reading(path):
            pieces = _opened(path, file, names, dialect)
            _check_width(pieces)
    except BaseException:
        file.close()
        raise
    weakref.finalize(pieces, file.close)  # if no pass ever uses it
    if str(dialect):
        notes.info("%s: %s.", path, dialect)
    return pieces


def _of_frame(source: str, frame: pd.DataFrame, in_sheet: str | None = None) -> Pieces:
    own = distinct_names(frame.columns, source)
    if own != list(frame.columns):
        frame = frame.set_axis(own, axis=1)
    return Pieces(source, own, frame=frame, in_sheet=in_sheet)


def _opened(path: Path, file: Any, names: Collection[str], dialect: Dialect) -> Pieces:
    """Read the header of a file that was opened."""
    if is_parquet(path):
        own = distinct_names(file.schema_arrow.names, str(path))
        _check_schemas(path, file.schema_arrow)
        return Pieces(str(path), own, path=path, opened=file)
    if names:
        return _without_header(path, file, distinct_names(names, "the given names"), dialect)
    for _ in range(dialect.skip):
        file.readline()
    header = _header(file, dialect.sep)
    file.seek(0)  # pandas counts lines from where it begins
    own = distinct_names(header, str(path))
    return Pieces(str(path), own, path=path, opened=file, dialect=dialect)


def _without_header(path: Path, file: TextIO, names: list[str], dialect: Dialect) -> Pieces:
    """Look at the first row of a text file that has no header row.

    As in files of the UCI repository, spaces after commas are no part of a cell, and a first line
    that begins with a bar is a remark.
    """
    remark = file.readline().startswith("|") and dialect.sep != "|"
    if not remark:
        file.seek(0)
    n_columns = len(_header(file, dialect.sep))
    file.seek(0)
    if n_columns != len(names):
        raise DataError(
            f"{path} has {count(n_columns, 'column')}, but {count(len(names), 'name')} for them: "
            f"{', '.join(names)}.",
            "Name every column, in the order of the file.",
        )
    options = {"header": None, "skipinitialspace": True, "skiprows": int(remark)}
    return Pieces(str(path), names, path=path, options=options, opened=file, dialect=dialect)


def _open_binary(path: Path) -> Any:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")


def _as_text(file: Any, encoding: str) -> TextIO:
    return io.TextIOWrapper(file, encoding=encoding, newline="")


def _header(file: TextIO, sep: str) -> list[str]:
    """Read the first line that is not empty, unchanged: pandas would rename repeated names."""
    for cells in csv.reader(iter(file.readline, ""), delimiter=sep):
        if cells:
            return [name or f"Unnamed: {j}" for j, name in enumerate(cells)]
    raise ValueError("it has no header row")


def _open_parquet(path: Path) -> Any:
    # Otherwise pyarrow reads whole row groups, and keeps them.
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20)


def parquet_files(path: Path) -> list[Path]:
    """Return a Parquet file, or those in a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.parquet"))
    if inner := sorted(file for file in path.glob("*/**/*.parquet") if file.is_file()):
        raise DataError(
            f"{path} has Parquet files in folders of its own, such as "
            f"{inner[0].relative_to(path)}.",
            "Pass a folder whose files are all its own: names of folders are not read as values.",
        )
    if not files:
        raise DataError(f"{path} is a folder with 0 .parquet files.", f"Pass {KINDS}.")
    return files


def _check_schemas(path: Path, first: Any) -> None:
    """Check that all Parquet files of a folder have the same columns, of the same types."""
    files = parquet_files(path)
    for other in files[1:]:
        schema = pq.read_schema(other)
        if schema.names != first.names:
            odd = sorted({*schema.names} ^ {*first.names}) or [
                own for own, name in zip(schema.names, first.names, strict=True) if own != name
            ]
            raise DataError(
                f"{other} has the columns {listing(schema.names)}, but {files[0].name} "
                f"{listing(first.names)}: {odd[0]!r} is different.",
                "All files of a folder must have the same columns, in the same order.",
            )
        for own, known in zip(schema, first, strict=True):
            if own.type != known.type:
                raise DataError(
                    f"{other} has column {own.name!r} of type {own.type}, but {files[0].name} of "
                    f"type {known.type}.",
                    "All files of a folder must have the same types: save it again.",
                )


# ------------------------------------------------------------------------- checks and errors


def check_file(path: Path) -> None:
    """Check that there is such a file, and that its name ends in one of the formats."""
    if path.is_dir():
        return
    if not path.name.lower().endswith(FORMATS):
        raise DataError(
            f"{path} is none of {', '.join(FORMATS)} by its name.",
            "Save the table in one of these formats.",
        )
    if not path.is_file():
        there = sorted(near.name for near in path.parent.glob("*") if near.name.endswith(FORMATS))
        raise DataError(
            f"{path} does not exist.",
            suggestion(path.name, there) if there else f"Pass the path of {KINDS}.",
        )


def check_sheet(path: Path, form: TableFormat) -> None:
    """Check that a sheet is given of an Excel file alone."""
    if form.sheet is not None and not is_excel(path):
        raise DataError(
            f"{path} is not an Excel file, and has no sheet {form.sheet!r}.",
            ("Leave out ", Option(form.sheet_option, repr(form.sheet), form.sheet), "."),
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
    if not missing:
        return
    problem = f"{source} has no column {missing[0]!r}{and_more(len(missing))}."
    own = [name for name in map(str, known) if not NAMELESS.fullmatch(name)]
    if len(own) < len(known) / 2 or (len(known) == 1 and " " in own[0]):
        raise DataError(
            f"{problem[:-1]}: its first row has {listing(map(repr, own)) or 'no names'}, which "
            "seems to be a title.",
            "The names of the columns must stand in the first row: delete the rows above them.",
        )
    raise DataError(
        problem, *([remedy] if remedy else []), suggestion(str(missing[0]), map(str, known))
    )


def is_parquet(path: Path) -> bool:
    """Tell whether a path is a Parquet file by its name, or a folder of them."""
    return path.suffix.lower() == ".parquet" or path.is_dir()


def is_excel(path: Path) -> bool:
    """Tell whether a file is an Excel file by its name."""
    return path.suffix.lower() == ".xlsx"


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
    except UnicodeDecodeError as error:
        raise not_encoded(path, error.encoding) from error
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
        remedy: Words = "Save it again, for example as .csv in UTF-8 with a header row."
        if not is_parquet(path) and not is_excel(path):
            remedy = ("Pass ", SEP, " if its cells are separated otherwise, or save it again.")
        raise DataError(f"{path} cannot be read: {first}.", remedy) from error


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
