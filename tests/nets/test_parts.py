"""Nets for instances of two parts: numbers and codes of categories, frames and lengths."""

import numpy as np
import pytest
import torch
from torch import nn

from apportion import LLPVAT, METHODS, Bags, PiModel, TrainConfig, fit
from apportion.errors import DataError
from apportion.nets import measure as _net_inputs
from apportion.nets.build import NETS, build_net
from apportion.nets.mlp import mlp
from apportion.nets.normalized import Normalized
from tests.nets.test_build import as_memmap, bags_of


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


# --------------------------------------------------------------------------- numbers and codes

NUMBERS = np.random.default_rng(0).normal(5.0, 3.0, (6, 2))
CODES = np.array([[0, 1], [1, 4], [2, 0], [2, 2], [0, 3], [1, 1]])


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


def test_categories_are_those_of_the_rows_in_bags(monkeypatch):
    """Others may be held out, and must not shape the network."""
    monkeypatch.setattr(_net_inputs, "CHUNK", 4)  # two rows at a time
    bags = bags_of((NUMBERS, CODES), [0, 2, 3])
    network = build_net("mlp", bags, hidden=[]).network
    places = int(np.max(np.asarray(CODES)[[0, 2, 3]], axis=0).sum())
    assert places < int(np.max(CODES, axis=0).sum())
    assert network.state_dict()["1.weight"].shape == (3, 2 + places)
    network = build_net("mlp", bags, hidden=[], categories=(9, 5)).network
    assert network.state_dict()["1.weight"].shape == (3, 2 + 8 + 4)
    assert list(network.state_dict()) == list(mlp(2, 3, hidden=[]).state_dict())


def test_every_place_learns():
    model = build_net("mlp", bags_of((NUMBERS, CODES)), hidden=[64])
    model(torch.from_numpy(NUMBERS), torch.tensor(CODES)).square().sum().backward()
    slope = next(model.network.parameters()).grad
    assert slope is not None
    assert (slope.abs().sum(dim=0) > 0).all()


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        ((NUMBERS, CODES[:, 0]), {}, r"shapes \(rows, features\) and \(rows, columns\), .* \(6,\)"),
        ((NUMBERS, CODES * 1.0), {}, r"whole numbers; but .* the second float64"),
        ((NUMBERS, torch.tensor(CODES * 1.0)), {}, r"the second float64\."),
        ((NUMBERS[:, 0], CODES), {}, r"but they are of shapes \(6,\) and \(6, 2\)"),
        ((NUMBERS, CODES - 1), {}, "row 0 has the code -1 in column 0.\n  .* ≥ 0; 0 is for"),
        (
            (NUMBERS, CODES),
            {"categories": [3, 4]},
            "^row 1 has the code 4 in column 1.\n  .* 0 to 3",
        ),
        ((NUMBERS, CODES), {"categories": [3]}, r"^categories is \[3\], but there are 2 columns"),
        ((NUMBERS, CODES), {"categories": [3.0, 5.0]}, r"^categories is \[3.0, 5.0\]"),
        (
            (NUMBERS, np.full((6, 2), [1, 2**40])),
            {},
            "^column 1 of the codes has 1,099,511,627,777",
        ),
        ((np.zeros((6, 0)), CODES * 0), {}, "^x has 0 numbers, and 0 categories"),
        (NUMBERS, {"categories": [3, 5]}, "^categories are given, but there are no codes"),
        ((NUMBERS, CODES, CODES), {}, "^mlp cannot read instances of 3 parts"),
    ],
)
def test_codes_that_no_net_can_be_built_for_are_refused(x, options, message):
    with pytest.raises(DataError, match=message):
        build_net("mlp", bags_of(x), **options)


# --------------------------------------------------------------------------- frames and lengths


