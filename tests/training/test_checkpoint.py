"""Checkpoints: all comes back to the bit, nothing else is taken, and a full disk loses none."""

import itertools
import json
import os
import pickle
import resource
import shutil
import struct
import subprocess
import tomllib
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.errors import RunError
from apportion.methods.pseudo_labels import FPL
from apportion.runs.run import FORMAT_VERSION, Run
from apportion.training import checkpoint
from apportion.training.fit import fit

MAPS = Path("/proc/self/maps")
EPOCHS = 4
CONFIG = TrainConfig(epochs=EPOCHS, batch_size=32, learning_rate=0.01, device="cpu", threads=1)


def some_bags(seed, n=60, size=6):
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    x = (2 * np.eye(5)[truth] + rng.normal(size=(n, 5))).astype(np.float32)
    return Bags.from_rows(x, np.arange(n) // size, classes=range(3), truth=truth)


TRAIN, VALID = some_bags(0), some_bags(1)


def network(width=16):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return nn.Sequential(
            nn.Linear(5, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(0.25),
            nn.Linear(width, 3),
        )


class Interrupted(Exception):  # noqa: N818 - it stands for Ctrl-C
    """What a user does to a training in these tests."""


def stop_after(epoch):
    def on_epoch(record, model):
        if record["epoch"] == epoch:
            raise Interrupted

    return on_epoch


def train(folder, *, model=None, bags=TRAIN, valid=VALID, config=CONFIG, method="fpl", **options):
    return fit(model or network(), bags, valid, method=method, config=config, run=folder, **options)


def identical(ours, theirs):
    """Equal names, types, shapes and bits; NaN equals NaN."""
    return ours.keys() == theirs.keys() and all(
        a.dtype == b.dtype
        and a.shape == b.shape
        and a.contiguous()
        .flatten()
        .view(torch.uint8)
        .equal(b.contiguous().flatten().view(torch.uint8))
        for a, b in ((ours[name], theirs[name]) for name in ours)
    )


def outcome(folder, history):
    """All that a training left behind, but the time it took."""
    tensors, scalars = checkpoint.load(Run(folder))
    flat = {f"{group}.{name}": t for group, named in tensors.items() for name, t in named.items()}
    for name in ("model", "last"):
        weights = load_file(folder / f"{name}.safetensors")
        flat |= {f"{name}.{weight}": t for weight, t in weights.items()}
    flat["labels"] = torch.from_numpy(history.labels)
    plain = [{k: v for k, v in r.items() if k != "seconds"} for r in Run(folder).records()]
    return flat, plain, scalars["best_epoch"], scalars["best_error"], scalars["epoch"]


def same_outcome(ours, theirs):
    return identical(ours[0], theirs[0]) and ours[1:] == theirs[1:]


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


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}


def refusal(folder, **changes):
    """The message with which a changed training is refused; the folder must not change."""
    before = contents(folder)
    with pytest.raises(RunError) as refused:
        train(folder, **changes)
    assert contents(folder) == before
    problem, remedy = str(refused.value).split("\n  ")
    assert remedy
    return problem


# ------------------------------------------------------------------------------- there and back

TENSORS = {
    "model": {
        "0.weight": torch.randn(4, 3, generator=torch.Generator().manual_seed(0)),
        "deep.er.bias": torch.tensor([1.0, float("nan"), float("inf"), -0.0]),
        "double": torch.tensor([1 / 3], dtype=torch.float64),
        "half": torch.tensor([1 / 3], dtype=torch.float16),
        "brain": torch.tensor([1 / 3, 3e38], dtype=torch.bfloat16),
        "count": torch.tensor(2**62 + 1),
        "bytes": torch.arange(256, dtype=torch.int64).to(torch.uint8),
        "mask": torch.tensor([True, False, True]),
        "zero-d": torch.tensor(1 / 3, dtype=torch.float64),
        "empty": torch.zeros(0, 3),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "strided": torch.arange(10)[::3],
    },
    "method": {"labels": torch.arange(5)},
}
SCALARS = {
    "epoch": 3,
    "best_error": 0.1 + 0.2,
    "tiny": 5e-324,
    "none": None,
    "large": 2**80,
    "names": ["Zürich", "\u2028", 'quoted "x"'],
    "nested": {"lr": 1e-3, "betas": [0.9, 0.999], "fused": False},
}


def test_tensors_and_scalars_come_back_to_the_bit(tmp_path):
    run = Run(tmp_path)
    checkpoint.save(run, TENSORS, SCALARS)
    tensors, scalars = checkpoint.load(run)
    assert tensors.keys() == TENSORS.keys()
    for group in TENSORS:
        assert identical(tensors[group], TENSORS[group])
    assert scalars == {**SCALARS, "format": FORMAT_VERSION, "kind": "checkpoint"}


def test_weights_that_share_memory_are_saved_each_for_itself(tmp_path):
    run, weight = Run(tmp_path), torch.arange(6.0)
    weights = {"tied": weight, "view": weight[2:], "same": weight}
    checkpoint.save(run, {"model": weights}, {})
    found, _ = checkpoint.load(run)
    assert identical(found["model"], weights)


def test_saving_does_not_touch_what_is_saved(tmp_path):
    run, weight = Run(tmp_path), nn.Parameter(torch.ones(3))
    checkpoint.save(run, {"model": {"w": weight}}, {})
    assert weight.requires_grad
    tensors, _ = checkpoint.load(run)
    tensors["model"]["w"] += 1
    assert weight.tolist() == [1, 1, 1]


def steps(model, optimizer, n, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        optimizer.zero_grad()
        model(torch.randn(8, 5, generator=generator)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("options", [{}, {"amsgrad": True, "weight_decay": 0.1, "lr": 1 / 3}])
def test_optimizer_goes_on_where_it_was(tmp_path, options, dtype):
    """Not only is its state equal: the next steps are, too."""
    run = Run(tmp_path)
    first, second = (nn.Linear(5, 3) for _ in range(2))
    pair = []
    for model in (first, second):
        model.to(dtype)
        model.register_forward_pre_hook(lambda _, x, dtype=dtype: (x[0].to(dtype),))
        pair.append(torch.optim.AdamW(model.parameters(), **options))
    ours, theirs = pair
    steps(first, ours, 3, seed=0)

    checkpoint.save(
        run,
        {"model": first.state_dict(), "optimizer": checkpoint.optimizer_tensors(ours)},
        {"optimizer": checkpoint.optimizer_scalars(ours)},
    )
    theirs.param_groups[0]["lr"] = 123.0  # what is loaded replaces it
    tensors, scalars = checkpoint.load(run)
    second.load_state_dict(tensors["model"])
    checkpoint.load_optimizer(theirs, tensors["optimizer"], scalars["optimizer"])
    assert theirs.param_groups[0]["lr"] == ours.param_groups[0]["lr"]
    for (_, a), (_, b) in zip(ours.state.items(), theirs.state.items(), strict=True):
        assert identical(a, b)

    for model, optimizer in ((first, ours), (second, theirs)):
        steps(model, optimizer, 3, seed=1)
    assert identical(dict(first.state_dict()), dict(second.state_dict()))


def rated(capturable, lr, **options):
    """An optimiser with the rate as a number, or as a tensor that a recording would read."""
    model = network()
    rate = torch.tensor(lr, dtype=torch.float64) if capturable else lr
    return model, torch.optim.AdamW(
        model.parameters(), lr=rate, fused=True, capturable=capturable, **options
    )


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("here", [False, True])
def test_how_an_optimizer_computes_stays_as_it_is_here(tmp_path, here, there):
    """It may have been saved on a GPU, and go on without one, or the other way round."""
    run = Run(tmp_path)
    first, saved = rated(there, 0.02, weight_decay=0.1)
    steps(first.eval(), saved, 3, seed=0)
    groups = {"optimizer": checkpoint.optimizer_scalars(saved)}
    tensors = {"optimizer": checkpoint.optimizer_tensors(saved)}
    checkpoint.save(run, tensors, groups)

    second, own = rated(here, 0.5, weight_decay=0.3)
    second.load_state_dict(first.state_dict())
    rate = own.param_groups[0]["lr"]
    read, scalars = checkpoint.load(run)
    checkpoint.load_optimizer(own, read["optimizer"], scalars["optimizer"])
    (group,) = own.param_groups
    assert group["capturable"] is here
    assert group["weight_decay"] == 0.1
    if here:
        assert group["lr"] is rate  # the tensor that a recording reads
        assert rate.item() == 0.02
    else:
        assert isinstance(group["lr"], float)
        assert group["lr"] == 0.02

    for model, optimizer in ((first, saved), (second.eval(), own)):
        steps(model, optimizer, 3, seed=1)
    for name, value in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], value, rtol=1e-5, atol=1e-7)


# ------------------------------------------------------------------------------ what a file holds


def test_file_is_a_plain_safetensors_file(folder):
    """Read by hand: a length, a header of JSON, and the numbers; not a byte is left for more."""
    data = (folder / "checkpoint.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    assert list(metadata) == ["apportion"]
    about = json.loads(metadata["apportion"])
    assert (about["format"], about["kind"], about["epoch"]) == (FORMAT_VERSION, "checkpoint", 2)
    ends = sorted(tuple(entry["data_offsets"]) for entry in header.values())
    assert ends[0][0] == 0
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ends))
    assert ends[-1][1] == len(data) - 8 - length


