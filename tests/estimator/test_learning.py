"""`LLPClassifier` with learners and linear models: fitted, told, searched, saved."""

import logging
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from apportion import FPL, ConfigError, LLPClassifier, Model, TrainConfig, build_net, fit
from apportion.bags.bags import Bags
from apportion.errors import RunError
from apportion.labels.assign import likeliest_labels
from apportion.labels.linear import LINEAR_FITS
from apportion.learners.alternate import alternate
from apportion.methods.registry import method_named
from tests.estimator.test_classifier import problem
from tests.labels.tables import table_bags
from tests.training.test_features import image_bags, signal_bags

BOOSTING = HistGradientBoostingClassifier(max_iter=8, max_leaf_nodes=5)


def fitted(model: Any = BOOSTING, *, targets=None, **options):
    X, bags, table, _ = targets or problem()
    return LLPClassifier(model=model, random_state=0, **options).fit(
        X, bags=bags, proportions=table
    )


# ------------------------------------------------------------------------------------- learners


def test_a_learner_is_fitted_as_alternate_does():
    bags = table_bags(300)
    classifier = LLPClassifier(model=BOOSTING, epochs=2, random_state=5).fit(bags)
    expected = alternate(BOOSTING, bags, rounds=2, seed=5).confidence(bags.x)
    np.testing.assert_array_equal(classifier.predict_proba(bags), expected)
    assert not hasattr(BOOSTING, "n_features_in_")
    labels = likeliest_labels(expected[bags.index], bags)
    np.testing.assert_array_equal(classifier.pseudo_labels_, labels)
    last = classifier.history_.records[-1]
    assert last["label_accuracy"] == np.mean(labels == bags.truth)


def test_fpl_targets_take_eta():
    bags = table_bags(300)
    found = {}
    for eta in (0.1, 50.0):
        options: dict[str, Any] = {"epochs": 2, "eta": eta, "random_state": 0}
        classifier = LLPClassifier("fpl", model=BOOSTING, **options).fit(bags)
        expected = alternate(BOOSTING, bags, targets="fpl", rounds=2, eta=eta)
        found[eta] = classifier.predict_proba(bags)
        np.testing.assert_array_equal(found[eta], expected.confidence(bags.x))
        assert classifier.plan_.method.value == "fpl"
    assert not np.array_equal(found[0.1], found[50.0])


