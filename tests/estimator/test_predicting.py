"""What a fitted classifier predicts under known counts, in logarithms, and in pipelines."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from apportion import BagError, Bags, ConfigError, DataError, LLPClassifier
from tests.estimator.test_classifier import problem


def test_probabilities_given_the_counts():
    X, bags, table, _ = problem()
    classifier = LLPClassifier("ridge", random_state=0).fit(X, bags=bags, proportions=table)
    new, their, known, truth = problem(seed=1)
    plain = classifier.predict_proba(new)
    found = classifier.predict_proba(new, bags=their, proportions=known)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    means = pd.DataFrame(found).groupby(their).mean()
    np.testing.assert_allclose(means, known.loc[means.index], atol=1e-9)
    right = (truth == "yes").astype(int)
    chosen = [p[np.arange(len(right)), right].clip(1e-12) for p in (found, plain)]
    assert np.log(chosen[0]).mean() > np.log(chosen[1]).mean()  # the counts say something
    odds = [p[:10, 1] / p[:10, 0].clip(1e-300) for p in (plain, found)]
    for bag in np.unique(their[:10]):  # the order within a bag stays
        own = their[:10] == bag
        assert np.array_equal(np.argsort(odds[0][own]), np.argsort(odds[1][own]))
    for ask in (classifier.predict_proba, classifier.predict):
        with pytest.raises(ConfigError, match="prevalence is given as well as bags"):
            ask(new, bags=their, proportions=known, prevalence=[0.5, 0.5])
    with pytest.raises(BagError, match="neither proportions nor y"):
        classifier.predict_proba(new, bags=their)


def test_logarithms_of_probabilities_may_be_infinite_without_a_warning():
    X, bags, table, _ = problem()
    classifier = LLPClassifier("ridge", random_state=0).fit(X, bags=bags, proportions=table)
    np.testing.assert_array_equal(
        classifier.predict_log_proba(X), np.log(classifier.predict_proba(X))
    )
    pure = table.copy()
    pure.iloc[0] = [1.0, 0.0]
    known: dict[str, Any] = {"bags": bags, "proportions": pure}
    found = classifier.predict_log_proba(X, **known)
    np.testing.assert_allclose(np.exp(found), classifier.predict_proba(X, **known))
    assert found[bags == pure.index[0]].tolist() == [[0.0, -np.inf]] * 10
    shifted = classifier.predict_log_proba(X, prevalence={"yes": 0.0})
    assert np.all(shifted == [0.0, -np.inf])


def test_a_score_without_anything_to_go_by_says_what_it_needs():
    X, bags, table, _ = problem()
    classifier = LLPClassifier("ridge", random_state=0).fit(X, bags=bags, proportions=table)
    with pytest.raises(BagError, match=r"(?s)neither labels y nor bags.*bags= and proportions="):
        classifier.score(X)


def test_a_pipeline_passes_known_counts_on_to_predictions():
    X, bags, table, _ = problem()
    known: dict[str, Any] = {"bags": bags, "proportions": table}
    pipeline = make_pipeline(StandardScaler(), LLPClassifier("ridge", random_state=0))
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline.fit(X, **known)
        labels, likely = pipeline.predict(X, **known), pipeline.predict_proba(X, **known)
        logs = pipeline.predict_log_proba(X, **known)
    found = pd.crosstab(bags, labels, normalize="index")
    np.testing.assert_allclose(found, table, atol=1e-9)
    means = pd.DataFrame(likely).groupby(bags).mean()
    np.testing.assert_allclose(means, table, atol=1e-9)
    np.testing.assert_allclose(np.exp(logs), likely)


def test_the_accuracy_is_over_the_rows_whose_label_is_known(caplog):
    X, bags, table, names = problem()
    classifier = LLPClassifier("ridge", random_state=0)
    unknown = np.random.default_rng(1).random(len(X)) < 0.4
    partly = names.astype(object)
    partly[unknown] = None
    classifier.fit(X, partly, bags=bags, proportions=table)
    right, weight = classifier.predict(X) == names, np.arange(1, len(X) + 1)
    expected = right[~unknown].mean()
    assert classifier.history_["train_accuracy"][-1] == pytest.approx(expected)
    caplog.set_level("INFO", logger="apportion")
    assert classifier.score(X, partly) == pytest.approx(expected)
    assert f"{(~unknown).sum()} of {len(X)} rows whose label is known" in caplog.text
    assert classifier.score(X, partly.tolist()) == pytest.approx(expected)
    weighted = np.average(right[~unknown], weights=weight[~unknown])
    assert classifier.score(X, partly, sample_weight=weight) == pytest.approx(weighted)
    with pytest.raises(BagError, match="none of 600 labels y is known"):
        classifier.score(X, [None] * len(X))
    with pytest.raises(ValueError, match="inconsistent numbers"):
        classifier.score(X, partly[1:])


@pytest.mark.parametrize("classes", [[0, 1], [-1, 1]])
def test_minus_one_is_an_unknown_label_unless_it_is_a_class(classes):
    X, bags, table, names = problem()
    own = table.set_axis(classes, axis=1)
    classifier = LLPClassifier("ridge", random_state=0).fit(X, bags=bags, proportions=own)
    truth = np.where(names == "yes", 1, -1)
    right = classifier.predict(X) == np.where(names == "yes", *classes[::-1])
    counted = right if -1 in classes else right[names == "yes"]
    assert classifier.score(X, truth) == counted.mean()
    if -1 not in classes:
        assert classifier.score(X, np.where(truth < 0, np.nan, 1.0)) == counted.mean()


def test_ids_of_another_type_or_range_than_those_learned_are_named():
    _, bags, table, _ = problem()
    ids = np.random.default_rng(0).integers(9, size=(len(bags), 2))
    net = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(6, 2))
    classifier = LLPClassifier(model=net, epochs=1, random_state=0)
    classifier.fit(ids, bags=bags, proportions=table)
    for dtype in (np.float64, np.uint8):
        with pytest.raises(DataError, match=r"(?s)of type .*trained on int64.*X\.astype") as caught:
            classifier.predict(ids.astype(dtype))
        assert np.dtype(dtype).name in str(caught.value)
    for given in (ids + 1, (ids + 1,), Bags.from_rows(ids + 1, bags, table)):
        with pytest.raises(DataError, match=r"Sequential cannot take X, of integers from 1 to 9"):
            classifier.predict_proba(given)


def test_an_error_of_a_net_of_ones_own_stays_what_it_is():
    class Fails(nn.Linear):
        def forward(self, x):
            if len(x) == 7:
                raise RuntimeError("of my own")
            return super().forward(x)

    X, bags, table, _ = problem()
    x = X.astype(np.float32)[:, None]
    net = nn.Sequential(nn.Flatten(), Fails(3, 2))
    classifier = LLPClassifier("fpl", model=net, epochs=1).fit(x, bags=bags, proportions=table)
    with pytest.raises(RuntimeError, match=r"^of my own$"):
        classifier.predict(x[:7])
