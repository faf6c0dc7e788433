"""The run folder of a training: what it says, what may change from start to start, full disks."""

import json
import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.errors import RunError
from apportion.nets.build import build_net, from_recipe
from apportion.runs.header import read_header
from apportion.runs.run import Run
from apportion.training.archive import Archive
from apportion.training.fit import fit
from apportion.training.session import Session
from tests.training.interrupted_runs import Interrupted, stop_after
from tests.training.small_training import (
    CONFIG,
    TEST,
    TRAIN,
    VALID,
    Album,
    identical,
    network,
    refusal,
    weights_of,
    without_times,
)

# --------------------------------------------------------------------------------------- bad input


def test_a_folder_in_use_is_refused(tmp_path):
    run = Run(tmp_path)
    with run.locked():
        problem, _ = refusal(RunError, network(), TRAIN, VALID, run=tmp_path)
    assert "is in use" in problem
    fit(network(), TRAIN, VALID, config=CONFIG, run=run)  # a Run will do as well as a path


# ------------------------------------------------------------------------------------- run folders


def test_a_run_folder_changes_nothing_and_tells_all(tmp_path):
    folder, album, nets = tmp_path / "new" / "run", Album(), (network(), network())
    history = fit(nets[0], TRAIN, VALID, TEST, config=CONFIG, run=folder)
    wanted = fit(nets[1], TRAIN, VALID, TEST, config=CONFIG, on_epoch=album)
    assert identical(weights_of(nets[0]), weights_of(nets[1]))
    assert identical(load_file(folder / "model.safetensors"), weights_of(nets[0]))
    assert identical(load_file(folder / "last.safetensors"), album.weights[-1])
    lines = (folder / "log.jsonl").read_text().splitlines()
    logged = [json.loads(line) for line in lines]
    assert [{k: v for k, v in line.items() if k != "at"} for line in logged] == history.records
    assert all(type(line["at"]) is int for line in logged)
    assert without_times(history.records) == without_times(wanted.records)
    assert {path.name for path in folder.iterdir()} - {"lock"} == {
        "config.toml",
        "log.jsonl",
        "checkpoint.safetensors",
        "model.safetensors",
        "last.safetensors",
        "evaluation.safetensors",
    }


def test_sections_of_the_callers_go_into_the_configuration(tmp_path):
    about: dict[str, Any] = {
        "data": {"rows": 'a "b".csv', "counts": True, "label": None},
        "model": {"hidden": [8]},
    }
    fit(network(), TRAIN, config=CONFIG, run=Run(tmp_path, about))
    read = tomllib.loads((tmp_path / "config.toml").read_text())
    assert read["data"] == {"rows": 'a "b".csv', "counts": True}
    assert read["model"] == {"hidden": [8]}
    assert TrainConfig.from_dict(read["train"]) == CONFIG


@pytest.fixture
def minutes(monkeypatch):
    """Make epochs take so many minutes each; return a list of the epochs that are saved."""
    now, saved = 0.0, []
    train_epoch, save = Session.train_epoch, Archive.save_checkpoint

    def note(archive, session):
        saved.append(session.history.n_epochs)
        save(archive, session)

    def take(*each):
        def slow(session, epoch):
            nonlocal now
            now += 60 * each[epoch - 1]
            return train_epoch(session, epoch)

        monkeypatch.setattr(Session, "train_epoch", slow)
        return saved

    monkeypatch.setattr("apportion.training.archive.monotonic", lambda: now)
    monkeypatch.setattr(Archive, "save_checkpoint", note)
    return take


def test_a_checkpoint_is_due_by_epochs_and_by_minutes_since_the_last_one(tmp_path, minutes):
    saved = minutes(2, 2, 1, 4, 1, 20, 1, 1, 1)
    fit(network(), TRAIN, config=replace(CONFIG, epochs=9, checkpoint_every=4), run=tmp_path)
    assert saved == [3, 4, 6, 8, 9]


def test_slow_epochs_are_not_lost_by_a_kill(tmp_path, minutes):
    saved = minutes(6, 3, 3, 3)
    config = replace(CONFIG, epochs=4, checkpoint_every=10)
    with pytest.raises(Interrupted):
        fit(network(), TRAIN, config=config, run=tmp_path, on_epoch=stop_after(2))
    assert saved == [1]
    fit(network(), TRAIN, config=config, run=tmp_path)
    assert saved == [1, 3, 4]  # what passed before it went on counts no more


def test_interrupting_between_epochs_saves_first(tmp_path):
    config = replace(CONFIG, epochs=6, checkpoint_every=5)
    fit(network(), TRAIN, VALID, config=config, run=tmp_path / "whole")

    def interrupt(record, model):
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(network(), TRAIN, VALID, config=config, run=tmp_path / "cut", on_epoch=interrupt)
    seen = []
    fit(
        network(),
        TRAIN,
        VALID,
        config=config,
        run=tmp_path / "cut",
        on_epoch=lambda record, model: seen.append(record["epoch"]),
    )
    assert seen == [4, 5, 6]
    for name in ("model", "last"):
        ours, theirs = (tmp_path / run / f"{name}.safetensors" for run in ("cut", "whole"))
        assert identical(load_file(ours), load_file(theirs))


def test_a_saved_model_says_how_to_make_it_again(tmp_path):
    bags = Bags.from_rows(np.ones((6, 2), np.float32), [0, 0, 1, 1, 2, 2], truth=[5, 7] * 3)
    model = build_net("mlp", bags, hidden=[3])
    fit(model, bags, config=CONFIG, run=tmp_path)
    about = read_header(tmp_path / "model.safetensors", "model")
    assert about["classes"] == [5, 7]
    assert about["parts"] == [{"shape": [2], "dtype": "float32"}]
    again = from_recipe(about["recipe"])
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert identical(again.state_dict(), model.state_dict())


def test_configuration_is_a_file_that_can_be_read_back(tmp_path):
    config = replace(CONFIG, augment=("noise",), schedule="cosine")
    fit(network(), TRAIN, VALID, method="greedy", config=config, run=tmp_path)
    read = tomllib.loads((tmp_path / "config.toml").read_text())
    assert TrainConfig.from_dict(read["train"]) == config
    assert read["method"]["name"] == "fpl"
    assert read["method"]["eta"] == 0
    assert isinstance(read["format"], int)
