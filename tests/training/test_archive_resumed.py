"""A training that was left goes on: what may be different by then, short logs, full disks."""

import itertools
import os
import resource
import shutil
import subprocess
import tomllib
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.errors import RunError
from apportion.labels.raking import Raking
from apportion.methods.pseudo_labels import FPL
from apportion.nets.build import build_net
from apportion.runs.run import Run
from apportion.training.fit import fit
from tests.training.interrupted_runs import (
    CONFIG,
    EPOCHS,
    TRAIN,
    VALID,
    Interrupted,
    changed_proportions,
    changed_x,
    contents,
    identical,
    network,
    outcome,
    refusal,
    same_outcome,
    some_bags,
    stop_after,
    train,
)

MAPS = Path("/proc/self/maps")


# ------------------------------------------------------------------------ another run's checkpoint


@pytest.mark.parametrize("change", [changed_x, changed_proportions, lambda bags: some_bags(5)])
@pytest.mark.parametrize(
    ("which", "name", "bags"), [("bags", "training", TRAIN), ("valid", "validation", VALID)]
)
def test_other_bags_are_refused(folder, change, which, name, bags):
    problem = refusal(folder, **{which: change(bags)})
    assert problem == f"{folder} holds a run of another {name} set."


def test_leaving_out_validation_is_refused(folder):
    assert refusal(folder, valid=None) == f"{folder} holds a run of another validation set."


def test_truth_may_come_and_go(folder, uninterrupted):
    """Without it there are no accuracies in the log; all else is the same."""
    history = train(folder, bags=TRAIN.without_truth(), valid=VALID.without_truth())
    found = outcome(folder, history)
    assert identical(found[0], uninterrupted[0])


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("greedy", ["eta None, not 0"]),
        (FPL(eta=0.25), ["eta None, not 0.25"]),
        (FPL(unlikelihood="plain"), ["unlikelihood 'relative', not 'plain'"]),
        ("proportion-loss", ["name 'fpl', not 'proportion-loss'"]),
        (FPL(first=np.repeat([0, 1, 2], 20)), ["first 'random', not"]),
    ],
)
def test_another_method_is_refused_by_what_differs(folder, method, words):
    if not isinstance(method, str) and not isinstance(method.first, str):
        feasible = np.concatenate([np.repeat(np.arange(3), counts) for counts in TRAIN.counts])
        method = FPL(first=feasible)
    problem = refusal(folder, method=method)
    assert f"{folder} holds a run of another method" in problem
    for word in words:
        assert word in problem


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("epochs", EPOCHS - 1),
        ("batch_size", 16),
        ("bags_per_step", 2),
        ("instances_per_pass", 8),
        ("learning_rate", 0.02),
        ("weight_decay", 0.1),
        ("schedule", "cosine"),
        ("warmup", 0.5),
        ("patience", 3),
        ("seed", 1),
    ],
)
def test_another_configuration_is_refused_by_option_and_both_values(folder, option, value):
    problem = refusal(folder, config=replace(CONFIG, **{option: value}))
    assert f"{folder} holds a run of another configuration" in problem
    assert f"{option} {getattr(CONFIG, option)!r}, not {value!r}" in problem
    assert problem.count(", not ") == 1


def test_another_precision_is_refused_but_not_another_word_for_it(folder):
    problem = refusal(folder, config=replace(CONFIG, precision="bfloat16"))
    assert "another arithmetic: precision 'float32', not 'bfloat16'" in problem
    assert train(folder, config=replace(CONFIG, precision="float32")).n_epochs == EPOCHS


def test_every_option_that_differs_is_named(folder):
    problem = refusal(folder, config=replace(CONFIG, epochs=5, seed=6, augment=("noise",)))
    assert "augment [], not ['noise'], epochs 4, not 5, seed 0, not 6" in problem


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (network(width=12), ["0.bias", "(16,) there", "(12,) here"]),
        (nn.Sequential(*network(), nn.Linear(3, 3)), ["5.bias", "missing there", "(3,) here"]),
        (nn.Sequential(network()), ["0.0.bias", "missing there", "(16,) here"]),
    ],
)
def test_another_model_is_refused_by_the_weight_that_differs(folder, model, words):
    problem = refusal(folder, model=model)
    assert f"{folder / 'checkpoint.safetensors'} was saved from another net" in problem
    for word in words:
        assert word in problem


