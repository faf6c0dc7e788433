"""Soft labels: targets that meet the counts, sharpened from the net's own confidences."""

import numpy as np
import pytest
import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.engine.batches import Batch
from apportion.errors import ConfigError
from apportion.methods.soft_labels import SoftLabels
from apportion.testing import METHOD_CHECKS

CPU = torch.device("cpu")


def some_bags():
    rng = np.random.default_rng(0)
    return Bags.from_rows(
        rng.normal(size=(12, 2)), np.arange(12) // 4, truth=rng.integers(3, size=12)
    )


@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda check: check.__name__)
def test_it_conforms(check):
    check(SoftLabels())


def test_targets_meet_the_counts_and_are_surer_than_the_confidences():
    bags = some_bags()
    state = SoftLabels(power=3).start(bags, epochs=8, device=CPU)
    confidence = torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(3), 12))
    state.epoch_end(0, confidence)
    sums = np.add.reduceat(state.targets.numpy(), bags.offsets[:-1])
    np.testing.assert_allclose(sums, bags.counts, atol=1e-4)
    # q_jc ∝ p_jc³ e^{u_c}: within a bag, ratios of ratios are those of the cubes.
    q, p = state.targets.double().numpy()[:4], confidence.numpy()[:4] ** 3
    occurs = bags.counts[0] > 0
    ratio = (q / p)[:, occurs]
    np.testing.assert_allclose(
        ratio / ratio[:, :1], np.broadcast_to(ratio[0] / ratio[0, 0], ratio.shape), rtol=1e-3
    )


def test_they_are_computed_once_per_round():
    state = SoftLabels(rounds=4).start(some_bags(), epochs=8, device=CPU)
    asked = []
    for epoch in range(8):
        asked.append(state.needs_confidence)
        confidence = torch.full((12, 3), 1 / 3) if state.needs_confidence else None
        state.epoch_end(epoch, confidence)
    assert asked == [True, False, True, False, True, False, True, False]


def test_the_loss_is_the_cross_entropy_of_the_targets():
    state = SoftLabels().start(some_bags(), epochs=4, device=CPU)
    state.targets.copy_(torch.from_numpy(np.random.default_rng(2).dirichlet(np.ones(3), 12)))
    logits, at = torch.randn(5, 3), torch.tensor([3, 1, 4, 1, 5])
    wanted = -(state.targets[at] * logits.log_softmax(dim=1)).sum(dim=1).mean()
    torch.testing.assert_close(
        state.instance_loss(nn.Identity(), Batch((logits,), at, torch.tensor(0.0)), logits), wanted
    )


@pytest.mark.parametrize("settings", [{"power": 0}, {"power": float("inf")}, {"rounds": 0}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ConfigError):
        SoftLabels(**settings)
