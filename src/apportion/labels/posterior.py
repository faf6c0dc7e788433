r"""What the counts of a bag say of its instances: class probabilities given the counts.

If the confidences :math:`p` are right and the classes of instances independent, those of a bag are,
once its counts :math:`K` are known, distributed as

.. math:: P(Y \mid K) \propto \prod_j p_{j Y_j} \quad\text{where Y has } K_c \text{ labels of each
          class } c,

and the probability of class c for instance j is the sum over all such Y with :math:`Y_j = c`. The
sums are found by going through the instances forwards and backwards: F[j, s] is the probability
that the first j have the counts s, G[j, s] that the others turn s into K, and

.. math:: P(Y_j = c \mid K) \propto p_{jc} \sum_s F[j, s]\, G[j + 1, s + e_c].

The counts of all classes but the largest are enough for s, so that a bag of n takes about
:math:`n \prod_c (K_c + 1)` numbers. Where these are too many, the soft labels of
`apportion.labels.soft` stand in for it: they have the same form, :math:`q_{jc} \propto p_{jc}
e^{u_c}`, and meet the counts as well, and the two differ by about 1/n, which matters in small bags.

Nothing changes if the probabilities of a class are multiplied by a factor, since every Y has as
many of each class. So the sums are taken over soft labels instead of confidences: K is then
what is expected of them, and nothing underflows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.bags.bags import Bags
from apportion.labels.soft import soft_labels

__all__ = ["posterior"]

MOST = 2**22  # numbers of a bag, and of the bags that are computed at once

Floats = NDArray[Any]
Ints = NDArray[np.int64]


def posterior(confidence: Floats, bags: Bags, *, most: int = MOST) -> Floats:
    """Return the probability of every class for every instance, given the counts of its bag.

    Rows sum to 1, and the rows of a bag to its counts.

    Parameters
    ----------
    confidence : array of shape (N, C)
        Class probabilities of the instances, in the order of `Bags.index`.
    most : int
        How many numbers a bag may take; those that would take more get soft labels.

    Examples
    --------
    >>> bags = Bags.from_rows(None, ["a", "a"], {"a": [1, 1]}, counts=True)
    >>> posterior(np.array([[0.1, 0.9], [0.4, 0.6]]), bags).round(3)  # 0.9 · 0.4 against 0.1 · 0.6
    array([[0.143, 0.857],
           [0.857, 0.143]])
    """
    found = soft_labels(confidence, bags)
    for some in _batches(bags, most):
        sizes, order = bags.sizes[some], np.argsort(bags.counts[some], axis=1)
        # Bags are filled up with instances that are surely of the class that s leaves out.
        here = np.arange(sizes.max()) < sizes[:, None]
        padded = np.zeros((*here.shape, bags.n_classes))
        padded[..., -1] = 1
        places = bags.positions(some)
        bag = np.repeat(np.arange(len(some)), sizes)
        padded[here] = np.take_along_axis(found[places], order[bag], axis=1)
        counts = np.take_along_axis(bags.counts[some], order, axis=1)[:, :-1]
        given = _given_counts(padded, counts)[here]
        total = given.sum(axis=1, keepdims=True)
        sure = total[:, 0] > 0
        values = np.empty_like(given)
        np.put_along_axis(values, order[bag], given / np.where(total > 0, total, 1), axis=1)
        found[places[sure]] = values[sure]
    return found


def _batches(bags: Bags, most: int) -> Iterator[Ints]:
    """Yield the bags that are not too large, of about one size each time."""
    states = np.sort(bags.counts, axis=1)[:, :-1].astype(np.float64) + 1
    work = states.prod(axis=1) * (bags.sizes + 1)
    few = np.flatnonzero((work <= most) & (bags.sizes > 1))
    few = few[np.lexsort((work[few], bags.sizes[few]))]
    if not len(few):
        return
    # What a batch takes is the largest number of each count, which is not known before: cut where
    # twice the work is, or where a bag takes twice as much as the first.
    cuts, begun, widest = [0], 0, states[few[0]]
    for place, bag in enumerate(few):
        wider = np.maximum(widest, states[bag])
        n, size = place - begun + 1, bags.sizes[bag] + 1
        if n > 1 and (
            n * wider.prod() * size > most or wider.prod() * size > 4 * max(work[few[begun]], 64)
        ):
            cuts.append(place)
            begun, wider = place, states[bag]
        widest = wider
    for first, end in pairwise([*cuts, len(few)]):
        yield few[first:end]


def _given_counts(p: Floats, counts: Ints) -> Floats:
    """Sum over labels with given counts of all but the last class, for bags (B, n, C) of one size.

    Return numbers (B, n, C) that are proportional to probabilities, by one factor per bag.
    """
    n_bags, n, n_classes = p.shape
    shape = (n_bags, *(counts.max(axis=0) + 1))
    wide = (n_bags,) + (1,) * (n_classes - 1)
    axes = range(1, n_classes)

    def one_more(s: Floats, axis: int) -> tuple[Floats, Floats]:
        """Return the states that can have one more of a class, and the states that these become."""
        cut: list[Any] = [slice(None)] * s.ndim
        low, high = cut.copy(), cut.copy()
        low[axis], high[axis] = slice(None, -1), slice(1, None)
        return s[tuple(low)], s[tuple(high)]

    forwards = np.zeros((n, *shape))
    forwards[0].reshape(n_bags, -1)[:, 0] = 1
    for j in range(n - 1):
        before, after = forwards[j], forwards[j + 1]
        after += before * p[:, j, -1].reshape(wide)
        for c, axis in enumerate(axes):
            own = one_more(before, axis)[0] * p[:, j, c].reshape(wide)
            one_more(after, axis)[1][...] += own
    later = np.zeros(shape)
    later[(np.arange(n_bags), *counts.T)] = 1
    found = np.empty_like(p)
    inner = tuple(axes)
    for j in reversed(range(n)):
        found[:, j, -1] = p[:, j, -1] * (forwards[j] * later).sum(axis=inner)
        earlier = later * p[:, j, -1].reshape(wide)
        for c, axis in enumerate(axes):
            low, high = one_more(forwards[j], axis)[0], one_more(later, axis)[1]
            found[:, j, c] = p[:, j, c] * (low * high).sum(axis=inner)
            one_more(earlier, axis)[0][...] += high * p[:, j, c].reshape(wide)
        later = earlier
    return found
