"""Assignments of random bags of every kind, against scipy's solver of another algorithm."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from apportion import assign


def uniform(rng, shape):
    return rng.random(shape)


def ties(rng, shape):
    return rng.integers(0, 3, shape).astype(float)


def far_apart(rng, shape):
    """Whole numbers over twelve orders of magnitude: exact in float64, and so are their sums."""
    return np.rint(2.0 ** rng.uniform(0, 40, shape)) * rng.choice([-1, 1], shape)


def confidences(rng, shape):
    """Costs as they are in training: Eq. 2 of a softmax, in float32."""
    logits = np.exp(rng.normal(0, 3, shape))
    likely = logits / logits.sum(axis=1, keepdims=True)
    return (likely.max(axis=1, keepdims=True) - likely).astype(np.float32)


def alike(rng, shape):
    """Rows that differ in their last bits alone."""
    return 1 + np.finfo(float).eps * rng.integers(0, 4, shape)


def of_rank_one(rng, shape):
    return np.outer(rng.normal(size=shape[0]), rng.normal(size=shape[1]))


KINDS = (uniform, ties, far_apart, confidences, alike, of_rank_one)


def forbidden(rng, cost, labels):
    """Forbid some classes, but none that these labels need."""
    share = rng.choice([0, 0, 0.3, 0.9])
    hidden = rng.random(cost.shape) < share
    hidden[np.arange(len(cost)), labels] = False
    return np.where(hidden, np.inf, cost).astype(cost.dtype)


def some_bags(rng, kind, n_bags):
    """Bags of one call: they share their number of classes."""
    n_classes = int(rng.integers(1, 7))
    sizes = rng.integers(0, 11, n_bags)
    labels = [rng.integers(rng.integers(1, n_classes + 1), size=size) for size in sizes]
    counts = np.stack([np.bincount(own, minlength=n_classes) for own in labels])
    costs = [forbidden(rng, kind(rng, (len(own), n_classes)), own) for own in labels]
    return costs, counts, np.concatenate([[0], np.cumsum(sizes)])


def total(cost, labels):
    """The cost of labels, exactly as float64 adds it in longer floats."""
    return cost[np.arange(len(cost)), labels].astype(np.longdouble).sum()


def check_call(rng, n_bags):
    kind = KINDS[rng.integers(len(KINDS))]
    costs, counts, offsets = some_bags(rng, kind, n_bags)
    prices = rng.normal(size=counts.shape) if rng.random() < 0.5 else None
    found = assign(np.concatenate(costs), counts, offsets, prices=prices)
    assert (found.gap <= found.tolerance).all()
    for bag, cost in enumerate(costs):
        ours = found.labels[offsets[bag] : offsets[bag + 1]]
        np.testing.assert_array_equal(np.bincount(ours, minlength=counts.shape[1]), counts[bag])
        slots = np.repeat(np.arange(counts.shape[1]), counts[bag])
        rows, columns = linear_sum_assignment(cost[:, slots])
        theirs = np.empty(len(cost), np.int64)
        theirs[rows] = slots[columns]
        scale = np.abs(cost[np.isfinite(cost)]).max(initial=1)
        # Whole numbers are added without rounding, so that there is nothing to allow.
        allowed = 0 if kind in (ties, far_apart) else 1e-13 * scale * max(len(cost), 1)
        assert total(cost, ours) <= total(cost, theirs) + allowed, (
            kind.__name__,
            cost,
            counts[bag],
        )


def test_assignments_are_the_best_and_certified():
    for seed in range(60):
        check_call(np.random.default_rng(seed), 50)


@pytest.mark.slow
def test_a_hundred_thousand_assignments_are_the_best_and_certified():
    for seed in range(1000, 1500):
        check_call(np.random.default_rng(seed), 200)
