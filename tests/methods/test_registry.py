"""Methods by name, and to and from plain settings."""

import json
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest

from apportion.errors import ConfigError
from apportion.methods.count_likelihood import CountLikelihood
from apportion.methods.pi_model import PiModel
from apportion.methods.proportion_loss import ProportionLoss
from apportion.methods.pseudo_labels import FPL
from apportion.methods.registry import METHODS, describe, method_from, method_named
from apportion.methods.vat import LLPVAT


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_found_by_its_name(name):
    assert method_named(name) is METHODS[name]


def test_a_method_that_is_given_is_given_back():
    method = FPL(eta=3)
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
    plain = {"joint": False, "rows": False, "smoothing": 0.0, "mixup": False}
    for name, settings in (
        ("fpl", {"eta": None, "unlikelihood": "relative", "memory": 1.0}),
        ("fpl-plain", {"eta": None, "unlikelihood": "plain", "memory": 1.0}),
        ("greedy", {"eta": 0, "unlikelihood": "relative", "memory": 1.0}),
        ("naive", {"eta": 0, "unlikelihood": "relative", "memory": 0}),
    ):
        first = {"first": "random", "first_weight": None}
        assert found[name] == {"name": "fpl", **first, **plain, **settings}


@pytest.mark.parametrize("name", METHODS)
def test_a_description_is_plain_values_that_json_can_hold(name):
    found = describe(METHODS[name])
    assert type(METHODS[found["name"]]) is type(METHODS[name])
    assert json.loads(json.dumps(found)) == found


def test_descriptions_tell_settings_apart():
    methods = [
        *METHODS.values(),
        FPL(eta=5),
        FPL(first="decide"),
        ProportionLoss("l1"),
        PiModel(std=0.1),
        LLPVAT(iterations=2),
        CountLikelihood(ramp=0),
    ]
    found = [json.dumps(describe(method)) for method in methods]
    assert len(set(found)) == len(found)


def test_labels_are_described_by_their_content():
    first = np.arange(100)
    other = first.copy()
    other[50] = 7
    same = [describe(FPL(first=array)) for array in (first, first.copy())]
    assert same[0] == same[1]
    assert "int64 (100,)" in same[0]["first"]
    for changed in (other, first.astype(np.int32), first[:99], first[::-1]):
        assert describe(FPL(first=changed)) != same[0]
    assert len(json.dumps(same[0])) < 300


def test_a_method_of_ones_own_is_described_by_its_class():
    class Mine:
        unit = "bags"

    @dataclass(frozen=True)
    class Yours(FPL):
        more: int = 3

    mine: Any = Mine()
    assert describe(mine) == {"name": "Mine"}
    assert describe(Yours(eta=2)) == {**describe(FPL(eta=2)), "name": "Yours", "more": 3}


def test_every_class_has_the_key_that_its_name_says():
    keys = {type(method).__name__: describe(method)["name"] for method in METHODS.values()}
    assert keys == {
        "FPL": "fpl",
        "ProportionLoss": "proportion-loss",
        "PiModel": "pi-model",
        "LLPVAT": "llp-vat",
        "CountLikelihood": "count-likelihood",
    }


# ------------------------------------------------------------------------- methods from settings

CHANGED = [
    *METHODS.values(),
    FPL(eta=2.5, unlikelihood="plain", memory=0, first="decide"),
    ProportionLoss("l1"),
    PiModel(std=0.3, weight=1, ramp=0),
    LLPVAT(epsilon=1, xi=1e-2, iterations=3, weight=0.5, ramp=0.1),
    CountLikelihood(ramp=1),
]


@pytest.mark.parametrize("method", CHANGED)
def test_a_description_is_read_back_into_the_same_method(method):
    again = method_from(json.loads(json.dumps(describe(method))))
    assert type(again) is type(method)
    settings: Any = method
    for setting in fields(settings):
        assert getattr(again, setting.name) == getattr(method, setting.name)


def test_settings_are_those_of_the_named_method_where_they_are_left_out():
    assert describe(method_from({"name": "naive"})) == describe(METHODS["naive"])
    found = describe(method_from({"name": "naive", "eta": 2}))
    assert (found["eta"], found["memory"]) == (2, 0)
    assert describe(method_from({})) == describe(METHODS["fpl"])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": "flp"}, "no method 'flp'.*Did you mean 'fpl'"),
        ({"name": "FPL"}, "no method 'FPL'.*Known: fpl"),
        ({"name": 3}, "no method '3'"),
        ({"name": "greedy", "etta": 1}, "'greedy' has no setting 'etta'.*Did you mean 'eta'"),
        ({"name": "greedy", "unit": "bags"}, "has no setting 'unit'"),
        ({"mixup": 1}, "mixup must be true or false; got 1"),
        ({"mixup": "yes"}, "mixup must be true or false; got 'yes'"),
        ({"memory": "long"}, "memory must be a number from 0 to 1; got 'long'"),
        ({"memory": True}, "memory must be a number from 0 to 1; got True"),
        ({"smoothing": 1}, "smoothing must be a number from 0 to below 1; got 1"),
        ({"eta": "5"}, "eta must be a number"),
        ({"first": "int64 (100,) 0f3a"}, "first must be 'random'"),
        ({"name": "pi-model", "std": "0.1"}, "std must be a number ≥ 0; got '0.1'"),
        ({"name": "llp-vat", "iterations": 1.5}, "iterations must be an integer ≥ 1; got 1.5"),
        ({"name": "llp-vat", "xi": None}, "xi must be a number ≥ 0; got None"),
        ({"name": "count-likelihood", "ramp": -1}, "ramp must be a number ≥ 0; got -1"),
        ({"name": "proportion-loss", "form": ["l1"]}, "form must be one of"),
    ],
)
def test_settings_that_make_no_method_are_refused(settings, says):
    with pytest.raises(ConfigError, match=f"(?s){says}"):
        method_from(settings)
