"""Every method does what every method must: `apportion.testing` says what that is."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from apportion.bags.bags import Bags
from apportion.errors import ConfigError
from apportion.methods.base import Supervision
from apportion.methods.proportion_loss import ProportionLoss
from apportion.methods.pseudo_labels import FPL
from apportion.methods.registry import METHODS
from apportion.testing import METHOD_CHECKS, Training, toy_bags


def with_first_labels(bags: Bags) -> FPL:
    """Labels of the caller: each bag's classes in order, which meets the counts."""
    classes = np.tile(np.arange(bags.n_classes), bags.n_bags)
    return FPL(first=np.repeat(classes, bags.counts.ravel()))


@dataclass(frozen=True)
class MeanOfLogits:
    """A method of a user, made of the protocol alone: pulls every instance to its bag's shares."""

    strength: float = 1.0

    unit: ClassVar = "instances"

    def start(self, bags, *, epochs, device, seed, threads=None):
        return Pull(bags, self.strength, device)


class Pull(Supervision):
    def __init__(self, bags, strength, device):
        self.strength = strength
        shares = np.repeat(bags.proportions, bags.sizes, axis=0)
        self.shares = torch.from_numpy(shares).to(device, torch.float32)

    def instance_loss(self, model, batch, logits):
        wanted = self.shares.index_select(0, batch.position)
        return -self.strength * (wanted * logits.log_softmax(dim=1)).sum(dim=1).mean()


GIVEN = {
    **METHODS,
    "fpl, first decided": FPL(first="decide"),
    "fpl, first given": with_first_labels,
    "fpl, of rows": FPL(rows=True, smoothing=0.1, memory=0.5, unlikelihood="log"),
    "fpl, mixed": FPL(mixup=True),
    "naive, first decided": FPL(eta=0, memory=0, first="decide"),
    "proportion-loss, l1": ProportionLoss("l1"),
    "proportion-loss, squared": ProportionLoss("squared"),
    "a user's own": MeanOfLogits(),
}


@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", GIVEN)
def test_conformance(name, check):
    check(GIVEN[name])


REFUSED = {  # x that the suite lets a method refuse
    "in parts": {
        "strong": r"linear models .* x is of shape \(32, 2\) and \(32,\)",
        "fpl-mean-map": r"linear models .* x is of shape \(32, 2\) and \(32,\)",
        "fpl, mixed": r"mixup averages instances, but these are of 2 parts",
    },
    "single numbers": dict.fromkeys(
        ("strong", "fpl-mean-map"), r"linear models .* x is of shape \(32,\)"
    ),
}


class InParts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.numbers, self.codes = torch.nn.Linear(2, 3), torch.nn.Embedding(4, 3)

    def forward(self, numbers, codes):
        return self.numbers(numbers) + self.codes(codes)


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("name", GIVEN)
def test_only_what_is_known_to_be_is_refused(name, kind):
    if kind == "in parts":
        net: torch.nn.Module = InParts()
        bags = toy_bags(x_of=lambda points: (points, np.arange(len(points)) % 4))
    else:
        net = torch.nn.Sequential(torch.nn.Unflatten(0, (-1, 1)), torch.nn.Linear(1, 3))
        bags = toy_bags(x_of=lambda points: points[:, 0].copy())
    given: Any = GIVEN[name]
    method = given if hasattr(given, "start") else given(bags)
    words = REFUSED[kind].get(name)
    with pytest.raises(ConfigError, match=words) if words else nullcontext():
        Training(net, bags, method, epochs=1)
