"""First labels: those of a leader before its first decision.

They are random, or the most likely ones of a linear model of the bags' own rows, or the caller's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.bags.bags import Bags
from apportion.bags.counts import count_labels
from apportion.errors import BagError
from apportion.labels.assign import likeliest_labels
from apportion.labels.linear import LINEAR_FITS
from apportion.randomness import Purpose, generator

__all__ = ["checked_labels", "first_labels", "linear_confidence", "random_labels"]

Ints = NDArray[np.int64]


def first_labels(first: Any, bags: Bags, seed: int, first_position: int = 0) -> Ints:
    """Return the first labels (N,): "random", a name of `LINEAR_FITS`, or the caller's, checked.

    Examples
    --------
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0], [1.0], [2.0]])
    >>> bags = Bags.from_rows(x, list("aabbcc"), {"a": [1, 0], "b": [0, 1], "c": [0.5, 0.5]})
    >>> first_labels("linear", bags, seed=0)
    array([0, 0, 1, 1, 0, 1])
    """
    if not isinstance(first, str):
        return checked_labels(first, bags, "the first labels")
    if first in LINEAR_FITS:
        return likeliest_labels(linear_confidence(first, bags, seed), bags)
    return random_labels(bags, seed, first_position)


def linear_confidence(name: str, bags: Bags, seed: int) -> NDArray[Any]:
    """Return the confidences (N, C) of a linear model that is fitted to the rows of bags."""
    return LINEAR_FITS[name](bags, seed=seed).confidence(bags.x, bags.index)


def random_labels(bags: Bags, seed: int, first_position: int = 0) -> Ints:
    """Return a random permutation of each bag's counts, as labels (N,).

    They are random whatever η is: an assignment at costs of 0 would follow the order of the rows,
    and so leak the truth where rows are stored by class. Where `bags` are only some, their
    instances begin at `first_position` among all.

    Examples
    --------
    >>> bags = Bags.from_rows(None, ["a"] * 4 + ["b"] * 2, {"a": [2, 2], "b": [0, 2]}, counts=True)
    >>> random_labels(bags, seed=0)
    array([1, 0, 0, 1, 1, 1])
    """
    classes = np.tile(np.arange(bags.n_classes), bags.n_bags)
    ordered = np.repeat(classes, bags.counts.ravel())
    numbers = generator(seed, Purpose.FIRST_LABELS, 0, position=first_position)
    keys = numbers.random(bags.n_instances)
    return ordered[np.lexsort((keys, np.repeat(np.arange(bags.n_bags), bags.sizes)))]


def checked_labels(labels: ArrayLike, bags: Bags, what: str) -> Ints:
    """Return labels (N,) as a new array of int64, if they meet every bag's counts.

    Raises
    ------
    BagError
        If they do not: it says what they are, in the words of `what`, and the first bag that
        has other counts.
    """
    given = np.asarray(labels)
    n, c = bags.n_instances, bags.n_classes
    if given.shape != (n,) or given.dtype.kind not in "iu":
        raise BagError(
            f"{what} are of shape {given.shape} and {given.dtype}.",
            f"Pass one integer for each of the {n:,} instances.",
        )
    if given.min() < 0 or given.max() >= c:
        raise BagError(
            f"{what} run from {given.min()} to {given.max()}.",
            f"They are positions in the {c} classes, and must lie between 0 and {c - 1}.",
        )
    checked = given.astype(np.int64)
    found = count_labels(checked, bags.sizes, c)
    wrong = (found != bags.counts).any(axis=1)
    if wrong.any():
        i = int(wrong.argmax())
        k = int((found[i] != bags.counts[i]).argmax())
        raise BagError(
            f"{what} give bag {bags.ids[i]!r} {found[i, k]} of class {bags.classes[k]!r}, but its "
            f"count is {bags.counts[i, k]}.",
            "They must meet the counts of every bag: `assign` returns such labels.",
        )
    return checked
