"""Checks of what holds for every method, for methods of one's own.

Each check trains a tiny network on made-up bags, on the CPU, in a second or less; one trains on a
GPU if there is one. A method that passes them all may be given to `fit`, resumed, run beside
others, and trusted not to look at the truth. This one pulls every instance towards the proportions
of its bag:

>>> import torch
>>> from dataclasses import dataclass
>>> from apportion import Supervision
>>> class Pull(Supervision):
...     def __init__(self, bags, device):
...         shares = bags.proportions.repeat(bags.sizes, axis=0)
...         self.shares = torch.from_numpy(shares).to(device, torch.float32)
...
...     def instance_loss(self, model, batch, logits):
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
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from functools import wraps
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.batches import Batch, Instances, Unit, place
from apportion.errors import ConfigError
from apportion.methods.base import Method, Supervision
from apportion.methods.registry import describe
from apportion.nets.normalized import Normalized
from apportion.training.fit import fit
from apportion.training.history import History

__all__ = ["METHOD_CHECKS", "check_method"]

CPU = torch.device("cpu")
Given = Method | Callable[[Bags], Method]
MIXED = (1, 7, 1, 3, 12, 1, 5, 2)  # sizes of bags


def check_method(method: Given) -> None:
    """Check that a method does what every method must.

    Parameters
    ----------
    method : Method, or callable
        Settings that depend on the bags, such as labels of their instances, are given as a
        function that makes the method for some bags.

    Raises
    ------
    AssertionError
        If a check fails: it names the check, what must hold, and what was found.
    """
    for check in METHOD_CHECKS:
        check(method)


def _named(check: Callable[[Given], None]) -> Callable[[Given], None]:
    """Whatever goes wrong in a check is an AssertionError that names it."""

    @wraps(check)
    def named(given: Given) -> None:
        try:
            check(given)
        except Exception as error:
            found = (isinstance(error, AssertionError) and str(error)) or repr(error)
            raise AssertionError(f"{check.__name__}: {check.__doc__}\n  {found}") from error

    return named


def require(condition: bool, found: str) -> None:
    """Raise if a condition does not hold, with python -O as well."""
    if not condition:
        raise AssertionError(found)


# -------------------------------------------------------------------------------- made-up problems


def toy_bags(sizes: tuple[int, ...] = MIXED, *, seed: int = 0, spread: float = 0.4) -> Bags:
    """Make three clouds in the plane, in bags of very different proportions, rows in any order."""
    rng = np.random.default_rng(seed)
    bag = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    shares = rng.dirichlet(np.full(3, 0.4), len(sizes))
    truth = np.array([rng.choice(3, p=shares[i]) for i in bag])
    truth[:3] = 0, 1, 2
    angle = 2 * np.pi * truth / 3
    centres = 3 + 2 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x = centres + spread * rng.normal(size=(len(bag), 2))
    return Bags.from_rows(x.astype(np.float32), bag, truth=truth, classes=[0, 1, 2])


def toy_network(
    bags: Bags, *, seed: int = 0, dropout: float = 0.0, norm: bool = False
) -> nn.Module:
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


class _InParts(nn.Module):
    """Takes numbers and codes of categories."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            self.numbers = nn.Linear(2, 3)
            self.codes = nn.Embedding(4, 3)

    def forward(self, numbers: Tensor, codes: Tensor) -> Any:
        return self.numbers(numbers) + self.codes(codes)


def instances_of(bags: Bags) -> Instances:
    """Place the instances of bags on the CPU."""
    return place((bags, None, None), CPU)[0]


def _batches(bags: Bags, unit: Unit = "instances", *, epochs: int = 1) -> Iterator[Batch]:
    """The batches that a training with `config_for()` sees, in its order."""
    instances = instances_of(bags)
    for epoch in range(1, epochs + 1):
        for step in instances.steps(unit, config_for(epochs=epochs), epoch):
            assert step.x is not None
            progress = torch.tensor(step.progress, dtype=torch.float64)
            yield Batch(step.x, step.position, progress)


def _some_confidence(bags: Bags, seed: int) -> Tensor:
    """Confidences in any labels at all."""
    logits = np.random.default_rng(seed).normal(size=(bags.n_instances, bags.n_classes))
    return torch.from_numpy(logits.astype(np.float32)).softmax(dim=1)


# ---------------------------------------------------------------------------------------- training


@dataclass(frozen=True)
class _Watched:
    """A method, of whose runs one sees the bags that start them and the supervision."""

    method: Method
    started: list[tuple[Bags, Supervision]] = field(default_factory=list)

    @property
    def unit(self) -> Unit:
        return self.method.unit

    def start(self, bags: Bags, **options: Any) -> Supervision:
        supervision = self.method.start(bags, **options)
        self.started.append((bags, supervision))
        return supervision


