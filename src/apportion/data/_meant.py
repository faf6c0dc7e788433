"""What a column of texts was perhaps meant to be: numbers, dates or amounts of money."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

from apportion.bags.notation import DAY_FIRST, MONTH_FIRST, date_orders, parse_date
from apportion.data._cells import is_written

CURRENCY = re.compile(r"[€$£¥₹]|\b(?:EUR|USD|GBP|CHF|JPY)\b")
LOOKED_AT = 1000  # texts that tell whether the others are looked at


def why_categories(counts: Mapping[str, int]) -> str:
    """Return why a column is read as categories if it may be a mistake, and the remedy, or "".

    Parameters
    ----------
    counts : mapping
        How often each text of the column occurs.

    Examples
    --------
    >>> why_categories({"1.5": 9, "2.5": 10, "k.A.": 1})
    "1 of its 20 values is not a number, such as 'k.A.'. Leave such cells empty."
    >>> why_categories({"1.234,50 €": 1, "56 €": 2})
    "its numbers have a currency sign, such as '1.234,50 €'. Write them without it."
    >>> why_categories({"cook": 1, "nurse": 1})
    ''
    """
    odd = [text for text in counts if not is_written(text)]
    if not odd or _are_few(odd, counts):
        return _but_for(odd, counts, "number")
    begin = list(islice(counts, LOOKED_AT))
    if sum(map(_is_date, begin)) > len(begin) / 2:
        odd = [text for text in counts if not _is_date(text)]
        if odd:
            return _but_for(odd, counts, "date") if _are_few(odd, counts) else ""
        return "" if date_orders(counts) else _both_orders(counts)
    if sum(map(_is_amount, begin)) <= len(begin) / 2:
        return ""
    if not _are_few([text for text in counts if not _is_amount(text)], counts):
        return ""
    signed = next(text for text in counts if CURRENCY.search(text))
    return f"its numbers have a currency sign, such as {signed!r}. Write them without it."


def _are_few(odd: list[str], counts: Mapping[str, int]) -> bool:
    """Tell whether texts are few beside the others; one alone may stand for what is not known."""
    n_odd, known = sum(counts[text] for text in odd), sum(counts.values())
    return n_odd <= known / (4 if len(odd) == 1 else 10)


def _but_for(odd: list[str], counts: Mapping[str, int], what: str) -> str:
    if not odd:
        return ""
    n_odd, known = sum(counts[text] for text in odd), sum(counts.values())
    are = f"is not a {what}" if n_odd == 1 else f"are not {what}s"
    such = f"{n_odd:,} of its {known:,} values {are}, such as {odd[0]!r}"
    return f"{such}. Leave such cells empty."


def _both_orders(counts: Mapping[str, int]) -> str:
    day, month = (
        next(text for text in counts if date_orders([text]) == {order})
        for order in (DAY_FIRST, MONTH_FIRST)
    )
    return (
        f"some of its dates begin with the day, such as {day!r}, and some with the month, such as "
        f"{month!r}. Write them as 2024-12-31."
    )


def _is_date(text: str) -> bool:
    return any(parse_date(text, order) is not None for order in (DAY_FIRST, MONTH_FIRST))


def _is_amount(text: str) -> bool:
    return is_written(CURRENCY.sub("", text).strip())
