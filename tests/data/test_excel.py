"""Cells of Excel files as they are: texts beside numbers, leading zeros, decimal commas, sheets."""

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest

from apportion.data import tables
from apportion.errors import DataError
from tests.data.wards import wards

# Whose results are looked into without asking first.
read_table: Any = tables.read_table
read_sets: Any = tables.read_sets


def as_excel(frame, path):
    frame.to_excel(path, index=False)
    return path


def test_a_text_outside_the_training_rows_makes_no_categories(tmp_path):
    rows, table = wards()
    table["split"] = ["train"] * 4 + ["test"]
    held_out = int(np.flatnonzero(rows["ward"] == table["ward"].iloc[-1])[0])
    total = pd.DataFrame({"ward": [None], "age": ["Summe"], "dose": [1e9]})
    odd = pd.concat([rows.astype({"age": object}), total], ignore_index=True)
    options: dict[str, Any] = {"bag": "ward", "proportions": table, "skip_unplaced": True}
    path = as_excel(odd.drop(columns="sick"), tmp_path / "rows.xlsx")
    found = read_sets(path, **options)["train"].columns
    assert found.numeric == ("age", "dose")
    expected = read_sets(rows.drop(columns="sick"), **options)["train"].columns
    assert found.means == expected.means
    odd.loc[held_out, "age"] = "abc"
    path = as_excel(odd.drop(columns="sick"), tmp_path / "rows.xlsx")
    with pytest.raises(DataError, match=f"held numbers .* row {held_out} .* is 'abc'"):
        read_sets(path, **options)


def test_texts_stay_texts(tmp_path):
    frame = pd.DataFrame({"bag": ["000", "000 ", "0", "0"], "x": ["5.972", "1,67", 2, 3.5]})
    path = as_excel(frame, tmp_path / "rows.xlsx")
    bags = read_table(path, bag="bag", proportions={"000": 0.5, "0": 0.5})
    assert bags.ids == ("000", "0")
    np.testing.assert_allclose(bags.x[:, 0], [5972, 1.67, 2, 3.5])
    shares = frame.iloc[[0, 2], :1].assign(no=["50,5 %", 50], yes=[49.5, "50"])
    table = as_excel(shares, tmp_path / "shares.xlsx")
    bags = read_table(path, bag="bag", proportions=table)
    assert bags.ids == ("000", "0")
    np.testing.assert_allclose(bags.proportions, [[0.505, 0.495], [0.5, 0.5]])


def test_the_decimal_sign_can_be_told(tmp_path):
    frame = pd.DataFrame({"bag": ["a", "a"], "x": ["1.234", "5.678"]})
    path = as_excel(frame, tmp_path / "rows.xlsx")
    options: dict[str, Any] = {"bag": "bag", "proportions": {"a": 0.5}}
    with pytest.raises(DataError) as error:
        read_table(path, **options)
    assert error.value.worded(lambda option: option.flag).endswith(
        "Pass --decimal ',' or --decimal '.'."
    )
    for decimal, expected in ((",", [1234, 5678]), (".", [1.234, 5.678])):
        found = read_table(path, **options, decimal=decimal)
        np.testing.assert_allclose(found.x[:, 0], expected, rtol=1e-6)


def test_the_note_on_a_sheet_names_the_option_of_its_file(tmp_path, caplog):
    caplog.set_level(logging.INFO, "apportion.reading")
    rows, table = wards()
    path = tmp_path / "wards.xlsx"
    with pd.ExcelWriter(path) as book:
        table.to_excel(book, sheet_name="wards", index=False)
        table.to_excel(book, sheet_name="other", index=False)
    read_table(rows.drop(columns="sick"), bag="ward", proportions=path)
    assert "proportions_sheet='other' chooses another" in caplog.text


def test_the_cell_that_is_no_number_is_named_whatever_the_decimal_sign(tmp_path):
    frame = pd.DataFrame({"bag": ["a", "a", "b", "b"], "x": [1.5, "1,5", 2.5, "much"]})
    path = as_excel(frame, tmp_path / "rows.xlsx")
    wards = pd.DataFrame({"bag": ["a", "b"], "split": ["train", "test"], "no": 0.5, "yes": 0.5})
    with pytest.raises(DataError, match=r"row 3 \(counted from 0\) is 'much'"):
        read_sets(path, bag="bag", proportions=wards)
