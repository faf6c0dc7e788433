"""Searches that lose the bags fail, and say what to do, whichever way they lose them."""

import numpy as np
import pytest
import sklearn
import torch
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    RandomizedSearchCV,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.utils.data import TensorDataset

from apportion import BagKFold, LLPClassifier, proportion_scorer
from tests.estimator.test_classifier import problem

X, BAGS, TABLE, NAMES = problem(n_bags=12)


def make(*, piped=False, fit=True, score=True):
    classifier = LLPClassifier("ridge", random_state=0)
    classifier.set_fit_request(bags=fit, proportions=fit)
    classifier.set_score_request(bags=score, proportions=score)
    return make_pipeline(StandardScaler(), classifier) if piped else classifier


def given(piped, routing, **known):
    """Name what is passed as scikit-learn wants it: without routing by the step."""
    return {f"llpclassifier__{n}" if piped and not routing else n: v for n, v in known.items()}


def run(tool, classifier, known, piped, **options):
    """Search or validate with whole bags."""
    cv = GroupKFold(3)
    routing = sklearn.get_config()["enable_metadata_routing"]
    if tool in (cross_val_score, cross_validate):
        params = {**known, "groups": BAGS} if routing else known
        options |= {} if routing else {"groups": BAGS}
        return tool(classifier, X, options.pop("y", None), cv=cv, params=params, **options)
    grid = {("llpclassifier__" if piped else "") + "method": ["ridge", "mean-map"]}
    more = {"n_iter": 2} if tool is RandomizedSearchCV else {}
    y = options.pop("y", None)
    return tool(classifier, grid, cv=cv, **more, **options).fit(X, y, groups=BAGS, **known)


TOOLS = [GridSearchCV, RandomizedSearchCV, cross_val_score, cross_validate]


@pytest.mark.parametrize("piped", [False, True], ids=["alone", "pipeline"])
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
@pytest.mark.parametrize("scoring", [None, proportion_scorer], ids=["score", "scorer"])
def test_without_routing_the_search_says_how_to_enable_it(tool, piped, scoring):
    classifier = LLPClassifier("ridge", random_state=0)
    classifier = make_pipeline(StandardScaler(), classifier) if piped else classifier
    known = given(piped, False, bags=BAGS, proportions=TABLE)
    with pytest.raises(ValueError, match="fits failed") as caught:
        run(tool, classifier, known, piped, scoring=scoring)
    for words in ("to fit, but not to score", "enable_metadata_routing=True", "set_fit_request"):
        assert words in str(caught.value)


@pytest.mark.parametrize("piped", [False, True], ids=["alone", "pipeline"])
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
@pytest.mark.parametrize("lost", ["fit", "score", "all"])
def test_with_routing_the_search_says_what_to_request(tool, piped, lost):
    with sklearn.config_context(enable_metadata_routing=True):
        known = {} if lost == "all" else {"bags": BAGS, "proportions": TABLE}
        classifier = make(piped=piped, **({} if lost == "all" else {lost: False}))
        with pytest.raises(ValueError, match="fits failed") as caught:
            run(tool, classifier, known, piped)
    assert "set_fit_request(bags=True, proportions=True)" in str(caught.value)
    assert "set_score_request(bags=True, proportions=True)" in str(caught.value)
    assert "set_config" not in str(caught.value)


def test_without_anything_the_search_says_so_too():
    with pytest.raises(ValueError, match=r"(?s)neither bags nor y.*enable_metadata_routing=True"):
        run(GridSearchCV, LLPClassifier(), {}, False)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
@pytest.mark.parametrize("routing", [False, True], ids=["not routed", "routed"])
def test_labels_are_nothing_to_score_proportions_by(tool, routing):
    classifier = LLPClassifier("ridge", random_state=0)
    with (
        sklearn.config_context(enable_metadata_routing=routing),
        pytest.raises(ValueError, match=r"(?s)neither to fit nor to score.*bags= and proportions="),
    ):
        run(tool, classifier, {}, False, y=NAMES, scoring=proportion_scorer)


def test_rows_of_proportions_need_their_bags_as_well():
    rows = TABLE.loc[BAGS].to_numpy()
    with pytest.raises(ValueError, match="to fit, but not to score"):
        run(GridSearchCV, LLPClassifier(), {"bags": BAGS}, False, y=rows)


def test_labels_are_enough_to_score_by():
    known = {"bags": BAGS, "proportions": TABLE}
    found = run(GridSearchCV, LLPClassifier(random_state=0), known, False, y=NAMES)
    assert found.best_score_ > 0.8
    for tool in (cross_val_score, cross_validate):
        supervised = run(tool, LLPClassifier("ridge"), {}, False, y=NAMES)
        assert np.min(supervised if tool is cross_val_score else supervised["test_score"]) > 0.8


def test_a_scorer_of_ones_own_is_left_alone():
    def sure(estimator, X, y=None):
        return estimator.predict_proba(X).max(axis=1).mean()

    known = {"bags": BAGS, "proportions": TABLE}
    assert run(GridSearchCV, LLPClassifier(), known, False, scoring=sure).best_score_ > 0.5


def test_methods_with_and_without_eta_are_searched_together():
    known = {"bags": BAGS, "proportions": TABLE}
    grid = {"method": ["fpl", "proportion-loss", "ridge"], "eta": [0.01, 100.0]}
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(LLPClassifier(epochs=3, random_state=0), grid, cv=BagKFold(2))
        scores = search.fit(X, **known).cv_results_["mean_test_score"].reshape(2, 3)
    assert np.isfinite(scores).all()
    assert scores[0, 0] != scores[1, 0]  # η is used where there is one
    assert scores[0, 1:].tolist() == scores[1, 1:].tolist()


def test_options_of_nets_are_searched_as_a_whole():
    grid = {"net_options": [{"hidden": (4,)}, {"hidden": (8, 4)}]}
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(LLPClassifier(epochs=2, random_state=0), grid, cv=BagKFold(2))
        search.fit(X, bags=BAGS, proportions=TABLE)
    widths = search.best_estimator_.model_.net.recipe["hidden"]
    assert widths == list(search.best_params_["net_options"]["hidden"])


def test_one_folder_is_not_for_many_trainings(tmp_path):
    classifier = LLPClassifier("ridge", run=tmp_path / "run")
    with (
        sklearn.config_context(enable_metadata_routing=True),
        pytest.raises(ValueError, match=r"(?s)each needs a folder of its own.*set_params"),
    ):
        run(GridSearchCV, classifier, {"bags": BAGS, "proportions": TABLE}, False)
    assert not (tmp_path / "run").exists()


def test_a_dataset_is_not_cut_into_items_that_are_read_once():
    items = TensorDataset(torch.as_tensor(X))
    with pytest.raises(ValueError, match=r"(?s)cuts X, a TensorDataset.*Pass arrays"):
        GridSearchCV(LLPClassifier(), {"method": ["fpl"]}, cv=2).fit(items, NAMES)
