"""Checks of the fields of bags: values, rows, names and shapes."""

from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.bags.bags import Bags
from apportion.bags.checks import check_filled, check_rows, check_unique, check_values
from apportion.bags.counts import counts_from_proportions
from apportion.errors import BagError
from tests.bags.small_bags import BAG, FRAME, TABLE, X

# ------------------------------------------------------------------------------------ values


def test_an_error_names_the_bag_the_number_and_the_remedy():
    frame = FRAME.set_axis(["ward-3", "ward-17"]).assign(none=[0.5, 0.0], severe=[0.0, 0.69])
    with pytest.raises(BagError) as error:
        Bags.from_rows(X, ["ward-3" if bag == "a" else "ward-17" for bag in BAG], frame)
    assert str(error.value) == (
        "bag 'ward-17' has 4 instances, but its proportions sum to 0.94 "
        "(they must sum to 1 ± 0.015).\n"
        "  none 0.00 · mild 0.25 · severe 0.69\n"
        "  Add the column of the missing class, or correct the values."
    )


# --------------------------------------------------------------------------------- raw fields


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"proportions": {**TABLE, "a": [0.5, 0.5, 2e-6]}}, "sum to 1.000002 "),
        ({"proportions": FRAME * 2}, r"bag 'a' .* sum to 2 .* \(and 1 more like it\)"),
        ({"proportions": {**TABLE, "a": [1.5, -0.5, 0]}}, "2 instances.*class 1 is -0.5"),
        ({"proportions": {**TABLE, "a": [1, np.nan, 0]}}, "bag 'a'.*class 1 is nan"),
        ({"proportions": {**TABLE, "a": [1, np.inf, 0]}}, "bag 'a'.*class 1 is inf"),
        ({"proportions": {**TABLE, "a": [2, -1, 0]}, "normalize": True}, "class 1 is -1"),
        ({"proportions": {**TABLE, "a": [0, 0, 0]}, "normalize": True}, "'a'.*sum to 0 "),
        ({"proportions": {**TABLE, "a": [np.inf, 0, 0]}, "normalize": True}, "class 0 is inf"),
        (
            {"proportions": {"a": [1, 1, 0], "b": [1, 1, 1]}, "counts": True},
            r"bag 'b' has 4 instances, but its counts sum to 3\.\n  0 1 · 1 1 · 2 1\n.*normalize",
        ),
        ({"proportions": {"a": [3, -1, 0], "b": [2, 2, 0]}, "counts": True}, "class 1 is -1"),
        ({"proportions": {"a": [1, 1, 0], "b": [2.5, 1.5, 0]}, "counts": True}, "class 0 is 2.5"),
        ({"proportions": {"a": [1, np.nan, 1], "b": [2, 2, 0]}, "counts": True}, "class 1 is nan"),
    ],
)
def test_from_rows_refuses(change, message):
    with pytest.raises(BagError, match=message):
        Bags.from_rows(**{"x": X, "bag": BAG, "proportions": TABLE, **change})


FIELDS: dict[str, Any] = {
    "x": X,
    "index": np.array([1, 3, 0, 2]),
    "offsets": np.array([0, 2, 4]),
    "proportions": np.array([[0.5, 0.5], [1, 0]]),
    "counts": np.array([[1, 1], [2, 0]]),
    "classes": ("n", "y"),
    "ids": ("a", "b"),
    "truth": np.array([0, 1, 0, 0]),
}


def test_fields_that_agree_are_taken():
    assert Bags(**FIELDS).rows(1).tolist() == [0, 2]
    with pytest.raises(IndexError):
        Bags(**FIELDS).rows(2)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("index", np.array([1, 3, 0, 6]), "bag 'b' holds row 6, but x has 6 rows"),
        ("index", np.array([1, -3, 0, 5]), "bag 'a' holds row -3"),
        ("index", np.array([1.0, 3, 0, 2]), "index must be of shape .* and int64"),
        ("index", np.array([[1, 3, 0, 2]]), "index must be of shape"),
        ("offsets", np.array([0, 2, 3]), "offsets run from 0 to 3"),
        ("offsets", np.array([1, 2, 4]), "offsets run from 1 to 4"),
        ("offsets", np.array([0, 4, 4]), "bag 'b' has 0 instances"),
        ("offsets", np.array([0, 5, 4]), "bag 'b' has 0 instances"),
        ("offsets", np.array([0, 4]), r"offsets must be of shape \(3,\)"),
        ("proportions", np.array([[0.5, 0.5], [1, 1]]), "bag 'b' .* sum to 2 "),
        ("proportions", np.ones((2, 1)), r"proportions must be of shape \(2, 2\)"),
        ("counts", np.array([[1, 1], [3, 0]]), "bag 'b' has 2 instances, but its counts sum to 3"),
        ("counts", np.array([[3, -1], [2, 0]]), "bag 'a' .* class 'y' is -1"),
        ("counts", np.array([[1, 1], [2, 0]], dtype=np.int32), "counts must be .* int64"),
        ("classes", ("n", "n"), "class 'n' occurs 2 times"),
        ("classes", (), "2 bags and 0 classes"),
        ("ids", ("a", "a"), "bag 'a' occurs 2 times"),
        ("ids", (), "0 bags and 2 classes"),
        ("truth", np.array([0, 1, 0, 2]), "truth runs from 0 to 2, but there are 2 classes"),
        ("truth", np.array([0, 1, 0, -2]), "truth runs from -2 to 1"),
        ("truth", np.array([0, 1, 0]), r"truth must be of shape \(4,\)"),
    ],
)
def test_fields_that_disagree_are_refused(field, value, message):
    with pytest.raises(BagError, match=message):
        Bags(**{**FIELDS, field: value})


