r"""What is measured: proportion error, accuracy, label changes and regret.

The *proportion error* selects models, so it needs no labels of instances: for every bag the total
variation between its given proportions and the mean confidence of its instances,

.. math:: \tfrac12 \sum_c | p^i_c - \tfrac1{|B^i|} \sum_j \mathrm{conf}(x^i_j, c) |,

averaged over the bags. It runs from 0 to 1: the share of a bag that is wrong.

The *regret* (Eqs. 3–4) of the labels played in epochs 1 to t is what they cost above the best fixed
labels in hindsight, which are one more assignment, of the summed unlikelihoods.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apportion.labels.assign import assign

__all__ = ["Regret", "bag_means", "proportion_error", "regret", "share_equal"]


def bag_means(confidence: Tensor, offsets: Tensor) -> Tensor:
    """Average the rows of each bag: the soft proportions, in float64.

    Examples
    --------
    >>> bag_means(torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.2, 0.8]]), torch.tensor([0, 2, 3]))
    tensor([[0.7500, 0.2500],
            [0.2000, 0.8000]], dtype=torch.float64)
    """
    # The package's stubs know no keyword arguments of this function.
    means: Tensor = torch.segment_reduce(confidence.double(), "mean", offsets=offsets)
    return means


def proportion_error(given: Tensor, predicted: Tensor) -> float:
    """Average over the bags the total variation of given and predicted proportions.

    Examples
    --------
    >>> given = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    >>> round(proportion_error(given, torch.tensor([[0.5, 0.5], [0.6, 0.4]])), 6)
    0.2
    """
    return float((given - predicted).abs().sum(dim=1).mean() / 2)


def share_equal(labels: Tensor, others: Tensor) -> float:
    """Give the share of labels that equal others: the accuracy, if these are the truth."""
    return float((labels == others).double().mean())


class Regret(NamedTuple):
    """The regret per instance and epoch, and the prices of the best labels in hindsight."""

    value: float
    prices: NDArray[np.float64]


def regret(
    played: float,
    total: NDArray[Any],
    counts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    *,
    epochs: int,
    prices: NDArray[np.float64] | None = None,
    threads: int | None = None,
) -> Regret:
    """Measure the regret of played labels over some epochs (Eq. 4), per instance and epoch.

    Parameters
    ----------
    played : float
        What the labels played cost in all, each epoch by that epoch's unlikelihood.
    total : array of shape (N, C)
        The unlikelihood of every label of every instance, summed over the epochs.
    prices : array, optional
        Those of the epoch before, as a start.

    Examples
    --------
    Labels 0, 1 were played twice and cost 0.2 + 0.6; labels 1, 0 would have cost 0.5:

    >>> total = np.array([[0.6, 0.3], [0.2, 0.2]])
    >>> round(regret(0.8, total, np.array([[1, 1]]), np.array([0, 2]), epochs=2).value, 6)
    0.075
    """
    best = assign(total, counts, offsets, prices=prices, threads=threads)
    return Regret((played - float(best.objective.sum())) / (len(total) * epochs), best.prices)
