"""Going on with other parameters to train is refused before fused steps could write beyond them."""

import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from apportion.errors import RunError
from apportion.runs.header import seal
from tests.training.interrupted_runs import Interrupted, some_bags, stop_after, train

# It died by SIGABRT or SIGSEGV where the state was not compared with the parameters.
FROZEN_OTHERWISE = """
import sys
from tests.faults.test_other_parameters import partly_frozen, resume
from apportion.errors import RunError
try:
    resume(sys.argv[1], partly_frozen(2))
except RunError as error:
    print(error)
"""


def partly_frozen(layer):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        net = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 3))
    net[layer].requires_grad_(False)
    return net


def resume(folder, net):
    return train(folder, model=net, bags=some_bags(0), valid=None)


@pytest.fixture
def folder(tmp_path):
    with pytest.raises(Interrupted):
        train(tmp_path, model=partly_frozen(0), valid=None, on_epoch=stop_after(3))
    return tmp_path


def test_other_frozen_layers_are_refused_by_their_names_and_nothing_dies(folder):
    command = [sys.executable, "-c", FROZEN_OTHERWISE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": "src:."})
    assert done.returncode == 0, done.stderr
    assert f"{folder / 'checkpoint.safetensors'} was saved with other parameters" in done.stdout
    assert "2.bias, 2.weight were trained then" in done.stdout
    resume(folder, partly_frozen(0))


def test_state_of_one_element_is_refused(folder):
    path = folder / "checkpoint.safetensors"
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    short = {
        n: t.flatten()[:1].clone() if "exp_avg" in n else t for n, t in load_file(path).items()
    }
    save_file(short, path, metadata)
    seal(path)
    with pytest.raises(RunError, match=r"2\.bias\.exp_avg is float32 of shape \(1,\) there and"):
        resume(folder, partly_frozen(0))


def test_a_parameter_that_was_never_reached_may_have_no_state(tmp_path):
    """A layer that forward does not call has no gradient, and its optimiser no state of it."""

    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = partly_frozen(0), nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x)

    with pytest.raises(Interrupted):
        train(tmp_path, model=Idle(), valid=None, on_epoch=stop_after(2))
    assert train(tmp_path, model=Idle(), valid=None).n_epochs == 4
