"""An optimiser, a scheduler and clipping of one's own: what a bare loop of torch would do."""

import logging
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import lr_scheduler as rates

from apportion.bags.bags import Bags
from apportion.engine.batches import place
from apportion.errors import ConfigError, RunError
from apportion.testing import toy_bags
from apportion.training.fit import fit
from apportion.training.job import Job
from apportion.training.many import fit_many
from apportion.training.optimizer import Optimization
from tests.training.small_training import (
    CONFIG,
    TRAIN,
    VALID,
    identical,
    linear,
    network,
    refusal,
    weights_of,
)

CPU = torch.device("cpu")
SINGLE = Bags.from_rows(TRAIN.x, np.arange(90), truth=TRAIN.truth, classes=range(3))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def decaying(optimizer):
    return rates.ExponentialLR(optimizer, 0.9)


def bare_loop(make, schedule=None, clip=None, config=CONFIG):
    """The same steps by hand: bags of one instance have known labels."""
    net = linear()
    optimizer = make(list(net.parameters()))
    scheduler = None if schedule is None else schedule(optimizer)
    truth = torch.from_numpy(SINGLE.truth)
    for epoch in range(1, config.epochs + 1):
        for step in place((SINGLE, None, None), CPU)[0].steps("instances", config, epoch):
            optimizer.zero_grad()
            assert step.x is not None
            cross_entropy(net(*step.x), truth[step.position]).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
    return weights_of(net)


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("schedule", [None, decaying])
@pytest.mark.parametrize(
    "make",
    [sgd, partial(torch.optim.RMSprop, lr=0.01), torch.optim.AdamW],
    ids=["sgd", "rmsprop", "adamw"],
)
def test_steps_are_those_of_a_bare_loop(make, schedule, clip):
    net = linear()
    config = replace(CONFIG, clip_norm=clip)
    fit(net, SINGLE, config=config, optimizer=make, scheduler=schedule)
    assert identical(weights_of(net), bare_loop(make, schedule, clip))


def test_the_built_in_optimizer_may_have_a_scheduler():
    net = linear()
    fit(net, SINGLE, config=CONFIG, scheduler=decaying)
    wanted = bare_loop(lambda p: torch.optim.AdamW(p, 0.02, weight_decay=0, fused=True), decaying)
    assert identical(weights_of(net), wanted)


def test_groups_of_parameters_have_rates_of_their_own():
    net, before = network(), weights_of(network())
    fit(
        net,
        TRAIN,
        config=CONFIG,
        optimizer=lambda _: torch.optim.SGD(
            [{"params": net[0].parameters(), "lr": 0.0}, {"params": net[4].parameters()}], lr=0.1
        ),
    )
    after = weights_of(net)
    assert after["0.weight"].equal(before["0.weight"])
    assert not after["4.weight"].equal(before["4.weight"])


def test_the_optimizer_gets_the_parameters_that_are_to_be_trained():
    net, got = network(), []
    net[0].requires_grad_(False)

    def make(parameters):
        got.extend(parameters)
        return sgd(parameters)

    fit(net, TRAIN, config=CONFIG, optimizer=make)
    assert [id(p) for p in got] == [id(p) for p in net.parameters() if p.requires_grad]


def test_hooks_of_an_own_optimizer_are_called():
    calls = []

    def make(parameters):
        made = torch.optim.AdamW(parameters)
        made.register_step_post_hook(lambda *_: calls.append(1))
        return made

    fit(linear(), TRAIN, config=replace(CONFIG, epochs=2), optimizer=make)
    assert len(calls) == 6


def test_a_plateau_goes_by_the_validation_error_once_per_epoch():
    seen = []

    class Plateau(rates.ReduceLROnPlateau):
        def step(self, metrics, epoch=None):  # type: ignore[override]
            seen.append(metrics)
            super().step(metrics)

    history = fit(linear(), TRAIN, VALID, config=CONFIG, scheduler=lambda o: Plateau(o))
    assert seen == history["valid_error"]
    problem, _ = refusal(ConfigError, linear(), TRAIN, scheduler=rates.ReduceLROnPlateau)
    assert "there are no validation bags" in problem


def test_own_optimizers_in_several_jobs_are_those_of_fit():
    def options(net):
        return {"optimizer": sgd, "scheduler": decaying, "augment": lambda x: x + 0.1, "net": net}

    bags, config = toy_bags(), replace(CONFIG, epochs=2)

    def net():
        torch.manual_seed(0)
        return nn.Linear(2, 3)

    together, alone = [net(), net()], net()
    fit_many([Job(train=bags, config=config, **options(one)) for one in together])
    fit(train=bags, config=config, **options(alone))
    for one in together:
        assert identical(weights_of(one), weights_of(alone))


