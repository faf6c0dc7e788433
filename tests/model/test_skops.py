"""Learners as bytes: the same predictions, and no other type or broken tree is loaded."""

import io
import json
import os
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import FunctionTransformer

from apportion.errors import RunError
from apportion.learners.alternate import alternate
from apportion.model import _skops as file
from apportion.model._skops import dump, load
from tests.labels.tables import table_bags

skops = pytest.importorskip("skops.io")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
FRAME = pd.DataFrame(X, columns=list("abc"))
FRAME["job"] = pd.Categorical.from_codes(RNG.integers(-1, 5, 300), pd.Index([1, 2, 3, 4, 5]))
FRAME.loc[::7, "a"] = np.nan
LEARNERS = [
    (HistGradientBoostingClassifier(max_iter=5), FRAME, Y),
    (HistGradientBoostingClassifier(max_iter=5, early_stopping=True), FRAME, Y > 0),
    (HistGradientBoostingRegressor(max_iter=5, random_state=3), FRAME, Y / 2),
    (MultiOutputRegressor(HistGradientBoostingRegressor(max_iter=3)), X, np.eye(3)[Y]),
    (RandomForestClassifier(5), X, Y),
    (RandomForestRegressor(5), X, Y / 2),
    (ExtraTreesClassifier(5), X, Y),
    (ExtraTreesRegressor(5), X, np.eye(3)[Y]),
    (LogisticRegression(), X, Y),
    (DummyClassifier(), X, Y),
]


@pytest.mark.parametrize(("learner", "x", "y"), LEARNERS, ids=lambda v: type(v).__name__)
def test_predictions_survive(learner, x, y):
    learner.fit(x, y)
    for again in (load(dump(learner)), load(dump([learner, learner]))[1]):
        name = "predict_proba" if hasattr(learner, "predict_proba") else "predict"
        np.testing.assert_array_equal(getattr(again, name)(x), getattr(learner, name)(x))


@pytest.mark.parametrize(
    "learner", [HistGradientBoostingClassifier(max_iter=4), RandomForestClassifier(3)]
)
def test_members_of_bags_are_saved(learner):
    bags = table_bags(150)
    found = alternate(learner, bags, rounds=1)
    table = found.inputs.table(bags.x)
    again = load(dump([member.learner for member in found.members]))
    for one, member in zip(again, found.members, strict=True):
        np.testing.assert_array_equal(one.predict_proba(table), member.learner.predict_proba(table))


@pytest.mark.parametrize(
    ("learner", "names"),
    [
        (KNeighborsClassifier().fit(X, Y), "KNeighborsClassifier"),
        (FunctionTransformer(os.system), "system"),
        (lambda x: x, "function"),
    ],
)
def test_other_learners_are_not_saved_and_the_error_says_what_to_do(learner, names):
    with pytest.raises(RunError, match=f"(?s){names}.*joblib"):
        dump(learner)


def test_other_types_are_not_loaded_and_named():
    """Even those that skops itself trusts, or takes without trust."""
    hostile = {
        "KNeighborsClassifier": KNeighborsClassifier().fit(X, Y),
        "posix.system|nt.system": FunctionTransformer(os.system),
        "functools.reduce": FunctionTransformer(__import__("functools").reduce),
    }
    for name, learner in hostile.items():
        with pytest.raises(RunError, match=f"(?s)names the type .*({name})"):
            load(skops.dumps(learner))


def rewritten(data, change):
    """The same file with another tree of types."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.namelist():
            text = old.read(entry)
            new.writestr(entry, change(text) if entry == "schema.json" else text)
    return made.getvalue()


def test_a_loader_is_only_used_for_its_own_types():
    data = dump(LogisticRegression().fit(X, Y))

    def swap(text):
        tree = json.loads(text)
        tree["__module__"], tree["__class__"], tree["__loader__"] = "os", "system", "FunctionNode"
        return json.dumps(tree)

    with pytest.raises(RunError, match=r"os\.system"):
        load(rewritten(data, swap))


@pytest.mark.parametrize("data", [b"", b"PK", b"not a zip at all"])
def test_what_is_no_file_of_ours_is_refused(data):
    with pytest.raises(RunError, match="no saved learner"):
        load(data)


def test_damaged_files_are_refused():
    data = dump(RandomForestClassifier(2).fit(X, Y))
    for change in (lambda t: b"[]", lambda t: b"{}", lambda t: t[:-5], lambda t: b"[" * 100_000):
        with pytest.raises(RunError, match="no saved learner"):
            load(rewritten(data, change))


def test_files_that_unpack_to_too_much_are_refused(monkeypatch):
    data = dump(LogisticRegression().fit(X, Y))
    monkeypatch.setattr(file, "MOST_BYTES", 100)
    with pytest.raises(RunError, match="more than 100"):
        load(data)


def test_a_list_of_something_else_is_refused():
    with pytest.raises(RunError, match="predicts nothing"):
        load(skops.dumps([{"a": 1}]))


@pytest.mark.parametrize("field", ["left", "feature_idx", "bitset_idx", "is_categorical"])
def test_boosted_trees_that_lead_out_are_refused(field):
    learner = HistGradientBoostingClassifier(max_iter=3).fit(FRAME, FRAME["job"].isna() | (Y > 1))
    load(dump(learner))
    nodes = learner._predictors[0][0].nodes
    sets = (nodes["is_leaf"] == 0) & (nodes["is_categorical"] == 1)
    assert sets.any()
    number = (nodes["is_leaf"] == 0) & (nodes["is_categorical"] == 0)
    if field == "is_categorical":
        nodes[field][np.flatnonzero(number)[0]] = 1
    else:
        nodes[field][np.flatnonzero(sets)[0]] = 1000
    with pytest.raises(RunError, match="a tree"):
        load(dump(learner))


def test_forests_whose_trees_have_other_features_are_refused():
    learner = RandomForestClassifier(2).fit(X, Y)
    learner.estimators_[1].n_features_in_ = 2
    with pytest.raises(RunError, match="feature"):
        load(dump(learner))
