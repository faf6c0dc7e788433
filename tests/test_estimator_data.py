"""What an estimator is given: instances as arrays, and targets as bags."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from apportion import BagError, Bags, LLPClassifier
from apportion._estimator_data import class_array, read_bags, read_instances
from apportion.data.columns import Columns
from apportion.data.tables import read_bags as read_table

X = np.arange(12.0).reshape(6, 2)
BAG = np.array(["b", "a", "b", "a", "b", "a"])


def given(data, **settings) -> tuple[Any, Any, Any]:
    """What `fit` makes of instances, and what `predict` makes of them afterwards."""
    estimator = LLPClassifier(**settings)
    x, estimator.columns_ = read_instances(estimator, data, reset=True)
    return x, estimator.columns_, estimator


# ------------------------------------------------------------------------------------- instances


def test_arrays_and_frames_of_numbers_are_the_same():
    x, columns, _ = given(X)
    assert x.dtype == np.float32
    assert np.array_equal(x, X)
    y, named, _ = given(pd.DataFrame(X, columns=["u", "v"]))
    assert np.array_equal(x, y)
    assert (columns.names, named.names) == (("0", "1"), ("u", "v"))


def test_arrays_are_read_by_position_where_frames_were_learned_from():
    _, _, estimator = given(pd.DataFrame(X, columns=["u", "v"]))
    with pytest.warns(UserWarning, match="valid feature names"):
        x, _ = read_instances(estimator, X[:2], reset=False)
    assert np.array_equal(x, X[:2])


def test_missing_numbers_are_filled_with_what_was_learned():
    holes = X.copy()
    holes[0, 0] = np.nan
    x, _, estimator = given(holes)
    assert x.tolist()[0] == [X[1:, 0].mean(), 1.0, 1.0]
    assert x[1:, 2].tolist() == [0.0] * 5
    later, _ = read_instances(estimator, np.array([[np.nan, np.nan]]), reset=False)
    assert later.tolist() == [[X[1:, 0].mean(), X[:, 1].mean(), 1.0]]


def test_frames_of_other_libraries_are_asked_for_pandas():
    frame = pd.DataFrame(X, columns=["u", "v"])
    x, columns, _ = given(SimpleNamespace(to_pandas=lambda: frame))
    assert np.array_equal(x, X)
    assert columns.names == ("u", "v")


def test_more_dimensions_and_tuples_stay_as_they_are():
    images = np.zeros((4, 3, 8, 8), np.uint8)
    x, columns, _ = given(images)
    assert x.dtype == np.uint8
    assert columns is None
    x, columns, _ = given(([[1.0], [2.0]], [3, 4]))
    assert [part.tolist() for part in x] == [[[1.0], [2.0]], [3, 4]]
    assert columns is None


def test_bags_and_tables_bring_their_own():
    bags = Bags.from_rows(X, BAG, {"a": [0.5, 0.5], "b": [0.3, 0.7]})
    x, columns, _ = given(bags)
    assert x is bags.x
    assert columns is None
    frame = pd.DataFrame(X, columns=["u", "v"]).assign(bag=BAG)
    table = read_table(frame, bag="bag", proportions={"a": [0.5, 0.5], "b": [0.3, 0.7]})
    x, columns, _ = given(table)
    assert x is table.bags.x
    assert columns == Columns.learn(frame[["u", "v"]])


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (np.array([[np.inf, 1.0]]), ValueError, "infinity"),
        (pd.DataFrame({"a": [1.0, np.inf]}), ValueError, "'a'"),
        (np.array([["a", "b"]]), ValueError, "numeric values"),
        (np.empty((0, 3)), ValueError, "0 sample"),
        (pd.DataFrame({"a": []}), ValueError, "0 sample"),
        (pd.DataFrame(index=range(3)), ValueError, "0 feature"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), TypeError, "[Ss]parse"),
        (pd.DataFrame({"when": pd.to_datetime(["2024-01-01"])}), ValueError, "'when'"),
        ([1.0, 2.0], ValueError, "2D"),
    ],
)
def test_what_cannot_be_read_is_named(data, error, message):
    with pytest.raises(error, match=message):
        given(data)


# --------------------------------------------------------------------------------------- targets


def test_labels_alone_are_bags_of_one():
    bags = read_bags(X, [3, 1, 3, 1, 1, 2])
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
        bags = read_bags(X, None, BAG, table)
        rows = {bag: bags.counts[i].tolist() for i, bag in enumerate(bags.ids)}
        assert rows == wanted
    # A bag of one row that sums to 1 is both.
    single = read_bags(X[:1], None, ["a"], {"a": [0.2, 0.8]})
    assert single.proportions.tolist() == [[0.2, 0.8]]


def test_counts_need_all_bags_to_agree():
    with pytest.raises(BagError, match="sum to 3"):
        read_bags(X, None, BAG, {"a": [2, 1], "b": [0.0, 1.0]})


def test_classes_come_sorted_and_stay_what_they_are():
    assert read_bags(X, None, BAG, {"a": {2: 1, 1: 0}, "b": {2: 0, 1: 1}}).classes == (1, 2)
    mixed = read_bags(X, None, BAG, {"a": {"x": 1, 1: 0}, "b": {"x": 0, 1: 1}})
    assert class_array(mixed.classes).tolist() == ["x", 1]
    assert class_array([True, False]).dtype == bool


def test_known_classes_keep_their_order():
    table = {"a": {"y": 0.5, "x": 0.5}, "b": {"x": 1.0, "y": 0.0}}
    bags = read_bags(X, None, BAG, table, classes=["y", "x"])
    assert bags.classes == ("y", "x")
    rows = read_bags(X, np.tile([1.0, 0.0], (6, 1)), BAG, classes=["y", "x"])
    assert rows.classes == ("y", "x")
    assert rows.counts.tolist() == [[3, 0], [3, 0]]
    with pytest.raises(BagError, match="'y' is not a column") as caught:
        read_bags(X, None, BAG, {"a": {"z": 1.0}, "b": {"z": 1.0}}, classes=["y", "x"])
    assert not hasattr(caught.value, "__notes__")


def test_bags_of_a_series_are_matched_by_position():
    shuffled = pd.Series(BAG, index=[5, 4, 3, 2, 1, 0])
    bags = read_bags(X, None, shuffled, {"a": [1.0, 0.0], "b": [0.0, 1.0]})
    assert {bag: bags.rows(i).tolist() for i, bag in enumerate(bags.ids)} == {
        "a": [1, 3, 5],
        "b": [0, 2, 4],
    }


def test_a_row_whose_bag_is_missing_is_named():
    with pytest.raises(BagError, match="row 1 is the first"):
        read_bags(X, None, ["a", None, "a", "a", "a", "a"], {"a": [0.5, 0.5]})
