"""Nets: what they compute, what their weights are called, and the preprocessing they carry."""

import warnings
from importlib import import_module

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from apportion.bags.bags import Bags
from apportion.errors import ConfigError, DataError
from apportion.nets import build as nets
from apportion.nets import measure as _net_inputs
from apportion.nets.build import NETS, build_net
from apportion.nets.mlp import mlp
from apportion.nets.normalized import Normalized, parts
from apportion.nets.resnet import ResNet, conv1d, resnet18
from tests.nets.test_resnet import lively

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
    ),
]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def bags_of(x, *members) -> Bags:
    """Bags of three classes that hold the given rows of x; one bag of all rows if none are."""
    n_rows = len(x[0]) if isinstance(x, tuple) else len(x)
    rows = dict(enumerate(members or [range(n_rows)]))
    return Bags.from_members(x, rows, [[0.5, 0.25, 0.25]] * len(rows))


# ------------------------------------------------------------------------------- preprocessing


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


# ------------------------------------------------------------------------------------ networks


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


def residual_names() -> list[str]:
    """The state dict of torchvision's resnet18, written down from its documentation."""
    statistics = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    names = ["conv1.weight", *(f"bn1.{s}" for s in statistics)]
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            where = f"layer{layer}.{block}"
            for i in (1, 2):
                names += [f"{where}.conv{i}.weight", *(f"{where}.bn{i}.{s}" for s in statistics)]
            if block == 0 and layer > 1:
                names += [f"{where}.downsample.0.weight"]
                names += [f"{where}.downsample.1.{s}" for s in statistics]
    return [*names, "fc.weight", "fc.bias"]


