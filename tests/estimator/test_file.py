"""Saved classifiers: they predict as before, and nothing in the file is run."""

import json
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from apportion import FPL, Bags, LLPClassifier, Run, TrainConfig, fit
from apportion.data.encoding import encode, learn_columns
from apportion.engine.device import own_threads
from apportion.errors import DataError, RunError
from apportion.methods.registry import describe
from apportion.nets.average import Average
from apportion.nets.build import build_net
from apportion.runs.header import metadata, seal


@pytest.fixture(autouse=True)
def one_thread():
    with own_threads(1):
        yield


def rows(seed: int = 0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["height", "weight"])
    frame["town"] = rng.choice(["Kyoto", "Łódź", "Bonn"], size=60)
    frame.loc[frame.index % 7 == 0, "weight"] = np.nan
    return frame, np.repeat(np.arange(12), 5), rng.integers(3, size=60)


def trained(**settings):
    frame, bags, y = rows()
    return LLPClassifier(**{"epochs": 2, "random_state": 0, **settings}).fit(frame, y, bags=bags)


@pytest.mark.parametrize("names", [[0, 1, 2], ["a", "b", "ü"], [0.5, 1.5, 2.5], [1, "two", None]])
def test_a_classifier_comes_back_as_it_was(tmp_path, names):
    frame, bags, y = rows()
    table = {bag: dict.fromkeys(names, 0) for bag in range(12)}
    for bag, label in zip(bags, y, strict=True):
        table[bag][names[label]] += 1
    classifier = LLPClassifier("greedy", eta=0.5, epochs=2, random_state=0)
    classifier.fit(frame, bags=bags, proportions=table)
    classifier.save(tmp_path / "model.safetensors")
    again = LLPClassifier.load(tmp_path / "model.safetensors")
    new = rows(1)[0]
    assert np.array_equal(again.predict_proba(new), classifier.predict_proba(new))
    assert again.predict(new).tolist() == classifier.predict(new).tolist()
    assert again.classes_.tolist() == classifier.classes_.tolist()
    assert again.classes_.dtype == classifier.classes_.dtype
    assert again.feature_names_in_.tolist() == ["height", "weight", "town"]
    assert again.n_features_in_ == 3
    assert again.model_.columns == classifier.model_.columns
    assert again.get_params() == classifier.get_params()
    assert again.history_.records == classifier.history_.records
    assert again.history_.best_epoch == classifier.history_.best_epoch
    again.fit(frame, bags=bags, proportions=table)
    assert np.array_equal(again.predict_proba(new), classifier.predict_proba(new))


def test_settings_of_ones_own_come_back(tmp_path):
    method = FPL(eta=0.7, unlikelihood="plain", first="decide")
    trained(method=method).save(tmp_path / "own")
    again: Any = LLPClassifier.load(tmp_path / "own").method
    assert describe(again) == describe(method)
    classifier = trained(eta=np.float64(0.25))
    classifier.save(tmp_path / "numpy")
    assert LLPClassifier.load(tmp_path / "numpy").eta == 0.25


def test_an_array_is_enough(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.integers(2, size=40)
    classifier = LLPClassifier(epochs=1).fit(X, y)
    classifier.save(tmp_path / "model")
    again = LLPClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X))
    assert not hasattr(again, "feature_names_in_")


def make() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 3))


def test_a_network_of_ones_own_is_rebuilt_by_the_caller(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2, 4)).astype(np.float32), rng.integers(3, size=60)
    classifier = LLPClassifier(model=lambda bags: make(), epochs=2).fit(X, y)
    file = tmp_path / "model.safetensors"
    classifier.save(file)
    with pytest.raises(RunError, match=r"none of apportion's.\n.*net="):
        LLPClassifier.load(file)
    for module in (make, make()):
        again = LLPClassifier.load(file, net=module)
        assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X))
    with pytest.raises(RunError, match="another net"):
        LLPClassifier.load(file, net=nn.Linear(8, 3))
    with pytest.raises(RunError, match="without arguments"):
        LLPClassifier.load(file, net=lambda bags: make())  # type: ignore[arg-type, misc]
    refitted = LLPClassifier.load(file, net=make).fit(X, y)
    assert refitted.predict(X).shape == (60,)
    with pytest.raises(RunError, match="returned a int"):
        LLPClassifier.load(file, net=lambda: 3)  # type: ignore[return-value, arg-type]


def test_the_file_of_a_model_alone_becomes_a_classifier(tmp_path):
    classifier = trained(model="mlp")
    classifier.model_.save(tmp_path / "model")
    again = LLPClassifier.load(tmp_path / "model")
    new = rows(1)[0]
    assert np.array_equal(again.predict_proba(new), classifier.predict_proba(new))
    assert again.get_params() == LLPClassifier(model="mlp").get_params()
    assert again.n_features_in_ == 3
    assert again.history_.records == []
    assert again.history_.best_epoch is None