def test_file_holds_all_that_is_needed_to_go_on(folder):
    tensors = load_file(folder / "checkpoint.safetensors")
    weights = network().state_dict()
    groups = {name.partition(".")[0] for name in tensors}
    assert groups == {"model", "best", "optimizer", "method"}
    for group in ("model", "best"):
        assert {f"{group}.{name}" for name in weights} <= tensors.keys()
    assert tensors["method.labels"].dtype is torch.int64
    n_parameters = len(list(network().parameters()))
    for i in range(n_parameters):
        assert {f"optimizer.{i}.{n}" for n in ("step", "exp_avg", "exp_avg_sq")} <= tensors.keys()


def test_a_finished_training_leaves_models_for_safetensors_alone(tmp_path):
    seen = []

    def look(record, net):
        seen.append({name: weight.clone() for name, weight in net.state_dict().items()})

    history = train(tmp_path, on_epoch=look)
    assert identical(load_file(tmp_path / "model.safetensors"), seen[history.best_epoch - 1])
    assert identical(load_file(tmp_path / "last.safetensors"), seen[-1])
    for name, epoch in (("model", history.best_epoch), ("last", EPOCHS)):
        with safe_open(tmp_path / f"{name}.safetensors", framework="numpy") as file:
            about = json.loads(file.metadata()["apportion"])
        assert (about["epoch"], about["classes"]) == (epoch, [0, 1, 2])