@pytest.mark.parametrize(
    "changes", [{"device_memory_gib": 0}, {"device_memory_gib": 3.5}, {"step_mode": "eager"}]
)
def test_data_may_be_streamed_and_steps_taken_in_another_way(folder, changes, uninterrupted):
    history = train(folder, config=replace(CONFIG, **changes))
    assert same_outcome(outcome(folder, history), uninterrupted)


@pytest.mark.parametrize("method", ["proportion-loss", "fpl"])
def test_a_run_that_was_streamed_goes_on_without(tmp_path, method):
    config = replace(CONFIG, instances_per_pass=10)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    wanted = train(whole, config=config, method=method)
    streamed = replace(config, device_memory_gib=0)
    with pytest.raises(Interrupted):
        train(parts, config=streamed, method=method, on_epoch=stop_after(2))
    found = train(parts, config=config, method=method)
    ours, theirs = (load_file(run / "last.safetensors") for run in (parts, whole))
    assert identical(ours, theirs)
    assert found["loss"] == wanted["loss"]
    assert found["valid_error"] == wanted["valid_error"]


@pytest.mark.parametrize(
    "changes", [{"device": "auto"}, {"threads": 2}, {"checkpoint_every": 3}, {"threads": None}]
)
def test_device_threads_and_checkpoints_may_change(folder, changes):
    if "device" in changes and torch.cuda.is_available():
        changes = {"device": "cuda", "precision": "float32"}
    history = train(folder, config=replace(CONFIG, **changes))
    assert history.n_epochs == EPOCHS
    assert [record["epoch"] for record in Run(folder).records()] == list(range(1, EPOCHS + 1))


def test_a_run_without_a_word_on_threads_keeps_those_it_began_with(tmp_path):
    """Only so many give the same bits, whatever torch is set to by then."""
    seen = []

    def watch(record, model):
        seen.append(torch.get_num_threads())
        if record["epoch"] == 2 and len(seen) == 2:
            raise Interrupted

    mine = torch.get_num_threads()
    with pytest.raises(Interrupted):
        train(tmp_path, config=replace(CONFIG, threads=2), on_epoch=watch)
    train(tmp_path, config=replace(CONFIG, threads=None), on_epoch=watch)
    assert torch.get_num_threads() == mine
    assert seen == [2] * EPOCHS  # where 1 would be planned


# ---------------------------------------------------------------------------- the log beside it


def test_a_log_shorter_than_the_checkpoint_says_is_refused(folder):
    log = folder / "log.jsonl"
    whole = log.read_text()
    log.write_text(whole.splitlines(keepends=True)[0])
    assert f"{log} has 1 line, but the checkpoint was saved after 2 records" in refusal(folder)
    log.write_text(whole[:-2])
    assert f"{log} has 1 epochs, but the checkpoint 2" in refusal(folder)
    log.unlink()
    assert f"{log} has 0 lines" in refusal(folder)


def test_a_log_longer_than_the_checkpoint_says_is_cut_back(folder, uninterrupted):
    with (folder / "log.jsonl").open("a") as log:
        log.write('{"epoch": 3, "loss": 0}\n{"epo')
    assert same_outcome(outcome(folder, train(folder)), uninterrupted)


def test_a_log_without_a_checkpoint_is_refused_by_its_epochs(folder):
    (folder / "checkpoint.safetensors").unlink()
    problem = refusal(folder)
    assert problem == f"{folder} has a log of 2 records, but no checkpoint to go on from."


def test_a_run_left_before_its_first_checkpoint_starts_again(tmp_path, uninterrupted):
    config = replace(CONFIG, checkpoint_every=3)
    with pytest.raises(Interrupted):
        train(tmp_path, config=config, on_epoch=stop_after(2))
    assert not (tmp_path / "checkpoint.safetensors").exists()
    assert same_outcome(outcome(tmp_path, train(tmp_path, config=config)), uninterrupted)


