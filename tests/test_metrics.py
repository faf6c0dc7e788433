"""Metrics: against their definitions, written out in numpy."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.metrics import bag_means, proportion_error, regret, share_equal


def random_bags(seed, n_bags=7, n_classes=4, largest=9):
    """Offsets of bags of unequal size, confidences of their instances, given proportions."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, largest + 1, n_bags))])
    confidence = rng.dirichlet(np.full(n_classes, 0.3), offsets[-1]).astype(np.float32)
    return offsets, confidence, rng.dirichlet(np.ones(n_classes), n_bags)


# -------------------------------------------------------------------------------- proportion error


@pytest.mark.parametrize("seed", range(5))
def test_bag_means_are_the_means_of_each_bag(seed):
    offsets, confidence, _ = random_bags(seed)
    found = bag_means(torch.from_numpy(confidence), torch.from_numpy(offsets))
    wanted = [
        confidence[first:last].astype(np.float64).mean(axis=0)
        for first, last in itertools.pairwise(offsets)
    ]
    assert found.dtype is torch.float64
    np.testing.assert_allclose(found, np.stack(wanted), rtol=1e-12)


def test_bag_means_are_summed_in_float64():
    """In float32 the mean of a large bag would be off in the fifth digit, and select by noise."""
    n = 300_000
    confidence = torch.full((n, 2), 0.1, dtype=torch.float32)
    found = bag_means(confidence, torch.tensor([0, n]))
    np.testing.assert_allclose(found, [[np.float64(np.float32(0.1))] * 2], rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_proportion_error_is_the_mean_total_variation(seed):
    offsets, confidence, given_ = random_bags(seed)
    soft = np.stack([confidence[a:b].mean(axis=0) for a, b in itertools.pairwise(offsets)])
    # Total variation as its other definition: the most that any set of classes differs by.
    sets = [list(s) for r in range(5) for s in itertools.combinations(range(4), r)]
    worst = [max(p[s].sum() - q[s].sum() for s in sets) for p, q in zip(given_, soft, strict=True)]
    found = proportion_error(torch.from_numpy(given_), torch.from_numpy(soft))
    assert isinstance(found, float)
    assert found == pytest.approx(np.mean(worst), rel=1e-6)


def test_proportion_error_runs_from_zero_to_one():
    pure = torch.eye(3, dtype=torch.float64)
    assert proportion_error(pure, pure) == 0
    assert proportion_error(pure, pure.roll(1, dims=1)) == 1


def test_every_bag_counts_the_same_whatever_its_size():
    offsets = torch.tensor([0, 1, 100])
    confidence = torch.tensor([[0.0, 1.0]] + [[1.0, 0.0]] * 99)
    given_ = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert proportion_error(given_, bag_means(confidence, offsets)) == 0.5


# ------------------------------------------------------------------------------------ share equal


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=50))
def test_share_equal_counts_matches(pairs):
    ours, theirs = (torch.tensor(side) for side in zip(*pairs, strict=True))
    found = share_equal(ours, theirs)
    assert found == pytest.approx(sum(a == b for a, b in pairs) / len(pairs), rel=1e-12)


def test_share_equal_keeps_the_digits_of_many_labels():
    labels = torch.zeros(2**24 + 3, dtype=torch.int64)  # more than float32 can count to
    others = labels.clone()
    others[:5] = 1
    assert share_equal(labels, others) == 1 - 5 / len(labels)


# ----------------------------------------------------------------------------------------- regret


def best_in_hindsight(total, counts, offsets):
    """Eq. 3 by trying every labeling of every bag."""
    cost = 0.0
    for i, (first, last) in enumerate(itertools.pairwise(offsets)):
        pool = np.repeat(np.arange(len(counts[i])), counts[i])
        rows = np.arange(first, last)
        cost += min(total[rows, list(order)].sum() for order in itertools.permutations(pool))
    return cost


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("epochs", [1, 3])
def test_regret_is_what_was_paid_above_the_best_fixed_labels(seed, epochs):
    """Eq. 4: Σ_t cost of the labels played in epoch t, less the best fixed labels' cost."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, 4)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    counts = np.stack([rng.multinomial(size, [0.5, 0.3, 0.2]) for size in sizes])
    losses = rng.random((epochs, offsets[-1], 3))
    played = 0.0
    for loss in losses:
        for i, (first, last) in enumerate(itertools.pairwise(offsets)):
            labels = rng.permutation(np.repeat(np.arange(3), counts[i]))
            played += loss[np.arange(first, last), labels].sum()

    found = regret(played, losses.sum(axis=0), counts, offsets, epochs=epochs)
    best = best_in_hindsight(losses.sum(axis=0), counts, offsets)
    assert found.value == pytest.approx((played - best) / (offsets[-1] * epochs), rel=1e-9)
    assert found.value >= 0

    warm = regret(
        played, losses.sum(axis=0), counts, offsets, epochs=epochs, prices=found.prices, threads=1
    )
    assert warm.value == pytest.approx(found.value, rel=1e-9)


def test_the_best_fixed_labels_have_no_regret():
    total = np.array([[0.0, 1.0], [1.0, 0.0], [0.3, 0.4]])
    counts, offsets = np.array([[2, 1]]), np.array([0, 3])
    assert regret(0.3, total, counts, offsets, epochs=5).value == pytest.approx(0, abs=1e-12)