@dataclass(frozen=True)
class Training:
    """What one training did."""

    model: nn.Module
    history: History
    bags: Bags  # as the method got them
    supervision: Supervision
    labels: list[Tensor]  # after every epoch, where the method decides any
    weights: list[dict[str, Tensor]]  # likewise

    @property
    def records(self) -> list[dict[str, Any]]:
        """Those of the epochs, but for times and for what only the truth tells."""
        return [
            {k: v for k, v in record.items() if k != "seconds" and not k.endswith("accuracy")}
            for record in self.history.records
        ]


def config_for(**options: Any) -> TrainConfig:
    """Return a configuration of few and small epochs."""
    small = {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "threads": 1, "device": "cpu"}
    return TrainConfig(**{**small, **options})


def _method_for(given: Any, bags: Bags) -> Method:
    """A method as it was given, or made for some bags."""
    method: Method = given if hasattr(given, "start") else given(bags)
    return method


def _start(method: Method, bags: Bags) -> Supervision:
    return method.start(bags.without_truth(), epochs=3, device=CPU, seed=0, threads=1)


def train(
    model: nn.Module,
    bags: Bags,
    method: Method,
    valid: Bags | None = None,
    *,
    also: Callable[[], None] = lambda: None,
    **options: Any,
) -> Training:
    """Fit, and see what happens in every epoch."""
    watched, labels, weights = _Watched(method), [], []

    def look(record: dict[str, Any], model: nn.Module) -> None:  # noqa: ARG001
        now = watched.started[-1][1].labels
        if now is not None:
            labels.append(now.cpu().clone())
        weights.append({name: w.detach().cpu().clone() for name, w in model.state_dict().items()})
        also()

    config = config_for(**options)
    history = fit(model, bags, valid, method=watched, config=config, on_epoch=look, progress=False)
    return Training(model, history, *watched.started[-1], labels, weights)


def same(one: Training, other: Training) -> bool:
    """Tell whether two trainings are equal to the bit: weights, labels and what was logged."""
    return (
        one.records == other.records
        and all(map(torch.equal, one.labels, other.labels))
        and all(
            torch.equal(w[name], v[name])
            for w, v in zip(one.weights, other.weights, strict=True)
            for name in w
        )
    )


def counts_of(labels: Tensor | NDArray[Any], bags: Bags) -> list[list[int]]:
    """Count the labels of every class in each bag."""
    given = np.asarray(labels)
    return [
        [int((given[first:last] == c).sum()) for c in range(bags.n_classes)]
        for first, last in pairwise(bags.offsets.tolist())
    ]


def _require_finite(found: Training, bags: Bags) -> None:
    """Require what a training of any bags must do: finite losses, and labels within the counts."""
    losses = found.history["loss"]
    require(bool(np.isfinite(losses).all()), f"the losses are {losses}.")
    for labels in found.labels:
        counts, wanted = counts_of(labels, bags), bags.counts.tolist()
        require(counts == wanted, f"the labels' counts are {counts}, not {wanted}.")


# ------------------------------------------------------------------------------------------ checks


@_named
def learns(given: Given) -> None:
    """Most instances are told apart, although only proportions were known; and the loss falls."""
    bags = toy_bags((4, 1, 9, 6, 12, 2, 7, 10, 5, 8, 11, 3) * 3, seed=1)
    method = _method_for(given, bags)
    found = train(toy_network(bags), bags, method, bags, epochs=25, batch_size=32)
    _require_finite(found, bags)
    for name, least in (("loss", 0.9), ("valid_error", 1.0)):
        first, last = found.history[name][0], found.history[name][-1]
        require(last < least * first, f"{name} went from {first:.3g} to {last:.3g}.")
    accuracy = found.history["valid_accuracy"][-1]
    require(accuracy > 0.8, f"the accuracy is {accuracy:.3f} where 0.8 is easy.")


@_named
def meets_the_counts(given: Given) -> None:
    """Wherever labels are decided, every bag has exactly its counts, from the start to the end."""
    bags = toy_bags()
    method = _method_for(given, bags)
    first = _start(method, bags).labels
    found = train(toy_network(bags), bags, method)
    if first is None:
        nothing = not found.labels and found.history.labels is None
        require(nothing, "there are no labels at the start, but later on.")
        return
    require(len(found.labels) == 3, "there are labels at the start, but not later on.")
    for labels in (first, *found.labels):
        kind = f"{labels.dtype} {tuple(labels.shape)}"
        require(kind == f"torch.int64 ({bags.n_instances},)", f"labels are {kind}.")
    _require_finite(replace(found, labels=[first, *found.labels]), bags)


