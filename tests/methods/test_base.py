"""Methods by name, and what they are made of."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from apportion.errors import ConfigError
from apportion.methods.base import Supervision, describe
from apportion.methods.pi_model import PiModel
from apportion.methods.proportion_loss import ProportionLoss
from apportion.methods.pseudo_labels import OnlinePseudoLabels
from apportion.methods.registry import METHODS, method_named
from apportion.methods.vat import VirtualAdversarial


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_found_by_its_name(name):
    assert method_named(name) is METHODS[name]


def test_a_method_that_is_given_is_given_back():
    method = OnlinePseudoLabels(eta=3)
    assert method_named(method) is method


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("flp", "fpl"), ("pi_model", "pi-model"), ("proportion loss", "proportion-loss")],
)
def test_a_misspelled_name_is_answered_with_the_nearest(wrong, meant):
    with pytest.raises(ConfigError) as caught:
        method_named(wrong)
    assert repr(wrong) in str(caught.value)
    assert f"Did you mean {meant!r}?" in str(caught.value)


def test_a_name_like_no_other_is_answered_with_all():
    with pytest.raises(ConfigError) as caught:
        method_named("zzz")
    assert all(name in str(caught.value) for name in METHODS)


def test_the_table_holds_the_ablations_of_the_paper_as_settings_of_one_class():
    found: dict[str, Any] = {name: describe(method) for name, method in METHODS.items()}
    for name, settings in (
        ("fpl", {"eta": None, "unlikelihood": "relative", "accumulate": True}),
        ("fpl-plain", {"eta": None, "unlikelihood": "plain", "accumulate": True}),
        ("greedy", {"eta": 0, "unlikelihood": "relative", "accumulate": True}),
        ("naive", {"eta": 0, "unlikelihood": "relative", "accumulate": False}),
    ):
        assert found[name] == {"class": "OnlinePseudoLabels", "first": "random", **settings}


@pytest.mark.parametrize("name", METHODS)
def test_a_description_is_plain_values_that_json_can_hold(name):
    found = describe(METHODS[name])
    assert found["class"] == type(METHODS[name]).__name__
    assert json.loads(json.dumps(found)) == found


def test_descriptions_tell_settings_apart():
    methods = [
        *METHODS.values(),
        OnlinePseudoLabels(eta=5),
        OnlinePseudoLabels(first="decide"),
        ProportionLoss("l1"),
        PiModel(std=0.1),
        VirtualAdversarial(iterations=2),
    ]
    found = [json.dumps(describe(method)) for method in methods]
    assert len(set(found)) == len(found)


def test_labels_are_described_by_their_content():
    first = np.arange(100)
    other = first.copy()
    other[50] = 7
    same = [describe(OnlinePseudoLabels(first=array)) for array in (first, first.copy())]
    assert same[0] == same[1]
    assert "int64 (100,)" in same[0]["first"]
    for changed in (other, first.astype(np.int32), first[:99], first[::-1]):
        assert describe(OnlinePseudoLabels(first=changed)) != same[0]
    assert len(json.dumps(same[0])) < 300


def test_a_method_that_is_no_dataclass_is_described_by_its_class():
    class Mine:
        unit = "bags"

    found: Any = Mine()
    assert describe(found) == {"class": "Mine"}


def test_a_supervision_need_not_do_anything():
    @dataclass
    class Nothing(Supervision):
        pass

    nothing: Any = Nothing()
    assert nothing.labels is None
    assert not nothing.needs_confidence
    assert not nothing.decides_first
    assert nothing.instance_loss(torch.nn.Identity(), None, torch.zeros(1, 2)) is None
    assert nothing.bag_loss(torch.zeros(1, 2), torch.zeros(1, 2)) is None
    assert nothing.epoch_end(1, None) == {}
    assert nothing.state_dict() == {}
    nothing.load_state_dict({})
