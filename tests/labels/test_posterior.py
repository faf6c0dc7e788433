"""Probabilities given counts: against all labels that meet them, one by one."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.bags.bags import Bags
from apportion.labels.posterior import posterior
from apportion.labels.soft import soft_labels


def bags_of(counts):
    """Bags with these counts, whose instances stand one bag after another."""
    sizes = np.sum(counts, axis=1)
    names = np.repeat(np.arange(len(counts)), sizes)
    return Bags.from_rows(None, names, dict(enumerate(counts)), counts=True)


def by_listing(confidence, counts):
    """Add up the probability of every labelling that meets the counts."""
    labels = np.repeat(np.arange(len(counts)), counts)
    found = np.zeros(confidence.shape)
    for one in set(permutations(labels.tolist())):
        likely = np.prod(confidence[np.arange(len(one)), one])
        found[np.arange(len(one)), one] += likely
    return found / found.sum(axis=1, keepdims=True)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_all_labels_that_meet_the_counts_are_summed(data):
    n_classes = data.draw(st.integers(1, 4))
    rows = st.lists(st.integers(0, 2), min_size=n_classes, max_size=n_classes).filter(any)
    counts = data.draw(st.lists(rows, min_size=1, max_size=5))
    bags = bags_of(counts)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    confidence = rng.dirichlet(np.full(n_classes, 0.5), bags.n_instances).clip(1e-4)
    found = posterior(confidence, bags)
    for i, own in enumerate(counts):
        place = slice(bags.offsets[i], bags.offsets[i + 1])
        np.testing.assert_allclose(found[place], by_listing(confidence[place], own), atol=1e-6)


@pytest.mark.parametrize("counts", [[700, 1300], [60, 40, 30], [1, 1999]])
def test_large_bags_sum_to_their_counts_and_nothing_underflows(counts):
    bags = bags_of([counts, counts[::-1]])
    rng = np.random.default_rng(0)
    confidence = rng.dirichlet(np.full(len(counts), 0.1), bags.n_instances)
    found = posterior(confidence, bags)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)
    sums = np.add.reduceat(found, bags.offsets[:-1])
    np.testing.assert_allclose(sums, bags.counts, atol=1e-3)
    assert not np.array_equal(found, soft_labels(confidence, bags))


def test_bags_that_would_take_too_much_get_soft_labels():
    bags = bags_of([[2, 3], [30, 20]])
    confidence = np.random.default_rng(0).dirichlet([1, 1], bags.n_instances)
    found, soft = posterior(confidence, bags, most=100), soft_labels(confidence, bags)
    assert np.array_equal(found[5:], soft[5:])
    assert np.abs(found[:5] - soft[:5]).max() > 0.005


def test_confidences_that_contradict_the_counts_still_have_an_answer():
    bags = bags_of([[2, 1], [0, 2]])
    confidence = np.array([[0.0, 1], [0, 1], [0, 1], [1, 0], [1, 0]])
    found = posterior(confidence, bags)
    np.testing.assert_allclose(found[:3], [[2 / 3, 1 / 3]] * 3, atol=1e-6)
    np.testing.assert_allclose(found[3:], [[0, 1]] * 2, atol=1e-12)


def test_factors_of_classes_change_nothing():
    bags = bags_of([[3, 4, 2], [1, 1, 1]])
    confidence = np.random.default_rng(0).dirichlet([1, 1, 1], bags.n_instances)
    other = confidence * [0.2, 1, 3]
    other /= other.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(posterior(other, bags), posterior(confidence, bags), atol=1e-5)
