"""The paper's equations, written out as they are printed, against the code.

Sums run over bags i, instances j, classes c and epochs τ, one at a time; labels are the one-hot
matrices Y (C × |B|) of the paper, and every minimum over 𝒴 is a search through all of it. Where the
paper can be read in several ways, the reading is that of PAPER.md, whose rows are named by number.
"""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from apportion.bags.bags import Bags
from apportion.bags.counts import counts_from_proportions
from apportion.config import TrainConfig
from apportion.engine.batches import Batch, place
from apportion.engine.generators import reseed
from apportion.labels.assign import assign
from apportion.labels.leader import Leader
from apportion.labels.unlikelihood import plain_unlikelihood, regret, unlikelihood
from apportion.methods.pi_model import PiModel, ramp
from apportion.methods.proportion_loss import ProportionLoss
from apportion.methods.pseudo_labels import FPL
from apportion.methods.registry import METHODS
from apportion.methods.vat import LLPVAT
from apportion.metrics import bag_means, proportion_error
from apportion.nets.normalized import Normalized
from apportion.randomness import Purpose, generator
from apportion.testing import CPU, Training

Array = NDArray[Any]
STILL = 1e-30  # a learning rate that leaves every weight as it is

# ------------------------------------------------------------------------------ the paper's objects


def one_hot(labels: Any, C: int) -> Array:
    """Y of a bag: C × |B|, with a 1 in each column."""
    Y = np.zeros((C, len(labels)))
    for j, c in enumerate(labels):
        Y[c, j] = 1
    return Y


def decision_space(k: Array) -> list[Array]:
    """𝒴 of a bag: every Y with k_c labels of class c."""
    ordered = [c for c in range(len(k)) for _ in range(k[c])]
    return [one_hot(labels, len(k)) for labels in sorted(set(itertools.permutations(ordered)))]


def labels_of(Y: Array) -> list[int]:
    return [int(column.argmax()) for column in Y.T]


def total_unlikelihood(Y: Array, L: Array) -> float:
    """Σ_j Y_{:,j}ᵀ L_{:,j}."""
    return sum(float(Y[:, j] @ L[:, j]) for j in range(Y.shape[1]))


def eq_2(conf: Array, Y: Array) -> Array:
    C, size = Y.shape
    L = np.empty((C, size))
    for c in range(C):
        for j in range(size):
            if Y[c, j] == 1:
                L[c, j] = 1 - conf[c, j]
            else:
                L[c, j] = max(conf[b, j] for b in range(C)) - conf[c, j]
    return L


def eq_3(losses: list[Array], space: list[Array]) -> Array:
    """The best labels in hindsight."""
    return min(space, key=lambda Y: sum(total_unlikelihood(Y, L) for L in losses))


def eq_4(played: list[Array], losses: list[Array], space: list[Array]) -> float:
    """The regret of a bag."""
    best = eq_3(losses, space)
    cost = sum(total_unlikelihood(Y, L) for Y, L in zip(played, losses, strict=True))
    return cost - sum(total_unlikelihood(best, L) for L in losses)


def eq_5(losses: list[Array], eta: float, Z: Array, space: list[Array]) -> Array:
    """The next labels: the sum over τ of L[τ], plus one perturbation (row 1)."""
    return min(
        space,
        key=lambda Y: sum(
            sum(float(Y[:, j] @ L[:, j]) for L in losses) + eta * float(Y[:, j] @ Z[:, j])
            for j in range(Y.shape[1])
        ),
    )


def eq_7(conf: Array, p: Array) -> float:
    C, size = conf.shape
    return -sum(
        float(p[c]) * math.log(sum(conf[c, j] for j in range(size)) / size) for c in range(C)
    )


def eq_8(conf: Array, Y: Array) -> Array:
    C, size = Y.shape
    return np.array([[1 - conf[c, j] for j in range(size)] for c in range(C)])


def in_bags(bags: Bags, of_instances: Any) -> list[Array]:
    """Rows of instances as one matrix a bag, instances in columns."""
    rows = np.asarray(of_instances)
    return [rows[a:b].T for a, b in itertools.pairwise(bags.offsets.tolist())]


# ----------------------------------------------------------------------------------- small problems


