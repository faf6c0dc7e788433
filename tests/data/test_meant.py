"""Columns that become categories by a few cells, by mixed dates, or by a currency sign."""

import logging

import pandas as pd
import pytest

from apportion.data._meant import why_categories
from apportion.data.tables import read_table

DATES = [f"{day:02}.{month:02}.2024" for day in (3, 17, 28) for month in range(1, 13)]


@pytest.mark.parametrize("odd", ["-", "00.00.0000", "unbekannt", "31.02.2024"])
@pytest.mark.parametrize("dates", [DATES, [f"2024-{t[3:5]}-{t[:2]}" for t in DATES]])
def test_a_few_cells_that_are_no_dates_are_told(dates, odd):
    why = why_categories(dict.fromkeys([*dates, odd], 1))
    assert why == f"1 of its 37 values is not a date, such as {odd!r}. Leave such cells empty."


def test_dates_of_both_orders_are_told():
    why = why_categories(dict.fromkeys(["1/2/2024", "31/12/2024", "12/31/2024"], 1))
    assert "the day, such as '31/12/2024', and some with the month, such as '12/31/2024'" in why
    assert "Write them as 2024-12-31." in why


@pytest.mark.parametrize(
    "texts", [["1.234,50 €", "12 €"], ["$1,234.50", "$7"], ["EUR 5", "6,50"], ["-3 CHF", "4 CHF"]]
)
def test_currency_signs_are_told(texts):
    signed = next(text for text in texts if not text[0].isdigit() or " " in text)
    assert f"currency sign, such as {signed!r}" in why_categories(dict.fromkeys(texts, 1))


@pytest.mark.parametrize("odd", ["-", "k.A."])
def test_one_text_among_few_numbers_is_told(odd):
    numbers = {str(k): 1 for k in range(7)}
    assert f"such as {odd!r}" in why_categories({**numbers, odd: 1})
    assert not why_categories({**numbers, odd: 4})


@pytest.mark.parametrize(
    "texts",
    [
        ["cook", "nurse", "2024-01-01"],
        ["1", "2", "12a", "13b"],
        ["1/2/2024", "3/4/2024"],  # of which it is told already that either may come first
        ["US$ or €", "$"],
        ["5", "6"],
    ],
)
def test_categories_that_are_meant_are_not_doubted(texts):
    assert why_categories(dict.fromkeys(texts, 1)) == ""


def test_it_is_logged_once_for_each_column(caplog):
    frame = pd.DataFrame(
        {"bag": ["a", "b"] * 18, "when": DATES, "pay": [f"{k} €" for k in range(36)]}
    )
    frame.loc[5, "when"] = "-"
    frame["grade"] = pd.Categorical(["1"] * 18 + ["2"] * 17 + ["-"])
    with caplog.at_level(logging.WARNING, "apportion"):
        read_table(frame, bag="bag", proportions={"a": 0.5, "b": 0.25})
    said = [r.getMessage() for r in caplog.records if "is read as categories" in r.getMessage()]
    assert [text.partition(" is read")[0] for text in said] == ["Column 'when'", "Column 'pay'"]
    assert "since 1 of its 36 values is not a date, such as '-'" in said[0]
