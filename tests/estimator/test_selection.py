"""Folds of whole bags, and scores without labels, in scikit-learn's searches."""

import copy

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from apportion import BagError, BagKFold, Bags, ConfigError, LLPClassifier, proportion_scorer
from tests.estimator.test_classifier import problem


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def held_out(splitter, ids, **options):
    """Which bags each fold holds out, after a check that bags stay whole."""
    ids = np.asarray(ids, dtype=object)
    found = []
    for train, test in splitter.split(np.zeros(len(ids)), **(options or {"bags": ids})):
        assert not set(ids[train]) & set(ids[test])
        assert sorted([*train, *test]) == list(range(len(ids)))
        found.append(frozenset(ids[test]))
    return found


def test_bags_stay_whole_and_folds_have_as_many():
    ids = np.repeat([f"bag {i}" for i in range(11)], np.arange(1, 12))
    folds = held_out(BagKFold(3), ids)
    assert sorted(map(len, folds)) == [3, 4, 4]
    assert frozenset.union(*folds) == set(ids)
    assert BagKFold(3).get_n_splits(ids, bags=ids) == 3


def test_folds_depend_on_names_and_seed_alone():
    ids = np.repeat(np.arange(12), 3)
    rng = np.random.default_rng(0)
    folds = held_out(BagKFold(4, random_state=1), ids)
    assert held_out(BagKFold(4, random_state=1), rng.permutation(ids)) == folds
    assert held_out(BagKFold(4, random_state=2), ids) != folds
    texts = held_out(BagKFold(4, random_state=1), ids.astype(str))
    assert [{int(name) for name in fold} for fold in texts] == folds
    assert held_out(BagKFold(4, random_state=1), ids, groups=ids) == folds


def test_folds_that_cannot_be_made_are_named():
    with pytest.raises(BagError, match=r"(?s)no bags.*enable_metadata_routing.*groups="):
        next(BagKFold().split(np.zeros(3)))
    with pytest.raises(BagError, match=r"(?s)4 bags cannot be in 5 folds.*n_splits=4"):
        next(BagKFold().split(np.zeros(4), bags=list("abcd")))
    with pytest.raises(BagError, match="at least two bags"):
        next(BagKFold().split(np.zeros(2), bags=list("aa")))
    with pytest.raises(BagError, match="x has 3 rows, but the bag ids are of shape"):
        next(BagKFold().split(np.zeros(3), bags=list("ab")))
    for n in (1, 2.5, "3", None, True, np.arange(3)):
        with pytest.raises(ConfigError, match="n_splits must be an integer ≥ 2"):
            BagKFold(n)  # type: ignore[arg-type]
    assert BagKFold(np.int64(3)).n_splits == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("search", [GridSearchCV, RandomizedSearchCV])
@pytest.mark.parametrize("piped", [False, True], ids=["alone", "pipeline"])
def test_a_search_needs_no_label_and_no_request(routing, search, piped):
    X, bags, table, names = problem(n_bags=30)
    classifier = LLPClassifier("linear", random_state=0)
    grid = {"method": ["linear", "ridge"]}
    if piped:
        classifier = make_pipeline(StandardScaler(), classifier)
        grid = {f"llpclassifier__{name}": values for name, values in grid.items()}
    more = {"n_iter": 2} if search is RandomizedSearchCV else {}
    scores = []
    for scoring in (None, proportion_scorer):
        found = search(classifier, grid, cv=BagKFold(3), scoring=scoring, **more)
        found.fit(X, bags=bags, proportions=table)
        assert np.mean(found.predict(X) == names) > 0.9
        scores.append(found.cv_results_["mean_test_score"])
    assert np.all((scores[0] < 0) & (scores[0] > -0.2))
    np.testing.assert_array_equal(*scores)


def test_labels_do_not_change_the_score(routing):
    X, bags, table, names = problem(n_bags=20)
    known = {"bags": bags, "proportions": table}
    options = {"cv": BagKFold(2), "scoring": proportion_scorer, "params": known}
    classifier = LLPClassifier("ridge", random_state=0)
    without = cross_val_score(classifier, X, **options)
    wrong = np.where(names == "no", "yes", "no")
    np.testing.assert_array_equal(cross_val_score(classifier, X, wrong, **options), without)


def test_any_classifier_is_scored():
    X, bags, table, names = problem()
    learner = LogisticRegression().fit(X, names)
    found = proportion_scorer(learner, X, bags=bags, proportions=table)
    confidence = learner.predict_proba(X)
    errors = [
        abs(confidence[bags == bag].mean(axis=0) - table.loc[bag]).sum() / 2 for bag in table.index
    ]
    assert found == pytest.approx(-np.mean(errors))
    shifted = table[["yes", "no"]]  # classes are matched by name
    assert proportion_scorer(learner, X, bags=bags, proportions=shifted) == pytest.approx(found)
    classifier = LLPClassifier("ridge", random_state=0).fit(X, bags=bags, proportions=table)
    known = Bags.from_rows(X.astype(np.float32), bags, table)
    assert proportion_scorer(classifier, known) == classifier.score(known)


def test_both_can_be_copied():
    again = copy.deepcopy((proportion_scorer, BagKFold(3, random_state=7)))
    assert repr(again) == "(proportion_scorer, BagKFold(n_splits=3, random_state=7))"


def test_a_scorer_without_bags_says_that_it_is_they_that_it_needs():
    X, _, _, names = problem()
    learner = LogisticRegression().fit(X, names)
    with pytest.raises(BagError, match=r"(?s)given no bags.*labels y are not used.*routing=True"):
        proportion_scorer(learner, X, names)
