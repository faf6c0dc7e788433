"""Every method does what every method must: `apportion.testing` says what that is."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from apportion.bags.bags import Bags
from apportion.methods.base import Supervision
from apportion.methods.proportion_loss import ProportionLoss
from apportion.methods.pseudo_labels import FPL
from apportion.methods.registry import METHODS
from apportion.testing import METHOD_CHECKS


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
    "naive, first decided": FPL(eta=0, accumulate=False, first="decide"),
    "proportion-loss, l1": ProportionLoss("l1"),
    "proportion-loss, squared": ProportionLoss("squared"),
    "a user's own": MeanOfLogits(),
}


@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", GIVEN)
def test_conformance(name, check):
    check(GIVEN[name])
