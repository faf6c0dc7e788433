"""What signals are like as a whole: their summaries, and a linear layer on them."""

import numpy as np
import pytest
import torch

from apportion.bags.bags import Bags
from apportion.data.signals import pad
from apportion.model.model import Model
from apportion.nets.build import build_net
from apportion.nets.summary import PIECES, Summary, summaries


def by_hand(signal):
    """Summarise one signal (frames, channels), in steps a thousand times as fine as a frame."""
    n = len(signal)
    fine = np.repeat(signal.T, PIECES, axis=1)  # so that every piece ends where a step does
    means = fine.reshape(signal.shape[1], PIECES, n).mean(axis=2)
    steps = np.abs(np.diff(signal, axis=0)).mean(axis=0) if n > 1 else np.zeros(signal.shape[1])
    return np.concatenate([means.ravel(), signal.std(axis=0), steps, [np.log(n)]])


def ragged(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, 3)) for n in (1, 2, 7, 8, 9, 30, 41)]


def test_summaries_are_those_of_the_real_frames():
    signals = ragged()
    frames, lengths = pad(signals, 50)
    found = summaries(torch.from_numpy(frames), torch.from_numpy(lengths))
    np.testing.assert_allclose(found, [by_hand(own) for own in signals], atol=1e-5)


def test_what_follows_a_signal_does_not_matter():
    frames, lengths = map(torch.from_numpy, pad(ragged()))
    behind = torch.arange(frames.shape[2]) >= lengths[:, None]
    for other in (1e30, float("inf"), float("nan")):
        changed = frames.where(~behind[:, None], other)
        assert torch.equal(summaries(changed, lengths), summaries(frames, lengths))


@pytest.mark.parametrize("frames", [torch.zeros(1, 2, 6), torch.randn(1, 2, 6)])
def test_gradients_are_finite_where_a_signal_does_not_vary(frames):
    x = frames.requires_grad_()
    found = summaries(x, torch.tensor([1]))
    found.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert found[0, 16:18].tolist() == [0, 0]  # the spread


def test_signals_of_one_length_need_no_lengths():
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(4, 2, 13)))
    whole = summaries(x, torch.full((4,), 13))
    torch.testing.assert_close(summaries(x), whole[:, :-1])
    assert summaries(x.half()).dtype == torch.float32


@pytest.mark.parametrize("masked", [False, True])
def test_a_model_of_it_is_kept_and_read_like_any_other(tmp_path, masked):
    frames, lengths = pad(ragged() * 4)
    x = (frames, lengths) if masked else frames
    bags = Bags.from_rows(x, np.arange(len(frames)) // 7, np.full((4, 2), 0.5))
    net = build_net("summary", bags)
    assert isinstance(net.network, Summary)
    model = Model.trained_on(bags, net, epoch=1, device="cpu")
    model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
