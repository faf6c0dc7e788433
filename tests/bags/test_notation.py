from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.bags.notation import (
    DAY_FIRST,
    MONTH_FIRST,
    date_orders,
    decimal_of,
    is_ordered,
    parse_date,
    parse_number,
)


def written(value, digits, decimal, group):
    text = f"{value:,.{digits}f}"
    return text.replace(",", "\0").replace(".", decimal).replace("\0", group)


@given(
    st.integers(-(10**12), 10**12),
    st.integers(0, 4),
    st.sampled_from([(".", ","), (",", "."), (".", ""), (",", ""), (",", " "), (".", "'")]),
    st.booleans(),
)
def test_what_is_written_is_read(whole, digits, signs, percent):
    decimal, group = signs
    value = whole / 10**digits
    text = written(value, digits, decimal, group) + (" %" if percent else "")
    found = parse_number(text, decimal)
    assert found is not None
    assert found.value == float(f"{value:.{digits}f}")
    assert found.number == (found.value / 100 if percent else found.value)
    assert (found.percent, found.digits) == (percent, digits)
    assert found.grouped == (bool(group) and abs(value) >= 999.5 and group in text)
    assert decimal_of(text) in ("", "?", decimal)


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("1.234", ",", 1234),
        ("1.234", ".", 1.234),
        ("1,234", ".", 1234),
        ("−1,5", ",", -1.5),
        ("+.5", ".", 0.5),
        ("5.", ".", 5),
        ("1,5e-3", ",", 0.0015),
        ("1\u00a0234,5", ",", 1234.5),
        ("1.5", ",", None),
        ("1,5", ".", None),
        ("12.34", ",", None),
        ("1.2345", ",", None),
        ("01.234", ",", None),
        ("1.234.56", ",", None),
        ("1.234 567,8", ",", None),
        ("12.05.2024", ",", None),
        ("1 %%", ".", None),
        ("%", ".", None),
        ("", ".", None),
        ("x1", ".", None),
        ("inf", ".", None),
    ],
)
def test_groups_are_of_three_digits_and_signs_are_not_mixed(text, decimal, value):
    found = parse_number(text, decimal)
    assert (None if found is None else found.number) == value


@given(st.datetimes(datetime(1950, 1, 1), datetime(2060, 1, 1)), st.booleans())
def test_dates_are_days_since_1970(when, with_time):
    if not with_time:
        when = when.replace(hour=0, minute=0, second=0)
    when = when.replace(microsecond=0)
    days = (when.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(days=1)
    time = " %H:%M:%S" if with_time else ""
    for form in ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y"):
        for order in (DAY_FIRST, MONTH_FIRST):
            assert parse_date(when.strftime(form + time), order) == pytest.approx(days, abs=1e-9)
    day_first, month_first = when.strftime("%d/%m/%Y"), when.strftime("%m/%d/%Y")
    assert parse_date(day_first, DAY_FIRST) == int(days // 1)
    assert parse_date(month_first, MONTH_FIRST) == int(days // 1)
    assert is_ordered(day_first)
    assert not is_ordered(when.strftime("%d.%m.%Y"))
    assert date_orders([day_first]) == ({DAY_FIRST} if when.day > 12 else {DAY_FIRST, MONTH_FIRST})


def test_zones_short_years_and_what_is_no_date():
    assert parse_date("1970-01-02T01:00:00+01:00", "") == 1
    assert parse_date("1970-01-01T23:00:00.000-0100", "") == 1
    assert parse_date("1970-01-02T00:00Z", "") == 1
    assert parse_date("02.01.70", "") == 1
    assert parse_date("01.01.69", "") == parse_date("2069-01-01", "")
    for text in (
        "31.02.2024",
        "2024-13-01",
        "3/4/24",
        "12:30",
        "2024",
        "20240101",
        "1.2.3",
        "1.2.10",  # versions
        "12.4.11",
        "3.12.11",
        "soon",
    ):
        assert parse_date(text, DAY_FIRST) is None
    assert date_orders(["2024-01-01", "soon"]) == set()
