"""Numbers that are texts in files: percentages, thousands, and what stands beside them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from apportion.bags.columns import Columns
from apportion.data import tables
from apportion.data.encoding import encode, encode_array
from apportion.errors import DataError

# Whose results are looked into without asking first.
read_table: Any = tables.read_table
read_sets: Any = tables.read_sets
SHARES = {"a": 0.5, "b": 0.5}


def write(path, cells, bags="aabb"):
    lines = [f"{bag};{cell};{k}\n" for k, (bag, cell) in enumerate(zip(bags, cells, strict=True))]
    path.write_text("bag;x;y\n" + "".join(lines))
    return path


def test_percent_signs_are_kept_with_the_column(tmp_path):
    path = write(tmp_path / "rows.csv", ["45,2 %", "", "7%", "100 %"])
    options: dict[str, Any] = {"bag": "bag", "proportions": SHARES}
    bags = read_table(path, **options)
    np.testing.assert_allclose(bags.x[[0, 2, 3], 0], [0.452, 0.07, 1])
    columns = Columns.from_dict(bags.columns.to_dict())
    assert columns.percent == ("x",)
    assert "x (in %) (with gaps)" in repr(columns)
    points = write(tmp_path / "points.csv", ["45.2 %", "", "7%", "100.0 %"])
    np.testing.assert_array_equal(read_table(points, **options, columns=columns).x, bags.x)
    texts = pd.DataFrame({"x": ["45.2 %", None], "y": [0, 1]})
    np.testing.assert_array_equal(encode(columns, texts), bags.x[:2])

    bare = write(tmp_path / "bare.csv", ["", "45,2", "7", "100"])
    with pytest.raises(DataError, match=r"'x' .* with percent signs .* 45\.2 in row 1 .* without"):
        read_table(bare, **options, columns=columns)
    for make in (lambda v: v, lambda v: v.to_numpy()):
        numbers = make(pd.DataFrame({"x": [45.2], "y": [0]}))
        apply: Any = encode if hasattr(numbers, "columns") else encode_array
        with pytest.raises(DataError, match=r"with percent signs .* 45\.2 in row 0"):
            apply(columns, numbers)
    plain = read_table(bare, **options).columns
    with pytest.raises(DataError, match=r"'x' .* without percent signs .* 45\.2 in row 0 .* with"):
        read_table(path, **options, columns=plain)


@pytest.mark.parametrize("n_rows", [2, 100])
def test_percent_signs_in_part_of_a_column_are_refused(tmp_path, n_rows, monkeypatch):
    monkeypatch.setattr("apportion.data.pieces.MOST_ROWS", n_rows)
    for cells in (["45 %", "7 %", "55", "1"], ["55", "1", "", "45 %"]):
        path = write(tmp_path / "rows.csv", cells)
        with pytest.raises(DataError, match=r"'x' has a percent sign in \d of its \d values"):
            read_table(path, bag="bag", proportions=SHARES)
    path = write(tmp_path / "rows.csv", ["45 %", "7 %", "55", "1"])
    wards = pd.DataFrame({"bag": ["a", "b"], "split": ["train", "test"], "no": 0.5, "yes": 0.5})
    with pytest.raises(DataError, match=r"with percent signs .* 55 in row 2"):
        read_sets(path, bag="bag", proportions=wards)


@pytest.mark.parametrize("n_rows", [2, 100])
@pytest.mark.parametrize("cells", [["41,1", "", "1.234,5", "7"], ["41,1 %", "8 %", "", "7 %"]])
@pytest.mark.parametrize("kind", [".csv", ".xlsx"])
def test_rows_in_no_bag_may_hold_anything(tmp_path, cells, n_rows, kind, monkeypatch):
    monkeypatch.setattr("apportion.data.pieces.MOST_ROWS", n_rows)
    options: dict[str, Any] = {"bag": "bag", "proportions": SHARES}
    alone = read_table(write(tmp_path / "alone.csv", cells), **options)
    total = write(tmp_path / "rows.csv", [*cells, "Summe"], [*"aabb", ""])
    if kind == ".xlsx":
        frame = pd.read_csv(total, sep=";", dtype={"x": str})
        frame.to_excel(tmp_path / "rows.xlsx", index=False)
        total = tmp_path / "rows.xlsx"
    found = read_table(total, **options, skip_unplaced=True)
    assert found.columns == alone.columns
    np.testing.assert_array_equal(found.x[:4], alone.x)
    assert found.x[4].tolist() == [0] * found.x.shape[1]


def test_an_error_in_a_file_with_decimal_commas_names_the_cell_that_is_no_number(tmp_path):
    path = write(tmp_path / "rows.csv", ["41,1", "1,5", "2,5", "much"])
    wards = pd.DataFrame({"bag": ["a", "b"], "split": ["train", "test"], "no": 0.5, "yes": 0.5})
    with pytest.raises(DataError, match=r"row 3 \(counted from 0\) is 'much'") as error:
        read_sets(path, bag="bag", proportions=wards)
    assert not error.value.names("decimal")


def test_gaps_below_a_number_of_more_than_64_bits_are_gaps(tmp_path):
    path = write(tmp_path / "rows.csv", ["99999999999999999999", "x", "", "NA"])
    columns = read_table(path, bag="bag", proportions=SHARES).columns
    assert set(columns.categories["x"]) == {"99999999999999999999", "x"}