@pytest.mark.parametrize(
    "model",
    [
        BOOSTING,
        HistGradientBoostingRegressor(max_iter=8),
        RandomForestClassifier(20, min_samples_leaf=5),
        LogisticRegression(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_learners_learn(model):
    X, _, _, names = problem()
    assert np.mean(fitted(model, epochs=2).predict(X) == names) > 0.88


def test_history_and_plan_tell_what_was_done(caplog, capsys):
    with caplog.at_level(logging.INFO, "apportion"):
        classifier = fitted(epochs=3)
    assert [record["epoch"] for record in classifier.history_.records] == [1, 2, 3]
    assert all(0 < error < 0.3 for error in classifier.history_["proportion_error"])
    assert all(record["seconds"]["round"] > 0 for record in classifier.history_.records)
    assert classifier.model_.epoch == 3
    said = " ".join(caplog.text.split())
    for text in (
        "2 classes from 60 bags of 600 instances in all",
        "learner HistGradientBoostingClassifier (given)",
        "method soft labels (the default)",
        "epochs 3 (given, as rounds)",
        "validation 0.0 (nothing is selected",
        "round 1/3 · proportion error",
        "round 3/3 · proportion error",
    ):
        assert said.count(text) == 1, text
    assert not capsys.readouterr().err
    assert fitted(LogisticRegression()).history_.n_epochs == 6
    fitted(LogisticRegression(), epochs=1, verbose=True)
    assert "Learning 2 classes from 60 bags" in capsys.readouterr().err


def test_held_out_bags_are_only_reported():
    X, bags, table, names = problem()
    classifier = LLPClassifier(
        model=BOOSTING, epochs=2, validation_fraction=0.2, random_state=0
    ).fit(X, names, bags=bags, proportions=table)
    history = classifier.history_
    assert history.best_epoch is None
    assert history["valid_error"][0] is None
    assert 0 < history["valid_error"][-1] < 0.3
    assert history["valid_accuracy"][-1] > 0.85
    assert history["label_accuracy"][-1] > 0.85
    assert classifier.plan_.validation.value == 0.2
    found = pd.crosstab(bags, classifier.pseudo_labels_, normalize="index")
    assert (found - table).abs().to_numpy().max() < 1e-9


def test_held_out_bags_teach_nothing():
    X, bags, table, _ = problem()
    options: dict[str, Any] = {"epochs": 1, "validation_fraction": 0.2}
    one = fitted(targets=(X, bags, table, None), **options)
    whole = Bags.from_rows(X, bags, table.to_dict("index"))
    _, valid, _ = whole.split(0.2, seed=0)
    changed = X.copy()
    changed[valid.index] += 100
    two = fitted(targets=(changed, bags, table, None), **options)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


def test_the_seed_decides_everything():
    X = problem()[0]
    one, two = (fitted(RandomForestClassifier(5), epochs=1).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    other = LLPClassifier(model=RandomForestClassifier(5), epochs=1, random_state=1)
    found = other.fit(X, bags=problem()[1], proportions=problem()[2]).predict_proba(X)
    assert not np.array_equal(found, one)


def test_parameters_of_a_learner_are_searched():
    classifier = LLPClassifier(model=BOOSTING, epochs=1)
    assert classifier.get_params()["model__max_iter"] == 8
    two = clone(classifier).set_params(model__max_iter=2)
    assert (two.model.max_iter, BOOSTING.max_iter) == (2, 8)
    X, bags, table, names = problem(n_bags=30)
    with sklearn.config_context(enable_metadata_routing=True):
        classifier.set_fit_request(bags=True, proportions=True)
        classifier.set_score_request(bags=True, proportions=True)
        grid = {"model__max_leaf_nodes": [2, 6], "model__max_iter": [1, 30]}
        search = GridSearchCV(classifier, grid, cv=GroupKFold(2))
        search.fit(X, groups=bags, bags=bags, proportions=table)
    assert search.best_params_["model__max_iter"] == 30
    assert np.mean(search.predict(X) == names) > 0.88


def test_scikit_learn_finds_nothing_to_object_to():
    learner = LLPClassifier(model=HistGradientBoostingClassifier(max_iter=5), epochs=1)
    for classifier in (learner, LLPClassifier("mean-map")):
        found = check_estimator(classifier, on_fail=None, on_skip=None)
        failed = [check for check in found if check["status"] == "failed"]
        assert [(check["check_name"], check["exception"]) for check in failed] == []


# ----------------------------------------------------------------------------------------- files


def test_a_classifier_comes_back_as_it_was(tmp_path):
    pytest.importorskip("skops")
    X = problem()[0]
    model = HistGradientBoostingClassifier(max_iter=7, early_stopping="auto")
    classifier = fitted(model, method="fpl", eta=0.3, epochs=2)
    classifier.save(tmp_path / "a.safetensors")
    again = LLPClassifier.load(tmp_path / "a.safetensors", device="cuda")
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    model = Model.load(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(model.predict_proba(X), classifier.predict_proba(X))
    assert again.history_.records == classifier.history_.records
    assert (again.method, again.eta, again.epochs, again.random_state) == ("fpl", 0.3, 2, 0)
    assert isinstance(again.model, HistGradientBoostingClassifier)
    assert again.model.get_params() == classifier.model.get_params()
    refitted = clone(again).fit(X, bags=problem()[1], proportions=problem()[2])
    np.testing.assert_array_equal(refitted.predict_proba(X), classifier.predict_proba(X))


def test_other_learners_say_what_they_need(tmp_path):
    X = problem()[0]
    classifier = fitted(KNeighborsClassifier(), method="fpl", epochs=1)
    with pytest.raises(RunError, match=r"(?s)KNeighborsClassifier cannot be saved.*joblib"):
        classifier.save(tmp_path / "a")
    again = pickle.loads(pickle.dumps(classifier))  # noqa: S301 - the way that the error names
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


# -------------------------------------------------------------------------------- linear models


@pytest.mark.parametrize("categories", [False, True])
@pytest.mark.parametrize("method", LINEAR_FITS)
def test_linear_methods_are_the_functions(tmp_path, method, categories):
    bags = table_bags(300, categories=categories)
    classifier = LLPClassifier(method, random_state=3, device="cpu").fit(bags)
    linear = LINEAR_FITS[method](bags, seed=3)
    expected = linear.confidence(bags.x)
    np.testing.assert_allclose(classifier.predict_proba(bags), expected, atol=1e-5)
    (record,) = classifier.history_.records
    assert record["l2"] == linear.l2
    assert classifier.score(bags) == pytest.approx(-record["proportion_error"], abs=1e-5)
    assert classifier.pseudo_labels_ is None
    assert "without hidden layers" in str(classifier.plan_)
    classifier.save(tmp_path / "a")
    for again in (LLPClassifier.load(tmp_path / "a", device="cpu"), Model.load(tmp_path / "a")):
        np.testing.assert_allclose(again.predict_proba(bags), expected, atol=1e-5)
    assert LLPClassifier.load(tmp_path / "a").method == method


def test_the_seed_reaches_the_folds_of_linear_models(monkeypatch):
    seeds, ridge = [], LINEAR_FITS["ridge"]

    def spy(bags, l2=None, seed=0):
        seeds.append(seed)
        return ridge(bags, l2=1.0)

    monkeypatch.setitem(LINEAR_FITS, "ridge", spy)
    LLPClassifier("ridge", random_state=7).fit(table_bags(60))
    assert seeds == [7]


def test_a_frame_with_text_and_gaps_is_fitted():
    X, bags, table, names = problem()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["job"] = np.where(frame.pop("b") > -1.25, "cook", "clerk")
    frame.loc[::7, "a"] = np.nan
    for options in ({"method": "linear"}, {"model": BOOSTING, "epochs": 2}):
        classifier = LLPClassifier(random_state=0, **options)
        found = classifier.fit(frame, bags=bags, proportions=table).predict(frame)
        assert np.mean(found == names) > 0.85


def test_options_without_meaning_are_ignored_and_named(caplog):
    X = problem()[0]
    plain = fitted(None, method="mean-map").predict_proba(X)
    assert not caplog.records
    loud = fitted(None, method="mean-map", epochs=7, eta=1.0, batch_size=3).predict_proba(X)
    np.testing.assert_array_equal(plain, loud)
    (said,) = caplog.messages
    assert said == (
        "epochs, batch_size, eta are ignored: they have no meaning for the method 'mean-map'."
    )
    caplog.clear()
    found = fitted(LogisticRegression(), epochs=1, learning_rate=0.1, eta=2.0)
    (said,) = caplog.messages
    assert "learning_rate, eta are ignored" in said
    assert str(found.plan_.method) == "soft labels (the default; learning_rate, eta are ignored)"


# --------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": BOOSTING, "method": "greedy"}, "'greedy' trains nets, not a HistGrad.*'fpl'"),
        ({"model": BOOSTING, "method": "linear"}, "model is HistG.*Leave model out"),
        ({"model": BOOSTING, "method": FPL(eta=1)}, "trains nets.*method='fpl' and eta"),
        ({"model": BOOSTING, "run": "runs/a"}, "run is 'runs/a'.*keeps no folder.*save"),
        ({"model": BOOSTING, "epochs": 0}, "epochs must be.*got 0"),
        ({"model": BOOSTING, "validation_fraction": 2}, "validation_fraction must be"),
        ({"model": "mlp", "method": "ridge"}, "model is 'mlp'"),
        ({"model": HistGradientBoostingClassifier}, "model is.*scikit-learn, untrained"),
        ({"model": LinearSVC()}, "LinearSVC has no predict_proba"),
        ({"model": KNeighborsClassifier()}, "takes no sample_weight"),
    ],
)
def test_settings_that_make_no_sense_are_named(options, message):
    X, bags, table, _ = problem(n_bags=10)
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        LLPClassifier(**options).fit(X, bags=bags, proportions=table)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "linear"}, "linear is for tables, but the instances are images"),
        ({"method": "auto"}, "auto is for tables, but the instances are images"),
        ({"model": BOOSTING}, "(?s)need rows of features.*with_rows"),
    ],
)
def test_images_are_refused(options, words):
    x = np.zeros((20, 3, 4, 4), np.float32)
    told: dict[str, Any] = {"bags": np.arange(20) // 5, "proportions": np.full((4, 2), 0.5)}
    with pytest.raises(ConfigError, match=words):
        LLPClassifier(**options).fit(x, **told)


def test_fit_refuses_linear_methods_by_name():
    bags = table_bags(60)
    for method in LINEAR_FITS:
        with pytest.raises(ConfigError, match=f"(?s){method} is no method of fit.*LLPClassifier"):
            fit(build_net("mlp", bags), bags, method=method, config=TrainConfig(epochs=1))


def wards(n=600, seed=0):
    """A table of numbers and words, and a class that depends on both but not on their sum."""
    rng = np.random.default_rng(seed)
    age, job = rng.normal(size=n), rng.choice(["cook", "nurse"], n)
    truth = np.where((age > 0) == (job == "cook"), "yes", "no")
    frame = pd.DataFrame({"age": age, "job": job})
    frame.loc[::50, "age"] = np.nan
    return frame, truth


@pytest.mark.parametrize("shuffled", [False, True])
def test_auto_learns_what_no_linear_model_can_and_is_saved_like_any(tmp_path, shuffled, steps):
    steps(60)
    frame, truth = wards()
    order = np.random.default_rng(1).permutation(600) if shuffled else np.argsort(truth == "yes")
    bags = np.empty(600, int)
    bags[np.roll(order, 7)] = np.arange(600) // 10
    table = pd.crosstab(bags, truth, normalize="index")
    fitted = LLPClassifier(random_state=0, device="cpu")  # tables are learned by auto
    fitted.fit(frame, bags=bags, proportions=table)
    new, known = wards(seed=2)
    assert (fitted.predict(new) == known).mean() > 0.85
    assert "average of" in str(fitted.plan_)
    assert ("on all bags" if shuffled else "without a part") in str(fitted.plan_)
    assert fitted.history_["member"][0].startswith("small steps" if shuffled else "likelihood")
    assert fitted.history_["skill"][-1] > 0.3
    assert fitted.pseudo_labels_ is None
    fitted.save(tmp_path / "model.safetensors")
    wanted = fitted.predict_proba(new)
    again = LLPClassifier.load(tmp_path / "model.safetensors")
    assert again.method is None
    np.testing.assert_array_equal(again.predict_proba(new), wanted)
    loaded = Model.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(new), wanted)


