"""A linear layer on summaries of signals, learned from proportions."""

import numpy as np
import pytest
import torch

from apportion.bags.bags import Bags
from apportion.errors import DataError
from apportion.labels.start import LOOSE, fit_features
from apportion.learners.summaries import fit_summaries
from apportion.model.model import Model, describe_parts
from apportion.nets.build import from_recipe
from apportion.nets.summary import summaries
from tests.training.test_features import signal_bags

BAGS = signal_bags()


def logits_of(net, parts):
    with torch.no_grad():
        return net.eval()(*map(torch.from_numpy, parts)).numpy()


def test_logits_are_those_of_the_linear_model_of_normalized_signals():
    net = fit_summaries(BAGS.without_truth(), device="cpu")
    found = summaries(*net.prepare(*map(torch.from_numpy, BAGS.parts))).numpy()
    linear = fit_features(BAGS.with_rows(found), seed=0, penalty=LOOSE).linear  # bags choose it
    np.testing.assert_allclose(logits_of(net, BAGS.parts), linear.logits(found), atol=1e-3)


def test_labels_that_it_was_not_told_are_found_in_other_signals():
    fresh = signal_bags(seed=1)
    net = fit_summaries(BAGS.without_truth(), device="cpu")
    guess = logits_of(net, fresh.parts).argmax(axis=1)
    assert (guess[fresh.index] == fresh.truth).mean() > 0.9


def test_it_finds_what_varies_no_more_than_all_else():
    """Signals of the same mean and spread, whose steps alone tell the classes."""
    rng = np.random.default_rng(0)

    def draw(truth):
        smooth = np.array([0.0, 0.5, 0.9])[truth][:, None]
        x = rng.normal(size=(len(truth), 2, 60))
        for frame in range(1, 60):
            x[..., frame] = smooth * x[..., frame - 1] + np.sqrt(1 - smooth**2) * x[..., frame]
        return x.astype(np.float32)

    truth = np.concatenate([rng.choice(3, 20, p=rng.dirichlet(np.ones(3))) for _ in range(30)])
    bags = Bags.from_rows(draw(truth), np.arange(600) // 20, truth=truth, classes=range(3))
    net, fresh = fit_summaries(bags.without_truth(), device="cpu"), np.arange(600) % 3
    assert (logits_of(net, [draw(fresh)]).argmax(axis=1) == fresh).mean() > 0.97


def test_it_is_equal_under_a_seed_and_ignores_what_follows_a_signal():
    frames, lengths = BAGS.parts
    longer = np.concatenate([frames, np.full_like(frames, 9)], axis=2)
    kept = fit_summaries(BAGS, seed=3, device="cpu")
    again = fit_summaries(BAGS, seed=3, device="cpu")
    padded = fit_summaries(BAGS.with_rows((longer, lengths)), seed=3, device="cpu")
    assert np.array_equal(logits_of(kept, BAGS.parts), logits_of(again, BAGS.parts))
    np.testing.assert_allclose(
        logits_of(padded, (longer, lengths)), logits_of(kept, BAGS.parts), atol=1e-3
    )


def test_it_is_kept_as_any_model(tmp_path):
    net = fit_summaries(BAGS, device="cpu")
    again = from_recipe(net.recipe or {})
    again.load_state_dict(net.state_dict())
    assert np.array_equal(logits_of(again, BAGS.parts), logits_of(net, BAGS.parts))
    Model(net, BAGS.classes, describe_parts(BAGS)).save(tmp_path / "model")
    confidence = Model.load(tmp_path / "model", device="cpu").predict_proba(BAGS.x)
    expected = torch.from_numpy(logits_of(net, BAGS.parts)).softmax(dim=1)
    np.testing.assert_allclose(confidence, expected, atol=1e-6)


def test_signals_that_float32_cannot_tell_apart_are_told():
    x = 1e9 + np.random.default_rng(0).normal(size=(240, 2, 12))
    with pytest.raises(DataError, match=r"(?s)all 240 signals .*seven digits: subtract"):
        fit_summaries(BAGS.with_rows(x), device="cpu")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_signals_of_equal_length_have_no_lengths(dtype):
    frames = BAGS.parts[0][:, :, :10].astype(dtype)  # all of which are real
    bags: Bags = BAGS.with_rows(frames)
    net = fit_summaries(bags, device="cpu")
    assert logits_of(net, bags.parts).shape == (len(frames), 3)
