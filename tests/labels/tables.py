"""Bags of a table's rows whose classes follow a linear rule."""

import numpy as np

from apportion.bags.bags import Bags


def table_bags(n=600, size=10, classes=2, *, categories=True, seed=0):
    """Rows of three numbers and two columns of codes; the second number decides nothing."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(5.0, [1.0, 3.0, 0.1], (n, 3)).astype(np.float32)
    codes = np.stack([rng.integers(0, 4, n), rng.integers(0, 3, n)], axis=1).astype(np.int16)
    effects = rng.normal(size=(3, classes)) * [[2.0], [0.0], [1.0]]
    score = (numbers - 5) / [1.0, 3.0, 0.1] @ effects + rng.normal(size=(4, classes))[codes[:, 0]]
    truth = (score + 0.3 * rng.gumbel(size=score.shape)).argmax(axis=1)
    order = np.argsort(truth + 3 * rng.random(n))
    bag = np.empty(n, int)
    bag[order] = np.arange(n) // size
    x = (numbers, codes) if categories else numbers
    return Bags.from_rows(x, bag, truth=truth, classes=range(classes))
