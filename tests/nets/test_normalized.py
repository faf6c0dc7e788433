"""A network with its preprocessing: normalised, saved and taken apart."""

import numpy as np
import pytest
import torch
from torch import nn

from apportion.errors import DataError
from apportion.nets.mlp import mlp
from apportion.nets.normalized import Normalized, parts


def test_a_model_normalises_instances_as_they_are_stored():
    x = torch.tensor([[[[0, 255]], [[10, 20]]]], dtype=torch.uint8)
    model = Normalized(nn.Identity(), [[[127.5]], [[15.0]]], np.array([[[127.5]], [[2.5]]]))
    assert model(x).dtype == torch.float32
    assert model(x).tolist() == [[[[-1, 1]], [[-2, 2]]]]
    assert model.mean.shape == model.std.shape == (2, 1, 1)


def test_only_the_first_part_is_normalised():
    class Pair(nn.Module):
        def forward(self, x, lengths):
            return x, lengths

    lengths = torch.tensor([3, 4])
    x, same = Normalized(Pair(), 1.0, 2.0)(torch.tensor([[3.0], [5.0]]), lengths)
    assert x.tolist() == [[1], [2]]
    assert same is lengths


def test_preprocessing_travels_with_the_weights():
    model = Normalized(nn.Linear(2, 3), [1.0, 2.0], [3.0, 0.0])
    state = {name: value.clone() for name, value in model.state_dict().items()}
    assert set(state) == {"mean", "std", "network.weight", "network.bias"}
    assert state["mean"].dtype == state["std"].dtype == torch.float32

    other = Normalized(nn.Linear(2, 3), np.zeros(2), np.ones(2))
    other.load_state_dict(state)
    x = torch.rand(4, 2)
    assert torch.equal(other(x), model(x))
    assert other.mean.tolist() == [1, 2]
    assert other.std.tolist() == [3, 1]
    assert not [name for name, _ in model.named_parameters() if "network" not in name]


def test_a_model_keeps_its_own_mean():
    for mean in (np.ones(2, np.float32), torch.ones(2)):
        model = Normalized(nn.Identity(), mean, mean)
        mean[:] = 5
        assert model(torch.full((1, 2), 3.0)).tolist() == [[2, 2]]
    frozen = np.broadcast_to(np.float64(1), 2)  # which torch would warn of: it is read-only
    assert Normalized(nn.Identity(), frozen, frozen)(torch.ones(1, 2)).tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("mean", "std"), [([0, np.nan], 1), ([0, np.inf], 1), (0, [1, -1]), (0, [1, 1e39])]
)
def test_a_model_refuses_a_scale_that_is_none(mean, std):
    with pytest.raises(DataError, match=r"at position \(1,\)\.\n  Replace values"):
        Normalized(nn.Identity(), mean, std)


def test_a_model_falls_into_preprocessing_and_network():
    model, x = Normalized(mlp(2, 3), [1.0, 2.0], [3.0, 4.0]), torch.rand(5, 2)
    prepare, network = parts(model)
    assert network is model.network
    assert torch.equal(network(*prepare(x)), model(x))
    assert not torch.equal(prepare(x)[0], x)

    plain = nn.Linear(2, 3)
    prepare, network = parts(plain)
    assert network is plain
    assert prepare(x, "rest")[0] is x
    assert prepare(x, "rest")[1] == "rest"


def test_a_normalised_network_of_ones_own_may_have_parts_too():
    class Pair(nn.Module):
        def forward(self, x, rest):
            return x + rest

    given = Normalized(Pair(), 1.0, 2.0)(torch.tensor([[3.0]]), torch.tensor([[10]]))
    assert given.tolist() == [[11]]
