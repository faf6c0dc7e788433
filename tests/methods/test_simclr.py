"""Contrast of views: its value and gradient, literally, and what a step does with it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.engine.batches import place
from apportion.engine.step import Stepper
from apportion.errors import ConfigError
from apportion.methods.simclr import SimCLR, Views, contrast
from apportion.testing import toy_config

CPU = torch.device("cpu")


def literally(z: Any, temperature: float) -> float:
    """The mean over i of -log of the share that the other view has among all but i itself."""
    n = len(z)
    unit = [[v / math.sqrt(sum(w * w for w in row)) for v in row] for row in z]
    total = 0.0
    for i in range(n):
        j = (i + n // 2) % n
        shares = [
            math.exp(sum(a * b for a, b in zip(unit[i], unit[k], strict=True)) / temperature)
            for k in range(n)
            if k != i
        ]
        own = math.exp(sum(a * b for a, b in zip(unit[i], unit[j], strict=True)) / temperature)
        total -= math.log(own / sum(shares)) / n
    return total


@pytest.mark.parametrize("temperature", [0.1, 0.2, 1.0, 7.5])
@pytest.mark.parametrize(("n_rows", "width"), [(2, 3), (3, 2), (8, 5)])
def test_the_contrast_is_what_a_double_loop_finds(n_rows, width, temperature):
    z = np.random.default_rng(n_rows).normal(size=(2 * n_rows, width)) * 5
    wanted = literally(z.tolist(), temperature)
    for dtype, error in ((torch.float64, 1e-5), (torch.float32, 1e-4)):
        found = contrast(torch.from_numpy(z).to(dtype), temperature)
        assert found.item() == pytest.approx(wanted, rel=error, abs=error)


@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_its_gradient_is_that_of_small_differences(temperature):
    rng = np.random.default_rng(0)
    z, step = rng.normal(size=(6, 4)), 1e-5
    given = torch.from_numpy(z.astype(np.float32)).requires_grad_()
    contrast(given, temperature).backward()
    assert given.grad is not None
    for i in range(6):
        for d in range(4):
            ends = []
            for sign in (1, -1):
                moved = z.copy()
                moved[i, d] += sign * step
                ends.append(literally(moved.tolist(), temperature))
            slope = (ends[0] - ends[1]) / (2 * step)
            assert given.grad[i, d].item() == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_a_row_of_zeros_has_a_finite_gradient():
    z = torch.zeros(4, 3).requires_grad_()
    contrast(z, 0.2).backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("temperature", [0, -1, 1e-4, math.inf, math.nan])
def test_a_temperature_that_makes_no_sense_is_refused(temperature):
    with pytest.raises(ConfigError, match=r"temperature must be a number ≥ 0\.001; got"):
        SimCLR(temperature=temperature)


@pytest.mark.parametrize("temperature", [1e-3, 0.01])
def test_at_the_lowest_temperature_no_row_finds_itself(temperature):
    z = np.random.default_rng(0).normal(size=(6, 3)).tolist()
    unit = [np.array(row) / np.linalg.norm(row) for row in z]
    losses = []
    for i in range(6):
        similar = [unit[i] @ unit[k] / temperature for k in range(6) if k != i]
        most = max(similar)
        normaliser = most + math.log(sum(math.exp(s - most) for s in similar))
        losses.append(normaliser - unit[i] @ unit[(i + 3) % 6] / temperature)
    found = contrast(torch.tensor(z), temperature)
    assert found.item() == pytest.approx(np.mean(losses), rel=1e-3)


def test_a_step_passes_two_views_of_its_distinct_rows_each_augmented_by_itself():
    x = np.arange(6, dtype=np.float32)[:, None] * np.ones(2, np.float32)
    bags = Bags.from_members(x, [[0, 3], [3, 1, 5], [5]], [[0.5, 0.5]] * 3)
    instances, seen = place((bags, None, None), CPU)[0], []
    net = nn.Linear(2, 4)
    net.register_forward_hook(lambda module, given, found: seen.append((given[0], found)))

    def augment(x: Any, generator: torch.Generator) -> Any:
        return (x[0] + 0.1 * torch.rand(x[0].shape, generator=generator),)

    method = SimCLR(temperature=0.5)
    stepper = Stepper(
        net,
        torch.optim.SGD(net.parameters(), lr=0.0),
        method.start(bags, epochs=1, device=CPU, seed=0),
        instances,
        precision=torch.float32,
        instances_per_pass=100,
        augment=augment,
    )
    (step,) = instances.steps(method.unit, toy_config(batch_size=50), 1)
    loss = stepper(step)
    ((views, projections),) = seen
    rows = instances.distinct[step.position.numpy()]
    assert sorted(rows.tolist()) == [0, 1, 3, 5]
    assert views[:, 0].floor().int().tolist() == [*rows.tolist(), *rows.tolist()]
    assert not (views[:4] == views[4:]).any()
    assert loss.item() == pytest.approx(literally(projections.double().tolist(), 0.5), rel=1e-5)


def test_there_is_no_state_to_keep():
    state = SimCLR().start(Bags.from_rows(None, [0, 0], truth=[0, 1]))
    assert isinstance(state, Views)
    assert state.state_dict() == {}
    assert (state.labels, state.needs_confidence, state.views) == (None, False, 2)
