"""What held-out bags tell, against the formulas written out and against a search over a grid."""

import itertools
import math

import numpy as np
import pytest

from apportion.auto.held_out import Expectation, expectation, slope
from apportion.bags.bags import Bags

FOLDS = np.array([0, 1, 0, 1, 1])


def example(seed, n_classes):
    """Bags of several sizes, and confidences that know a part of their proportions."""
    rng = np.random.default_rng(seed)
    sizes, p = rng.integers(2, 7, 5), rng.dirichlet(np.ones(n_classes), 5)
    bags = Bags.from_rows(None, np.repeat(np.arange(5), sizes), p)
    held_out = 0.5 * np.repeat(bags.proportions, bags.sizes, axis=0)
    held_out += 0.5 * rng.dirichlet(np.ones(n_classes), len(held_out))
    return bags, held_out


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_skill_is_that_of_the_formula(seed, n_classes):
    bags, held_out = example(seed, n_classes)
    ours: list[float] = []
    theirs: list[float] = []
    for i in range(5):
        first, end = bags.offsets[i : i + 2]
        mine = [held_out[first:end, c].sum() / (end - first) for c in range(n_classes)]
        others = [j for j in range(5) if FOLDS[j] != FOLDS[i]]
        total = sum(bags.sizes[j] for j in others)
        base = [sum(bags.sizes[j] * bags.proportions[j, c] for j in others) / total
                for c in range(n_classes)]  # fmt: skip
        for losses, q in ((ours, mine), (theirs, base)):
            terms = [p * math.log(p / r) for p, r in zip(bags.proportions[i], q, strict=True)]
            losses.append(bags.sizes[i] * sum(terms))
    saved = np.subtract(theirs, ours)
    found = expectation(bags, held_out, FOLDS)
    assert found.skill == pytest.approx(1 - sum(ours) / sum(theirs), rel=1e-9)
    spread = math.sqrt(sum((saved - saved.mean()) ** 2) / 4)
    assert found.standard_errors == pytest.approx(saved.mean() / (spread / math.sqrt(5)), rel=1e-9)


def test_perfect_predictions_have_skill_1_and_those_of_the_others_none():
    bags, _ = example(0, 2)
    perfect = np.repeat(bags.proportions, bags.sizes, axis=0)
    assert expectation(bags, perfect, FOLDS).skill == pytest.approx(1)
    others = np.empty_like(bags.proportions)
    for fold in (0, 1):
        rest = fold != FOLDS
        others[~rest] = np.average(bags.proportions[rest], axis=0, weights=bags.sizes[rest])
    found = expectation(bags, np.repeat(others, bags.sizes, axis=0), FOLDS)
    assert found.skill == pytest.approx(0, abs=1e-12)
    assert not found.learned


def test_bags_of_one_class_and_confidences_of_0_are_finite():
    bags = Bags.from_rows(None, [0, 0, 1, 1], [[1.0, 0.0], [0.0, 1.0]])
    wrong = np.array([[0.0, 1.0]] * 2 + [[1.0, 0.0]] * 2)
    found = expectation(bags, wrong, np.array([0, 1]))
    assert np.isfinite([found.skill, found.standard_errors]).all()
    assert not found.learned
    assert np.isfinite(slope(bags, wrong)).all()


def loss_of(bags, held_out, a, b):
    """The negative logarithm of the likelihood of the counts, and of a slope before bags are seen.

    A count is a sum of coins, about normal; 1/4 is added to its variance.
    """
    total = 0.5 * (math.log(a) / 0.5) ** 2
    for i in range(bags.n_bags):
        mean, variance = 0.0, 0.25
        for p in held_out[bags.offsets[i] : bags.offsets[i + 1]]:
            q = 1 / (1 + math.exp(-(a * math.log(p[1] / p[0]) + b)))
            mean, variance = mean + q, variance + q * (1 - q)
        k = bags.sizes[i] * bags.proportions[i, 1]
        total += (k - mean) ** 2 / (2 * variance) + 0.5 * math.log(variance)
    return total


@pytest.mark.parametrize("seed", range(3))
def test_no_other_slope_and_intercept_are_more_likely(seed):
    bags, held_out = example(seed, 2)
    a, b = slope(bags, held_out)
    grid = itertools.product(np.geomspace(0.05, 20, 60), np.linspace(-4, 4, 60))
    least, *best = min((loss_of(bags, held_out, *own), *own) for own in grid)
    assert loss_of(bags, held_out, a, b) <= least + 1e-6
    assert a == pytest.approx(best[0], rel=0.2)
    assert b == pytest.approx(best[1], abs=0.2)


def test_odds_that_are_too_flat_become_steeper_and_those_too_steep_flatter():
    rng = np.random.default_rng(0)
    odds = 3 * rng.normal(size=4000)
    y = (rng.random(4000) < 1 / (1 + np.exp(-odds))).astype(int)
    bags = Bags.from_rows(None, np.arange(4000) // 5, truth=y)
    for factor in (0.4, 2.5):
        p = 1 / (1 + np.exp(-(factor * odds - 1)))
        a, b = slope(bags, np.stack([1 - p, p], axis=1))
        assert (a > 1.5) if factor < 1 else (a < 0.7)
        assert b == pytest.approx(a, rel=0.3)  # the 1 that was taken away


@pytest.mark.parametrize("record", [{}, {"skill": 0.5}, {"skill": 0.5, "standard_errors": None},
                                    {"skill": None, "standard_errors": 3.0}])  # fmt: skip
def test_a_record_that_does_not_say_all_says_nothing(record):
    assert Expectation.of_record(record) is None


def test_what_to_expect_is_read_back_from_a_record_and_said():
    found = Expectation(0.25, 3.0)
    assert Expectation.of_record({"epoch": 9, **vars(found)}) == found
    assert "25% less squared error" in str(found)
    assert "(0.9 standard errors): perhaps nothing can be learned" in str(Expectation(0.3, 0.9))
    assert Expectation(0.0, 1.0).learned