def tiny_bags(seed: int = 0) -> Bags:
    """Bags of 4, 1, 5 and 3 instances of three classes; one row stands in two bags."""
    rng = np.random.default_rng(seed)
    members = {"a": [3, 0, 7, 1], "b": [2], "c": [9, 4, 3, 5, 11], "d": [6, 8, 10]}
    counts = {"a": [2, 1, 1], "b": [0, 0, 1], "c": [1, 3, 1], "d": [0, 1, 2]}
    x = rng.normal(size=(12, 2)).astype(np.float32)
    return Bags.from_members(x, members, counts, counts=True)


def tiny_network(seed: int = 0, C: int = 3) -> Normalized:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, C))
    return Normalized(network, [0.3, -0.2], [1.5, 0.7])


def conf(model: nn.Module, bags: Bags) -> Array:
    """The confidence of every instance, (N, C), in float64."""
    with torch.no_grad():
        logits = model(torch.from_numpy(bags.x[bags.index])).double().numpy()
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    confidence: Array = exp / exp.sum(axis=1, keepdims=True)
    return confidence


def random_confidence(rng: np.random.Generator, n: int, C: int) -> Array:
    confidence: Array = rng.dirichlet(np.full(C, 0.5), n).astype(np.float32)
    return confidence


# -------------------------------------------------------------------------------- §3.1: p, k, Eq. 1


@given(st.lists(st.integers(0, 400), min_size=1, max_size=12).filter(any))
@settings(max_examples=200, deadline=None)
def test_k_is_the_size_times_the_proportion(k):
    size = sum(k)
    assert counts_from_proportions([c / size for c in k], size).tolist() == k


@pytest.mark.parametrize("name", ["fpl", "greedy", "naive"])
def test_eq_1_is_what_is_logged_per_instance(name):
    bags, model = tiny_bags(), tiny_network()
    first = METHODS[name].start(bags, epochs=3, device=CPU, seed=0).labels
    assert first is not None
    # 13 instances in steps of 5, 5 and 3: a mean of the steps' means would be another number.
    found = Training(model, bags, METHODS[name], learning_rate=STILL, batch_size=5)
    f = in_bags(bags, conf(model, bags))
    for t, Y in enumerate([first, *found.labels[:-1]]):
        objective = 0.0
        for i, Y_i in enumerate(in_bags(bags, Y)):
            for j in range(len(Y_i)):
                objective += -math.log(f[i][Y_i[j], j])
        assert found.history["loss"][t] == pytest.approx(objective / bags.n_instances, rel=1e-5)


# -------------------------------------------------------------------------------- Eqs. 2 and 8


@pytest.mark.parametrize(("code", "paper"), [(unlikelihood, eq_2), (plain_unlikelihood, eq_8)])
def test_eqs_2_and_8_unlikelihood(code, paper):
    rng = np.random.default_rng(0)
    for C in (1, 2, 3, 7):
        confidence, labels = random_confidence(rng, 40, C), rng.integers(C, size=40)
        L = code(confidence, labels)
        np.testing.assert_allclose(L, paper(confidence.T, one_hot(labels, C)).T, atol=1e-6)
        assert L.min() >= 0
        assert L.max() <= 1


def test_the_settings_take_the_equation_that_they_name():
    bags = tiny_bags()
    confidence = random_confidence(np.random.default_rng(1), bags.n_instances, 3)
    readings: list[tuple[Any, Any]] = [("relative", eq_2), ("plain", eq_8)]
    for setting, paper in readings:
        leader = Leader(bags, eta=1, unlikelihood=setting)
        Y = one_hot(leader.labels, 3)
        leader.decide(confidence)
        np.testing.assert_allclose(leader.total, paper(confidence.T, Y).T, atol=1e-6)


# -------------------------------------------------------------------------------- Eqs. 3 and 4


def test_eqs_3_and_4_regret():
    rng = np.random.default_rng(2)
    bags = tiny_bags()
    spaces = [decision_space(k) for k in bags.counts]
    for T in (1, 2, 5):
        played = [[spaces[i][rng.integers(len(spaces[i]))] for i in range(4)] for _ in range(T)]
        losses = [in_bags(bags, rng.random((bags.n_instances, 3))) for _ in range(T)]
        R = sum(eq_4([Y[i] for Y in played], [L[i] for L in losses], spaces[i]) for i in range(4))
        cost = sum(
            total_unlikelihood(played[t][i], losses[t][i]) for t in range(T) for i in range(4)
        )
        total = np.sum([np.concatenate([L_i.T for L_i in L]) for L in losses], axis=0)
        found = regret(cost, total, bags.counts, bags.offsets, epochs=T).value
        assert found == pytest.approx(R / (bags.n_instances * T), abs=1e-9)


# -------------------------------------------------------------------------------- Eqs. 5 and 6


