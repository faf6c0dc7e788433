r"""Soft labels that meet every bag's counts: the confidences closest to given ones.

Of a bag's confidences :math:`p` and counts :math:`K`, its soft labels are

.. math:: \min_q \sum_{jc} q_{jc} \log \frac{q_{jc}}{p_{jc}} \quad\text{with}\quad
          \sum_c q_{jc} = 1, \qquad \sum_j q_{jc} = K_c,

which Sinkhorn's scaling solves: :math:`q_{jc} \propto p_{jc} e^{u_c}`, each row divided by its sum.
Scaling rows and columns in turn takes thousands of rounds where confidences are sure, so the prices
:math:`u` of all bags are found by Newton's method instead, on the dual

.. math:: \min_u \sum_j \log \sum_c p_{jc} e^{u_c} - \sum_c K_c u_c,

which is convex; its slope is by how much the sums miss the counts, its curvature their covariance.
Each bag has a radius that no step exceeds, doubled where the step helped and quartered where not.
A round costs O(N C²); five to ten are usual, and 20 the most in 3,000 random problems.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.bags.bags import Bags
from apportion.errors import DataError, must_be
from apportion.labels._losses import bag_sums, covariances

__all__ = ["soft_labels"]

LEAST = 1e-9  # that a confidence counts as, so that every class can be had
ROUNDS = 100  # at most
WIDEST = 8.0  # step of a price
FLAT = 1e-9  # share of a bag's size that is added to a curvature
PIECE = 2**22  # numbers of covariances or confidences at a time

Floats = NDArray[Any]
Ints = NDArray[np.int64]


def soft_labels(confidence: Floats, bags: Bags, *, tolerance: float = 1e-6) -> Floats:
    """Return the confidences (N, C) closest to given ones whose sums are the counts of bags.

    Parameters
    ----------
    confidence : array of shape (N, C)
        Class probabilities of the instances, in the order of `Bags.index`. Those below 1e-9 count
        as 1e-9, and rows need not sum to 1.
    tolerance : float
        By how much a bag's sum may miss its count, as a share of the bag.

    Examples
    --------
    >>> bags = Bags.from_rows(None, ["a"] * 3, {"a": [2, 1]}, counts=True)
    >>> soft_labels(np.array([[0.2, 0.8], [0.4, 0.6], [0.3, 0.7]]), bags).round(3)
    array([[0.553, 0.447],
           [0.767, 0.233],
           [0.68 , 0.32 ]])
    >>> soft_labels(np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), bags).round(3) + 0
    array([[0.5, 0.5],
           [0.5, 0.5],
           [1. , 0. ]])
    """
    given = np.asarray(confidence)
    wanted = bags.n_instances, bags.n_classes
    if given.shape != wanted or given.dtype.kind != "f":
        found = f"{given.dtype} of shape {given.shape}"
        raise must_be("confidence", f"floats of shape {wanted}", found)
    if not (np.isfinite(given).all() and given.min() >= 0):
        bad = int((~(np.isfinite(given) & (given >= 0)).all(axis=1)).argmax())
        raise DataError(
            f"the confidences of instance {bad:,} are {given[bad].tolist()}.",
            "Pass probabilities, not logits, from a learner that has not diverged.",
        )
    matched = np.empty(wanted)
    for first, last in _pieces(bags):
        start, stop = bags.offsets[first], bags.offsets[last]
        offsets = bags.offsets[first : last + 1] - start
        logs = np.log(np.maximum(given[start:stop].T.astype(np.float64), LEAST))
        matched[start:stop] = _matched(logs, bags.counts[first:last], offsets, tolerance).T
    return matched


def _pieces(bags: Bags) -> Any:
    """Cut the bags where each piece has about so many numbers to compute with."""
    work = np.cumsum(bags.n_classes * (bags.sizes + bags.n_classes)) // PIECE
    return pairwise([0, *(np.flatnonzero(np.diff(work)) + 1).tolist(), bags.n_bags])


def _matched(logs: Floats, counts: Ints, offsets: Ints, tolerance: float) -> Floats:
    sizes, classes = np.diff(offsets), len(logs)
    absent = counts == 0
    spread_absent = np.repeat(absent.T, sizes, axis=1)
    logs = np.where(spread_absent, -np.inf, logs)
    prices, radius = np.zeros(counts.shape), np.full(len(sizes), WIDEST)

    def evaluate(prices: Floats) -> tuple[Floats, Floats, Floats]:
        """Return soft labels, the dual values, and by how much sums fall short of counts."""
        q = logs + np.repeat(prices.T, sizes, axis=1)
        highest = q.max(axis=0)
        q -= highest
        np.exp(q, out=q)
        sums = q.sum(axis=0)
        q /= sums
        values = bag_sums(highest + np.log(sums), offsets) - (counts * prices).sum(axis=1)
        return q, values, counts - bag_sums(q, offsets).T

    q, values, short = evaluate(prices)
    for _ in range(ROUNDS):
        missed = np.abs(short).max(axis=1)
        if (missed <= tolerance * sizes).all():
            break
        # Prices may all be raised by as much, and those of absent classes by anything: the
        # curvature along these is set to 1.
        curvature = covariances(q, offsets) + 1 / classes
        places = np.arange(classes)
        curvature[:, places, places] += np.where(absent, 1.0, (FLAT * sizes)[:, None])
        step = np.linalg.solve(curvature, short[:, :, None])[:, :, 0]
        step -= step.mean(axis=1, keepdims=True)
        length = np.abs(step).max(axis=1)
        step *= np.minimum(1, radius / np.maximum(length, 1e-300))[:, None]
        tried, new_values, new_short = evaluate(prices + step)
        rounding = 1e-12 * (sizes + np.abs(values))
        better = new_values <= values + rounding
        better &= (new_values < values - rounding) | (np.abs(new_short).max(axis=1) < missed)
        radius = np.where(better, np.minimum(2 * radius, WIDEST), np.minimum(radius, length) / 4)
        prices = np.where(better[:, None], prices + step, prices)
        chosen = np.repeat(better, sizes)
        q = np.where(chosen, tried, q)
        values = np.where(better, new_values, values)
        short = np.where(better[:, None], new_short, short)
    return q
