"""The perceptron: what its weights say, over numbers and over codes of categories."""

import numpy as np
import pytest
import torch

from apportion.nets.build import build_net
from apportion.nets.mlp import mlp
from tests.nets.small_data import CODES, NUMBERS, as_memmap, bags_of


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("hidden", [(), (5,), (7, 6, 5)])
def test_mlp_is_what_its_weights_say(hidden):
    network = mlp(12, 3, hidden=hidden)
    x = torch.rand(4, 12) - 0.5
    expected, weights = x.double().numpy(), list(network.parameters())
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        expected = expected @ weight.detach().double().numpy().T + bias.detach().double().numpy()
        expected = expected if weight is weights[-2] else np.maximum(expected, 0)
    np.testing.assert_allclose(network(x).detach(), expected, rtol=1e-4, atol=1e-6)
    assert [len(bias) for bias in weights[1::2]] == [*hidden, 3]
    assert torch.equal(network(x.view(4, 2, 3, 2)), network(x))


@pytest.mark.parametrize("hidden", [(), (5,)])
def test_a_shortcut_is_added_to_the_perceptrons_logits(hidden):
    network = mlp(1, 3, hidden=hidden, categories=[3, 4], skip=True)
    numbers, codes = torch.randn(4, 1), torch.tensor([[0, 3], [2, 1], [1, 0], [2, 2]])
    seen = joined(numbers.tolist(), codes.tolist(), [3, 4])
    weight, bias, *deep = network.parameters()
    expected = seen @ weight.T + bias
    for weight, bias in zip(deep[::2], deep[1::2], strict=True):
        seen = seen @ weight.T + bias
        seen = seen if weight is deep[-2] else seen.relu()
    torch.testing.assert_close(network(numbers, codes), expected + seen)
    plain = mlp(6, 3, hidden=hidden, skip=True)
    assert plain(torch.rand(2, 3, 2)).shape == (2, 3)
    assert len(deep) == 2 * len(hidden) + 2


def joined(numbers, codes, categories):
    """What the network is to see, row by row."""
    rows = []
    for values, own in zip(numbers, codes, strict=True):
        row = list(values)
        for code, n in zip(own, categories, strict=True):
            row += [float(code == category) for category in range(1, n)]
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float32)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.uint16])
@pytest.mark.parametrize("kind", ["array", "memmap", "tensor"])
def test_the_network_sees_numbers_and_a_place_for_each_category(kind, dtype, tmp_path):
    codes = CODES.astype(dtype)
    stored = {"array": codes, "memmap": as_memmap(codes, tmp_path), "tensor": torch.tensor(codes)}
    model = build_net("mlp", bags_of((NUMBERS, stored[kind])), hidden=[])
    weight, bias = model.network.parameters()
    assert weight.shape == (3, 2 + 2 + 4)  # codes 1 and 2, and 1 to 4
    mean, std = NUMBERS.mean(axis=0), NUMBERS.std(axis=0)
    np.testing.assert_allclose(model.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(model.std, std, rtol=1e-6)
    seen = joined((NUMBERS - mean) / std, CODES, [3, 5])
    given = model(torch.from_numpy(NUMBERS), torch.tensor(codes))
    torch.testing.assert_close(given, seen @ weight.T + bias)


def test_a_code_without_a_place_counts_as_missing():
    network = mlp(1, 3, categories=[3, 4])
    numbers = torch.randn(5, 1)
    codes = torch.tensor([[1, 2], [3, 2], [-1, 2], [2**62, 2], [-(2**62), 3]])
    given = network(numbers, codes)
    known = (codes >= 0) & (codes < torch.tensor([3, 4]))
    assert torch.equal(given, network(numbers, codes.where(known, 0)))
    assert not torch.allclose(given[0], network(numbers, torch.tensor([[0, 2]] * 5))[0])
    assert given.isfinite().all()


def test_codes_alone_will_do():
    model = build_net("mlp", bags_of((np.zeros((6, 0)), CODES)), hidden=[])
    weight, bias = model.network.parameters()
    given = model(torch.zeros(6, 0, dtype=torch.float64), torch.tensor(CODES))
    torch.testing.assert_close(given, joined(np.zeros((6, 0)), CODES, [3, 5]) @ weight.T + bias)


def test_no_columns_of_codes_will_do():
    model = build_net("mlp", bags_of((NUMBERS, np.zeros((6, 0), np.int64))), hidden=[5])
    assert model.network.state_dict()["1.weight"].shape == (5, 2)
    assert model(torch.from_numpy(NUMBERS), torch.zeros(6, 0, dtype=torch.int64)).shape == (6, 3)


def test_every_place_learns():
    model = build_net("mlp", bags_of((NUMBERS, CODES)), hidden=[64])
    model(torch.from_numpy(NUMBERS), torch.tensor(CODES)).square().sum().backward()
    slope = next(model.network.parameters()).grad
    assert slope is not None
    assert (slope.abs().sum(dim=0) > 0).all()
