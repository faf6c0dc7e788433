"""Runs that were left in the middle, and what they would have come to."""

import shutil

import pytest

from tests.training.interrupted_runs import Interrupted, outcome, stop_after, train


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What a training without any trouble gives."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    return outcome(folder, train(folder))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A folder that was left after epoch 2 of 4."""
    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.raises(Interrupted):
        train(folder, on_epoch=stop_after(2))
    return folder


@pytest.fixture
def folder(interrupted, tmp_path):
    shutil.copytree(interrupted, tmp_path / "run")
    return tmp_path / "run"
