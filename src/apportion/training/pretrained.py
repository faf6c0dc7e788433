"""What a net knows before it is trained, as a plan says: it is pre-trained, or that is read.

`LLPClassifier` and `apportion train` both ask here. In a run folder pre-training has a folder of
its own, and config.toml is written before it begins, so that a run which is killed in the middle of
it is one to go on with.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.device import device_for
from apportion.engine.distributed import is_one_of_many
from apportion.errors import ConfigError, RunError, count
from apportion.methods.registry import describe, method_named
from apportion.plan.choices import Choice, Choices
from apportion.plan.images import (
    Pretraining,
    planned_pretraining,
    planned_stem,
    steps_fitting,
    views_for,
)
from apportion.plan.plan import NET_OF_KIND, Plan
from apportion.runs.header import opened
from apportion.runs.run import WITHOUT_LABELS, Run, planned
from apportion.training.archive import begin
from apportion.training.job import Job, OnEpoch
from apportion.training.pretrain import (
    KIND,
    REMEDY,
    load_pretrained,
    pretrain,
    pretraining_config,
)
from apportion.training.session import Session

__all__ = ["PretrainPlan", "check_is_alone", "check_same_pretraining", "file_of",
           "load_as_planned", "net_as_before", "plan_alone", "pretrain_as_planned",
           "warn_of_time"]  # fmt: skip

log = logging.getLogger("apportion")

# Options of training that hold for pre-training as well.
ALIKE = ("seed", "device", "precision", "step_mode", "device_memory_gib", "threads", "workers",
         "checkpoint_every", "instances_per_pass")  # fmt: skip
LONG = 2_000  # rows that a net is shown on the CPU: some minutes, for images of 32 × 32


@dataclass(frozen=True)
class PretrainPlan(Choices):
    """What pre-training alone will use, and why."""

    net: Choice
    stem: Choice | None
    epochs: Choice
    batch_size: Choice
    augment: Choice


def plan_alone(
    rows: Bags, *, net: str, stem: str | None, options: Mapping[str, Any]
) -> tuple[PretrainPlan, TrainConfig]:
    """Decide what pre-training alone will use; options that are given go over what follows.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((1500, 1, 8, 8), np.uint8)
    >>> bags = Bags.from_rows(x, np.zeros(1500), {0: [1.0, 0.0]})
    >>> print(plan_alone(bags, net="resnet18", stem=None, options={"epochs": 3})[0])
    net         resnet18 (the instances are images)
    stem        cifar (images of 8 × 8 would be halved twice at once)
    epochs      3 (given)
    batch_size  128 (about an eighth of 1,500 images, from 32 to 1,024)
    augment     views (the default)
    """
    n, by_default = rows.n_instances, NET_OF_KIND["images"]
    planned: Any = planned_pretraining("images", n, None, True).value
    config = pretraining_config(n, **{"epochs": planned.epochs, **options})
    fewer = planned.epochs < TrainConfig.preset("pretrain").epochs
    follows = {
        "epochs": f"{n:,} images: fewer epochs show the net enough" if fewer else "the default",
        "batch_size": f"about an eighth of {n:,} images, from 32 to 1,024",
        "augment": "the default",
    }
    reasons = {name: "given" if name in options else why for name, why in follows.items()}
    begins = None if stem is None else Choice(stem, "given")
    if begins is None and net == by_default:
        height, width = map(int, rows.parts[0].shape[2:])
        begins = planned_stem(height, width)
    plan = PretrainPlan(
        net=Choice(net, "the instances are images" if net == by_default else "given"),
        stem=begins,
        epochs=Choice(config.epochs, reasons["epochs"]),
        batch_size=Choice(config.batch_size, reasons["batch_size"]),
        augment=Choice(",".join(config.augment), reasons["augment"]),
    )
    return plan, config


def pretrain_as_planned(
    job: Job,
    plan: Pretraining,
    *,
    on_epoch: OnEpoch | None = None,
    progress: bool | None = None,
) -> None:
    """Pre-train a net on the rows of the training bags, in place, before it is trained.

    Parameters
    ----------
    job : Job
        The training that follows, which need not have begun. If its run has a checkpoint, nothing
        is done. How a machine computes is the same before it.
    on_epoch, progress
        Of the pre-training.
    """
    config = job.config
    run = Run(job.run) if isinstance(job.run, str | PathLike) else job.run
    if run is not None and run.checkpoint.exists():  # which has the weights
        return
    check_is_alone()
    # What training would refuse is told before all this, and not after it; features of the net
    # itself will be others then.
    of_caller = callable(getattr(method_named(job.method), "first", None))
    Session(job, device_for(config.device), resumed=not of_caller).close()
    alike = {name: getattr(config, name) for name in ALIKE}
    settings = pretraining_config(
        plan.rows,
        epochs=plan.epochs,
        batch_size=min(steps_fitting(plan.rows), config.instances_per_pass),
        augment=views_for(config.augment),
        **alike,
    )
    inside = None if run is None else Run(run.pretraining)
    if inside is not None and inside.folder.is_symlink():
        raise RunError(
            f"{inside.folder} is a link: nothing is written through links.",
            "Remove it, or train in another folder.",
        )
    if inside is None or not inside.pretrained.exists():
        warn_of_time(plan, config)
    with nullcontext() if run is None else run.locked():
        if run is not None:
            resolved = {"device": str(device_for(config.device)), "torch": torch.__version__}
            begin(run, asdict(config), describe(method_named(job.method)), resolved, {})
        options: dict[str, Any] = {"on_epoch": on_epoch, "progress": progress}
        pretrain(job.net, job.train, config=settings, run=inside, **options)


def check_is_alone() -> None:
    """Check that this is the only process, as where a net is pre-trained."""
    if is_one_of_many():
        raise ConfigError(
            "pre-training compares all rows of a step, which several processes would share.",
            "Pre-train in one process first, by apportion pretrain, and pass its folder: "
            "LLPClassifier(pretrain='runs/pre'), or apportion train --pretrained runs/pre.",
        )


def warn_of_time(plan: Pretraining, config: TrainConfig) -> None:
    """Warn of pre-training that takes long on the CPU."""
    if device_for(config.device).type == "cpu" and plan.rows * plan.epochs > LONG:
        log.warning(
            "Pre-training of %s takes long on the CPU: a GPU is much faster. Fewer epochs can be "
            "had apart: apportion pretrain --epochs, and then --pretrained with its folder.",
            plan,
        )


def file_of(path: str | PathLike[str]) -> Path:
    """Return the file of what was pre-trained, in the folder of a run or as it is given.

    Raises
    ------
    RunError
        If there is none.
    """
    given = Path(path).expanduser()
    remedy = "Pass the folder of a finished run of apportion pretrain, or its file "
    if not given.is_dir():
        if not given.is_file():
            raise RunError(f"{given} does not exist.", f"{remedy}{Run(given).pretrained.name}.")
        return given
    run = Run(given)
    inside = Run(run.pretraining)
    for found in (run.pretrained, inside.pretrained):
        if found.exists():
            return found
    begun = inside if inside.config.exists() else run
    total, unit = planned(begun.settings(f"{remedy}{run.pretrained.name}."))
    if begun is run and run.settings()["method"]["name"] != WITHOUT_LABELS:
        raise RunError(
            f"{given} holds a run of training, which keeps no pre-training of its own.",
            f"{remedy}{run.pretrained.name}.",
        )
    raise RunError(
        f"{given} has nothing that is pre-trained: {len(begun.records())} of "
        f"{count(total, unit)} are done in {begun.folder}.",
        f"{remedy}{run.pretrained.name}.",
    )


def net_as_before(path: str | PathLike[str], given: Mapping[str, Any]) -> dict[str, str]:
    """Return which net was pre-trained, and how it begins, if that is known and not given.

    Raises
    ------
    ConfigError
        If another net is given.
    """
    recipe = _header_of(file_of(path)).get("recipe")
    known = recipe if isinstance(recipe, dict) else {}
    found = {name: known[name] for name in ("net", "stem") if isinstance(known.get(name), str)}
    net = given.get("net")
    if net not in (None, found.get("net", net)):
        raise ConfigError(
            f"the net is {net}, but {path} was pre-trained with {found['net']}.",
            "Leave out one of the two.",
        )
    return {name: value for name, value in found.items() if given.get(name) is None}


def _header_of(file: Path) -> dict[str, Any]:
    with opened(file, KIND, remedy=REMEDY) as (_, header):
        return header


def check_same_pretraining(run: Run | None, plan: Plan) -> None:
    """Check that a run which goes on began with the pre-training that is planned now."""
    if run is None or plan.pretraining is None or not run.config.exists():
        return
    before = run.settings().get("plan", {}).get("pretraining")
    now = str(plan.pretraining).partition(" (")[0]
    if isinstance(before, str) and not before.startswith(now):
        raise RunError(
            f"{run.folder} holds a run of another pre-training: {before}; not {now}.",
            "Pass what it was started with, or train in another folder.",
        )


def load_as_planned(
    net: nn.Module, train: Bags, path: str | PathLike[str], plan: Plan, before: Mapping[str, str]
) -> Plan:
    """Load what was pre-trained; return the plan with what it says of that.

    Parameters
    ----------
    before : mapping
        What was taken over from `net_as_before`, and not given.
    """
    file = file_of(path)
    parts: Any = _header_of(file).get("parts")
    theirs, ours = None, list(map(int, train.parts[0].shape[1:]))
    with suppress(KeyError, TypeError, IndexError):
        theirs = list(parts[0]["shape"])
    try:
        rows = load_pretrained(net, file)
    except RunError as error:
        if not theirs or theirs[0] == ours[0]:
            raise
        raise RunError(
            f"{file} was pre-trained on images of {theirs[0]!r:.20} channels, but these have "
            f"{ours[0]}.",
            "Pre-train on images like these. Files that are all gray have 1 channel, and 3 beside "
            "coloured ones: apportion pretrain reads all that are in a folder.",
        ) from error
    if theirs is not None and theirs[1:] != ours[1:]:
        log.warning(
            "%s was pre-trained on images of %s, but these are of %s: features of other sizes "
            "may be worth less.",
            file,
            " × ".join(map(str, theirs[1:])),
            " × ".join(map(str, ours[1:])),
        )
    told = planned_pretraining("images", rows, None, path)
    lines = {name: Choice(value, "as it was pre-trained") for name, value in before.items()}
    lines["pretraining"] = Choice(None, f"{told.reason}, of {count(rows, 'row')}")
    return replace(plan, **lines)
