"""The nets of an average: how each starts, and how its training is divided into steps."""

from typing import Any

import numpy as np
import pytest
import torch

from apportion.auto import members, nets
from apportion.auto.nets import HIDDEN, PENALTY, STAGES, train_net
from apportion.bags.bags import Bags
from apportion.labels.linear import fit_linear, fit_ridge
from tests.auto.tables import ring_in_bags

ON_CPU: Any = {"device": "cpu", "step": 1000}


def table(n_classes=2):
    rng = np.random.default_rng(0)
    x = rng.normal([3.0, -1.0, 0.0], [1.0, 5.0, 1.0], size=(60, 3)).astype(np.float32)
    y = np.digitize(x[:, 0], [3.5, 2.0][: n_classes - 1])
    return Bags.from_rows(x, rng.integers(7, size=60), truth=y)


@pytest.fixture
def untrained(monkeypatch):
    monkeypatch.setattr(nets, "STAGES", {kind: [] for kind in STAGES})


def logits(net, bags):
    with torch.no_grad():
        return net.eval()(torch.from_numpy(bags.x)).numpy()


def made(kind, bags, seed=0, **more):
    return train_net(kind, bags, seed=seed, **ON_CPU, **more)[0]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_linear_start_is_the_linear_model(untrained, n_classes):
    bags = table(n_classes)
    penalty = {2: 10.0, 3: 1.0}[n_classes]
    wanted = fit_linear(bags, l2=penalty, seed=0).logits(bags.x)
    assert np.abs(wanted).max() > 0.5
    assert np.allclose(logits(made("linear start", bags), bags), wanted, atol=1e-4)
    assert np.allclose(logits(made("linear", bags), bags), wanted, atol=1e-4)
    assert PENALTY.get(n_classes, 1.0) == penalty


@pytest.mark.parametrize("kind", ["likelihood", "proportions"])
def test_other_nets_start_at_the_proportions_of_all_instances(untrained, kind):
    bags = ring_in_bags(200, 0, 20, differing=False)
    net = made(kind, bags)
    last = [module for module in net.modules() if isinstance(module, torch.nn.Linear)][-1]
    assert last.in_features == HIDDEN
    shares = np.bincount(bags.truth) / 200
    assert np.allclose(last.bias.softmax(dim=0).detach().numpy(), shares, atol=1e-6)
    # The weights before it are random, and add little.
    mean = torch.from_numpy(logits(net, bags)).softmax(dim=1).mean(dim=0).numpy()
    assert np.allclose(mean, shares, atol=0.1)


def test_a_class_that_never_occurs_starts_with_a_finite_bias(untrained):
    bags = Bags.from_rows(np.eye(4), [0, 0, 1, 1], [[1.0, 0.0], [1.0, 0.0]])
    assert np.isfinite(logits(made("likelihood", bags), bags)).all()


def test_a_linear_model_alone_chooses_its_penalty_and_says_so():
    bags = table()
    linear = fit_ridge(bags, seed=5)
    net, told = train_net("ridge", bags, seed=5, **ON_CPU, alone=True)
    assert told == {"l2": linear.l2}
    assert np.allclose(logits(net, bags), linear.logits(bags.x), atol=1e-4)
    _, member = train_net("linear", bags, seed=5, **ON_CPU)
    assert member == {"l2": 10.0}


@pytest.mark.parametrize("kind", [*STAGES, "small steps"])
def test_a_net_depends_on_bags_and_seed_alone(kind, steps):
    steps(3)
    bags = table()
    (net, told), (again, same), (other, _) = (
        train_net(kind, bags, seed=seed, **ON_CPU) for seed in (1, 1, 2)
    )
    a, b, c = (own.state_dict() for own in (net, again, other))
    assert told == same
    assert np.isfinite(told["loss"])
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)
    assert not net.training


@pytest.mark.parametrize(
    ("n", "epochs", "per_step"), [(200, 400, 200), (16_380, 400, 16_380), (50_000, 66, 8_192)]
)
def test_steps_are_of_all_instances_up_to_a_limit(n, epochs, per_step):
    bags = Bags.from_rows(
        np.zeros((n, 1), np.float32), np.arange(n) // 10, [[0.5, 0.5]] * (n // 10)
    )
    config = nets._config(STAGES["likelihood"][0], bags, members.per_step(bags), 0, "cpu")
    assert (config.epochs, config.batch_size) == (epochs, per_step)
    assert config.warmup == 10 / 400


@pytest.mark.parametrize(("n", "epochs", "batch_size"), [(200, 100, 32), (400_000, 26, 1024)])
def test_small_steps_are_those_of_a_single_net_up_to_10_000(n, epochs, batch_size):
    bags = Bags.from_rows(
        np.zeros((n, 1), np.float32), np.arange(n) // 10, [[0.5, 0.5]] * (n // 10)
    )
    config = nets._small(bags, 0, "cpu")
    assert (config.epochs, config.batch_size) == (epochs, batch_size)
    assert config.weight_decay == 0.1
