"""Targets as bags: labels, proportions and counts, whichever way they come."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from apportion.bags.names import class_array
from apportion.bags.read import Table
from apportion.errors import BagError
from apportion.estimator.targets import in_known_bags, read_targets

BAG = np.array(["b", "a", "b", "a", "b", "a"])


def test_labels_alone_are_bags_of_one():
    bags = read_targets(6, [3, 1, 3, 1, 1, 2])
    assert bags.sizes.tolist() == [1] * 6
    assert bags.classes == (1, 2, 3)
    assert bags.counts.argmax(axis=1).tolist() == [2, 0, 2, 0, 0, 1]


def test_tables_are_proportions_or_counts_by_their_sums():
    wanted = {"a": [2, 1], "b": [0, 3]}
    for table in (
        {"a": [2 / 3, 1 / 3], "b": [0.0, 1.0]},
        wanted,
        {"b": {"y": 3, "x": 0}, "a": {"x": 2, "y": 1}},
        pd.DataFrame(wanted, index=["x", "y"]).T,
        pd.DataFrame({"y": [1, 3], "x": [2, 0]}, index=["a", "b"]),
    ):
        bags = read_targets(6, None, BAG, table)
        rows = {bag: bags.counts[i].tolist() for i, bag in enumerate(bags.ids)}
        assert rows == wanted
    # A bag of one row that sums to 1 is both.
    single = read_targets(1, None, ["a"], {"a": [0.2, 0.8]})
    assert single.proportions.tolist() == [[0.2, 0.8]]


def test_counts_need_all_bags_to_agree():
    with pytest.raises(BagError, match="sum to 3"):
        read_targets(6, None, BAG, {"a": [2, 1], "b": [0.0, 1.0]})


def test_classes_come_sorted_and_stay_what_they_are():
    assert read_targets(6, None, BAG, {"a": {2: 1, 1: 0}, "b": {2: 0, 1: 1}}).classes == (1, 2)
    mixed = read_targets(6, None, BAG, {"a": {"x": 1, 1: 0}, "b": {"x": 0, 1: 1}})
    assert class_array(mixed.classes).tolist() == ["x", 1]
    assert class_array([True, False]).dtype == bool


def test_known_classes_keep_their_order():
    table = {"a": {"y": 0.5, "x": 0.5}, "b": {"x": 1.0, "y": 0.0}}
    bags = read_targets(6, None, BAG, table, classes=["y", "x"])
    assert bags.classes == ("y", "x")
    rows = read_targets(6, np.tile([1.0, 0.0], (6, 1)), BAG, classes=["y", "x"])
    assert rows.classes == ("y", "x")
    assert rows.counts.tolist() == [[3, 0], [3, 0]]
    with pytest.raises(BagError, match="'y' is not a column") as caught:
        read_targets(6, None, BAG, {"a": {"z": 1.0}, "b": {"z": 1.0}}, classes=["y", "x"])
    assert not hasattr(caught.value, "__notes__")


def test_bags_of_a_series_are_matched_by_position():
    shuffled = pd.Series(BAG, index=[5, 4, 3, 2, 1, 0])
    bags = read_targets(6, None, shuffled, {"a": [1.0, 0.0], "b": [0.0, 1.0]})
    assert {bag: bags.rows(i).tolist() for i, bag in enumerate(bags.ids)} == {
        "a": [1, 3, 5],
        "b": [0, 2, 4],
    }


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_rows_without_a_known_bag_are_told_how_to_be_left_out(missing):
    bags, y = ["a", missing, "b", "a"], ["no", "no", "yes", "no"]
    table = {"a": [0.5, 0.5], "b": [0.5, 0.5]}
    rows = [[0.5, 0.5]] * 4
    for ways in ((None, bags, table), (y, bags), (y, bags, table), (rows, bags)):
        with pytest.raises(BagError, match=r"row 1 is the first.*\n.*X\[keep\]") as caught:
            read_targets(4, *ways)
        assert not caught.value.names("skip_unplaced")  # which these doors do not have
    keep = pd.notna(np.array(bags, dtype=object))
    assert read_targets(3, None, np.array(bags, dtype=object)[keep], table).n_instances == 3
    with pytest.raises(BagError, match=r"(?s)bag 'c' \(1 row\) is unknown.*X\[keep\]"):
        read_targets(4, None, ["a", "c", "b", "a"], table)


@pytest.mark.parametrize(
    "bags",
    [
        pd.Series([2**60, 2**60 + 1] * 3, dtype="Int64"),
        pd.Series([2**60, 2**60 + 1] * 3),
        [2**60, 2**60 + 1] * 3,
        ["a", 1] * 3,
        [("a", 1), ("a", 2)] * 3,
        np.array([[7], [8]] * 3),
    ],
    ids=["nullable", "series", "list", "mixed", "tuples", "column"],
)
def test_bag_ids_stay_what_they_are(bags):
    items = np.ravel(bags).tolist() if isinstance(bags, np.ndarray) else list(bags)
    table = {items[0]: {"x": 1.0, "y": 0.0}, items[1]: {"x": 0.0, "y": 1.0}}
    found = read_targets(6, None, bags, table)
    assert set(found.ids) == set(items)
    assert found.rows(found.ids.index(items[1])).tolist() == [1, 3, 5]


def test_a_dict_that_scikit_learn_cut_to_a_list_is_refused():
    with pytest.raises(BagError, match="makes a list of a dict"):
        read_targets(6, None, [0, 1, 2, 3, 4, 5], [[0.5, 0.5]] * 6)


def test_ids_of_another_type_than_the_tables_are_shown():
    table = pd.DataFrame({"no": [0.5, 0.5], "yes": [0.5, 0.5]}, index=["1", "2"])
    assert read_targets(6, None, [1, 2] * 3, table).ids == ("1", "2")  # written alike
    with pytest.raises(BagError) as caught:
        read_targets(6, None, [1, 2] * 3, table.set_axis(["01", "02"]))
    assert "is 1 (int), and the first in the table '01' (str)" in str(caught.value)
    assert "set_index" in str(caught.value)


def test_targets_that_make_no_sense_are_named():
    with pytest.raises(BagError, match="X\\['ward'\\] rather than 'ward'"):
        read_targets(6, None, "ward", {"a": [1.0]})
    with pytest.raises(BagError, match="Pass bags= as well, if these are the proportions"):
        read_targets(6, np.full((6, 2), 0.5))
    with pytest.raises(BagError, match=r"NaN|nan"):
        read_targets(6, np.full((6, 2), np.nan), BAG)


def test_rows_of_a_dict_may_be_series():
    rows = {bag: pd.Series({"y": 0.5, "x": 0.5}) for bag in "ab"}
    assert read_targets(6, None, BAG, rows).classes == ("x", "y")


def test_classes_may_be_tuples():
    found = class_array([("a", 1), ("a", 2)])
    assert found.shape == (2,)
    assert found[1] == ("a", 2)


def test_rows_in_known_bags_can_be_rescaled():
    table = Table(["a", "b", "c"], ["x", "y"], np.array([[1.0, 3.0], [2.0, 2.0], [9.0, 9.0]]))
    with pytest.raises(BagError, match="normalize=True"):
        in_known_bags(BAG, table)
    bags = in_known_bags(BAG, table, normalize=True)
    assert bags.ids == ("a", "b")
    assert bags.proportions.tolist() == [[0.25, 0.75], [0.5, 0.5]]


@pytest.mark.parametrize("stranger", [-1, 2])
def test_a_bag_that_an_array_of_proportions_has_no_row_of_is_named(stranger):
    with pytest.raises(BagError, match=f"^row 2 of X is in bag {stranger}, .* an array of 2 rows"):
        read_targets(3, None, np.array([0, 1, stranger]), np.full((2, 2), 0.5))


@pytest.mark.parametrize("make", ["frame", "polars", "arrow"])
@pytest.mark.parametrize("ids", [["north", "south"], [7, 8], [0, 1]])
def test_the_bags_of_a_table_may_be_a_column(make, ids):
    """Classes are sorted, and the column of bags is none of them, nor is one of totals."""
    frame = pd.DataFrame({"ward": ids, "yes": [0.25, 0.5], "no": [0.75, 0.5]})
    rows = [ids[0]] * 4 + [ids[1]] * 2
    tables = [frame, frame.assign(total=[4, 2])]
    for table in tables[: 1 if ids == [0, 1] else 2]:  # two numbers may be counts as well
        given = {
            "frame": table,
            "polars": pl.from_pandas(table),
            "arrow": pa.Table.from_pandas(table),
        }
        for classes in (None, ["yes", "no"]):
            bags = read_targets(6, bags=rows, proportions=given[make], classes=classes)
            assert bags.classes == tuple(classes or ["no", "yes"])
            assert dict(zip(bags.classes, bags.counts.T.tolist(), strict=True)) == {
                "no": [3, 1],
                "yes": [1, 1],
            }
    odd = frame.assign(yes=[0.25, 0.25], more=[0, 0.25])
    with pytest.raises(BagError, match="'more' is in the table, but not in classes"):
        read_targets(6, bags=rows, proportions=odd.set_index("ward"), classes=["yes", "no"])


def test_single_shares_are_those_of_the_second_class():
    for table in ({"a": 0.25, "b": 1.0}, pd.Series({"a": 0.25, "b": 1.0})):
        bags = read_targets(6, bags=[*"aaaabb"], proportions=table)
        assert (bags.classes, bags.counts.tolist()) == ((0, 1), [[3, 1], [0, 2]])
        known = read_targets(6, bags=[*"aaaabb"], proportions=table, classes=["no", "yes"])
        assert known.classes == ("no", "yes")


GAPS = [
    ["yes", None, "no", "yes"],
    ["yes", np.nan, "no", "yes"],
    ("yes", pd.NA, "no", "yes"),
    np.array(["yes", None, "no", "yes"], dtype=object),
    pd.Series(["yes", None, "no", "yes"], dtype="string"),
    pd.Series(["yes", None, "no", "yes"], dtype="category", index=[3, 2, 1, 0]),
]


@pytest.mark.parametrize("y", GAPS, ids=lambda y: type(y).__name__)
def test_labels_beside_proportions_may_have_gaps(y):
    table = {"a": {"no": 0.5, "yes": 0.5}, "b": {"no": 0.5, "yes": 0.5}}
    bags: Any = read_targets(4, y, ["a", "b", "a", "b"], table)
    assert bags.index.tolist() == [0, 2, 1, 3]
    assert bags.truth.tolist() == [1, 0, -1, 1]


@pytest.mark.parametrize("y", [[1, -1, 0, 1], np.array([1, np.nan, 0, 1]), [1, None, 0, 1]])
def test_gaps_among_numbers_are_missing_or_minus_one(y):
    table = {"a": [0.5, 0.5], "b": [0.5, 0.5]}
    bags: Any = read_targets(4, y, ["a", "b", "a", "b"], table)
    assert bags.truth.tolist() == [1, 0, -1, 1]


def test_minus_one_may_be_a_class():
    table = {"a": {-1: 0.5, 1: 0.5}}
    bags: Any = read_targets(2, [1, -1], ["a", "a"], table)
    assert bags.truth.tolist() == [1, 0]
    with pytest.raises(BagError, match="label -2 "):
        read_targets(2, [1, -2], ["a", "a"], table)


@pytest.mark.parametrize("y", [["no", None, "yes"], [0, 1, np.nan], [0, None, 1]])
def test_labels_that_are_counted_must_all_be_known(y):
    for bags in (None, ["a", "a", "b"]):
        with pytest.raises(BagError, match=r"the label of 1 row is missing.*\n.*proportions="):
            read_targets(3, y, bags)
