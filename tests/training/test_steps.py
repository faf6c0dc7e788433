"""The number of steps is the number of steps that are taken."""

from dataclasses import replace

import pytest
import torch

from apportion.training.fit import fit
from apportion.training.steps import count_steps
from tests.training.small_training import CONFIG, TRAIN, Rates, linear, survey


@pytest.mark.parametrize("bags", [TRAIN, survey(3)], ids=["equal bags", "different bags"])
@pytest.mark.parametrize("method", ["fpl", "proportion-loss"])
@pytest.mark.parametrize("options", [{}, {"batch_size": 10, "seed": 3}, {"bags_per_step": 2}])
def test_it_counts_what_fit_does(bags, method, options):
    config = replace(CONFIG, **options)
    with Rates() as steps:
        fit(linear(), bags, method=method, config=config)
    assert count_steps(bags, method=method, config=config) == len(steps.seen) > config.epochs


def test_a_schedule_over_all_steps_ends_with_the_last():
    steps, seen = count_steps(TRAIN, config=CONFIG), []

    def scheduler(optimizer):
        made = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=steps + 1)
        seen.append(made)
        return made

    fit(linear(), TRAIN, config=CONFIG, scheduler=scheduler)
    assert seen[0].last_epoch == steps
    assert seen[0].get_last_lr()[0] == pytest.approx(0.5 / 25 / 1e4)
