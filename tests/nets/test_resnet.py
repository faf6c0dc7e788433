"""ResNet-18: what its weights say, whichever way its convolutions are computed."""

import copy
import warnings
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from apportion.errors import ConfigError
from apportion.nets import resnet
from apportion.nets.build import move_to
from apportion.nets.resnet import ResNet, conv1d, resnet18
from tests.nets.small_data import lively


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


MAPS = [
    ("imagenet", (32, 32)),  # that of the paper's images, which end in one place
    ("imagenet", (32, 40)),  # one place high, two wide
    ("imagenet", (11, 7)),
    ("imagenet", (1, 1)),
    ("cifar", (8, 8)),
    ("cifar", (5, 9)),
    ("signal", (32,)),
    ("signal", (93,)),
    ("signal", (7,)),
    ("signal", (2,)),
    ("signal", (1,)),
]


def lone_places(network: ResNet, x: torch.Tensor) -> int:
    """How many of its convolutions give one place for each channel."""
    sizes: list[int] = []
    handles = [
        module.register_forward_hook(lambda m, x, out: sizes.append(out[0, 0].numel()))
        for module in network.modules()
        if isinstance(module, nn.Conv2d)
    ]
    with torch.no_grad():
        copy.deepcopy(network)(x)
    for handle in handles:
        handle.remove()
    return sizes.count(1)


