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
O(N C²). Of more than 100,000 / C instances, whole bags with about so many choose l2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from apportion.bags.bags import Bags
from apportion.errors import must_be
from apportion.labels._losses import (
    LOSSES,
    Loss,
    cross_entropy,
    normalisers,
    softmax,
    squares,
)
from apportion.labels.rows import Design, RowEncoding
from apportion.randomness import Purpose, generator

__all__ = ["Linear", "fit_linear", "fit_mean_map", "fit_ridge"]

PENALTIES = (1000.0, 100.0, 10.0, 1.0)
DEFAULT_PENALTY = 10.0  # where a single bag leaves none to hold out
FOLDS = 3
MOST_TO_CHOOSE = 100_000  # instances times classes that choose l2
STEPS, STEPS_TO_CHOOSE = 300, 30  # of L-BFGS
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
        return _logits(self.encoding.design(x, rows), self._all()).T

    def confidence(self, x: Any, rows: Ints | None = None) -> Floats:
        """Return the class probabilities (M, C) of rows, or of some of them."""
        return softmax(_logits(self.encoding.design(x, rows), self._all())).T

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

    def fit(problem: _Problem, start: Floats, l2: float, steps: int) -> list[Floats]:
        fits = []
        for stage in stages:
            start = _minimise(problem, LOSSES[stage], start, l2, steps)
            fits.append(start)
        return [fits[0], fits[-1]]  # the next of the path starts from the cross-entropy's

    return _choose(loss, bags, fit, LOSSES[loss], l2, folds, seed)


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

    def fit(problem: _Problem, start: Floats, l2: float, steps: int) -> list[Floats]:
        found = _minimise(problem, normalisers, start, l2, steps, _class_sums(problem))
        return [found, found]

    return _choose("mean-map", bags, fit, cross_entropy, l2, folds, seed)


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

    def fit(problem: _Problem, start: Floats, l2: float, steps: int) -> list[Floats]:
        means = problem._replace(design=problem.design.means(problem.offsets))
        found = _minimise(means, squares, start, l2, steps)
        return [found, _calibrated(problem, found)]

    return _choose("ridge", bags, fit, cross_entropy, l2, folds, seed)


# ----------------------------------------------------------------------------------- the machinery


class _Problem(NamedTuple):
    """Rows in bags with counts, which need not be whole."""

    design: Design
    counts: Floats  # (n, C)
    offsets: Ints

    def start(self) -> Floats:
        """Return no weights, and biases that fit the proportions of all bags together."""
        start = np.zeros((self.design.width + 1, self.counts.shape[1]))
        shares = self.counts.sum(axis=0) / self.counts.sum()
        start[-1] = np.log(np.maximum(shares, 1e-6))
        start -= start.mean(axis=1, keepdims=True)
        return start


Fit = Callable[[_Problem, Floats, float, int], list[Floats]]  # where to go on, and the fit


def _choose(
    kind: str,
    bags: Bags,
    fit: Fit,
    held_out_loss: Loss,
    l2: float | None,
    folds: int,
    seed: int,
) -> Linear:
    """Choose l2 by whole bags that are held out, and fit with it to all bags."""
    if l2 is not None and not (l2 >= 0 and np.isfinite(l2)):
        raise must_be("l2", "a number ≥ 0, or None to choose it", l2)
    if folds < 2:
        raise must_be("folds", "an integer ≥ 2", folds)
    encoding = RowEncoding.learn(bags)
    losses: dict[float, float] = {}
    if l2 is None and bags.n_bags > 1:
        losses = _held_out(bags, encoding, fit, held_out_loss, folds, seed)
    best = min(losses, key=losses.__getitem__, default=DEFAULT_PENALTY) if l2 is None else l2
    problem = _problem(bags, encoding)
    onwards = [problem.start()]
    for penalty in [p for p in PENALTIES if p > best and losses] + [best]:
        steps = STEPS if penalty == best else STEPS_TO_CHOOSE
        onwards = fit(problem, onwards[0], penalty, steps)
    found = onwards[-1]
    found -= found.mean(axis=1, keepdims=True)  # which no confidence depends on
    return Linear(kind, encoding, found[:-1], found[-1], float(best), losses)


def _held_out(
    bags: Bags, encoding: RowEncoding, fit: Fit, loss: Loss, folds: int, seed: int
) -> dict[float, float]:
    """Compute the loss per held-out bag for every penalty, strong to weak."""
    order = generator(seed, Purpose.FOLDS, 0).permutation(bags.n_bags)
    most = MOST_TO_CHOOSE // bags.n_classes
    enough = int(np.searchsorted(np.cumsum(bags.sizes[order]), most)) + 1
    order = order[: max(enough, min(folds, len(order)))]
    losses = dict.fromkeys(PENALTIES, 0.0)
    folds = min(folds, len(order))
    for fold in range(folds):
        held = np.arange(len(order)) % folds == fold
        train, test = (_problem(bags[np.sort(order[some])], encoding) for some in (~held, held))
        onwards = train.start()
        for penalty in PENALTIES:
            onwards, found = fit(train, onwards, penalty, STEPS_TO_CHOOSE)
            values, _ = loss(_logits(test.design, found), test.counts, test.offsets)
            losses[penalty] += float(values.sum()) / len(order)
    return losses


def _problem(bags: Bags, encoding: RowEncoding) -> _Problem:
    counts = bags.proportions * bags.sizes[:, None]
    return _Problem(encoding.design(bags.x, bags.index), counts, bags.offsets)


def _logits(design: Design, weights: Floats) -> Floats:
    logits: Floats = design.times(weights[:-1]) + weights[-1][:, None]
    return logits


def _minimise(
    problem: _Problem,
    loss: Loss,
    start: Floats,
    l2: float,
    steps: int,
    linear: Floats | None = None,
) -> Floats:
    """Minimise a loss of logits, the penalty, and minus a linear term in the weights."""

    def value_and_slope(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(start.shape)
        values, slope = loss(_logits(problem.design, weights), problem.counts, problem.offsets)
        total = float(values.sum()) + l2 / 2 * float((weights[:-1] ** 2).sum())
        gradient = np.concatenate([problem.design.sums(slope), slope.sum(axis=1)[None]])
        gradient[:-1] += l2 * weights[:-1]
        if linear is not None:
            total -= float((linear * weights).sum())
            gradient -= linear
        return total, gradient.ravel()

    options: Any = {"maxiter": steps, "maxfun": 2 * steps}
    flat: Any = start.ravel()
    found = minimize(value_and_slope, flat, jac=True, method="L-BFGS-B", options=options)
    solution: Floats = found.x.reshape(start.shape)
    return solution


def _class_sums(problem: _Problem) -> Floats:
    """Estimate the sum of every class's rows (D + 1, C); the last entry is how many there are."""
    design, counts, offsets = problem
    sizes = np.diff(offsets)
    shares, totals = counts / sizes[:, None], counts.sum(axis=0)
    mean = design.sums(np.ones((1, len(design)))) / len(design)  # (D, 1)
    gram = shares.T @ counts + PRIOR * np.eye(len(totals))
    # Least squares of centred bag means on proportions, each bag as often as it has rows:
    centred = design.sums(np.repeat(shares.T, sizes, axis=1)) - mean * totals
    means = mean + np.linalg.solve(gram, centred.T).T
    return np.concatenate([means * totals, totals[None]])


def _calibrated(problem: _Problem, ridge: Floats) -> Floats:
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
