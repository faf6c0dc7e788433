"""The default method, and presets."""

import pytest

from apportion.errors import ConfigError
from apportion.plan.choices import Choice
from apportion.plan.kinds import ITEMS, SPARSE
from apportion.plan.methods import check_preset, default_method
from apportion.plan.plan import make_plan
from tests.plan.planned_bags import bags_of

SHARE = Choice(0.0, "not asked for")


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
