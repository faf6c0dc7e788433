"""A step: piece by piece it gives the loss and the gradient of one pass."""

import copy
import itertools
import logging
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine import step as step_module
from apportion.engine.batches import Step
from apportion.engine.step import Stepper, frozen_statistics
from apportion.methods.count_likelihood import CountLikelihood
from apportion.methods.pi_model import PiModel
from apportion.methods.proportion_loss import ProportionLoss, Proportions
from apportion.methods.pseudo_labels import FPL
from apportion.methods.registry import METHODS
from apportion.methods.vat import LLPVAT
from apportion.testing import CPU, instances_of

C = 3
FORMS = {
    "cross-entropy": lambda m, p: -(p * m.log()).sum(dim=1),
    "l1": lambda m, p: (p - m).abs().sum(dim=1),
    "squared": lambda m, p: ((p - m) ** 2).sum(dim=1),
}
LOSSES = [ProportionLoss("cross-entropy"), ProportionLoss("l1"), ProportionLoss("squared")]


def bags_of(sizes: tuple[int, ...]) -> Bags:
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(len(sizes)), sizes)
    p = rng.dirichlet(np.ones(C), len(sizes))
    return Bags.from_rows(rng.normal(size=(len(bag), 4)).astype(np.float32), bag, p)


class Network(nn.Module):
    """Dropout of its own, to see what was dropped in each pass and to drop the same again."""

    def __init__(self, dtype: torch.dtype = torch.float32, dropout: bool = True) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            self.first, self.last = nn.Linear(4, 16, dtype=dtype), nn.Linear(16, C, dtype=dtype)
        self.dtype, self.dropout = dtype, dropout
        self.passes: list[tuple[Any, Any, bool]] = []  # input, what was kept, with gradients?

    def apply_to(self, x: Any, kept: Any) -> Any:
        return self.last(self.first(x.to(self.dtype)).tanh() * kept)

    def forward(self, x: Any) -> Any:
        kept = torch.ones(len(x), 16, dtype=self.dtype)
        if self.dropout and self.training:
            kept = (torch.rand(len(x), 16) < 0.5).to(self.dtype) * 2
        self.passes.append((x.detach().clone(), kept, torch.is_grad_enabled()))
        return self.apply_to(x, kept)


def with_noise(x: Any, generator: torch.Generator) -> Any:
    """A random change of the batch, as augmentation makes."""
    return (x[0] + 0.1 * torch.randn(x[0].shape, generator=generator), *x[1:])


def unchanged(x: Any, generator: torch.Generator) -> Any:
    return x


def stepper(
    model: nn.Module,
    bags: Bags,
    method: Any,
    most: int,
    *,
    augment: Any = unchanged,
    precision=torch.float32,
    clip_norm: float | None = None,
) -> Stepper:
    supervision = method.start(bags, epochs=1, device=CPU, seed=0, threads=1)
    return Stepper(
        model.train(),
        torch.optim.SGD(model.parameters(), lr=0.0),
        supervision,
        instances_of(bags),
        precision=precision,
        instances_per_pass=most,
        augment=augment,
        clip_norm=clip_norm,
    )


def whole_step(bags: Bags, unit: Any = "bags", progress: float = 1.0) -> Step:
    """All instances in one step, at an end of the ramp."""
    (step,) = instances_of(bags).steps(unit, TrainConfig(batch_size=10**6), 1)
    return replace(step, progress=progress, x=None)


def taken(stepper: Stepper, step: Step, seed: int = 1) -> tuple[float, list[Any]]:
    """The loss and the gradients of a step."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        loss = stepper(step)
    return loss.item(), [p.grad.clone() for p in stepper.net.parameters() if p.grad is not None]


def assert_same_gradients(found: list[Any], wanted: list[Any], tolerance: float = 1e-6) -> None:
    assert len(found) == len(wanted)
    scale = max(float(slope.abs().max()) for slope in wanted)
    assert scale > 1e-4
    for ours, theirs in zip(found, wanted, strict=True):
        assert float((ours - theirs).abs().max()) <= tolerance * scale


def bag_means(step: Step, confidence: Any, bags: Bags) -> tuple[Any, Any]:
    """The mean confidence and the proportions of every bag, by the bags' own positions."""
    means, proportions = [], []
    for i, (first, last) in enumerate(itertools.pairwise(bags.offsets.tolist())):
        mine = (step.position >= first) & (step.position < last)
        means.append(confidence[mine].mean(dim=0))
        proportions.append(torch.from_numpy(bags.proportions[i]))
    return torch.stack(means), torch.stack(proportions)


