"""A small training, ways to leave it in the middle, and all that it leaves behind."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.errors import RunError
from apportion.runs.run import Run
from apportion.training import checkpoint
from apportion.training.fit import fit

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
