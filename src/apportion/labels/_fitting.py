"""Fits of linear models to bags: L-BFGS along a path of penalties, and which of them to take.

Of more than 100,000 / C instances, whole bags with about so many choose the penalty, and are where
the fit of all starts. A part of a bag would not do: its counts are not known. Where one bag per
fold has over four times as many, nothing is chosen: the penalty is then 10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from apportion.bags.bags import Bags
from apportion.errors import must_be
from apportion.labels._losses import Loss
from apportion.labels.rows import Design, RowEncoding
from apportion.randomness import Purpose, generator

PENALTIES = (1000.0, 100.0, 10.0, 1.0)
DEFAULT_PENALTY = 10.0  # where no bag can be held out
FOLDS = 3
MOST_TO_CHOOSE = 100_000  # instances times classes that choose l2
STEPS, STEPS_TO_CHOOSE = 300, 30  # of L-BFGS
MOST_WORK = 3e8  # instances times classes times steps, for the last fit

Floats = NDArray[Any]
Ints = NDArray[np.int64]


class Problem(NamedTuple):
    """Rows in bags with counts, which need not be whole."""

    design: Design
    counts: Floats  # (n, C)
    offsets: Ints

    def only(self, bags: Ints) -> Problem:
        """Return the problem of some bags, in their order."""
        sizes = np.diff(self.offsets)[bags]
        ends = np.cumsum(sizes)
        rows = np.arange(sizes.sum()) + np.repeat(self.offsets[bags] - (ends - sizes), sizes)
        return Problem(self.design[rows], self.counts[bags], np.concatenate([[0], ends]))

    def start(self) -> Floats:
        """Return no weights, and biases that fit the proportions of all bags together."""
        start = np.zeros((self.design.width + 1, self.counts.shape[1]))
        shares = self.counts.sum(axis=0) / self.counts.sum()
        start[-1] = np.log(np.maximum(shares, 1e-6))
        start -= start.mean(axis=1, keepdims=True)
        return start


Fit = Callable[[Problem, Floats, float, int], list[Floats]]  # where to go on, and the fit


class Chosen(NamedTuple):
    """A fit to all bags, and how its penalty was chosen."""

    encoding: RowEncoding
    weights: Floats  # (D + 1, C): the last row is the bias
    l2: float
    held_out: dict[float, float]  # the loss per held-out bag, by penalty


def choose(
    bags: Bags, fit: Fit, held_out_loss: Loss, *, l2: float | None, folds: int, seed: int
) -> Chosen:
    """Choose l2 by whole bags that are held out, unless it is given, and fit to all bags."""
    if l2 is not None and not (l2 >= 0 and np.isfinite(l2)):
        raise must_be("l2", "a number ≥ 0, or None to choose it", l2)
    if folds < 2:
        raise must_be("folds", "an integer ≥ 2", folds)
    encoding = RowEncoding.learn(bags)
    problem = problem_of(bags, encoding)
    some = _sample(problem, folds, seed)
    losses = _held_out(some, fit, held_out_loss, folds) if l2 is None and some else {}
    best = min(losses, key=losses.__getitem__, default=DEFAULT_PENALTY) if l2 is None else l2
    onwards = [problem.start()]
    if some:
        for penalty in [p for p in PENALTIES if p > best and losses] + [best]:
            onwards = fit(some, onwards[0], penalty, STEPS_TO_CHOOSE)
    steps = int(np.clip(MOST_WORK / (bags.n_instances * bags.n_classes), STEPS_TO_CHOOSE, STEPS))
    found = fit(problem, onwards[0], best, steps)[-1]
    found -= found.mean(axis=1, keepdims=True)  # which no confidence depends on
    return Chosen(encoding, found, float(best), losses)


def _sample(problem: Problem, folds: int, seed: int) -> Problem | None:
    """Draw bags, at least one per fold; return None if they are too large for that."""
    order = generator(seed, Purpose.FOLDS, 0).permutation(len(problem.counts))
    most = MOST_TO_CHOOSE // problem.counts.shape[1]
    sizes = np.cumsum(np.diff(problem.offsets)[order])
    n = min(max(int(np.searchsorted(sizes, most)) + 1, folds), len(order))
    return problem.only(order[:n]) if sizes[n - 1] <= 4 * most else None


def _held_out(problem: Problem, fit: Fit, loss: Loss, folds: int) -> dict[float, float]:
    """Compute the loss per held-out bag for every penalty, strong to weak; of one bag, none."""
    n = len(problem.counts)
    folds = min(folds, n)
    losses = dict.fromkeys(PENALTIES if n > 1 else (), 0.0)
    for fold in range(folds if n > 1 else 0):
        held = np.arange(n) % folds == fold
        train, test = (problem.only(np.flatnonzero(some)) for some in (~held, held))
        onwards = train.start()
        for penalty in PENALTIES:
            onwards, found = fit(train, onwards, penalty, STEPS_TO_CHOOSE)
            values, _ = loss(logits_of(test.design, found), test.counts, test.offsets)
            losses[penalty] += float(values.sum()) / n
    return losses


def problem_of(bags: Bags, encoding: RowEncoding) -> Problem:
    counts = bags.proportions * bags.sizes[:, None]
    return Problem(encoding.design(bags.x, bags.index), counts, bags.offsets)


def logits_of(design: Design, weights: Floats) -> Floats:
    logits: Floats = design.times(weights[:-1]) + weights[-1][:, None]
    return logits


def minimise(
    problem: Problem,
    loss: Loss,
    start: Floats,
    l2: float,
    steps: int,
    linear: Floats | None = None,
) -> Floats:
    """Minimise a loss of logits, the penalty, and minus a linear term in the weights."""

    def value_and_slope(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(start.shape)
        values, slope = loss(logits_of(problem.design, weights), problem.counts, problem.offsets)
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
