"""What an estimator is given: instances as arrays, and targets as bags."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from apportion import BagError, Bags, LLPClassifier
from apportion.data.encoding import learn_columns
from apportion.data.tables import read_bags as read_table
from apportion.errors import DataError
from apportion.estimator.inputs import layout_of, read_instances
from apportion.estimator.targets import class_array, read_bags

X = np.arange(12.0).reshape(6, 2)
BAG = np.array(["b", "a", "b", "a", "b", "a"])


def given(data, **settings) -> tuple[Any, Any, Any]:
    """What `fit` makes of instances, and what `predict` makes of them afterwards."""
    estimator = LLPClassifier(**settings)
    x, estimator.columns_ = read_instances(estimator, data, reset=True)
    estimator.layout_ = layout_of(x)
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
    assert columns == learn_columns(frame[["u", "v"]])


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


def later(estimator, data) -> str:
    """How what `predict` cannot read is refused."""
    with pytest.raises(DataError) as caught:
        read_instances(estimator, data, reset=False)
    return str(caught.value)


def test_a_table_encoded_by_other_columns_is_refused():
    """Codes of categories are numbers: those of another table would be read, and mean others."""
    rows = pd.DataFrame({"town": ["x", "x", "y"], "bag": 0})
    others = pd.DataFrame({"town": ["y", "y", "x"], "bag": 0})
    first, second = (read_table(f, bag="bag", proportions={0: [0.5, 0.5]}) for f in (rows, others))
    _, columns, estimator = given(first)
    assert "columns=classifier.columns_" in later(estimator, second)
    again = read_table(others, bag="bag", proportions={0: [0.5, 0.5]}, columns=columns)
    x, _ = read_instances(estimator, again, reset=False)
    assert x[1].ravel().tolist() == [2, 2, 1]
    x, _ = read_instances(estimator, others[["town"]], reset=False)
    assert x[1].ravel().tolist() == [2, 2, 1]


def test_nothing_is_learned_from_what_is_to_be_predicted():
    _, _, estimator = given((X, np.ones((6, 1), int)))
    assert "fitted on arrays" in later(estimator, pd.DataFrame(X))
    assert "(axes, features)" in later(estimator, X)
    bags = Bags.from_rows(X, BAG, {"a": [0.5, 0.5], "b": [0.3, 0.7]})
    _, _, estimator = given(bags)
    x, columns = read_instances(estimator, np.array([[np.nan, 1.0]]), reset=False)
    assert x.shape == (1, 2)
    assert columns is None


def test_text_needs_a_frame():
    _, _, estimator = given(pd.DataFrame({"u": [1.0], "town": ["x"]}))
    message = later(estimator, np.array([[1.0, "x"]], object))
    assert "'town'" in message
    assert "Pass a DataFrame with the columns u, town." in message


def test_names_of_an_earlier_fit_do_not_stay():
    estimator = LLPClassifier()
    read_instances(estimator, pd.DataFrame(X, columns=["u", "v"]), reset=True)
    assert estimator.n_features_in_ == 2
    read_instances(estimator, (X, X), reset=True)
    assert not hasattr(estimator, "n_features_in_")
    assert not hasattr(estimator, "feature_names_in_")
    frame = pd.DataFrame(X, columns=["u", "v"]).assign(bag=0)
    read_instances(estimator, read_table(frame, bag="bag", proportions={0: [1, 0]}), reset=True)
    assert estimator.feature_names_in_.tolist() == ["u", "v"]


def test_a_column_that_is_there_twice_is_named():
    with pytest.raises(DataError, match="'u' is there more than once"):
        given(pd.DataFrame(X, columns=["u", "u"]))


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
    found = read_bags(X, None, bags, table)
    assert set(found.ids) == set(items)
    assert found.rows(found.ids.index(items[1])).tolist() == [1, 3, 5]


def test_a_dict_that_scikit_learn_cut_to_a_list_is_refused():
    with pytest.raises(BagError, match="makes a list of a dict"):
        read_bags(X, None, [0, 1, 2, 3, 4, 5], [[0.5, 0.5]] * 6)


def test_ids_of_another_type_than_the_tables_are_shown():
    table = pd.DataFrame({"no": [0.5, 0.5], "yes": [0.5, 0.5]}, index=["1", "2"])
    assert read_bags(X, None, [1, 2] * 3, table).ids == ("1", "2")  # written alike
    with pytest.raises(BagError) as caught:
        read_bags(X, None, [1, 2] * 3, table.set_axis(["01", "02"]))
    assert "is 1 (int), and the first in the table '01' (str)" in str(caught.value)
    assert "set_index" in str(caught.value)


def test_targets_that_make_no_sense_are_named():
    with pytest.raises(BagError, match="X\\['ward'\\] rather than 'ward'"):
        read_bags(X, None, "ward", {"a": [1.0]})
    with pytest.raises(BagError, match="Pass bags= as well, if these are the proportions"):
        read_bags(X, np.full((6, 2), 0.5))
    with pytest.raises(BagError, match=r"NaN|nan"):
        read_bags(X, np.full((6, 2), np.nan), BAG)


def test_rows_of_a_dict_may_be_series():
    rows = {bag: pd.Series({"y": 0.5, "x": 0.5}) for bag in "ab"}
    assert read_bags(X, None, BAG, rows).classes == ("x", "y")


def test_classes_may_be_tuples():
    found = class_array([("a", 1), ("a", 2)])
    assert found.shape == (2,)
    assert found[1] == ("a", 2)
