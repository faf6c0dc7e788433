"""Evaluation of a model on a set of bags, from the confidences of their instances."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.bags.bags import Bags
from apportion.metrics import bag_means
from apportion.runs.evaluation import BINS, Evaluation, Unsure, plain_names

__all__ = ["evaluate"]

Floats = NDArray[Any]
Ints = NDArray[np.int64]

PIECE = 2**18  # instances that are compared with their truth at a time
MOST_UNSURE = 24  # instances that are kept of each set


def evaluate(bags: Bags, confidence: NDArray[Any]) -> Evaluation:
    """Compare confidences (N, C), one row per instance, with what is known of the bags.

    The instances themselves are not needed.

    Examples
    --------
    >>> bags = Bags.from_rows([[0.0], [1.0], [2.0]], ["a", "a", "b"], truth=["no", "yes", "yes"])
    >>> evaluation = evaluate(bags, np.array([[0.9, 0.1], [0.4, 0.6], [0.55, 0.45]]))
    >>> evaluation.predicted
    array([[0.65, 0.35],
           [0.55, 0.45]])
    >>> evaluation.confusion
    array([[1, 0],
           [1, 1]])
    >>> evaluation.unsure.rows
    array([2, 1, 0])
    """
    likeliest = confidence.argmax(axis=1)
    top = np.take_along_axis(confidence, likeliest[:, None], axis=1)[:, 0]
    confusion = calibration = known = right = None
    if bags.truth is not None:
        told, hits = bags.truth >= 0, likeliest == bags.truth  # −1: its truth is not known
        confusion = np.zeros((bags.n_classes, bags.n_classes), np.int64)
        calibration = np.zeros((BINS, 3))
        for first in range(0, len(told), PIECE):
            some = np.flatnonzero(told[first : first + PIECE]) + first
            np.add.at(confusion, (bags.truth[some], likeliest[some]), 1)
            sure = top[some].astype(np.float64)
            bin_of = np.clip((sure * BINS).astype(np.int64), 0, BINS - 1)
            np.add.at(calibration, bin_of, np.stack([np.ones(len(sure)), sure, hits[some]], axis=1))
        known, right = (
            np.add.reduceat(own, bags.offsets[:-1], dtype=np.int64) for own in (told, told & hits)
        )
    return Evaluation(
        ids=plain_names(bags.ids),
        sizes=bags.sizes,
        given=bags.proportions,
        predicted=bag_means(confidence, bags.offsets),
        confusion=confusion,
        calibration=calibration,
        known=known,
        right=right,
        unsure=_least_sure(bags, confidence, top),
    )


def _least_sure(bags: Bags, confidence: NDArray[Any], top: NDArray[Any]) -> Unsure:
    second = np.partition(confidence, -2, axis=1)[:, -2] if bags.n_classes > 1 else top
    at = _least_of_rows(top - second, bags.index)
    return Unsure(
        rows=bags.index[at],
        bags=np.searchsorted(bags.offsets, at, side="right") - 1,
        confidence=confidence[at].astype(np.float64),
        truth=None if bags.truth is None else bags.truth[at],
    )


def _least_of_rows(values: Floats, rows: Ints) -> Ints:
    """Return the places of the least value of each row, for the rows with the least of all."""
    n, most = len(values), MOST_UNSURE
    while True:
        most = min(4 * most, n)  # a sort of all values would take several times their memory
        near = np.arange(n)
        if most < n:
            near = np.flatnonzero(values <= np.partition(values, most)[most])
        order = near[np.argsort(values[near], kind="stable")]
        _, first = np.unique(rows[order], return_index=True)  # a row may stand in several bags
        if len(first) >= MOST_UNSURE or most == n:
            return order[np.sort(first)[:MOST_UNSURE]]
