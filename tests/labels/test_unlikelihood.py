"""How unlikely labels are, and their regret: against definitions written out, and brute force."""

import itertools
import math

import numpy as np
import pytest

from apportion.labels.unlikelihood import (
    log_unlikelihood,
    plain_unlikelihood,
    regret,
    unlikelihood,
)
from tests.labels.problems import best_in_hindsight

# ------------------------------------------------------------------------------------ Eqs. 2 and 8


@pytest.mark.parametrize("n_classes", [1, 2, 5, 31, 32, 33, 100])
def test_unlikelihoods_are_those_of_each_row_by_itself(n_classes):
    """Few and many classes are computed in different ways."""
    rng = np.random.default_rng(n_classes)
    confidence = rng.dirichlet(np.ones(n_classes), 50)
    labels = rng.integers(n_classes, size=50)
    for j, (row, own) in enumerate(zip(confidence.tolist(), labels.tolist(), strict=True)):
        plain = [1 - value for value in row]
        relative = [max(row) - value for value in row]
        relative[own] = 1 - row[own]
        assert unlikelihood(confidence, labels)[j].tolist() == relative
        assert plain_unlikelihood(confidence, labels)[j].tolist() == plain


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_log_unlikelihood_is_at_most_12_and_never_negative(dtype):
    confidence = np.array([[0, 1e-9, 1 - 1e-9], [1.0005, 0, 0], [0.5, 0.25, 0.25]]).astype(dtype)
    before, labels = confidence.copy(), np.array([0, 1, 2])
    found = log_unlikelihood(confidence, labels)
    assert found.dtype == dtype
    assert np.array_equal(confidence, before)
    assert (found >= 0).all()
    assert found.max() == pytest.approx(12, rel=4 * float(np.finfo(dtype).eps))
    for given_, cost in zip(confidence.ravel().tolist(), found.ravel().tolist(), strict=True):
        wanted = min(12, -math.log(given_)) if given_ else 12
        assert cost == pytest.approx(max(wanted, 0), abs=24 * float(np.finfo(dtype).eps))
    other = log_unlikelihood(confidence, labels[::-1])
    assert np.array_equal(found, other)


# ------------------------------------------------------------------------------------------ regret


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
