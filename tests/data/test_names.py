"""Names in a column: which there are, and where they stand first."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data._names import Names
from apportion.errors import DataError


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