# ------------------------------------------------------------------------------ the checks alone


ROWS = st.lists(st.lists(st.integers(-1, 3), max_size=4), min_size=1, max_size=5)


@given(ROWS)
def test_counts_are_taken_exactly_if_they_are_not_negative_and_sum_to_the_size(rows):
    values = np.array([[*row, *[0] * (4 - len(row))] for row in rows])
    for size in range(5):
        wrong = [i for i, row in enumerate(values) if min(row) < 0 or sum(row) != size]
        sizes, ids = np.full(len(rows), size), list(range(len(rows)))
        if not wrong:
            check_values(values, sizes, ids, "abcd", counts=True)
            continue
        more = f" (and {len(wrong) - 1} more like it)" if len(wrong) > 1 else ""
        with pytest.raises(BagError) as refused:
            check_values(values, sizes, ids, "abcd", counts=True)
        negative = [i for i in wrong if min(values[i]) < 0]
        worst = max(wrong, key=lambda i: (abs(sum(values[i]) - size), -i))
        named = negative[0] if negative else worst
        assert str(refused.value).startswith(f"bag {named} has {size} instance")
        assert str(refused.value).partition("\n")[0].endswith(f"{more}.")


@pytest.mark.parametrize("off", [0.0, 9e-7, -9e-7])
def test_proportions_may_miss_1_by_a_millionth(off):
    check_values(np.array([[0.5, 0.5 + off]]), np.array([2]), ["a"], "yn")
    with pytest.raises(BagError, match="sum to"):
        check_values(np.array([[0.5, 0.5 + 2e-6 + off]]), np.array([2]), ["a"], "yn")


@given(st.lists(st.lists(st.integers(-1, 9), max_size=4), min_size=1, max_size=6))
def test_the_first_row_that_x_lacks_is_named_with_its_bag(bags):
    rows, ends = np.array([*chain(*bags)], np.int64), np.cumsum([*map(len, bags)])
    for n_rows in (8, None):
        bad = [
            (i, row)
            for i, bag in enumerate(bags)
            for row in bag
            if row < 0 or (n_rows is not None and row >= n_rows)
        ]
        if not bad:
            check_rows(rows, ends, range(len(bags)), n_rows)
            continue
        with pytest.raises(BagError, match=r"^bag {} holds row {}\b".format(*bad[0])):
            check_rows(rows, ends, range(len(bags)), n_rows)


def test_names_must_differ_and_bags_must_not_be_empty():
    check_unique(["a", 1, "1"], "bag")
    with pytest.raises(BagError, match="class 'n' occurs 3 times"):
        check_unique(["y", "n", "n", "z", "n"], "class")
    check_filled(np.array([1, 2]), ["a", "b"])
    with pytest.raises(BagError, match=r"^bag 'b' has 0 instances \(and 1 more like it\)"):
        check_filled(np.array([1, 0, 0]), ["a", "b", "c"])


# ------------------------------------------------------------------------------ masked arrays


def masked(values):
    return np.ma.masked_array(
        values, mask=np.arange(np.size(values)).reshape(np.shape(values)) == 1
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bags.from_rows(masked(np.eye(4)), [0, 0, 1, 1], [[0.5, 0.5]] * 2),
        lambda: Bags.from_rows((np.eye(4), masked(np.eye(4))), [0, 0, 1, 1], [[0.5, 0.5]] * 2),
        lambda: Bags.from_rows(np.eye(4), [0, 0, 1, 1], masked([[0.5, 0.5]] * 2)),
        lambda: Bags.from_rows(np.eye(4), [0, 0, 1, 1], {0: [0.5, 0.5], 1: masked([0.5, 0.5])}),
        lambda: Bags.from_rows(np.eye(4), masked([0, 0, 1, 1]), [[0.5, 0.5]] * 2),
        lambda: Bags.from_rows(np.eye(4), [0, 0, 1, 1], truth=masked([0, 0, 1, 1])),
        lambda: Bags.from_members(masked(np.eye(4)), [[0, 1], [2, 3]], [[0.5, 0.5]] * 2),
        lambda: Bags.from_rows(None, [0, 0], [[0.5, 0.5]]).with_rows(masked(np.eye(2))),
        lambda: counts_from_proportions(masked([0.5, 0.5]), 4),
    ],
)
def test_masked_arrays_are_refused(make):
    with pytest.raises(BagError, match=r"is a masked array; 1 value of \d+ are masked"):
        make()
