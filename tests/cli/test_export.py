"""`apportion export`: the model of a run in onnxruntime, from rows to probabilities."""

import json

import numpy as np
import pytest
from torch import nn

from apportion import LLPClassifier, Model, fit
from apportion.bags.columns import Columns
from apportion.data.encoding import encode, learn_columns
from apportion.testing import toy_bags, toy_config
from tests.cli.wards_on_disk import QUICK, run, voters, write

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")


def test_the_file_is_enough_to_predict_rows(tmp_path):
    assert run("train", *write(tmp_path), *QUICK, "--out", tmp_path / "a").exit_code == 0
    path = tmp_path / "model.onnx"
    result = run("export", tmp_path / "a", path)
    assert result.exit_code == 0, result.output
    assert f"Wrote {path}" in result.stdout
    assert run("export", tmp_path / "a", path).exit_code == 1  # it is there
    assert run("export", tmp_path / "a", path, "--force").exit_code == 0
    session = onnxruntime.InferenceSession(path)
    about = session.get_modelmeta().custom_metadata_map
    frame = voters(60, seed=9).assign(job=["cook", "pilot", None] * 20)  # unknown and missing ones
    columns = Columns.from_dict(json.loads(about["columns"]))
    with pytest.warns(UserWarning, match="pilot"):
        numbers, codes = encode(columns, frame)
    (found,) = session.run(["probabilities"], {"numbers": numbers, "codes": codes})
    classifier = LLPClassifier.load(tmp_path / "a", device="cpu")
    with pytest.warns(UserWarning, match="pilot"):
        expected = classifier.predict_proba(frame[["age", "job"]])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert json.loads(about["classes"]) == ["no", "yes"]
    assert "counted from 1" in about["encoding"]
    result = run("export", tmp_path / "a", tmp_path / "model")
    assert result.exit_code == 1
    assert "end in .onnx" in result.stderr


def encoded_by_its_words(columns, frame):
    """What the file's 'encoding' says, word by word."""
    numbers, gaps, codes = [], [], []
    for name in columns["names"]:
        if name in columns["means"]:
            mean = columns["means"][name]
            missing = frame[name].isna()
            values = frame[name].fillna(mean) - (mean if name in columns["shifted"] else 0)
            numbers.append(values)
            if name in columns["gaps"]:
                gaps.append(missing)
        else:
            place = {text: k for k, text in enumerate(columns["categories"][name], 1)}
            codes.append([place.get(text, 0) for text in frame[name]])
    return (
        np.stack([*numbers, *gaps], axis=1).astype(np.float32),
        np.stack(codes, axis=1).astype(np.int16),
    )


def test_the_encoding_in_words_is_the_encoding():
    frame = voters().assign(when=1.7e9 + np.arange(400) % 7)  # seconds, which are shifted
    frame.loc[3, "job"] = None
    columns = learn_columns(frame[["when", "age", "job"]])
    assert columns.shifted == ("when",)
    assert columns.gaps == ("age",)
    numbers, codes = encode(columns, frame)
    by_words = encoded_by_its_words(json.loads(json.dumps(columns.to_dict())), frame)
    np.testing.assert_allclose(by_words[0], numbers, rtol=1e-6)
    np.testing.assert_array_equal(by_words[1], codes)


@pytest.mark.parametrize("folder", [".", "nowhere"])
def test_a_folder_that_is_no_run_is_named(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    result = run("export", folder, "model.onnx")
    assert result.exit_code == 1
    assert "apportion train" in result.stderr
    assert not (tmp_path / "model.onnx").exists()


def test_a_net_of_ones_own_is_exported_in_python(tmp_path):
    bags = toy_bags()
    net = nn.Linear(2, 3)
    fit(net, bags, config=toy_config(epochs=1), run=tmp_path / "run")
    result = run("export", tmp_path / "run", tmp_path / "net.onnx")
    assert result.exit_code == 1
    assert "a net that is none of apportion's" in result.stderr
    assert "Load it in Python: Model.load(path, net=…)" in result.stderr
    assert "to_onnx" in result.stderr
    assert Model.load(tmp_path / "run", net=net).to_onnx(tmp_path / "net.onnx").exists()
