"""The plan: defaults follow from the bags, options win, and every choice has its reason."""

import pytest

from apportion.config import PRESETS
from apportion.errors import ConfigError
from apportion.plan.choices import Choice
from apportion.plan.held_out import held_out_share
from apportion.plan.plan import make_plan
from tests.plan.planned_bags import bags_of

SHARE = Choice(0.0, "not asked for")


@pytest.mark.parametrize(
    ("n", "batch_size", "epochs"),
    [(2, 32, 100), (3_000, 32, 100), (30_000, 256, 100), (300_000, 1024, 100), (500_000, 1024, 60)],
)
def test_steps_and_epochs_follow_from_the_instances(n, batch_size, epochs):
    plan = make_plan(bags_of(n), validation=SHARE)
    assert (plan.batch_size.value, plan.epochs.value) == (batch_size, epochs)
    assert f"{n:,} instances" in plan.batch_size.reason
    config = plan.config({})
    assert (config.batch_size, config.epochs) == (batch_size, epochs)


def test_epochs_have_a_least_number():
    assert make_plan(bags_of(10_000_000, ()), validation=SHARE).epochs.value == 20


@pytest.mark.parametrize(
    ("shape", "kind", "net"),
    [((3,), "table", "mlp"), ((2, 9), "signals", "conv1d"), ((3, 8, 8), "images", "resnet18")],
)
def test_the_net_follows_from_what_instances_are(shape, kind, net):
    bags = bags_of(4, shape)
    assert make_plan(bags, validation=SHARE).net.value == net
    assert kind.rstrip("s") in make_plan(bags, validation=SHARE).net.reason


def test_what_is_given_wins_and_says_so():
    given = {"epochs": 7, "batch_size": 9, "threads": 2, "seed": 5, "learning_rate": None}
    greedy = Choice("greedy", "given")
    plan = make_plan(bags_of(300), validation=SHARE, net="conv1d", method=greedy, options=given)
    chosen = {name: text.partition(" ")[0] for name, text in plan.reasons().items()}
    assert chosen == {
        "net": "conv1d",
        "method": "greedy",
        "epochs": "7",
        "batch_size": "9",
        "weight_decay": "0.1",
        "validation": "0.0",
        "threads": "2",
    }
    for name in ("net", "method", "epochs", "batch_size", "threads"):
        assert "(given)" in plan.reasons()[name]
    config = plan.config({"epochs": 7, "batch_size": 9, "threads": 2, "seed": 5})
    assert (config.epochs, config.batch_size, config.threads, config.seed) == (7, 9, 2, 5)
    assert config.weight_decay == 0.1


def test_a_preset_comes_before_the_bags_and_after_what_is_given():
    plan = make_plan(bags_of(300), validation=SHARE, options={"preset": "paper", "epochs": 3})
    assert str(plan.batch_size) == "512 (the preset 'paper')"
    assert str(plan.epochs) == "3 (given)"
    config = plan.config({"preset": "paper", "epochs": 3})
    paper = PRESETS["paper"]
    assert config.learning_rate == paper.learning_rate
    assert (config.weight_decay, config.batch_size, config.epochs) == (0.0, 512, 3)
    with pytest.raises(ConfigError, match=r"no preset 'papr'.\n.*'paper'"):
        make_plan(bags_of(3), validation=SHARE, options={"preset": "papr"})


def test_a_plan_can_be_printed_with_its_reasons():
    lines = str(make_plan(bags_of(1000), validation=held_out_share(200))).splitlines()
    assert [line.split()[0] for line in lines] == [
        "net",
        "method",
        "epochs",
        "batch_size",
        "weight_decay",
        "validation",
        "threads",
    ]
    assert all("(" in line for line in lines)
