"""An interrupted run can be predicted from, by the weights of its last checkpoint."""

import numpy as np
import pandas as pd
import pytest

from apportion import Model, Run
from apportion.errors import RunError
from apportion.runs.header import read_header
from tests.cli.wards_on_disk import run, train_in
from tests.faults.killing import train_in_python
from tests.training.interrupted_runs import VALID, Interrupted, network, train

X = np.array([[30.0], [45.0], [70.0]], np.float32)


def stopped(folder, epoch):
    """Stop a training after an epoch; return what its net said then."""
    seen = []

    def on_epoch(record, net):
        if record["epoch"] == epoch:
            parts = [{"shape": [1], "dtype": "float32"}]
            seen.append(Model(net, ["no", "yes"], parts, device="cpu").predict_proba(X))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_in_python(folder, on_epoch=on_epoch)
    return seen[0]


def test_the_weights_so_far_predict_what_the_net_did(tmp_path):
    wanted = stopped(tmp_path, 5)
    with pytest.raises(RunError, match=r"no model is selected yet\.\n  Pass last=True"):
        Model.load(tmp_path)
    model = Model.load(tmp_path, last=True, device="cpu")
    assert (model.epoch, model.classes) == (5, ("no", "yes"))
    assert np.array_equal(model.predict_proba(X), wanted)


def test_of_a_finished_run_they_are_those_of_the_last_epoch(tmp_path):
    train_in_python(tmp_path)
    last, same = Model.load(tmp_path, last=True), Model.load(tmp_path / "last.safetensors")
    assert np.array_equal(last.predict_proba(X), same.predict_proba(X))
    with pytest.raises(RunError, match="is no folder of a run"):
        Model.load(tmp_path / "last.safetensors", last=True)


def test_a_net_of_the_callers_is_asked_for(tmp_path):
    def on_epoch(record, net):
        raise Interrupted

    with pytest.raises(Interrupted):
        train(tmp_path, on_epoch=on_epoch)
    with pytest.raises(RunError, match="none of apportion's"):
        Model.load(tmp_path, last=True)
    found = Model.load(tmp_path, last=True, net=network).predict_proba(VALID.x)
    assert found.shape == (VALID.n_rows, 3)


def test_before_the_first_checkpoint_there_are_none(tmp_path):
    stopped(tmp_path, 1)
    Run(tmp_path).checkpoint.unlink()
    with pytest.raises(RunError, match="there is no checkpoint yet"):
        Model.load(tmp_path, last=True)


def test_the_command_line_predicts_by_them(tmp_path):
    folder = train_in(tmp_path) / "a"
    for name in ("model", "last", "evaluation"):
        (folder / f"{name}.safetensors").unlink()
    command = ["predict", folder, tmp_path / "rows.csv", "--out", tmp_path / "p.csv"]
    result = run(*command)
    assert result.exit_code == 1
    assert "Pass --last to take the weights so far." in result.stderr
    result = run(*command, "--last")
    assert result.exit_code == 0, result.output
    assert "The weights are those after epoch 3." in result.stdout
    assert len(pd.read_csv(tmp_path / "p.csv")) == 400
    assert read_header(folder / "checkpoint.safetensors", "checkpoint")["classes"] == ["no", "yes"]


def test_every_verb_that_names_last_takes_it(tmp_path):
    folder = (train_in(tmp_path) / "a").rename(tmp_path / "my run")
    for name in ("model", "last", "evaluation"):
        (folder / f"{name}.safetensors").unlink()
    command = ["export", folder, tmp_path / "model.onnx"]
    result = run(*command)
    assert "Pass --last to take the weights so far." in result.stderr
    assert f"apportion train --resume '{folder}'" in result.stderr
    assert run(*command, "--last").exit_code == 0