def test_the_file_of_an_average_becomes_a_classifier(tmp_path):
    classifier = trained(model="mlp")
    model = classifier.model_
    model.net = Average([[model.net, model.net], [model.net]])
    model.save(tmp_path / "model")
    again = LLPClassifier.load(tmp_path / "model")
    new = rows(1)[0]
    assert np.array_equal(again.predict_proba(new), classifier.predict_proba(new))
    assert again.get_params() == LLPClassifier().get_params()


def test_there_is_no_pickle_in_the_file(tmp_path, monkeypatch):
    classifier = trained()

    def refuse(*_, **__):
        raise AssertionError("pickled")

    for module, name in ((pickle, "dumps"), (pickle, "dump"), (torch, "save"), (pickle, "loads")):
        monkeypatch.setattr(module, name, refuse)
    classifier.save(tmp_path / "model")
    LLPClassifier.load(tmp_path / "model")
    with safe_open(tmp_path / "model", framework="np") as file:
        scalars = json.loads(file.metadata()["apportion"])
    assert scalars["columns"] is not None
    assert "Łódź" in json.dumps(scalars["columns"], ensure_ascii=False)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(RunError, match="does not exist"):
        LLPClassifier.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(RunError, match="damaged"):
        LLPClassifier.load(tmp_path / "text")
    save_file({"w": torch.zeros(2)}, tmp_path / "other")
    with pytest.raises(RunError, match="not saved by apportion"):
        LLPClassifier.load(tmp_path / "other")
    about = metadata("checkpoint", {"epoch": 3})
    save_file({"model.w": torch.zeros(2)}, tmp_path / "checkpoint", about)
    with pytest.raises(RunError, match="checkpoint, not model"):
        LLPClassifier.load(tmp_path / "checkpoint")


def test_classes_that_a_file_cannot_keep(tmp_path):
    frame, bags, y = rows()
    days = pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03"]).to_numpy()
    classifier = LLPClassifier(epochs=1).fit(frame, y, bags=bags)
    for classes in (days, np.array(list(days), object)):
        classifier.model_.classes = tuple(classes)
        with pytest.raises(RunError, match="which a file cannot keep"):
            classifier.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_places_where_no_file_can_be(tmp_path):
    classifier = trained()
    with pytest.raises(RunError, match="is a folder"):
        classifier.save(tmp_path)
    with pytest.raises(RunError, match=r"nowhere/model cannot be written: .*No such file"):
        classifier.save(tmp_path / "nowhere" / "model")


def test_a_method_that_a_file_cannot_keep_is_said(tmp_path, caplog):
    _, bags, y = rows()
    # Validation bags would be held out, and labels are for those trained on.
    first = np.concatenate([np.sort(y[bags == bag]) for bag in range(12)])
    classifier = trained(method=FPL(first=first), validation_fraction=0)
    with caplog.at_level("WARNING", "apportion"):
        classifier.save(tmp_path / "model")
    assert "cannot be stored in a file" in caplog.text
    assert LLPClassifier.load(tmp_path / "model").method is None


