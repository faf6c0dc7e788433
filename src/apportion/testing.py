"""Checks of what holds for every method, for methods of one's own.

Each check trains a tiny net on made-up bags, on the CPU, in a second or less; one trains on a GPU
if there is one. A method that passes them all can be trained by `fit`, resumed, run beside others,
and trusted not to look at the truth. This one pulls every instance towards the proportions of its
bag:

>>> import torch
>>> from dataclasses import dataclass
>>> from apportion import Supervision
>>> class Pull(Supervision):
...     def __init__(self, bags, device):
...         shares = bags.proportions.repeat(bags.sizes, axis=0)
...         self.shares = torch.from_numpy(shares).to(device, torch.float32)
...
...     def instance_loss(self, net, batch, logits):
...         wanted = self.shares.index_select(0, batch.position)
...         return -(wanted * logits.log_softmax(dim=1)).sum(dim=1).mean()
>>> @dataclass(frozen=True)
... class PullToProportions:
...     unit = "instances"
...
...     def start(self, bags, *, epochs, device, seed, threads=None):
...         return Pull(bags, device)
>>> check_method(PullToProportions())

With pytest, one test per check::

    @pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda check: check.__name__)
    def test_my_method_conforms(check):
        check(PullToProportions())
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.bags.counts import count_labels
from apportion.config import TrainConfig
from apportion.engine.batches import Batch, Instances, place
from apportion.errors import ConfigError
from apportion.methods.base import Method, Supervision
from apportion.methods.registry import describe
from apportion.nets.normalized import Normalized
from apportion.training.fit import fit

__all__ = ["METHOD_CHECKS", "check_method"]

CPU = torch.device("cpu")
Given = Method | Callable[[Bags], Method]
Check = Callable[[Given], None]
CheckOnBags = Callable[[Bags, Method], None]


def check_method(method: Given) -> None:
    """Check that a method does what every method must do.

    Parameters
    ----------
    method : Method, or callable
        Where settings depend on the bags, such as labels of their instances, pass a function that
        takes bags and returns the method for them.

    Raises
    ------
    AssertionError
        If a check fails: it names the check, what must hold, and what was found.
    """
    for check in METHOD_CHECKS:
        check(method)


# ------------------------------------------------------------------------------- toys to train on


def toy_bags(
    sizes: tuple[int, ...] = (1, 7, 1, 3, 12, 1, 5, 2),
    *,
    seed: int = 0,
    x_of: Callable[[Any], Any] = lambda points: points,
) -> Bags:
    """Build bags of very different proportions: three clouds of points, in no order."""
    rng = np.random.default_rng(seed)
    bag = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    shares = rng.dirichlet(np.full(3, 0.4), len(sizes))
    truth = np.array([rng.choice(3, p=shares[i]) for i in bag])
    truth[:3] = 0, 1, 2
    angle = 2 * np.pi * truth / 3
    centres = 3 + 2 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points = (centres + 0.4 * rng.normal(size=(len(bag), 2))).astype(np.float32)
    return Bags.from_rows(x_of(points), bag, truth=truth, classes=[0, 1, 2])


def _codes(points: Any) -> Any:
    return np.arange(len(points)) % 4


def toy_net(bags: Bags, *, seed: int = 0, dropout: float = 0.0, norm: bool = False) -> nn.Module:
    """Build a perceptron with its normalisation."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(2, 16),
            nn.BatchNorm1d(16) if norm else nn.Identity(),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(16, bags.n_classes),
        )
    return Normalized(network, bags.x.mean(axis=0), bags.x.std(axis=0))


def toy_config(**options: Any) -> TrainConfig:
    """Return a configuration of few and small epochs."""
    small = {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "threads": 1, "device": "cpu"}
    return TrainConfig(**{**small, **options})


def instances_of(bags: Bags) -> Instances:
    """Place the instances of bags on the CPU."""
    return place((bags, None, None), CPU)[0]