def test_a_run_left_before_its_first_checkpoint_may_then_save_more_often(tmp_path, uninterrupted):
    with pytest.raises(Interrupted):
        train(tmp_path, config=replace(CONFIG, checkpoint_every=3), on_epoch=stop_after(2))
    assert same_outcome(outcome(tmp_path, train(tmp_path)), uninterrupted)


def test_a_first_line_that_was_never_finished_is_started_again(tmp_path, uninterrupted):
    """Where a disk is full, half a line may stay: with no checkpoint yet, there is nothing lost."""
    (tmp_path / "log.jsonl").write_text('{"epoch": 1, "loss": 0.6')
    assert same_outcome(outcome(tmp_path, train(tmp_path)), uninterrupted)


# ------------------------------------------------------------------------------------ full disks


def limit(n_bytes):
    """Limit the size of every file: writing beyond it fails as on a full disk (EFBIG)."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))


@contextmanager
def own_limit(n_bytes=None):
    """Restore the limit at the end of the test."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if n_bytes is not None:
            limit(n_bytes)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path, uninterrupted):
    path, kept = tmp_path / "checkpoint.safetensors", []

    def fill(record, model):
        if record["epoch"] == 2:
            kept.append(path.read_bytes())
            limit(len(kept[0]) // 2)

    with own_limit(), pytest.raises(RunError) as refused:
        train(tmp_path, on_epoch=fill)
    problem, remedy = str(refused.value).split("\n  ")
    assert f"{path} cannot be written: " in problem
    assert "File too large" in problem
    assert problem.endswith("The old content is intact.")
    assert "Make room on the disk" in remedy
    assert path.read_bytes() == kept[0]
    assert sorted(contents(tmp_path)) == ["checkpoint.safetensors", "config.toml", "log.jsonl"]
    assert same_outcome(outcome(tmp_path, train(tmp_path)), uninterrupted)


def test_a_first_checkpoint_that_cannot_be_written_leaves_none(tmp_path, uninterrupted):
    with own_limit(2_000), pytest.raises(RunError) as refused:
        train(tmp_path)
    assert "checkpoint.safetensors cannot be written" in str(refused.value)
    assert "intact" not in str(refused.value)
    assert sorted(contents(tmp_path)) == ["config.toml", "log.jsonl"]
    assert same_outcome(outcome(tmp_path, train(tmp_path)), uninterrupted)


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_log_that_ends_in_the_middle_of_a_line_is_put_right(tmp_path, uninterrupted, epoch):
    """The line of some epoch is the first thing that does not fit."""
    log, model, passes = tmp_path / "log.jsonl", network(), itertools.count(1)
    per_epoch = 2  # passes in training mode: 60 instances, 32 a step

    def fill(module, x, y):
        if module.training and next(passes) == per_epoch * epoch:
            limit((log.stat().st_size if log.exists() else 0) + 25)

    model.register_forward_hook(fill)
    with own_limit(), pytest.raises(RunError, match=r"log\.jsonl cannot be written: .*too large"):
        train(tmp_path, model=model)
    assert not log.read_bytes().endswith(b"\n")  # otherwise this tests nothing
    assert same_outcome(outcome(tmp_path, train(tmp_path)), uninterrupted)


def test_models_that_cannot_be_written_are_written_later(tmp_path, uninterrupted):
    def fill(record, model):
        if record["epoch"] == EPOCHS:
            limit(1_000)

    with own_limit(), pytest.raises(RunError, match=r"model\.safetensors cannot be written"):
        train(tmp_path, on_epoch=fill)
    history = train(tmp_path)
    assert same_outcome(outcome(tmp_path, history), uninterrupted)


@pytest.fixture
def small_disk(tmp_path):
    """A real filesystem of 512 KiB, where the machine lets us mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    if os.name != "posix" or shutil.which("mount") is None:
        pytest.skip("there is no mount command")
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this user may not mount a small disk: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_disk_that_is_full_loses_no_checkpoint(small_disk, uninterrupted):
    folder, path, kept = small_disk / "run", small_disk / "run" / "checkpoint.safetensors", []

    def fill(record, model):
        """Leave room for half a checkpoint after epoch 2."""
        if record["epoch"] == 2:
            kept.append(path.read_bytes())
            free = shutil.disk_usage(small_disk).free
            (small_disk / "other").write_bytes(bytes(free - len(kept[0]) // 2))

    with pytest.raises(RunError) as refused:
        train(folder, on_epoch=fill)
    assert f"{path} cannot be written" in str(refused.value)
    assert "No space left on device" in str(refused.value)
    assert "The old content is intact." in str(refused.value)
    assert path.read_bytes() == kept[0]
    assert sorted(contents(folder)) == ["checkpoint.safetensors", "config.toml", "log.jsonl"]
    (small_disk / "other").unlink()
    assert same_outcome(outcome(folder, train(folder)), uninterrupted)


@pytest.mark.skipif(not MAPS.exists(), reason="nothing here tells what a process has mapped")
def test_a_run_that_goes_on_lets_go_of_the_file_it_read(folder):
    """While a replaced file is mapped its room is not free: the disk would have to hold three."""
    held: list[str] = []

    def look(record, model):
        held.extend(line for line in MAPS.read_text().splitlines() if str(folder) in line)

    train(folder, on_epoch=look)
    assert held == []


# -------------------------------------------------------------------------------- others' files


def test_a_finished_run_without_its_checkpoint_is_not_overwritten(tmp_path):
    config = replace(CONFIG, checkpoint_every=2 * EPOCHS)
    train(tmp_path, config=config)
    (tmp_path / "checkpoint.safetensors").unlink()
    before = contents(tmp_path)
    assert "no checkpoint to go on from" in refusal(tmp_path, config=replace(config, seed=1))
    assert contents(tmp_path) == before


def test_a_folder_with_another_config_is_left_alone(tmp_path):
    (tmp_path / "config.toml").write_text('[project]\nname = "mine"\n')
    before = contents(tmp_path)
    assert "config.toml is not the configuration of a run" in refusal(tmp_path)
    assert contents(tmp_path) == before


def test_a_run_says_what_its_defaults_came_to(folder):
    said = tomllib.loads((folder / "config.toml").read_text())
    assert said["resolved"]["eta"] == pytest.approx(5 * EPOCHS / 400)
    assert said["resolved"]["device"] == "cpu"
    assert said["resolved"]["precision"] == "float32"
    assert TrainConfig.from_toml((folder / "config.toml").read_text()) == CONFIG


def test_joint_labels_of_counts_that_are_estimates_go_on_as_if_nothing_had_happened(
    tmp_path, monkeypatch
):
    """How far the counts are trusted was learned at decision 4, and is saved for 6 and 7.

    What would be learned later is something else.
    """
    monkeypatch.setattr(Raking, "learn_error", lambda self, z: 1 + float(np.abs(z).sum()) % 500)
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=1000)
    x = (np.eye(2)[truth] + 0.7 * rng.normal(size=(1000, 2))).astype(np.float32)
    members = []
    for share in rng.random((100, 2)):
        p = share[truth] / np.bincount(truth)[truth]
        members.append(rng.choice(1000, 100, replace=False, p=p / p.sum()))
    shares = [np.bincount(truth[rng.choice(own, 20)], minlength=2) / 20 for own in members]
    bags = Bags.from_members(x, members, np.array(shares))
    sure = np.exp(2 * x[bags.index])
    sure /= sure.sum(axis=1, keepdims=True)
    method = FPL(eta=0, unlikelihood="log", joint=True, memory=0.3, first=sure)

    def ended(folder: Path, *, stops: bool = False):
        def stop(record, net):
            if stops and record["epoch"] == 5:
                raise KeyboardInterrupt

        net, config = build_net("mlp", bags, seed=0), TrainConfig(epochs=7, device="cpu")
        history = fit(net, bags, method=method, config=config, run=folder, on_epoch=stop)
        return history.labels, [weight.detach() for weight in net.parameters()]

    labels, weights = ended(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        ended(tmp_path / "parts", stops=True)
    again, others = ended(tmp_path / "parts")
    assert np.array_equal(labels, again)
    assert all(map(torch.equal, weights, others))
    saved = load_file(tmp_path / "parts" / "checkpoint.safetensors")
    assert float(saved["method.count_error"]) > 1
