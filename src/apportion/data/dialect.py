"""How a text file writes a table: its encoding, the separator of cells and the decimal sign.

All three are recognised by the beginning of the file: it may be larger than memory. What a later
row contradicts is an error that names the option: a byte that the encoding does not have, a number
with the other decimal sign, and the first number with any, if the beginning has none.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, Unpack

from apportion.bags.notation import OTHER, decimal_of
from apportion.errors import (
    ApportionError,
    ConfigError,
    DataError,
    Option,
    Words,
    comma_list,
    must_be,
    suggestion,
)

__all__ = ["FORMAT", "PLAIN", "Dialect", "FormatOptions", "TableFormat", "find_decimal", "formats",
           "recognise"]  # fmt: skip

FORMAT = ("sep", "decimal", "encoding", "sheet")  # the options of a table
SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas"}
BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
LOOKED_AT = 2**17  # bytes whose cells are looked at
HEAD = 2**20  # bytes that the encoding is recognised by,
WHOLE = 2**24  # unless the file is no larger than this
UNKNOWN = "\x01"  # a decimal sign that no number has

SEP = Option("sep", "';'", "';'")
DECIMAL = Option("decimal", "','", "','")
POINT = Option("decimal", "'.'", "'.'")
ENCODING = Option("encoding", "'cp1252'", "cp1252")


@dataclass(frozen=True)
class TableFormat:
    """What is said of the format of tables; None is recognised.

    Parameters
    ----------
    sep, decimal, encoding : str, optional
        Of a text file: the separator of its cells, the decimal sign of its numbers, "." or ",", and
        the name of its encoding. The decimal sign is also that of texts in an Excel file.
    sheet : str, optional
        Of an Excel file.
    of : str
        What the names of the options begin with: "proportions_" for the table of the bags.
    """

    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    of: str = ""

    def __post_init__(self) -> None:
        """Check what is said."""
        sep = {"tab": "\t", "\\t": "\t"}.get(self.sep or "", self.sep)
        object.__setattr__(self, "sep", sep)
        if sep is not None and (len(sep) != 1 or sep.isalnum() or sep in "\"'.\r\n"):
            raise must_be(f"{self.of}sep", "one character, such as ';' or ',', or tab", self.sep)
        if self.decimal is not None and self.decimal not in OTHER:
            raise must_be(f"{self.of}decimal", "'.' or ','", self.decimal)
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ConfigError(
                    f"{self.of}encoding is {self.encoding!r}, which is not known.",
                    "Pass the name of one, for example utf-8, cp1252 or utf-16.",
                ) from None

    @property
    def sheet_option(self) -> str:
        """The name of the option that chooses a sheet."""
        return f"{self.of}sheet"

    @contextmanager
    def naming_options(self) -> Iterator[None]:
        """Name the options of this table, and not those of another, in the remedy of an error."""
        try:
            yield
        except ApportionError as error:
            error.rename_options({name: f"{self.of}{name}" for name in FORMAT})
            raise


PLAIN = TableFormat()


class FormatOptions(TypedDict, total=False):
    """The options of the format of a table of rows, and of a table of proportions."""

    sep: str | None
    decimal: str | None
    encoding: str | None
    sheet: str | None
    proportions_sep: str | None
    proportions_decimal: str | None
    proportions_encoding: str | None
    proportions_sheet: str | None


def formats(**options: Unpack[FormatOptions]) -> tuple[TableFormat, TableFormat]:
    """Return what is said of the format of the rows, and of that of the proportions.

    Examples
    --------
    >>> rows, proportions = formats(decimal=",", proportions_sep=";")
    >>> rows.decimal, proportions.decimal, proportions.sep
    (',', None, ';')
    """
    known = FormatOptions.__annotations__
    for name in options:
        if name not in known:
            raise ConfigError(f"there is no option {name!r}.", suggestion(name, known))
    given: dict[str, Any] = dict(options)

    def of(table: str) -> TableFormat:
        return TableFormat(**{name: given.get(f"{table}{name}") for name in FORMAT}, of=table)

    return of(""), of("proportions_")


@dataclass(frozen=True)
class Dialect:
    """How a text file writes a table."""

    sep: str = ","
    decimal: str = "."  # "" if no number at the beginning has a decimal sign
    encoding: str = "utf-8-sig"
    skip: int = 0  # lines above the header

    @property
    def options(self) -> dict[str, Any]:
        """The options of `pandas.read_csv`."""
        found: dict[str, Any] = {"sep": self.sep, "decimal": self.decimal or UNKNOWN}
        return found | ({"skiprows": self.skip} if self.skip else {})

    def __str__(self) -> str:
        """Return what differs from a plain file, in words."""
        said = [] if self.encoding in ("utf-8-sig", "utf-8") else [f"encoded in {self.encoding}"]
        if self.sep != ",":
            said.append(f"cells separated by {SEPARATORS.get(self.sep, repr(self.sep))}")
        if self.decimal == ",":
            said.append("numbers with decimal commas")
        return ", ".join(said)


def recognise(
    file: BinaryIO, path: Path, given: TableFormat = PLAIN, names: Sequence[str] = ()
) -> Dialect:
    """Recognise how a text file writes its table.

    Parameters
    ----------
    file : binary file
        Which is left at its beginning.
    path : Path
        Its name in errors.
    given : TableFormat
        What is said, and not to be recognised. A byte order mark is believed more.
    names : sequence of str
        The names of the columns, if the file has no header row.
    """
    head = file.read(HEAD)
    if len(head) == HEAD and not path.name.lower().endswith(".gz"):
        size = path.stat().st_size
        head += file.read(size - HEAD) if size <= WHOLE else b""
    whole = not file.read(1)
    file.seek(0)
    encoding = _encoding(path, head, given.encoding, whole=whole)
    if not whole or len(head) > LOOKED_AT:
        whole, head = False, head[:LOOKED_AT]
    text = codecs.getincrementaldecoder(encoding)().decode(head, final=whole)
    skip, sep = 0, given.sep
    first, _, rest = text.partition("\n")
    if names and first.startswith("|"):  # a remark, in files of the UCI repository
        text = rest
    elif first.strip().strip('"').lower().startswith("sep=") and len(first.strip()) <= 7:
        # What Excel writes and reads.
        skip, text, sep = 1, rest, sep or first.strip().strip('"')[4:] or None
    found = {known: _cells(text, known, whole=whole) for known in ([sep] if sep else SEPARATORS)}
    if sep is None:
        sep = max(found, key=lambda known: _score(found[known], len(names)))
        if _score(found[sep], len(names)) == (0.0, 0.0):  # one column
            sep = ","
    decimal = given.decimal
    if decimal is None and sep == "," and '"' not in text:
        decimal = "."
    if decimal is None:
        rows = [row for row in found[sep] if row][0 if names else 1 :]
        columns = ([row[j] for row in rows if j < len(row)] for j in range(_width(rows)))
        decimal = find_decimal(columns, str(path), "." if sep == "," else "")
    return Dialect(sep, decimal, encoding, skip)


def find_decimal(columns: Iterable[Sequence[str]], source: str, default: str) -> str:
    """Return the decimal sign that most columns must have; the default if none has any.

    Raises
    ------
    DataError
        If numbers may have either, as 1.234 may, and their sign is not the default.
    """
    votes, doubtful = Counter[str](), ""
    for cells in columns:
        signs: Counter[str] = Counter(map(decimal_of, cells))
        votes += Counter({s: 1 for s in ".," if signs[s] > signs[OTHER[s]]})
        if signs["?"] and not signs["."] and not signs[","] and not doubtful:
            either = (
                c for c in cells if decimal_of(c) == "?" and (not default or default not in c)
            )
            doubtful = next(either, "")
    if votes:
        return "," if votes[","] > votes["."] or (votes[","] == votes["."] and not default) else "."
    if doubtful:
        other = doubtful.replace(".", "").replace(",", "")
        raise DataError(
            f"{source} has {doubtful!r}, which may be {other} or "
            f"{doubtful.replace(',', '.')}: no other number tells whether decimals have a comma.",
            ("Pass ", DECIMAL, " or ", POINT, "."),
        )
    return default


def other_decimal(decimal: str, column: str | None = None) -> Words:
    """Return the remedy for numbers that have the other decimal sign."""
    options: Words = (DECIMAL, " or ", POINT)
    if decimal:
        options = (POINT if decimal == "," else DECIMAL,)
    if column is None:
        return ("Pass ", *options, " if all numbers have it; or correct these cells.")
    leave_out = Option("columns", "[…]", comma_list([column]))
    correct = " if all numbers have it; correct these cells; or leave the column out ("
    return ("Pass ", *options, correct, leave_out, ").")


def _encoding(path: Path, head: bytes, given: str | None, *, whole: bool) -> str:
    for mark, encoding in BOMS.items():
        if head.startswith(mark):
            return encoding
    tried = [given] if given else ["utf-8-sig", "cp1252"]
    if not given and b"\0" in head[:1000]:  # UTF-16 without a mark
        odd = head[1:1000:2].count(0) > head[:1000:2].count(0)
        tried = ["utf-16-le" if odd else "utf-16-be"]
    for encoding in tried:
        try:
            codecs.getincrementaldecoder(encoding)().decode(head, final=whole)
        except UnicodeDecodeError:
            continue
        return encoding
    raise not_encoded(path, " nor ".join(tried).replace("-sig", ""))


def not_encoded(path: Path, encoding: str) -> DataError:
    """Return the error of a file that has bytes which its encoding does not have."""
    return DataError(
        f"{path} has bytes that are not {encoding}.",
        ("Pass ", ENCODING, " or the encoding that it was saved in, or save it in UTF-8."),
    )


def _cells(text: str, sep: str, *, whole: bool) -> list[list[str]]:
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(csv.reader(io.StringIO(text, newline=""), delimiter=sep))
    return rows if whole or len(rows) < 2 else rows[:-1]  # the last one may be cut


def _width(rows: list[list[str]]) -> int:
    return max(map(len, rows), default=0)


def _score(rows: list[list[str]], n_names: int) -> tuple[float, float]:
    """Return the share of the rows that have as many cells as the first, and how many it has."""
    widths = [len(row) for row in rows if row]
    first = n_names or (widths[0] if widths else 0)
    if first < 2 or first not in widths:
        return 0.0, 0.0
    return round(sum(width == first for width in widths) / len(widths), 2), first
