"""Any learner from bags: what it is fitted to, what it must not see, and what it learns."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from apportion.bags.bags import Bags
from apportion.errors import BagError, ConfigError
from apportion.labels.soft import soft_labels
from apportion.labels.start import random_labels
from apportion.learners.alternate import Round, alternate
from tests.labels.tables import table_bags

SMALL = HistGradientBoostingClassifier(max_iter=15, max_leaf_nodes=7)
LEARNERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "boosting": (SMALL, {}),
    "boosting, fpl": (SMALL, {"targets": "fpl", "rounds": 3}),
    "regression": (HistGradientBoostingRegressor(max_iter=15, max_leaf_nodes=7), {}),
    "forest": (RandomForestClassifier(20), {"rounds": 2}),
    "logistic": (LogisticRegression(), {}),
    "pipeline": (make_pipeline(StandardScaler(), LogisticRegression()), {}),
    "neighbours": (KNeighborsClassifier(15), {"targets": "fpl", "rounds": 3}),
}


class Spy(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that notes what it is fitted to and asked about."""

    fits: list = []  # noqa: RUF012 — clones share it
    asked: list = []  # noqa: RUF012

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        Spy.fits.append((X.copy(), y.copy(), sample_weight))
        return self

    def predict_proba(self, X):
        Spy.asked.append(X.copy())
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


@pytest.fixture
def spy():
    Spy.fits, Spy.asked = [], []
    return Spy()


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("classes", [2, 3])
def test_learners_learn(name, classes):
    learner, options = LEARNERS[name]
    bags = table_bags(900, classes=classes)
    found = alternate(learner, bags.without_truth(), **options)
    confidence = found.confidence(bags.x)
    np.testing.assert_allclose(confidence.sum(axis=1), 1, atol=1e-5)
    assert confidence.min() >= 0
    accuracy = (confidence[bags.index].argmax(axis=1) == bags.truth).mean()
    assert accuracy > {2: 0.85, 3: 0.75}[classes]
    assert not hasattr(learner, "n_features_in_")  # clones are fitted


def test_better_than_its_linear_start_where_the_rule_is_not_linear():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (4000, 2))
    truth = ((x**2).sum(axis=1) + 0.3 * x[:, 0] < 0.6).astype(int)
    bag = np.empty(4000, int)
    bag[np.argsort(truth + 1.5 * rng.random(4000))] = np.arange(4000) // 20
    bags = Bags.from_rows(x, bag, truth=truth)
    found = alternate(SMALL, bags.without_truth()).confidence(x).argmax(axis=1)
    assert (found == truth).mean() > 0.9


def test_soft_targets_enter_once_per_class_with_their_weights(spy):
    bags = table_bags(60, categories=False)
    confidence = np.random.default_rng(0).dirichlet([1, 1], 60)
    alternate(spy, bags, first=confidence, rounds=1, folds=1)
    ((x, y, weights),) = spy.fits
    assert len(x) > 60
    wanted = soft_labels(confidence, bags)
    wanted = np.where(wanted > 1e-4, wanted, 0)
    found = np.zeros_like(wanted)
    rows = {tuple(row): j for j, row in enumerate(spy.asked[0])}
    for row, label, weight in zip(x, y, weights, strict=True):
        found[rows[tuple(row)], label] += weight
    np.testing.assert_allclose(found, wanted)


def test_rows_of_a_held_out_bag_are_never_learned_from(spy):
    """Also not by way of another bag in which they stand."""
    rng = np.random.default_rng(0)
    members = [rng.choice(40, 4, replace=False) for _ in range(12)]
    x = np.arange(40.0)[:, None]
    bags = Bags.from_members(x, members, truth=rng.integers(0, 2, 40))
    alternate(spy, bags, first="random", rounds=4, folds=3)
    assert len(spy.fits) == len(spy.asked) == 12
    for (seen, _, _), judged in zip(spy.fits, spy.asked, strict=True):
        assert not set(seen[:, 0]) & set(judged[:, 0])
    for i in range(0, 12, 3):  # every instance is judged once in every round
        assert sum(map(len, spy.asked[i : i + 3])) == 48


def test_one_fold_learns_from_all_rows(spy):
    bags = table_bags(50, categories=False)
    alternate(spy, bags, first="random", targets="fpl", rounds=2, folds=1)
    assert [len(seen) for seen, _, _ in spy.fits] == [50, 50]
    assert spy.fits[0][1].tolist() == random_labels(bags, 0).tolist()
    assert spy.fits[0][2] is None


