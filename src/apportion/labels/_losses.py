r"""Losses of bags as functions of logits, with their gradients.

Everything is class-major: logits and confidences are of shape (C, N), bag after bag, so that sums
over bags run over contiguous numbers. A loss returns one value per bag and the gradient of their
sum with respect to the logits.

Let :math:`\mu_b = \sum_j p_j` be the sum of a bag's confidences and :math:`K_b` its counts.

* *cross-entropy* (Eq. 7, weighted by the size of the bag):
  :math:`-\sum_c K_{bc} \log (\mu_{bc} / n_b)`
* *likelihood*: a bag's counts are a sum of independent draws, one per instance. By the normal
  approximation of the first C − 1 of them, with :math:`r = K_b - \mu_b` and
  :math:`S = \sum_j (\mathrm{diag}\, p_j - p_j p_j^T) + \tfrac14 I`,
  :math:`\tfrac12 r^T S^{-1} r + \tfrac12 \log \det S`. The ¼ is the variance that rounding to whole
  counts leaves, and keeps S regular where the model is sure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
Ints = NDArray[np.int64]
Loss = Callable[[Floats, Floats, Ints], tuple[Floats, Floats]]  # logits, counts (n, C), offsets

FLOOR = 1e-12  # of mean confidences
ROUNDING = 0.25


def softmax(logits: Floats) -> Floats:
    """Return the confidences of logits (C, N)."""
    p: Floats = np.exp(logits - logits.max(axis=0))
    p /= p.sum(axis=0)
    return p


def bag_sums(values: Floats, offsets: Ints) -> Floats:
    """Sum values (…, N) over bags of consecutive instances."""
    sums: Floats = np.add.reduceat(values, offsets[:-1], axis=-1)
    return sums


def covariances(p: Floats, offsets: Ints) -> Floats:
    """Return the covariance (n, C, C) of each bag's counts, given confidences (C, N)."""
    n, c = len(offsets) - 1, len(p)
    found = np.empty((n, c, c))
    for a in range(c):
        found[:, a, a] = bag_sums(p[a] - p[a] * p[a], offsets)
        for b in range(a):
            found[:, a, b] = found[:, b, a] = -bag_sums(p[a] * p[b], offsets)
    return found


def cross_entropy(logits: Floats, counts: Floats, offsets: Ints) -> tuple[Floats, Floats]:
    """Compute the cross-entropy of proportions and mean confidences, times the bag's size."""
    p, sizes = softmax(logits), np.diff(offsets)
    means = np.maximum(bag_sums(p, offsets) / sizes, FLOOR)
    values: Floats = -(counts.T * np.log(means)).sum(axis=0)
    slope = np.repeat(-counts.T / (sizes * means), sizes, axis=1)
    return values, _through_softmax(p, slope)


def likelihood(logits: Floats, counts: Floats, offsets: Ints) -> tuple[Floats, Floats]:
    """Compute the negative log-likelihood of counts, by the normal approximation."""
    p, sizes = softmax(logits), np.diff(offsets)
    q = p[:-1]  # the last class follows from the others
    residual = counts[:, :-1] - bag_sums(q, offsets).T
    covariance = covariances(q, offsets) + ROUNDING * np.eye(len(q))
    factor = np.linalg.cholesky(covariance)
    inverse = np.linalg.inv(covariance)
    u = np.einsum("nab,nb->na", inverse, residual)
    logs = np.log(np.einsum("naa->na", factor)).sum(axis=1)
    values: Floats = 0.5 * (u * residual).sum(axis=1) + logs
    # dS = diag(dp) − dp pᵀ − p dpᵀ, and the value's slope in S is half of this:
    m = inverse - u[:, :, None] * u[:, None, :]
    slope = np.zeros_like(p)
    for a in range(len(q)):
        slope[a] += np.repeat(0.5 * m[:, a, a] - u[:, a], sizes)
        for b in range(a + 1):
            spread = np.repeat(m[:, a, b], sizes)
            slope[a] -= spread * q[b]
            if b < a:
                slope[b] -= spread * q[a]
    return values, _through_softmax(p, slope)


def normalisers(logits: Floats, counts: Floats, offsets: Ints) -> tuple[Floats, Floats]:  # noqa: ARG001
    """Compute the logarithm of the softmax's denominators, summed over each bag."""
    highest = logits.max(axis=0)
    logs = highest + np.log(np.exp(logits - highest).sum(axis=0))
    return bag_sums(logs, offsets), softmax(logits)


def squares(scores: Floats, counts: Floats, offsets: Ints) -> tuple[Floats, Floats]:
    """Compute half the squared error of one score per bag and class, times the bag's size."""
    sizes = np.diff(offsets)
    error = scores - counts.T / sizes
    values: Floats = 0.5 * sizes * (error**2).sum(axis=0)
    return values, sizes * error


LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "likelihood": likelihood}


def _through_softmax(p: Floats, slope: Floats) -> Floats:
    slope -= (slope * p).sum(axis=0)
    slope *= p
    return slope
