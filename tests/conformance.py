"""What holds for every method, as checks that take one.

A method of your own is checked in the same way:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_method_conforms(check):
        check(MyMethod())

Settings that depend on the bags, such as labels for each of their instances, are given as a
function that makes the method for some bags. Every check trains a tiny network on made-up bags.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.batches import Instances, Unit, place
from apportion.errors import ConfigError
from apportion.methods.base import Method, Supervision
from apportion.methods.registry import describe
from apportion.nets.normalized import Normalized
from apportion.training.fit import fit
from apportion.training.session import History

CPU = torch.device("cpu")
Given = Method | Callable[[Bags], Method]
MIXED = (1, 7, 1, 3, 12, 1, 5, 2)  # sizes of bags

# -------------------------------------------------------------------------------- made-up problems


def toy_bags(sizes: tuple[int, ...] = MIXED, *, seed: int = 0, spread: float = 0.4) -> Bags:
    """Three clouds in the plane, in bags of very different proportions, rows in any order."""
    rng = np.random.default_rng(seed)
    bag = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    shares = rng.dirichlet(np.full(3, 0.4), len(sizes))
    truth = np.array([rng.choice(3, p=shares[i]) for i in bag])
    truth[:3] = 0, 1, 2
    angle = 2 * np.pi * truth / 3
    x = (
        3
        + 2 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        + spread * rng.normal(size=(len(bag), 2))
    )
    return Bags.from_rows(x.astype(np.float32), bag, truth=truth, classes=[0, 1, 2])


def toy_network(
    bags: Bags, *, seed: int = 0, dropout: float = 0.0, norm: bool = False
) -> nn.Module:
    """A perceptron with its normalisation."""
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


class InParts(nn.Module):
    """Takes numbers and codes of categories."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            self.numbers = nn.Linear(2, 3)
            self.codes = nn.Embedding(4, 3)

    def forward(self, numbers: Tensor, codes: Tensor) -> Any:
        assert numbers.is_floating_point()
        assert codes.dtype == torch.int64
        return self.numbers(numbers) + self.codes(codes)


# ---------------------------------------------------------------------------------------- training


@dataclass(frozen=True)
class Watched:
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
        known = [{**record} for record in self.history.records]
        for record in known:
            del record["seconds"]
            for name in [name for name in record if name.endswith("accuracy")]:
                del record[name]
        return known


def config_for(**options: Any) -> TrainConfig:
    small = {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "threads": 1, "device": "cpu"}
    return TrainConfig(**{**small, **options})


def method_for(given: Any, bags: Bags) -> Method:
    """A method as it was given, or made for some bags."""
    method: Method = given if hasattr(given, "start") else given(bags)
    return method


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
    watched, labels, weights = Watched(method), [], []

    def look(record: dict[str, Any], model: nn.Module) -> None:
        now = watched.started[-1][1].labels
        if now is not None:
            labels.append(now.cpu().clone())
        weights.append({name: w.detach().cpu().clone() for name, w in model.state_dict().items()})
        also()

    history = fit(
        model,
        bags,
        valid,
        method=watched,
        config=config_for(**options),
        on_epoch=look,
        progress=False,
    )
    return Training(model, history, *watched.started[-1], labels, weights)


def same(one: Training, other: Training) -> bool:
    """Whether two trainings are equal to the bit: weights, labels and what was logged."""
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
    """How many labels of every class each bag got."""
    given = np.asarray(labels)
    return [
        [int((given[first:last] == c).sum()) for c in range(bags.n_classes)]
        for first, last in pairwise(bags.offsets.tolist())
    ]


# ------------------------------------------------------------------------------------------ checks


def learns(given: Given) -> None:
    """Most instances are told apart, although only proportions were known; and the loss falls."""
    bags = toy_bags((4, 1, 9, 6, 12, 2, 7, 10, 5, 8, 11, 3) * 3, seed=1)
    chance = bags.counts.sum(axis=0).max() / bags.n_instances
    assert chance < 0.5
    found = train(
        toy_network(bags), bags, method_for(given, bags), bags, epochs=25, batch_size=32
    ).history
    accuracy, loss = found["valid_accuracy"], found["loss"]
    assert accuracy[-1] > 0.8
    assert loss[-1] < 0.9 * loss[0]
    assert np.isfinite(loss).all()
    assert found["valid_error"][-1] < found["valid_error"][0]


def meets_the_counts(given: Given) -> None:
    """Wherever labels are decided, every bag has exactly its counts, from the start to the end."""
    bags = toy_bags()
    method = method_for(given, bags)
    started = method.start(bags.without_truth(), epochs=3, device=CPU, seed=0, threads=1)
    found = train(toy_network(bags), bags, method)
    if started.labels is None:
        assert found.labels == []
        assert found.history.labels is None
        return
    assert len(found.labels) == 3
    assert found.history.labels is not None
    for labels in (started.labels, *found.labels, found.history.labels):
        assert labels.shape == (bags.n_instances,)
        assert labels.dtype == torch.int64
        assert counts_of(labels, bags) == bags.counts.tolist()


