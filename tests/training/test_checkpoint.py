"""Checkpoints: all comes back to the bit, nothing else is taken, and bags are recognised."""

import itertools
import json
import pickle
import shutil
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from apportion.bags.bags import Bags
from apportion.errors import RunError
from apportion.runs.run import FORMAT_VERSION, Run
from apportion.training import checkpoint
from tests.training.interrupted_runs import (
    EPOCHS,
    TRAIN,
    changed_proportions,
    changed_x,
    identical,
    network,
    refusal,
    train,
)

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
    for name, _ in network().named_parameters():
        state = {f"optimizer.{name}.{n}" for n in ("step", "exp_avg", "exp_avg_sq")}
        assert state <= tensors.keys()


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
