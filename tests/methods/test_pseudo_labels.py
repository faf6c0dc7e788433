"""Pseudo labels on a device: what the leader decides is what steps read."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.batches import Batch, place
from apportion.engine.step import Stepper
from apportion.errors import ConfigError
from apportion.labels.leader import Leader
from apportion.labels.start import first_labels
from apportion.methods.pseudo_labels import FPL
from apportion.methods.registry import METHODS
from apportion.training.fit import fit
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
        ("naive", {"eta": 0, "memory": 0}),
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


# --------------------------------------------------------------------------------- soft targets

ROWS = np.array([7, 2, 5, 2, 9, 5, 2])  # of instances: row 2 stands in three bags, row 5 in two
SHARED = Bags.from_members(
    np.arange(10, dtype=np.float32)[:, None] * np.ones(3, np.float32),
    {"a": [7, 2, 5], "b": [2, 9], "c": [5, 2]},
    {"a": [1, 2, 0], "b": [1, 1, 0], "c": [0, 1, 1]},
    counts=True,
)
LABELS = np.array([0, 1, 1, 0, 1, 2, 1])


def soft(**options: Any) -> Any:
    method = FPL(**{"eta": 0, "first": LABELS, **options})
    return method.start(SHARED, epochs=3, device=CPU, seed=0, threads=1)


def batch_of(x: Any, position: list[int]) -> Batch:
    x = x if isinstance(x, tuple) else (x,)
    return Batch(x, torch.tensor(position), torch.tensor(0.0, dtype=torch.float64))


def test_targets_of_rows_are_the_votes_of_their_bags():
    state = soft(rows=True)
    assert SHARED.index.tolist() == ROWS.tolist()
    votes = [[1 / 3, 2 / 3, 0], [0, 1 / 2, 1 / 2], [1, 0, 0], [0, 1, 0]]  # of 2, 5, 7, 9
    wanted = np.array(votes)
    np.testing.assert_allclose(state.targets, wanted, rtol=1e-6)
    found = state.mixed(batch_of(torch.zeros(3, 3), [3, 0, 0]))
    np.testing.assert_allclose(found.target, wanted[[3, 0, 0]], rtol=1e-6)


@pytest.mark.parametrize("rows", [True, False])
def test_smoothing_spreads_a_share_of_each_target_over_all_classes(rows):
    plain, smooth = soft(rows=rows, mixup=not rows), soft(rows=rows, smoothing=0.3)
    assert len(plain.targets) == (4 if rows else 7)
    np.testing.assert_allclose(smooth.targets, 0.7 * plain.targets + 0.1, rtol=1e-6)
    if not rows:
        np.testing.assert_array_equal(plain.targets, np.eye(3)[LABELS])


def test_targets_follow_decisions_and_states_in_place():
    state, fresh = soft(rows=True, smoothing=0.1), soft(rows=True, smoothing=0.1)
    targets, before = state.targets, state.targets.clone()
    sure = np.random.default_rng(1).dirichlet(np.ones(3), 7).astype(np.float32)
    state.epoch_end(1, torch.from_numpy(sure))
    votes = np.zeros((10, 3))
    np.add.at(votes, (ROWS, state.labels.numpy()), 1)
    wanted = votes[[2, 5, 7, 9]]
    wanted = 0.9 * wanted / wanted.sum(axis=1, keepdims=True) + 0.1 / 3
    assert state.targets is targets
    assert not torch.equal(targets, before)
    np.testing.assert_allclose(targets, wanted, rtol=1e-6)
    own = fresh.targets
    fresh.load_state_dict({name: value.clone() for name, value in state.state_dict().items()})
    assert fresh.targets is own
    assert torch.equal(own, targets)


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("smoothing", [0, 0.2])
def test_the_loss_of_mixed_instances_is_that_by_hand(rows, smoothing):
    state = soft(rows=rows, smoothing=smoothing, mixup=True)
    net = torch.nn.Linear(3, 3)
    position = [3, 0, 2, 1]
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 3))).float()
    torch.manual_seed(4)
    share = (0.5 + 0.5 * torch.rand(4)).tolist()
    losses = []
    for i, own in enumerate(share):
        j = (i + 1) % 4
        mixed = own * x[i] + (1 - own) * x[j]
        target = own * state.targets[position[i]] + (1 - own) * state.targets[position[j]]
        logits = net(mixed).tolist()
        normaliser = math.log(sum(map(math.exp, logits)))
        losses.append(
            sum(q * (normaliser - f) for q, f in zip(target.tolist(), logits, strict=True))
        )
    torch.manual_seed(4)
    batch = state.mixed(batch_of(x, position))
    found = state.instance_loss(net, batch, net(*batch.x))
    assert found.item() == pytest.approx(np.mean(losses), rel=1e-5)
    assert all(0.5 <= own <= 1 for own in share)
    assert batch.position.tolist() == position


def test_without_mixup_instances_go_through_the_net_as_they_are_and_nothing_is_drawn():
    state, x = soft(rows=True), torch.randint(255, (4, 3), dtype=torch.uint8)
    before = torch.get_rng_state()
    batch = state.mixed(batch_of((x, x[:, 0].long()), [0, 1, 2, 3]))
    assert batch.x[0] is x
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("shape", [(4, 1, 2, 2), (4, 3)])
def test_images_are_mixed_as_floating_point_numbers(dtype, shape):
    state = soft(mixup=True)
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape)).to(dtype)
    torch.manual_seed(0)
    share = 0.5 + 0.5 * torch.rand(4, dtype=torch.float32)
    torch.manual_seed(0)
    (mixed,) = state.mixed(batch_of(x, [0, 1, 2, 3])).x
    assert mixed.dtype == (torch.float32 if dtype is torch.uint8 else dtype)
    for i, own in enumerate(share.tolist()):
        wanted = own * x[i].double() + (1 - own) * x[(i + 1) % 4].double()
        error = 0.5 if dtype is torch.float16 else 1e-4
        np.testing.assert_allclose(mixed[i].double(), wanted, atol=error)


@pytest.mark.parametrize(
    ("x", "found"),
    [
        (torch.zeros(4, 3, dtype=torch.int64), "int64, maybe ids"),
        (torch.zeros(4, 3, dtype=torch.int32), "int32, maybe ids"),
        (torch.zeros(4, dtype=torch.uint8), "uint8, maybe ids"),
        ((torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)), "of 2 parts"),
    ],
)
def test_what_cannot_be_mixed_is_refused(x, found):
    with pytest.raises(ConfigError, match=f"mixup averages instances, but these are {found}"):
        soft(mixup=True).mixed(batch_of(x, [0, 1, 2, 3]))


def test_single_numbers_can_be_mixed():
    torch.manual_seed(0)
    share = 0.5 + 0.5 * torch.rand(2)
    torch.manual_seed(0)
    (mixed,) = soft(mixup=True).mixed(batch_of(torch.tensor([0.0, 1.0]), [0, 1])).x
    np.testing.assert_allclose(mixed, [1 - share[0], share[1]], rtol=1e-6)


@pytest.mark.parametrize("value", [-0.1, 1, 1.0, math.nan, True, "0.1", None])
def test_a_smoothing_that_makes_no_sense_is_refused(value):
    with pytest.raises(ConfigError, match="smoothing must be a number from 0 to below 1; got"):
        FPL(smoothing=value)


def test_rows_that_no_bag_shares_are_trained_as_instances_are():
    """Bags whose rows are stored in their order: rows and instances are then one."""
    x = np.random.default_rng(0).normal(size=(21, 2)).astype(np.float32)
    bags = SMALL.with_rows(x)
    nets = [torch.nn.Linear(2, 3) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    config = TrainConfig(epochs=4, batch_size=8, device="cpu", threads=1)
    histories = [
        fit(net, bags, method=FPL(rows=rows, smoothing=0.1), config=config)
        for net, rows in zip(nets, (True, False), strict=True)
    ]
    assert histories[0]["loss"] == pytest.approx(histories[1]["loss"], rel=1e-6)
    assert torch.equal(nets[0].weight, nets[1].weight)


def test_smoothed_rows_of_a_step_in_pieces_have_the_gradient_of_the_whole():
    found = []
    for most in (2, 100):
        torch.manual_seed(0)
        net, config = torch.nn.Linear(3, 3), TrainConfig(epochs=1, batch_size=7, device="cpu")
        supervision = soft(rows=True, smoothing=0.2)
        instances = place((SHARED, None, None), CPU)[0]
        (step,) = instances.steps("rows", replace(config, instances_per_pass=most), 1)
        stepper = Stepper(
            net,
            torch.optim.SGD(net.parameters(), lr=0.0),
            supervision,
            instances,
            precision=torch.float32,
            instances_per_pass=most,
            augment=lambda x, generator: x,
        )
        loss = stepper(step).item()
        x, target = torch.from_numpy(SHARED.x[[2, 5, 7, 9]]), supervision.targets
        assert loss == pytest.approx(torch.nn.functional.cross_entropy(net(x), target).item())
        assert net.weight.grad is not None
        found.append(net.weight.grad.clone())
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("name", ["rows", "mixup"])
def test_switches_are_true_or_false(name):
    options: Any = {name: 2}
    with pytest.raises(ConfigError, match=f"{name} must be true or false; got 2"):
        FPL(**options)