def test_eq_6_is_the_least_of_all_labelings():
    rng = np.random.default_rng(3)
    for k in ([2, 2, 2], [5, 1, 0], [0, 0, 3], [1, 1, 1, 1, 1], [3, 3], [1]):
        cost = rng.normal(size=(sum(k), len(k)))
        space = decision_space(np.array(k))
        best = space[int(np.argmin([total_unlikelihood(Y, cost.T) for Y in space]))]
        assert assign(cost, k).labels.tolist() == labels_of(best)


# ------------------------------------------------------------------------------------- Algorithm 1

SETTINGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "fpl": (METHODS["fpl"], {"eta": 5 * 4 / 400, "L": eq_2}),
    "fpl-plain": (METHODS["fpl-plain"], {"eta": 5 * 4 / 400, "L": eq_8}),
    "fpl, much perturbed": (FPL(eta=0.8), {"eta": 0.8, "L": eq_2}),
    "greedy": (METHODS["greedy"], {"eta": 0.0, "L": eq_2}),
    "naive": (METHODS["naive"], {"eta": 0.0, "L": eq_2, "latest": True}),
}


def decisions(bags, Y, *, eta, L, latest=False, seed):
    """Lines 6–10: change Y by the confidences of epoch t, and return the regret so far.

    Y holds the first labels, one matrix per bag. The perturbations are the library's.
    """
    n, C, N = bags.n_bags, bags.n_classes, bags.n_instances
    space = [decision_space(bags.counts[i]) for i in range(n)]
    played: list[list[Array]] = [[] for _ in range(n)]
    losses: list[list[Array]] = [[] for _ in range(n)]

    def lines_6_to_10(t, confidence):
        f = in_bags(bags, confidence)
        normal = generator(seed, Purpose.PERTURBATION, t).standard_normal((N, C), dtype=np.float32)
        Z = in_bags(bags, normal)
        R = 0.0
        for i in range(n):  # line 6
            played[i].append(Y[i])
            losses[i].append(L(f[i], Y[i]))  # line 7
            Y[i] = eq_5(losses[i][-1:] if latest else losses[i], eta, Z[i], space[i])  # 8 and 9
            R += eq_4(played[i], losses[i], space[i])
        return R / (N * len(played[0]))

    return lines_6_to_10


@pytest.mark.parametrize("first", ["random", "decide"])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", SETTINGS)
def test_lines_6_to_10(name, seed, first):
    """A leader alone, told any confidences at all."""
    (method, reading), bags = SETTINGS[name], tiny_bags(seed)
    leader = Leader(
        bags,
        eta=reading["eta"],
        unlikelihood=method.unlikelihood,
        memory=method.memory,
        first=first,
        seed=seed,
    )
    Y = [one_hot(Y_i, 3) for Y_i in in_bags(bags, leader.labels)]
    lines_6_to_10 = decisions(bags, Y, **reading, seed=seed)
    rng = np.random.default_rng(seed)
    for t in range(first == "random", 6):
        confidence = random_confidence(rng, bags.n_instances, 3)
        R = lines_6_to_10(t, confidence)
        decided = leader.decide(confidence)
        assert decided.labels.tolist() == [c for Y_i in Y for c in labels_of(Y_i)]
        assert decided.regret == pytest.approx(R, abs=1e-6)


def algorithm_1(bags, f, Y, *, T, batch, learning_rate, decide=False, seed, **reading):
    """Algorithm 1, an epoch at a time: the labels, weights, loss and regret of each.

    The shuffles are the library's.
    """
    N = bags.n_instances
    optimizer = torch.optim.Adam(f.parameters(), lr=learning_rate)
    lines_6_to_10 = decisions(bags, Y, **reading, seed=seed)
    epochs = []
    if decide:  # row 2: the untrained network decides first
        lines_6_to_10(0, conf(f, bags))
    for t in range(1, T + 1):  # line 4
        sum_of_losses = 0.0
        all_labels = np.concatenate([labels_of(Y_i) for Y_i in Y])
        order = generator(seed, Purpose.SHUFFLE, t).permutation(N)
        for start in range(0, N, batch):  # line 5
            some = order[start : start + batch]
            logits = f(torch.from_numpy(bags.x[bags.index[some]]))
            loss = torch.zeros(())
            for row, position in enumerate(some):
                loss = loss - logits[row].log_softmax(dim=0)[all_labels[position]]
            optimizer.zero_grad()
            (loss / len(some)).backward()
            optimizer.step()
            sum_of_losses += loss.item()
        R = lines_6_to_10(t, conf(f, bags))
        epochs.append(
            {
                "labels": np.concatenate([labels_of(Y_i) for Y_i in Y]),
                "weights": {name: w.detach().clone() for name, w in f.state_dict().items()},
                "loss": sum_of_losses / N,
                "regret": R,
                "changed": float(
                    (np.concatenate([labels_of(Y_i) for Y_i in Y]) != all_labels).mean()
                ),
            }
        )
    return epochs


