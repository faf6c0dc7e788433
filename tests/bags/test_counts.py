"""Whole counts: from proportions by the largest remainder, and from labels."""

from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from apportion.bags.counts import count_labels, counts_from_proportions
from apportion.errors import BagError


def largest_remainder(weights: list[int], size: int) -> list[int]:
    """The definition, in exact arithmetic."""
    quotas = [Fraction(size * weight, sum(weights)) for weight in weights]
    counts = [int(quota) for quota in quotas]
    order = sorted(range(len(quotas)), key=lambda c: (counts[c] - quotas[c], c))
    for c in order[: size - sum(counts)]:
        counts[c] += 1
    return counts


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(any),
    st.integers(0, 1000) | st.integers(0, 10**9),
)
@settings(max_examples=400)
def test_counts_are_those_of_exact_arithmetic(weights, size):
    proportions = np.array(weights) / sum(weights)
    assert counts_from_proportions(proportions, size).tolist() == largest_remainder(weights, size)


@given(
    st.integers(1, 12).flatmap(
        lambda c: arrays(np.float64, c, elements=st.floats(0, 1)).filter(lambda w: w.sum() > 1e-3)
    ),
    st.integers(0, 10**12) | st.sampled_from([10**9, 2**40, 2**53]),
    st.floats(-9e-7, 9e-7),
)
@settings(max_examples=400)
def test_counts_keep_the_quota(weights, size, error):
    proportions = weights / weights.sum() * (1 + error)
    counts = counts_from_proportions(proportions, size).tolist()
    assert sum(counts) == size
    assert min(counts) >= 0
    exact = [Fraction(p) for p in proportions.tolist()]
    for count, p in zip(counts, exact, strict=True):
        assert abs(count - size * p / sum(exact)) < 1
        assert count == 0 or p > 0


@pytest.mark.parametrize(
    ("proportions", "size", "counts"),
    [
        ([0.1, 0.9], 30, [3, 27]),
        ([0.29, 0.71], 100, [29, 71]),
        ([0.93, 0.07], 50, [47, 3]),  # 46.5 and 3.5000000000000004: a tie
        ([5 / 6, 1 / 6], 3, [3, 0]),
        ([1 / 3] * 3, 10, [4, 3, 3]),
        ([1 / 3] * 3, 11, [4, 4, 3]),
        ([0.0, 0.5, 0.5], 1, [0, 1, 0]),
        ([1.0], 5, [5]),
        ([0.5, 0.5], 0, [0, 0]),
        ([0.5 - 2e-7, 0.5 - 2e-7], 10**7, [5 * 10**6, 5 * 10**6]),
        ([0.25, 0.75], 2**53, [2**51, 3 * 2**51]),
    ],
)
def test_counts_of_one_bag(proportions, size, counts):
    result = counts_from_proportions(proportions, size)
    assert result.tolist() == counts
    assert result.dtype == np.int64


def test_rounding_of_the_proportions_breaks_no_tie():
    """No class of a thousand may profit from the last bit of its 0.001."""
    thousandths = np.full(1000, 0.001)
    thousandths[500:] = np.nextafter(0.001, 1)
    counts = counts_from_proportions(thousandths, 10**9 + 7)
    assert counts.tolist() == [10**6 + 1] * 7 + [10**6] * 993


def test_rows_do_not_influence_each_other():
    rng = np.random.default_rng(0)
    proportions, sizes = rng.dirichlet(np.ones(5), 50), rng.integers(0, 10**6, 50)
    together = counts_from_proportions(proportions, sizes)
    alone = [counts_from_proportions(*pair) for pair in zip(proportions, sizes, strict=True)]
    assert np.array_equal(together, alone)
    assert together.shape == (50, 5)


@pytest.mark.parametrize(
    ("proportions", "sizes", "message"),
    [
        ([0.5, 0.7], 10, r"bag 0 has 10 instances, but its proportions sum to 1.2 "),
        ([[0.5, 0.5], [1.5, -0.5]], [1, 2], "bag 1 has 2 instances, but its proportion of class 1"),
        ([0.5, 0.5], -1, "bag 0 has a size of -1"),
        ([0.5, 0.5], 1.5, "bag 0 has a size of 1.5"),
        ([0.5, 0.5], 2**54, "from 0 to 2"),
        ([[0.5, 0.5]], [1, 2], r"shape \(1, 2\) do not go with sizes of shape \(2,\)"),
        (0.5, 1, "do not go with"),
    ],
)
def test_counts_refuse(proportions, sizes, message):
    with pytest.raises(BagError, match=message):
        counts_from_proportions(proportions, sizes)


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=8))
def test_labels_are_counted_bag_by_bag(bags):
    """Bags may hold no instance, and classes may occur in none."""
    labels, sizes = np.array([*chain(*bags)], np.int64), np.array([*map(len, bags)], np.int64)
    wanted = [[bag.count(c) for c in range(4)] for bag in bags]
    assert count_labels(labels, sizes, 4).tolist() == wanted
