"""Names in a column: which there are, and where they stand first."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data._names import Names, as_number, as_numbers, sorted_names
from apportion.errors import DataError


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_what_python_writes_is_a_number(number):
    assert as_number(str(number)) == number
    assert type(as_number(str(number))) is type(number)


@pytest.mark.parametrize(
    "text", ["007", "+7", " 7", "7 ", "1_0", "1e3", "nan", "inf", "", "x", "٧"]
)
def test_anything_else_is_text(text):
    assert as_number(text) is None
    assert as_numbers(["7", text]) is None


def test_numbers_that_would_merge_are_text():
    assert as_numbers(["7", "8.5"]) == [7, 8.5]
    assert as_numbers(["7", "7.0"]) is None


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=6), min_size=1, max_size=5))
def test_pieces_give_the_names_of_the_whole(pieces):
    names = Names("rows.csv", "bag", "bag", from_csv=True)
    whole = [name for piece in pieces for name in piece]
    first = 0
    for piece in pieces:
        cells = pd.Series(piece, dtype=object)
        names.keep(names.add(cells, np.arange(first, first + len(piece))))
        first += len(piece)
    assert names.names == list(dict.fromkeys(whole))
    assert [names.names[k] for k in names.all_rows] == whole
    assert names.first_rows == [whole.index(name) for name in names.names]


def test_only_a_csv_file_needs_to_be_understood():
    for from_csv, expected in ((True, [2, 1]), (False, ["2", "1"])):
        names = Names("rows", "bag", "bag", from_csv=from_csv)
        names.add(pd.Series(["2", "1"]), np.arange(2))
        assert names.names == expected


def test_a_missing_name_is_refused_with_its_row():
    names = Names("rows.csv", "ward", "bag", from_csv=True)
    with pytest.raises(DataError, match=r"rows.csv: row 11 .* has no bag: .* column 'ward'"):
        names.add(pd.Series(["a", None, None]), np.arange(10, 13))


def test_names_are_sorted_where_they_can_be():
    assert sorted_names({"b": 1, "a": 2}) == ["a", "b"]
    assert sorted_names([2, "a", 1]) == [2, "a", 1]