def changes_labels_in_place(given: Given) -> None:
    """The tensor that the first step reads is the one that the last step reads."""
    bags = toy_bags()
    supervision = method_for(given, bags).start(bags, epochs=3, device=CPU, seed=0, threads=1)
    before = supervision.labels
    kept = None if before is None else before.clone()
    for epoch in (1, 2, 3):
        supervision.epoch_end(epoch, some_confidence(bags, epoch))
    assert supervision.labels is before
    if before is not None:
        assert kept is not None
        assert not torch.equal(before, kept)


def is_a_function_of_the_seed(given: Given) -> None:
    """The same seed gives the same bits, and another one other labels or weights."""
    bags = toy_bags()
    method = method_for(given, bags)
    one, again, other = (
        train(toy_network(bags, dropout=0.2).train(mode), bags, method, bags, seed=seed)
        for seed, mode in ((3, True), (3, False), (4, True))  # the model's mode makes no difference
    )
    assert same(one, again)
    assert not same(one, other)
    assert one.history.best_epoch == again.history.best_epoch


def goes_on_from_its_state(given: Given) -> None:
    """What `state_dict` gives is all there is: a fresh start with it goes on in the same way."""
    bags = toy_bags()
    method = method_for(given, bags)
    trained = train(toy_network(bags), bags, method)
    state = {name: value.clone() for name, value in trained.supervision.state_dict().items()}
    assert all(isinstance(value, Tensor) for value in state.values())
    fresh = method.start(bags.without_truth(), epochs=3, device=CPU, seed=0, threads=1)
    fresh.load_state_dict(state)

    batch = next(batches(bags))
    losses = []
    for supervision in (trained.supervision, fresh):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(5)
            logits = trained.model(*batch.x)
            losses.append(supervision.instance_loss(trained.model, batch, logits))
    if losses[0] is None or losses[1] is None:
        assert losses == [None, None]
    else:
        assert torch.equal(losses[0], losses[1])

    for epoch in (4, 5):
        confidence = some_confidence(bags, epoch)
        ours = trained.supervision.epoch_end(epoch, confidence)
        assert fresh.epoch_end(epoch, confidence) == ours
        if fresh.labels is not None:
            assert trained.supervision.labels is not None
            assert torch.equal(fresh.labels, trained.supervision.labels)
    ends = trained.supervision.state_dict(), fresh.state_dict()
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def takes_bags_of_any_size(given: Given) -> None:
    """Unequal bags and bags of one instance work, also in steps so small that they stand alone."""
    bags = toy_bags((1, 1, 7, 1, 3, 1, 12, 1))
    steps: list[dict[str, Any]] = [{}, {"batch_size": 1}, {"bags_per_step": 1}, {"batch_size": 99}]
    for options in steps:
        model = toy_network(bags, norm=True)
        found = train(model, bags, method_for(given, bags), bags, epochs=2, **options)
        assert np.isfinite(found.history["loss"]).all()


def takes_a_single_bag(given: Given) -> None:
    """One bag is enough, even if it is larger than a step."""
    bags = toy_bags((21,))
    found = train(toy_network(bags, norm=True), bags, method_for(given, bags))
    assert np.isfinite(found.history["loss"]).all()
    assert all(counts_of(labels, bags) == bags.counts.tolist() for labels in found.labels)


def takes_rows_in_several_bags(given: Given) -> None:
    """A row that stands in several bags is an instance in each."""
    rng = np.random.default_rng(0)
    x, truth = rng.normal(size=(9, 2)).astype(np.float32), rng.integers(3, size=9)
    members = {"a": [0, 1, 2, 3], "b": [3, 4, 1, 5, 0], "c": [8, 3], "d": [3]}
    bags = Bags.from_members(x, members, truth=truth, classes=[0, 1, 2])
    found = train(toy_network(bags), bags, method_for(given, bags), bags)
    assert np.isfinite(found.history["loss"]).all()
    assert all(counts_of(labels, bags) == bags.counts.tolist() for labels in found.labels)


def takes_steps_in_pieces(given: Given) -> None:
    """Bags larger than what goes through the network at once are no obstacle."""
    bags = toy_bags((40, 1, 9))
    found = train(toy_network(bags, norm=True), bags, method_for(given, bags), instances_per_pass=6)
    assert np.isfinite(found.history["loss"]).all()


def never_sees_the_truth(given: Given) -> None:
    """Labels that are left out, or replaced by others, change nothing that is learned."""
    bags = toy_bags()
    others = np.random.default_rng(1).integers(3, size=bags.n_instances)
    one, none, noise = (
        train(toy_network(bags), b, method_for(given, bags), b)
        for b in (bags, bags.without_truth(), replace(bags, truth=others))
    )
    assert one.bags.truth is None
    assert same(one, none)
    assert same(one, noise)


