"""The columns of a table: a plain description of how each became numbers.

A numeric column is one column of float32, in which the mean over the training rows stands for a
missing value. If values were missing in these rows, a further column says where: 1 there, 0
elsewhere. All such columns follow the numeric ones. A column whose values differ by less than a
thousandth of their mean, times in seconds for example, is stored minus its mean: float32 has seven
digits.

A column of dates is numeric: days since 1970-01-01, in UTC, minus their mean. So is a column of
percentages: 45 % is 0.45, and a number without a percent sign is none of its values.

A categorical column is one column of codes. Code 0 stands for a missing value and for a category
that the training rows do not have; 1, 2, … for the others, the most frequent first.

`apportion.data.encoding` learns columns and applies them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from apportion.bags.notation import DAY_FIRST, MONTH_FIRST
from apportion.errors import DataError, listing

__all__ = ["Columns"]

ORDERS = ("", DAY_FIRST, MONTH_FIRST)
TUPLES = ("names", "shifted", "gaps", "percent")


@dataclass(frozen=True)
class Columns:
    """The columns of a table, and how each becomes numbers.

    Examples
    --------
    >>> columns = Columns(("age", "job"), {"age": 40.0}, (), ("age",), {"job": ("cook",)}, {})
    >>> columns
    Columns(1 numeric: age (with gaps); 1 categorical: job (1))
    >>> import json
    >>> Columns.from_dict(json.loads(json.dumps(columns.to_dict()))) == columns
    True
    """

    names: tuple[str, ...]  # of all columns, in the order of the table
    means: Mapping[str, float]  # of every numeric column
    shifted: tuple[str, ...]  # the numeric columns from which their mean is subtracted
    gaps: tuple[str, ...]  # the numeric columns with a further one for missing values
    categories: Mapping[str, tuple[str, ...]]  # of every categorical column, from code 1 on
    left_out: Mapping[str, int]  # how many rarer categories have code 0, if there are any
    # of every numeric column of dates: "day first" or "month first", or "" if no text depends on it
    dates: Mapping[str, str] = field(default_factory=dict)
    percent: tuple[str, ...] = ()  # the numeric columns whose numbers have percent signs

    @property
    def numeric(self) -> tuple[str, ...]:
        """The names of the numeric columns."""
        return tuple(name for name in self.names if name in self.means)

    @property
    def categorical(self) -> tuple[str, ...]:
        """The names of the categorical columns."""
        return tuple(name for name in self.names if name in self.categories)

    @property
    def n_numbers(self) -> int:
        """F, the number of float32 columns: one per numeric column, one per column with gaps."""
        return len(self.means) + len(self.gaps)

    @property
    def codes(self) -> tuple[int, ...]:
        """The number of codes of every categorical column, including code 0."""
        return tuple(len(self.categories[name]) + 1 for name in self.categorical)

    def without(self, names: Collection[str]) -> Columns:
        """Return the columns but for some.

        Examples
        --------
        >>> columns = Columns(("age", "pay"), {"age": 40.0, "pay": 9.0}, (), ("pay",), {}, {})
        >>> columns.without(["pay"])
        Columns(1 numeric: age; 0 categorical)
        """
        kept: dict[str, Any] = {
            field: {name: value for name, value in own.items() if name not in names}
            if isinstance(own, Mapping)
            else tuple(name for name in own if name not in names)
            for field, own in vars(self).items()
        }
        return Columns(**kept)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in types that JSON has."""
        categories = {name: list(texts) for name, texts in self.categories.items()}
        names = {name: list(getattr(self, name)) for name in TUPLES}
        return asdict(self) | names | {"categories": categories}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Columns:
        """Build columns from what `to_dict` returned.

        Raises
        ------
        DataError
            If these are not such fields.
        """
        try:
            made = cls(
                names=tuple(map(str, fields["names"])),
                means={str(name): float(mean) for name, mean in fields["means"].items()},
                shifted=tuple(map(str, fields["shifted"])),
                gaps=tuple(map(str, fields["gaps"])),
                categories={str(n): tuple(map(str, c)) for n, c in fields["categories"].items()},
                left_out={str(name): int(n) for name, n in fields["left_out"].items()},
                dates={str(name): str(order) for name, order in fields["dates"].items()},
                percent=tuple(map(str, fields["percent"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"these are not saved columns: {type(error).__name__} {error}.",
                "Pass what Columns.to_dict returned.",
            ) from error
        if sorted(made.names) != sorted([*made.means, *made.categories]):
            raise DataError(
                f"of {len(made.names):,} saved columns, {len(made.means):,} are numeric and "
                f"{len(made.categories):,} categorical.",
                "Pass what Columns.to_dict returned: every column is one of the two.",
            )
        if odd := [n for n, o in made.dates.items() if n not in made.means or o not in ORDERS]:
            raise DataError(
                f"the saved column {odd[0]!r} of dates is {made.dates[odd[0]]!r}.",
                "Pass what Columns.to_dict returned.",
            )
        if odd := [name for name in made.percent if name not in made.means]:
            raise DataError(
                f"the saved column {odd[0]!r} of percentages is not numeric.",
                "Pass what Columns.to_dict returned.",
            )
        return made

    def __repr__(self) -> str:
        sizes = {
            name: f" ({len(own):,} of {len(own) + self.left_out[name]:,})"
            if name in self.left_out
            else f" ({len(own):,})"
            for name, own in self.categories.items()
        }
        remarks = dict.fromkeys(self.dates, " (dates)") | dict.fromkeys(self.percent, " (in %)")
        remarks |= {name: remarks.get(name, "") + " (with gaps)" for name in self.gaps}
        numeric = _listed(self.numeric, "numeric", remarks)
        return f"Columns({numeric}; {_listed(self.categorical, 'categorical', sizes)})"


def _listed(names: tuple[str, ...], kind: str, remarks: Mapping[str, str]) -> str:
    texts = (name + remarks.get(name, "") for name in names)
    return f"{len(names):,} {kind}{': ' if names else ''}{listing(texts)}"