def test_layers_may_be_unfrozen_on_the_way():
    """Their gradients are forgotten after each step as well."""
    net, lengths = network(), []
    net[0].requires_grad_(False)

    def make(_):
        made = torch.optim.SGD(net.parameters(), lr=1e-9)
        made.register_step_pre_hook(lambda *_: lengths.append(net[0].weight.grad))
        return made

    def unfreeze(record, net):
        net[0].requires_grad_()

    fit(net, TRAIN, config=CONFIG, optimizer=make, on_epoch=unfreeze)
    assert lengths[:3] == [None] * 3
    assert len({id(slope) for slope in lengths[3:]}) > 3
    found = [slope.norm().item() for slope in lengths[3:]]
    assert max(found) < 5 * np.median(found)  # they do not add up


def test_a_training_that_diverges_names_the_rates_of_the_groups():
    net = linear()
    groups = [{"params": [net.weight], "lr": 3e38}, {"params": [net.bias], "lr": 0.25}]
    problem, remedy = refusal(
        RunError, net, TRAIN, optimizer=lambda _: torch.optim.SGD(groups, momentum=0.9)
    )
    assert "finite" in problem or "loss is" in problem
    assert "Lower the learning rate (it is 3e+38, 0.25)" in remedy


# --------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "said", "remedy"),
    [
        ({"optimizer": sgd(linear().parameters())}, "got SGD", "Pass what makes it"),
        ({"optimizer": lambda p: None}, "optimizer returned a NoneType", "lambda parameters"),
        ({"optimizer": torch.optim.LBFGS}, "LBFGS computes the loss several times", "SGD"),
        ({"optimizer": lambda p: sgd(linear().parameters())}, "SGD of 2 parameters", "bind each"),
        ({"scheduler": "cosine"}, "scheduler must be a function", "StepLR"),
        ({"scheduler": lambda o: o}, "scheduler returned a AdamW", "StepLR"),
        ({"scheduler": lambda o: decaying(sgd(linear().parameters()))}, "of another", "called"),
        ({"augment": ("flip",)}, "augment must be a function of a batch", "TrainConfig(augment=…)"),
        ({"on_epoch": 3}, "on_epoch must be a function", "leave it out"),
    ],
)
def test_what_cannot_be_taken_is_refused_before_anything_is_written(
    options, said, remedy, tmp_path
):
    problem, advice = refusal(ConfigError, linear(), TRAIN, run=tmp_path / "run", **options)
    assert said in problem
    assert remedy in advice
    assert not (tmp_path / "run" / "config.toml").exists()


def test_an_error_of_the_function_itself_comes_out_with_a_note():
    wrong: Any = lambda net: sgd(net.parameters())  # noqa: E731
    with pytest.raises(AttributeError) as error:
        fit(linear(), TRAIN, config=CONFIG, optimizer=wrong)
    assert "list of the net's parameters" in error.value.__notes__[0]


def test_options_that_have_no_effect_are_named_once(caplog):
    config = replace(CONFIG, learning_rate=0.3, schedule="cosine")
    with caplog.at_level(logging.WARNING, "apportion"):
        fit(linear(), SINGLE, config=config, optimizer=sgd)
    (said,) = [r.getMessage() for r in caplog.records if "no effect" in r.getMessage()]
    assert "learning_rate=0.3, schedule='cosine' of the configuration" in said
    caplog.clear()
    with caplog.at_level(logging.WARNING, "apportion"):
        fit(linear(), SINGLE, config=replace(CONFIG, learning_rate=0.3), scheduler=decaying)
        fit(linear(), SINGLE, config=config)
    assert not [r for r in caplog.records if "no effect" in r.getMessage()]


def test_parameters_that_are_left_out_are_named(caplog):
    net = network()
    with caplog.at_level(logging.WARNING, "apportion"):
        fit(net, TRAIN, config=CONFIG, optimizer=lambda _: sgd(net[4].parameters()))
    assert "leaves out 4 parameters, which stay as they are: 0.weight, 0.bias" in caplog.text
    assert all(p.grad is None for p in net.parameters())


# ------------------------------------------------------------------------------------- recording


def optimization(make=None, scheduler=None):
    return Optimization(linear(), CONFIG, CPU, optimizer=make, scheduler=scheduler)


def test_only_optimizers_that_keep_nothing_on_the_host_are_recorded():
    assert optimization(sgd).is_recordable
    assert optimization(partial(torch.optim.Adam, capturable=True)).is_recordable
    assert not optimization(torch.optim.Adam).is_recordable


def test_a_scheduler_that_changes_numbers_is_noticed_and_one_that_changes_tensors_is_not():
    def on_device(parameters):
        return torch.optim.SGD(parameters, lr=torch.tensor(0.1), momentum=0.9)

    def noticed(*made):
        own = optimization(*made)
        own.optimizer.step()
        return own.after_step()

    assert noticed(sgd, decaying)
    assert not noticed(on_device, decaying)
    cyclic = partial(rates.CyclicLR, base_lr=0.1, max_lr=0.2, step_size_up=2)
    assert noticed(on_device, cyclic)  # it changes the momentum, too
    assert not noticed(sgd)