def learned(network: ResNet, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Logits in training mode, and the gradients of all weights and of the input."""
    network, x = copy.deepcopy(network).train(), x.clone().requires_grad_()
    logits = network(x)
    F.cross_entropy(logits, torch.arange(len(x), device=x.device) % 4).backward()
    weights = {**dict(network.named_parameters()), "x": x}
    return logits.detach(), {name: w.grad for name, w in weights.items() if w.grad is not None}


@pytest.mark.parametrize(("stem", "size"), MAPS)
def test_products_of_matrices_give_the_logits_and_gradients_of_convolutions(
    stem, size, monkeypatch
):
    network = conv1d(2, 4) if stem == "signal" else resnet18(4, channels=2, stem=stem)
    network = lively(network).double()
    x = 10 * torch.randn(3, 2, *size, dtype=torch.float64)
    as_matrix, given = resnet._as_matrix, []

    def watched(*arguments):
        given.append(as_matrix(*arguments))
        return given[-1]

    monkeypatch.setattr(resnet, "_as_matrix", watched)
    logits, slopes = learned(network, x)
    assert sum(out is not None for out in given) == lone_places(network, x)
    monkeypatch.setattr(resnet, "_as_matrix", lambda *arguments: None)
    plain, wanted = learned(network, x)
    torch.testing.assert_close(logits, plain, rtol=1e-9, atol=1e-9)
    assert slopes.keys() == wanted.keys()
    assert len(slopes) == 63  # 62 weights and the input
    for name, slope in wanted.items():
        error = (slopes[name] - slope).abs().max() / slope.abs().max()
        assert error < 1e-8, name


def test_weights_that_lie_on_padding_alone_get_no_gradient():
    _, slopes = learned(lively(resnet18(4)), torch.randn(3, 3, 32, 32))
    centre, corner = torch.zeros(3, 3, dtype=torch.bool), torch.zeros(3, 3, dtype=torch.bool)
    centre[1, 1] = True  # of a map of one place
    corner[1:, 1:] = True  # of one of two by two, seen from its first place
    for name, used in (
        ("layer4.0.conv1", corner),
        ("layer4.0.conv2", centre),
        ("layer4.1.conv1", centre),
        ("layer4.1.conv2", centre),
    ):
        slope = slopes[f"{name}.weight"]
        assert (slope[:, :, ~used] == 0).all()
        assert (slope[:, :, used].abs().amax(dim=(0, 1)) > 0).all()
    assert (slopes["layer3.1.conv2.weight"].abs().amax(dim=(0, 1)) > 0).all()


@given(
    places=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    size=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    stride=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    data=st.data(),
)
@settings(max_examples=300, deadline=None)
def test_a_convolution_is_a_matrix_exactly_where_it_gives_one_place(places, size, stride, data):
    padding = tuple(data.draw(st.integers(0, n - 1), "padding") for n in size)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, *places, generator=generator, dtype=torch.float64)
    conv = resnet._Convolution(3, 4, size, stride, padding, bias=False).double()
    given = resnet._as_matrix(x, conv)
    if any(n + 2 * p < k for n, p, k in zip(places, padding, size, strict=True)):
        assert given is None  # torch says what is wrong
        return
    wanted = F.conv2d(x, conv.weight, None, stride, padding)
    assert (given is None) == (wanted[0, 0].numel() > 1)
    if given is not None:
        assert given.shape == wanted.shape
        torch.testing.assert_close(given, wanted)


def test_a_kernel_larger_than_its_map_is_refused_by_torch():
    for kernel, x in (((1, 5), torch.zeros(1, 2, 1, 4)), (5, torch.zeros(1, 2, 9, 4))):
        with pytest.raises(RuntimeError, match=r"[Kk]ernel size"):
            resnet._Convolution(2, 3, kernel)(x)


@given(
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    channels=st.integers(1, 7),
    size=st.sampled_from([3, 7, 11]),
)
@settings(max_examples=100, deadline=None)
def test_a_convolution_over_blocks_is_that_over_pixels(height, width, channels, size):
    """On maps of even size, for paddings that are odd."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, channels, 2 * height, 2 * width)
    x = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    weight = torch.randn((4, channels, size, size), generator=generator, dtype=torch.float64)
    weight.requires_grad_()
    given, wanted = resnet._in_blocks(x, weight), F.conv2d(x, weight, None, 2, size // 2)
    torch.testing.assert_close(given, wanted)
    direction = torch.randn(wanted.shape, generator=generator, dtype=torch.float64)
    slopes = (torch.autograd.grad((out * direction).sum(), (x, weight)) for out in (given, wanted))
    for ours, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.parametrize("size", [(32, 32), (30, 44), (33, 32), (64, 64), (7, 7), (93,), (40,)])
def test_a_gpu_gives_the_logits_and_gradients_of_the_cpu(size):
    network = lively(resnet18(4) if len(size) == 2 else conv1d(3, 4)).double()
    x = 10 * torch.randn(3, 3, *size, dtype=torch.float64)
    logits, slopes = learned(network, x)
    move_to(torch.device("cuda"), network)
    weight = dict(network.named_parameters())["conv1.weight"]
    assert weight.is_contiguous(memory_format=torch.channels_last)
    ours, found = learned(network, x.cuda())
    torch.testing.assert_close(ours.cpu(), logits, rtol=1e-8, atol=1e-8)
    for name, slope in slopes.items():
        error = (found[name].cpu() - slope).abs().max() / slope.abs().max()
        assert error < 1e-7, name


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
    images = x.ndim == 4
    state = {
        name: value[:, :, 0] if value.ndim == 4 and not images else value
        for name, value in state.items()
    }
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


def test_the_signal_net_has_the_same_names_and_kernels_of_one_row():
    images, signals = resnet18(10, channels=13).state_dict(), conv1d(13, 10).state_dict()
    assert list(images) == list(signals)
    for name, value in images.items():
        shape = value[:, :, :1].shape if value.ndim == 4 else value.shape
        assert signals[name].shape == shape


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


def test_an_unknown_stem_is_refused():
    with pytest.raises(ConfigError, match="there is no stem 'cifer'"):
        resnet18(10, stem="cifer")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ mirror images


@pytest.mark.parametrize(("channels", "stem", "size"), [(3, "imagenet", 32), (1, "cifar", 9)])
def test_a_mirroring_net_predicts_from_the_mean_features_of_both_images(channels, stem, size):
    network: Any = lively(resnet18(4, channels=channels, stem=stem, mirror=True))
    plain = resnet18(4, channels=channels, stem=stem)
    assert list(plain.state_dict()) == list(network.state_dict())
    plain.load_state_dict(network.state_dict())
    plain.fc = nn.Identity()
    x, seen = 10 * torch.randn(5, channels, size, size), []
    network.fc.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    with torch.no_grad():
        features = plain.eval()(x), plain(torch.from_numpy(x.numpy()[..., ::-1].copy()))
        logits = network.eval()(x)
        assert torch.allclose(logits, network(x.flip(-1)), atol=1e-5)
    assert not torch.allclose(*features, rtol=0.1)
    mean = (features[0] + features[1]) / 2
    assert len(seen) == 2  # once in each of two calls
    torch.testing.assert_close(seen[0], mean)
    torch.testing.assert_close(logits, mean @ network.fc.weight.T + network.fc.bias)


def test_a_mirroring_net_learns_as_another_one():
    mirroring, plain = (resnet18(4, stem="cifar", mirror=mirror) for mirror in (True, False))
    plain.load_state_dict(mirroring.state_dict())
    x = torch.randn(6, 3, 8, 8)
    (logits, slopes), (wanted, others) = learned(mirroring, x), learned(plain, x)
    assert torch.equal(logits, wanted)
    assert all(torch.equal(slopes[name], other) for name, other in others.items())
