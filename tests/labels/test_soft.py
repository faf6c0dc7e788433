"""Soft labels that meet counts: sums, fixed points, and scipy's minimum of the same problem."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from apportion.bags.bags import Bags
from apportion.errors import ConfigError, DataError
from apportion.labels import soft
from apportion.labels.soft import soft_labels


def bags_of(counts):
    counts = np.array(counts)
    bag = np.repeat(np.arange(len(counts)), counts.sum(axis=1))
    return Bags.from_rows(None, bag, counts, counts=True, classes=range(counts.shape[1]))


def sums_of(labels, bags):
    return np.add.reduceat(labels, bags.offsets[:-1], axis=0)


COUNTS = st.integers(1, 6).flatmap(
    lambda c: st.lists(
        st.lists(st.integers(0, 9), min_size=c, max_size=c).filter(any), min_size=1, max_size=5
    )
)


@given(COUNTS, st.sampled_from([0.005, 0.05, 1.0, 20.0, "sure", "wrong"]), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_sums_are_the_counts_and_every_row_is_a_distribution(counts, kind, seed):
    bags, rng = bags_of(counts), np.random.default_rng(seed)
    n, c = bags.n_instances, bags.n_classes
    if kind == "sure":
        confidence = np.eye(c)[rng.integers(0, c, n)]
    elif kind == "wrong":
        confidence = np.eye(c)[np.zeros(n, int)]
    else:
        confidence = rng.dirichlet(np.full(c, kind), n)
    found = soft_labels(confidence, bags)
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)
    assert (np.abs(sums_of(found, bags) - counts) <= 1e-6 * bags.sizes[:, None] + 1e-9).all()
    assert (found[np.repeat(bags.counts == 0, bags.sizes, axis=0)] == 0).all()


def test_bags_need_few_rounds(monkeypatch):
    """Alternating scaling would take thousands here: it moves one unit in 1,000 against 1e-9."""
    bags = bags_of([[501, 499]])
    confidence = np.repeat([[1.0, 0.0], [0.0, 1.0]], 500, axis=0)
    monkeypatch.setattr(soft, "ROUNDS", 30)
    np.testing.assert_allclose(
        sums_of(soft_labels(confidence, bags), bags), [[501, 499]], atol=1e-3
    )


def test_scipy_finds_the_same_minimum():
    rng = np.random.default_rng(1)
    counts = [3, 1, 2]
    p = rng.dirichlet(np.ones(3), 6)

    def divergence(flat):
        q = np.maximum(flat, 1e-300)
        return (q * np.log(q / p.ravel())).sum()

    rows: list[Any] = [
        {"type": "eq", "fun": lambda q, j=j: q.reshape(6, 3)[j].sum() - 1} for j in range(6)
    ]
    columns: list[Any] = [
        {"type": "eq", "fun": lambda q, c=c: q.reshape(6, 3)[:, c].sum() - counts[c]}
        for c in range(2)
    ]
    start = np.tile(np.array(counts) / 6, (6, 1)).ravel()
    oracle = minimize(
        divergence, start, bounds=[(0, 1)] * 18, constraints=[*rows, *columns], tol=1e-12
    )
    found = soft_labels(p, bags_of([counts]))
    np.testing.assert_allclose(found, oracle.x.reshape(6, 3), atol=1e-4)
    assert divergence(found.ravel()) <= oracle.fun + 1e-6


def test_confidences_that_meet_the_counts_stay():
    bags = bags_of([[2, 1], [1, 1]])
    given = np.array([[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.8, 0.2], [0.2, 0.8]])
    np.testing.assert_allclose(soft_labels(given, bags), given, atol=1e-6)
    once = soft_labels(np.random.default_rng(0).dirichlet([1, 1], 5), bags)
    np.testing.assert_allclose(soft_labels(once, bags), once, atol=1e-5)


def test_two_classes_keep_the_order_of_rows_in_a_bag():
    confidence = np.random.default_rng(0).dirichlet([0.5, 0.5], 40)
    found = soft_labels(confidence, bags_of([[31, 9]]))
    assert found[:, 1].argsort().tolist() == confidence[:, 1].argsort().tolist()


def test_bags_do_not_depend_on_one_another(monkeypatch):
    rng = np.random.default_rng(0)
    bags = bags_of(rng.integers(1, 6, (30, 3)))
    confidence = rng.dirichlet(np.ones(3), bags.n_instances)
    whole = soft_labels(confidence, bags)
    monkeypatch.setattr(soft, "PIECE", 64)
    np.testing.assert_allclose(soft_labels(confidence, bags), whole, atol=1e-5)
    one = bags.positions(np.array([7]))
    np.testing.assert_allclose(soft_labels(confidence[one], bags[7]), whole[one], atol=1e-5)


def test_narrow_floats_are_computed_in_wide_ones():
    confidence = np.random.default_rng(0).dirichlet([1, 1, 1], 9).astype(np.float32)
    found = soft_labels(confidence, bags_of([[2, 3, 4]]))
    assert found.dtype == np.float64


def test_what_is_no_confidence_is_refused():
    bags = bags_of([[1, 1]])
    with pytest.raises(ConfigError, match=r"floats of shape \(2, 2\)"):
        soft_labels(np.zeros((3, 2)), bags)
    with pytest.raises(DataError, match="instance 1"):
        soft_labels(np.array([[0.5, 0.5], [np.nan, 1.0]]), bags)
    with pytest.raises(DataError, match="not logits"):
        soft_labels(np.array([[-1.0, 0.5], [0.5, 0.5]]), bags)
