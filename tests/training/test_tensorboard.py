"""What TensorBoard reads is what the log has, also of a training that was taken up again."""

import shutil
import subprocess
import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from apportion import Bags, TrainConfig, fit
from apportion.engine.device import own_threads
from apportion.errors import ApportionError, RunError
from apportion.training.tensorboard import scalars, tensorboard

pytest.importorskip("tensorboard")


@pytest.fixture(autouse=True)
def one_thread():
    with own_threads(1):
        yield


def some_bags(seed):
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=60)
    x = (2 * np.eye(4)[truth] + rng.normal(size=(60, 4))).astype(np.float32)
    return Bags.from_rows(x, np.arange(60) // 12, classes=range(3), truth=truth)


def train(folder, run, epochs=5, method="fpl", stop=None):
    """Train, and maybe stop after an epoch, as someone with a keyboard does."""
    torch.manual_seed(0)
    config = TrainConfig(epochs=epochs, device="cpu", threads=1, checkpoint_every=2)
    with tensorboard(folder) as log:

        def on_epoch(record, model):
            log(record, model)
            if record["epoch"] == 2 and stop is not None:
                shutil.copytree(run, run.with_name("earlier"))
            if record["epoch"] == stop:
                raise KeyboardInterrupt

        return fit(
            nn.Linear(4, 3),
            some_bags(0),
            some_bags(1),
            some_bags(2),
            method=method,
            config=config,
            run=run,
            on_epoch=on_epoch,
        )


def read(folder):
    """Every scalar that TensorBoard knows, as pairs of step and value."""
    name = "tensorboard.backend.event_processing.event_accumulator"
    events = import_module(name).EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()
    assert not any(tags[kind] for kind in ("images", "histograms", "tensors"))
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags["scalars"]}


def assert_same(found, history):
    wanted: dict[str, list] = {}
    for record in history.records:
        for name, value in scalars(record).items():
            wanted.setdefault(name, []).append((record["epoch"], np.float32(value)))
    assert found == wanted


def test_every_number_of_every_epoch_is_there(tmp_path):
    history = train(tmp_path / "a" / "board", None)
    found = read(tmp_path / "a" / "board")
    assert sorted(found) == [
        "labels/accuracy",
        "labels/changed",
        "loss",
        "regret",
        "seconds/confidence",
        "seconds/evaluation",
        "seconds/labels",
        "seconds/train",
        "test/accuracy",
        "test/error",
        "validation/accuracy",
        "validation/error",
    ]
    assert [step for step, _ in found["loss"]] == [1, 2, 3, 4, 5]
    assert_same(found, history)


def test_a_method_without_truth_has_fewer(tmp_path):
    history = train(tmp_path, None, method="proportion-loss")
    found = read(tmp_path)
    assert "labels/changed" not in found
    assert_same(found, history)


@pytest.mark.parametrize("left", ["run", "earlier"])  # by the last epoch, or by one before it
def test_a_training_that_goes_on_logs_no_epoch_twice(left, tmp_path):
    board, run = tmp_path / "board", tmp_path / left
    with pytest.raises(KeyboardInterrupt):
        train(board, tmp_path / "run", stop=4)
    assert [step for step, _ in read(board)["loss"]] == [1, 2, 3, 4]
    history = train(board, run)
    assert len(list(board.iterdir())) == 2
    found = read(board)
    assert [step for step, _ in found["loss"]] == [1, 2, 3, 4, 5]
    assert_same(found, history)
    before = read(board)
    train(board, run)  # there is nothing left to do
    assert read(board) == before
    assert len(list(board.iterdir())) == 2


def test_a_training_from_the_start_takes_the_place_of_another(tmp_path):
    train(tmp_path, None, epochs=4)
    for _ in range(2):  # at once, so that names tell them apart by more than the second
        history = train(tmp_path, None, epochs=2)
    assert_same(read(tmp_path), history)


def test_the_file_is_complete_after_every_epoch(tmp_path):
    with tensorboard(tmp_path) as on_epoch:
        assert not list(tmp_path.iterdir())  # nothing to tell yet
        for epoch in (1, 2):
            on_epoch({"epoch": epoch, "loss": 0.5}, nn.Identity())
            assert read(tmp_path) == {"loss": [(k, 0.5) for k in range(1, epoch + 1)]}
    with tensorboard(tmp_path) as on_epoch:
        on_epoch({"epoch": 3, "loss": 0.25}, nn.Identity())
    assert read(tmp_path) == {"loss": [(1, 0.5), (2, 0.5), (3, 0.25)]}


def test_the_writer_is_closed_whatever_happens(tmp_path, monkeypatch):
    writer: Any = import_module("torch.utils.tensorboard").SummaryWriter
    close, closed = writer.close, []

    def noted(self):
        closed.append(self)
        close(self)

    monkeypatch.setattr(writer, "close", noted)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "board", tmp_path / "run", stop=2)
    assert len(closed) == 1


def test_names_are_grouped():
    record: dict[str, Any] = {"epoch": 3, "loss": 1, "test_error": 0.5, "changed": 0.25}
    record |= {"own_number": 2.0, "seconds": {"train": 0.5, "labels": 0.1}}
    assert scalars(record) == {
        "loss": 1.0,
        "test/error": 0.5,
        "labels/changed": 0.25,
        "own_number": 2.0,
        "seconds/train": 0.5,
        "seconds/labels": 0.1,
    }


def test_a_missing_tensorboard_is_named_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    remedy = r"not installed.\n.*pip install 'apportion\[tensorboard\]'"
    with pytest.raises(RunError, match=remedy), tensorboard(tmp_path / "board"):
        pass
    assert not (tmp_path / "board").exists()
    assert issubclass(RunError, ApportionError)


def test_a_folder_that_cannot_be_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file, file / "board"):
        problem = r"file.*cannot be a folder for TensorBoard"
        with pytest.raises(RunError, match=problem), tensorboard(folder):
            pass


@pytest.mark.slow
def test_it_is_loaded_only_when_it_is_used():
    code = "import sys, apportion.training.tensorboard; assert 'tensorboard' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
