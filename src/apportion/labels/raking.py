r"""Raking: what the counts of all bags say of rows that stand in several of them.

A row has one class, whatever bag it is looked at in, and the counts of each of its bags tell of it.
Of the confidences :math:`p` of rows r, and the counts :math:`K` of bags i, raking finds

.. math:: \min_q \sum_{rc} q_{rc} \log \frac{q_{rc}}{p_{rc}} \quad\text{with}\quad
          \sum_c q_{rc} = 1, \qquad \sum_{r \in i} q_{rc} = K_{ic} \text{ for every bag } i,

whose solution multiplies each confidence by a factor per bag of the row and class,
:math:`q_{rc} \propto p_{rc} \exp(\sum_{i \ni r} u_{ic})`. So three bags that have twice as many of
a class as others make it eight times as likely for a row that stands in all three, where labels
that are decided bag by bag, and then averaged, know of a factor of two. Where each row stands in
one bag, q are the soft labels of `apportion.labels.soft`.

The prices :math:`u` minimise the convex dual

.. math:: \sum_r \log \sum_c p_{rc} e^{\sum_{i \ni r} u_{ic}} - \sum_{ic} K_{ic} u_{ic}
          + \frac{\lambda}{2} \sum_{ic} u_{ic}^2,

where λ, the variance of the error of a count, keeps them finite if the counts of several bags
contradict each other, as rounded ones do. Otherwise counts are taken at their word.
Ten rounds of L-BFGS bring sums near enough to the counts; `assign` then meets them exactly.
A round is a pass over the (M, C) numbers of all rows, and two over the N instances.

Reference: W. E. Deming, F. F. Stephan, "On a Least Squares Adjustment of a Sampled Frequency Table
When the Expected Marginal Totals are Known", Annals of Mathematical Statistics 11, 1940.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from apportion.bags.bags import Bags

__all__ = ["Raking"]

ROUNDS = 10  # of L-BFGS
RIDGE = 1 / 12  # λ: the variance of what rounding adds to a count
LEAST = -25.0  # logit, below the greatest of a row: what is surer decides no more
NEVER = -50.0  # price of a class that a bag has none of: finite, as another bag may insist on it

Floats = NDArray[Any]
Ints = NDArray[np.int64]


class Raking:
    """The rows of bags that overlap, and the counts of all of these bags.

    Attributes
    ----------
    rows : array of shape (M,)
        The distinct rows, as in `Bags.index`.
    place : array of shape (N,)
        Which of them each instance is.

    Examples
    --------
    Row 1 stands in both bags. Each has one instance of class 1 in two, and nothing else is known:

    >>> bags = Bags.from_members(None, [[0, 1], [1, 2]], {0: [1, 1], 1: [1, 1]}, counts=True)
    >>> raking = Raking(bags)
    >>> logits = raking.logits(np.log([[0.9, 0.1], [0.5, 0.5], [0.9, 0.1]]))
    >>> logits.argmax(axis=1)
    array([0, 1, 0])
    """

    def __init__(self, bags: Bags) -> None:
        self.rows, self.place = np.unique(bags.index, return_inverse=True)
        self.counts = bags.counts.astype(np.float64)
        shape = bags.n_bags, len(self.rows)
        ones = np.ones(len(self.place))
        self._sums: Any = sparse.csr_array(
            (ones, self.place.copy(), bags.offsets.copy()), shape=shape
        )
        self._sums.sum_duplicates()  # a bag may hold a row twice; it sorts in place
        self._spread: Any = self._sums.T.tocsr()
        shares = 1 / np.bincount(self.place)[self.place]
        of_rows = self.place, np.arange(len(self.place))
        self._average: Any = sparse.csr_array((shares, of_rows))
        bags_of_row = np.bincount(self.place)[:, None].astype(np.float64)
        self._others = np.maximum(2.0, (self._sums @ bags_of_row) / bags.sizes[:, None])
        self._barred = NEVER * (self._spread @ (bags.counts == 0).astype(np.float64))

    @staticmethod
    def concerns(bags: Bags) -> bool:
        """Tell whether a row stands in several bags."""
        return len(bags.distinct()) < bags.n_instances

    def means(self, values: Floats) -> Floats:
        """Return the mean (M, C) of what the instances (N, C) of each row have."""
        found: Floats = self._average @ values
        return found

    def logits(self, logits: Floats) -> Floats:
        """Return raked logits (M, C) of all rows: the greatest of each is 0.

        Parameters
        ----------
        logits : array of shape (M, C)
            Log-confidences, up to a constant per row.
        """
        start = logits - logits.max(axis=1, keepdims=True)
        start = np.maximum(start, LEAST) + self._barred

        def soft(prices: Floats) -> tuple[Floats, float]:
            q = start + self._spread @ prices
            highest = q.max(axis=1, keepdims=True)
            q -= highest
            np.exp(q, out=q)
            sums = q.sum(axis=1, keepdims=True)
            q /= sums
            return q, float((highest + np.log(sums)).sum())

        # In these units bags of all sizes are alike: prices times the root of their curvature.
        q, _ = soft(np.zeros_like(self.counts))
        expected = self._sums @ q
        unit = 1 / np.sqrt(RIDGE + self._sums @ (q - q * q))

        def dual(flat: Floats) -> tuple[float, Floats]:
            prices = unit * flat.reshape(unit.shape)
            q, value = soft(prices)
            value += RIDGE / 2 * float((prices**2).sum()) - float((self.counts * prices).sum())
            return value, (unit * (self._sums @ q - self.counts + RIDGE * prices)).ravel()

        first: Any = np.log((self.counts + 0.5) / (expected + 0.5)) / self._others / unit
        options: Any = {"maxiter": ROUNDS}
        found = minimize(dual, first.ravel(), jac=True, method="L-BFGS-B", options=options)
        prices = unit * found.x.reshape(unit.shape)
        raked: Floats = start + self._spread @ prices
        raked -= raked.max(axis=1, keepdims=True)
        return raked
