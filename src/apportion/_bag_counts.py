"""Whole counts of every bag's classes: from proportions, and from labels."""

import numpy as np

from apportion._bag_checks import Floats, Ints


def largest_remainder(p: Floats, sizes: Ints) -> Ints:
    """Apportion `sizes` by rows of proportions that are known to be valid."""
    size, n_classes = sizes[:, None], p.shape[1]
    share = np.rint(np.ldexp(p, 60)).astype(np.int64)
    whole = share.sum(axis=1, keepdims=True)
    counts: Ints = np.floor(size * (share / whole)).astype(np.int64)
    # The floor is off by a few at most, so the true difference below is under 2**63: the products
    # may wrap around 2**64, but their difference is exact, and so is the division it corrects.
    remainder = size * share - counts * whole
    counts += remainder // whole
    fraction = (remainder % whole) / whole
    # Whoever gets one more has a fraction over 1 / C, whoever does not has one of 1 - 1 / C at
    # most: while a tie is this narrow, any winner of it keeps within one instance of its quota.
    tie = np.minimum(size * 2.0**-50, 0.25 / n_classes**2)
    order = np.argsort(-fraction, axis=1, kind="stable")
    drops = -np.diff(np.take_along_axis(fraction, order, axis=1)) > tie
    tier = np.zeros_like(counts)
    np.put_along_axis(tier, order[:, 1:], np.cumsum(drops, axis=1), axis=1)
    winners = np.argsort(tier, axis=1, kind="stable")
    left = size - counts.sum(axis=1, keepdims=True)
    one_more = np.zeros_like(counts)
    np.put_along_axis(one_more, winners, np.arange(n_classes) < left, axis=1)
    counts += one_more
    return counts


def count_labels(labels: Ints, sizes: Ints, n_classes: int) -> Ints:
    """Count the classes of each bag, from the labels of its instances, bag after bag."""
    cell = np.repeat(np.arange(len(sizes)) * n_classes, sizes) + labels
    return np.bincount(cell, minlength=len(sizes) * n_classes).reshape(-1, n_classes)
