"""Nets for the data: every weight learns, the seed decides them, and options reach them."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from apportion.errors import ConfigError, DataError
from apportion.nets.build import NETS, build_net, move_to
from apportion.nets.resnet import ResNet, conv1d, resnet18
from tests.nets.small_data import bags_of

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
    ),
]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


# ------------------------------------------------------------------------------------ networks


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NETS)
def test_every_weight_learns(name, device):
    shapes = {"mlp": (6,), "conv1d": (3, 7), "resnet18": (3, 33, 33), "summary": (3, 7)}
    shape = shapes[name]
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
    move_to(torch.device("cpu"), nn.Sequential(network))
    for name, weight in network.named_parameters():
        assert weight is before[name][0]
        assert weight.stride() == before[name][1]


# --------------------------------------------------------------------------- a net for the data


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
    assert not network.mirror
    assert build_net("resnet18", bags_of(x), mirror=True).network.mirror
    hidden = build_net("mlp", bags_of(x), hidden=[9]).network.state_dict()
    assert [hidden[f"{i}.weight"].shape for i in (1, 3)] == [(9, 128), (3, 9)]


def test_a_net_is_made_on_the_cpu_whatever_the_default():
    x = np.random.default_rng(0).random((6, 3))
    with torch.device("meta"):
        model = build_net("mlp", bags_of(x))
    assert {value.device.type for value in model.state_dict().values()} == {"cpu"}


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
    ],
)
def test_what_no_net_can_be_built_for_is_refused(name, x, message):
    with pytest.raises(ConfigError, match=message):
        build_net(name, bags_of(x))


@pytest.mark.parametrize("as_tensor", [False, True])
def test_images_with_channels_last_are_told_how_to_be_passed(as_tensor):
    x = np.random.default_rng(0).integers(256, size=(4, 8, 8, 3)).astype(np.uint8)
    given: Any = torch.from_numpy(x) if as_tensor else x
    with pytest.raises(DataError, match=r"(?s)\(4, 8, 8, 3\).*last.*moveaxis.*channels=8"):
        build_net("resnet18", bags_of(given))
    moved = given.movedim(-1, 1) if as_tensor else np.moveaxis(x, -1, 1)
    for x, options, channels in ((moved, {}, 3), (given, {"channels": 8}, 8)):
        recipe: Any = build_net("resnet18", bags_of(x), **options).recipe
        assert recipe["channels"] == channels
    with pytest.raises(ConfigError, match="channels must be 3, as x has them; got 4"):
        build_net("resnet18", bags_of(moved), channels=4)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mlp", {"hiden": [3]}, "'mlp' has no option 'hiden'.*Did you mean 'hidden'"),
        ("mlp", {"hidden": 3}, "hidden must be a list of integers"),
        ("mlp", {"hidden": [2.5]}, "hidden must be"),
        ("mlp", {"skip": "yes"}, "skip must be True or False"),
        ("mlp", {"stem": "cifar"}, "'mlp' has no option 'stem'"),
        ("conv1d", {"mirror": True}, "'conv1d' has no option 'mirror'"),
        ("resnet18", {"mirror": 1}, "mirror must be True or False; got 1"),
    ],
)
def test_options_that_a_net_does_not_have_are_named(name, options, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        build_net(name, bags_of(np.ones((4, 2))), **options)


@pytest.mark.parametrize("name", ["conv1d", "summary"])
def test_signals_that_may_be_swapped_are_told(name, caplog):
    x = np.random.default_rng(0).normal(size=(4, 20, 3))
    build_net(name, bags_of(x))
    assert "shape (4, 20, 3), is taken as signals of 20 channels and 3 frames" in caplog.text
    assert "np.swapaxes(x, 1, 2)" in caplog.text
    caplog.clear()
    build_net(name, bags_of(x[:, :20, :1]))
    assert "20 channels and 1 frame." in caplog.text
    caplog.clear()
    build_net(name, bags_of(np.swapaxes(x, 1, 2)))
    build_net(name, bags_of(x[:, :1, :1]))
    build_net(name, bags_of((x, np.full(4, 3))))  # lengths say what is a frame
    assert not caplog.text


@pytest.mark.parametrize("name", ["conv1d", "summary", "resnet18"])
def test_a_value_beside_which_all_others_are_nothing_is_told(name, caplog):
    shape = (30, 2, 40) if name != "resnet18" else (30, 3, 6, 6)
    x = np.random.default_rng(0).normal(size=shape)
    build_net(name, bags_of(x))
    assert not caplog.text
    x[7, 1, 3] = 1e30
    x[7, 1, 4:] = 0
    build_net(name, bags_of(x[:10]))  # so few may well differ as much
    assert not caplog.text
    if name == "resnet18":
        x[7, 1, 3, 1:] = 0
    build_net(name, bags_of(x))
    assert "Channel 1 of x (counted from 0) has a single value that makes up" in caplog.text
    caplog.clear()
    if name != "resnet18":  # what follows a signal is no value of it
        build_net(name, bags_of((x, np.full(len(x), 3))))
        assert not caplog.text
