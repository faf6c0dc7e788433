"""The plan: defaults follow from the bags, options win, and every choice has its reason."""

from typing import Any

import numpy as np
import pytest

from apportion import plan as plan_module
from apportion.bags.bags import Bags
from apportion.config import PRESETS
from apportion.errors import ConfigError
from apportion.plan import (
    ITEMS,
    SPARSE,
    Choice,
    Pretraining,
    check_preset,
    default_method,
    held_out_share,
    kind_of_instances,
    make_plan,
    threads_for,
    threads_of_steps,
)

SHARE = Choice(0.0, "not asked for")


def bags_of(n, shape=(3,)):
    """One bag of n instances, without their memory."""
    x = np.broadcast_to(np.float32(0), (n, *shape))
    return Bags.from_rows(x, np.zeros(n, int), {0: [0.5, 0.5]})


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


@pytest.mark.parametrize(
    ("n", "shape", "threads"),
    [(1_800, (64,), 1), (10_000, (20,), 1), (200_000, (20,), 4), (200_000, (400,), 6)],
)
def test_threads_follow_from_the_work_of_a_step(monkeypatch, n, shape, threads):
    """With one thread per core, 1,800 rows took over six times as long on 16 busy cores."""
    monkeypatch.setattr(plan_module, "available_cores", lambda: 6)
    monkeypatch.setattr(plan_module, "idle_cores", lambda: 6)
    plan = make_plan(bags_of(n, shape), validation=SHARE)
    assert plan.threads.value == threads
    assert plan.config({}).threads is None  # decided again when training begins
    assert plan.config({"threads": 3}).threads == 3


