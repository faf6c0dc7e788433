"""The nets of an average, each trained on its own."""

from __future__ import annotations

import hashlib
import math
from typing import NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import nn

from apportion.auto.members import LONGEST_FIRST, MOST_AT_ONCE, PER_STEP, SMALL_STEPS
from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.device import device_for, own_threads
from apportion.labels.linear import LINEAR_FITS, fit_linear
from apportion.learners.linear import linear_net, start_as
from apportion.learners.summaries import fit_summaries
from apportion.methods.base import Method
from apportion.methods.count_likelihood import CountLikelihood
from apportion.methods.proportion_loss import ProportionLoss
from apportion.methods.soft_labels import SoftLabels
from apportion.nets.build import build_net
from apportion.plan.choices import Choice
from apportion.plan.kinds import SIGNALS, kind_of_instances
from apportion.plan.plan import make_plan
from apportion.threads import threads_worth
from apportion.training.job import Job
from apportion.training.session import Session

__all__ = ["digest", "train_net"]

HIDDEN = 64
PENALTY = {2: 10.0}  # of the linear start; 1 with more classes


class Stage(NamedTuple):
    """One training of a net."""

    method: Method
    steps: int
    learning_rate: float
    warmup: int = 0  # steps


MOST_SMALL_STEPS = 10_000
LIKELIHOOD = CountLikelihood(ramp=0)
SHARPEN = Stage(SoftLabels(), 160, 2.5e-3)
STAGES: dict[str, list[Stage]] = {
    "likelihood": [Stage(LIKELIHOOD, 400, 5e-3, 10)],
    "proportions": [Stage(ProportionLoss(by_size=True), 150, 5e-3, 10), SHARPEN],
    "linear start": [Stage(LIKELIHOOD, 150, 5e-3, 10), SHARPEN],
}


def digest() -> str:
    """Return a hash of all that decides how nets are trained, and in which order."""
    told = (HIDDEN, PENALTY, MOST_AT_ONCE, PER_STEP, MOST_SMALL_STEPS, LONGEST_FIRST, STAGES)
    return hashlib.sha256(repr(told).encode()).hexdigest()


def train_net(
    kind: str, bags: Bags, *, step: int, seed: int, device: str, alone: bool = False
) -> tuple[nn.Module, dict[str, float]]:
    """Train a net of some kind on the bags that it sees.

    Parameters
    ----------
    step : int
        How many instances a full step takes.
    alone : bool
        Whether it is all that is trained: the penalty of a linear model is then chosen by bags
        held out.

    Returns
    -------
    nn.Module and dict
        The net, and numbers for the log: its last loss, or its penalty.
    """
    if alone and kind_of_instances(bags) == SIGNALS:
        with threadpool_limits(1, user_api="blas"):
            return fit_summaries(bags, seed=seed, device=device), {}
    penalty = PENALTY.get(bags.n_classes, 1.0)
    if alone or kind == "linear":
        with threadpool_limits(1, user_api="blas"):  # equal bits on every machine
            linear = LINEAR_FITS[kind](bags, l2=None if alone else penalty, seed=seed)
        return linear_net(linear), {"l2": linear.l2}
    if kind == SMALL_STEPS:
        net, config = build_net("mlp", bags, seed=seed), _small(bags, seed, device)
        method: Method = CountLikelihood() if bags.n_classes > 2 else ProportionLoss()
        columns = sum(part.shape[1] for part in bags.parts)
        worth = threads_worth(config.batch_size * columns)
        with own_threads(min(worth, torch.get_num_threads())):
            loss = _train(net, bags, method, config)
        return net, {"loss": loss}
    net = build_net("mlp", bags, seed=seed, hidden=[HIDDEN], skip=kind == "linear start")
    if kind == "linear start":
        with threadpool_limits(1, user_api="blas"):
            start_as(net, fit_linear(bags, l2=penalty, seed=seed))
    else:
        _start_at_totals(net, bags)
    loss = math.nan
    for stage in STAGES[kind]:
        loss = _train(net, bags, stage.method, _config(stage, bags, step, seed, device))
    return net, {"loss": loss}


def _start_at_totals(net: nn.Module, bags: Bags) -> None:
    """Begin with the proportions of all instances: weight decay would draw away from them."""
    shares = (bags.sizes[:, None] * bags.proportions).sum(axis=0) / bags.n_instances
    last = [module for module in net.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        last.bias.copy_(torch.from_numpy(np.log(np.clip(shares, 1e-6, None))))


def _config(stage: Stage, bags: Bags, step: int, seed: int, device: str) -> TrainConfig:
    n = bags.n_instances
    size = min(step, n)
    room = max(1, 2**24 // bags.n_classes**2)  # instances whose covariances fit
    return TrainConfig(
        epochs=max(1, math.ceil(stage.steps * size / n)),
        batch_size=size,
        instances_per_pass=min(size, room),
        learning_rate=stage.learning_rate,
        weight_decay=1.0,
        schedule="cosine",
        warmup=stage.warmup / stage.steps,
        seed=seed,
        device=device,
        precision="float32",
    )


def _small(bags: Bags, seed: int, device: str) -> TrainConfig:
    """Return what a single net is trained by, but for fewer epochs of large tables."""
    plan = make_plan(bags, validation=Choice(0.0, "nothing is selected"))
    most = math.ceil(MOST_SMALL_STEPS * plan.batch_size.value / bags.n_instances)
    options = {"epochs": min(plan.epochs.value, most), "precision": "float32"}
    return plan.config({**options, "seed": seed, "device": device})


def _train(net: nn.Module, bags: Bags, method: Method, config: TrainConfig) -> float:
    """Train a net, and return its last loss. That is `fit` without records, which nobody reads."""
    session = Session(Job(net, bags, method=method, config=config), device_for(config.device))
    loss = math.nan
    with session.turn():
        if session.supervision.decides_first:
            session.learn_from(0, session.confidence_to_learn_from())
        for epoch in range(1, config.epochs + 1):
            loss = session.train_epoch(epoch)
            session.learn_from(epoch, session.confidence_to_learn_from())
    session.finish()
    return loss
