"""Linear models from proportions: losses and gradients against oracles, fits, and choices."""

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime
from sklearn.linear_model import LogisticRegression

from apportion.bags.bags import Bags
from apportion.errors import ConfigError
from apportion.labels import _fitting, _losses, linear
from apportion.labels.linear import fit_linear, fit_mean_map, fit_ridge
from tests.labels.tables import table_bags

FITS = {
    "likelihood": fit_linear,
    "cross-entropy": lambda bags, **options: fit_linear(bags, loss="cross-entropy", **options),
    "mean-map": fit_mean_map,
    "ridge": fit_ridge,
}
OFFSETS = np.array([0, 1, 4, 9])


def made(classes, seed=0):
    rng = np.random.default_rng(seed)
    counts = np.stack([rng.dirichlet(np.ones(classes)) * n for n in np.diff(OFFSETS)])
    return rng.normal(size=(classes, 9)), counts


# ------------------------------------------------------------------------------------------ losses


@pytest.mark.parametrize("classes", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["cross_entropy", "likelihood", "normalisers", "squares"])
def test_gradients_are_those_of_finite_differences(name, classes):
    loss: Any = getattr(_losses, name)
    logits, counts = made(classes)
    logits = logits[:, :3] if name == "squares" else logits  # one score per bag

    def total(flat):
        return loss(flat.reshape(logits.shape), counts, OFFSETS)[0].sum()

    _, slope = loss(logits, counts, OFFSETS)
    expected = approx_fprime(logits.ravel(), total, 1e-7).reshape(logits.shape)
    np.testing.assert_allclose(slope, expected, atol=2e-5)


def test_cross_entropy_is_equation_7_times_the_size():
    logits, counts = made(3)
    p = np.exp(logits) / np.exp(logits).sum(axis=0)
    values, _ = _losses.cross_entropy(logits, counts, OFFSETS)
    for i, (first, last) in enumerate(itertools.pairwise(OFFSETS)):
        n = last - first
        mean = p[:, first:last].mean(axis=1)
        assert values[i] == pytest.approx(-n * (counts[i] / n * np.log(mean)).sum())


def test_likelihood_is_the_normal_density_of_the_counts():
    logits, counts = made(4)
    p = (np.exp(logits) / np.exp(logits).sum(axis=0))[:-1]
    values, _ = _losses.likelihood(logits, counts, OFFSETS)
    for i, (first, last) in enumerate(itertools.pairwise(OFFSETS)):
        own = p[:, first:last]
        covariance = 0.25 * np.eye(3) + sum(np.diag(q) - np.outer(q, q) for q in own.T)
        density = stats.multivariate_normal(own.sum(axis=1), covariance).logpdf(counts[i, :-1])
        assert values[i] == pytest.approx(-density - 1.5 * np.log(2 * np.pi))


# -------------------------------------------------------------------------------------------- fits


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", FITS)
def test_fits_find_the_rule(name, classes):
    bags = table_bags(1500, 10, classes)
    found = FITS[name](bags)
    truth = bags.truth
    accuracy = (found.confidence(bags.x, bags.index).argmax(axis=1) == truth).mean()
    assert accuracy > {2: 0.88, 3: 0.8}[classes]
    assert found.kind == name
    assert found.l2 in found.held_out
    assert found.held_out[found.l2] == min(found.held_out.values())