def is_frozen(given: Given) -> None:
    """Settings cannot be changed, and a run does not change them."""
    bags = toy_bags()
    method = method_for(given, bags)
    before = describe(method)
    train(toy_network(bags), bags, method)
    assert describe(method) == before
    settings: Any = method
    for setting in fields(settings):
        with pytest.raises(FrozenInstanceError):
            setattr(method, setting.name, getattr(method, setting.name))


def drives_several_runs_at_once(given: Given) -> None:
    """Runs that share a method do not influence one another, even while they take turns."""
    bags = toy_bags()
    method = method_for(given, bags)
    alone = train(toy_network(bags), bags, copy.deepcopy(method))

    def another() -> None:
        train(toy_network(bags, seed=8), bags, method, seed=7, epochs=2)

    shared = train(toy_network(bags), bags, method, also=another)
    assert same(alone, shared)


def remembers_only_its_main_passes(given: Given) -> None:
    """Of all passes of a step, BatchNorm remembers the one through the instances themselves."""
    bags = toy_bags()
    model = nn.Sequential(nn.BatchNorm1d(2, momentum=0.3), toy_network(bags))
    norm = nn.BatchNorm1d(2, momentum=0.3)
    method = method_for(given, bags)
    found = train(model, bags, method, bags).weights[-1]
    for batch in batches(bags, method.unit, epochs=3):
        norm(*batch.x)
    for name, wanted in norm.state_dict().items():
        if name not in ("weight", "bias"):
            torch.testing.assert_close(found[f"0.{name}"], wanted)


def takes_instances_in_parts(given: Given) -> None:
    """Instances may be numbers and codes: ``x`` is then a tuple, called as ``model(*x)``."""
    bags = toy_bags()
    codes = np.random.default_rng(2).integers(4, size=bags.n_rows)
    bags = replace(bags, x=(bags.x, codes))
    model = InParts()
    before = copy.deepcopy(model.state_dict())
    found = train(model, bags, method_for(given, bags), bags)
    assert np.isfinite(found.history["loss"]).all()
    for name, now in model.state_dict().items():
        assert not torch.equal(now, before[name])


def takes_single_numbers(given: Given) -> None:
    """An instance may be one number: ``x`` is then of shape (M,)."""
    bags = toy_bags()
    bags = replace(bags, x=np.ascontiguousarray(bags.x[:, 0]))
    model = nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Linear(1, 3))
    found = train(model, bags, method_for(given, bags))
    assert np.isfinite(found.history["loss"]).all()


def takes_codes_alone(given: Given) -> None:
    """Instances that are nothing but a category are instances, too, or an error says why not."""
    bags = toy_bags()
    bags = replace(bags, x=np.random.default_rng(2).integers(4, size=bags.n_rows))
    try:
        found = train(nn.Embedding(4, 3), bags, method_for(given, bags))
    except ConfigError as error:
        assert "none of them holds floating-point" in str(error)  # noqa: PT017
    else:
        assert np.isfinite(found.history["loss"]).all()


def runs_on_cuda(given: Given) -> None:
    """A GPU is taken as well as the CPU, and gives about the same."""
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    bags = toy_bags()
    method = method_for(given, bags)
    here = train(toy_network(bags), bags, method, bags, precision="float32")
    there, again = (
        train(toy_network(bags), bags, method, bags, precision="float32", device="cuda")
        for _ in range(2)
    )
    assert next(there.model.parameters()).is_cuda
    assert len(there.labels) == len(here.labels)
    assert all(counts_of(labels, bags) == bags.counts.tolist() for labels in there.labels)
    assert abs(there.history["loss"][0] - here.history["loss"][0]) < 0.05
    assert abs(there.history["loss"][0] - again.history["loss"][0]) < 1e-3
    mixed = train(toy_network(bags), bags, method, bags, device="cuda", instances_per_pass=5)
    assert np.isfinite(mixed.history["loss"]).all()


CHECKS: tuple[Callable[[Given], None], ...] = (
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

# ---------------------------------------------------------------------------------- what they need


def instances_of(bags: Bags) -> Instances:
    return place((bags, None, None), CPU)[0]


@dataclass(frozen=True)
class PlainBatch:
    """The instances of one step."""

    x: tuple[Tensor, ...]
    position: Tensor
    progress: Tensor


def batches(bags: Bags, unit: Unit = "instances", *, epochs: int = 1) -> Iterator[Any]:
    """The batches that a training with `config_for()` sees, in its order."""
    instances = instances_of(bags)
    for epoch in range(1, epochs + 1):
        for step in instances.steps(unit, config_for(epochs=epochs), epoch):
            progress = torch.tensor(step.progress, dtype=torch.float64)
            assert step.x is not None
            yield PlainBatch(step.x, step.position, progress)


def some_confidence(bags: Bags, seed: int) -> Tensor:
    """Confidences in any labels at all."""
    logits = np.random.default_rng(seed).normal(size=(bags.n_instances, bags.n_classes))
    return torch.from_numpy(logits.astype(np.float32)).softmax(dim=1)
