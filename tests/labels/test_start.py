"""First labels: random ones, and those of the caller."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apportion.bags.bags import Bags
from apportion.errors import BagError, ConfigError
from apportion.labels.start import checked_labels, first_labels, random_labels
from tests.labels.tables import table_bags
from tests.labels.test_leader import bags_of, counts_of

SMALL = bags_of([[3, 2, 0], [0, 0, 1], [2, 2, 4], [1, 5, 1]])
TRUTH: Any = SMALL.truth
COUNTS = st.lists(
    st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any), min_size=1, max_size=6
)


@given(COUNTS, st.integers(0, 2**63 - 1))
@settings(max_examples=60, deadline=None)
def test_random_labels_meet_the_counts(counts, seed):
    bags = bags_of(counts)
    assert counts_of(random_labels(bags, seed), bags) == counts


def test_random_labels_are_equally_likely():
    """Of the 12 labelings of a bag of 2, 1 and 1, each turns up as often as any other."""
    bags = bags_of([[2, 1, 1]] * 3000)
    drawn = [tuple(row) for row in random_labels(bags, 0).reshape(-1, 4).tolist()]
    labelings = sorted(set(itertools.permutations((0, 0, 1, 2))))
    found = [drawn.count(labeling) for labeling in labelings]
    assert sum(found) == 3000
    assert stats.chisquare(found).pvalue > 1e-3


def test_bags_that_are_alike_do_not_get_the_same_random_labels():
    first = random_labels(bags_of([[8, 8], [8, 8]]), 0)
    assert first[:16].tolist() != first[16:].tolist()


def test_labels_that_break_the_counts_are_refused_by_bag_and_number():
    counts = {"north": [2, 1], "south": [1, 3]}
    table = {name: dict(zip(["no", "yes"], k, strict=True)) for name, k in counts.items()}
    bag = ["north"] * 3 + ["south"] * 4
    bags = Bags.from_rows(None, bag, table, counts=True)
    good = [0, 1, 0, 1, 1, 0, 1]
    assert checked_labels(good, bags, "mine").tolist() == good
    with pytest.raises(BagError) as caught:
        checked_labels([0, 1, 0, 1, 0, 0, 1], bags, "the labels")
    message = str(caught.value)
    assert "bag 'south' 2 of class 'no', but its count is 1" in message
    assert "assign" in message
    with pytest.raises(BagError, match="bag 'north' 1 of class 'no', but its count is 2"):
        checked_labels(
            [0, 1, 1, 1, 0, 0, 1], bags, "the labels"
        )  # the totals over all bags are right


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (np.zeros(5, np.int64), r"shape \(5,\)"),
        (np.zeros((21, 1), np.int64), r"shape \(21, 1\)"),
        (np.zeros(21), "float64"),
        (np.zeros(21, bool), "bool"),
        (np.array(["a"] * 21), "U1"),
    ],
)
def test_labels_of_another_shape_or_type_are_refused(first, says):
    assert SMALL.n_instances == 21
    with pytest.raises(BagError, match=f"(?s){says}.*each of the 21 instances"):
        checked_labels(first, SMALL, "the labels")


@pytest.mark.parametrize(("value", "says"), [(3, "from 0 to 3"), (-1, "from -1 to 2")])
def test_labels_that_are_no_class_are_refused(value, says):
    first = TRUTH.copy()
    first[0] = value
    with pytest.raises(BagError, match=f"(?s){says}.*between 0 and 2"):
        checked_labels(first, SMALL, "the labels")


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.uint64])
def test_labels_are_returned_as_new_integers_of_64_bits(dtype):
    labels = TRUTH.astype(dtype)
    found = checked_labels(labels, SMALL, "the labels")
    assert found.dtype == np.int64
    assert found.tolist() == TRUTH.tolist()
    assert not np.shares_memory(found, labels)


@pytest.mark.parametrize("position", [1, 4, 30])
def test_random_labels_of_a_shard_are_those_of_all(position):
    bags = bags_of(np.random.default_rng(0).integers(1, 5, (40, 3)))
    begin = int(bags.offsets[position])
    shard = random_labels(bags[position:], seed=7, first_position=begin)
    assert shard.tolist() == random_labels(bags, seed=7)[begin:].tolist()


@pytest.mark.parametrize("first", ["linear", "mean-map"])
def test_linear_first_labels_meet_the_counts_and_are_mostly_right(first):
    bags = table_bags(600)
    labels = first_labels(first, bags.without_truth(), seed=0)
    assert counts_of(labels, bags) == bags.counts.tolist()
    assert (labels == bags.truth).mean() > 0.88
    random = first_labels("random", bags, seed=0)
    assert (random == bags.truth).mean() < 0.8


def test_linear_first_labels_need_rows():
    with pytest.raises(BagError, match=r"(?s)x is None.*with_rows"):
        first_labels("linear", SMALL, seed=0)
    images = SMALL.with_rows(np.zeros((21, 3, 4, 4)))
    with pytest.raises(
        ConfigError, match=r"need rows of features, but x is of shape \(21, 3, 4, 4\)"
    ):
        first_labels("mean-map", images, seed=0)
