"""Learners as a `Model`: the same predictions everywhere, and files that lie are refused."""

import json
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import FunctionTransformer

from apportion.bags.bags import Bags
from apportion.data.encoding import encode, learn_columns
from apportion.errors import DataError, RunError
from apportion.learners.alternate import alternate
from apportion.model import learner as learner_file
from apportion.model.learner import Ensemble, LearnerNet, Member, is_learner
from apportion.model.model import Model, describe_parts
from tests.faults.damaged_runs import TENSORS, VALUES, changed, paths_into, read_parts, write_parts
from tests.labels.tables import table_bags

skops = pytest.importorskip("skops.io")

BOOSTING = HistGradientBoostingClassifier(max_iter=4, max_leaf_nodes=5, random_state=0)
FOREST = RandomForestClassifier(4, max_depth=3, random_state=0)
LEARNERS = [
    BOOSTING,
    HistGradientBoostingRegressor(max_iter=3, max_leaf_nodes=5),
    FOREST,
    ExtraTreesClassifier(3, max_depth=3),
    LogisticRegression(),
]


def wards(n=120, classes=2, seed=0):
    """Rows of a table with gaps and categories, in bags."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=n)
    frame = pd.DataFrame({"age": truth + rng.normal(size=n), "n": np.arange(n)})
    frame["job"] = np.array(["cook", "nurse", None, "clerk"])[(truth + rng.integers(2, size=n)) % 4]
    frame.loc[::9, "age"] = np.nan
    columns = learn_columns(frame)
    bags = Bags.from_rows(encode(columns, frame), np.arange(n) // 6, truth=truth)
    return frame, bags.with_rows(bags.x, columns)


def model_of(learner, bags, device="cpu", **options):
    found = alternate(learner, bags, **{"rounds": 1, "folds": 2, **options})
    about: dict[str, Any] = {"columns": bags.columns, "epoch": 1, "device": device}
    return Model(LearnerNet(found), bags.classes, describe_parts(bags), **about), found


def ensemble_of(model) -> Ensemble:
    assert isinstance(model.net, LearnerNet)
    return model.net.ensemble


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("learner", LEARNERS, ids=lambda v: type(v).__name__)
def test_predictions_are_those_of_the_members_and_survive_a_file(tmp_path, learner, classes):
    frame, bags = wards(classes=classes)
    model, found = model_of(learner, bags)
    model.save(tmp_path / "a.safetensors")
    table = found.inputs.table(bags.x)
    expected = np.mean([one.confidence(table, classes) for one in found.members], axis=0)
    again = Model.load(tmp_path / "a.safetensors", device="cpu")
    for one in (model, again):
        np.testing.assert_allclose(one.predict_proba(frame), expected, atol=1e-12)
        np.testing.assert_array_equal(one.predict_proba(bags), one.predict_proba(frame))
        np.testing.assert_array_equal(one.confidence(bags), one.predict_proba(bags)[bags.index])
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert repr(again) == f"Model({type(learner).__name__}, {classes} classes)"
    untrained = ensemble_of(again).learner
    assert untrained.get_params() == learner.get_params()
    assert not hasattr(untrained, "n_features_in_")


def test_files_hold_tensors_of_plain_types(tmp_path):
    model, _ = model_of(BOOSTING, wards()[1])
    model.save(tmp_path / "a")
    _, tensors = read_parts(tmp_path / "a")
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        "learners": torch.uint8,
        "mean": torch.float32,
        "std": torch.float32,
    }


def test_unknown_categories_and_gaps_are_missing(tmp_path):
    frame, bags = wards()
    model, found = model_of(BOOSTING, bags)
    rows = pd.DataFrame({"age": [np.nan, 1.0], "n": [3, 4], "job": ["pilot", None]})
    table = found.inputs.table(encode(bags.columns, rows, warn=False))
    assert table["job"].isna().all()
    assert table["age"].isna().tolist() == [True, False]
    expected = np.mean([m.learner.predict_proba(table) for m in found.members], axis=0)
    with pytest.warns(UserWarning, match="pilot"):
        np.testing.assert_allclose(model.predict_proba(rows), expected)
    assert frame["age"].isna().any()


def test_the_net_returns_logarithms():
    _, bags = wards()
    model, _ = model_of(BOOSTING, bags)
    found = model.net(*map(torch.from_numpy, bags.x)).exp().numpy()
    np.testing.assert_allclose(found, model.predict_proba(bags))


def test_learners_compute_on_the_cpu_whatever_the_device(tmp_path):
    _, bags = wards()
    model, _ = model_of(BOOSTING, bags, device="cuda")
    model.save(tmp_path / "a")
    again = Model.load(tmp_path / "a", device="cuda")
    np.testing.assert_array_equal(again.predict_proba(bags), model.predict_proba(bags))


def test_many_rows_are_predicted_in_pieces(monkeypatch):
    _, bags = wards()
    model, _ = model_of(FOREST, bags)
    expected = model.predict_proba(bags)
    monkeypatch.setattr(learner_file, "ROWS_PER_PASS", 7)
    np.testing.assert_array_equal(model.predict_proba(bags), expected)
    empty = tuple(part[:0] for part in bags.x)
    assert model.predict_proba(empty).shape == (0, 2)


def test_pieces_cost_little_over_the_learner_itself():
    bags = table_bags(400, categories=False)
    model, found = model_of(BOOSTING, bags, folds=1)
    x = np.random.default_rng(0).normal(size=(2**18, 3)).astype(np.float32)
    (member,) = found.members
    table = found.inputs.table(x)

    def best(call):
        times = []
        for _ in range(3):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        return min(times)

    own = best(lambda: member.learner.predict_proba(table))
    assert best(lambda: model.predict_proba(x)) < 4 * own + 0.2


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_what_is_not_finite_is_not_predicted(bad):
    bags = table_bags(60, categories=False)
    for learner in (BOOSTING, LogisticRegression()):
        model, _ = model_of(learner, bags)
        x = bags.x.astype(np.float64)
        x[5, 1] = bad
        with pytest.raises(DataError, match=r"confidences of 1 row are not finite; row 5"):
            model.predict_proba(x)


def test_onnx_is_refused_with_what_to_do(tmp_path):
    model, _ = model_of(BOOSTING, wards()[1])
    with pytest.raises(RunError, match=r"(?s)HistGradientBoostingClassifier.*only nets.*linear"):
        model.to_onnx(tmp_path / "a.onnx")


def test_other_learners_predict_but_are_not_saved(tmp_path):
    frame, bags = wards()
    model, _ = model_of(KNeighborsClassifier(), bags, targets="fpl")
    assert model.predict_proba(frame).shape == (len(frame), 2)
    with pytest.raises(RunError, match=r"(?s)type KNeighborsClassifier cannot be saved.*joblib"):
        model.save(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_what_is_a_learner():
    assert is_learner(BOOSTING)
    assert not any(map(is_learner, (HistGradientBoostingClassifier, torch.nn.Linear(1, 1), "mlp")))


# ---------------------------------------------------------------------------------- hostile files


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("learner") / "a.safetensors"
    model_of(BOOSTING, wards()[1])[0].save(path)
    return path


def bytes_of(learners):
    return torch.frombuffer(bytearray(skops.dumps(learners)), dtype=torch.uint8)


def refused(path, tmp_path, header=None, **tensors):
    old, own = read_parts(path)
    damaged = tmp_path / "b.safetensors"
    kept = {name: tensor for name, tensor in {**own, **tensors}.items() if tensor is not None}
    write_parts(damaged, old if header is None else header, kept)
    with pytest.raises(RunError) as raised:
        Model.load(damaged, device="cpu")
    problem, *remedy = str(raised.value).split("\n  ")
    assert str(damaged) in problem
    assert remedy
    return problem


def test_recipes_that_lie_are_refused(saved, tmp_path):
    header, _ = read_parts(saved)
    cases = 0
    for entry in paths_into(header["recipe"]):
        for name, value in {**VALUES, "missing": ...}.items():
            if value is ... and isinstance(entry[-1], int):
                continue
            damaged = changed(header, ("recipe", *entry), value)
            if json.dumps(damaged) == json.dumps(header):
                continue
            if entry == ("most_categories",) and name == "null":
                continue  # as for a learner that takes any number of them
            refused(saved, tmp_path, damaged)
            cases += 1
    assert cases > 30
    for name, value in {
        "frame": False,
        "categories": [4, 4],
        "members": [[0, 1]] * 3,
        "more": 1,
    }.items():
        refused(saved, tmp_path, changed(header, ("recipe", name), value))
    for members in ([[0], [0, 1]], [[1, 0], [0, 1]], [[0, 2], [0, 1]], [[0, 0], [0, 1]]):
        refused(saved, tmp_path, changed(header, ("recipe", "members"), members))


def test_other_columns_and_parts_are_refused(saved, tmp_path):
    header, _ = read_parts(saved)
    assert "does not fit" in refused(saved, tmp_path, changed(header, ("columns",), None))
    names = changed(header, ("columns", "categories", "job"), ["clerk"])
    assert "other categories" in refused(saved, tmp_path, names)
    shapes = changed(changed(header, ("columns",), None), ("parts", 0, "shape"), [3, 1])
    assert "shapes" in refused(saved, tmp_path, shapes)
    other = changed(header, ("classes",), [0, 1, 2])
    Model.load(saved)  # with a third class that no member knows it is a model that could be
    three, tensors = other, read_parts(saved)[1]
    write_parts(tmp_path / "c", three, tensors)
    assert Model.load(tmp_path / "c").predict_proba(wards()[0])[:, 2].max() == 0


def test_tensors_that_lie_are_refused(saved, tmp_path):
    for tensor, value in read_parts(saved)[1].items():
        for name, damage in TENSORS.items():
            if (tensor, name) == ("learners", "longer"):
                continue  # a zip may end in bytes that are never read
            refused(saved, tmp_path, **{tensor: damage(value)})
    refused(saved, tmp_path, std=torch.zeros(3))
    refused(saved, tmp_path, more=torch.zeros(3))


def test_hostile_bytes_are_refused(saved, tmp_path):
    import os

    model = Model.load(saved)
    members = [one.learner for one in ensemble_of(model).members]
    first = ensemble_of(model).learner
    assert "names the type" in refused(
        saved, tmp_path, learners=bytes_of([FunctionTransformer(os.system), *members])
    )
    assert "no saved learner" in refused(
        saved, tmp_path, learners=torch.zeros(9, dtype=torch.uint8)
    )
    for learners in (members, first, [first, *members, members[0]], [first, first, first]):
        assert "does not fit" in refused(saved, tmp_path, learners=bytes_of(learners))


def test_learners_of_other_inputs_and_classes_are_refused(saved, tmp_path):
    model = Model.load(saved)
    first = ensemble_of(model).learner
    x, y = np.random.default_rng(0).normal(size=(60, 9)), np.arange(60) % 3
    wide = HistGradientBoostingClassifier(max_iter=2).fit(x, y > 0)
    three = HistGradientBoostingClassifier(max_iter=2).fit(x[:, :3], y)
    forest = RandomForestClassifier(3).fit(x[:, :3], y > 0)
    forest.estimators_[1] = RandomForestClassifier(1).fit(x, y > 0).estimators_[0]
    wanted = {"takes 9 features": wide, "3 classes": three, "takes 9": forest}
    for words, bad in wanted.items():
        assert words in refused(saved, tmp_path, learners=bytes_of([first, bad, bad]))


def test_trees_get_as_many_features_as_they_were_checked_for(saved, tmp_path):
    """What prepares the columns is in the file too; compiled trees do not look at bounds."""
    model = Model.load(saved)
    members = [one.learner for one in ensemble_of(model).members]
    transformers = members[0]._preprocessor.transformers_
    members[0]._preprocessor.transformers_ = transformers[:1]
    found = refused(saved, tmp_path, learners=bytes_of([ensemble_of(model).learner, *members]))
    assert "its trees get" in found or "does not fit" in found


def test_members_of_few_classes_are_saved(tmp_path):
    """A fold in which a class is absent has a member without it."""
    bags = table_bags(60, categories=False)
    own = alternate(BOOSTING, bags, rounds=1, folds=1)
    one = own.members[0].learner
    members = (Member(one, np.array([0, 2])), Member(one, np.array([1, 2])))
    ensemble = Ensemble(clone(BOOSTING), members, own.inputs, 3)
    model = Model(LearnerNet(ensemble), "abc", describe_parts(bags))
    model.save(tmp_path / "a")
    found = Model.load(tmp_path / "a").predict_proba(bags.x)
    np.testing.assert_array_equal(found, model.predict_proba(bags.x))
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(found[:, 0], found[:, 1])
