"""The proportion loss: values and slopes that hold on paper, and at the ends of the range."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from apportion.bags.bags import Bags
from apportion.errors import ConfigError
from apportion.methods.proportion_loss import ProportionLoss, cross_entropy, l1, squared

CPU = torch.device("cpu")
BAGS = Bags.from_rows(np.zeros((2, 1)), [0, 0], [[0.5, 0.5]])


def random_shares(seed: int, n: int = 6, C: int = 4) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(C), n))


@pytest.mark.parametrize("form", [cross_entropy, l1, squared])
def test_no_mean_confidence_is_better_than_the_proportions(form):
    p = random_shares(0)
    least = form(p, p)
    for seed in range(1, 20):
        assert (form(random_shares(seed), p) > least).all()


@pytest.mark.parametrize("form", [l1, squared])
def test_errors_are_0_at_the_proportions(form):
    p = random_shares(0)
    assert form(p, p).tolist() == [0] * 6


def test_the_cross_entropy_exceeds_its_least_by_the_divergence():
    m, p = random_shares(1), random_shares(2)
    divergence = (p * (p / m).log()).sum(dim=1)
    torch.testing.assert_close(cross_entropy(m, p) - cross_entropy(p, p), divergence)


@pytest.mark.parametrize("form", [cross_entropy, l1, squared])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_class_of_proportion_0_adds_nothing_even_if_its_confidence_underflows(form, dtype):
    m = torch.tensor([[0.25, 0.75, 0.0]], dtype=dtype, requires_grad=True)
    p = torch.tensor([[0.25, 0.75, 0.0]], dtype=dtype)
    loss = form(m, p)
    two = form(m[:, :2], p[:, :2])
    torch.testing.assert_close(loss, two)
    (slope,) = torch.autograd.grad(loss.sum(), m)
    assert slope.isfinite().all()
    if form is cross_entropy:
        assert slope[0, 2] == 0


def test_a_confidence_that_underflows_where_there_should_be_some_is_bad_but_finite():
    m = torch.tensor([[1.0, 0.0]], requires_grad=True)
    loss = cross_entropy(m, torch.tensor([[0.5, 0.5]]))
    assert loss.isfinite().all()
    assert loss.item() > 40
    (slope,) = torch.autograd.grad(loss.sum(), m)
    assert slope.isfinite().all()


@pytest.mark.parametrize("form", ["cross-entropy", "l1", "squared"])
def test_gradients_of_confidences_that_underflow_are_finite_down_to_the_logits(form):
    logits = torch.tensor([[0.0, 400.0, -400.0], [1.0, 300.0, -300.0]], requires_grad=True)
    state = ProportionLoss(form).start(BAGS, epochs=1, device=CPU, seed=0)
    mean = logits.softmax(dim=1).mean(dim=0, keepdim=True)
    assert mean[0, 2] == 0
    for p in ([0.0, 1.0, 0.0], [0.3, 0.7, 0.0], [0.0, 0.5, 0.5]):
        loss = state.bag_loss(mean, torch.tensor([p]), torch.tensor([2.0]))
        assert loss.isfinite()
        (slope,) = torch.autograd.grad(loss, logits, retain_graph=True)
        assert slope.isfinite().all()


def test_slopes_are_those_of_finite_differences():
    p = random_shares(3)
    m = random_shares(4).requires_grad_()
    for form in (cross_entropy, l1, squared):
        assert torch.autograd.gradcheck(lambda v, form=form: form(v, p), (m,))


@pytest.mark.parametrize("form", ["cross-entropy", "l1", "squared"])
def test_the_loss_is_the_mean_over_bags_whatever_their_number(form):
    m, p = random_shares(5), random_shares(6)
    state = ProportionLoss(form).start(BAGS, epochs=1, device=CPU, seed=0)
    n = torch.arange(1.0, 7.0)  # of which this loss is no function
    alone = [state.bag_loss(m[i : i + 1], p[i : i + 1], n[i : i + 1]).item() for i in range(6)]
    assert state.bag_loss(m, p, n).item() == pytest.approx(math.fsum(alone) / 6)


def test_there_is_nothing_to_decide():
    state = ProportionLoss().start(BAGS, epochs=1, device=CPU, seed=0)
    assert state.labels is None
    assert not state.needs_confidence
    assert state.epoch_end(1, None) == {}
    assert state.state_dict() == {}


def test_an_unknown_form_is_answered_with_those_there_are():
    wrong: Any = "l2"
    with pytest.raises(ConfigError, match="one of cross-entropy, l1, squared; got 'l2'"):
        ProportionLoss(wrong)


def test_bags_may_count_by_their_sizes():
    m, p, sizes = random_shares(1), random_shares(2), torch.tensor([1.0, 2, 3, 4, 5, 50])
    state = ProportionLoss(by_size=True).start(BAGS)
    wanted = (sizes * cross_entropy(m, p)).sum() / sizes.sum()
    torch.testing.assert_close(state.bag_loss(m, p, sizes), wanted, check_dtype=False)
    assert state.bag_loss(m, p, sizes) != ProportionLoss().start(BAGS).bag_loss(m, p, sizes)
