"""What images are given: pre-training, and options of ResNet-18."""

from typing import Any

import numpy as np
import pytest

from apportion.bags.bags import Bags
from apportion.plan.choices import Choice
from apportion.plan.images import Pretraining
from apportion.plan.methods import default_method
from apportion.plan.plan import make_plan
from tests.plan.planned_bags import bags_of

SHARE = Choice(0.0, "not asked for")


def strong(n, side=32, **options):
    of_training = ("augment", "batch_size", "learning_rate")
    given: dict[str, Any] = {name: options.pop(name) for name in of_training if name in options}
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


def test_losses_of_whole_bags_are_trained_at_a_rate_at_which_they_learn():
    plan = strong(1000, unit="bags")
    assert plan.learning_rate is not None
    assert str(plan).count("losses of whole bags learn nothing at the 0.002 of 'strong'") == 1
    assert plan.config({"preset": "strong"}).learning_rate == plan.learning_rate.value == 3e-4
    given = strong(1000, unit="bags", learning_rate=1e-3)
    assert given.config({"preset": "strong", "learning_rate": 1e-3}).learning_rate == 1e-3
    of_labels = strong(1000, unit="rows")
    assert of_labels.learning_rate is None
    assert of_labels.config({"preset": "strong"}).learning_rate == 2e-3