@pytest.mark.parametrize("first", ["random", "decide"])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", SETTINGS)
def test_algorithm_1(name, seed, first):
    method, reading = SETTINGS[name]
    method = replace(method, first=first)
    bags, model = tiny_bags(seed), tiny_network(seed)
    f = copy.deepcopy(model)
    # 13 instances in steps of 5, 5 and 3.
    found = Training(model, bags, method, epochs=4, batch_size=5, seed=seed, learning_rate=0.1)
    random = method.start(bags, epochs=4, device=CPU, seed=seed).labels
    wanted = algorithm_1(
        bags,
        f,
        [one_hot(Y_i, 3) for Y_i in in_bags(bags, random)],
        T=4,
        **reading,
        seed=seed,
        batch=5,
        learning_rate=0.1,
        decide=first == "decide",
    )
    for t, epoch in enumerate(wanted):
        record = found.history.records[t]
        assert found.labels[t].tolist() == epoch["labels"].tolist()
        for name, weight in epoch["weights"].items():
            torch.testing.assert_close(found.weights[t][name], weight, rtol=0, atol=1e-6)
        assert record["loss"] == pytest.approx(epoch["loss"], rel=1e-5)
        assert record["regret"] == pytest.approx(epoch["regret"], abs=1e-6)
        assert record["changed"] == pytest.approx(epoch["changed"], abs=1e-12)


def test_the_perturbation_decides_between_settings_that_differ_in_nothing_else():
    """That the tests above can tell: labels depend on η, on accumulation and on Eq. 2 or 8."""
    bags = tiny_bags()
    found = {
        name: Training(
            tiny_network(), bags, method, epochs=4, batch_size=5, learning_rate=0.1
        ).labels
        for name, (method, _) in SETTINGS.items()
    }
    for one, other in itertools.combinations(found, 2):
        if {one, other} != {"fpl", "greedy"}:  # η is small after 4 epochs
            assert not all(map(torch.equal, found[one], found[other])), (one, other)


# ------------------------------------------------------------------------------------------- Eq. 7


def forms(p: Array, m: Array) -> dict[str, float]:
    C = len(p)
    return {
        "l1": sum(abs(p[c] - m[c]) for c in range(C)),
        "squared": sum((p[c] - m[c]) ** 2 for c in range(C)),
    }


@pytest.mark.parametrize("form", ["cross-entropy", "l1", "squared"])
def test_eq_7_is_what_is_logged_per_bag(form):
    bags, model = tiny_bags(), tiny_network()
    f = in_bags(bags, conf(model, bags))
    wanted = 0.0
    for i in range(bags.n_bags):
        p = bags.proportions[i]
        if form == "cross-entropy":
            wanted += eq_7(f[i], p)
        else:
            wanted += forms(p, np.array([sum(row) / len(row) for row in f[i]]))[form]
    steps: list[dict[str, Any]] = [
        {"bags_per_step": 3},
        {"batch_size": 5},
        {"instances_per_pass": 2},
    ]
    for options in steps:
        method = ProportionLoss(form)
        found = Training(model, bags, method, epochs=2, learning_rate=STILL, **options)
        assert found.history["loss"] == pytest.approx([wanted / bags.n_bags] * 2, rel=1e-5)


def test_eq_7_takes_the_proportions_as_given_and_not_the_counts():
    bags = replace(tiny_bags(), proportions=np.full((4, 3), [0.1, 0.2, 0.7]))
    model = tiny_network()
    f = in_bags(bags, conf(model, bags))
    wanted = np.mean([eq_7(f[i], bags.proportions[i]) for i in range(4)])
    found = Training(model, bags, ProportionLoss(), epochs=1, learning_rate=STILL)
    assert found.history["loss"] == pytest.approx([wanted], rel=1e-5)


# ------------------------------------------------------------------- row 13: Π-model and LLP-VAT


def softmax(logits: Array) -> Array:
    exp = np.exp(logits)
    return np.array([row / sum(row) for row in exp])


