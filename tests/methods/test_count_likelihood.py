"""The count likelihood: against the exact distribution of counts, literally, and at the ends."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, load_wine
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.methods.count_likelihood import CountLikelihood, Counts, normal_loss
from apportion.nets.build import build_net
from apportion.nets.normalized import Normalized
from apportion.study import protocols
from apportion.testing import CPU, Training, same, toy_bags, toy_config, toy_net
from apportion.training.fit import fit

BAGS = Bags.from_rows(np.zeros((2, 1)), [0, 0], [[0.5, 0.5]])


def started(ramp: float = 0.0, epochs: int = 10) -> Counts:
    return CountLikelihood(ramp).start(BAGS, epochs=epochs, device=CPU)


def confidences(seed: int, n: int, C: int, alpha: float = 1.0) -> Any:
    return np.random.default_rng(seed).dirichlet(np.full(C, alpha), n)


def loss_of(state: Counts, bags: list[Any], proportions: Any) -> Any:
    """The loss of bags of confidences (n, C), through their mean moments."""
    means = torch.stack([state.moments(p).mean(dim=0) for p in bags])
    sizes = torch.tensor([float(len(p)) for p in bags])
    return state.bag_loss(means, torch.as_tensor(proportions), sizes)


def literal(p: Any, K: Any) -> float:
    """The equations of the module, with loops, in numpy."""
    n, C = p.shape
    mu, S = np.zeros(C - 1), np.eye(C - 1) / 4
    for j in range(n):
        q = p[j, : C - 1]
        mu += q
        S += np.diag(q) - np.outer(q, q)
    r = K[: C - 1] - mu
    square, log_det = r @ np.linalg.inv(S) @ r, np.log(np.linalg.det(S))
    return float(0.5 * square + 0.5 * log_det + (C - 1) / 2 * np.log(2 * np.pi))


def exact(p: Any) -> dict[tuple[int, ...], float]:
    """The probability of all counts of the classes: a Poisson multinomial, one row at a time."""
    n, C = p.shape
    known = {(0,) * C: 1.0}
    for j in range(n):
        grown: dict[tuple[int, ...], float] = {}
        for counts, chance in known.items():
            for c in range(C):
                more = (*counts[:c], counts[c] + 1, *counts[c + 1 :])
                grown[more] = grown.get(more, 0.0) + chance * p[j, c]
        known = grown
    return known


# -------------------------------------------------------------------------------- what is computed


@pytest.mark.parametrize("C", [2, 3, 5, 10])
def test_the_loss_is_the_equation_averaged_over_bags(C):
    bags = [confidences(C + i, n, C) for i, n in enumerate((1, 2, 7, 40))]
    counts = [np.random.default_rng(i).multinomial(len(p), p[0]) for i, p in enumerate(bags)]
    wanted = [literal(p, K) for p, K in zip(bags, counts, strict=True)]
    shares = np.array([K / len(p) for p, K in zip(bags, counts, strict=True)])
    found = loss_of(started(), [torch.from_numpy(p) for p in bags], shares)
    assert found.item() == pytest.approx(np.mean(wanted), rel=1e-12)


def test_proportions_need_not_be_whole_counts():
    p, shares = confidences(0, 5, 3), np.array([[0.21, 0.33, 0.46]])
    found = loss_of(started(), [torch.from_numpy(p)], shares)
    assert found.item() == pytest.approx(literal(p, 5 * shares[0]), rel=1e-12)


@pytest.mark.parametrize(("n", "C"), [(1, 3), (4, 2), (6, 3), (5, 4)])
def test_the_moments_are_those_of_the_exact_distribution_of_the_counts(n, C):
    p = confidences(n, n, C)
    chances = exact(p)
    K, chance = np.array([*chances], float), np.array([*chances.values()])
    mu = chance @ K
    S = (K - mu).T @ np.diag(chance) @ (K - mu)
    means = n * started().moments(torch.from_numpy(p)).mean(dim=0).numpy()
    np.testing.assert_allclose(means[:C], mu, rtol=1e-12)
    np.testing.assert_allclose(means[C:].reshape(C - 1, C - 1), S[:-1, :-1], atol=1e-12)


@pytest.mark.parametrize("C", [2, 3])
def test_it_tends_to_the_exact_likelihood_as_bags_grow(C):
    """The mean distance of the two logarithms, over counts as they occur."""
    gaps = []
    for n in (8, 32, 128):
        p = confidences(0, n, C, alpha=5.0)
        chances = {K: chance for K, chance in exact(p).items() if chance > 1e-12}
        shares = np.array([*chances]) / n
        chance = np.array([*chances.values()])
        x = torch.from_numpy(p)
        ours = np.array([loss_of(started(), [x], share[None]).item() for share in shares])
        gaps.append(float(chance @ np.abs(ours + np.log(chance))))
    assert gaps[0] < 0.25
    assert gaps[1] < gaps[0] / 1.7
    assert gaps[2] < gaps[1] / 1.7


def test_its_slopes_tend_to_those_of_the_exact_likelihood():
    """By differences of the exact one, at the likeliest counts: the angle between the two."""
    angles = []
    for n in (6, 24, 96):
        logits = np.random.default_rng(1).normal(size=(n, 2))
        K = np.array([n // 3, n - n // 3])

        def exactly(z: Any, K: Any = K) -> float:
            p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
            return -math.log(exact(p)[tuple(K.tolist())])

        steps = np.zeros((n, n, 2))
        steps[np.arange(n), np.arange(n), 0] = 1e-5
        wanted = np.array([exactly(logits + s) - exactly(logits - s) for s in steps]) / 2e-5
        z = torch.from_numpy(logits).requires_grad_()
        (slope,) = torch.autograd.grad(loss_of(started(), [z.softmax(dim=1)], (K / n)[None]), z)
        ours = slope[:, 0].numpy()
        angles.append(1 - ours @ wanted / np.linalg.norm(ours) / np.linalg.norm(wanted))
    assert angles[0] < 0.02
    assert angles[2] < angles[0] / 4
    assert angles[2] < 1e-3


def test_the_density_is_that_of_another_library():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 4, 4))
    S, r = a @ a.transpose(0, 2, 1) + np.eye(4) / 4, rng.normal(size=(3, 4))
    normal = torch.distributions.MultivariateNormal(torch.zeros(4).double(), torch.from_numpy(S))
    wanted = -normal.log_prob(torch.from_numpy(r))
    torch.testing.assert_close(normal_loss(torch.from_numpy(r), torch.from_numpy(S)), wanted)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_mixed_precision_changes_nothing(share):
    """Neither forwards nor backwards, which steps take inside of autocast too."""
    z, shares = torch.from_numpy(confidences(0, 9, 5)).float(), confidences(1, 2, 5)
    found = []
    for enabled in (False, True):
        state, x = started(), z.clone().requires_grad_()
        state.share.fill_(share)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            p = x.softmax(dim=1)
            loss = loss_of(state, [p[:3], p[3:]], torch.from_numpy(shares).float())
            torch.autograd.backward(loss)
        assert x.grad is not None
        found.append((loss.item(), x.grad.tolist()))
    assert found[0] == found[1]


# ------------------------------------------------------------------------------ slopes, and pieces


@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_slopes_are_those_of_finite_differences(C, share):
    state = started()
    state.share.fill_(share)
    z = torch.from_numpy(np.random.default_rng(0).normal(size=(7, C))).requires_grad_()
    shares = confidences(1, 2, C)

    def loss(z: Any) -> Any:
        p = z.softmax(dim=1)
        return loss_of(state, [p[:2], p[2:]], shares)

    assert torch.autograd.gradcheck(loss, (z,))


@given(st.integers(2, 6), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_slopes_in_pieces_are_those_of_one_pass(C, sizes, most):
    """In float64: the slope of the means held fixed, and the moments of one piece at a time."""
    state = started()
    rng = np.random.default_rng(0)
    z = torch.from_numpy(rng.normal(size=(sum(sizes), C))).requires_grad_()
    shares = torch.from_numpy(rng.dirichlet(np.ones(C), len(sizes)))
    n = torch.tensor([float(size) for size in sizes])
    bag = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))

    def sums(rows: Any, bag: Any) -> Any:
        of_rows = state.moments(rows.softmax(dim=1)) / n[bag, None].double()
        return of_rows.new_zeros(len(n), of_rows.shape[1]).index_add(0, bag, of_rows)

    (wanted,) = torch.autograd.grad(state.bag_loss(sums(z, bag), shares, n), z)
    means = sums(z.detach(), bag).requires_grad_()
    (slope,) = torch.autograd.grad(state.bag_loss(means, shares, n), means)
    pieces = [slice(i, i + most) for i in range(0, len(z), most)]
    found = torch.zeros_like(z)
    for piece in pieces:
        (part,) = torch.autograd.grad((slope * sums(z[piece], bag[piece])).sum(), z)
        found += part
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------------------ ends of the range

EXTREME = {
    "certain and right": ([[60.0, 0, 0], [0, 60, 0], [0, 0, 60]], [1, 1, 1]),
    "certain and wrong": ([[400.0, 0, 0], [400, 0, 0], [400, 0, 0]], [0, 1, 2]),
    "underflow": ([[400.0, 0, -400], [300, 1, -300]], [1, 1, 0]),
    "one instance": ([[0.3, 0.1, -0.2]], [0, 0, 1]),
    "a class that never is": ([[5.0, 4, -80], [3, 5, -90]], [1, 1, 0]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("case", EXTREME)
def test_extremes_have_finite_losses_and_slopes(case, share, dtype):
    logits, counts = EXTREME[case]
    z = torch.tensor(logits, dtype=dtype, requires_grad=True)
    state = started()
    state.share.fill_(share)
    shares = torch.tensor([counts], dtype=dtype) / len(z)
    loss = loss_of(state, [z.softmax(dim=1)], shares)
    (slope,) = torch.autograd.grad(loss, z)
    assert loss.dtype == dtype
    assert loss.isfinite()
    assert slope.isfinite().all()


def test_a_bag_of_certain_instances_has_a_variance_of_a_quarter():
    p = torch.eye(3).double()[[0, 0, 1, 2]]
    right, off = (
        loss_of(started(), [p], [K]).item() for K in ([0.5, 0.25, 0.25], [0.25, 0.5, 0.25])
    )
    assert right == pytest.approx(math.log(2 * math.pi / 4))
    assert off - right == pytest.approx(4.0)  # two residuals of 1: ½ · (1 + 1) / ¼


def test_one_class_alone_is_no_error():
    assert loss_of(started(), [torch.ones(4, 1)], torch.ones(1, 1)).item() == 0


@pytest.mark.parametrize(("n", "most"), [(4096, 0.01), (65536, 0.05)])
def test_single_precision_is_enough_for_large_bags(n, most):
    rng = np.random.default_rng(0)
    z = torch.from_numpy(6 * rng.normal(size=(n, 10)))
    truth = (z.softmax(dim=1).cumsum(dim=1).numpy() < rng.random((n, 1))).sum(axis=1)
    shares = torch.from_numpy(np.bincount(truth, minlength=10)[None] / n)
    found = []
    for dtype in (torch.float64, torch.float32):
        x = z.to(dtype).requires_grad_()
        rows = started().moments(x.softmax(dim=1)) * torch.tensor(1 / n, dtype=dtype)
        means = rows.new_zeros(1, rows.shape[1]).index_add(
            0, torch.zeros(n, dtype=torch.long), rows
        )
        loss = started().bag_loss(means, shares.to(dtype), torch.tensor([float(n)]))
        (slope,) = torch.autograd.grad(loss, x)
        found.append((loss.item(), slope.double()))
    (wanted, exactly), (ours, slope) = found
    assert ours == pytest.approx(wanted, abs=0.02)
    assert float((slope - exactly).norm() / exactly.norm()) < most


# ------------------------------------------------------------------------------------- passing over


def test_it_begins_with_the_proportion_loss_above_its_least_times_the_sizes():
    bags = [torch.from_numpy(confidences(i, n, 3)) for i, n in enumerate((3, 8))]
    shares = confidences(7, 2, 3)
    wanted = [
        len(p) * (share * np.log(share / p.mean(dim=0).numpy())).sum()
        for p, share in zip(bags, shares, strict=True)
    ]
    assert loss_of(started(0.5), bags, shares).item() == pytest.approx(np.mean(wanted))


@pytest.mark.parametrize(
    ("ramp", "wanted"), [(0.5, [0, 0.25, 0.5, 0.75, 1, 1]), (0, [1] * 6), (1, np.arange(6) / 8)]
)
def test_it_passes_over_along_a_share_of_the_epochs(ramp, wanted):
    state = started(ramp, epochs=8)
    own, before = state.share, []
    for epoch in range(1, 7):
        before.append(state.share.item())
        assert state.epoch_end(epoch, None) == {}
    assert before == pytest.approx(wanted)
    assert state.share is own  # which captured steps read


def test_its_state_is_how_far_it_has_passed_over_and_goes_on_at_the_same_pace():
    state, other = started(0.5), started(0.5, epochs=100)  # to which it was extended
    state.epoch_end(2, None)
    other.load_state_dict({name: value.clone() for name, value in state.state_dict().items()})
    assert other.share.item() == state.share.item() == 0.4
    other.epoch_end(3, None)
    assert other.share.item() == 0.6
    assert state.resolved == {"ramp_epochs": 5}


@pytest.mark.parametrize(
    ("share", "ramp_epochs"), [(1.5, 5.0), (-0.1, 5.0), (math.nan, 5.0), (0, -1)]
)
def test_a_state_that_cannot_be_is_refused(share, ramp_epochs):
    state = {"share": torch.tensor(share), "ramp_epochs": torch.tensor(ramp_epochs)}
    with pytest.raises(ValueError, match=f"a share of {share:g}"):
        started().load_state_dict(state)


@pytest.mark.parametrize("last", [1, 2, 4])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(last, tmp_path):
    bags = toy_bags()
    config = toy_config(epochs=6)

    def stop(record: dict[str, Any], net: Any) -> None:
        if record["epoch"] == last:
            raise KeyboardInterrupt

    whole, resumed = toy_net(bags), toy_net(bags)
    fit(whole, bags, method="count-likelihood", config=config)
    with pytest.raises(KeyboardInterrupt):
        fit(
            resumed,
            bags,
            method="count-likelihood",
            config=config,
            run=tmp_path / "a",
            on_epoch=stop,
        )
    resumed = toy_net(bags)
    fit(resumed, bags, method="count-likelihood", config=config, run=tmp_path / "a")
    for name, weight in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], weight)


def test_at_first_certainty_alone_earns_nothing():
    """Labels of any kind that meet the counts are as good as knowing nothing; later they win."""
    unsure, certain = torch.full((8, 2), 0.5), torch.eye(2).repeat(4, 1)
    early, late = started(0.5), started(0)
    one, other = (loss_of(early, [p], torch.tensor([[0.5, 0.5]])).item() for p in (unsure, certain))
    assert one == pytest.approx(other)
    one, other = (loss_of(late, [p], torch.tensor([[0.5, 0.5]])).item() for p in (unsure, certain))
    assert other < one - 1


def test_a_training_depends_on_the_ramp():
    bags = toy_bags()
    found = [Training(toy_net(bags), bags, CountLikelihood(ramp)) for ramp in (0.5, 0.5, 0)]
    assert same(found[0], found[1])
    assert not same(found[0], found[2])


# ----------------------------------------------------------------------------- what it is good for


def accuracy_of(
    method: Any, dataset: Any, regime: str, size: int, seed: int, *, deep: bool = False
) -> float:
    """Of a net on the held-out rows: a small one after 200 full batches, or a deep one."""
    data = dataset()
    order = np.random.default_rng(7000 + seed).permutation(len(data.target))
    train, test = np.split(order, [int(0.7 * len(order))])
    x, truth = data.data.astype(np.float32), data.target
    rows = protocols.shuffle(len(train), size, seed=seed)
    if regime == "rand":
        rows = dict(enumerate(protocols.rand(truth[train], size, seed=seed).members))
    bags = Bags.from_members(x[train], rows, truth=truth[train])
    n = bags.n_instances
    options: dict[str, Any] = {"epochs": 80, "batch_size": 256, "learning_rate": 3e-3}
    if not deep:
        options = {"epochs": 200, "batch_size": n, "instances_per_pass": n, "learning_rate": 5e-3}
        options |= {"weight_decay": 1.0, "schedule": "cosine", "warmup": 0.05}
    config = TrainConfig(**options, seed=seed, device="cpu", threads=1)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        net = build_net("mlp", bags, hidden=[64])
        if deep:
            widths = itertools.pairwise([x.shape[1], 128, 128, 128])
            layers = [[nn.Linear(*ends), nn.BatchNorm1d(128), nn.ReLU()] for ends in widths]
            last = nn.Linear(128, bags.n_classes)
            net = Normalized(nn.Sequential(*itertools.chain(*layers), last), net.mean, net.std)
    fit(net, bags, method=method, config=config, progress=False)
    with torch.no_grad():
        found = net(torch.from_numpy(x[test])).argmax(dim=1).numpy()
    return float((found == truth[test]).mean())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "regime", "size", "gain"),
    [
        (load_digits, "rand", 128, 0.02),
        (load_digits, "shuffle", 32, 0.005),
        (load_digits, "shuffle", 128, 0.05),
        (load_wine, "shuffle", 32, 0.05),
    ],
)
def test_it_is_ahead_of_the_proportion_loss(dataset, regime, size, gain):
    ours, theirs = (
        np.mean([accuracy_of(method, dataset, regime, size, seed) for seed in range(5)])
        for method in ("count-likelihood", "proportion-loss")
    )
    assert ours > theirs + gain


@pytest.mark.slow
def test_a_deep_net_on_few_large_bags_does_not_collapse():
    """Five bags of 256: the likelihood alone may end far below chance, the passage does not."""
    worst, alone = (
        min(accuracy_of(method, load_digits, "shuffle", 256, seed, deep=True) for seed in range(5))
        for method in (CountLikelihood(), CountLikelihood(ramp=0))
    )
    assert alone < 0.05
    assert worst > 0.1
