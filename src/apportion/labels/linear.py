r"""Linear models from the proportions of bags: seconds, no network, the same answer every time.

All are softmax regressions on standardised numbers and 0/1 categories, fitted by L-BFGS with
analytic gradients, and penalised by :math:`\tfrac{\lambda}{2} |W|^2` (the bias is free). λ, `l2`,
is chosen by cross-validation over whole bags, along a path from strong to weak in which each fit
starts from the one before, unless it is given.

* `fit_linear` matches proportions: it minimises the cross-entropy of Eq. 7, weighted by the sizes
  of the bags, or, from there on, the negative log-likelihood of the counts.
* `fit_mean_map` estimates the mean row of every class by regularised least squares from bag means
  and proportions, and then maximises the likelihood of a logistic regression, which depends on the
  labels through these means alone (Quadrianto, Smola, Caetano, Le, "Estimating Labels from Label
  Proportions", JMLR 2009).
* `fit_ridge` regresses proportions on bag means, applies that to rows, and finds the scale and the
  biases that make logits of it.

A pass costs O(N (F + K) C) for F numbers, K categorical columns and C classes; the likelihood adds
O(N C²).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from apportion.bags.bags import Bags
from apportion.errors import must_be
from apportion.labels._fitting import FOLDS, Chosen, Problem, choose, logits_of, minimise
from apportion.labels._losses import (
    LOSSES,
    cross_entropy,
    normalisers,
    softmax,
    squares,
)
from apportion.labels.rows import RowEncoding

__all__ = ["LINEAR_FITS", "Linear", "class_means", "fit_linear", "fit_mean_map", "fit_ridge"]

PRIOR = 1.0  # of class means: bag means vary by 1 / size if rows have unit variance
STEEPEST = 1e3  # scale of a ridge regression's scores

Floats = NDArray[Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Linear:
    """A softmax regression on the rows of a table, and how it was chosen.

    Examples
    --------
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0], [1.0], [2.0]])
    >>> bags = Bags.from_rows(x, list("aabbcc"), {"a": [1, 0], "b": [0, 1], "c": [0.5, 0.5]})
    >>> linear = fit_linear(bags, loss="cross-entropy", l2=0.1)
    >>> linear.confidence(np.array([[0.0], [1.5], [3.0]])).round(2)
    array([[0.99, 0.01],
           [0.5 , 0.5 ],
           [0.01, 0.99]])
    """

    kind: str  # "cross-entropy", "likelihood", "mean-map" or "ridge"
    encoding: RowEncoding
    weights: Floats  # (D, C) of standardised numbers and 0/1 categories
    bias: Floats  # (C,)
    l2: float
    held_out: dict[float, float]  # the loss per held-out bag, by l2; empty where l2 was given

    def logits(self, x: Any, rows: Ints | None = None) -> Floats:
        """Return the logits (M, C) of rows as they come in `Bags.x`, or of some of them."""
        return logits_of(self.encoding.design(x, rows), self._all()).T

    def confidence(self, x: Any, rows: Ints | None = None) -> Floats:
        """Return the class probabilities (M, C) of rows, or of some of them."""
        return softmax(logits_of(self.encoding.design(x, rows), self._all())).T

    def _all(self) -> Floats:
        return np.concatenate([self.weights, self.bias[None]])

    def __repr__(self) -> str:
        tried = f" of {len(self.held_out)}" if self.held_out else ""
        return f"Linear({self.kind}, {len(self.weights)} × {len(self.bias)}, l2 {self.l2:g}{tried})"


def fit_linear(
    bags: Bags,
    *,
    loss: Literal["likelihood", "cross-entropy"] = "likelihood",
    l2: float | None = None,
    folds: int = FOLDS,
    seed: int = 0,
) -> Linear:
    """Fit a softmax regression whose mean confidences match the proportions of bags.

    Parameters
    ----------
    bags : Bags
        Rows of a table: numbers (M, F), or a tuple of numbers and codes (M, K).
    loss : "likelihood" or "cross-entropy"
        See the module. The likelihood starts from the fit of the cross-entropy.
    l2 : float, optional
        The penalty. By default cross-validation chooses it.
    folds : int
        How many folds of bags choose it; at most one per bag.
    seed : int
        Decides which bags are held out together.
    """
    if loss not in LOSSES:
        raise must_be("loss", " or ".join(map(repr, LOSSES)), loss)
    stages = ["cross-entropy"] if loss == "cross-entropy" else ["cross-entropy", loss]

    def fit(problem: Problem, start: Floats, l2: float, steps: int) -> list[Floats]:
        fits = []
        for stage in stages:
            start = minimise(problem, LOSSES[stage], start, l2, steps)
            fits.append(start)
        return [fits[0], fits[-1]]  # the next of the path starts from the cross-entropy's

    return _linear(loss, choose(bags, fit, LOSSES[loss], l2=l2, folds=folds, seed=seed))


def fit_mean_map(
    bags: Bags, *, l2: float | None = None, folds: int = FOLDS, seed: int = 0
) -> Linear:
    """Fit a logistic regression to class means that follow from bag means and proportions.

    The parameters are those of `fit_linear`.

    Examples
    --------
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0], [1.0], [2.0]])
    >>> bags = Bags.from_rows(x, list("aabbcc"), {"a": [1, 0], "b": [0, 1], "c": [0.5, 0.5]})
    >>> fit_mean_map(bags, l2=0.1).confidence(x).argmax(axis=1)
    array([0, 0, 1, 1, 0, 1])
    """

    def fit(problem: Problem, start: Floats, l2: float, steps: int) -> list[Floats]:
        found = minimise(problem, normalisers, start, l2, steps, _class_sums(problem))
        return [found, found]

    return _linear("mean-map", choose(bags, fit, cross_entropy, l2=l2, folds=folds, seed=seed))


def fit_ridge(bags: Bags, *, l2: float | None = None, folds: int = FOLDS, seed: int = 0) -> Linear:
    """Fit a ridge regression of proportions on bag means, and make logits of its scores.

    The parameters are those of `fit_linear`.

    Examples
    --------
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0], [1.0], [2.0]])
    >>> bags = Bags.from_rows(x, list("aabbcc"), {"a": [1, 0], "b": [0, 1], "c": [0.5, 0.5]})
    >>> fit_ridge(bags, l2=0.1).confidence(x).argmax(axis=1)
    array([0, 0, 1, 1, 0, 1])
    """

    def fit(problem: Problem, start: Floats, l2: float, steps: int) -> list[Floats]:
        means = problem._replace(design=problem.design.means(problem.offsets))
        found = minimise(means, squares, start, l2, steps)
        return [found, _calibrated(problem, found)]

    return _linear("ridge", choose(bags, fit, cross_entropy, l2=l2, folds=folds, seed=seed))


# As the estimator and the command line name them: methods that train no net.
LINEAR_FITS: dict[str, Callable[..., Linear]] = {
    "linear": fit_linear,
    "mean-map": fit_mean_map,
    "ridge": fit_ridge,
}


def _linear(kind: str, chosen: Chosen) -> Linear:
    encoding, weights, l2, held_out = chosen
    return Linear(kind, encoding, weights[:-1], weights[-1], l2, held_out)


def class_means(moments: Floats, mean: Floats, shares: Floats, sizes: Ints) -> Floats:
    r"""Estimate the mean row (D, C) of every class by regularised least squares from bags.

    With the mean rows :math:`m_i` of bags, the mean :math:`m` of all, sizes :math:`n_i` and shares
    :math:`p_i`, the means :math:`\mu_c` minimise

    .. math:: \sum_i n_i \Bigl| (m_i - m) - \sum_c p_{ic} (\mu_c - m) \Bigr|^2
              + \sum_c |\mu_c - m|^2.

    Parameters
    ----------
    moments : array of shape (D, C)
        The sums of bags, each times its shares, over all bags: :math:`\sum_i n_i m_i p_i^T`.
    mean : array of shape (D, 1)
        The mean of all rows.
    shares : array of shape (n, C)
        Those of the classes in each bag.
    sizes : array of shape (n,)
        How many rows each bag has.
    """
    counts = shares * sizes[:, None]
    gram = shares.T @ counts + PRIOR * np.eye(shares.shape[1])
    centred = moments - mean * counts.sum(axis=0)
    means: Floats = mean + np.linalg.solve(gram, centred.T).T
    return means


def _class_sums(problem: Problem) -> Floats:
    """Estimate the sum of every class's rows (D + 1, C); the last entry is how many there are."""
    design, counts, offsets = problem
    sizes = np.diff(offsets)
    shares, totals = counts / sizes[:, None], counts.sum(axis=0)
    mean = design.sums(np.ones((1, len(design)))) / len(design)  # (D, 1)
    moments = design.sums(np.repeat(shares.T, sizes, axis=1))
    return np.concatenate([class_means(moments, mean, shares, sizes) * totals, totals[None]])


def _calibrated(problem: Problem, ridge: Floats) -> Floats:
    """Scale scores, and add biases, such that mean confidences match the proportions."""
    scores = problem.design.times(ridge[:-1])

    def value_and_slope(flat: Floats) -> tuple[float, Floats]:
        logits = flat[0] * scores + flat[1:, None]
        values, slope = cross_entropy(logits, problem.counts, problem.offsets)
        gradient = np.concatenate([[(slope * scores).sum()], slope.sum(axis=1)])
        return float(values.sum()), gradient

    start = np.concatenate([[4.0], problem.start()[-1]])  # where the logistic function is a line
    bounds = [(0.0, STEEPEST)] + [(None, None)] * len(ridge[-1])
    found = minimize(
        value_and_slope, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 50}
    ).x
    return np.concatenate([found[0] * ridge[:-1], found[None, 1:]])