def test_auto_warns_where_bags_teach_nothing(caplog, steps):
    steps(20)
    rng = np.random.default_rng(0)
    bags, x = np.arange(400) // 20, rng.normal(size=(400, 3))
    shares = rng.random(20)
    table = dict(enumerate(np.stack([shares, 1 - shares], axis=1)))
    LLPClassifier("auto", random_state=0).fit(x, bags=bags, proportions=table)
    assert "perhaps nothing can be learned" in caplog.text


def test_auto_takes_no_net_and_no_options_of_one(caplog, steps):
    steps(1)
    with pytest.raises(ConfigError, match="the method 'auto' chooses its nets itself"):
        LLPClassifier("auto", model="mlp").fit([[0.0], [1.0]], ["a", "b"])
    found = LLPClassifier("auto", eta=3, epochs=1, net_options={"hidden": (3,)})
    found.fit([[0.0], [1.0]] * 5, ["a", "b"] * 5)
    assert "epochs, net_options, eta are ignored: they have no meaning for the method 'auto'" in (
        caplog.text
    )
    assert str(found.plan_.method) == "auto (given; epochs, net_options, eta are ignored)"


def test_fit_refuses_auto_by_its_name():
    with pytest.raises(ConfigError, match="auto"):
        method_named("auto")


# -------------------------------------------------------------------------------- a frozen net