def test_steps_of_whole_bags_are_as_large_as_these(monkeypatch):
    """A plan says what training does, which counts the instances of a step in the same place."""
    for name in ("available_cores", "idle_cores"):
        monkeypatch.setattr(plan_module, name, lambda: 16)
    x = np.broadcast_to(np.float32(0), (8_000, 20))
    bags = Bags.from_rows(x, np.arange(8_000) // 2_000, np.full((4, 2), 0.5))
    rows = {"instances": 64, "bags": 2_000}
    for unit, n in rows.items():
        plan = make_plan(bags, validation=SHARE, unit=unit)
        assert f"steps of {n:,} rows" in plan.threads.reason
        assert threads_of_steps(bags, unit, plan.config({})) == plan.threads
    for options, n in (({"bags_per_step": 2}, 4_000), ({"bags_per_step": 9}, 4_096)):
        plan = make_plan(bags, validation=SHARE, unit="bags", options=options)
        assert f"steps of {n:,} rows" in plan.threads.reason  # 4,096 go through the net at once


def test_steps_of_tables_are_shared_by_idle_cores_alone(monkeypatch):
    monkeypatch.setattr(plan_module, "available_cores", lambda: 16)
    large, small = bags_of(200_000, (20,)), bags_of(300, (20,))
    for idle, threads in ((16, 4), (4, 4), (3, 3), (1, 1)):
        monkeypatch.setattr(plan_module, "idle_cores", lambda idle=idle: idle)
        chosen = threads_for(large, 1024)
        assert chosen.value == threads
        assert ("idle" in chosen.reason) == (idle < 4)
    monkeypatch.setattr(plan_module, "idle_cores", None)  # not asked for
    assert threads_for(small, 32).value == 1
    assert threads_for(bags_of(50, (1, 28, 28)), 50).value == 16


def test_epochs_have_a_least_number():
    assert make_plan(bags_of(10_000_000, ()), validation=SHARE).epochs.value == 20


@pytest.mark.parametrize(
    ("shape", "kind", "net"),
    [((3,), "table", "mlp"), ((2, 9), "signals", "conv1d"), ((3, 8, 8), "images", "resnet18")],
)
def test_the_net_follows_from_what_instances_are(shape, kind, net):
    bags = bags_of(4, shape)
    assert kind_of_instances(bags) == kind
    assert make_plan(bags, validation=SHARE).net.value == net
    assert kind.rstrip("s") in make_plan(bags, validation=SHARE).net.reason
    assert kind_of_instances(Bags.from_rows(None, ["a"], {"a": [1.0]})) == "table"


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


@pytest.mark.parametrize(
    ("n_bags", "share"), [(1, 0.0), (44, 0.0), (45, 0.0), (46, 0.1), (500, 0.1)]
)
def test_few_bags_are_not_held_out_unless_it_is_asked_for(n_bags, share):
    assert held_out_share(n_bags).value == share
    assert f"{n_bags} bag" in held_out_share(n_bags).reason
    assert held_out_share(n_bags, 0.2).value == 0.2
    assert held_out_share(n_bags, 0).value == 0


@pytest.mark.parametrize("asked", [1, -0.1, 1.5, "0.1", True, float("nan")])
def test_a_share_must_be_one(asked):
    with pytest.raises(ConfigError, match="must be a number from 0 to below 1; got"):
        held_out_share(100, asked)


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


@pytest.mark.parametrize(
    ("kind", "given", "method", "words"),
    [
        ("table", (), "auto", "the default for tables"),
        ("table", ("seed", "device", "threads", "validation"), "auto", "the default for tables"),
        ("table", ("epochs", "model"), "count-likelihood", "which epochs and model ask for"),
        ("table", ("net",), "count-likelihood", "a single net on a table"),
        ("table", ("epochs", "eta"), "fpl", "since eta is given"),
        ("table", ("preset",), "fpl", "since preset is given"),
        ("images", (), "fpl", "the default"),
        ("signals", ("epochs",), "fpl-mean-map", "the default"),
        ("signals", ("eta",), "fpl-mean-map", "since eta is given"),
    ],
)
def test_the_method_follows_from_the_data_and_from_the_options(kind, given, method, words):
    chosen = default_method(kind, given)
    assert chosen.value == method
    assert words in chosen.reason


# ------------------------------------------------------------------------- the preset "strong"


def strong(n, side=32, **options):
    given: dict[str, Any] = {
        name: options.pop(name) for name in ("augment", "batch_size") if name in options
    }
    bags = bags_of(n, (3, side, side))
    return make_plan(bags, validation=SHARE, options={"preset": "strong", **given}, **options)


@pytest.mark.parametrize(
    ("n", "epochs"), [(35_000, 500), (40_000, 500), (100_000, 200), (2_000_000, 20)]
)
def test_large_data_are_shown_in_fewer_epochs_of_pretraining(n, epochs):
    plan = strong(n)
    assert plan.pretraining.value == Pretraining(epochs, n)
    assert str(plan.pretraining) == (
        f"{epochs} epochs on {n:,} rows without labels (the preset 'strong')"
    )
    assert str(plan.method) == "fpl (the default: Follow the Perturbed Leader)"  # as make_plan has
    assert str(default_method("images", ["preset"], "strong")) == "strong (the preset 'strong')"
    assert "\npretraining" in str(plan)
    assert plan.reasons()["pretraining"] == str(plan.pretraining)


def test_rows_of_several_bags_are_counted_once():
    x = np.zeros((10, 1, 8, 8), np.uint8)
    bags = Bags.from_members(x, [[0, 1, 2], [2, 3, 4]], truth=np.arange(10) % 2)
    plan: Any = make_plan(bags, validation=SHARE, options={"preset": "strong"})
    assert plan.pretraining.value.rows == 5


@pytest.mark.parametrize(("side", "stem"), [(8, "cifar"), (64, "cifar"), (65, "imagenet")])
def test_small_images_are_not_halved_twice_at_once(side, stem):
    plan = strong(1000, side)
    assert plan.stem.value == stem
    assert f"images of {side} × {side}" in plan.stem.reason
    assert plan.net_options == {"stem": stem, "mirror": False}
    given = strong(1000, side, net_options={"stem": "imagenet", "mirror": True})
    assert (str(given.stem), str(given.mirror)) == ("imagenet (given)", "True (given)")


@pytest.mark.parametrize(("augment", "mirror"), [(("flip", "strong"), True), (("crop",), False)])
def test_mirror_images_are_predicted_from_where_training_has_them(augment, mirror):
    assert strong(1000, augment=augment).mirror.value is mirror


def test_other_nets_and_presets_have_no_options_of_resnets():
    for plan in (
        strong(1000, net="mlp"),
        strong(1000, net="resnet18", is_own_net=True),
        make_plan(bags_of(1000, (3, 8, 8)), validation=SHARE),
    ):
        assert plan.net_options == {}
    assert make_plan(bags_of(1000), validation=SHARE).pretraining is None


def test_few_images_make_several_steps():
    assert str(strong(1_500).batch_size) == "128 (for 1,500 rows; the preset 'strong' has 512)"
    assert strong(1_500).config({"preset": "strong"}).batch_size == 128
    assert str(strong(5_000).batch_size) == "512 (the preset 'strong')"
    assert str(strong(1_500, batch_size=512).batch_size) == "512 (given)"


def test_many_images_are_trained_on_in_fewer_epochs():
    assert str(strong(10_000).epochs) == "150 (the preset 'strong')"
    assert str(strong(33_000).epochs) == "80 (for 33,000 rows; the preset 'strong' has 150)"
    assert strong(33_000).config({"preset": "strong"}).epochs == 80
    assert strong(1_000_000).epochs.value == 20
    given = make_plan(
        bags_of(33_000, (3, 8, 8)), validation=SHARE, options={"preset": "strong", "epochs": 150}
    )
    assert str(given.epochs) == "150 (given)"


@pytest.mark.parametrize("kind", ["table", "signals", SPARSE, ITEMS])
def test_the_preset_strong_is_for_images_alone(kind):
    check_preset("paper", kind)
    check_preset("strong", "images")
    for refusing in (check_preset, lambda name, of: default_method(of, ["preset"], name)):
        with pytest.raises(ConfigError, match="is for images alone") as refused:
            refusing("strong", kind)
        assert "Leave the preset out" in str(refused.value)


def test_the_preset_of_pretraining_is_not_one_for_training():
    with pytest.raises(ConfigError, match="is for pre-training without labels") as refused:
        make_plan(bags_of(8, (3, 8, 8)), validation=SHARE, options={"preset": "pretrain"})
    assert "preset='strong'" in str(refused.value)
    with pytest.raises(ConfigError, match=r"Known: default, paper, strong\.$"):
        make_plan(bags_of(8), validation=SHARE, options={"preset": "pretrian"})