def wide_network(C: int = 3) -> Normalized:
    """On inputs of a scale for which it matters whether noise comes before or after normalising."""
    model = tiny_network(3, C)
    model.mean.fill_(50.0)
    model.std.fill_(20.0)
    return model


def wide_batch(n: int, progress: float = 1.0) -> Batch:
    x = torch.from_numpy(50 + 20 * np.random.default_rng(4).normal(size=(n, 2)).astype(np.float32))
    return Batch((x.float(),), torch.arange(n), torch.tensor(progress))


def sigmoid_ramp_up(step: int, steps: int) -> float:
    t = step / steps
    return math.exp(-5 * (1 - t / 0.4) ** 2) if t < 0.4 else 1.0


def test_the_consistency_weight_ramps_up_over_the_first_two_fifths_of_the_steps():
    for step in range(51):
        assert ramp(torch.tensor(step / 50), 0.4).item() == pytest.approx(sigmoid_ramp_up(step, 50))
    for method in (PiModel(), LLPVAT()):
        assert (method.weight, method.ramp) == (0.05, 0.4)


def test_pi_model():
    assert PiModel().std == 0.15
    model, batch = wide_network(), wide_batch(9)
    state = PiModel().start(tiny_bags(), epochs=1, device=CPU, seed=0)
    logits = model(*batch.x)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(11)
        loss = state.instance_loss(model, batch, logits)
        torch.default_generator.manual_seed(11)
        normal = torch.randn(9, 2)
    normalised = (batch.x[0] - 50) / 20
    f = [
        softmax(model.network(x).detach().double().numpy())
        for x in (normalised, normalised + 0.15 * normal)
    ]
    distance = 0.0
    for j in range(9):
        distance += sum((f[0][j, c] - f[1][j, c]) ** 2 for c in range(3))
    assert loss.item() == pytest.approx(0.05 * distance / 9, rel=1e-4)


def test_pi_model_within_a_training():
    """Eq. 7 plus the weighted consistency is logged, at the weight of each step."""
    bags, model = tiny_bags(), tiny_network()
    found = Training(
        model, bags, PiModel(weight=3.0), epochs=8, batch_size=100, learning_rate=STILL
    )
    f = in_bags(bags, conf(model, bags))
    proportion_loss = np.mean([eq_7(f[i], bags.proportions[i]) for i in range(4)])
    instances = place((bags, None, None), CPU)[0]
    for t in range(1, 9):
        (step,) = instances.steps("bags", TrainConfig(epochs=8, batch_size=100), t)
        rows = bags.index[step.position.numpy()]
        x = (bags.x[rows] - [0.3, -0.2]) / [1.5, 0.7]
        with torch.random.fork_rng(devices=[]):
            reseed(0, t, CPU)
            noisy = x + 0.15 * torch.randn(13, 2).numpy()
        a, b = (
            softmax(model.network(torch.from_numpy(v).float()).detach().double().numpy())
            for v in (x, noisy)
        )
        consistency = sum((a[j, c] - b[j, c]) ** 2 for j in range(13) for c in range(3)) / 13
        wanted = proportion_loss + 3 * sigmoid_ramp_up(t - 1, 8) * consistency
        assert found.history["loss"][t - 1] == pytest.approx(wanted, rel=1e-5)


def adversarial(network: Any, x: Any, d: Any, xi: float, eps: float) -> float:
    """The mean divergence of LLP-VAT after one power iteration from directions d, in float64."""
    network = copy.deepcopy(network).double()
    x, d = x.double(), d.double()
    total = 0.0
    for j in range(len(x)):
        p = network(x[j : j + 1]).detach().softmax(dim=1)[0]

        def divergence(r, p=p, j=j):
            q = network(x[j : j + 1] + r).softmax(dim=1)[0]
            return sum(p[c] * (p[c].log() - q[c].log()) for c in range(len(p)))

        direction = (d[j] / (d[j] ** 2).sum().sqrt()).requires_grad_()
        (slope,) = torch.autograd.grad(divergence(xi * direction), direction)
        r = eps * slope / (slope**2).sum().sqrt()
        total += divergence(r).item()
    return total / len(x)


def vat_loss(method: LLPVAT, model: nn.Module, batch: Batch) -> tuple[float, Any]:
    """The code's loss, and the random directions that it began with."""
    state = method.start(tiny_bags(), epochs=1, device=CPU, seed=0)
    logits = model(*batch.x)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(12)
        loss = state.instance_loss(model, batch, logits)
        torch.default_generator.manual_seed(12)
        return loss.item(), torch.randn(batch.x[0].shape)