def test_folds_that_leave_nothing_are_refused(spy):
    bags = Bags.from_members(np.eye(4), [[0, 1, 2, 3]] * 3, [[0.5, 0.5]] * 3)
    with pytest.raises(ConfigError, match=r"(?s)leaves no row to learn from.*folds=1"):
        alternate(spy, bags, first="random")


def test_folds_of_one_class_do_not_stop_it():
    x = np.arange(8.0)[:, None]
    bags = Bags.from_rows(x, np.arange(8) // 2, np.array([[2, 0], [2, 0], [2, 0], [0, 2]]),
                          counts=True)  # fmt: skip
    confidence = alternate(LogisticRegression(), bags, rounds=2).confidence(x)
    np.testing.assert_allclose(confidence.sum(axis=1), 1, atol=1e-5)
    three = Bags.from_rows(x, np.arange(8) // 2, np.array([[2, 0, 0], [0, 0, 2]] * 2), counts=True)
    assert alternate(LogisticRegression(), three).confidence(x)[:, 1].max() == 0


@pytest.mark.parametrize("targets", ["soft", "fpl"])
def test_the_seed_decides_everything(targets):
    bags = table_bags(200)
    learner = RandomForestClassifier(5)
    first, again, other = (
        alternate(learner, bags, targets=targets, rounds=2, seed=seed).confidence(bags.x)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert learner.random_state is None


def test_a_random_state_of_the_user_stays():
    found = alternate(RandomForestClassifier(2, random_state=7), table_bags(100), rounds=1)
    assert {member.learner.random_state for member in found.members} == {7}


def test_rows_that_enter_twice_do_not_switch_early_stopping_on(monkeypatch):
    monkeypatch.setattr("apportion.learners.alternate.MANY", 150)
    bags = table_bags(150)
    for folds, stops in ((1, False), (2, False)):
        found = alternate(SMALL, bags, rounds=1, folds=folds)
        assert {member.learner.early_stopping for member in found.members} == {stops}
    monkeypatch.setattr("apportion.learners.alternate.MANY", 149)
    (member,) = alternate(SMALL, bags, rounds=1, folds=1).members
    assert member.learner.early_stopping is True


def test_rounds_are_told_and_the_last_ones_kept(spy):
    told: list[Round] = []
    found = alternate(spy, table_bags(60), rounds=5, folds=2, on_round=told.append)
    assert [one.number for one in told] == [1, 2, 3, 4, 5]
    assert [one.rounds for one in told] == [5] * 5
    assert isinstance(found.learner, type(spy))
    assert all(0 <= one.proportion_error <= 1 and 0 <= one.changed <= 1 for one in told)
    assert len(found.members) == 3 * 2


def test_labels_of_the_caller_start_it(spy):
    bags = table_bags(50, categories=False)
    labels = random_labels(bags, 5)
    alternate(spy, bags, first=labels, targets="fpl", rounds=1, folds=1)
    assert spy.fits[0][1].tolist() == labels.tolist()
    with pytest.raises(BagError, match="the first labels"):
        alternate(spy, bags, first=labels[:-1])


@pytest.mark.parametrize(
    ("learner", "options", "says"),
    [
        (LinearSVC(), {}, "LinearSVC has no predict_proba"),
        (LogisticRegression, {}, "LogisticRegression has no predict_proba, for it is a class"),
        (KNeighborsClassifier(), {}, "(?s)takes no sample_weight.*targets='fpl'"),
        (LinearRegression(), {"targets": "fpl"}, "(?s)is a regressor.*targets='soft'"),
        (SMALL, {"targets": "hard"}, "targets must be 'soft' or 'fpl'; got 'hard'"),
        (
            SMALL,
            {"first": "decide"},
            "first must be 'random', 'linear', 'mean-map', 'ridge', confidences",
        ),
        (SMALL, {"rounds": 0}, "rounds must be an integer ≥ 1; got 0"),
        (SMALL, {"folds": 0}, "folds must be an integer ≥ 1; got 0"),
        (SMALL, {"first": np.ones((3, 2))}, "confidence must be floats of shape"),
    ],
)
def test_what_cannot_learn_is_refused_with_a_remedy(learner, options, says):
    with pytest.raises(ConfigError, match=says):
        alternate(learner, table_bags(20), **options)


def test_bags_that_are_alike_are_warned_of(caplog):
    x = np.random.default_rng(0).normal(size=(90, 1))
    bags = Bags.from_rows(x, np.arange(90) // 9, np.full((10, 2), 0.5))
    alternate(LogisticRegression(), bags, rounds=1)
    assert [m[:43] for m in caplog.messages] == ["The bags' proportions are nearly identical "]
