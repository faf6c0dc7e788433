"""Small tables for an average: a ring, which no linear model knows, in bags alike or differing.

And their trainings in run folders, which may be stopped after any net.
"""

import numpy as np
import pytest

from apportion.auto import nets
from apportion.auto.train import train_table
from apportion.bags.bags import Bags

STAGES = nets.STAGES


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


def ring_in_bags(n, seed, size, *, differing):
    x, y = ring(n, seed)
    return bags_of(x, y, size, differing=differing)


ALIKE = ring_in_bags(80, 0, 8, differing=False)
VALID = ring_in_bags(80, 1, 8, differing=False)


def few_steps(n, set_attribute=setattr):
    """Train every stage of every net in so few steps."""
    few = {k: [s._replace(steps=n, warmup=0) for s in own] for k, own in STAGES.items()}
    set_attribute(nets, "STAGES", few)
    set_attribute(nets, "MOST_SMALL_STEPS", n)


def train(folder, bags=ALIKE, valid=VALID, **options):
    valid = valid if bags.n_classes == 2 else None
    return train_table(bags, valid, run=folder, **{"device": "cpu", "threads": 1, **options})


def leave(folder, after, *arguments, **options):
    """Train, and press Ctrl-C after some net."""

    def stop(record, net):
        if record["epoch"] == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(folder, *arguments, **options, on_net=stop)
