r"""Several small models of a table, averaged: what `method="auto"` does.

No method is the best for every kind of bags, and bags without labels cannot tell which one is: held
out or not, they choose badly between good methods. What holds everywhere is to average few models
that err differently. Each is a perceptron of 64 units, trained in full steps (or in steps of 16,384
instances, where there are more):

* ``likelihood``: the likelihood of the counts (`apportion.methods.count_likelihood`);
* ``proportions``: Eq. 7, each bag by its size, then soft labels (two classes only);
* ``linear start``: the perceptron beside a linear model, which it starts as, the likelihood of the
  counts, then soft labels;
* ``linear``: that linear model itself (more than two classes only).

The one choice that the bags decide: by how much more their proportions differ than those of bags
filled at random, the overdispersion

.. math:: \phi = \frac{1}{(n - 1) C} \sum_i \sum_c \frac{|B^i| (p^i_c - q_c)^2}{q_c (1 - q_c)}

with q the proportions of all instances. Bags that differ (φ > 2) teach much, and the danger is to
fit them too closely: each model is then the mean of four, each trained without a quarter of the
bags. Bags that are alike cannot spare a quarter: each model is trained once, on all of them.

The models that did not see a bag also tell how well its proportions are predicted, against the
proportions of all other bags. That is what to expect, and whether anything was learned at all.
Models on halves of the bags serve for it where bags are alike; with two classes they also set the
slope of the log-odds, which such bags leave too steep or too flat.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.device import device_for, own_threads
from apportion.errors import ConfigError, count
from apportion.labels.linear import fit_linear
from apportion.learners.linear import linear_net, start_as
from apportion.methods.base import Method
from apportion.methods.count_likelihood import CountLikelihood
from apportion.methods.proportion_loss import ProportionLoss
from apportion.methods.soft_labels import SoftLabels
from apportion.metrics import bag_means
from apportion.model.model import Model, describe_parts
from apportion.nets.average import Average
from apportion.nets.build import build_net
from apportion.plan import kind_of_instances, threads_for
from apportion.randomness import Purpose, generator
from apportion.training.checks import warn_of_bags
from apportion.training.job import Job
from apportion.training.session import Session

__all__ = ["Expectation", "Learned", "Member", "in_words", "learn", "members_of", "overdispersion"]

HIDDEN = 64
MOST_PER_STEP = 16_384  # instances
PENALTY = {2: 10.0}  # of the linear start; 1 with more classes
DIFFERING = 2.0  # φ
FOLDS = 4
STEEPNESS = 0.5  # the spread of the logarithm of the slope, before the bags are seen
NO_SKILL = 1.0  # standard errors

Floats = NDArray[np.float64]


class Stage(NamedTuple):
    """One training of a net."""

    method: Method
    steps: int
    learning_rate: float
    warmup: int = 0  # steps


LIKELIHOOD = CountLikelihood(ramp=0)
SHARPEN = Stage(SoftLabels(), 160, 2.5e-3)
STAGES: dict[str, list[Stage]] = {
    "likelihood": [Stage(LIKELIHOOD, 400, 5e-3, 10)],
    "proportions": [Stage(ProportionLoss(by_size=True), 150, 5e-3, 10), SHARPEN],
    "linear start": [Stage(LIKELIHOOD, 150, 5e-3, 10), SHARPEN],
    "linear": [],
}


class Member(NamedTuple):
    """One net of the average, or one that only judges bags."""

    kind: str
    fold: int | None  # of the bags, that it does not see; None if it sees all
    kept: bool  # in the average

    def __str__(self) -> str:
        return self.kind if self.fold is None else f"{self.kind}, without fold {self.fold + 1}"


@dataclass(frozen=True)
class Expectation:
    """How well bags are predicted by models that did not see them."""

    overdispersion: float  # φ
    skill: float  # the share of the loss of the overall proportions that is saved
    standard_errors: float  # by which that is above 0, over the bags

    @property
    def learned(self) -> bool:
        """Whether held-out bags are predicted better than by the proportions of the others."""
        return self.standard_errors >= NO_SKILL

    def __str__(self) -> str:
        others = "than by the proportions of all other bags"
        if self.learned:
            return f"held-out bags are predicted with {self.skill:.0%} less error {others}"
        return (
            f"held-out bags are not predicted clearly better {others} "
            f"({self.standard_errors:.1f} standard errors): perhaps nothing can be learned"
        )


class Learned(NamedTuple):
    """The average, and what to expect of it; None where there are too few bags to say."""

    net: Average
    expectation: Expectation | None


def overdispersion(bags: Bags) -> float:
    """Return by how much more proportions differ than those of bags filled at random.

    Examples
    --------
    >>> alike = Bags.from_rows(None, np.arange(40) // 10, [[0.5, 0.5]] * 4)
    >>> pure = Bags.from_rows(None, np.arange(40) // 10, [[1, 0], [0, 1]] * 2)
    >>> overdispersion(alike), round(overdispersion(pure), 2)
    (0.0, 13.33)
    """
    sizes, p = bags.sizes[:, None], bags.proportions
    q = (sizes * p).sum(axis=0) / sizes.sum()
    occurs = (q > 0) & (q < 1)
    if not occurs.any() or bags.n_bags < 2:
        return 0.0
    chance = q[occurs] * (1 - q[occurs])
    terms = sizes * (p[:, occurs] - q[occurs]) ** 2 / chance
    return float(terms.sum() / (bags.n_bags - 1) / occurs.sum())


def members_of(bags: Bags) -> list[Member]:
    """List the nets to train, in this order."""
    several = bags.n_classes > 2
    kinds = ["likelihood", *([] if several else ["proportions"]), "linear start"]
    kinds += ["linear"] if several else []
    differing = overdispersion(bags) > DIFFERING
    n_folds = _n_folds(bags)
    whole = [] if differing and n_folds > 1 else [Member(kind, None, True) for kind in kinds]
    judges = [Member(kind, fold, not whole) for fold in range(n_folds) for kind in kinds]
    return whole + (judges if n_folds > 1 else [])


def _n_folds(bags: Bags) -> int:
    return min(FOLDS if overdispersion(bags) > DIFFERING else 2, bags.n_bags)


def learn(
    bags: Bags,
    *,
    seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
    options: Mapping[str, Any] | None = None,
    done: Sequence[Mapping[str, torch.Tensor]] = (),
    on_member: Callable[[dict[str, Any], nn.Module], None] | None = None,
) -> Learned:
    """Train all nets of a table, and average them.

    Parameters
    ----------
    threads : int, optional
        By default 1 where steps are small, or else as torch is set.
    options : mapping, optional
        Options of `TrainConfig` over those of every net: epochs, batch_size, learning_rate,
        weight_decay.
    done : sequence of state dicts
        The weights of the first nets, if these were trained before.
    on_member : callable, optional
        Called with a record and the net after each that was trained.
    """
    if kind_of_instances(bags) != "table":
        raise ConfigError(
            f"auto is for tables, but the instances are {kind_of_instances(bags)}.",
            "Choose a method of nets, for example fpl.",
        )
    bags = bags.without_truth()
    warn_of_bags(bags)
    members, folds = members_of(bags), _folds(bags, seed)
    if threads is None:
        planned, _ = threads_for(bags, min(bags.n_instances, MOST_PER_STEP))
        threads = planned if isinstance(planned, int) else None
    with own_threads(threads):
        place = device_for(device)
        nets: list[nn.Module] = []
        for number, member in enumerate(members):
            own = bags if member.fold is None else bags[folds != member.fold]
            net, stages = _untrained(member.kind, own, bags, seed + number)
            record = {"epoch": number + 1, "member": str(member), "loss": 0.0}
            began = time.perf_counter()
            if number < len(done):
                net.load_state_dict(done[number])
            else:
                for stage in stages:
                    config = _config(stage, own, seed + number, device, options or {})
                    record["loss"] = _train(net, own, stage.method, config, place)
                record["seconds"] = {"train": round(time.perf_counter() - began, 4)}
                if on_member is not None:
                    on_member(record, net)
            nets.append(net.eval())
        average = Average(list(_groups(members, nets)))
        expectation = None
        if len(set(folds)) > 1:
            held_out = _held_out(bags, members, nets, folds, device)
            expectation = _expectation(bags, held_out, folds)
            if bags.n_classes == 2 and any(member.fold is None for member in members):
                slope, intercept = _slope(bags, held_out)
                average.slope.fill_(slope)
                average.bias.copy_(torch.tensor([0.0, intercept]))
    return Learned(average.eval(), expectation)


def _folds(bags: Bags, seed: int) -> NDArray[np.int64]:
    return generator(seed, Purpose.FOLDS, 0).permutation(bags.n_bags) % _n_folds(bags)


def _untrained(kind: str, own: Bags, bags: Bags, seed: int) -> tuple[nn.Module, list[Stage]]:
    """Return a net with its first weights, and how it is trained; `own` are the bags it sees."""
    if kind.startswith("linear"):
        linear = fit_linear(own, l2=PENALTY.get(bags.n_classes, 1.0), seed=seed)
        if kind == "linear":
            return linear_net(linear), []
    net = build_net("mlp", own, seed=seed, hidden=[HIDDEN], skip=kind == "linear start")
    if kind == "linear start":
        start_as(net, linear)
    else:
        _start_at_totals(net, own)
    return net, STAGES[kind]


def _start_at_totals(net: nn.Module, bags: Bags) -> None:
    """Begin with the proportions of all instances, from which weight decay draws away else."""
    shares = (bags.sizes[:, None] * bags.proportions).sum(axis=0) / bags.n_instances
    last = [module for module in net.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        last.bias.copy_(torch.from_numpy(np.log(np.clip(shares, 1e-6, None))))


def _config(
    stage: Stage, bags: Bags, seed: int, device: str, options: Mapping[str, Any]
) -> TrainConfig:
    n = bags.n_instances
    per_step = min(n, MOST_PER_STEP)
    room = max(1, 2**24 // bags.n_classes**2)  # instances whose covariances fit
    return TrainConfig(
        **{
            "epochs": max(1, math.ceil(stage.steps * per_step / n)),
            "batch_size": per_step,
            "instances_per_pass": min(per_step, room),
            "learning_rate": stage.learning_rate,
            "weight_decay": 1.0,
            "schedule": "cosine",
            "warmup": stage.warmup / stage.steps,
            "seed": seed,
            "device": device,
            "precision": "float32",
            **options,
        }
    )


def _train(
    net: nn.Module, bags: Bags, method: Method, config: TrainConfig, device: torch.device
) -> float:
    """Train a net, and return its last loss. That is `fit` without records, which nobody reads."""
    session = Session(Job(net, bags, method=method, config=config), device)
    loss = math.nan
    with session.turn():
        if session.supervision.decides_first:
            session.learn_from(0, session.confidence_to_learn_from())
        for epoch in range(1, config.epochs + 1):
            loss = session.train_epoch(epoch)
            session.learn_from(epoch, session.confidence_to_learn_from())
    session.finish()
    return loss


def _groups(members: Sequence[Member], nets: Sequence[nn.Module]) -> Iterator[list[nn.Module]]:
    """Yield the nets of each kind, which the average has as a group."""
    for kind in dict.fromkeys(member.kind for member in members):
        yield [net for m, net in zip(members, nets, strict=True) if m.kind == kind and m.kept]


# ----------------------------------------------------------------------------- bags held out


def _held_out(
    bags: Bags, members: Sequence[Member], nets: Sequence[nn.Module], folds: Any, device: str
) -> Floats:
    """Return the confidences (N, C) of all instances by nets that did not see their bags."""
    found = np.empty((bags.n_instances, bags.n_classes))
    about: dict[str, Any] = {"columns": bags.columns, "device": device}
    for fold in np.unique(folds):
        own = [net for m, net in zip(members, nets, strict=True) if m.fold == fold]
        average = Average([[net] for net in own]).eval()
        model = Model(average, bags.classes, describe_parts(bags), **about)
        judged = np.repeat(folds == fold, bags.sizes)
        found[judged] = model.confidence(bags[folds == fold])
    return found


def _expectation(bags: Bags, held_out: Floats, folds: Any) -> Expectation:
    """Compare held-out bags with what the proportions of all others would have predicted."""
    sizes, p = bags.sizes, bags.proportions
    others = np.empty_like(p)
    for fold in np.unique(folds):
        rest = folds != fold
        others[~rest] = (sizes[rest, None] * p[rest]).sum(axis=0) / sizes[rest].sum()
    ours, theirs = (_divergence(sizes, p, q) for q in (bag_means(held_out, bags.offsets), others))
    saved = theirs - ours
    error = saved.std(ddof=1) / math.sqrt(len(saved))
    return Expectation(
        overdispersion(bags),
        float(saved.sum() / max(theirs.sum(), 1e-12)),
        float(saved.mean() / max(error, 1e-12)),
    )


def _divergence(sizes: Any, given: Floats, predicted: Floats) -> Floats:
    """Return n KL(given ‖ predicted) of each bag."""
    q = np.clip(predicted, 1e-4, None)
    q = q / q.sum(axis=1, keepdims=True)
    terms = given * (np.log(np.clip(given, 1e-12, None)) - np.log(q))
    found: Floats = sizes * terms.sum(axis=1)
    return found


def _slope(bags: Bags, held_out: Floats) -> tuple[float, float]:
    """Return slope and intercept of the log-odds, by the likelihood of the counts of all bags."""
    p = np.clip(held_out, 1e-4, 1)
    odds, first = np.log(p[:, 1] / p[:, 0]), bags.offsets[:-1]
    counts = bags.sizes * bags.proportions[:, 1]

    def loss(w: Floats) -> float:
        q = 1 / (1 + np.exp(-np.clip(np.exp(w[0]) * odds + w[1], -30, 30)))
        mean, variance = np.add.reduceat(q, first), np.add.reduceat(q * (1 - q), first) + 0.25
        likelihood = ((counts - mean) ** 2 / (2 * variance) + 0.5 * np.log(variance)).sum()
        return float(likelihood + 0.5 * (w[0] / STEEPNESS) ** 2)

    steepness, intercept = minimize(loss, np.zeros(2), method="Nelder-Mead").x
    return float(np.exp(steepness)), float(intercept)


def in_words(bags: Bags) -> str:
    """Return what is trained and why, in one sentence."""
    members = members_of(bags)
    kinds = ", ".join(dict.fromkeys(member.kind for member in members))
    each = f"{_n_folds(bags)} nets of each kind, each without a part of the bags"
    if any(member.fold is None for member in members):
        each = "one net of each kind, on all bags"
    return (
        f"proportions differ {overdispersion(bags):.2g} times as much as by chance, in "
        f"{count(bags.n_bags, 'bag')}: {each} ({kinds})"
    )
