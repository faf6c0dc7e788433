"""The options of an estimator: checked before anything is read, and passed on."""

import logging
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from apportion import FPL, ConfigError, LLPClassifier, ProportionLoss, TrainConfig
from apportion.estimator.options import callback_of, ignored, is_own_net, train_options
from tests.estimator.test_classifier import problem

X, BAGS, TABLE, NAMES = problem()


def fitted(**options):
    classifier = LLPClassifier(**{"random_state": 0, "device": "cpu", **options})
    return classifier.fit(X, bags=BAGS, proportions=TABLE)


def test_every_option_of_training_can_be_said_in_one_place():
    several: dict[str, Any] = {
        "epochs": 3,
        "learning_rate": np.float64(0.01),
        "schedule": "cosine",
        "patience": 2,
        "augment": "noise",
        "train_options": {"warmup": 0.25, "bags_per_step": 2},
    }
    found = train_options(LLPClassifier(**several))
    assert TrainConfig.from_dict(found) == TrainConfig(
        epochs=3,
        learning_rate=0.01,
        schedule="cosine",
        patience=2,
        augment=("noise",),
        warmup=0.25,
        bags_per_step=2,
    )
    assert train_options(LLPClassifier()) == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_options": {"warmpu": 0.1}}, "no train option 'warmpu'.*Did you mean 'warmup'"),
        ({"train_options": {"epochs": 1}}, r"is a parameter.*LLPClassifier\(epochs="),
        ({"train_options": {"seed": 1}}, r"LLPClassifier\(random_state="),
        ({"train_options": {"warmup": 2}}, "warmup must be a share"),
        ({"train_options": 0.1}, "train_options must be a dict"),
        ({"augment": "flop"}, "'flop'.*Did you mean 'flip'"),
        ({"augment": 3}, "augment must be"),
        ({"optimizer": "sgd"}, "optimizer must be a function"),
        ({"scheduler": 0.1}, "scheduler must be a function"),
        ({"schedule": "linear"}, "schedule must be 'constant' or 'cosine'"),
        ({"patience": 0}, "patience must be an integer"),
        ({"patience": 3, "validation_fraction": 0}, "validation_fraction is 0.*=0.1"),
        ({"net_options": {"hiden": (3,)}}, "'hiden'.*Did you mean 'hidden'"),
        ({"net_options": {"hidden": 3}}, r"hidden must be a list of integers.*\(128, 64\); got 3"),
        ({"net_options": {"skip": 1}}, "skip must be True or False; got 1"),
        ({"net_options": {"stem": "cifar"}}, "net 'mlp' has no option 'stem'.*hidden, skip"),
        ({"net_options": {"hidden": (3,)}, "model": "conv1d"}, "'conv1d' has no option"),
        ({"net_options": [3]}, "net_options must be a dict"),
        ({"callbacks": 3}, "callbacks must be functions"),
        ({"callbacks": [print, 3]}, "callbacks must be functions"),
        ({"normalize": "yes"}, "normalize must be True or False"),
        ({"run": 3}, "run must be the path of a folder"),
    ],
)
def test_what_cannot_be_is_named(options, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        fitted(**options)


def test_nets_are_built_as_asked():
    net = fitted(epochs=1, net_options={"hidden": (np.int64(8), 4), "skip": True}).model_.net
    assert (net.recipe["hidden"], net.recipe["skip"]) == ([8, 4], True)
    asked = fitted(net_options={"hidden": [5]}, epochs=1)
    assert "net_options" in asked.plan_.method.reason  # which is for one net, not for an average


def test_options_reach_the_training(monkeypatch):
    seen = []

    def spy(*_, config, **__):
        seen.append(config)
        raise ZeroDivisionError

    monkeypatch.setattr("apportion.estimator.fitting.fit", spy)
    with pytest.raises(ZeroDivisionError):
        fitted(schedule="cosine", augment=["noise"], train_options={"warmup": 0.5, "threads": 1})
    (config,) = seen
    assert (config.schedule, config.augment, config.warmup) == ("cosine", ("noise",), 0.5)


def test_functions_of_ones_own_train_the_net(tmp_path):
    seen = []

    def twice(x):
        seen.append(tuple(x.shape))
        return 2 * x

    def once(parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    def falling(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    options = {"epochs": 2, "optimizer": once, "scheduler": falling}
    plain, scaled = fitted(**options), fitted(**options, augment=twice)
    assert plain.plan_.method.value == "count-likelihood"  # a single net
    assert seen
    found = [c.predict_proba(X) for c in (plain, scaled, fitted(epochs=2, optimizer=once))]
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    scaled.save(tmp_path / "model")
    loaded = LLPClassifier.load(tmp_path / "model", device="cpu")
    of_file = [loaded.optimizer, loaded.scheduler, loaded.augment]
    assert of_file == [None] * 3  # no file has functions
    np.testing.assert_array_equal(loaded.predict_proba(X), found[1])
    assert ignored(LLPClassifier("linear", optimizer=once, augment=twice), "linear") == [
        "optimizer",
        "augment",
    ]


def test_an_optimizer_of_ones_own_decides_its_weight_decay(caplog):
    def once(parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    plan = fitted(epochs=1, optimizer=once).plan_
    assert "no effect" not in caplog.text  # of what nobody has set
    assert plan.weight_decay.value is None
    assert "weight_decay  the optimizer that was passed decides" in str(plan)
    fitted(epochs=1, optimizer=once, weight_decay=0.5)
    assert "weight_decay=0.5 of the configuration has no effect" in caplog.text
    assert fitted(epochs=1).plan_.weight_decay.value == 0.1


def test_patience_stops_by_bags_that_it_holds_out_itself():
    few = np.isin(BAGS, TABLE.index[:12])
    found = LLPClassifier(epochs=60, patience=1, learning_rate=0.5, random_state=0)
    found.fit(X[few], bags=BAGS[few], proportions=TABLE)
    assert str(found.plan_.validation) == "0.1 (a tenth of 12 bags, which patience goes by)"
    assert len(found.history_.records) < 60
    with pytest.raises(ConfigError, match=r"(?s)only one\.\n.*Leave patience out"):
        LLPClassifier(patience=2).fit(X, bags=np.zeros(600), proportions={0.0: [0.5, 0.5]})


def test_threads_ask_for_no_single_net():
    kind = LLPClassifier("ridge", train_options={"threads": 1})
    assert ignored(kind, "ridge") == []
    assert ignored(kind.set_params(train_options={"threads": 1, "warmup": 0.1}), "ridge") == [
        "warmup"
    ]


@pytest.mark.parametrize(
    ("method", "model", "expected"),
    [
        ("fpl", None, []),
        (FPL(), nn.Linear(3, 2), ["net_options"]),
        (ProportionLoss(), None, ["eta"]),
        ("auto", None, ["batch_size", "net_options", "eta"]),
        ("fpl", LogisticRegression(), ["batch_size", "net_options"]),
        ("soft labels", LogisticRegression(), ["batch_size", "net_options", "eta"]),
    ],
)
def test_options_apply_where_they_mean_something(method, model, expected):
    classifier = LLPClassifier(model=model, eta=1.0, batch_size=3, net_options={"hidden": (3,)})
    assert ignored(classifier, method) == expected


def test_eta_is_ignored_once_and_said(caplog):
    found = fitted(method="proportion-loss", eta=2.0, epochs=1)
    assert caplog.messages == [
        "eta is ignored: it has no meaning for the method 'proportion-loss'."
    ]
    assert str(found.plan_.method) == "proportion-loss (given; eta is ignored)"
    np.testing.assert_array_equal(
        found.predict_proba(X), fitted(method="proportion-loss", epochs=1).predict_proba(X)
    )


def test_own_nets_are_told_from_names_and_learners():
    assert is_own_net(nn.Linear(2, 2))
    assert is_own_net(lambda bags: nn.Linear(2, 2))
    for other in (None, "mlp", LogisticRegression(), nn.Linear, 3):
        assert not is_own_net(other)


def test_all_callbacks_are_called_and_any_may_end():
    called = []

    def answering(answer):
        def call(record, net):
            called.append((record, net))
            return answer

        return call

    ask = callback_of([answering(None), answering(np.True_), answering(False)])
    assert ask is not None
    assert ask({"epoch": 1}, "net") is True
    assert called == [({"epoch": 1}, "net")] * 3
    with pytest.raises(ConfigError, match=r"a callback must return True.*got 1"):
        callback_of(answering(1))({}, None)  # type: ignore[misc]
    assert callback_of(None) is None


@pytest.mark.parametrize(
    ("options", "n", "nets"),
    [
        ({"epochs": 3}, 3, "Normalized"),
        ({"method": "ridge"}, 1, "Normalized"),
        ({"model": LogisticRegression(), "epochs": 2}, 2, "NoneType"),
        ({"method": "mean-map", "model": nn.Linear(3, 4)}, 1, "Sequential"),
    ],
    ids=["net", "linear", "learner", "frozen"],
)
def test_callbacks_see_every_record(options, n, nets):
    seen = []
    fitted(**options, callbacks=lambda record, net: seen.append((record, type(net).__name__)))
    assert [record["epoch"] for record, _ in seen] == list(range(1, n + 1))
    assert {name for _, name in seen} == {nets}


def test_a_callback_ends_the_training_of_a_net(tmp_path):
    options = {"epochs": 5, "run": tmp_path / "a"}
    found = fitted(**options, callbacks=[lambda record, net: record["epoch"] == 2])
    assert len(found.history_.records) == 2
    assert found.history_.ended == "on_epoch"
    again = fitted(**options)  # a run that has ended stays as it is
    np.testing.assert_array_equal(again.predict_proba(X), found.predict_proba(X))


def test_a_training_that_cannot_be_ended_says_so_once(caplog):
    options = {"model": LogisticRegression(), "epochs": 3}
    with caplog.at_level(logging.WARNING):
        found = fitted(**options, callbacks=[lambda record, net: True])
    (said,) = caplog.messages
    assert "asks to end training after 1" in said
    assert len(found.history_.records) == 3