def test_llp_vat():
    """At a ξ that float32 resolves well; the next test takes the default's."""
    model, batch = wide_network(), wide_batch(9)
    loss, d = vat_loss(LLPVAT(xi=1e-2, epsilon=0.7), model, batch)
    wanted = adversarial(model.network, (batch.x[0] - 50) / 20, d, xi=1e-2, eps=0.7)
    assert loss == pytest.approx(0.05 * wanted, rel=1e-3)


def test_llp_vat_with_its_defaults():
    """Two classes and a steep linear network: there ξ = 1e-6 is enough for float32."""
    method = LLPVAT()
    assert (method.xi, method.epsilon, method.iterations) == (1e-6, 6, 1)
    network = nn.Linear(2, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[30.0, -20.0], [-10.0, 25.0]]))
        network.bias.copy_(torch.tensor([0.1, -0.1]))
    x = torch.from_numpy(0.01 * np.random.default_rng(5).normal(size=(9, 2))).float()
    loss, d = vat_loss(method, network, Batch((x,), torch.arange(9), torch.tensor(1.0)))
    assert loss == pytest.approx(0.05 * adversarial(network, x, d, xi=1e-6, eps=6), rel=1e-4)


# ------------------------------------------------------------- §4.2: steps, selection, the preset


def total_variation(bags: Bags, confidence: Array) -> float:
    """Row 6: the mean over bags of the total variation of given and soft proportions."""
    f, error = in_bags(bags, confidence), 0.0
    for i in range(bags.n_bags):
        size = f[i].shape[1]
        for c in range(bags.n_classes):
            error += abs(bags.proportions[i, c] - sum(f[i][c, j] for j in range(size)) / size) / 2
    return error / bags.n_bags


def test_proportion_error():
    bags = tiny_bags()
    confidence = random_confidence(np.random.default_rng(6), bags.n_instances, 3)
    found = proportion_error(bags.proportions, bag_means(confidence, bags.offsets))
    assert found == pytest.approx(total_variation(bags, confidence), abs=1e-7)


@pytest.mark.parametrize("name", ["fpl", "proportion-loss"])
def test_the_epoch_of_least_validation_error_is_selected(name):
    bags, valid, model = tiny_bags(), tiny_bags(9), tiny_network()
    found = Training(model, bags, METHODS[name], valid, epochs=12, learning_rate=0.3)
    history, errors = found.history, []
    after = {name: weight.clone() for name, weight in model.state_dict().items()}
    for t in range(12):
        model.load_state_dict(found.weights[t])
        errors.append(total_variation(valid, conf(model, valid)))
    assert history["valid_error"] == pytest.approx(errors, abs=1e-6)
    best = int(np.argmin(errors))
    assert best < 11  # or the last one would do as well
    assert (history.best_epoch, history.best_error) == (best + 1, history["valid_error"][best])
    for name, weight in after.items():
        assert torch.equal(weight, found.weights[best][name])


def test_without_validation_fit_leaves_the_last_weights_in_the_net():
    bags, net = tiny_bags(), tiny_network()
    found = Training(net, bags, METHODS["fpl"], epochs=2, learning_rate=0.3)
    assert found.history.best_epoch is None
    assert all(torch.equal(w, found.weights[-1][name]) for name, w in net.state_dict().items())


def test_the_preset_of_the_paper():
    """Rows 3 and 8, and §4.2: 512 instances or 4 bags a step, Adam at 3e-4, η = 5, 400 epochs."""
    config = TrainConfig.preset("paper")
    assert (config.epochs, config.learning_rate, config.weight_decay) == (400, 3e-4, 0)
    assert {config.learning_rate_at(step / 100) for step in range(101)} == {3e-4}
    assert config.augment == ()
    method = METHODS["fpl"].start(tiny_bags(), epochs=config.epochs, device=CPU, seed=0)
    assert method.state_dict()["eta"] == 5

    bags = Bags.from_members(
        np.zeros((700, 1)), [range(300), *[range(i, i + 300) for i in range(8)]], [[0.5, 0.5]] * 9
    )
    instances = place((bags, None, None), CPU)[0]
    steps = [len(step.position) for step in instances.steps("instances", config, 1)]
    assert steps == [512] * 5 + [2700 - 5 * 512]
    taken = [step.proportions for step in instances.steps("bags", config, 1)]
    assert [len(p) for p in taken if p is not None] == [4, 4, 1]
