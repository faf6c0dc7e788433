"""The update of the weights: bit for bit that of torch's optimiser."""

import copy

import pytest
import torch
from torch import nn

from apportion.engine.update import update


def steps_of(step, make, n=5):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    net.unused = nn.Linear(2, 2)  # gets no gradient
    optimizer = make(net)
    x, y = torch.randn(10, 3), torch.randint(2, (10,))
    for i in range(n):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / (i + 1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        step(optimizer)
    return [*net.parameters(), *(v for s in optimizer.state.values() for v in s.values())]


def groups(net):
    return [{"params": net[0].parameters(), "weight_decay": 0.5}, {"params": net[2].parameters()}]


@pytest.mark.parametrize(
    "make",
    [
        lambda net: torch.optim.AdamW(net.parameters(), weight_decay=0.1, fused=True),
        lambda net: torch.optim.AdamW(groups(net), betas=(0.8, 0.9), eps=1e-6, fused=True),
        lambda net: torch.optim.AdamW(net.parameters(), amsgrad=True),
        lambda net: torch.optim.AdamW(net.parameters(), maximize=True),
        lambda net: torch.optim.SGD(net.parameters(), momentum=0.9),
    ],
)
def test_weights_and_states_are_those_of_the_optimiser(make):
    ours, theirs = steps_of(update, make), steps_of(lambda o: o.step(), make)
    assert len(ours) == len(theirs) > 6
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_it_goes_on_from_a_loaded_state():
    def reloading(optimizer):
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        update(optimizer)

    def make(net):
        return torch.optim.AdamW(net.parameters(), fused=True)

    pairs = zip(steps_of(reloading, make), steps_of(update, make), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
