"""What is measured for a net: the rows in bags alone, a chunk at a time, and only real frames."""

import numpy as np
import pytest
import torch
from torch import nn

from apportion.errors import DataError
from apportion.nets import measure
from apportion.nets.build import NETS, build_net
from apportion.nets.mlp import mlp
from tests.nets.small_data import CODES, NUMBERS, as_memmap, bags_of, padded


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("name", "x", "sizes", "shape"),
    [
        ("mlp", np.ones((4, 2, 3)), {"features": 6}, (2, 3)),
        ("mlp", (NUMBERS, CODES), {"features": 2, "categories": [3, 5]}, (2,)),
        ("conv1d", np.ones((4, 3, 7)), {"channels": 3}, (3, 1)),
        ("conv1d", padded(), {"channels": 2, "masked": True}, (2, 1)),
        ("resnet18", np.ones((4, 3, 8, 9)), {"channels": 3}, (3, 1, 1)),
    ],
)
def test_sizes_are_arguments_of_the_net_and_moments_go_with_one_instance(name, x, sizes, shape):
    found = measure.measure(name, x, np.arange(4), None)
    assert found.sizes == sizes
    assert found.mean.shape == found.std.shape == shape


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
    monkeypatch.setattr(measure, "CHUNK", chunk)
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
    monkeypatch.setattr(measure, "CHUNK", 64)
    x = (np.random.default_rng(0).random((1000, 2)) + np.array([1e5, -3e4])).astype(np.float32)
    model = build_net("mlp", bags_of(x))
    np.testing.assert_allclose(model.std, x.astype(np.float64).std(axis=0), rtol=1e-6)

    # float32 squares at 1e5 are a thousand apart, and 0.29² is lost between them.


def test_a_constant_feature_becomes_zero(monkeypatch):
    monkeypatch.setattr(measure, "CHUNK", 7)
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

    monkeypatch.setattr(measure, "CHUNK", 200)
    model = build_net("mlp", bags_of(OnDisk()))
    assert max(OnDisk.read) == 50
    np.testing.assert_allclose(model.mean, 499.5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_tensor_on_the_device_is_measured_alike():
    x = torch.randn(50, 3, 7, generator=torch.Generator().manual_seed(0))
    here, there = build_net("conv1d", bags_of(x)), build_net("conv1d", bags_of(x.cuda()))
    for name, value in here.state_dict().items():
        assert torch.equal(value, there.state_dict()[name])


@pytest.mark.parametrize(
    ("name", "x", "message"),
    [
        ("resnet18", np.ones((4, 2)), r"\(rows, channels, height, width\), but .* \(4, 2\)"),
        ("conv1d", np.ones((4, 3, 8, 8)), r"\(rows, channels, length\), but .* \(4, 3, 8, 8\)"),
        ("mlp", np.ones(4), r"\(rows, features\), but x is of shape \(4,\)"),
        ("mlp", np.ones((4, 0)), r"\(rows, features\), but x is of shape \(4, 0\)"),
        ("resnet18", (np.ones((4, 3, 8, 8)), np.ones(4)), "cannot read instances of 2 parts"),
    ],
)
def test_what_no_net_can_be_built_for_is_refused(name, x, message):
    with pytest.raises(DataError, match=message):
        build_net(name, bags_of(x))


# --------------------------------------------------------------------------- numbers and codes


def test_categories_are_those_of_the_rows_in_bags(monkeypatch):
    """Others may be held out, and must not shape the network."""
    monkeypatch.setattr(measure, "CHUNK", 4)  # two rows at a time
    bags = bags_of((NUMBERS, CODES), [0, 2, 3])
    network = build_net("mlp", bags, hidden=[]).network
    places = int(np.max(np.asarray(CODES)[[0, 2, 3]], axis=0).sum())
    assert places < int(np.max(CODES, axis=0).sum())
    assert network.state_dict()["1.weight"].shape == (3, 2 + places)
    network = build_net("mlp", bags, hidden=[], categories=(9, 5)).network
    assert network.state_dict()["1.weight"].shape == (3, 2 + 8 + 4)
    assert list(network.state_dict()) == list(mlp(2, 3, hidden=[]).state_dict())


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


@pytest.mark.parametrize("chunk", [1, 40, 2**21])
@pytest.mark.parametrize("behind", [1e6, np.nan])
def test_normalisation_is_that_of_real_frames(behind, chunk, monkeypatch):
    monkeypatch.setattr(measure, "CHUNK", chunk)
    monkeypatch.setitem(NETS, "conv1d", lambda **sizes: nn.Identity())
    frames, lengths = padded(behind)
    real = np.concatenate([x[:, :n] for x, n in zip(frames[:9], lengths, strict=False)], axis=1)
    for given in ((frames, lengths), (torch.tensor(frames), torch.tensor(lengths))):
        model = build_net("conv1d", bags_of(given, range(8), [8, 3]))
        assert model.mean.shape == (2, 1)
        np.testing.assert_allclose(model.mean[:, 0], real.mean(axis=1, dtype=float), rtol=1e-5)
        np.testing.assert_allclose(model.std[:, 0], real.std(axis=1, dtype=float), rtol=1e-5)


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


@pytest.mark.parametrize(
    ("name", "shape", "place", "where"),
    [
        ("conv1d", (2, 5), (1, 2), "channel 1, frame 2"),
        ("summary", (2, 5), (1, 2), "channel 1, frame 2"),
        ("resnet18", (3, 4, 5), (2, 0, 1), "channel 2, line 0, column 1"),
        ("mlp", (5,), (3,), "column 3"),
        ("mlp", (2, 5), (1, 2), r"at \(1, 2\)"),
    ],
)
def test_a_value_that_is_not_finite_is_named_by_its_place(name, shape, place, where):
    x = np.zeros((6, *shape))
    for value in (np.nan, -np.inf, 1e300):
        x[4][place] = value
        with pytest.raises(DataError, match=f"x is {value:g} in row 4, {where} ".replace("+", ".")):
            build_net(name, bags_of(x))
    with pytest.raises(DataError, match="Replace values of x that are missing, infinite or too"):
        build_net(name, bags_of(x))


def test_what_stands_behind_the_frames_of_a_signal_may_be_anything():
    x = np.random.default_rng(0).normal(size=(4, 2, 5))
    x[:, :, 3:] = np.nan
    build_net("summary", bags_of((x, np.full(4, 3))))
    with pytest.raises(DataError, match="x is nan in row 2, channel 0, frame 3"):
        build_net("summary", bags_of((x, np.array([3, 1, 4, 5]))))
