"""How many threads share a step."""

from __future__ import annotations

import numpy as np

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.errors import count
from apportion.plan.choices import Choice
from apportion.plan.kinds import IMAGES, SIGNALS, kind_of_instances
from apportion.threads import available_cores, idle_cores, threads_worth

__all__ = ["threads_for", "threads_of_steps"]


def threads_of_steps(train: Bags, unit: str, config: TrainConfig) -> Choice:
    """Decide how many threads share the steps of a training, in units of instances or bags."""
    rows = min(config.batch_size, train.n_instances)
    if unit == "bags":
        mean = train.sizes.mean()
        n_bags = config.bags_per_step or max(1, config.batch_size // mean)
        rows = int(mean * min(n_bags, train.n_bags))
    return threads_for(train, min(rows, config.instances_per_pass))


def threads_for(train: Bags, per_step: int) -> Choice:
    """Decide how many threads share a step of so many instances.

    Examples
    --------
    >>> bags = Bags.from_rows(np.zeros((600, 3)), np.arange(600) // 20, np.full((30, 2), 0.5))
    >>> print(threads_for(bags, 32))
    1 (steps of 32 rows × 3 columns are too small to share among cores)
    """
    cores = available_cores()
    if kind_of_instances(train) in (SIGNALS, IMAGES):
        return Choice(cores, "one per available core")
    columns = 1 if train.x is None else sum(int(np.prod(part.shape[1:])) for part in train.parts)
    worth = threads_worth(per_step * columns)
    step = f"steps of {per_step:,} rows × {count(columns, 'column')}"
    if worth == 1:
        return Choice(1, f"{step} are too small to share among cores")
    most, idle = min(worth, cores), cores if cores == 1 else idle_cores()
    reason = f"{step} are worth {worth}"
    if idle < most:
        verb = "is" if idle == 1 else "are"
        return Choice(idle, f"{reason}, but {idle} of {count(cores, 'core')} {verb} idle")
    return Choice(most, reason if most == worth else f"{reason}, on {count(cores, 'core')}")