def residual_network(state, x, stem="imagenet"):
    """ResNet-18 in evaluation mode, from its weights alone."""
    images = state["conv1.weight"].ndim == 4
    convolve, pool = (F.conv2d, F.max_pool2d) if images else (F.conv1d, F.max_pool1d)

    def norm(x, name):
        mean, var, weight, bias = (
            state[f"{name}.{s}"].view(-1, *[1] * (x.ndim - 2))
            for s in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    size, stride = (7, 2) if stem == "imagenet" else (3, 1)
    x = convolve(x, state["conv1.weight"], stride=stride, padding=size // 2)
    x = norm(x, "bn1").clamp(min=0)
    if stem == "imagenet":
        x = pool(x, 3, stride=2, padding=1)
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            name, first = f"layer{layer}.{block}", layer > 1 and block == 0
            out = convolve(x, state[f"{name}.conv1.weight"], stride=1 + first, padding=1)
            out = norm(out, f"{name}.bn1").clamp(min=0)
            out = norm(convolve(out, state[f"{name}.conv2.weight"], padding=1), f"{name}.bn2")
            if first:
                x = convolve(x, state[f"{name}.downsample.0.weight"], stride=2)
                x = norm(x, f"{name}.downsample.1")
            x = (x + out).clamp(min=0)
    return x.mean(dim=tuple(range(2, x.ndim))) @ state["fc.weight"].T + state["fc.bias"]


@pytest.mark.parametrize(
    ("network", "shape", "stem"),
    [
        (lambda: resnet18(4), (3, 32, 32), "imagenet"),
        (lambda: resnet18(4, channels=1, stem="cifar"), (1, 9, 12), "cifar"),
        (lambda: conv1d(13, 4), (13, 93), "imagenet"),
        (lambda: conv1d(13, 4), (13, 4), "imagenet"),
        (lambda: conv1d(1, 4), (1, 1), "imagenet"),
    ],
    ids=["imagenet", "cifar", "signal", "short signal", "shortest signal"],
)
def test_resnet_is_what_its_weights_say(network, shape, stem):
    model = lively(network())
    x = 100 * torch.randn(2, *shape)
    state = {name: value.double() for name, value in model.state_dict().items()}
    expected = residual_network(state, x.double(), stem)
    given = x.clone()
    np.testing.assert_allclose(model(x).detach(), expected, rtol=1e-3, atol=1e-3)
    assert (expected[0] - expected[1]).abs().max() > 0.1  # that is no accident
    assert torch.equal(x, given)


def test_resnet_weights_are_named_and_shaped_as_elsewhere():
    state = resnet18(10).state_dict()
    assert list(state) == residual_names()
    assert state["conv1.weight"].shape == (64, 3, 7, 7)
    assert state["layer3.0.conv1.weight"].shape == (256, 128, 3, 3)
    assert state["layer3.0.downsample.0.weight"].shape == (256, 128, 1, 1)
    assert state["fc.weight"].shape == (10, 512)
    assert sum(p.numel() for p in resnet18(10).parameters()) == 11_181_642
    assert resnet18(10, channels=1, stem="cifar").state_dict()["conv1.weight"].shape == (
        64,
        1,
        3,
        3,
    )


def test_the_signal_net_has_the_same_names_and_one_dimension_less():
    images, signals = resnet18(10, channels=13).state_dict(), conv1d(13, 10).state_dict()
    assert list(images) == list(signals)
    for name, value in images.items():
        assert signals[name].shape == (value.shape[:3] if value.ndim == 4 else value.shape)


def test_resnet_weights_are_drawn_as_elsewhere():
    for model in (resnet18(10), conv1d(13, 10)):
        for name, value in model.state_dict().items():
            if "conv" in name or "downsample.0" in name:
                fan_out = value.numel() / value.shape[1]
                assert value.std() == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)
                assert abs(value.mean()) < 0.05 * value.std()
            elif name.startswith("fc"):
                assert value.abs().max() <= 512**-0.5
            elif name.endswith(("weight", "var")):
                assert (value == 1).all()
            else:
                assert (value == 0).all()


def test_torchvision_agrees():
    try:
        with warnings.catch_warnings(action="ignore"):
            theirs = import_module("torchvision.models").resnet18
    except Exception as error:  # noqa: BLE001 (beside a CPU build of torch it fails in many ways)
        pytest.skip(f"torchvision does not import: {error}")
    torch.manual_seed(5)
    ours = resnet18(10)
    torch.manual_seed(5)
    other = theirs(num_classes=10)
    assert list(ours.state_dict()) == list(other.state_dict())
    for name, value in other.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name

    other.load_state_dict(lively(ours, seed=1).state_dict())
    x = torch.randn(2, 3, 64, 64)
    np.testing.assert_allclose(ours(x).detach(), other.eval()(x).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NETS)
def test_every_weight_learns(name, device):
    shape = {"mlp": (6,), "conv1d": (3, 7), "resnet18": (3, 33, 33)}[name]
    generator = np.random.default_rng(0)
    x = generator.integers(0, 256, (4, *shape), dtype=np.uint8)
    model = build_net(name, bags_of(x)).to(device)
    logits = model(torch.from_numpy(x).to(device))
    assert logits.shape == (4, 3)
    F.cross_entropy(logits, torch.tensor([0, 1, 2, 0], device=device)).backward()
    for weight in model.parameters():
        assert weight.grad is not None
        assert weight.grad.abs().sum() > 0


@pytest.mark.parametrize("dimensions", [1, 2])
def test_weights_stay_where_they_are_on_the_cpu(dimensions):
    network = resnet18(4) if dimensions == 2 else conv1d(3, 4)
    before = {name: (w, w.stride()) for name, w in network.named_parameters()}
    nets.move_to(torch.device("cpu"), nn.Sequential(network))
    for name, weight in network.named_parameters():
        assert weight is before[name][0]
        assert weight.stride() == before[name][1]


def test_an_unknown_stem_is_refused():
    with pytest.raises(ConfigError, match="there is no stem 'cifer'"):
        resnet18(10, stem="cifer")  # type: ignore[arg-type]


# --------------------------------------------------------------------------- a net for the data


def as_memmap(x, folder):
    np.save(folder / "x.npy", x)
    return np.load(folder / "x.npy", mmap_mode="r")


@pytest.mark.parametrize("chunk", [1, 100, 2**21])
@pytest.mark.parametrize("kind", ["array", "memmap", "tensor", "tuple"])
@pytest.mark.parametrize(
    ("name", "shape", "axes"),
    [
        ("mlp", (5,), (0,)),
        ("mlp", (2, 3), (0,)),
        ("conv1d", (3, 7), (0, 2)),
        ("resnet18", (3, 4, 5), (0, 2, 3)),
    ],
)
def test_normalisation_is_that_of_the_rows_in_bags(
    name, shape, axes, kind, chunk, tmp_path, monkeypatch
):
    monkeypatch.setattr(_net_inputs, "CHUNK", chunk)
    monkeypatch.setitem(NETS, name, lambda **sizes: nn.Identity())  # this is not about weights
    x = np.random.default_rng(0).integers(0, 256, (40, *shape), dtype=np.uint8)
    x[30:] = 255  # rows in no bag, which must not count
    members = [7, 3, 0, *range(8, 30)], [3, 29, 7]  # and those in two bags count once
    given = {
        "array": lambda: x,
        "memmap": lambda: as_memmap(x, tmp_path),
        "tensor": lambda: torch.from_numpy(x),
        "tuple": lambda: (x,),
    }[kind]()
    used = x[[0, 3, *range(7, 30)]].astype(np.float64)
    model = build_net(name, bags_of(given, *members))
    np.testing.assert_allclose(model.mean, used.mean(axis=axes, keepdims=True)[0], rtol=1e-6)
    np.testing.assert_allclose(model.std, used.std(axis=axes, keepdims=True)[0], rtol=1e-6)
    seen = model(torch.from_numpy(used)).double().numpy()
    np.testing.assert_allclose(seen.mean(axis=axes), 0, atol=1e-5)
    np.testing.assert_allclose(seen.std(axis=axes), 1, atol=1e-5)


def test_a_spread_far_from_zero_is_measured_soundly(monkeypatch):
    monkeypatch.setattr(_net_inputs, "CHUNK", 64)
    x = (np.random.default_rng(0).random((1000, 2)) + np.array([1e5, -3e4])).astype(np.float32)
    model = build_net("mlp", bags_of(x))
    np.testing.assert_allclose(model.std, x.astype(np.float64).std(axis=0), rtol=1e-6)
    # float32 squares at 1e5 are a thousand apart, and 0.29² is lost between them.


def test_a_constant_feature_becomes_zero(monkeypatch):
    monkeypatch.setattr(_net_inputs, "CHUNK", 7)
    x = np.random.default_rng(0).random((30, 3))
    x[:, 1] = 0.1  # ten of which do not sum to one
    model = build_net("mlp", bags_of(x))
    assert model.std[1] == 1
    assert (model.prepare(torch.from_numpy(x))[0][:, 1] == 0).all()


def test_data_are_never_loaded_whole(monkeypatch):
    class OnDisk:
        shape, ndim, dtype = (1000, 4), 2, np.dtype(np.float64)
        read: list[int] = []  # noqa: RUF012

        def __getitem__(self, rows):
            self.read.append(len(rows))
            return np.broadcast_to(np.asarray(rows, np.float64)[:, None], (len(rows), 4))

        def __len__(self):
            return 1000

    monkeypatch.setattr(_net_inputs, "CHUNK", 200)
    model = build_net("mlp", bags_of(OnDisk()))
    assert max(OnDisk.read) == 50
    np.testing.assert_allclose(model.mean, 499.5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
def test_values_that_are_no_numbers_are_refused(bad):
    x = np.random.default_rng(0).random((6, 3))
    x[4, 2] = bad
    with pytest.raises(
        DataError, match=r"at position \(2,\)\.\n  Replace values of x that are miss"
    ):
        build_net("mlp", bags_of(x))
    build_net("mlp", bags_of(x, [0, 1, 2, 3, 5]))  # the row is in no bag


def test_a_seed_decides_the_weights():
    bags = bags_of(np.random.default_rng(0).random((6, 3)))
    first, again, other = (build_net("mlp", bags, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["network.1.weight"], other["network.1.weight"])


def test_the_callers_random_state_stays():
    bags, cuda = bags_of(np.random.default_rng(0).random((6, 3))), torch.cuda.is_available()

    def states():
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if cuda else [])]

    torch.manual_seed(3)
    before = states()
    build_net("mlp", bags, seed=9)
    assert all(map(torch.equal, before, states()))


def test_options_and_sizes_reach_the_net():
    x = np.random.default_rng(0).random((4, 2, 8, 8))
    assert build_net("resnet18", bags_of(x)).network.conv1.kernel_size == (7, 7)  # type: ignore[union-attr]
    network = build_net("resnet18", bags_of(x), stem="cifar").network
    assert isinstance(network, ResNet)
    assert network.state_dict()["conv1.weight"].shape == (64, 2, 3, 3)
    hidden = build_net("mlp", bags_of(x), hidden=[9]).network.state_dict()
    assert [hidden[f"{i}.weight"].shape for i in (1, 3)] == [(9, 128), (3, 9)]


def test_a_net_is_made_on_the_cpu_whatever_the_default():
    x = np.random.default_rng(0).random((6, 3))
    with torch.device("meta"):
        model = build_net("mlp", bags_of(x))
    assert {value.device.type for value in model.state_dict().values()} == {"cpu"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_tensor_on_the_device_is_measured_alike():
    x = torch.randn(50, 3, 7, generator=torch.Generator().manual_seed(0))
    here, there = build_net("conv1d", bags_of(x)), build_net("conv1d", bags_of(x.cuda()))
    for name, value in here.state_dict().items():
        assert torch.equal(value, there.state_dict()[name])


@pytest.mark.parametrize(
    ("name", "x", "message"),
    [
        (
            "resnet",
            np.ones((4, 2)),
            r"no net 'resnet'.\n  Did you mean 'resnet18'\? Known: mlp,",
        ),
        (
            "transformer",
            np.ones((4, 2)),
            r"no net 'transformer'.\n  Known: mlp, conv1d, resnet18",
        ),
        ("resnet18", np.ones((4, 2)), r"\(rows, channels, height, width\), but .* \(4, 2\)"),
        ("conv1d", np.ones((4, 3, 8, 8)), r"\(rows, channels, length\), but .* \(4, 3, 8, 8\)"),
        ("mlp", np.ones(4), r"\(rows, features\), but x is of shape \(4,\)"),
        ("mlp", np.ones((4, 0)), r"\(rows, features\), but x is of shape \(4, 0\)"),
        ("resnet18", (np.ones((4, 3, 8, 8)), np.ones(4)), "cannot read instances of 2 parts"),
    ],
)
def test_what_no_net_can_be_built_for_is_refused(name, x, message):
    with pytest.raises((ConfigError, DataError), match=message):
        build_net(name, bags_of(x))