def backbone() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2))


def test_a_frozen_net_gets_a_linear_layer_and_is_saved_loaded_and_tuned(tmp_path):
    images, fresh, own = image_bags(), image_bags(seed=1), backbone()
    truth = np.empty(len(fresh.x), int)
    truth[fresh.index] = fresh.truth
    frozen = LLPClassifier("mean-map", model=own, random_state=0, device="cpu")
    frozen.fit(images.without_truth())
    assert (frozen.predict(fresh.x) == truth).mean() > 0.8
    assert "stays as it is" in str(frozen.plan_)
    assert len(frozen.history_.records) == 1
    assert frozen.pseudo_labels_.shape == images.index.shape
    assert all(p.grad is None for p in own.parameters())
    net: Any = frozen.model_.net
    assert net[0] is not own  # a copy
    frozen.save(tmp_path / "model.safetensors")
    like = nn.Sequential(backbone(), nn.Flatten(), nn.Linear(64, 3))
    loaded = LLPClassifier.load(tmp_path / "model.safetensors", net=like, device="cpu")
    expected = frozen.predict_proba(fresh.x)
    np.testing.assert_array_equal(loaded.predict_proba(fresh.x), expected)
    model = Model.load(tmp_path / "model.safetensors", net=like, device="cpu")
    np.testing.assert_array_equal(model.predict_proba(fresh.x), expected)
    with pytest.raises(RunError, match="net="):
        Model.load(tmp_path / "model.safetensors")
    about: Any = {"epochs": 2, "learning_rate": 1e-4, "random_state": 0, "device": "cpu"}
    tuned = LLPClassifier(FPL(first="mean-map"), model=frozen.model_.net, **about)
    tuned.fit(images.without_truth())
    assert (tuned.predict(fresh.x) == truth).mean() > 0.8


