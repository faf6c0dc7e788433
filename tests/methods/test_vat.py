"""LLP-VAT: its change is as long as it should be, and worse than chance would make it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.engine.batches import Batch
from apportion.errors import ConfigError
from apportion.methods.vat import LLPVAT
from apportion.nets.normalized import Normalized

CPU = torch.device("cpu")
BAGS = Bags.from_rows(np.zeros((2, 1)), [0, 0], [[0.5, 0.5]])


class Remembers(nn.Module):
    """Keeps what it was given."""

    def __init__(self, features: int = 6, classes: int = 3) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            self.layers = nn.Sequential(
                nn.Flatten(), nn.Linear(features, 12), nn.Tanh(), nn.Linear(12, classes)
            )
        self.seen: list[Any] = []

    def forward(self, *x: torch.Tensor) -> Any:
        self.seen.append(tuple(part.detach().clone() for part in x))
        return self.layers(x[0])


def some_x(n: int = 40, features: int = 6) -> Any:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(n, features))).float()


def adversarial(model: nn.Module, x: Any, progress: float = 1.0, **settings: Any) -> Any:
    """The loss of a batch, and the logits that it was given."""
    state = LLPVAT(**settings).start(BAGS, epochs=1, device=CPU, seed=0)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        logits = model(*x)
        batch = Batch(x, torch.arange(len(x[0])), torch.tensor(progress))
        return state.instance_loss(model, batch, logits), logits


def lengths(change: Any) -> Any:
    return change.flatten(1).square().sum(dim=1).sqrt()


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 2, 3)])
def test_changes_are_as_long_as_epsilon_and_sought_at_xi_in_normalised_units(shape):
    network = Remembers()
    x = some_x().reshape(40, *shape)
    model = Normalized(network, 5.0, 7.0)
    adversarial(model, (5 + 7 * x,), xi=0.01, epsilon=2.5)
    (clean,), (sought,), (changed,) = network.seen
    torch.testing.assert_close(clean, x, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lengths(sought - clean), torch.full((40,), 0.01), rtol=1e-3, atol=0)
    torch.testing.assert_close(lengths(changed - clean), torch.full((40,), 2.5), rtol=1e-5, atol=0)


def test_each_iteration_is_one_more_pass():
    for iterations in (1, 2, 5):
        network = Remembers()
        adversarial(network, (some_x(),), iterations=iterations)
        assert len(network.seen) == 2 + iterations  # the main pass, the iterations, the last one


def divergence(network: Any, x: Any, changed: Any) -> Any:
    """KL of each instance, from what the network says of both."""
    p, q = (network.layers(v).double().softmax(dim=1) for v in (x, changed))
    return (p * (p / q).log()).sum(dim=1).detach()


@pytest.mark.parametrize("xi", [1e-6, 1e-2])
def test_the_change_is_worse_than_almost_any_other_of_its_length(xi):
    network, x = Remembers(), some_x()
    adversarial(network, (x,), xi=xi, epsilon=0.1, iterations=3)
    found = divergence(network, x, network.seen[-1][0])
    rng = np.random.default_rng(1)
    others = []
    for _ in range(50):
        change = torch.from_numpy(rng.normal(size=x.shape)).float()
        others.append(divergence(network, x, x + 0.1 * change / lengths(change)[:, None]))
    assert (found[None] >= torch.stack(others)).double().mean() > 0.9


def test_the_direction_does_not_depend_on_the_rest_of_the_batch():
    network, x = Remembers(), some_x(4)
    start = torch.from_numpy(np.random.default_rng(1).normal(size=(4, 6))).float()
    found = []
    for rows in (slice(0, 4), slice(0, 1)):
        state = LLPVAT(xi=0.01, iterations=1).start(BAGS, epochs=1, device=CPU, seed=0)
        part = x[rows]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "randn_like", lambda like, rows=rows: start[rows].clone())
            batch = Batch((part,), torch.arange(len(part)), torch.tensor(1.0))
            state.instance_loss(network, batch, network.layers(part))
        found.append(network.seen[-1][0][0])
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


def test_the_own_side_is_held_fixed_and_the_other_is_not():
    network = Remembers()
    x = some_x().requires_grad_()
    loss, logits = adversarial(network, (x,), epsilon=0.5, weight=1.0)
    slopes = torch.autograd.grad(loss, [logits, x], retain_graph=True, allow_unused=True)
    assert [slope is None for slope in slopes] == [True, True]
    found = torch.autograd.grad(loss, list(network.parameters()))
    p = network.layers(x).detach().softmax(dim=1)
    q = network.layers(network.seen[-1][0]).log_softmax(dim=1)
    wanted = torch.autograd.grad((p * (p.log() - q)).sum() / 40, list(network.parameters()))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_codes_stay_what_they_are():
    network = Remembers()
    codes = torch.arange(40)
    adversarial(network, (some_x(), codes))
    assert all(torch.equal(seen[1], codes) for seen in network.seen)


def test_a_network_that_no_change_can_change_costs_nothing():
    network = Remembers()
    with torch.no_grad():
        next(network.parameters()).zero_()
    loss, _ = adversarial(network, (some_x(),), weight=1.0)
    assert loss.item() == pytest.approx(0, abs=1e-6)
    for slope in torch.autograd.grad(loss, list(network.parameters())):
        assert slope.isfinite().all()


def test_tiny_slopes_still_give_a_direction():
    """Confidences so sure that slopes are near the least numbers there are."""
    network = Remembers()
    with torch.no_grad():
        [*network.parameters()][-1].copy_(torch.tensor([0.0, 60.0, 0.0]))
    loss, _ = adversarial(network, (some_x(),), xi=1.0, weight=1.0)
    assert loss.isfinite()
    changes = lengths(network.seen[-1][0] - network.seen[0][0])
    assert ((changes - 6).abs() < 1e-3).logical_or(changes == 0).all()


def test_the_loss_is_in_proportion_to_the_weight_and_follows_the_ramp():
    x = (some_x(),)
    losses = {w: adversarial(Remembers(), x, weight=w)[0].item() for w in (0.0, 0.5, 1.0)}
    assert losses[0.0] == 0
    assert losses[1.0] == pytest.approx(2 * losses[0.5])
    early = adversarial(Remembers(), x, progress=0.1, weight=1.0, ramp=0.8)[0].item()
    assert early / losses[1.0] == pytest.approx(math.exp(-5 * (1 - 0.1 / 0.8) ** 2), rel=1e-5)


@pytest.mark.parametrize("name", ["epsilon", "xi", "weight", "ramp"])
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_settings_that_make_no_sense_are_refused(name, value):
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=f"{name} must be a number ≥ 0; got {value}"):
        LLPVAT(**settings)


@pytest.mark.parametrize("value", [0, -1])
def test_there_is_at_least_one_iteration(value):
    with pytest.raises(ConfigError, match=f"iterations must be an integer ≥ 1; got {value}"):
        LLPVAT(iterations=value)
