"""Evaluation of a model on a set of bags, from the confidences of their instances."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apportion.bags.bags import Bags
from apportion.bags.sparse import is_sparse
from apportion.metrics import bag_means
from apportion.runs.evaluation import BINS, Evaluation, Ints, Unsure, plain_names

__all__ = ["evaluate"]

MOST_UNSURE = 24  # instances that are kept of each set


def evaluate(bags: Bags, confidence: NDArray[Any]) -> Evaluation:
    """Compare confidences (N, C), one row per instance, with what is known of the bags.

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
    confusion = calibration = None
    if bags.truth is not None:
        known = bags.truth >= 0
        cell = (bags.truth * bags.n_classes + likeliest)[known]
        counted = np.bincount(cell, minlength=bags.n_classes**2)
        confusion = counted.reshape(bags.n_classes, -1).astype(np.int64)
        bin_of = np.clip((top[known].astype(np.float64) * BINS).astype(np.int64), 0, BINS - 1)
        weights = (np.ones(len(bin_of)), top[known], (likeliest == bags.truth)[known])
        binned = [np.bincount(bin_of, w, BINS).astype(np.float64) for w in weights]
        calibration = np.stack(binned, axis=1)
    return Evaluation(
        ids=plain_names(bags.ids),
        sizes=bags.sizes,
        given=bags.proportions,
        predicted=bag_means(confidence, bags.offsets),
        confusion=confusion,
        calibration=calibration,
        unsure=_least_sure(bags, confidence, top),
    )


def _least_sure(bags: Bags, confidence: NDArray[Any], top: NDArray[Any]) -> Unsure:
    second = np.partition(confidence, -2, axis=1)[:, -2] if bags.n_classes > 1 else top
    order = np.argsort(top - second, kind="stable")
    _, first = np.unique(bags.index[order], return_index=True)  # a row may stand in several bags
    at = order[np.sort(first)[:MOST_UNSURE]]
    rows = bags.index[at]
    return Unsure(
        rows=rows,
        bags=np.searchsorted(bags.offsets, at, side="right") - 1,
        confidence=confidence[at].astype(np.float64),
        truth=None if bags.truth is None else bags.truth[at],
        x=tuple(_rows_of(part, rows) for part in bags.parts),
    )


def _rows_of(part: Any, rows: Ints) -> NDArray[Any]:
    if is_sparse(part):
        part, rows = part[rows].toarray(), np.arange(len(rows))
    if isinstance(part, Tensor):
        some = part[torch.from_numpy(rows).to(part.device)].cpu()
        return (some.float() if some.dtype == torch.bfloat16 else some).numpy()
    chosen: NDArray[Any] = np.array(part[rows])
    return chosen.astype(chosen.dtype.newbyteorder("="))  # safetensors has no other byte order
