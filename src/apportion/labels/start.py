"""First labels: those of a leader before its first decision."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.bags.bags import Bags
from apportion.bags.counts import count_labels
from apportion.errors import BagError
from apportion.randomness import Purpose, generator

__all__ = ["checked_labels", "random_labels"]

Ints = NDArray[np.int64]


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
