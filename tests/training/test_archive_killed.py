"""Killed and taken up again: to the bit what it would have been, wherever the process died.

The processes are real, and so is the signal. This file is also their script: `serve` loads
everything once, and forks a process for each training that it is asked for on a line of stdin;
`train` is one training in a process of its own.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.step import Stepper
from apportion.methods.pseudo_labels import PseudoLabels
from apportion.model import model
from apportion.runs.run import Run
from apportion.training import checkpoint
from apportion.training.fit import fit
from tests.faults.killing import ENVIRONMENT, Served, say

EPOCHS = 12
SMALL, LARGE = 120, 3600  # training rows: an epoch takes a few milliseconds, or about 70
TENSORS = ("checkpoint", "model", "last", "evaluation")
FILES = {"config.toml", "log.jsonl", *(f"{name}.safetensors" for name in TENSORS)}
# ---------------------------------------------------------------------------------- the training


def some_bags(rows, seed):
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=rows)
    x = (2 * np.eye(8)[truth] + rng.normal(size=(rows, 8))).astype(np.float32)
    return Bags.from_rows(x, np.arange(rows) // 12, classes=range(3), truth=truth)


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3)
        )


def configuration(every):
    return TrainConfig(
        epochs=EPOCHS,
        batch_size=32,
        learning_rate=0.03,
        weight_decay=0.01,
        schedule="cosine",
        warmup=0.1,
        augment=("noise",),
        device="cpu",
        threads=1,
        checkpoint_every=every,
    )


def train(folder, every, rows, model=None, *, own=False, **options):
    bags, valid = some_bags(rows, 0), some_bags(rows // 2, 1)
    net, config = model or network(), configuration(every)
    options |= recipe(net) if own else {}
    if own:
        config = replace(config, clip_norm=0.5, learning_rate=1e-3, weight_decay=0.0,
                         schedule="constant", warmup=0.0)  # fmt: skip
    return fit(net, bags, valid, config=config, run=folder, **options)


def recipe(net):
    """An optimiser of two groups, a schedule of rates and momentum, and changes at random."""

    def optimizer(parameters):
        groups = [{"params": net[0].parameters(), "lr": 0.02}, {"params": net[1:].parameters()}]
        assert [*map(id, parameters)] == [id(p) for p in net.parameters()]
        return torch.optim.SGD(groups, lr=0.05, momentum=0.9)

    def scheduler(optimizer):
        return torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.2, step_size_up=7)

    def augment(x):
        return x * (torch.rand(len(x), 1) < 0.9) + 0.05 * torch.randn_like(x)

    return {"optimizer": optimizer, "scheduler": scheduler, "augment": augment}


# ---------------------------------------------------------------------------- dying at some place


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(n, owner, name, *, instead=die, after=False):
    """Kill the process at the n-th call of a function."""
    at_calls(count(1), n, owner, name, instead=instead, after=after)


def at_calls(calls, n, owner, name, *, instead=die, after=False):
    original = getattr(owner, name)

    def called(*arguments, **options):
        if next(calls) != n:
            return original(*arguments, **options)
        if after:
            original(*arguments, **options)
        return instead(*arguments, **options)

    setattr(owner, name, called)


def half_a_file(tensors, path, metadata):
    whole = Path(f"{path}.whole")
    save_file(tensors, whole, metadata)
    data = whole.read_bytes()
    whole.unlink()
    Path(path).write_bytes(data[: len(data) // 2])
    die()


def in_a_file(n):
    """Checkpoints and models are written in two places, and counted together."""
    calls = count(1)
    for owner in (checkpoint, model):
        at_calls(calls, n, owner, "save_file", instead=half_a_file)


def half_a_line(run, record):
    with run.log.open("a") as log:
        log.write(json.dumps(record)[:30])
    die()


PLACES = {
    "step": lambda n: at_call(n, Stepper, "__call__"),
    "labels": lambda n: at_call(n, PseudoLabels, "epoch_end"),
    "labels decided": lambda n: at_call(n, PseudoLabels, "epoch_end", after=True),
    "half a line": lambda n: at_call(n, Run, "append", instead=half_a_line),
    "line": lambda n: at_call(n, Run, "append", after=True),
    "half a file": in_a_file,
    "sync": lambda n: at_call(n, os, "fsync"),
    "rename": lambda n: at_call(n, os, "replace"),
    "renamed": lambda n: at_call(n, os, "replace", after=True),
    "rewind": lambda n: at_call(n, os, "truncate"),
    "rewound": lambda n: at_call(n, os, "truncate", after=True),
}


# -------------------------------------------------------------------------------- the processes


def serve():
    """Fork a process for each job; it says when it is ready, and we say how it ended."""
    fit(network(), some_bags(SMALL, 0), config=replace(configuration(1), epochs=1))  # loads all
    tasks = Path("/proc/self/task")
    alone = not tasks.exists() or len(list(tasks.iterdir())) == 1
    say("ready" if alone else "a fork would not be safe: there are threads")
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if job["place"] is not None:
                    PLACES[job["place"]](job["n"])
                say(os.getpid())
                train(job["folder"], job["every"], job["rows"], own=job["own"])
                status = 0
            except BaseException:  # noqa: BLE001 - pytest shows what the server writes to stderr
                traceback.print_exc()
            finally:
                os._exit(status)
        sys.stdin.readline()  # only then is it waited for: until then its number is its own
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


class Server(Served):
    """Trains in forked processes, and kills them."""

    def __call__(self, folder, every, rows, *, own=False, place=None, n=None, delay=None):
        """Train until it is done or dead; give its exit code."""
        job = {"folder": str(folder), "every": every, "rows": rows, "place": place, "n": n}
        job["own"] = own
        self._write(json.dumps(job))
        process = self._read()
        if delay is not None:
            time.sleep(delay)
            os.kill(process, signal.SIGKILL)
        self._write("")
        return self._read()


@pytest.fixture(scope="module")
def server():
    running = Server(__file__)
    yield running
    running.close()


def fresh(folder, every, rows, *, delay=None):
    """Train in a process of its own; give its exit code."""
    command = [sys.executable, __file__, "train", str(folder), str(every), str(rows)]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == "ready"
        try:
            return process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


# ------------------------------------------------------------------------------------- comparison


def left_behind(folder):
    """All that a finished run holds, but the time it took: bytes of tensors, and the records."""
    assert {path.name for path in folder.iterdir()} - {"lock"} == FILES
    files = {name: (folder / f"{name}.safetensors").read_bytes() for name in TENSORS}
    lines = (folder / "log.jsonl").read_text().splitlines()
    records = [
        {k: v for k, v in json.loads(ln).items() if k not in ("at", "seconds")} for ln in lines
    ]
    return files, records, (folder / "config.toml").read_text()


def assert_same(folder, reference):
    ours, theirs = left_behind(folder), left_behind(reference)
    assert [record["epoch"] for record in ours[1]] == list(range(1, EPOCHS + 1))
    assert ours[1:] == theirs[1:]
    assert [name for name in TENSORS if ours[0][name] != theirs[0][name]] == []


@pytest.fixture(scope="module")
def reference(server, tmp_path_factory):
    """Return the folder of an uninterrupted training, and how long it took."""
    known = {}

    def uninterrupted(every, rows, *, own=False):
        if (every, rows, own) not in known:
            folder = tmp_path_factory.mktemp("reference")
            began = time.perf_counter()
            assert server(folder, every, rows, own=own) == 0
            known[every, rows, own] = folder, time.perf_counter() - began
        return known[every, rows, own]

    return uninterrupted


# --------------------------------------------------------------------------- deaths at each place

# With a checkpoint an epoch the disk is forced to write twice for the configuration, three times
# an epoch (the log, the checkpoint, the folder), and twice for each model and for the evaluation.
SYNCS = {1: 2 + 3 * EPOCHS + 6, 3: 2 + EPOCHS + 2 * (EPOCHS // 3) + 6}

DEATHS: list[tuple[int, list[tuple[str, int]]]] = [
    (1, [("step", 1)]),
    (1, [("step", 7), ("step", 6)]),  # within epoch 2, twice
    (1, [("labels", 3)]),
    (1, [("labels decided", 3)]),
    (1, [("half a line", 1)]),
    (1, [("half a line", 5), ("rewind", 1), ("rewound", 1)]),
    (1, [("line", 5), ("half a line", 1)]),
    (1, [("half a file", 1)]),
    (1, [("half a file", 6)]),
    (1, [("half a file", EPOCHS), ("half a file", 2), ("half a file", 2)]),  # then the models
    (1, [("rename", 1), ("renamed", 1)]),  # the configuration
    (1, [("rename", 2)]),  # the first checkpoint
    (1, [("renamed", 6)]),
    (1, [("rename", EPOCHS + 2), ("renamed", 1), ("rename", 2), ("renamed", 2)]),  # the models
    *[(1, [("sync", n)]) for n in (1, 2, 3, 4, 5, 6, 22, 23, 24, 37, 38, 39, 42)],
    (3, [("step", 30)]),
    (3, [("line", 2), ("line", 3), ("line", 4), ("line", 5)]),
    (3, [("half a line", 5), ("rewound", 1)]),
    (3, [("labels decided", 8)]),
    (3, [("half a file", 1), ("half a file", 2)]),
    *[(3, [("sync", n)]) for n in (5, 6, 7, 10, 22, 23)],
]


def name_of(death):
    every, kills = death
    return f"every {every}: " + ", ".join(f"{place} {n}" for place, n in kills)


@pytest.mark.parametrize("death", DEATHS, ids=name_of)
def test_a_training_that_died_at_some_place_ends_as_if_it_had_not(
    death, server, reference, tmp_path
):
    every, kills = death
    for place, n in kills:
        assert server(tmp_path, every, SMALL, place=place, n=n) == -signal.SIGKILL
    assert server(tmp_path, every, SMALL) == 0
    assert_same(tmp_path, reference(every, SMALL)[0])


OWN_DEATHS: list[tuple[int, list[tuple[str, int]]]] = [
    (1, [("step", 7), ("step", 6)]),
    (1, [("labels decided", 3)]),
    (1, [("half a file", 6), ("renamed", 2)]),
    (3, [("step", 30)]),
    (3, [("line", 2), ("line", 5)]),
]


@pytest.mark.parametrize("death", OWN_DEATHS, ids=name_of)
def test_an_own_optimizer_schedule_and_augmentation_go_on_to_the_bit(
    death, server, reference, tmp_path
):
    every, kills = death
    for place, n in kills:
        assert server(tmp_path, every, SMALL, own=True, place=place, n=n) == -signal.SIGKILL
    assert server(tmp_path, every, SMALL, own=True) == 0
    wanted = reference(every, SMALL, own=True)[0]
    assert_same(tmp_path, wanted)
    assert left_behind(wanted)[0] != left_behind(reference(every, SMALL)[0])[0]


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 3])
def test_a_training_may_die_at_any_write_to_the_disk(every, server, reference, tmp_path):
    for n in range(1, SYNCS[every] + 1):
        folder = tmp_path / str(n)
        assert server(folder, every, SMALL, place="sync", n=n) == -signal.SIGKILL
        assert server(folder, every, SMALL) == 0
        assert_same(folder, reference(every, SMALL)[0])
    assert server(tmp_path / "all", every, SMALL, place="sync", n=SYNCS[every] + 1) == 0


# ------------------------------------------------------------------------- deaths at any moment


def kill_at_random(train_once, every, n_kills, reference, tmp_path, seed):
    """Kill a training at random moments of what is left of it; begin another if it got through."""
    rng, (wanted, seconds) = random.Random(seed), reference(every, LARGE)
    killed, folders = 0, (tmp_path / str(i) for i in count())
    folder = next(folders)
    while killed < n_kills:
        done = len(Run(folder).log.read_bytes().splitlines()) if Run(folder).log.exists() else 0
        delay = rng.uniform(0, 0.8) * seconds * (1 - done / EPOCHS)
        ended = train_once(folder, every, LARGE, delay=delay)
        assert ended in (0, -signal.SIGKILL)
        if ended == 0:
            assert_same(folder, wanted)
            folder = next(folders)
        else:
            killed += 1
    assert train_once(folder, every, LARGE) == 0
    assert_same(folder, wanted)


@pytest.mark.parametrize("every", [1, 3])
def test_a_training_killed_at_random_ends_as_if_it_had_not_been(every, server, reference, tmp_path):
    kill_at_random(server, every, 3, reference, tmp_path, seed=every)


def test_a_new_process_takes_up_what_others_left(reference, tmp_path):
    kill_at_random(fresh, 1, 3, reference, tmp_path, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 3])
def test_a_training_killed_ten_times_ends_as_if_it_had_not_been(every, reference, tmp_path):
    kill_at_random(fresh, every, 10, reference, tmp_path, seed=10 + every)


# ------------------------------------------------------------------------------- a finished run


class Untouched(nn.Sequential):
    """A network that must not be trained."""

    def forward(self, x):
        assert not self.training
        return super().forward(x)


@pytest.fixture
def finished(tmp_path):
    model = network()
    return tmp_path, train(tmp_path, 3, SMALL, model), model.state_dict()


def same(ours, theirs):
    return ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)


def test_a_finished_run_gives_its_history_at_once(finished):
    folder, first, weights = finished
    before = left_behind(folder), (folder / "log.jsonl").read_bytes()
    again, calls = Untouched(*network()), []
    history = train(folder, 3, SMALL, again, on_epoch=lambda *record: calls.append(record))
    assert calls == []
    assert history.records == first.records
    assert (history.best_epoch, history.best_error) == (first.best_epoch, first.best_error)
    assert np.array_equal(history.labels, first.labels)
    assert same(again.state_dict(), weights)
    assert not again.training
    assert (left_behind(folder), (folder / "log.jsonl").read_bytes()) == before
    assert first.best_epoch != EPOCHS  # otherwise selected and last would be the same


def test_a_finished_run_restores_model_files_that_were_deleted(finished):
    folder, _, _ = finished
    before = left_behind(folder)
    for name in ("model", "last"):
        (folder / f"{name}.safetensors").unlink()
    train(folder, 3, SMALL, Untouched(*network()))
    assert left_behind(folder) == before


def test_a_run_that_stopped_early_is_finished_too(tmp_path):
    bags, valid = some_bags(SMALL, 0), some_bags(SMALL // 2, 1)
    config = replace(configuration(5), epochs=60, patience=2, schedule="constant")
    net, untouched = network(), Untouched(*network())
    first = fit(net, bags, valid, config=config, run=tmp_path)
    assert first.n_epochs < 60
    assert first.n_epochs % 5  # the last checkpoint was not due, and yet saved
    again = fit(untouched, bags, valid, config=config, run=tmp_path)
    assert again.records == first.records
    assert same(untouched.state_dict(), net.state_dict())


def test_a_copy_of_a_folder_goes_on_as_the_folder_does(server, reference, tmp_path):
    """Nothing in it knows where it lies."""
    assert server(tmp_path / "a", 1, SMALL, place="line", n=4) == -signal.SIGKILL
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name in "ab":
        assert server(tmp_path / name, 1, SMALL) == 0
        assert_same(tmp_path / name, reference(1, SMALL)[0])


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        say("ready")
        train(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
