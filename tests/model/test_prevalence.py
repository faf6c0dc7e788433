"""Probabilities for another prevalence: Bayes' rule, and what is asked for."""

import numpy as np
import pandas as pd
import pytest

from apportion import Bags, ConfigError, LLPClassifier, Model, RunError
from apportion.model.prevalence import read_prevalence, shifted
from apportion.runs.header import metadata, seal


def gaussians(shares, n=4000, seed=0):
    """Rows of three classes around 0, 2 and 4, as frequent as asked."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(3, size=n, p=shares)
    return rng.normal(size=(n, 1)) + 2 * truth[:, None], truth


def by_density(x, shares):
    """The probabilities that follow from the densities themselves."""
    likely = np.exp(-0.5 * (x - [0, 2, 4]) ** 2) * shares
    return likely / likely.sum(axis=1, keepdims=True)


def test_the_probabilities_of_one_population_become_those_of_another():
    before, after = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.1, 0.8])
    x, _ = gaussians(after)
    found = shifted(by_density(x, before), before, after, "abc")
    np.testing.assert_allclose(found, by_density(x, after), atol=1e-12)


def test_a_trained_model_is_calibrated_in_the_other_population():
    shares = np.array([0.5, 0.3, 0.2])
    X, truth = gaussians(shares)
    order = np.argsort(truth + np.random.default_rng(1).normal(size=len(truth)))
    bags = np.empty(len(X), int)
    bags[order] = np.arange(len(X)) // 20  # bags that differ
    classifier = LLPClassifier("linear", random_state=0).fit(X, truth, bags=bags)
    after = [0.1, 0.1, 0.8]
    new, theirs = gaussians(after, seed=1)
    plain, adjusted = (classifier.predict_proba(new, prevalence=p) for p in (None, after))
    assert np.abs(adjusted.mean(axis=0) - after).max() < 0.05
    assert np.abs(plain.mean(axis=0) - after).max() > 0.1
    assert np.mean(classifier.predict(new, prevalence=after) == theirs) > np.mean(
        classifier.predict(new) == theirs
    )
    same = classifier.predict_proba(new, prevalence=np.bincount(truth) / len(truth))
    np.testing.assert_allclose(same, plain, atol=1e-9)


@pytest.mark.parametrize(
    "given",
    [{"no": 0.8, "yes": 0.2}, {"yes": 0.2}, [0.8, 0.2], pd.Series({"yes": 0.2, "no": 0.8})],
    ids=["dict", "the rest", "list", "series"],
)
def test_shares_are_read_by_name_or_in_order(given):
    np.testing.assert_allclose(read_prevalence(given, ["no", "yes"]), [0.8, 0.2])


def test_classes_are_found_however_they_are_written():
    assert read_prevalence({"1": 0.2, "0": 0.8}, [0, 1]).tolist() == [0.8, 0.2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"yse": 0.2}, "'yse'.*Did you mean 'yes'"),
        ({}, "says nothing of no, yes"),
        ([0.1, 0.2], "sum to 1, not 0.3"),
        ({"yes": 1.2}, "no -0.2, yes 1.2"),
        ([0.2, 0.3, 0.5], r"shape \(3,\), but there are 2 classes: no, yes"),
        (0.2, r"shape \(\)"),
        ("many", "'many'"),
        ({"yes": "many"}, "many"),
        ({"yes": float("nan")}, "nan"),
    ],
)
def test_shares_that_make_no_sense_are_named(given, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        read_prevalence(given, ["no", "yes"])


def test_classes_that_training_did_not_have_cannot_be_adjusted():
    confidence = np.array([[0.7, 0.3, 0.0]])
    before = np.array([0.5, 0.5, 0.0])
    with pytest.raises(ConfigError, match="class 'c' was not in the training bags"):
        shifted(confidence, before, np.array([0.5, 0.4, 0.1]), "abc")
    found = shifted(confidence, before, np.array([0.0, 1.0, 0.0]), "abc")
    assert found.tolist() == [[0, 1, 0]]
    sure = np.array([[1.0, 0.0, 0.0]])
    assert shifted(sure, before, np.array([0.0, 1.0, 0.0]), "abc").tolist() == [[0, 1, 0]]


def fitted(**options):
    rng = np.random.default_rng(0)
    X, bags = rng.normal(size=(60, 2)), np.arange(60) // 10
    shares = {b: [b / 10, 1 - b / 10] for b in range(6)}
    classifier = LLPClassifier(random_state=0, **options)
    return classifier.fit(X, bags=bags, proportions=shares), X


@pytest.mark.parametrize("options", [{"method": "ridge"}, {"epochs": 2}], ids=["table", "net"])
def test_files_and_runs_remember_the_prevalence_of_training(tmp_path, options):
    classifier, X = fitted(**options, run=tmp_path / "run")
    classifier.save(tmp_path / "model")
    expected = classifier.predict_proba(X, prevalence={0: 0.9})
    assert classifier.model_.prevalence == pytest.approx((0.25, 0.75))
    sources = [tmp_path / "model", tmp_path / "run"]
    for path in sources:
        np.testing.assert_allclose(
            Model.load(path).predict_proba(X, prevalence=[0.9, 0.1]), expected, atol=1e-7
        )
    if "epochs" in options:
        last = Model.load(tmp_path / "run", last=True)
        assert last.prevalence == classifier.model_.prevalence


def test_a_model_that_does_not_know_says_so():
    classifier, X = fitted(method="ridge")
    model = classifier.model_
    old = Model(model.net, model.classes, model.parts, columns=model.columns)
    assert old.predict_proba(X).shape == (60, 2)
    with pytest.raises(ConfigError, match=r"(?s)how frequent the classes were.*prevalence="):
        old.predict_proba(X, prevalence=[0.5, 0.5])


@pytest.mark.parametrize(
    "damage", [[0.5], [0.5, "a"], [0.9, 0.9], [True, 0.0], [-0.5, 1.5], "ab", [float("nan"), 1.0]]
)
def test_a_damaged_prevalence_is_refused(tmp_path, damage):
    from safetensors.torch import save_file

    classifier, _ = fitted(method="ridge")
    model, path = classifier.model_, tmp_path / "model"
    header = {
        "classes": list(model.classes),
        "parts": model.parts,
        "columns": model.columns.to_dict(),
        "recipe": model.net.recipe,
        "epoch": 1,
        "prevalence": damage,
    }
    save_file(dict(model.net.state_dict()), path, metadata("model", header))
    seal(path)
    with pytest.raises(RunError, match="damaged header: prevalence"):
        Model.load(path)


def test_bags_of_other_sizes_count_by_their_instances():
    bags = Bags.from_rows(np.eye(4), ["a", "b", "b", "b"], {"a": [1, 0], "b": [0, 1]})
    from apportion.nets.build import build_net

    assert Model.trained_on(bags, build_net("mlp", bags)).prevalence == (0.25, 0.75)
