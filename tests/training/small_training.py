"""Small bags and networks to train in a moment, and the same numbers computed in another way."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine import step
from apportion.engine.update import update
from apportion.training.fit import fit

METHODS = ("fpl", "proportion-loss")
CONFIG = TrainConfig(epochs=6, batch_size=32, learning_rate=0.02, device="cpu", threads=1)


def points(n, seed, spread=1.0):
    """Points around three corners, and which corner it is."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    x = (2 * np.eye(4)[truth] + spread * rng.normal(size=(n, 4))).astype(np.float32)
    return x, truth


def some_bags(seed, n=90, size=9, spread=1.0):
    """Bags of a few points, with truth; as many of each class as chance has it."""
    x, truth = points(n, seed, spread)
    return Bags.from_rows(x, np.arange(n) // size, classes=range(3), truth=truth)


def survey(seed, n=50):
    """Overlapping bags of unequal size whose proportions were not counted from their rows."""
    x, truth = points(n, seed)
    rng = np.random.default_rng([seed, 1])
    sizes = [3, 11, 7, 20, 5]
    members = {f"ward {i}": rng.permutation(n)[:size] for i, size in enumerate(sizes)}
    shares = {bag: rng.dirichlet([2, 2, 2]) for bag in members}
    return Bags.from_members(x, members, shares, classes=range(3), truth=truth)


TRAIN, VALID, TEST = some_bags(0), survey(1), survey(2)


def network(dropout=0.2):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return nn.Sequential(
            nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3)
        )


def linear():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return nn.Linear(4, 3)


def weights_of(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def identical(ours, theirs):
    return ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)


def without_times(records):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


class Album:
    """Keeps the weights and the record of every epoch, as `on_epoch` sees them."""

    def __init__(self):
        self.weights, self.records = [], []

    def __call__(self, record, model):
        self.weights.append(weights_of(model))
        self.records.append(copy.deepcopy(record))


def confidences(weights, bags):
    """Softmax of a copy of the model, instance by instance, in float64."""
    model = network()
    model.load_state_dict(weights)
    model.double().eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(bags.x[bags.index]).double()).numpy()
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def error_of(weights, bags):
    """The mean over bags of the total variation of given and mean soft proportions."""
    soft = confidences(weights, bags)
    return np.mean(
        [
            0.5 * np.abs(bags.proportions[i] - soft[first:last].mean(axis=0)).sum()
            for i, (first, last) in enumerate(itertools.pairwise(bags.offsets))
        ]
    )


def accuracy_of(weights, bags):
    return np.mean(confidences(weights, bags).argmax(axis=1) == bags.truth)


class Rates:
    """Reads the learning rate in every step."""

    def __enter__(self):
        self.seen: list[float] = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(step, "update", self.update)
        return self

    def update(self, optimizer):
        self.seen.append(optimizer.param_groups[0]["lr"])
        update(optimizer)

    def __exit__(self, *_):
        self.patch.undo()


def refusal(kind, *arguments, **options):
    with pytest.raises(kind) as refused:
        fit(*arguments, **{"config": CONFIG, **options})
    problem, remedy = str(refused.value).split("\n  ")
    assert remedy
    return problem, remedy