def test_held_out_bags_of_a_frozen_net_are_reported():
    images = image_bags(n_bags=20)
    options: dict[str, Any] = {"validation_fraction": 0.25, "random_state": 0, "device": "cpu"}
    classifier = LLPClassifier("mean-map", model=backbone(), **options).fit(images)
    record = classifier.history_.records[0]
    assert record["valid_accuracy"] > 0.8
    assert 0 <= record["valid_error"] < 0.2


def test_mean_map_of_signals_is_learned_on_summaries_and_saved(tmp_path):
    bags, fresh = signal_bags(), signal_bags(seed=1)
    frames, lengths = (part[fresh.index] for part in fresh.x)
    assert frames.shape[2] == bags.parts[0].shape[2]  # any length will do
    classifier = LLPClassifier("mean-map", random_state=0, device="cpu")
    classifier.fit(bags.without_truth())
    assert "summary (the instances are signals" in str(classifier.plan_)
    expected = classifier.predict_proba((frames, lengths))
    assert (expected.argmax(axis=1) == fresh.truth).mean() > 0.9
    classifier.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba((frames, lengths)), expected)
    with pytest.raises(ConfigError, match="a linear layer on summaries keeps no folder"):
        LLPClassifier("mean-map", run=tmp_path / "run").fit(bags)


def test_signals_begin_from_summaries_by_default():
    options: dict[str, Any] = {"epochs": 1, "random_state": 0, "device": "cpu", "model": "summary"}
    classifier = LLPClassifier(**options).fit(signal_bags())
    assert "method        fpl-mean-map (the default" in str(classifier.plan_)
    assert classifier.history_["label_accuracy"][0] > 0.9
    as_published = LLPClassifier("fpl", **options).fit(signal_bags())
    assert as_published.history_["label_accuracy"][0] < 0.7


def test_mean_map_of_images_asks_for_a_net():
    images = image_bags()
    with pytest.raises(ConfigError, match=r"(?s)mean-map is for tables.*images.*model="):
        LLPClassifier("mean-map").fit(images)
    with pytest.raises(ConfigError, match=r"(?s)model is 'resnet18'.*nn.Module.*features"):
        LLPClassifier("mean-map", model="resnet18").fit(images)
    with pytest.raises(ConfigError, match="model is"):
        LLPClassifier("linear", model=backbone()).fit(images)


def test_a_backbone_without_a_head_is_refused_by_fit_with_the_layer_that_it_needs():
    remedy = r"nn.Sequential\(net, nn.Flatten\(\), nn.Linear\(64, 3\)\)"
    with pytest.raises(ConfigError, match=remedy):
        LLPClassifier("fpl", model=backbone(), epochs=1).fit(image_bags())


def test_options_of_nets_are_ignored_by_a_frozen_one_and_that_is_said(caplog):
    with caplog.at_level(logging.WARNING, "apportion"):
        LLPClassifier("mean-map", model=backbone(), epochs=3, device="cpu").fit(image_bags())
    assert "epochs is ignored" in caplog.text