def test_a_file_that_lacks_something_is_named(tmp_path):
    trained().save(tmp_path / "model")
    with safe_open(tmp_path / "model", framework="pt") as file:
        scalars = json.loads(file.metadata()["apportion"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del scalars["classes"]
    save_file(tensors, tmp_path / "model", {"apportion": json.dumps(scalars)})
    seal(tmp_path / "model")
    with pytest.raises(RunError, match="'classes'"):
        LLPClassifier.load(tmp_path / "model")


# ----------------------------------------------------------------------------------- run folders


@pytest.fixture
def run_folder(tmp_path):
    """A finished run of a table, with its columns."""
    frame, ids, y = rows()
    columns = learn_columns(frame)
    bags = Bags.from_rows(None, ids, truth=y).with_rows(encode(columns, frame), columns)
    model = build_net("mlp", bags)
    run = Run(tmp_path / "run")
    fit(model, bags, config=TrainConfig(epochs=2, device="cpu"), run=run)
    return run.folder, model, encode(columns, frame)


def test_the_model_of_a_run_is_a_classifier(run_folder):
    folder, model, encoded = run_folder
    loaded = LLPClassifier.load(folder, device="cpu")
    frame, _, _ = rows()
    expected = model(*map(torch.from_numpy, encoded)).softmax(dim=1).detach()
    np.testing.assert_allclose(loaded.predict_proba(frame), expected, atol=1e-6)
    assert loaded.classes_.tolist() == [0, 1, 2]
    assert loaded.feature_names_in_.tolist() == ["height", "weight", "town"]
    assert len(loaded.history_.records) == 2
    assert loaded.history_.best_epoch is None
    with pytest.raises(DataError, match="parts of"):
        loaded.predict_proba((np.zeros((3, 1, 5, 5)),))
    loaded.save(folder / "copy.safetensors")
    again = LLPClassifier.load(folder / "copy.safetensors", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(frame), loaded.predict_proba(frame))


def test_runs_that_have_no_model_to_use_say_why(run_folder, tmp_path):
    folder, _, _ = run_folder
    (folder / "model.safetensors").rename(tmp_path / "aside")
    with pytest.raises(RunError, match=r"(?s)not finished: 2 of 2 epochs.*fit with the same"):
        LLPClassifier.load(folder)
    (folder / "config.toml").write_text("[other]")
    with pytest.raises(RunError, match="is not the configuration of a run"):
        LLPClassifier.load(folder)
    (folder / "config.toml").unlink()
    with pytest.raises(RunError, match=r"is not a run folder: it has no config\.toml"):
        LLPClassifier.load(folder)


def test_a_network_of_the_users_own_is_named(tmp_path):
    bags = Bags.from_rows(np.eye(4, dtype=np.float32), [0, 0, 1, 1], truth=[0, 1, 0, 1])
    fit(nn.Linear(4, 2), bags, config=TrainConfig(epochs=1, device="cpu"), run=tmp_path)
    with pytest.raises(RunError, match="none of apportion's"):
        LLPClassifier.load(tmp_path)


def test_an_unfinished_run_is_loaded_as_its_error_says(tmp_path):
    frame, ids, y = rows()
    columns = learn_columns(frame)
    bags = Bags.from_rows(encode(columns, frame), ids, truth=y).with_rows(
        encode(columns, frame), columns
    )

    def stop(record, _):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    net, config = build_net("mlp", bags), TrainConfig(epochs=4, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        fit(net, bags, bags, config=config, run=tmp_path / "run", on_epoch=stop)
    with pytest.raises(RunError, match="Pass last=True"):
        LLPClassifier.load(tmp_path / "run")
    loaded = LLPClassifier.load(tmp_path / "run", last=True)
    assert loaded.model_.epoch == loaded.history_.n_epochs == 2
    assert loaded.predict(frame).shape == (60,)


def test_columns_to_learn_from_anyway_come_back(tmp_path):
    trained(keep=["town"]).save(tmp_path / "model.safetensors")
    assert LLPClassifier.load(tmp_path / "model.safetensors").keep == ["town"]


def test_options_of_nets_and_of_training_come_back(tmp_path):
    options: dict[str, Any] = {
        "net_options": {"hidden": (np.int64(8), 4)},
        "schedule": "cosine",
        "patience": 3,
        "augment": ["noise"],
        "train_options": {"warmup": 0.1},
        "normalize": True,
    }
    frame, bags, y = rows()
    seen: list[int] = []
    own = {"callbacks": lambda record, net: seen.append(record["epoch"]), "run": tmp_path / "run"}
    classifier = trained(**options, **own)
    classifier.save(tmp_path / "model")
    again = LLPClassifier.load(tmp_path / "model")
    found = again.get_params()
    assert found["net_options"] == {"hidden": [8, 4]}
    for name in ("schedule", "patience", "train_options", "normalize"):
        assert found[name] == options[name]
    assert list(found["augment"]) == ["noise"]
    assert (found["run"], found["callbacks"]) == (None, None)  # of that machine
    assert str(tmp_path).encode() not in (tmp_path / "model").read_bytes()
    before = again.predict_proba(frame)
    assert np.array_equal(again.fit(frame, y, bags=bags).predict_proba(frame), before)
    assert seen == [1, 2]


@pytest.mark.parametrize(
    "damage",
    [
        {"net_options": {"hiden": [3]}},
        {"net_options": 3},
        {"train_options": {"warmup": 7}},
        {"train_options": {"seed": 7}},
        {"augment": ["flop"]},
        {"patience": -1},
        {"schedule": 3},
        {"normalize": "yes"},
        {"run": "/etc"},
        {"callbacks": []},
    ],
)
def test_damaged_options_are_refused(tmp_path, damage):
    classifier = trained()
    own = {
        "parameters": {"epochs": 2, **damage},
        "records": classifier.history_.records,
        "best_epoch": None,
        "n_features_in": 3,
        "feature_names_in": ["height", "weight", "town"],
    }
    classifier.model_.save(tmp_path / "model", about={"estimator": own})
    with pytest.raises(RunError, match="lacks something that was saved"):
        LLPClassifier.load(tmp_path / "model")


def test_the_run_of_an_array_is_a_classifier_of_arrays(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    classifier = LLPClassifier("ridge", run=tmp_path / "run", random_state=0)
    classifier.fit(X, y, bags=np.arange(40) // 5)
    again = LLPClassifier.load(tmp_path / "run")
    assert not hasattr(again, "feature_names_in_")
    np.testing.assert_allclose(again.predict_proba(X), classifier.predict_proba(X), atol=1e-9)