def padded(behind=0.0, size=9):
    """Ten signals of two channels, the last of which is to stand in no bag."""
    generator = np.random.default_rng(1)
    frames = generator.normal([[3.0], [-50.0]], [[1.0], [9.0]], (10, 2, 9)).astype(np.float32)
    frames = np.concatenate([frames, np.zeros((10, 2, size - 9), np.float32)], axis=2)
    lengths = np.array([1, 9, 3, 4, 5, 2, 8, 9, 1, 0])
    frames[np.broadcast_to(np.arange(size) >= lengths[:, None, None], frames.shape)] = behind
    return frames, lengths


@pytest.mark.parametrize("chunk", [1, 40, 2**21])
@pytest.mark.parametrize("behind", [1e6, np.nan])
def test_normalisation_is_that_of_real_frames(behind, chunk, monkeypatch):
    monkeypatch.setattr(_net_inputs, "CHUNK", chunk)
    monkeypatch.setitem(NETS, "conv1d", lambda **sizes: nn.Identity())
    frames, lengths = padded(behind)
    real = np.concatenate([x[:, :n] for x, n in zip(frames[:9], lengths, strict=False)], axis=1)
    for given in ((frames, lengths), (torch.tensor(frames), torch.tensor(lengths))):
        model = build_net("conv1d", bags_of(given, range(8), [8, 3]))
        assert model.mean.shape == (2, 1)
        np.testing.assert_allclose(model.mean[:, 0], real.mean(axis=1, dtype=float), rtol=1e-5)
        np.testing.assert_allclose(model.std[:, 0], real.std(axis=1, dtype=float), rtol=1e-5)


def test_a_signal_gives_the_same_whatever_is_behind_it():
    logits = []
    for behind, size in ((0.0, 9), (1e6, 9), (np.nan, 31)):
        frames, lengths = padded(behind, size)
        model = build_net("conv1d", bags_of((frames, lengths), range(9))).eval()
        with torch.no_grad():
            logits.append(model(torch.from_numpy(frames)[:9], torch.from_numpy(lengths)[:9]))
    assert logits[0].std(dim=0).min() > 0
    for other in logits[1:]:
        torch.testing.assert_close(other, logits[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("conv1d", lambda x, n: (x, n), "^row 9 has a length of 0; the frames are 9 long.\n"),
        (
            "conv1d",
            lambda x, n: (x, n + 8),
            r"^row 1 has a length of 17 \(and 6 more like it\); the",
        ),
        ("conv1d", lambda x, n: (x, n[:, None]), r"\(rows, channels, length\) and \(rows\), the"),
        ("conv1d", lambda x, n: (x, n * 1.0), "lengths, whole numbers; but .* float64"),
        ("conv1d", lambda x, n: (x[:, 0], n), r"but they are of shapes \(10, 9\) and \(10,\)"),
        ("conv1d", lambda x, n: (x[:, :0], n), r"but they are of shapes \(10, 0, 9\)"),
        ("resnet18", lambda x, n: (x, n), "^resnet18 cannot read instances of 2 parts.\n  Two"),
    ],
)
def test_lengths_that_no_net_can_be_built_for_are_refused(name, change, message):
    with pytest.raises(DataError, match=message):
        build_net(name, bags_of(change(*padded())))


# ---------------------------------------------------------------------------------- the methods


def trained(name: str, x, method, **options) -> dict[str, torch.Tensor]:
    rows = np.arange(8)
    bags = Bags.from_members(x, [rows[:4], rows[4:]], [[0.5, 0.25, 0.25]] * 2)
    model = build_net(name, bags, **options)
    fit(model, bags, bags, method=method, config=TrainConfig(epochs=2))
    assert all(value.isfinite().all() for value in model.state_dict().values())
    return model.state_dict()


@pytest.mark.parametrize("method", METHODS)
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


def test_a_normalised_network_of_ones_own_may_have_parts_too():
    class Pair(nn.Module):
        def forward(self, x, rest):
            return x + rest

    given = Normalized(Pair(), 1.0, 2.0)(torch.tensor([[3.0]]), torch.tensor([[10]]))
    assert given.tolist() == [[11]]
