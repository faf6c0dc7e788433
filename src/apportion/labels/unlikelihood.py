r"""How unlikely labels are, and what those that were played have cost: Eqs. 2, 8, 3 and 4.

After epoch t a learner says how confident it is of each class c of each instance j, and so how
unlikely each label is (Eq. 2),

.. math::
    L_{jc}[t] = \begin{cases}
        1 - \mathrm{conf}(x_j, c) & \text{if } c \text{ was } x_j\text{'s label in epoch } t \\
        \max_b \mathrm{conf}(x_j, b) - \mathrm{conf}(x_j, c) & \text{otherwise;}
    \end{cases}

in its plain form (Eq. 8), :math:`1 - \mathrm{conf}(x_j, c)` for all c; or as the logarithm,
:math:`-\log \mathrm{conf}(x_j, c)`, at most 12, so that a sum is one of independent evidence.

The *regret* (Eqs. 3–4) of the labels played in epochs 1 to t is what they cost above the best fixed
labels in hindsight, which are one more assignment, of the summed unlikelihoods:

.. math:: R_t = \sum_{\tau \le t} \sum_j L_{j Y_j[\tau]}[\tau]
          - \min_Y \sum_{\tau \le t} \sum_j L_{j Y_j}[\tau].

All of them are a few passes over (N, C) numbers, and the regret one assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.labels.assign import assign
from apportion.labels.start import DEAREST

__all__ = ["GREATEST", "LARGEST", "UNLIKELIHOODS", "Regret", "Unlikelihood", "log_unlikelihood",
           "places", "plain_unlikelihood", "regret", "unlikelihood"]  # fmt: skip

LARGEST = 1.001  # that a probability may be, for the rounding of narrow floats
SHORT = 32  # classes; over so few numbers per row numpy reduces column by column faster

Floats = NDArray[Any]
Ints = NDArray[np.int64]
Unlikelihood = Literal["relative", "plain", "log"]


def unlikelihood(confidence: Floats, labels: Ints) -> Floats:
    """Compute Eq. 2: how unlikely each class is as the label of each instance, in [0, 1].

    Examples
    --------
    >>> unlikelihood(np.array([[0.7, 0.2, 0.1]]), np.array([1])).round(6)
    array([[0. , 0.8, 0.6]])
    """
    cost: Floats = np.subtract(_row_maxima(confidence)[:, None], confidence, order="C")
    own = places(labels, cost)
    cost.reshape(-1)[own] = 1 - confidence.take(own)
    return cost


def plain_unlikelihood(confidence: Floats, labels: Ints) -> Floats:  # noqa: ARG001
    """Compute Eq. 8: the plain form, whatever the labels are.

    Examples
    --------
    >>> plain_unlikelihood(np.array([[0.7, 0.2, 0.1]]), np.array([1])).round(6)
    array([[0.3, 0.8, 0.9]])
    """
    cost: Floats = 1 - confidence
    return cost


def log_unlikelihood(confidence: Floats, labels: Ints | None = None) -> Floats:  # noqa: ARG001
    """Compute −log conf of each class, at most 12, whatever the labels are.

    Examples
    --------
    >>> log_unlikelihood(np.array([[1.0, 0.5, 0.0]]), np.array([1])).round(6)
    array([[ 0.      ,  0.693147, 12.      ]])
    """
    cost: Floats = np.maximum(confidence, np.exp(-DEAREST).astype(confidence.dtype))
    np.log(cost, out=cost)
    np.negative(cost, out=cost)
    return np.maximum(cost, 0, out=cost)  # confidences may be rounded to above 1


UNLIKELIHOODS: dict[str, Callable[[Floats, Ints], Floats]] = {
    "relative": unlikelihood,
    "plain": plain_unlikelihood,
    "log": log_unlikelihood,
}
GREATEST = {"relative": LARGEST, "plain": LARGEST, "log": DEAREST}  # that one of them may be


def places(labels: Ints, matrix: Floats) -> Ints:
    """Return the place of each row's label in a flat (n, C) matrix: faster than two indices."""
    return np.arange(0, matrix.size, matrix.shape[1]) + labels


def _row_maxima(values: Floats) -> Floats:
    if values.shape[1] > SHORT:
        return np.asarray(values.max(axis=1))
    best = values[:, 0].copy()
    for column in values.T[1:]:
        np.maximum(best, column, out=best)
    return best


class Regret(NamedTuple):
    """The regret per instance and epoch, and the prices of the best labels in hindsight."""

    value: float
    prices: NDArray[np.float64]


def regret(
    played: float,
    total: Floats,
    counts: Ints,
    offsets: Ints,
    *,
    epochs: float,
    prices: NDArray[np.float64] | None = None,
    threads: int | None = None,
) -> Regret:
    """Compute the regret of played labels over some epochs (Eq. 4), per instance and epoch.

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
