"""The number of steps is the number of steps that are taken."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from apportion.methods.pseudo_labels import FPL
from apportion.training.fit import fit
from apportion.training.steps import count_steps
from tests.training.small_training import CONFIG, TRAIN, Rates, linear, survey


@pytest.mark.parametrize("bags", [TRAIN, survey(3)], ids=["equal bags", "different bags"])
@pytest.mark.parametrize("method", ["fpl", "proportion-loss", FPL(rows=True)])
@pytest.mark.parametrize("options", [{}, {"batch_size": 10, "seed": 3}, {"bags_per_step": 2}])
def test_it_counts_what_fit_does(bags, method, options):
    config = replace(CONFIG, **options)
    with Rates() as steps:
        fit(linear(), bags, method=method, config=config)
    assert count_steps(bags, method=method, config=config) == len(steps.seen) >= config.epochs


def test_steps_of_rows_are_counted_by_distinct_rows():
    """46 instances in 5 bags, some of which share rows."""
    bags = survey(3)
    n, config = len(np.unique(bags.index)), replace(CONFIG, batch_size=10)
    assert n < bags.n_instances == 46
    assert count_steps(bags, method=FPL(rows=True), config=config) == config.epochs * -(-n // 10)
    assert count_steps(bags, config=config) == config.epochs * 5


def test_a_schedule_over_all_steps_ends_with_the_last():
    steps, seen = count_steps(TRAIN, config=CONFIG), []

    def scheduler(optimizer):
        made = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=steps + 1)
        seen.append(made)
        return made

    fit(linear(), TRAIN, config=CONFIG, scheduler=scheduler)
    assert seen[0].last_epoch == steps
    assert seen[0].get_last_lr()[0] == pytest.approx(0.5 / 25 / 1e4)
