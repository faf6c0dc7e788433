"""Metrics: against their definitions, written out in numpy."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.metrics import (
    accuracy,
    bag_means,
    bootstrap,
    chance_variation,
    luck_of_least,
    proportion_error,
    total_variation,
)


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
    found = bag_means(confidence, offsets)
    wanted = [
        confidence[first:last].astype(np.float64).mean(axis=0)
        for first, last in itertools.pairwise(offsets)
    ]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.stack(wanted), rtol=1e-12)


def test_bag_means_are_summed_in_float64():
    """In float32 the mean of a large bag would be off in the fifth digit, and select by noise."""
    n = 300_000
    confidence = np.full((n, 2), 0.1, np.float32)
    found = bag_means(confidence, np.array([0, n]))
    np.testing.assert_allclose(found, [[np.float64(np.float32(0.1))] * 2], rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_proportion_error_is_the_mean_total_variation(seed):
    offsets, confidence, given_ = random_bags(seed)
    soft = np.stack([confidence[a:b].mean(axis=0) for a, b in itertools.pairwise(offsets)])
    # Total variation as its other definition: the most that any set of classes differs by.
    sets = [list(s) for r in range(5) for s in itertools.combinations(range(4), r)]
    worst = [max(p[s].sum() - q[s].sum() for s in sets) for p, q in zip(given_, soft, strict=True)]
    found = proportion_error(given_, soft)
    assert isinstance(found, float)
    assert found == pytest.approx(np.mean(worst), rel=1e-6)


def test_proportion_error_runs_from_zero_to_one():
    pure = np.eye(3)
    assert proportion_error(pure, pure) == 0
    assert proportion_error(pure, np.roll(pure, 1, axis=1)) == 1


def test_every_bag_counts_the_same_whatever_its_size():
    offsets = np.array([0, 1, 100])
    confidence = np.array([[0.0, 1.0]] + [[1.0, 0.0]] * 99)
    given_ = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert proportion_error(given_, bag_means(confidence, offsets)) == 0.5


# --------------------------------------------------------------------------------------- accuracy


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=50))
def test_accuracy_counts_matches(pairs):
    ours, theirs = (np.array(side) for side in zip(*pairs, strict=True))
    found = accuracy(ours, theirs)
    assert found == pytest.approx(sum(a == b for a, b in pairs) / len(pairs), rel=1e-12)


def test_accuracy_keeps_the_digits_of_many_labels():
    labels = np.zeros(2**24 + 3, np.int64)  # more than float32 can count to
    others = labels.copy()
    others[:5] = 1
    assert accuracy(labels, others) == 1 - 5 / len(labels)


def test_tensors_are_measured_as_arrays_are():
    """What training has on a device is not copied to the host first."""
    _, confidence, given_ = random_bags(0)
    ours, theirs = confidence.argmax(axis=1), confidence[::-1].argmax(axis=1).copy()
    found = accuracy(torch.from_numpy(ours), torch.from_numpy(theirs))
    assert found == accuracy(ours, theirs)
    tensors = torch.from_numpy(given_), torch.from_numpy(confidence[: len(given_)])
    assert proportion_error(*tensors) == pytest.approx(proportion_error(given_, tensors[1].numpy()))


def test_total_variation_is_of_each_bag():
    given_ = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    predicted = np.array([[0.0, 0.5, 0.5], [0.5, 0.5, 0.0], [0.3, 0.3, 0.4]])
    np.testing.assert_allclose(total_variation(given_, predicted), [1.0, 0.0, 0.1], atol=1e-12)


# ---------------------------------------------------------------------------------- uncertainty


def interval(*given):
    found = bootstrap(*given)
    assert found is not None
    return found


def test_the_interval_of_a_mean_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        low, high = interval(rng.normal(0.3, 0.1, size=40))
        covered += low <= 0.3 <= high
    assert 0.88 <= covered / 200 <= 0.99


@pytest.mark.parametrize("n", [60, 1001])
def test_an_interval_is_about_two_standard_errors_to_either_side(n):
    values = np.random.default_rng(1).gamma(2.0, size=n)
    low, high = interval(values)
    error = values.std(ddof=1) / n**0.5
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.25 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.25 * error)
    assert bootstrap(values) == (low, high)


@pytest.mark.parametrize("n", [100, 1500])
def test_a_share_of_instances_has_the_spread_of_the_bags(n):
    """Bags of one kind each: there are as many independent numbers as bags, not as instances."""
    rng = np.random.default_rng(2)
    sizes = rng.integers(5, 50, size=n)
    right = sizes * (rng.random(n) < 0.7)
    low, high = interval(right, sizes)
    share = right.sum() / sizes.sum()
    assert low < share < high
    alone = 2 * 1.96 * (share * (1 - share) / sizes.sum()) ** 0.5
    assert high - low > 3 * alone


def test_few_bags_and_numbers_that_are_none_have_no_interval():
    assert bootstrap(np.zeros(4)) is None
    assert bootstrap(np.array([0.1] * 9 + [np.nan])) is None
    assert bootstrap(np.zeros(9), np.zeros(9)) is None


def test_chance_is_what_draws_differ_by():
    rng = np.random.default_rng(3)
    p, n = np.array([0.2, 0.3, 0.5]), 80
    drawn = rng.multinomial(n, p, size=20_000) / n
    mean = total_variation(drawn, p).mean()
    assert chance_variation(p[None], np.array([n]))[0] == pytest.approx(mean, rel=0.02)


@pytest.mark.parametrize("slope", [0.0, -0.002])
def test_the_luck_of_the_least_is_how_far_it_lies_below_the_course_of_the_errors(slope):
    rng, missed = np.random.default_rng(0), []
    course = 0.5 + slope * np.arange(80)
    for _ in range(200):
        errors = course + 0.02 * rng.standard_normal(80)
        least = errors.argmin()
        missed.append(luck_of_least(errors) - (course[least] - errors[least]))
    assert abs(np.mean(missed)) < 0.01


def test_the_luck_of_the_least_knows_only_the_epochs_around_it():
    rng = np.random.default_rng(0)
    calm = np.concatenate([0.3 + 0.1 * rng.random(25), 0.1 + 0.002 * rng.random(13), [0.2, 0.25]])
    assert luck_of_least(calm) < 0.002
    assert luck_of_least(np.tile([0.05, 0.2], 20)) < 0.15
