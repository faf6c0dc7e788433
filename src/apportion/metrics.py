r"""What is measured: proportion error and accuracy.

The *proportion error* selects models, so it needs no labels of instances: for every bag the total
variation between its given proportions and the mean confidence of its instances,

.. math:: \tfrac12 \sum_c | p^i_c - \tfrac1{|B^i|} \sum_j \mathrm{conf}(x^i_j, c) |,

averaged over the bags. It lies between 0 and 1: the share of a bag that is wrong.

Proportion error and accuracy take numpy's arrays, and tensors as well, which stay where they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.bags.bags import Bags

__all__ = ["accuracy", "bag_means", "prevalence", "proportion_error", "total_variation"]


def bag_means(confidence: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Average the rows of each bag: the soft proportions, in float64.

    Examples
    --------
    >>> bag_means(np.array([[1.0, 0.0], [0.5, 0.5], [0.2, 0.8]]), np.array([0, 2, 3]))
    array([[0.75, 0.25],
           [0.2 , 0.8 ]])
    """
    sums = np.add.reduceat(confidence, offsets[:-1], axis=0, dtype=np.float64)
    means: NDArray[np.float64] = sums / np.diff(offsets)[:, None]
    return means


def prevalence(bags: Bags) -> NDArray[np.float64]:
    """Return the share of each class among all instances, by the proportions as given.

    Examples
    --------
    >>> prevalence(Bags.from_rows(None, ["a", "b", "b", "b"], {"a": [1, 0], "b": [1 / 3, 2 / 3]}))
    array([0.5, 0.5])
    """
    share: NDArray[np.float64] = bags.sizes @ bags.proportions / bags.n_instances
    return share


def total_variation(given: Any, predicted: Any) -> Any:
    """Compute the share of each bag that is wrong, of given and predicted proportions (n, C).

    Examples
    --------
    >>> total_variation(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.5, 0.5], [0.75, 0.25]]))
    array([0.  , 0.25])
    """
    return abs(given - predicted).sum(1) / 2


def proportion_error(given: Any, predicted: Any) -> float:
    """Average over the bags the total variation of given and predicted proportions (n, C).

    Examples
    --------
    >>> given = np.array([[0.5, 0.5], [1.0, 0.0]])
    >>> round(proportion_error(given, np.array([[0.5, 0.5], [0.6, 0.4]])), 6)
    0.2
    """
    return float(total_variation(given, predicted).mean())


def accuracy(labels: Any, truth: Any) -> float:
    """Return the share of labels (N,) that equal the truth, where it is known: not negative.

    Examples
    --------
    >>> accuracy(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2]))
    0.75
    >>> accuracy(np.array([0, 1, 1, 2]), np.array([0, -1, 2, -1]))
    0.5
    """
    return int((labels == truth).sum()) / int((truth >= 0).sum())
