"""Small tables for an average: a ring, which no linear model knows, in bags alike or differing."""

import numpy as np

from apportion.bags.bags import Bags


def ring(n, seed):
    """Rows whose class is whether they are far from the middle."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)).astype(np.float32)
    return x, ((x**2).sum(axis=1) > 1.4).astype(int)


def bags_of(x, y, size, *, differing, seed=0, **more):
    rng = np.random.default_rng(seed)
    order = np.argsort(y + (0.7 if differing else 1e9) * rng.normal(size=len(y)))
    ids = np.empty(len(y), int)
    ids[order] = np.arange(len(y)) // size
    return Bags.from_rows(x, ids, truth=y, **more)