def test_equal_trainings_leave_equal_bytes(tmp_path):
    """All but the times in the log, wherever and whenever they were trained."""
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        train(folder)
    files = [{path.name: path.read_bytes() for path in f.glob("*.safetensors")} for f in folders]
    assert files[0].keys() == {f"{n}.safetensors" for n in
                               ("checkpoint", "model", "last", "evaluation")}  # fmt: skip
    assert [name for name in files[0] if files[0][name] != files[1][name]] == []


def test_nothing_is_pickled(folder, monkeypatch):
    def refuse(*arguments, **options):
        pytest.fail("something was pickled")

    for module, names in (
        (pickle, ("dump", "dumps", "load", "loads", "Pickler", "Unpickler")),
        (torch, ("save", "load")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, refuse)
    train(folder)


# -------------------------------------------------------------------------------- damaged files


def cuts(data):
    header = 8 + struct.unpack("<Q", data[:8])[0]
    return {
        0,
        1,
        7,
        8,
        9,
        header // 2,
        header - 1,
        header,
        header + 1,
        len(data) // 2,
        len(data) - 1,
    }


def test_a_file_that_was_cut_short_is_refused_wherever_it_was_cut(folder):
    path = folder / "checkpoint.safetensors"
    whole = path.read_bytes()
    for cut in sorted(cuts(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(RunError) as refused:
            checkpoint.load(Run(folder))
        assert f"{path} is damaged or cut short" in str(refused.value), cut
        assert "train again in another folder" in str(refused.value)
    assert "is damaged or cut short" in refusal(folder)
    path.write_bytes(whole)
    train(folder)


@pytest.mark.parametrize("junk", [b"{}", b"\xff" * 64, b"PK\x03\x04" + b"\0" * 60, b"hello " * 20])
def test_a_file_of_something_else_is_refused(folder, junk):
    (folder / "checkpoint.safetensors").write_bytes(junk)
    assert "is damaged or cut short" in refusal(folder)


def test_another_format_version_is_refused_by_number(folder):
    path = folder / "checkpoint.safetensors"
    save_file(load_file(path), path, {"apportion": json.dumps({"format": 99})})
    problem = refusal(folder)
    assert f"{path} is of format version 99; this apportion reads {FORMAT_VERSION}." in problem


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_a_safetensors_file_of_someone_else_is_refused(folder, metadata):
    path = folder / "checkpoint.safetensors"
    save_file(network().state_dict(), path, metadata)
    assert f"{path} was not saved by apportion" in refusal(folder)


def test_a_model_in_the_place_of_a_checkpoint_is_refused(tmp_path):
    """It is a file of apportion's own, but there is nothing in it to go on from."""
    train(tmp_path)
    shutil.copy(tmp_path / "model.safetensors", tmp_path / "checkpoint.safetensors")
    assert refusal(tmp_path).endswith(
        "checkpoint.safetensors holds another kind: model, not checkpoint."
    )


# ------------------------------------------------------------------------ another run's checkpoint


def changed_x(bags):
    x = bags.x.copy()
    x[-1, -1] += 1e-3
    return replace(bags, x=x)


def changed_proportions(bags):
    """Other proportions that round to the same counts."""
    proportions = bags.proportions.copy()
    i = int(((proportions > 0).sum(axis=1) > 1).argmax())
    high, low = proportions[i].argsort()[[-1, -2]]
    proportions[i, high] -= 1e-4
    proportions[i, low] += 1e-4
    return replace(bags, proportions=proportions)


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
        ("epochs", 9),
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
        (nn.Sequential(*network(), nn.Linear(3, 3)), ["5.bias", "None there", "(3,) here"]),
        (nn.Sequential(network()), ["0.0.bias", "None there", "(16,) here"]),
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

    mine, config = torch.get_num_threads(), replace(CONFIG, threads=None)
    try:
        torch.set_num_threads(1)
        with pytest.raises(Interrupted):
            train(tmp_path, config=config, on_epoch=watch)
        torch.set_num_threads(2)
        train(tmp_path, config=config, on_epoch=watch)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(mine)
    assert seen == [1] * EPOCHS


# ---------------------------------------------------------------------------- the log beside it


def test_a_log_shorter_than_the_checkpoint_says_is_refused(folder):
    log = folder / "log.jsonl"
    whole = log.read_text()
    log.write_text(whole.splitlines(keepends=True)[0])
    assert f"{log} has 1 line, but the checkpoint was saved after 2 epochs" in refusal(folder)
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
    assert problem == f"{folder} has a log of 2 epochs, but no checkpoint to go on from."


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


# ------------------------------------------------------------------------------- the fingerprint


def test_fingerprint_does_not_see_the_truth():
    noise = np.random.default_rng(3).integers(3, size=TRAIN.n_instances)
    ours = checkpoint.fingerprint(TRAIN)
    assert checkpoint.fingerprint(replace(TRAIN, truth=noise)) == ours
    assert checkpoint.fingerprint(TRAIN.without_truth()) == ours


def swapped(bags):
    """Two rows change places within the first bag."""
    index = bags.index.copy()
    index[[0, 1]] = index[[1, 0]]
    return replace(bags, index=index)


def moved_border(bags):
    """The first bag gives an instance of some class to the second."""
    offsets, counts = bags.offsets.copy(), bags.counts.copy()
    offsets[1] -= 1
    k = counts[0].argmax()
    counts[0, k] -= 1
    counts[1, k] += 1
    return replace(bags, offsets=offsets, counts=counts)


def other_counts(bags):
    counts = bags.counts.copy()
    high, low = counts[0].argmax(), counts[0].argmin()
    counts[0, high] -= 1
    counts[0, low] += 1
    return replace(bags, counts=counts)


@pytest.mark.parametrize(
    "change",
    [
        changed_x,
        changed_proportions,
        swapped,
        moved_border,
        other_counts,
        lambda bags: replace(bags, classes=("0", "1", "2")),
        lambda bags: replace(bags, classes=(1, 0, 2)),
        lambda bags: replace(bags, ids=bags.ids[::-1]),
        lambda bags: replace(bags, ids=tuple(map(str, bags.ids))),
        lambda bags: replace(bags, x=bags.x.astype(np.float64)),
        lambda bags: replace(bags, x=bags.x.reshape(len(bags.x), 5, 1)),
        lambda bags: replace(bags, x=(bags.x, bags.x)),
        lambda bags: replace(bags, x=np.concatenate([bags.x, bags.x[:1]])),
        lambda bags: bags[slice(1, None)],
    ],
)
def test_fingerprint_sees_everything_else(change):
    assert checkpoint.fingerprint(change(TRAIN)) != checkpoint.fingerprint(TRAIN)


@pytest.mark.parametrize("n", [1, 2, 100, 1000, 1023, 1024])
def test_fingerprint_sees_each_row_of_small_data(n):
    def bags(x):
        return Bags.from_rows(x, np.zeros(n, int), {0: [1.0, 0.0]})

    x = np.zeros((n, 2), np.float32)
    ours = checkpoint.fingerprint(bags(x))
    for row in {0, 1, n // 3, n // 2, n - 2, n - 1} & set(range(n)):
        changed = x.copy()
        changed[row, 1] = 1e-30
        assert checkpoint.fingerprint(bags(changed)) != ours, row


def test_fingerprint_is_of_the_numbers_wherever_they_lie(tmp_path):
    np.save(tmp_path / "x.npy", TRAIN.x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    strided = np.asfortranarray(TRAIN.x)
    ours = checkpoint.fingerprint(TRAIN)
    assert checkpoint.fingerprint(replace(TRAIN, x=mapped)) == ours
    assert checkpoint.fingerprint(replace(TRAIN, x=strided)) == ours


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64, torch.bool])
def test_fingerprint_takes_tensors_of_any_type(dtype):
    ones = torch.ones(TRAIN.n_rows, 2).to(dtype)
    other = ones.clone()
    other[-1, 0] = 0
    a, b, c = (checkpoint.fingerprint(replace(TRAIN, x=x)) for x in (ones, ones.clone(), other))
    assert a == b != c


def test_no_bags_have_no_fingerprint():
    assert checkpoint.fingerprint(None) == ""


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
