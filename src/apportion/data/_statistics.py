"""Statistics of the columns of a table, piece by piece."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.bags.notation import (
    DAY_FIRST,
    MONTH_FIRST,
    date_orders,
    decimal_of,
    is_ordered,
    parse_date,
)
from apportion.bags.notes import notes
from apportion.data._cells import (
    LEAVE_OUT,
    Kind,
    Rows,
    check_distinct,
    find_columns,
    is_written,
    kind_of,
    numbers_written,
    read_dates,
    read_numbers,
    read_texts,
    unmixed,
)
from apportion.data._meant import why_categories
from apportion.data.dialect import other_decimal
from apportion.errors import DataError, Option, Words, comma_list, listing

log = logging.getLogger("apportion")

MOST_CATEGORIES = 255  # so that a code fits in a byte
NARROW = 1e-3  # a range, as a part of the mean, of which float32 would keep too few digits
MOST_TEXTS = 2**20  # of one column: past it counting them takes too much memory


@dataclass
class _Column:
    kind: Kind | None = None
    missing: int = 0
    known: int = 0
    total: float = 0.0
    least: float = np.inf
    most: float = -np.inf
    counts: Counter[str] = field(default_factory=Counter)
    orders: set[str] = field(default_factory=lambda: {DAY_FIRST, MONTH_FIRST})  # if texts are dates
    ordered: bool = False  # whether it matters for one of them
    was_text: bool = False  # whether numbers were texts
    grouped: bool = False  # whether thousands are separated in texts of numbers
    percents: int = 0  # values with a percent sign
    named: bool = False  # whether texts are surely categories

    def add(self, values: NDArray[np.float64], times: Any = 1) -> None:
        """Add numbers to the sum and the range."""
        self.total += float((values * times).sum())
        self.least = min(self.least, float(values.min(initial=np.inf)))
        self.most = max(self.most, float(values.max(initial=-np.inf)))


class Statistics:
    """The statistics of columns, over all pieces that were added."""

    def __init__(
        self,
        remedy: Words = LEAVE_OUT,
        decimal: str | None = None,
        *,
        in_sheet: bool = False,
        keep: Collection[str] = (),
    ) -> None:
        self.remedy = remedy  # for a column that is neither numbers nor text
        self.decimal = decimal  # of numbers in a text or Excel file, "" if it is not known
        self.in_sheet = in_sheet  # whether cells that are numbers have their own type
        self.keep = keep  # columns that are not left out
        self.columns: dict[str, _Column] = {}
        self.n_rows = 0
        self.mixed: str | None = None  # a column of numbers in one piece, and of text in another

    def add(
        self,
        frame: pd.DataFrame,
        rows: Rows | None = None,
        names: Collection[str] | None = None,
        as_text: Collection[str] = (),
    ) -> None:
        """Add a piece, or some of its columns.

        Parameters
        ----------
        rows : array, optional
            Where the rows of the piece are in the table, if not after those of the pieces before.
        as_text : collection of str
            Columns of a text or Excel file, whose texts are not to be read as numbers.
        """
        places = find_columns(frame)
        check_distinct(frame.columns)
        if names is not None:
            places = {name: places[name] for name in names}
        if rows is None:
            rows = np.arange(self.n_rows, self.n_rows + len(frame))
        if not self.columns:
            self.columns = {name: _Column() for name in places}
        if odd := sorted(self.columns.keys() ^ places.keys()):
            has, others = ("has", "lack") if odd[0] in places else ("lacks", "have")
            raise DataError(
                f"the piece of the table from row {self.n_rows:,} on {has} a column {odd[0]!r}, "
                f"which those before it {others}.",
                "Pass pieces that all have the same columns.",
            )
        for name, column in self.columns.items():
            cells = frame.iloc[:, places[name]]
            if self.decimal is not None and name not in as_text:
                cells = self._unwritten(column, cells)
            self._add_column(name, column, cells, rows)
        self.n_rows += len(frame)

    def _unwritten(self, column: _Column, cells: pd.Series[Any]) -> pd.Series[Any]:
        """Return cells of a text or Excel file as numbers, if all of them are."""
        assert self.decimal is not None
        written = numbers_written(cells, self.decimal)
        if written is None:
            return unmixed(cells)
        column.percents += int(written.percent.sum())
        column.was_text = True
        column.grouped = column.grouped or written.grouped
        return written.cells

    def _add_column(self, name: str, column: _Column, cells: pd.Series[Any], rows: Rows) -> None:
        kind = kind_of(name, cells, self.remedy) if len(cells) else None
        if self.decimal is not None and not cells.notna().any():
            kind = None  # rows of the piece that are not learned from may have made it text
        if kind and column.kind and kind != column.kind:
            self.mixed = name
            raise DataError(
                f"column {name!r} is {column.kind} up to row {rows[0]:,}, and {kind} from there.",
                "Convert it to one of them in all rows.",
            )
        column.kind = column.kind or kind
        if kind == "numbers" or kind == "dates":
            if kind == "numbers":
                values = read_numbers(name, cells, rows)
            else:
                values = cast("NDArray[np.float64]", read_dates(cells))
            known = ~np.isnan(values)
            n_known = int(known.sum())
            column.add(values if n_known == len(values) else values[known])
        elif kind == "text":
            codes, texts = read_texts(cells)
            if isinstance(cells.dtype, pd.CategoricalDtype):
                column.orders, column.named = set(), True
            new = [text for text in texts if text not in column.counts]
            column.orders &= date_orders(new) if column.orders else set()
            column.ordered = column.ordered or (bool(column.orders) and any(map(is_ordered, new)))
            counts = np.bincount(codes[codes >= 0], minlength=len(texts))
            n_known = int(counts.sum())
            for text, n in zip(texts, counts.tolist(), strict=True):
                column.counts[text] += n
            self._check_texts(name, column, len(cells))
        else:
            n_known = 0
        column.known += n_known
        column.missing += len(cells) - n_known

    def _check_texts(self, name: str, column: _Column, more: int) -> None:
        if len(column.counts) > MOST_TEXTS:
            raise DataError(
                f"column {name!r} has more than {MOST_TEXTS:,} distinct texts in "
                f"{self.n_rows + more:,} rows, such as {next(iter(column.counts))!r}.",
                f"Leave it out, or group its values: the {MOST_CATEGORIES} most frequent are used.",
            )

    def _say_if_numbers(self, name: str, column: _Column) -> None:
        """Log that a few cells keep a column from being numbers: that may be a mistake."""
        odd = [text for text in column.counts if not is_written(text)]
        if self.decimal is not None and not odd:
            other = [text for text in column.counts if decimal_of(text) not in ("", self.decimal)]
            if other and (not self.decimal or decimal_of(other[0]) != "?"):
                raise DataError(
                    f"column {name!r} has {other[0]!r}, a number with another decimal sign than "
                    f"those {'at the beginning' if not self.decimal else 'of other cells'}.",
                    other_decimal(self.decimal, name),
                )
        if not column.named and (why := why_categories(column.counts)):
            log.warning("Column %r is read as categories, since %s", name, why)
        # In a frame, texts of digits alone are meant to be names.
        signed = [text for text in column.counts if not text.strip().isdigit()]
        if self.decimal is None and signed and not odd and not column.named:
            log.warning(
                "Column %r is read as categories, since its values are texts, though they are "
                "numbers, such as %r. Convert it to numbers, or, if they are names, to a "
                "categorical of pandas.",
                name,
                signed[0],
            )

    def fields(self) -> dict[str, Any]:
        """Return the fields of `Columns`."""
        if not self.columns:
            raise DataError("the table has 0 columns to learn from.", "Pass at least one column.")
        if not self.n_rows:
            raise DataError("the table has 0 rows to learn from.", "Pass at least one row.")
        dates = self._dates()
        columns = self._varied()
        dates = {name: order for name, order in dates.items() if name in columns}
        texts = {name: own for name, own in columns.items() if own.kind == "text"}
        numbers = {name: own for name, own in columns.items() if own.kind != "text"}
        ranked = {
            name: sorted(own.counts, key=lambda text, own=own: (-own.counts[text], text))  # type: ignore[misc]
            for name, own in texts.items()
        }
        for name, own in texts.items():
            self._say_if_numbers(name, own)
        self._say_if_many({name: len(own.counts) for name, own in texts.items()})
        percent = self._percent(numbers)
        means = {name: own.total / max(own.known, 1) for name, own in numbers.items()}
        shifted = tuple(
            name
            for name, own in numbers.items()
            if name in dates or 0 < own.most - own.least < NARROW * abs(means[name])
        )
        return {
            "names": tuple(columns),
            # The mean replaces missing values, so it has the type of the encoded column.
            "means": {
                name: mean if name in shifted else float(np.float32(mean))
                for name, mean in means.items()
            },
            "shifted": shifted,
            "gaps": tuple(name for name, own in numbers.items() if own.missing),
            "categories": {name: tuple(r[:MOST_CATEGORIES]) for name, r in ranked.items()},
            "left_out": {
                name: len(r) - MOST_CATEGORIES
                for name, r in ranked.items()
                if len(r) > MOST_CATEGORIES
            },
            "dates": dates,
            "percent": percent,
        }

    def _percent(self, numbers: dict[str, _Column]) -> tuple[str, ...]:
        """Return the columns of percentages; say how numbers that were texts are read."""
        for name, own in numbers.items():
            if 0 < own.percents < own.known:
                raise DataError(
                    f"column {name!r} has a percent sign in {own.percents:,} of its {own.known:,} "
                    "values, and none in the others.",
                    "Write all of them in one way: 45 % is 0.45, and 45 is 45.",
                )
            what = ["percentages (45 % is 0.45)"] if own.percents else []
            what += ["numbers with separated thousands"] if own.grouped else []
            if not what and own.was_text and self.in_sheet:
                what = ["numbers, of which the file has texts"]
            if what:
                notes.warning("Column %r is read as %s.", name, ", ".join(what))
        return tuple(name for name, own in numbers.items() if own.percents)

    def _say_if_many(self, sizes: dict[str, int]) -> None:
        """Log which columns have more categories than are kept."""
        many = {name: n for name, n in sizes.items() if n > MOST_CATEGORIES}
        if not many:
            return
        have = (
            f"{'Column' if not k else 'column'} {name!r} has {n:,} categories"
            for k, (name, n) in enumerate(many.items())
        )
        form = "%s: only the %d most frequent ones are kept. If they are names or ids, leave the "
        form += "column out" if len(many) == 1 else "columns out"
        words: list[Any] = [", ".join(have), MOST_CATEGORIES]
        if not isinstance(self.remedy, str):  # of a table that is read
            form, words = f"{form} (%s)", [*words, Option("columns", "[…]", comma_list(many))]
        log.warning(f"{form}.", *words)

    def _dates(self) -> dict[str, str]:
        """Turn columns of texts into columns of dates, if they are; return how to read them."""
        found = {name: "" for name, own in self.columns.items() if own.kind == "dates"}
        for name, own in self.columns.items():
            if own.kind != "text" or not own.counts or not own.orders:
                continue
            if own.ordered and len(own.orders) > 1:
                log.warning(
                    "Column %r is read as categories: its dates, such as %r, may begin with the "
                    "day or with the month. Write them as 2024-12-31.",
                    name,
                    next(iter(own.counts)),
                )
                continue
            found[name] = min(own.orders) if own.ordered else ""
            days = [parse_date(text, found[name]) for text in own.counts]
            own.add(np.array(days, np.float64), np.array([*own.counts.values()]))
            own.kind = "dates"
        for name, order in found.items():
            how = f" ({order})" if order else ""
            notes.warning("Column %r holds dates%s: they become days since 1970.", name, how)
        return found

    def _varied(self) -> dict[str, _Column]:
        """Return the columns but for those that are empty, or have one value in all rows."""
        others = {name: own for name, own in self.columns.items() if name not in self.keep}
        empty = [name for name, own in others.items() if not own.known]
        constant = [
            name
            for name, own in others.items()
            if own.known
            and not own.missing
            and (len(own.counts) == 1 if own.kind == "text" else own.least == own.most)
        ]
        if len(empty) + len(constant) == len(self.columns):
            if self.n_rows > 1:
                log.warning("No column has different values: nothing can be learned from them.")
            return self.columns
        for names, what in ((empty, "no values"), (constant, "one value in all rows")):
            if names:
                listed = listing(map(repr, names), most=20)
                form = f"Column %s has {what}, and is left out."
                if len(names) > 1:
                    form = f"Columns %s have {what}, and are left out."
                notes.warning(form, listed)
        return {n: own for n, own in self.columns.items() if n not in {*empty, *constant}}
