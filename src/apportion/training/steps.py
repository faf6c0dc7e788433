"""How many steps a training takes: what a schedule over all of them has to know."""

from __future__ import annotations

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.batches import even_cuts, plan
from apportion.methods.base import Method
from apportion.methods.registry import method_named
from apportion.randomness import Purpose, generator

__all__ = ["count_steps"]


def count_steps(
    train: Bags, *, method: str | Method = "fpl", config: TrainConfig | None = None
) -> int:
    """Count the optimiser steps of all epochs of `fit`.

    Where a method learns from whole bags of different sizes, the number differs from epoch to
    epoch with the order of the bags; it is still exact, since that order follows from the seed.

    Parameters
    ----------
    train : Bags
        The bags to train on.
    method, config : str or Method, and TrainConfig, optional
        As of `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> bags = Bags.from_rows(np.zeros((1000, 2)), np.arange(1000) // 10, truth=np.arange(1000) % 2)
    >>> count_steps(bags, config=TrainConfig(epochs=5, batch_size=100))
    50
    """
    config = TrainConfig() if config is None else config
    unit = method_named(method).unit
    if unit != "bags":
        n = len(train.distinct()) if unit == "rows" else train.n_instances
        return config.epochs * (len(even_cuts(n, config.batch_size)) - 1)
    sizes, options = train.sizes, (config.batch_size, config.bags_per_step)
    if sizes.min() == sizes.max():
        return config.epochs * (len(plan(sizes, *options)) - 1)
    orders = (
        generator(config.seed, Purpose.SHUFFLE, epoch).permutation(train.n_bags)
        for epoch in range(1, config.epochs + 1)
    )
    return sum(len(plan(sizes[order], *options)) - 1 for order in orders)
