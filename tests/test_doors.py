"""Three doors, one house: what one door has trained predicts the same through all others."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import nn

from apportion import Bags, LLPClassifier, Model, TrainConfig, build_net, fit, read_table
from apportion.engine.device import own_threads
from tests.cli.wards_on_disk import QUICK, run, voters, write

FEATURES = ["age", "job"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    with own_threads(1):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doors")
    write(folder)
    return folder


def read(folder):
    options = {"proportions": folder / "wards.csv", "columns": FEATURES}
    return read_table(folder / "rows.csv", bag="ward", **options)


def by_fit(folder):
    bags = read(folder)
    net = build_net("mlp", bags)
    fit(net, bags, config=TrainConfig(epochs=2, device="cpu", threads=1), run=folder / "fit")
    return folder / "fit"


def by_estimator(folder):
    table = pd.read_csv(folder / "wards.csv").set_index("ward")
    classifier = LLPClassifier(epochs=2, random_state=0, device="cpu")
    classifier.fit(voters()[FEATURES], bags=voters()["ward"], proportions=table)
    classifier.save(folder / "estimator.safetensors")
    return folder / "estimator.safetensors"


def by_learner(folder):
    pytest.importorskip("skops")
    table = pd.read_csv(folder / "wards.csv").set_index("ward")
    learner = HistGradientBoostingClassifier(max_iter=10)
    classifier = LLPClassifier(model=learner, epochs=2, random_state=0, device="cpu")
    classifier.fit(voters()[FEATURES], bags=voters()["ward"], proportions=table)
    classifier.save(folder / "learner.safetensors")
    return folder / "learner.safetensors"


def by_linear(folder):
    table = pd.read_csv(folder / "wards.csv").set_index("ward")
    classifier = LLPClassifier("linear", random_state=0, device="cpu")
    classifier.fit(voters()[FEATURES], bags=voters()["ward"], proportions=table)
    classifier.save(folder / "linear.safetensors")
    return folder / "linear.safetensors"


def by_command(folder):
    files = [folder / "rows.csv", "--bag", "ward", "--proportions", folder / "wards.csv"]
    result = run("train", *files, *QUICK, "--out", folder / "command")
    assert result.exit_code == 0, result.output
    return folder / "command"


@pytest.mark.parametrize("door", [by_fit, by_estimator, by_learner, by_linear, by_command])
def test_every_door_loads_what_a_door_has_trained(folder, door):
    path, rows = door(folder), voters(seed=1)[FEATURES]
    model = Model.load(path, device="cpu")
    assert model.classes == ("no", "yes")
    assert model.columns is not None
    assert model.columns.names == tuple(FEATURES)
    expected = model.predict_proba(rows)
    assert expected.shape == (len(rows), 2)
    np.testing.assert_allclose(expected.sum(axis=1), 1)
    assert len(np.unique(model.predict(rows))) == 2

    classifier = LLPClassifier.load(path, device="cpu")
    np.testing.assert_array_equal(classifier.predict_proba(rows), expected)
    again = folder / "again.safetensors"
    model.save(again)
    np.testing.assert_array_equal(Model.load(again, device="cpu").predict_proba(rows), expected)
    np.testing.assert_array_equal(
        LLPClassifier.load(again, device="cpu").predict_proba(rows), expected
    )
    bags = read_table(
        folder / "rows.csv", bag="ward", proportions=folder / "wards.csv", columns=model.columns
    )
    here = model.predict_proba(voters()[FEATURES])
    np.testing.assert_array_equal(model.predict_proba(bags), here)
    np.testing.assert_array_equal(model.confidence(bags), here[bags.index])


@pytest.mark.parametrize("door", [by_command, by_learner])
def test_the_command_line_predicts_as_python_does(folder, door):
    path = folder / "command"
    if door is not by_command or not path.exists():
        path = door(folder)
    expected = Model.load(path, device="cpu").predict_proba(voters()[FEATURES])
    result = run("predict", path, folder / "rows.csv", "--out", folder / "p.parquet", "--force")
    assert result.exit_code == 0, result.output
    found = pd.read_parquet(folder / "p.parquet")
    np.testing.assert_allclose(found[["probability_no", "probability_yes"]], expected, atol=1e-7)


def test_what_was_trained_is_what_was_fitted(folder):
    """The net that `fit` leaves behind, asked as plainly as torch allows."""
    bags = read(folder)
    net = build_net("mlp", bags)
    fit(net, bags, config=TrainConfig(epochs=2, device="cpu", threads=1), run=folder / "plain")
    with torch.no_grad():
        expected = net(*map(torch.from_numpy, bags.x)).double().softmax(dim=1).numpy()
    found = Model.load(folder / "plain", device="cpu").predict_proba(voters()[FEATURES])
    np.testing.assert_allclose(found, expected, atol=1e-6)


# -------------------------------------------------------------------------- a net of one's own


def own_net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def test_a_net_of_ones_own_goes_through_every_door(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).astype(np.float32)
    bags = Bags.from_rows(X, np.arange(60) // 6, truth=(X[:, 0] > 0).astype(int))
    net = own_net()
    fit(net, bags, config=TrainConfig(epochs=2, device="cpu", threads=1), run=tmp_path / "run")
    classifier = LLPClassifier(model=own_net(), epochs=2, random_state=0, device="cpu")
    classifier.fit(bags).save(tmp_path / "file")
    with torch.no_grad():
        expected = net(torch.from_numpy(X)).double().softmax(dim=1).numpy()
    for path, wanted in (("run", expected), ("file", classifier.predict_proba(X))):
        for given in (own_net(), own_net):
            model = Model.load(tmp_path / path, net=given, device="cpu")
            np.testing.assert_allclose(model.predict_proba(X), wanted, atol=1e-6)
            loaded = LLPClassifier.load(tmp_path / path, net=given, device="cpu")
            np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