SIZES = [(7, 2, 11, 1, 5), (23,), (1, 1, 1), (20, 1)]
TYPES = [torch.float32, torch.float64]

# --------------------------------------------------------------------------------- without dropout


@pytest.mark.parametrize("method", [*LOSSES, CountLikelihood(ramp=0)])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("most", [1, 2, 4, 6])
def test_pieces_of_a_loss_of_bags_add_up_to_the_whole(sizes, most, method):
    bags = bags_of(sizes)
    step = whole_step(bags)
    found = []
    for limit in (most, 10**6):
        model = Network(dropout=False)
        found.append(taken(stepper(model, bags, method, limit), step))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    assert_same_gradients(found[0][1], found[1][1], 1e-6)


def test_a_loss_gets_the_means_of_its_own_moments_and_the_sizes_of_the_bags():
    bags, seen = bags_of(SIZES[0]), []

    class Squares(Proportions):
        def moments(self, confidence: Any) -> Any:
            return torch.cat([confidence, confidence[:, :1] ** 2], dim=1)

        def bag_loss(self, means: Any, proportions: Any, sizes: Any) -> Any:
            seen.append((means.detach().clone(), proportions.clone(), sizes.clone()))
            return (sizes * means[:, C]).mean()

    step = whole_step(bags)
    x = torch.from_numpy(bags.x[bags.index[step.position.numpy()]])
    for most in (5, 10**6):
        model = Network(dropout=False)
        take = stepper(model, bags, ProportionLoss(), most)
        take.losses = Squares()
        taken(take, step)
        confidence = model.apply_to(x, torch.ones(())).detach().softmax(dim=1)
        means, proportions, sizes = seen.pop()
        rows = (torch.from_numpy(bags.offsets)[1:] <= step.position[:, None]).sum(dim=1)
        rows = rows.unique_consecutive()  # the bags, as they come in the step
        wanted, known = bag_means(step, confidence, bags)
        squares, _ = bag_means(step, confidence[:, :1] ** 2, bags)
        torch.testing.assert_close(means, torch.cat([wanted, squares], dim=1)[rows])
        torch.testing.assert_close(proportions, known[rows].float())
        assert sizes.tolist() == bags.sizes[rows.numpy()].tolist()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_one_pass_is_the_loss_itself(form, dtype):
    bags = bags_of(SIZES[0])
    step, model = whole_step(bags), Network(dtype, dropout=False)
    loss, slopes = taken(stepper(model, bags, ProportionLoss(form), 10**6), step)
    x = torch.from_numpy(bags.x[bags.index[step.position.numpy()]])
    wide = copy.deepcopy(model).double()
    confidence = wide.last(wide.first(x.double()).tanh()).softmax(dim=1)
    wanted = FORMS[form](*bag_means(step, confidence, bags)).mean()
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    exact = torch.autograd.grad(wanted, list(wide.parameters()))
    assert_same_gradients([s.double() for s in slopes], list(exact), 1e-6)


