"""Confidences over batches: softmax of the logits, row by row, whatever the batches are."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from apportion.bags.bags import Bags
from apportion.engine import inference
from apportion.engine.batches import place
from apportion.engine.inference import cut, fill_confidence, slices
from apportion.model.model import Model, describe_parts
from apportion.training.features import features_of

CPU = torch.device("cpu")


@given(st.integers(0, 200), st.integers(1, 50))
def test_spans_cover_every_row_once_and_none_is_too_long(n, most):
    spans = cut(n, most)
    assert [row for first, end in spans for row in range(first, end)] == list(range(n))
    assert all(0 < end - first <= most for first, end in spans)
    assert len(spans) == -(-n // most)


def test_slices_are_the_rows_of_every_part_as_networks_take_them():
    frames = np.arange(14, dtype=np.uint8).reshape(7, 2)
    lengths = torch.arange(7)
    found = list(slices((frames, lengths, frames.astype(np.float64)), [(0, 3), (3, 7)], CPU))
    for part, whole in ((0, frames), (1, lengths), (2, frames)):
        assert torch.cat([batch[part] for batch in found]).tolist() == whole.tolist()
    assert [len(batch[0]) for batch in found] == [3, 4]
    assert [part.dtype for part in found[0]] == [torch.uint8, torch.int64, torch.float32]


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))


def confidence_of(net, x, most, precision=torch.float32):
    found, spans = torch.full((len(x), 3), -1.0), cut(len(x), most)
    fill_confidence(found, net, slices((x,), spans, CPU), spans, precision)
    return found


@pytest.mark.parametrize("most", [1, 4, 10, 99])
@pytest.mark.parametrize("training", [True, False])
def test_confidences_are_those_of_evaluation_in_any_batches(most, training):
    """Computed by hand in float64; the net is left in the mode that it was in."""
    net = network().train(training)
    x = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    weight, bias = (p.detach().double().numpy() for p in net.parameters())
    odds = np.exp(x.astype(np.float64) @ weight.T + bias)
    found = confidence_of(net, x, most)
    np.testing.assert_allclose(found, odds / odds.sum(axis=1, keepdims=True), atol=1e-6)
    assert not found.requires_grad
    assert [module.training for module in net.modules()] == [training] * 3


def test_a_lower_precision_is_for_the_net_and_not_for_the_softmax():
    seen = []

    class Watched(nn.Linear):
        def forward(self, x):
            logits = super().forward(x)
            seen.append(logits.dtype)
            return logits

    net, x = Watched(4, 3), np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    exact, mixed = (confidence_of(net, x, 5, p) for p in (torch.float32, torch.bfloat16))
    assert seen == [torch.float32] * 2 + [torch.bfloat16] * 2
    assert not exact.equal(mixed)
    torch.testing.assert_close(mixed, exact, atol=0.02, rtol=0)
    torch.testing.assert_close(mixed.sum(dim=1), torch.ones(10), atol=1e-6, rtol=0)


def test_batches_that_do_not_match_their_spans_are_an_error():
    x = np.zeros((4, 4), np.float32)
    with pytest.raises(ValueError, match="zip"):
        fill_confidence(torch.empty(4, 3), network(), slices((x,), [(0, 2)], CPU), cut(4, 2))


def test_modules_are_left_as_they_were_each_for_itself_even_by_an_error():
    net = network()
    net[1].eval()
    modes = [module.training for module in net.modules()]
    confidence_of(net, torch.zeros(2, 4), 2)
    assert [module.training for module in net.modules()] == modes
    with pytest.raises(RuntimeError):
        confidence_of(net, torch.zeros(2, 5), 2)
    assert [module.training for module in net.modules()] == modes == [True, True, False]


def test_a_net_in_evaluation_mode_is_not_touched():
    """Another thread may be computing with it."""

    class Untouchable(nn.Linear):
        def __setattr__(self, name, value):
            assert not hasattr(self, "sealed"), name
            super().__setattr__(name, value)

    net = Untouchable(4, 3).eval()
    net.sealed = True
    confidence_of(net, torch.zeros(2, 4), 2)


@pytest.mark.parametrize("kind", ["frames", "images", "table"])
def test_large_rows_go_through_a_net_in_small_passes(kind, monkeypatch):
    """A ResNet takes hundreds of bytes for each pixel: 16,384 photographs would take 100 GB."""
    monkeypatch.setitem(inference.AT_ONCE, "cpu", 1000)
    seen = []

    class Counts(nn.Module):
        def forward(self, x):
            seen.append(len(x))
            return x.flatten(1)[:, :2].float()

    shape = {"frames": (3, 100), "images": (3, 10, 10), "table": (300,)}[kind]
    x = np.random.default_rng(0).normal(size=(10, *shape)).astype(np.float32)
    bags = Bags.from_rows(x, np.arange(10) % 2, truth=np.arange(10) % 3 % 2)
    found = Model(Counts(), (0, 1), describe_parts(bags), device="cpu").predict_proba(x)
    (instances, *_) = place((bags, None, None), CPU)
    again = instances.confidence(Counts(), torch.float32, 4096)
    np.testing.assert_allclose(again, found[bags.index], atol=1e-6)
    features = features_of(Counts(), None, instances, 4096)
    assert features.shape == (10, 2)
    assert seen == ([10] * 3 if kind == "table" else [3, 3, 3, 1] * 3)
