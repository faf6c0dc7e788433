"""The Π-model: where its noise goes, and where its gradient does."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.engine.batches import Batch
from apportion.errors import ConfigError
from apportion.methods.pi_model import PiModel, ramp
from apportion.nets.normalized import Normalized

CPU = torch.device("cpu")
BAGS = Bags.from_rows(np.zeros((2, 1)), [0, 0], [[0.5, 0.5]])


class Remembers(nn.Module):
    """Keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.weight = nn.Parameter(torch.tensor([[1.0, -1.0], [0.5, 2.0]]))

    def forward(self, *x: torch.Tensor) -> Any:
        self.seen.append(tuple(part.detach().clone() for part in x))
        return x[0].float() @ self.weight


def consistency(model: nn.Module, x: Any, progress: float = 1.0, **settings: Any) -> Any:
    """The loss of a batch, and the logits that it was given."""
    state = PiModel(**settings).start(BAGS, epochs=1, device=CPU, seed=0)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        logits = model(*x)
        batch = Batch(x, torch.arange(len(x[0])), torch.tensor(progress))
        return state.instance_loss(model, batch, logits), logits


def test_noise_of_the_given_size_goes_to_the_normalised_input():
    network = Remembers()
    x = torch.full((20_000, 2), 900.0)
    consistency(Normalized(network, [800.0, 900.0], [50.0, 400.0]), (x,), std=0.3)
    assert len(network.seen) == 2
    (clean,), (noisy,) = network.seen
    assert clean[0].tolist() == [2, 0]
    noise = noisy - clean
    assert noise.mean(dim=0).abs().max() < 0.01
    assert noise.std(dim=0).tolist() == pytest.approx([0.3, 0.3], rel=0.02)
    assert abs(np.corrcoef(noise.T.numpy())[0, 1]) < 0.03
    assert len(noise.unique()) > 39_000


def test_codes_get_no_noise():
    network = Remembers()
    codes = torch.arange(10)
    consistency(network, (torch.zeros(10, 2), codes), std=0.3)
    (_, first), (noisy, second) = network.seen
    assert noisy.abs().min() > 0
    assert torch.equal(first, codes)
    assert torch.equal(second, codes)


def test_without_noise_there_is_nothing_to_hold_against():
    loss, _ = consistency(Remembers(), (torch.ones(5, 2),), std=0.0)
    assert loss.item() == 0


def test_the_noisy_side_is_held_fixed():
    network = Remembers()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(8, 2))).float()
    loss, logits = consistency(network, (x,), std=0.5, weight=1.0)
    (found,) = torch.autograd.grad(loss, logits, retain_graph=True)
    own = logits.detach().requires_grad_()
    fixed = (network.seen[1][0] @ network.weight).softmax(dim=1).detach()
    (wanted,) = torch.autograd.grad(((own.softmax(dim=1) - fixed) ** 2).sum() / 8, own)
    torch.testing.assert_close(found, wanted)
    (through,) = torch.autograd.grad(loss, network.weight)
    torch.testing.assert_close(through, x.T @ wanted)  # nothing came through the noisy pass


def test_the_loss_is_in_proportion_to_the_weight_and_follows_the_ramp():
    x = (torch.from_numpy(np.random.default_rng(1).normal(size=(8, 2))).float(),)
    losses = {w: consistency(Remembers(), x, weight=w)[0].item() for w in (0.0, 0.5, 1.0)}
    assert losses[0.0] == 0
    assert losses[1.0] == pytest.approx(2 * losses[0.5])
    early = consistency(Remembers(), x, progress=0.1, weight=1.0, ramp=0.8)[0].item()
    assert early / losses[1.0] == pytest.approx(math.exp(-5 * (1 - 0.1 / 0.8) ** 2), rel=1e-5)


def test_the_ramp_rises_to_1_and_stays():
    rise = ramp(torch.arange(101, dtype=torch.float64) / 100, 0.4).tolist()
    assert rise[0] == pytest.approx(math.exp(-5))
    assert all(a < b for a, b in itertools.pairwise(rise[:41]))
    assert rise[40:] == [1.0] * 61


def test_without_a_ramp_the_weight_is_full_from_the_start():
    assert ramp(torch.tensor([0.0, 0.5]), 0.0).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", ["std", "weight", "ramp"])
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_settings_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name} must be a number ≥ 0; got {value}"):
        PiModel(**{name: value})


def test_columns_of_categories_alone_leave_nothing_to_change():
    x = (torch.empty(3, 0), torch.ones(3, 2, dtype=torch.int64))
    network = Remembers()
    network.weight = nn.Parameter(torch.empty(0, 2))
    with pytest.raises(ConfigError, match="none of them holds floating-point numbers"):
        consistency(network, x)