@_named
def changes_labels_in_place(given: Given) -> None:
    """The tensor that the first step reads is the one that the last step reads."""
    bags = toy_bags()
    supervision = _start(_method_for(given, bags), bags)
    before = supervision.labels
    for epoch in (1, 2, 3):
        supervision.epoch_end(epoch, _some_confidence(bags, epoch))
    require(supervision.labels is before, "labels is another tensor after three epochs.")


@_named
def is_a_function_of_the_seed(given: Given) -> None:
    """The same seed gives the same bits, and another one other labels or weights."""
    bags = toy_bags()
    method = _method_for(given, bags)
    one, again, other = (
        train(toy_network(bags, dropout=0.2).train(mode), bags, method, bags, seed=seed)
        for seed, mode in ((3, True), (3, False), (4, True))  # the model's mode makes no difference
    )
    require(same(one, again), "two trainings with one seed differ.")
    require(not same(one, other), "two seeds lead to the same training.")


@_named
def goes_on_from_its_state(given: Given) -> None:
    """What `state_dict` returns is all there is: a fresh start with it goes on in the same way."""
    bags = toy_bags()
    method = _method_for(given, bags)
    trained = train(toy_network(bags), bags, method)
    ours, fresh = trained.supervision, _start(method, bags)
    fresh.load_state_dict({name: value.clone() for name, value in ours.state_dict().items()})

    batch = next(_batches(bags))
    losses = []
    for supervision in (ours, fresh):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(5)
            logits = trained.model(*batch.x)
            loss = supervision.instance_loss(trained.model, batch, logits)
            losses.append(None if loss is None else loss.item())
    require(losses[0] == losses[1], f"the next loss is {losses[1]}, not {losses[0]}.")
    for epoch in (4, 5):
        confidence = _some_confidence(bags, epoch)
        logged = [supervision.epoch_end(epoch, confidence) for supervision in (ours, fresh)]
        require(logged[0] == logged[1], f"epoch_end returns {logged[1]}, not {logged[0]}.")
    if ours.labels is not None and fresh.labels is not None:
        require(torch.equal(fresh.labels, ours.labels), "the labels differ after two more epochs.")
    ends = ours.state_dict(), fresh.state_dict()
    require(ends[0].keys() == ends[1].keys(), f"the state has {[*ends[1]]}, not {[*ends[0]]}.")
    for name, value in ends[0].items():
        require(torch.equal(value, ends[1][name]), f"{name} differs after two more epochs.")


@_named
def takes_bags_of_any_size(given: Given) -> None:
    """Unequal bags and bags of one instance work, also in steps so small that they stand alone."""
    bags = toy_bags((1, 1, 7, 1, 3, 1, 12, 1))
    steps: list[dict[str, Any]] = [{}, {"batch_size": 1}, {"bags_per_step": 1}, {"batch_size": 99}]
    for options in steps:
        model, method = toy_network(bags, norm=True), _method_for(given, bags)
        _require_finite(train(model, bags, method, bags, epochs=2, **options), bags)


@_named
def takes_a_single_bag(given: Given) -> None:
    """One bag is enough, even if it is larger than a step."""
    bags = toy_bags((21,))
    _require_finite(train(toy_network(bags, norm=True), bags, _method_for(given, bags)), bags)


@_named
def takes_rows_in_several_bags(given: Given) -> None:
    """A row that stands in several bags is an instance in each."""
    rng = np.random.default_rng(0)
    x, truth = rng.normal(size=(9, 2)).astype(np.float32), rng.integers(3, size=9)
    members = {"a": [0, 1, 2, 3], "b": [3, 4, 1, 5, 0], "c": [8, 3], "d": [3]}
    bags = Bags.from_members(x, members, truth=truth, classes=[0, 1, 2])
    _require_finite(train(toy_network(bags), bags, _method_for(given, bags), bags), bags)


@_named
def takes_steps_in_pieces(given: Given) -> None:
    """Bags larger than what goes through the network at once are no obstacle."""
    bags = toy_bags((40, 1, 9))
    model = toy_network(bags, norm=True)
    found = train(model, bags, _method_for(given, bags), instances_per_pass=6)
    _require_finite(found, bags)


@_named
def never_sees_the_truth(given: Given) -> None:
    """Truth that is left out, or replaced by another, changes nothing that is learned."""
    bags = toy_bags()
    others = np.random.default_rng(1).integers(3, size=bags.n_instances)
    one, none, noise = (
        train(toy_network(bags), b, _method_for(given, bags), b)
        for b in (bags, bags.without_truth(), replace(bags, truth=others))
    )
    require(one.bags.truth is None, "the method got bags with their truth.")
    require(same(one, none), "the training is another one without truth.")
    require(same(one, noise), "the training is another one with another truth.")


