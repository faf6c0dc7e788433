"""Pseudo labels on a device: what the leader decides is what steps read."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from apportion.bags.bags import Bags
from apportion.engine.batches import Batch
from apportion.errors import ConfigError
from apportion.labels.leader import Leader
from apportion.labels.start import first_labels
from apportion.methods.pseudo_labels import FPL
from apportion.methods.registry import METHODS
from tests.labels.tables import table_bags

CPU = torch.device("cpu")
COUNTS = np.array([[3, 2, 0], [0, 0, 1], [2, 2, 4], [1, 5, 1]])
SMALL = Bags.from_rows(
    np.zeros((21, 1)), np.repeat(np.arange(4), COUNTS.sum(axis=1)), COUNTS, counts=True
)
SORTED = np.repeat(np.tile(np.arange(3), 4), COUNTS.ravel())  # labels that meet the counts


def start(method: Any = None, epochs: int = 10, seed: int = 0, **options: Any) -> Any:
    method = METHODS[method] if isinstance(method, str) else FPL(**options)
    return method.start(SMALL, epochs=epochs, device=CPU, seed=seed, threads=1)


def confidence_of(seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(3), 21)).float()


@pytest.mark.parametrize(("epochs", "eta"), [(400, 5), (100, 1.25), (1, 0.0125), (800, 10)])
def test_eta_grows_with_the_epochs_by_default(epochs, eta):
    state = start(epochs=epochs)
    assert state.leader.eta == pytest.approx(eta)
    assert state.resolved == {"eta": pytest.approx(eta)}


@pytest.mark.parametrize("eta", [0, 0.0, 3, 7.5])
def test_eta_is_what_is_given_whatever_the_epochs(eta):
    assert start(epochs=400, eta=eta).leader.eta == eta


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fpl", {"eta": 2.5}),
        ("fpl-plain", {"eta": 2.5, "unlikelihood": "plain"}),
        ("greedy", {"eta": 0}),
        ("naive", {"eta": 0, "accumulate": False}),
    ],
)
def test_what_is_decided_and_logged_is_what_a_leader_decides(name, options):
    state, leader = start(name, epochs=200, seed=4), Leader(SMALL, seed=4, **options)
    labels = state.labels
    assert labels.dtype == torch.int64
    assert labels.tolist() == leader.labels.tolist()
    for epoch in (1, 2, 3):
        logged = state.epoch_end(epoch, confidence_of(epoch).requires_grad_())
        decided = leader.decide(confidence_of(epoch).numpy())
        assert logged == {"changed": decided.changed, "regret": decided.regret}
        assert state.labels is labels  # which recorded steps read
        assert labels.tolist() == decided.labels.tolist()


def test_the_loss_is_the_cross_entropy_with_the_labels_now():
    state = start(eta=4)
    logits = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 3)))
    batch = Batch((), torch.tensor([20, 3, 3, 0, 11]), torch.tensor(0.0))
    for epoch in (1, 2):
        wanted = [
            -math.log(math.exp(row[state.labels[i]]) / sum(map(math.exp, row)))
            for row, i in zip(logits.tolist(), batch.position.tolist(), strict=True)
        ]
        found = state.instance_loss(torch.nn.Identity(), batch, logits)
        assert found.item() == pytest.approx(np.mean(wanted))
        state.epoch_end(epoch, confidence_of(epoch))


def test_first_labels_of_the_caller_are_taken():
    assert start(first=SORTED).labels.tolist() == SORTED.tolist()


def test_only_labels_that_are_to_be_decided_first_ask_for_it():
    assert start(first="decide").decides_first
    assert not start().decides_first
    assert not start(first=SORTED).decides_first


def test_a_fresh_start_goes_on_from_the_state():
    state, fresh = start(eta=4, seed=1), start(eta=9, seed=1)
    for epoch in (1, 2):
        labels = fresh.labels
        fresh.load_state_dict(state.state_dict())
        assert fresh.labels is labels
        assert labels.tolist() == state.labels.tolist()
        assert fresh.leader.eta == 4
        record = state.epoch_end(epoch, confidence_of(epoch))
        assert fresh.epoch_end(epoch, confidence_of(epoch)) == record
        assert labels.tolist() == state.labels.tolist()


@pytest.mark.parametrize(
    "option", [{"eta": -1}, {"eta": math.nan}, {"unlikelihood": "simple"}, {"first": "zeros"}]
)
def test_settings_that_make_no_sense_are_refused_at_once(option):
    with pytest.raises(ConfigError, match=f"{next(iter(option))} must be"):
        FPL(**option)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_labels_on_a_gpu_are_those_of_the_cpu():
    cuda = torch.device("cuda")
    here, there = (
        FPL(eta=4).start(SMALL, epochs=3, device=device, seed=0) for device in (CPU, cuda)
    )
    labels = there.labels
    for epoch in (1, 2, 3):
        confidence = confidence_of(epoch)
        assert there.epoch_end(epoch, confidence.to(cuda)) == here.epoch_end(epoch, confidence)
        assert there.labels is labels
        assert labels.is_cuda
        assert labels.tolist() == here.labels.tolist()


def test_linear_first_labels_start_from_the_rows_of_the_bags():
    bags = table_bags(120)
    state = FPL(first="linear").start(bags, epochs=3, device=torch.device("cpu"), seed=2, threads=1)
    assert state.labels.tolist() == first_labels("linear", bags, seed=2).tolist()
