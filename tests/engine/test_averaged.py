"""The average of weights: the recurrence, and a net that is another one."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from apportion.engine.averaged import AveragedNet
from apportion.engine.batches import place
from apportion.engine.step import Stepper
from apportion.methods.pseudo_labels import FPL
from apportion.testing import toy_bags, toy_config, toy_net

CPU = torch.device("cpu")


def changed(net: nn.Module, seed: int) -> None:
    """Put other numbers into all weights and buffers."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for tensor in (*net.parameters(), *net.buffers()):
            tensor.copy_(torch.from_numpy(np.asarray(10 * rng.normal(size=tuple(tensor.shape)))))


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_weights_are_averaged_by_the_recurrence_and_buffers_are_copied(decay):
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1, bias=False))
    averaged = AveragedNet(net, decay)
    wanted = [p.detach().double().numpy().copy() for p in net.parameters()]
    for seed in range(5):
        d = min(decay, (seed + 1) / (seed + 10))  # few steps do not leave it where it began
        changed(net, seed)
        theirs = {name: value.clone() for name, value in net.state_dict().items()}
        averaged.follow()
        wanted = [
            d * own + (1 - d) * p.detach().double().numpy()
            for own, p in zip(wanted, net.parameters(), strict=True)
        ]
        for own, p in zip(wanted, averaged.net.parameters(), strict=True):
            np.testing.assert_allclose(p, own, rtol=1e-5, atol=1e-5)
        for name, buffer in averaged.net.named_buffers():
            assert torch.equal(buffer, theirs[name])
        assert all(torch.equal(value, theirs[name]) for name, value in net.state_dict().items())
    assert dict(averaged.net.named_buffers())["1.num_batches_tracked"].dtype == torch.int64


def test_it_is_another_net_that_is_changed_in_place_and_not_trained():
    net = nn.Linear(2, 2)
    averaged = AveragedNet(net, 0.5)
    places = [p.data_ptr() for p in averaged.net.parameters()]
    assert not {*places} & {p.data_ptr() for p in net.parameters()}
    assert not any(p.requires_grad for p in averaged.net.parameters())
    assert all(p.requires_grad for p in net.parameters())
    changed(net, 0)
    averaged.follow()
    assert [p.data_ptr() for p in averaged.net.parameters()] == places


def test_weights_that_layers_share_and_frozen_ones_stay_so():
    net: Any = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    net[2].requires_grad_(False)
    averaged, frozen = AveragedNet(net, 0.9), net[2].weight.clone()
    averaged.steps.fill_(1000)  # where the decay is what was asked for
    own: Any = averaged.net
    assert own[1].weight is own[0].weight
    before = own[0].weight.clone()
    with torch.no_grad():
        net[0].weight += 1
    for _ in range(10):
        averaged.follow()
    assert torch.equal(own[2].weight, frozen)
    torch.testing.assert_close(own[0].weight, before + 1 - 0.9**10)  # once in each step


@pytest.mark.parametrize("most", [3, 100])
def test_it_follows_once_after_every_step_however_many_passes_a_step_takes(most):
    bags = toy_bags()
    net, instances = toy_net(bags, norm=True).train(), place((bags, None, None), CPU)[0]
    averaged = AveragedNet(net, 0.75)
    averaged.steps.fill_(1000)  # where the decay is what was asked for
    wanted = copy.deepcopy(averaged.net)
    stepper = Stepper(
        net,
        torch.optim.SGD(net.parameters(), lr=0.5),
        FPL().start(bags, epochs=1, device=CPU, seed=0, threads=1),
        instances,
        precision=torch.float32,
        instances_per_pass=most,
        augment=lambda x, generator: x,
        average=averaged,
    )
    for step in instances.steps("instances", toy_config(instances_per_pass=most), 1):
        stepper(step)
        with torch.no_grad():
            for w, p in zip(wanted.parameters(), net.parameters(), strict=True):
                w.mul_(0.75).add_(p, alpha=0.25)
    for own, p in zip(wanted.parameters(), averaged.net.parameters(), strict=True):
        torch.testing.assert_close(own, p)
        assert not torch.equal(own, p.new_zeros(p.shape))
    for theirs, buffer in zip(net.buffers(), averaged.net.buffers(), strict=True):
        assert torch.equal(theirs, buffer)
