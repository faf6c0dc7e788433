"""Names in a column: which there are, and where they stand first."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data._scan import Names
from apportion.data.pieces import Pieces
from apportion.data.proportions import read_proportions
from apportion.errors import DataError

CSV = Pieces("rows.csv", ["bag"], path=Path("rows.csv"))
FRAME = Pieces("rows", ["bag"], frame=pd.DataFrame({"bag": ["a"]}))


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=6), min_size=1, max_size=5))
def test_pieces_give_the_names_of_the_whole(pieces):
    names = Names(CSV, "bag", "bag", None)
    whole = [name for piece in pieces for name in piece]
    first = 0
    for piece in pieces:
        cells = pd.Series(piece, dtype=object)
        names.add(cells, np.arange(first, first + len(piece)))
        first += len(piece)
    assert names.names == list(dict.fromkeys(whole))
    assert [names.names[k] for k in names.all_rows] == whole
    assert names.first_rows == {name: whole.index(name) for name in names.names}


def test_only_a_csv_file_needs_to_be_understood():
    for source, expected in ((CSV, [2, 1]), (FRAME, ["2", "1"])):
        names = Names(source, "bag", "bag", None)
        names.add(pd.Series(["2", "1"]), np.arange(2))
        assert names.names == expected


def test_a_missing_name_is_refused_with_its_row():
    names = Names(CSV, "ward", "bag", None)
    with pytest.raises(DataError, match=r"rows.csv: row 11 .* has no bag: .* column 'ward'"):
        names.add(pd.Series(["a", None, None]), np.arange(10, 13))


def test_ids_with_other_zeros_are_hinted_at():
    table = read_proportions({7: [1.0], "north": [1.0]}, "bag")
    names = Names(CSV, "bag", "bag", table)
    with pytest.raises(DataError, match=r"bag '007'.*\n.*\n.*differently from 7: leading zeros"):
        names.add(pd.Series(["007"]), np.arange(1))
    with pytest.raises(DataError, match="bag '70'") as error:
        names.add(pd.Series(["70"]), np.arange(1))
    assert "zeros" not in str(error.value)


def test_of_two_ways_to_write_a_number_only_one_is_a_bag():
    table = read_proportions({7: [1.0], 8: [1.0]}, "bag")
    names = Names(CSV, "bag", "bag", table)
    assert names.add(pd.Series(["8", "7.0"]), np.arange(2)).tolist() == [1, 0]
    with pytest.raises(DataError, match=r"row 5 .* bag '7', which is not in proportions"):
        names.add(pd.Series(["8", "7"]), np.arange(4, 6))