@pytest.mark.parametrize("name", FITS)
def test_fits_are_the_same_every_time(name):
    bags = table_bags(200)
    first, again = (FITS[name](bags, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.weights, again.weights)


def test_minimum_is_stationary():
    bags = table_bags(400, classes=3)
    found = fit_linear(bags, loss="cross-entropy", l2=1.0)
    problem = _fitting.problem_of(bags, found.encoding)
    logits = found.logits(bags.x, bags.index).T
    _, slope = _losses.cross_entropy(logits, problem.counts, problem.offsets)
    np.testing.assert_allclose(slope.sum(axis=1), 0, atol=0.05)  # the bias is free
    np.testing.assert_allclose(problem.design.sums(slope) + found.weights, 0, atol=0.05)


def test_bags_of_one_instance_are_logistic_regression():
    """With them, every loss but the likelihood's is that of labels."""
    bags = table_bags(300, size=1, categories=False)
    theirs = LogisticRegression(C=0.5, tol=1e-8).fit(
        fit_ridge(bags, l2=1.0).encoding.design(bags.x, bags.index).numbers, bags.truth
    )
    found = fit_linear(bags, loss="cross-entropy", l2=4.0)  # both classes have weights: w, −w
    np.testing.assert_allclose(found.weights[:, 1] * 2, theirs.coef_[0], atol=2e-3)


def test_mean_map_of_pure_bags_is_logistic_regression():
    """Class means are then known, up to the prior."""
    bags = table_bags(4000, size=1, categories=False)
    design = fit_ridge(bags, l2=1.0).encoding.design(bags.x, bags.index).numbers
    theirs = LogisticRegression(C=1 / 2, tol=1e-8).fit(design, bags.truth)
    ours = fit_mean_map(bags, l2=4.0)
    np.testing.assert_allclose(ours.weights[:, 1] * 2, theirs.coef_[0], rtol=0.05, atol=0.05)


def test_class_means_follow_from_bags_of_unequal_size():
    """Where all rows of a class are alike, least squares has them, but for the prior."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 9000)
    bag = np.repeat(np.arange(200), rng.multinomial(8000, rng.dirichlet(np.ones(200))) + 5)
    bags = Bags.from_rows(np.eye(3)[truth] @ rng.normal(size=(3, 4)), bag, truth=truth)
    encoding = fit_ridge(bags, l2=1.0).encoding
    problem = _fitting.problem_of(bags, encoding)
    found = linear._class_sums(problem)
    rows = problem.design.numbers
    for c in range(3):
        own = truth[bags.index] == c
        np.testing.assert_allclose(found[:-1, c] / own.sum(), rows[own].mean(axis=0), atol=0.1)
        assert found[-1, c] == pytest.approx(own.sum())


def test_ridge_has_the_direction_of_least_squares_on_bag_means():
    bags = table_bags(800, categories=False)
    found = fit_ridge(bags, l2=2.0)
    means = found.encoding.design(bags.x, bags.index).means(bags.offsets).numbers
    A = np.column_stack([means, np.ones(len(means))])
    weight = np.diag(bags.sizes.astype(float))
    penalty = 2.0 * np.diag([1.0, 1.0, 1.0, 0.0])
    share = bags.counts[:, 1] / bags.sizes
    wanted = np.linalg.solve(A.T @ weight @ A + penalty, A.T @ weight @ share)[:-1]
    ratio = (found.weights[:, 1] - found.weights[:, 0]) / wanted
    np.testing.assert_allclose(ratio / ratio[0], 1, rtol=1e-3)
    assert ratio[0] > 0


def test_a_single_bag_has_none_to_hold_out():
    bags = table_bags(30, size=30)
    assert (fit_linear(bags).l2, fit_linear(bags).held_out) == (10.0, {})


def test_few_bags_and_absent_classes_stay_finite():
    bags = table_bags(60, size=20)
    table = np.array([[20, 0, 0], [0, 20, 0], [5, 15, 0]])
    bags = Bags.from_rows(bags.x, np.arange(60) // 20, table, counts=True)
    for fit in FITS.values():
        confidence = fit(bags).confidence(bags.x)
        assert np.isfinite(confidence).all()
        np.testing.assert_allclose(confidence.sum(axis=1), 1)


@pytest.mark.parametrize(("size", "bags_left"), [(10, 10), (60, 3), (200, None)])
def test_whole_bags_choose_if_they_are_not_too_large(monkeypatch, size, bags_left):
    """They have about 100 rows in all, 400 at most, and are one per fold at least."""
    bags = table_bags(600, size)
    problem = _fitting.problem_of(bags, fit_ridge(bags, l2=1.0).encoding)
    monkeypatch.setattr(_fitting, "MOST_TO_CHOOSE", 200)
    sample = _fitting._sample(problem, folds=3, seed=0)
    assert (None if sample is None else len(sample.counts)) == bags_left
    if sample is not None:
        np.testing.assert_allclose(sample.counts.sum(axis=1), np.diff(sample.offsets))
        assert {*map(tuple, sample.counts)} <= {*map(tuple, problem.counts)}
    found = fit_linear(bags)
    assert (found.l2, found.held_out) == (10.0, {}) or sample is not None
    whole = fit_linear(bags, l2=found.l2)
    np.testing.assert_allclose(found.weights, whole.weights, atol=0.05)


def test_thousands_of_categories_take_little_memory():
    """Dense 0/1 columns would take 20,000 × 9,000 numbers."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 9000, (20_000, 1))
    truth = (codes[:, 0] % 2 == 0).astype(int)
    bags = Bags.from_rows((np.zeros((20_000, 1)), codes), np.arange(20_000) // 4, truth=truth)
    tracemalloc.start()
    found = fit_linear(bags, loss="cross-entropy", l2=0.1)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100e6
    assert (found.confidence(bags.x).argmax(axis=1) == truth).mean() > 0.8


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"loss": "squares"}, "loss must be 'cross-entropy' or 'likelihood'; got 'squares'"),
        ({"l2": -1.0}, "l2 must be a number ≥ 0"),
        ({"folds": 1}, "folds must be an integer ≥ 2; got 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        fit_linear(table_bags(20), **options)


def test_representation_says_what_was_chosen():
    assert repr(fit_linear(table_bags(60), l2=3.0)) == "Linear(likelihood, 8 × 2, l2 3)"
