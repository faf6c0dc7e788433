r"""What is measured: proportion error and accuracy, how sure they are, and how bags differ.

The *proportion error* selects models, so it needs no labels of instances: for every bag the total
variation between its given proportions and the mean confidence of its instances,

.. math:: \tfrac12 \sum_c | p^i_c - \tfrac1{|B^i|} \sum_j \mathrm{conf}(x^i_j, c) |,

averaged over the bags. It lies between 0 and 1: the share of a bag that is wrong.

Proportion error and accuracy take numpy's arrays, and tensors as well, which stay where they are.

Bags, not instances, are what is drawn independently: how sure a mean over bags is follows from
drawing as many bags again, with replacement (the bootstrap).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.bags.bags import Bags

__all__ = [
    "accuracy",
    "bag_means",
    "bootstrap",
    "chance_variation",
    "luck_of_least",
    "overdispersion",
    "prevalence",
    "proportion_error",
    "total_variation",
]

FEWEST_BAGS = 5  # whose draws say anything
MOST_DRAWN = 1000  # bags: of more, means are normally distributed
DRAWS = 2000
WITHIN_95 = 1.959964  # standard deviations


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


def bootstrap(
    values: NDArray[Any], weights: NDArray[Any] | None = None
) -> tuple[float, float] | None:
    """Return the 95% interval of the mean of one value per bag, over bags drawn again.

    Parameters
    ----------
    values : array (n,)
        One value per bag.
    weights : array (n,), optional
        For a share of instances: values are how many of each bag have it, weights how many there
        are.

    Returns
    -------
    tuple or None
        None of fewer than 5 bags. Equal values give equal intervals: draws are the same every time.

    Examples
    --------
    >>> low, high = bootstrap(np.array([0.1, 0.2, 0.3, 0.2, 0.1, 0.3]))
    >>> round(low, 2), round(high, 2)
    (0.13, 0.27)
    >>> bootstrap(np.array([0.1, 0.2])) is None
    True
    """
    n = len(values)
    value = np.asarray(values, np.float64)
    weight = np.ones(n) if weights is None else np.asarray(weights, np.float64)
    if n < FEWEST_BAGS or not np.isfinite(value).all() or not weight.sum() > 0:
        return None
    if n > MOST_DRAWN:
        mean = value.sum() / weight.sum()
        error = np.sqrt(n * np.var(value - mean * weight, ddof=1)) / weight.sum()
        return float(mean - WITHIN_95 * error), float(mean + WITHIN_95 * error)
    drawn = np.random.default_rng(0).integers(n, size=(DRAWS, n))
    totals = weight[drawn].sum(axis=1)
    means = value[drawn].sum(axis=1)[totals > 0] / totals[totals > 0]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def chance_variation(proportions: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the total variation (n,) of bags that are drawn at random with these proportions.

    It is what bags of such sizes differ from their right probabilities by chance alone.

    Examples
    --------
    >>> chance_variation(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([100, 100])).round(3)
    array([0.04, 0.  ])
    """
    spread = np.clip(proportions * (1 - proportions), 0, None) / np.asarray(sizes)[:, None]
    expected: NDArray[np.float64] = np.sqrt(2 / np.pi * spread).sum(axis=1) / 2
    return expected


def overdispersion(sizes: NDArray[Any], proportions: NDArray[Any]) -> float:
    """Return by how much more proportions differ than those of bags filled at random.

    Examples
    --------
    >>> overdispersion(np.full(4, 10), np.full((4, 2), 0.5))
    0.0
    >>> round(overdispersion(np.full(4, 10), np.array([[1, 0], [0, 1]] * 2)), 2)
    13.33
    """
    n, p = np.asarray(sizes)[:, None], proportions
    q = (n * p).sum(axis=0) / n.sum()
    occurs = (q > 0) & (q < 1)
    if not occurs.any() or len(p) < 2:
        return 0.0
    chance = q[occurs] * (1 - q[occurs])
    terms = n * (p[:, occurs] - q[occurs]) ** 2 / chance
    return float(terms.sum() / (len(p) - 1) / occurs.sum())


def luck_of_least(errors: ArrayLike) -> float:
    """Estimate by how much the least of many errors is so by luck alone.

    It is how far the least lies below the median of the errors around it: of as many epochs as an
    eighth of all on either side. Of fewer than eight epochs nothing can be said.

    Examples
    --------
    >>> round(luck_of_least([0.3, 0.25, 0.22, 0.2, 0.15, 0.2, 0.22, 0.2, 0.2]), 3)
    0.05
    >>> luck_of_least([0.3, 0.2, 0.1])
    0.0
    """
    errors = np.asarray(errors, np.float64)
    least, wide = int(errors.argmin()), len(errors) // 8
    around = errors[max(least - wide, 0) : least + wide + 1]
    return float(np.median(around) - errors[least])
