"""ResNet-18: convolutions that are computed in another way give what they would have given."""

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from apportion.nets import resnet as _resnet
from apportion.nets.build import move_to
from apportion.nets.resnet import ResNet, conv1d, resnet18


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def lively(network: ResNet, seed: int = 0) -> ResNet:
    """The network in evaluation mode, with no statistic or weight left at its first value."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in network.state_dict().items():
        if ".bn" in name or name.startswith("bn") or "downsample.1" in name or name == "fc.bias":
            value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
    return network.eval()


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
        if isinstance(module, nn.Conv1d | nn.Conv2d)
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
    as_matrix, given = _resnet._as_matrix, []

    def watched(*arguments):
        given.append(as_matrix(*arguments))
        return given[-1]

    monkeypatch.setattr(_resnet, "_as_matrix", watched)
    logits, slopes = learned(network, x)
    assert sum(out is not None for out in given) == lone_places(network, x)
    monkeypatch.setattr(_resnet, "_as_matrix", lambda *arguments: None)
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
    places=st.lists(st.integers(1, 7), min_size=1, max_size=2),
    size=st.integers(1, 7),
    stride=st.integers(1, 5),
    data=st.data(),
)
@settings(max_examples=300, deadline=None)
def test_a_convolution_is_a_matrix_exactly_where_it_gives_one_place(places, size, stride, data):
    padding = data.draw(st.integers(0, size - 1), "padding")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, *places, generator=generator, dtype=torch.float64)
    shape = (4, 3, *[size] * len(places))
    weight = torch.randn(shape, generator=generator, dtype=torch.float64)
    given = _resnet._as_matrix(x, weight, stride, padding)
    if any(n + 2 * padding < size for n in places):
        assert given is None  # torch says what is wrong
        return
    wanted = (F.conv1d if len(places) == 1 else F.conv2d)(x, weight, None, stride, padding)
    assert (given is None) == (wanted[0, 0].numel() > 1)
    if given is not None:
        assert given.shape == wanted.shape
        torch.testing.assert_close(given, wanted)


def test_a_kernel_larger_than_its_map_is_refused_by_torch():
    for network, x in (
        (_resnet._Conv1d(2, 3, 5), torch.zeros(1, 2, 4)),
        (_resnet._Conv2d(2, 3, 5), torch.zeros(1, 2, 9, 4)),
    ):
        with pytest.raises(RuntimeError, match=r"[Kk]ernel size"):
            network(x)


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
    given, wanted = _resnet._in_blocks(x, weight), F.conv2d(x, weight, None, 2, size // 2)
    torch.testing.assert_close(given, wanted)
    direction = torch.randn(wanted.shape, generator=generator, dtype=torch.float64)
    slopes = (torch.autograd.grad((out * direction).sum(), (x, weight)) for out in (given, wanted))
    for ours, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.parametrize("size", [(32, 32), (30, 44), (33, 32), (64, 64), (7, 7)])
def test_a_gpu_gives_the_logits_and_gradients_of_the_cpu(size):
    network = lively(resnet18(4)).double()
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
