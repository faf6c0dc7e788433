"""Numbers and dates as people write them: decimal commas, thousands, percent signs, 31.12.2024.

A text is a number only if all of it is one. Thousands are groups of three digits: "1.234,5" has a
decimal comma, "1,234.5" a decimal point, and "1.234" may have either: it is 1234 where the decimal
is known to be a comma, and 1.234 where it is a point.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal, NamedTuple

__all__ = [
    "DAY_FIRST",
    "MONTH_FIRST",
    "Written",
    "date_orders",
    "decimal_of",
    "is_ordered",
    "parse_date",
    "parse_number",
]

OTHER = {".": ",", ",": "."}
SPACES = "'\u2019 \u00a0\u202f"  # that also separate thousands: with a decimal of either kind


class Written(NamedTuple):
    """A number that was written."""

    value: float  # without the percent sign: 45.2 of "45.2 %"
    percent: bool
    grouped: bool  # whether thousands were separated
    digits: int  # after the decimal sign

    @property
    def number(self) -> float:
        """The number that is meant: 0.452 of "45.2 %"."""
        return self.value / 100 if self.percent else self.value


def _pattern(decimal: str) -> re.Pattern[str]:
    plain = rf"(?P<plain>\d+(?:[{decimal}](?P<d1>\d*))?|[{decimal}](?P<d2>\d+))"
    plain += r"(?P<exp>[eE][+-]?\d+)?"
    group = rf"(?P<group>[1-9]\d{{0,2}}(?P<t>[{OTHER[decimal]}{SPACES}])\d{{3}}(?:(?P=t)\d{{3}})*)"
    return re.compile(rf"\s*([+\-−]?)(?:{plain}|{group}(?:[{decimal}](?P<d3>\d+))?)\s*(%?)\s*")


PATTERNS = {decimal: _pattern(decimal) for decimal in OTHER}
# One sign, and what stands around it: three digits behind one to three others may be thousands.
SINGLE = re.compile(r"\s*[+\-−]?(\d*)([.,])(\d+)([eE][+-]?\d+)?\s*%?\s*")


def parse_number(text: str, decimal: str = ".") -> Written | None:
    """Read a number; None if the text is none.

    Examples
    --------
    >>> parse_number("1.234,5", ",").number, parse_number("45,2 %", ",").number
    (1234.5, 0.452)
    >>> parse_number("1.5", ",") is None, parse_number("12.05.2024", ",") is None
    (True, True)
    """
    found = PATTERNS[decimal].fullmatch(text)
    if found is None:
        return None
    sign, grouped = found[1].replace("−", "-"), found["group"] is not None
    if grouped:
        after = found["d3"] or ""
        body = re.sub(r"\D", "", found["group"]) + (f".{after}" if after else "")
    else:
        after = found["d1"] or found["d2"] or ""
        body = found["plain"].replace(decimal, ".") + (found["exp"] or "")
    return Written(float(sign + body), text.rstrip().endswith("%"), grouped, len(after))


def decimal_of(text: str) -> Literal[".", ",", "?", ""]:
    """Return the decimal sign that a text must have if it is a number.

    "?" if it may be either, and "" if it is no number or has none.

    Examples
    --------
    >>> [decimal_of(text) for text in ("1,5", "0.158", "1.234,5", "1,234,567", "1.234", "12")]
    [',', '.', ',', '.', '?', '']
    """
    single = SINGLE.fullmatch(text)
    if single is not None:
        before, sign, after, exponent = single.groups()
        maybe = 1 <= len(before) <= 3 and before[0] != "0" and len(after) == 3 and not exponent
        return "?" if maybe else "." if sign == "." else ","
    if "." in text or "," in text:
        for decimal in (".", ","):
            found = PATTERNS[decimal].fullmatch(text)
            if found is not None and found["t"] == OTHER[decimal]:
                return "." if decimal == "." else ","
            if found is not None and found["d3"]:  # 1 234,5
                return "." if decimal == "." else ","
    return ""


# ------------------------------------------------------------------------------------ dates

DAY_FIRST, MONTH_FIRST = "day first", "month first"
TIME = r"(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6})\d*)?)?\s*(Z|[+-]\d{2}:?\d{2})?)?"
SHORT = r"(?<=\d\d\.\d\d\.)"  # before a year of two digits: 1.2.10 may be a version
YEAR_FIRST = re.compile(rf"\s*(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}}){TIME}\s*")
YEAR_LAST = re.compile(rf"\s*(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}}|{SHORT}\d{{2}}){TIME}\s*")
SECONDS_PER_DAY = 86400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def date_orders(texts: Iterable[str]) -> set[str]:
    """Return how 3/4/2024 may be read in all of some dates; nothing if one of them is no date.

    Examples
    --------
    >>> date_orders(["2024-12-31", "2024-02-01"]) == {DAY_FIRST, MONTH_FIRST}
    True
    >>> date_orders(["31/12/2024", "1/2/2024"]), date_orders(["3/31/2024"]), date_orders(["soon"])
    ({'day first'}, {'month first'}, set())
    """
    orders = {DAY_FIRST, MONTH_FIRST}
    for text in texts:
        orders = {order for order in orders if parse_date(text, order) is not None}
        if not orders:
            break
    return orders


def is_ordered(text: str) -> bool:
    """Tell whether it matters for a date if the day or the month comes first."""
    found = YEAR_LAST.fullmatch(text)
    return found is not None and found[2] != "."


def parse_date(text: str, order: str) -> float | None:
    """Read a date, in days since 1970-01-01; None if the text is none.

    Points are always those of day, month and year. A time without a zone is taken as UTC.

    Examples
    --------
    >>> parse_date("1970-01-02 12:00", DAY_FIRST), parse_date("03.01.1970", MONTH_FIRST)
    (1.5, 2.0)
    """
    found = YEAR_FIRST.fullmatch(text)
    if found is not None:
        year, month, day = int(found[1]), int(found[3]), int(found[4])
    else:
        found = YEAR_LAST.fullmatch(text)
        if found is None:
            return None
        day, month, year = int(found[1]), int(found[3]), int(found[4])
        if found[2] != "." and order == MONTH_FIRST:
            day, month = month, day
        if len(found[4]) == 2:
            year += 2000 if year < 70 else 1900
    hour, minute, second, part, zone = found.groups()[-5:]
    try:
        when = datetime(
            year, month, day, int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC
        )
    except ValueError:
        return None
    seconds = (when - EPOCH).total_seconds() + float(f"0.{part or 0}")
    if zone and zone != "Z":
        ahead = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        seconds -= ahead if zone[0] == "+" else -ahead
    return seconds / SECONDS_PER_DAY
