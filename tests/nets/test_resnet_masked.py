"""ResNet-18 over padded signals: what is behind the last frame is nothing to it."""

import copy
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from apportion.engine.step import frozen_statistics
from apportion.errors import ApportionError
from apportion.nets.build import build_net
from apportion.nets.resnet import ResNet, conv1d
from tests.nets.small_data import bags_of, lively, padded

LENGTHS = torch.tensor([1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 32, 33, 40])


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@cache
def made() -> tuple[ResNet, ResNet]:
    torch.manual_seed(0)
    plain = lively(conv1d(2, 4)).double()
    masked = conv1d(2, 4, masked=True).double().eval()
    masked.load_state_dict(plain.state_dict())
    return masked, plain


def networks() -> tuple[ResNet, ResNet]:
    """A masked network, and the same without a mask."""
    return copy.deepcopy(made())


def signals(size: int, behind: float = 0.0) -> torch.Tensor:
    x = 10 * torch.randn(
        len(LENGTHS), 2, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    x = F.pad(x, (0, size - 40))
    return torch.where(torch.arange(size) < LENGTHS[:, None, None], x, behind)


def test_a_signal_gives_the_logits_it_gives_alone():
    masked, plain = networks()
    with torch.no_grad():
        alone = [plain(x[None, :, :n])[0] for x, n in zip(signals(40), LENGTHS, strict=True)]
        for size in (40, 41, 47, 64):
            for behind in (0.0, 1e6, float("inf"), float("nan")):
                given = masked(signals(size, behind), LENGTHS)
                torch.testing.assert_close(given, torch.stack(alone), rtol=1e-9, atol=1e-9)


def learned(network: ResNet, x: torch.Tensor, *lengths: torch.Tensor) -> dict[str, torch.Tensor]:
    """Logits, gradients and statistics of a step in training mode."""
    network, x = copy.deepcopy(network).train(), x.clone().requires_grad_()
    logits = network(x, *lengths)
    F.cross_entropy(logits, torch.arange(len(x)) % 4).backward()
    assert x.grad is not None
    found = {"logits": logits.detach(), "x": x.grad[:, :, :40]}
    found |= {f"slope of {name}": w.grad for name, w in network.named_parameters()}
    return found | dict(network.named_buffers())


def assert_learned_alike(given, wanted):
    assert given.keys() == wanted.keys()
    for name, value in wanted.items():
        error = (given[name] - value).abs().max() / value.abs().max()
        assert error < 1e-8, name


def test_without_padding_it_learns_as_without_a_mask():
    masked, plain = networks()
    x = torch.randn(5, 2, 37, dtype=torch.float64)
    full = torch.full((5,), 37)
    assert_learned_alike(learned(masked, x, full), learned(plain, x))


@pytest.mark.parametrize(("size", "behind"), [(40, 1e6), (41, 0.0), (90, float("nan"))])
def test_what_it_learns_does_not_depend_on_the_padding(size, behind):
    masked, _ = networks()
    wanted = learned(masked, signals(40), LENGTHS)
    assert_learned_alike(learned(masked, signals(size, behind), LENGTHS), wanted)
    padding = torch.arange(40) >= LENGTHS[:, None, None]
    assert (wanted["x"].masked_select(padding) == 0).all()
    assert (wanted["x"].abs().sum(dim=(1, 2)) > 0).all()


def test_its_statistics_can_be_frozen():
    masked, _ = networks()
    masked.train()
    before = {name: value.clone() for name, value in masked.named_buffers()}
    with frozen_statistics(masked):
        frozen = masked(signals(40), LENGTHS)
    for name, value in masked.named_buffers():
        assert torch.equal(value, before[name]), name
    torch.testing.assert_close(masked(signals(40), LENGTHS), frozen)  # that of the batch, not these
    assert masked.state_dict()["bn1.num_batches_tracked"] == 1


def test_one_real_place_alone_is_no_division_by_zero():
    masked, _ = networks()
    found = learned(masked, signals(40)[:1], LENGTHS[:1])  # ends in one place: a variance of none
    assert all(value.isfinite().all() for value in found.values())


def test_no_frames_count_as_one():
    masked, _ = networks()
    x = signals(40)
    none, one = (masked(x, torch.full((len(x),), n)) for n in (0, 1))
    assert torch.equal(none, one)


def test_half_precision_is_near():
    masked, _ = networks()
    x = signals(40, float("nan")).float()
    masked.float()
    for mode in (True, False):
        masked.train(mode)
        with torch.no_grad(), frozen_statistics(masked):
            wanted = masked(x, LENGTHS)
            with torch.autocast("cpu", torch.bfloat16):
                given = masked(x, LENGTHS)
        assert given.dtype == torch.bfloat16
        assert (given.float() - wanted).abs().max() < 0.1 * wanted.abs().max()


def test_lengths_must_be_given_where_they_are_needed_and_only_there():
    masked, plain = networks()
    with pytest.raises(
        ApportionError, match=r"^the network is masked, but .* with no lengths\.\n  Call"
    ):
        masked(signals(40))
    with pytest.raises(ApportionError, match=r"^the network is not masked, but .* with lengths"):
        plain(signals(40), LENGTHS)


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
