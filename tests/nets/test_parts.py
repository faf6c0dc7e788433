"""Instances of two parts, in every method: numbers and codes of categories, frames and lengths."""

import numpy as np
import pytest
import torch
from torch import nn

from apportion import LLPVAT, METHODS, Bags, PiModel, TrainConfig, fit
from apportion.nets.build import NETS, build_net
from apportion.nets.mlp import mlp
from tests.nets.small_data import CODES, NUMBERS, bags_of, padded


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def trained(name: str, x, method, **options) -> dict[str, torch.Tensor]:
    rows = np.arange(8)
    bags = Bags.from_members(x, [rows[:4], rows[4:]], [[0.5, 0.25, 0.25]] * 2)
    model = build_net(name, bags, **options)
    fit(model, bags, bags, method=method, config=TrainConfig(epochs=2))
    assert all(value.isfinite().all() for value in model.state_dict().values())
    return model.state_dict()


@pytest.mark.parametrize("method", [name for name in METHODS if name != "strong"])  # of images
def test_every_method_learns_from_numbers_and_codes(method):
    x = np.tile(NUMBERS, (2, 1)), np.tile(CODES, (2, 1))
    state = trained("mlp", x, method)
    places = (
        state["network.1.weight"] - build_net("mlp", bags_of(x)).state_dict()["network.1.weight"]
    )
    assert (places.abs().sum(dim=0) > 0).all()


# The others are settings of these.
@pytest.mark.parametrize("method", ["fpl", "proportion-loss", "pi-model", "llp-vat"])
def test_no_method_learns_from_what_is_behind_a_signal(method):
    given, wanted = (trained("conv1d", padded(behind), method) for behind in (1e6, 0.0))
    for name, value in wanted.items():
        assert torch.equal(given[name], value), name


@pytest.mark.parametrize("method", [PiModel(std=5.0), LLPVAT(xi=1e-2)])
def test_noise_is_on_numbers_and_never_on_codes(method, monkeypatch):
    calls = []

    class Watched(nn.Module):
        def __init__(self, **sizes):
            super().__init__()
            self.inner = mlp(**sizes)

        def forward(self, numbers, codes):
            calls.append((numbers.detach().clone(), codes.clone()))
            return self.inner(numbers, codes)

    monkeypatch.setitem(NETS, "mlp", Watched)
    trained("mlp", (np.tile(NUMBERS, (2, 1)), np.tile(CODES, (2, 1))), method)
    stored = {tuple(row) for row in CODES.tolist()}
    assert {tuple(row) for _, codes in calls for row in codes.tolist()} == stored
    clean = torch.cat([numbers for numbers, _ in calls]).abs().max() < 2.5
    assert not clean  # but the numbers, which are normal, moved