@pytest.mark.parametrize("name", ["fpl", "fpl-plain", "greedy", "naive"])
@pytest.mark.parametrize("most", [1, 3, 5])
def test_pieces_of_an_instance_loss_add_up_to_the_whole(name, most):
    bags = bags_of((5, 1, 7))
    step = whole_step(bags, "instances")
    found = []
    for limit in (most, 13):
        model = Network(dropout=False)
        found.append(taken(stepper(model, bags, METHODS[name], limit), step))
        assert len(model.passes) == -(-13 // limit)  # one pass is enough
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    assert_same_gradients(found[0][1], found[1][1])


# ------------------------------------------------ with dropout, augmentation, noise and adversaries


def one_shot(
    model: Network, step: Step, bags: Bags, method: Any, most: int
) -> tuple[float, list[Any]]:
    """The loss and gradient of all pieces at once, given what was drawn in each of their passes."""
    n_pieces = -(-len(step.position) // most)
    first, second = model.passes[:n_pieces], model.passes[n_pieces:]
    each = len(second) // n_pieces  # passes of one piece: the main one, then those of its method
    mains, lasts = second[::each], second[each - 1 :: each]
    for ours, theirs in zip(first, mains, strict=True):
        assert (ours[2], theirs[2]) == (False, True)
        assert torch.equal(ours[0], theirs[0])  # the same augmentation
        assert torch.equal(ours[1], theirs[1])  # and the same dropout
    model = copy.deepcopy(model)
    conf = torch.cat([model.apply_to(x, kept) for x, kept, _ in mains]).double().softmax(dim=1)
    loss = FORMS["cross-entropy"](*bag_means(step, conf, bags)).mean()
    if not isinstance(method, ProportionLoss):
        assert each > 1
        other = torch.cat([model.apply_to(x, kept) for x, kept, _ in lasts]).double().softmax(dim=1)
        if isinstance(method, PiModel):
            distance = (conf - other.detach()).square().sum(dim=1)
        else:
            own = conf.detach()
            distance = (own * (own.log() - other.log())).sum(dim=1)
        loss = loss + method.weight * distance.mean()
    return loss.item(), list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("most", [4, 9])
@pytest.mark.parametrize("sizes", [(7, 2, 11, 1, 5), (23,)])
@pytest.mark.parametrize(
    "method",
    [ProportionLoss(), PiModel(weight=2.0), LLPVAT(weight=2.0, epsilon=1.0)],
    ids=["proportion-loss", "pi-model", "llp-vat"],
)
def test_two_passes_are_one_with_the_same_random_numbers(method, sizes, most, dtype):
    bags = bags_of(sizes)
    step, model = whole_step(bags), Network(dtype)
    loss, slopes = taken(stepper(model, bags, method, most, augment=with_noise), step)
    wanted, exact = one_shot(model, step, bags, method, most)
    assert loss == pytest.approx(wanted, rel=1e-5)
    assert_same_gradients(slopes, exact, 1e-6)


def test_pieces_draw_numbers_of_their_own():
    bags = bags_of((24,))
    model = Network()
    taken(stepper(model, bags, ProportionLoss(), 6, augment=with_noise), whole_step(bags))
    kept = [drawn for _, drawn, _ in model.passes[:4]]
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(kept, 2))


def test_steps_draw_numbers_of_their_own():
    bags = bags_of((24,))
    model = Network()
    take = stepper(model, bags, ProportionLoss(), 6)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        take(whole_step(bags))
        take(whole_step(bags))
    assert not torch.equal(model.passes[0][1], model.passes[8][1])


@pytest.mark.parametrize("most", [6, 100])
def test_a_step_is_a_function_of_the_random_state_before_it(most):
    bags = bags_of((9, 15))
    found = [
        taken(stepper(Network(), bags, PiModel(weight=1.0), most), whole_step(bags), seed)
        for seed in (1, 1, 2)
    ]
    assert found[0][0] == found[1][0]
    assert all(map(torch.equal, found[0][1], found[1][1]))
    assert found[0][0] != found[2][0]


# ---------------------------------------------------------------------------------- mixed precision


@pytest.mark.parametrize(
    "name", ["fpl", "proportion-loss", "pi-model", "llp-vat", "count-likelihood"]
)
@pytest.mark.parametrize("most", [6, 100])
def test_mixed_precision_reaches_every_weight(name, most):
    """Casts that were cached without gradients would keep them from the second pass."""
    bags = bags_of((9, 15))
    unit = METHODS[name].unit
    found = []
    for precision in (torch.bfloat16, torch.float32):
        torch_model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, C))
        torch_model.load_state_dict(weights_of(torch_model))
        take = stepper(torch_model, bags, METHODS[name], most, precision=precision)
        found.append(taken(take, whole_step(bags, unit, progress=0.0)))
    assert found[0][0] == pytest.approx(found[1][0], rel=0.02)
    assert_same_gradients(found[0][1], found[1][1], 0.05)
    assert all(slope.dtype == torch.float32 for slope in found[0][1])


def weights_of(model: nn.Module) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        name: torch.from_numpy(rng.normal(size=tuple(w.shape)) * 0.3).float()
        for name, w in model.state_dict().items()
    }


# ---------------------------------------------------------------------------------------- the step


def test_a_step_moves_the_weights_against_the_gradient():
    bags = bags_of((9, 15))
    for most in (6, 100):
        model = Network(dropout=False)
        take = stepper(model, bags, ProportionLoss(), most)
        take.optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        before = [p.detach().clone() for p in model.parameters()]
        _, slopes = taken(take, whole_step(bags))
        for p, was, slope in zip(model.parameters(), before, slopes, strict=True):
            torch.testing.assert_close(p.detach(), was - 0.5 * slope)


@pytest.mark.parametrize("most", [6, 100])
def test_the_whole_gradient_is_clipped_once_however_many_pieces(most):
    bags = bags_of((9, 15))
    _, slopes = taken(stepper(Network(dropout=False), bags, ProportionLoss(), most),
                      whole_step(bags))  # fmt: skip
    length = torch.cat([slope.flatten() for slope in slopes]).norm()
    for limit in (0.3 * length.item(), 3 * length.item()):
        take = stepper(Network(dropout=False), bags, ProportionLoss(), most, clip_norm=limit)
        _, clipped = taken(take, whole_step(bags))
        share = min(1, limit / length)
        for slope, short in zip(slopes, clipped, strict=True):
            torch.testing.assert_close(short, share * slope)