@_named
def is_frozen(given: Given) -> None:
    """A method is a frozen dataclass, whose settings a run does not change."""
    bags = toy_bags()
    method = _method_for(given, bags)
    require(is_dataclass(method), f"{type(method).__name__} is no dataclass.")
    before = describe(method)
    train(toy_network(bags), bags, method)
    require(describe(method) == before, f"{before} became {describe(method)}.")
    settings: Any = method
    for name in ("unit", *(setting.name for setting in fields(settings))):
        try:
            setattr(method, name, getattr(method, name))
        except FrozenInstanceError:
            continue
        raise AssertionError(f"{name} can be changed: it lacks @dataclass(frozen=True).")


@_named
def drives_several_runs_at_once(given: Given) -> None:
    """Runs that share a method do not influence one another, even while they take turns."""
    bags = toy_bags()
    method = _method_for(given, bags)
    alone = train(toy_network(bags), bags, copy.deepcopy(method))

    def another() -> None:
        train(toy_network(bags, seed=8), bags, method, seed=7, epochs=2)

    shared = train(toy_network(bags), bags, method, also=another)
    require(same(alone, shared), "a run is another one if others take turns with it.")


@_named
def remembers_only_its_main_passes(given: Given) -> None:
    """Of all passes of a step, BatchNorm remembers the one through the instances themselves."""
    bags = toy_bags()
    model = nn.Sequential(nn.BatchNorm1d(2, momentum=0.3), toy_network(bags))
    norm = nn.BatchNorm1d(2, momentum=0.3)
    method = _method_for(given, bags)
    found = train(model, bags, method, bags).weights[-1]
    for batch in _batches(bags, method.unit, epochs=3):
        norm(*batch.x)
    for name in ("num_batches_tracked", "running_mean", "running_var"):
        value, wanted = found[f"0.{name}"], norm.state_dict()[name]
        close = torch.allclose(value, wanted, rtol=1.3e-6, atol=1e-5)
        hint = "run other passes in apportion.engine.step.frozen_statistics"
        require(close, f"{name} is {value}, not {wanted}: {hint}.")


@_named
def takes_instances_in_parts(given: Given) -> None:
    """Instances may be numbers and codes: ``x`` is then a tuple, called as ``model(*x)``."""
    bags = toy_bags()
    codes = np.random.default_rng(2).integers(4, size=bags.n_rows)
    bags, model = replace(bags, x=(bags.x, codes)), _InParts()
    before = copy.deepcopy(model.state_dict())
    _require_finite(train(model, bags, _method_for(given, bags), bags), bags)
    for name, now in model.state_dict().items():
        require(not torch.equal(now, before[name]), f"{name} of the network was not trained.")


@_named
def takes_single_numbers(given: Given) -> None:
    """An instance may be one number: ``x`` is then of shape (M,)."""
    bags = toy_bags()
    bags = replace(bags, x=np.ascontiguousarray(bags.x[:, 0]))
    model = nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Linear(1, 3))
    _require_finite(train(model, bags, _method_for(given, bags)), bags)


@_named
def takes_codes_alone(given: Given) -> None:
    """Instances that are nothing but a category are taken, or a ConfigError says why not."""
    bags = toy_bags()
    bags = replace(bags, x=np.random.default_rng(2).integers(4, size=bags.n_rows))
    try:
        found = train(nn.Embedding(4, 3), bags, _method_for(given, bags))
    except ConfigError:
        return
    _require_finite(found, bags)


@_named
def runs_on_cuda(given: Given) -> None:
    """A GPU, where there is one, is taken as well as the CPU, and gives about the same."""
    if not torch.cuda.is_available():
        return
    bags = toy_bags()
    method = _method_for(given, bags)
    here, there, again = (
        train(toy_network(bags), bags, method, bags, precision="float32", device=device)
        for device in ("cpu", "cuda", "cuda")
    )
    on_gpu = next(there.model.parameters()).is_cuda
    require(on_gpu and len(there.labels) == len(here.labels), "it did not train on the GPU.")
    _require_finite(there, bags)
    for other, most in ((here, 0.05), (again, 1e-3)):
        losses = there.history["loss"][0], other.history["loss"][0]
        require(abs(losses[0] - losses[1]) < most, f"the first losses are {losses}.")
    mixed = train(toy_network(bags), bags, method, bags, device="cuda", instances_per_pass=5)
    _require_finite(mixed, bags)


METHOD_CHECKS: tuple[Callable[[Given], None], ...] = (
    learns,
    meets_the_counts,
    changes_labels_in_place,
    is_a_function_of_the_seed,
    goes_on_from_its_state,
    takes_bags_of_any_size,
    takes_a_single_bag,
    takes_rows_in_several_bags,
    takes_steps_in_pieces,
    never_sees_the_truth,
    is_frozen,
    drives_several_runs_at_once,
    remembers_only_its_main_passes,
    takes_instances_in_parts,
    takes_single_numbers,
    takes_codes_alone,
    runs_on_cuda,
)
