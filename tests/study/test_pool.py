"""The rows that bags are made of: in any order, of labels of every kind, and each of them once."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import BagError
from apportion.study._pool import holdings, pool_of, positive, rows_by_class
from apportion.study.protocols import pools, rand, shuffle

LABELS = np.random.default_rng(9).permutation(np.repeat(np.arange(10), 50))


@given(st.lists(st.integers(-1, 9), max_size=7))
def test_a_pool_is_the_rows_in_order_or_refused(rows):
    """What is no pool: no rows at all, a row twice, a row that is not there."""
    if rows and len(set(rows)) == len(rows) and set(rows) <= set(range(8)):
        assert pool_of(8, np.array(rows)).tolist() == sorted(rows)
    else:
        with pytest.raises(BagError):
            pool_of(8, np.array(rows, np.int64))
    assert pool_of(8, None).tolist() == list(range(8))


@pytest.mark.parametrize("names", [["yes", "no", "3"], [2, 10, 3], [2.5, 10, -1]])
@given(data=st.data())
def test_rows_are_sorted_by_class_and_none_is_lost(names, data):
    truth = data.draw(st.lists(st.sampled_from(names), min_size=1))
    rows = data.draw(st.sets(st.integers(0, len(truth) - 1), min_size=1))
    found = rows_by_class(truth, sorted(rows))
    wanted: dict[Any, list[int]] = {}
    for row in sorted(rows):
        wanted.setdefault(truth[row], []).append(row)
    assert {name: own.tolist() for name, own in found.items()} == wanted
    assert list(found) == sorted(wanted)


@pytest.mark.parametrize("value", [0, -3, 1.5, "2", None])
def test_a_number_of_things_is_an_integer_from_1_on(value):
    whole: Any = np.int64(7)
    assert positive("size", whole) == 7
    with pytest.raises(BagError, match=re.escape(f"size must be an integer ≥ 1; got {value!r}.")):
        positive("size", value)


def test_the_smallest_classes_are_listed_first():
    pool = {"common": np.arange(5000), "rare": np.arange(1), "some": np.arange(20)}
    assert holdings(pool) == "class 'rare' 1 row · class 'some' 20 rows · class 'common' 5,000 rows"


def test_the_order_of_the_pool_does_not_matter():
    pool = pools(len(LABELS), (0.5, 0.5), seed=0)[0]
    one, other = (rand(LABELS, 10, rows=rows, seed=0).members for rows in (pool, pool[::-1]))
    assert np.array_equal(one, other)
    bags = [shuffle(len(LABELS), 10, rows=rows, seed=0)[3].tolist() for rows in (pool, pool[::-1])]
    assert bags[0] == bags[1]


def test_rand_takes_labels_of_every_kind():
    letters = np.array(list("abcdefghij"))[LABELS]
    kinds = [
        LABELS,
        LABELS.astype(np.uint8),
        LABELS / 4,
        letters,
        letters.astype(object),
        letters.tolist(),
        LABELS.tolist(),
        pd.Series(letters, index=range(7, 507)),
        pd.Categorical(letters),
    ]
    expected = rand(LABELS, 10, seed=0).members
    for labels in kinds:
        assert np.array_equal(rand(labels, 10, seed=0).members, expected)


def test_many_classes_are_not_all_listed():
    with pytest.raises(BagError, match=r"class 7 1 row · … \(2 more\)\n") as caught:
        rand(np.arange(10), 11, seed=0)
    assert "class 8" not in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "size", "options", "facts"),
    [
        ([], 1, {}, ["labels are of shape (0,)"]),
        ([["a"], ["b"]], 1, {}, ["labels are of shape (2, 1)"]),
        (["a", 1, "b"], 1, {}, ["cannot be put in order", "strings or all numbers"]),
        (["a", None, "b"], 1, {}, ["cannot be put in order", "without a label"]),
        ([1.0, 2.0, np.nan], 1, {}, ["label of row 2 is missing"]),
        (np.array([1.0, np.nan, 2.0]), 1, {"rows": [2, 1]}, ["label of row 1 is missing"]),
        (["a", "b"], 1, {"rows": [0, 2]}, ["rows run from 0 to 2", "2 rows", "from 0 to 1."]),
        (["a", "b"], 1, {"rows": [-1, 1]}, ["rows run from -1 to 1"]),
        (["a", "b"], 1, {"rows": [1, 0, 1]}, ["row 1 is in rows twice"]),
        (["a", "b"], 1, {"rows": []}, ["rows are of shape (0,)"]),
        (["a", "b"], 1, {"rows": [True, False]}, ["bool", "np.flatnonzero"]),
    ],
)
def test_rand_refuses(labels, size, options, facts):
    with pytest.raises(BagError) as caught:
        rand(labels, size, **{"seed": 0, **options})
    for fact in facts:
        assert fact in str(caught.value)
