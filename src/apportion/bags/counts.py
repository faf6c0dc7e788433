"""Whole counts of every bag's classes: from proportions, and from labels."""

import numpy as np
from numpy.typing import ArrayLike

from apportion.bags.checks import Floats, Ints, check_unmasked
from apportion.bags.rounding import rescaled
from apportion.errors import BagError

__all__ = ["count_labels", "counts_from_proportions", "largest_remainder"]


def counts_from_proportions(proportions: ArrayLike, sizes: ArrayLike) -> Ints:
    """Turn class proportions into whole counts by the largest remainder.

    The quota of a class is the size times its proportion, which is divided by its row's sum first
    (that must be 1, but for the rounding of its digits). Every class gets the whole part of its
    quota, and what is left goes to the largest fractional parts, so that each row of counts sums to
    its size and no count is a whole instance away from its quota: a class of proportion zero gets
    none. Fractional parts tie if they differ by no more than floating point does (0.93 and 0.07 of
    50 are 46.5 and 3.5000000000000004), and of tied classes those of lower index come first.

    Parameters
    ----------
    proportions : array_like of shape (n, C), or (C,) for one bag
        Read to 2**-60; from there on the arithmetic is exact.
    sizes : array_like of int of shape (n,), or one int
        At most 2**53 each.

    Returns
    -------
    ndarray of int64, in the shape of `proportions`

    Examples
    --------
    >>> counts_from_proportions([0.5, 0.3, 0.2], 7)
    array([4, 2, 1])
    >>> counts_from_proportions([[0.93, 0.07], [0.29, 0.71]], [50, 100])
    array([[47,  3],
           [29, 71]])
    """
    check_unmasked("the array of proportions", proportions)
    check_unmasked("the array of sizes", sizes)
    given, size = np.asarray(proportions, dtype=np.float64), np.asarray(sizes)
    if given.ndim not in (1, 2) or size.shape not in ((), given.shape[:-1]):
        raise BagError(
            f"proportions of shape {given.shape} do not go with sizes of shape {size.shape}.",
            "Pass one row of proportions and one size per bag: shapes (n, C) and (n,).",
        )
    p = np.atleast_2d(given)
    size = np.broadcast_to(size, len(p))
    bad = (size < 0) | (size > 2**53) | (size != np.floor(size))
    if bad.any():
        raise BagError(
            f"bag {bad.argmax()} has a size of {size[bad.argmax()]}.",
            "Sizes are numbers of instances: they must be integers from 0 to 2**53.",
        )
    size = size.astype(np.int64)
    p = rescaled(p, size, range(len(p)), range(p.shape[1]))
    counts: Ints = largest_remainder(p, size).reshape(given.shape)
    return counts


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
    # A class that gets one more has a fraction over 1 / C, any other one of at most
    # 1 - 1 / C: while a tie is this narrow, any winner stays within one instance of its quota.
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
    """Count the classes of each bag, from the labels of its instances, bag after bag.

    Unknown labels, which are negative, are not counted.
    """
    cell = np.repeat(np.arange(len(sizes)) * n_classes, sizes) + labels
    if labels.min(initial=0) < 0:
        cell = cell[labels >= 0]
    return np.bincount(cell, minlength=len(sizes) * n_classes).reshape(-1, n_classes)