def test_gradients_of_an_earlier_step_are_forgotten():
    bags = bags_of((9, 15))
    take = stepper(Network(dropout=False), bags, ProportionLoss(), 6)
    one, again = (taken(take, whole_step(bags)) for _ in range(2))
    assert all(map(torch.equal, one[1], again[1]))


def test_the_loss_that_is_given_back_holds_no_graph():
    bags = bags_of((9, 15))
    for most in (6, 100):
        loss = stepper(Network(), bags, PiModel(), most)(whole_step(bags))
        assert not loss.requires_grad


def test_only_steps_beyond_the_limit_are_cut():
    bags = bags_of((9, 15))
    for most, n_passes in ((24, 1), (23, 4), (8, 6)):
        model = Network()
        taken(stepper(model, bags, ProportionLoss(), most), whole_step(bags))
        assert len(model.passes) == n_passes
        assert max(len(x) for x, _, _ in model.passes) <= most


@given(st.integers(1, 3000), st.integers(1, 700))
@settings(max_examples=300, deadline=None)
def test_pieces_cover_a_step_exactly(n, most):
    pieces = Step(torch.arange(n), 0.0).pieces(most)
    assert [i for piece in pieces for i in range(n)[piece]] == list(range(n))
    sizes = [len(range(n)[piece]) for piece in pieces]
    assert max(sizes) <= (3 if most == 2 else most)  # three are not cut into two and one
    assert min(sizes) > 1 or most == 1 or n == 1
    assert max(sizes) - min(sizes) <= 1
    assert len(pieces) == -(-n // most) or most == 2


# ------------------------------------------------------------------------------- frozen statistics


class Normed(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(norm)

    def forward(self, x: Any) -> Any:
        return self.inner(x)


NORMS = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(3), (8, 3)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), (8, 3, 2, 2)),
    "BatchNorm1d, cumulative": (lambda: nn.BatchNorm1d(3, momentum=None), (8, 3)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(3, track_running_stats=True), (8, 3, 5)),
}


@pytest.mark.parametrize("name", NORMS)
def test_frozen_statistics_are_used_but_not_remembered(name):
    make, shape = NORMS[name]
    model = Normed(make())
    model.train()
    x = torch.from_numpy(5 + np.random.default_rng(0).normal(size=shape)).float()
    before = copy.deepcopy(model.state_dict())
    with frozen_statistics(model):
        frozen = model(x)
    for weight, value in model.state_dict().items():
        assert torch.equal(value, before[weight]), weight
    torch.testing.assert_close(frozen, model(x))  # normalised by the batch, as ever
    assert not torch.equal(
        model.state_dict()["inner.0.running_mean"], before["inner.0.running_mean"]
    )