class Training:
    """One call of `fit`, and what was seen after each epoch.

    It is also the method that `fit` gets: so it sees what the real method is started with.
    """

    bags: Bags  # as the method got them
    supervision: Supervision

    def __init__(
        self,
        net: nn.Module,
        bags: Bags,
        method: Method,
        valid: Bags | None = None,
        *,
        after_epoch: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        self.net, self.method, self.unit, self.after_epoch = net, method, method.unit, after_epoch
        self.records: list[dict[str, Any]] = []  # without times and what only the truth tells
        self.labels: list[Tensor] = []  # where the method decides any
        self.weights: list[dict[str, Tensor]] = []
        config = toy_config(**options)
        self.history = fit(
            net, bags, valid, method=self, config=config, on_epoch=self._look, progress=False
        )

    def start(self, bags: Bags, **options: Any) -> Supervision:
        """Start the method."""
        self.bags, self.supervision = bags, self.method.start(bags, **options)
        return self.supervision

    def _look(self, record: dict[str, Any], net: nn.Module) -> None:
        kept = (name for name in record if name != "seconds" and not name.endswith("accuracy"))
        self.records.append({name: record[name] for name in kept})
        if self.supervision.labels is not None:
            self.labels.append(self.supervision.labels.cpu().clone())
        self.weights.append({name: w.cpu().clone() for name, w in net.state_dict().items()})
        self.after_epoch()


def _start(method: Method, bags: Bags) -> Supervision:
    return method.start(bags.without_truth(), epochs=3, device=CPU, seed=0, threads=1)


def _any_confidence(bags: Bags, seed: int) -> Tensor:
    logits = np.random.default_rng(seed).normal(size=(bags.n_instances, bags.n_classes))
    return torch.from_numpy(logits.astype(np.float32)).softmax(dim=1)


def same(one: Training, other: Training) -> bool:
    """Tell whether two trainings are equal to the bit: weights, labels and what was logged."""
    ours, theirs = ([*t.labels, *(w for e in t.weights for w in e.values())] for t in (one, other))
    return one.records == other.records and all(map(torch.equal, ours, theirs))


# ------------------------------------------------------------------------------------------ checks

_CHECKS: list[Check] = []


def _check(build: Callable[[], Bags] = toy_bags) -> Callable[[CheckOnBags], Check]:
    """Add a check that needs some bags; any error in it becomes an AssertionError that names it."""

    def add(check: CheckOnBags) -> Check:
        @wraps(check)
        def named(method: Any) -> None:
            bags = build()
            try:
                with torch.random.fork_rng(devices=[]):
                    torch.default_generator.manual_seed(0)
                    check(bags, method if hasattr(method, "start") else method(bags))
            except Exception as error:
                found = (isinstance(error, AssertionError) and str(error)) or repr(error)
                raise AssertionError(f"{check.__name__}: {check.__doc__}\n  {found}") from error

        _CHECKS.append(named)
        return named

    return add


def _require(condition: bool, found: str) -> None:
    """Raise if a condition does not hold, with python -O as well."""
    if not condition:
        raise AssertionError(found)


def _require_sound(found: Training) -> None:
    """Require what holds for every training: finite losses, and labels that meet the counts."""
    losses, bags = found.history["loss"], found.bags
    _require(bool(np.isfinite(losses).all()), f"the losses are {losses}.")
    for labels in found.labels:
        counts, wanted = count_labels(labels.numpy(), bags.sizes, bags.n_classes), bags.counts
        same = np.array_equal(counts, wanted)
        _require(same, f"the labels' counts are {counts.tolist()}, not {wanted.tolist()}.")


@_check(lambda: toy_bags((4, 1, 9, 6, 12, 2, 7, 10, 5, 8, 11, 3) * 3, seed=1))
def learns(bags: Bags, method: Method) -> None:
    """Most instances are told apart, although only proportions were known; and the loss falls."""
    found = Training(toy_net(bags), bags, method, bags, epochs=25, batch_size=32)
    _require_sound(found)
    for name, most in (("loss", 0.9), ("valid_error", 1.0)):
        first, last = found.history[name][0], found.history[name][-1]
        _require(last < most * first, f"{name} went from {first:.3g} to {last:.3g}.")
    accuracy = found.history["valid_accuracy"][-1]
    _require(accuracy > 0.8, f"the accuracy is {accuracy:.3f} where 0.8 is easy.")


@_check()
def meets_the_counts(bags: Bags, method: Method) -> None:
    """Wherever labels are decided, every bag has exactly its counts, from the start to the end."""
    first = _start(method, bags).labels
    found = Training(toy_net(bags), bags, method)
    if first is None:
        nothing = not found.labels and found.history.labels is None
        _require(nothing, "there are no labels at the start, but later on.")
        return
    _require(len(found.labels) == 3, "there are labels at the start, but not later on.")
    found.labels.insert(0, first)
    for labels in found.labels:
        kind = f"{labels.dtype} {tuple(labels.shape)}"
        _require(kind == f"torch.int64 ({bags.n_instances},)", f"labels are {kind}.")
    _require_sound(found)


@_check()
def changes_labels_in_place(bags: Bags, method: Method) -> None:
    """The tensor that the first step reads is the one that the last step reads."""
    supervision = _start(method, bags)
    before = supervision.labels
    for epoch in (1, 2, 3):
        supervision.epoch_end(epoch, _any_confidence(bags, epoch))
    _require(supervision.labels is before, "labels is another tensor after three epochs.")


@_check()
def is_a_function_of_the_seed(bags: Bags, method: Method) -> None:
    """The same seed leads to the same bits, and another one to other labels or weights."""
    one, again, other = (
        Training(toy_net(bags, dropout=0.2).train(mode), bags, method, bags, seed=seed)
        for seed, mode in ((3, True), (3, False), (4, True))  # the net's mode makes no difference
    )
    _require(same(one, again), "two trainings with one seed differ.")
    _require(not same(one, other), "two seeds lead to the same training.")


@_check()
def goes_on_from_its_state(bags: Bags, method: Method) -> None:
    """`state_dict` returns the whole state: a new start that loads it goes on in the same way."""
    trained = Training(toy_net(bags), bags, method)
    ours, fresh = trained.supervision, _start(method, bags)
    fresh.load_state_dict({name: value.clone() for name, value in ours.state_dict().items()})
    step = next(instances_of(bags).steps(method.unit, toy_config(), 1))
    batch = Batch(step.x or (), step.position, torch.tensor(0.0, dtype=torch.float64))

    def go_on(supervision: Supervision) -> tuple[list[Any], dict[str, Tensor]]:
        torch.default_generator.manual_seed(5)
        mixed = supervision.mixed(batch)
        loss = supervision.instance_loss(trained.net, mixed, trained.net(*mixed.x))
        logs = [supervision.epoch_end(epoch, _any_confidence(bags, epoch)) for epoch in (4, 5)]
        labels = {} if supervision.labels is None else {"labels": supervision.labels}
        return [None if loss is None else loss.item(), *logs], supervision.state_dict() | labels

    (numbers, state), (found, found_state) = go_on(ours), go_on(fresh)
    _require(found == numbers, f"the next loss and the next logs are {found}, not {numbers}.")
    _require(state.keys() == found_state.keys(), f"the state has {[*found_state]}, not {[*state]}.")
    for name, value in state.items():
        _require(torch.equal(value, found_state[name]), f"{name} differs after two more epochs.")


@_check(lambda: toy_bags((1, 1, 7, 1, 3, 1, 12, 1)))
def takes_bags_of_any_size(bags: Bags, method: Method) -> None:
    """Unequal bags and bags of one instance work, also in steps so small that they stand alone."""
    steps: list[dict[str, Any]] = [{}, {"batch_size": 1}, {"bags_per_step": 1}, {"batch_size": 99}]
    for options in steps:
        net = toy_net(bags, norm=True)
        _require_sound(Training(net, bags, method, bags, epochs=2, **options))


@_check(lambda: toy_bags((21,)))
def takes_a_single_bag(bags: Bags, method: Method) -> None:
    """One bag is enough, even if it is larger than a step."""
    _require_sound(Training(toy_net(bags, norm=True), bags, method))


SHARED = {"a": [0, 1, 2, 3], "b": [3, 4, 1, 5, 0], "c": [8, 3], "d": [3]}


@_check(lambda: Bags.from_members(toy_bags().x[:9], SHARED, truth=[0, 1, 2] * 3))
def takes_rows_in_several_bags(bags: Bags, method: Method) -> None:
    """A row that stands in several bags is an instance in each."""
    _require_sound(Training(toy_net(bags), bags, method, bags))


@_check(lambda: toy_bags((40, 1, 9)))
def takes_steps_in_pieces(bags: Bags, method: Method) -> None:
    """Bags may be larger than what goes through the net at once."""
    _require_sound(Training(toy_net(bags, norm=True), bags, method, instances_per_pass=6))


@_check()
def never_sees_the_truth(bags: Bags, method: Method) -> None:
    """Truth that is left out, or replaced by another, changes nothing that is learned."""
    others = np.random.default_rng(1).integers(3, size=bags.n_instances)
    one, none, noise = (
        Training(toy_net(bags), b, method, b)
        for b in (bags, bags.without_truth(), replace(bags, truth=others))
    )
    _require(one.bags.truth is None, "the method got bags with their truth.")
    _require(same(one, none), "the training is another one without truth.")
    _require(same(one, noise), "the training is another one with another truth.")


@_check()
def is_frozen(bags: Bags, method: Any) -> None:
    """A method is a frozen dataclass, whose settings a run does not change."""
    _require(is_dataclass(method), f"{type(method).__name__} is no dataclass.")
    before = describe(method)
    Training(toy_net(bags), bags, method)
    _require(describe(method) == before, f"{before} became {describe(method)}.")
    for name in ("unit", *(setting.name for setting in fields(method))):
        try:
            setattr(method, name, getattr(method, name))
        except FrozenInstanceError:
            continue
        raise AssertionError(f"{name} can be changed: it lacks @dataclass(frozen=True).")


@_check()
def drives_several_runs_at_once(bags: Bags, method: Method) -> None:
    """Runs that share a method do not influence one another, even while they take turns."""

    def another() -> None:
        Training(toy_net(bags, seed=8), bags, method, seed=7, epochs=2)

    alone = Training(toy_net(bags), bags, copy.deepcopy(method))
    shared = Training(toy_net(bags), bags, method, after_epoch=another)
    _require(same(alone, shared), "a run is another one if others take turns with it.")


class _Watched(Training):
    """Also keeps the batches that go through the net as the method has mixed them."""

    main: list[Batch]

    def start(self, bags: Bags, **options: Any) -> Supervision:
        """Start the method, and watch what it mixes."""
        supervision, self.main = super().start(bags, **options), []
        mixed = supervision.mixed

        def watched(batch: Batch) -> Batch:
            self.main.append(mixed(batch))
            return self.main[-1]

        supervision.mixed = watched  # type: ignore[method-assign]
        return supervision


@_check()
def remembers_only_its_main_passes(bags: Bags, method: Method) -> None:
    """Of all passes of a step, BatchNorm remembers the one through the instances themselves."""
    net = nn.Sequential(nn.BatchNorm1d(2, momentum=0.3), toy_net(bags))
    norm = nn.BatchNorm1d(2, momentum=0.3)
    found = _Watched(net, bags, method, bags)
    for batch in found.main:
        norm(*batch.x)
    for name, wanted in norm.named_buffers():
        value = found.weights[-1][f"0.{name}"]
        close = torch.allclose(value, wanted, rtol=1.3e-6, atol=1e-5)
        hint = "run other passes in apportion.engine.step.frozen_statistics"
        _require(close, f"{name} is {value}, not {wanted}: {hint}.")


class _InParts(nn.Module):
    """Takes numbers and codes of categories."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.codes = nn.Linear(2, 3), nn.Embedding(4, 3)

    def forward(self, numbers: Tensor, codes: Tensor) -> Any:
        return self.numbers(numbers) + self.codes(codes)


@_check(lambda: toy_bags(x_of=lambda points: (points, _codes(points))))
def takes_instances_in_parts(bags: Bags, method: Method) -> None:
    """Numbers and codes, called as ``net(*x)``, are accepted, or a ConfigError says why not."""
    net = _InParts()
    before = copy.deepcopy(net.state_dict())
    with suppress(ConfigError):
        _require_sound(Training(net, bags, method, bags))
        for name, now in net.state_dict().items():
            _require(not torch.equal(now, before[name]), f"{name} of the net was not trained.")


@_check(lambda: toy_bags(x_of=lambda points: points[:, 0].copy()))
def takes_single_numbers(bags: Bags, method: Method) -> None:
    """Instances that are one number, ``x`` (M,), are accepted, or a ConfigError says why not."""
    net = nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Linear(1, 3))
    with suppress(ConfigError):
        _require_sound(Training(net, bags, method))


@_check(lambda: toy_bags(x_of=_codes))
def takes_codes_alone(bags: Bags, method: Method) -> None:
    """Instances that are only a category are accepted, or a ConfigError says why not."""
    with suppress(ConfigError):
        _require_sound(Training(nn.Embedding(4, 3), bags, method))


@_check()
def runs_on_cuda(bags: Bags, method: Method) -> None:
    """Training on a GPU, if there is one, leads to about the same as on the CPU."""
    if not torch.cuda.is_available():
        return
    here, there, again = (
        Training(toy_net(bags), bags, method, bags, precision="float32", device=device)
        for device in ("cpu", "cuda", "cuda")
    )
    on_gpu = next(there.net.parameters()).is_cuda
    _require(on_gpu and len(there.labels) == len(here.labels), "it did not train on the GPU.")
    _require_sound(there)
    for other, most in ((here, 0.05), (again, 1e-3)):
        losses = there.history["loss"][0], other.history["loss"][0]
        _require(abs(losses[0] - losses[1]) < most, f"the first losses are {losses}.")
    mixed = Training(toy_net(bags), bags, method, bags, device="cuda", instances_per_pass=5)
    _require_sound(mixed)


METHOD_CHECKS = tuple(_CHECKS)