def test_statistics_are_remembered_again_after_an_error():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3, track_running_stats=False))
    with pytest.raises(ZeroDivisionError), frozen_statistics(model):
        model(torch.zeros(2, 3) / (1 // 0))
    norm: Any = model
    assert [layer.track_running_stats for layer in norm] == [True, False]


def test_a_layer_in_evaluation_keeps_to_its_running_statistics():
    norm = nn.BatchNorm1d(3).eval()
    x = torch.ones(4, 3) * 7
    with frozen_statistics(norm):
        torch.testing.assert_close(norm(x), x, rtol=1e-4, atol=1e-4)


def test_of_two_passes_the_second_is_remembered():
    bags = bags_of((9, 15))
    model = nn.Sequential(nn.BatchNorm1d(4, momentum=0.5), nn.Linear(4, C))
    step = whole_step(bags)
    taken(stepper(model, bags, LLPVAT(), 8), step)
    x = torch.from_numpy(bags.x[bags.index[step.position.numpy()]])
    mean = torch.zeros(4)
    for piece in step.pieces(8):
        mean = 0.5 * mean + 0.5 * x[piece].mean(dim=0)
    norm: Any = model[0]
    assert int(norm.num_batches_tracked) == 3
    torch.testing.assert_close(norm.running_mean, mean)


def test_labels_decide_the_loss_of_instances():
    bags = bags_of((5, 4))
    model = Network(dropout=False)
    labels = np.repeat(np.tile(np.arange(C), 2), bags.counts.ravel())
    step = whole_step(bags, "instances")
    loss, _ = taken(stepper(model, bags, FPL(first=labels), 100), step)
    x, kept, _ = model.passes[0]
    confidence = model.apply_to(x, kept).softmax(dim=1).detach()
    own = [float(confidence[row, labels[p]]) for row, p in enumerate(step.position.tolist())]
    assert loss == pytest.approx(-np.mean(np.log(own)), rel=1e-5)


# -------------------------------------------------------------------------------- recording or not


class DrawsOnTheHost(nn.Module):
    """Leaves its layer out at random, as the host decides."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, C)

    def forward(self, x: Any) -> Any:
        return self.last(self.layer(x) if torch.rand(()) < 0.5 else x)


def on_the_way(model: nn.Module, monkeypatch: Any, recorded: Any = None) -> Stepper:
    """A stepper that would record steps, with something else than a CUDA graph."""
    monkeypatch.setattr(step_module, "CapturedStep", recorded)
    take = stepper(model, bags_of((9, 15)), ProportionLoss(), 100)
    take.mode = "captured"
    return take


def typical(bags: Bags) -> Step:
    (step,) = instances_of(bags).steps("bags", TrainConfig(batch_size=10**6), 1)
    assert step.typical
    return step


def test_a_network_that_draws_on_the_host_is_not_recorded(monkeypatch, caplog):
    take = on_the_way(DrawsOnTheHost(), monkeypatch)
    with caplog.at_level(logging.WARNING, logger="apportion"):
        for _ in range(6):
            take(typical(bags_of((9, 15))))
    assert take.mode == "eager"
    (message,) = caplog.messages
    assert "cannot be recorded as a CUDA graph" in message
    assert "random numbers on the host" in message


def by_python(x: Any) -> Any:
    return (x[0] if random.random() < 0.5 else x[0] + 1,)


def by_numpy(x: Any) -> Any:
    return (x[0] + float(np.random.rand()),)  # noqa: NPY002


@pytest.mark.parametrize("draw", [by_python, by_numpy])
def test_an_augmentation_that_draws_on_the_host_is_not_recorded(draw, monkeypatch, caplog):
    """A recording would repeat what was drawn when it was made."""
    take = on_the_way(Network(dropout=False), monkeypatch)
    take.augment = lambda x, generator: draw(x)
    with caplog.at_level(logging.WARNING, logger="apportion"):
        for _ in range(6):
            take(typical(bags_of((9, 15))))
    assert take.mode == "eager"
    assert "the augmentation draws random numbers on the host" in caplog.text


def test_recordings_are_dropped_when_they_no_longer_hold(monkeypatch, caplog):
    take = on_the_way(Network(dropout=False), monkeypatch, lambda take, step: take)
    for _ in range(4):
        take(typical(bags_of((9, 15))))
    assert take.graphs
    take.record_no_more("the scheduler changes numbers")
    assert not take.graphs
    assert take.mode == "eager"
    assert "slower without: the scheduler changes numbers" in caplog.text


def test_a_shape_is_recorded_after_three_steps_and_then_replayed(monkeypatch):
    made: list[Any] = []

    class Recording:
        def __init__(self, take: Any, step: Step) -> None:
            made.append(step.shape)
            self.take = take

        def __call__(self, step: Step) -> Any:
            made.append("replayed")
            return self.take(step)

    model = Network(dropout=False)
    take = on_the_way(model, monkeypatch, Recording)
    take.begin_epoch()
    step = typical(bags_of((9, 15)))
    for _ in range(5):
        take(step)
    assert made == [(24, 2), "replayed", "replayed"]
    take.begin_epoch()
    take(step)
    assert made[3:] == ["replayed"]
    for parameter in model.parameters():  # as model.cpu() and back would
        parameter.data = parameter.data.clone()
    take.begin_epoch()
    for _ in range(4):
        take(step)
    assert made[4:] == [(24, 2), "replayed"]


def test_a_recording_that_fails_without_a_word_is_done_without(monkeypatch, caplog):
    def fails(take: Any, step: Step) -> Any:
        raise NotImplementedError

    take = on_the_way(Network(dropout=False), monkeypatch, fails)
    with caplog.at_level(logging.WARNING, logger="apportion"):
        for _ in range(5):
            take(typical(bags_of((9, 15))))
    assert take.mode == "eager"
    (message,) = caplog.messages
    assert "NotImplementedError" in message


def test_steps_that_are_not_typical_or_of_several_passes_are_not_recorded(monkeypatch):
    take = on_the_way(Network(dropout=False), monkeypatch)
    bags = bags_of((9, 15))
    for step in (replace(typical(bags), typical=False), replace(typical(bags), x=None)):
        for _ in range(5):
            take(step)
    assert take.mode == "captured"
    assert not take.warm
