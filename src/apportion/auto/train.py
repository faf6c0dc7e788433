"""Training of a table: an average, or a linear model, with or without a run folder."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from apportion.auto.archive import Archive
from apportion.auto.held_out import Expectation, Floats, expectation, slope
from apportion.auto.members import MOST_PER_STEP, Member, folds_of, members_of
from apportion.auto.nets import train_net
from apportion.bags.bags import Bags
from apportion.engine.device import device_for, own_threads
from apportion.errors import ConfigError
from apportion.metrics import accuracy, proportion_error
from apportion.model.model import Model, describe_parts
from apportion.nets.average import Average
from apportion.plan import AUTO, kind_of_instances, threads_for
from apportion.runs.run import Run
from apportion.training.checks import check_sets, warn_of_bags
from apportion.training.evaluate import evaluate
from apportion.training.history import History
from apportion.training.progress import Stopwatch, brief, progress_bars, readable

__all__ = ["Learned", "train_table"]

log = logging.getLogger("apportion")


class Learned(NamedTuple):
    """The result of a training."""

    model: Model
    history: History  # one record per net; the last one has what was measured at the end
    expectation: Expectation | None  # of an average, unless there are too few bags to say


def train_table(
    train: Bags,
    valid: Bags | None = None,
    test: Bags | None = None,
    *,
    method: str = AUTO,
    seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
    run: str | PathLike[str] | Run | None = None,
    on_net: Callable[[dict[str, Any], nn.Module], None] | None = None,
    progress: bool | None = None,
) -> Learned:
    """Train all nets of a table, one after the other, and average them.

    Parameters
    ----------
    train, valid, test : Bags
        Bags to learn from, and others that are only reported. Truth is used for accuracies alone.
    method : str
        "auto", or the name of a linear model.
    threads : int, optional
        By default 1 where steps are small, or else as torch is set.
    run : path or Run, optional
        A folder for the log, the nets so far and the model. If it holds a training of the same
        bags, it goes on after the last net that is complete, to the same result.
    on_net : callable, optional
        Called with the record and the net after each; it may raise KeyboardInterrupt.
    progress : bool, optional
        Whether to show a progress bar; by default on a terminal.
    """
    if kind_of_instances(train) != "table":
        raise ConfigError(
            f"{method} is for tables, but the instances are {kind_of_instances(train)}.",
            "Choose a method of nets, for example fpl.",
        )
    check_sets(train, valid, test)
    sets = {"train": train, "valid": valid, "test": test}
    judged = {name: bags for name, bags in sets.items() if bags is not None}
    bags = train.without_truth()
    members, folds = members_of(bags, method), folds_of(bags, seed)
    planned, _ = threads_for(bags, min(bags.n_instances, MOST_PER_STEP))
    options = {"seed": seed, "device": device, "threads": threads}
    archive = Archive(run, judged, method, options, n_nets=len(members))
    with (
        archive.opened(),
        own_threads(threads or archive.threads or (None if planned == "auto" else int(planned))),
        progress_bars([len(members)], progress, "net") as (show,),
    ):
        nets, records = archive.resume()
        if not nets:
            warn_of_bags(bags)
        learned = _assembled(bags, members, nets, folds, device)
        for number, member in enumerate(members[len(nets) :], start=len(nets)):
            record: dict[str, Any] = {"epoch": number + 1, "member": str(member)}
            clock = Stopwatch(device_for(device))
            with clock("train"):
                own = bags if member.fold is None else bags[folds != member.fold]
                alone = method != AUTO
                net, found = train_net(
                    member.kind, own, seed=seed + number, device=device, alone=alone
                )
            nets.append(net)
            with clock("evaluation"):
                learned = _assembled(bags, members, nets, folds, device)
                if learned is not None:
                    found |= _measured(learned, judged)
            records.append({**record, **found, "seconds": clock.seconds})
            archive.save(nets, records[-1])
            log.info("%s", readable(records[-1], len(members), "net"))
            show(number + 1, brief(records[-1]))
            if on_net is not None:
                on_net(copy.deepcopy(records[-1]), net)
        assert learned is not None
        model, expected = learned
        archive.save_model(model, {k: evaluate(b, model.confidence(b)) for k, b in judged.items()})
    if expected is not None:
        tell = log.info if expected.learned else log.warning
        tell("%s: %s.", method, expected)
    return Learned(model, History(records), expected)


def _assembled(
    bags: Bags, members: Sequence[Member], nets: Sequence[nn.Module], folds: Any, device: str
) -> tuple[Model, Expectation | None] | None:
    """Return the model of all nets once they are complete, and what to expect of it."""
    if len(nets) < len(members):
        return None
    about: dict[str, Any] = {"columns": bags.columns, "epoch": len(nets), "device": device}
    if len(members) == 1:
        return Model(nets[0], bags.classes, describe_parts(bags), **about), None
    pairs = list(zip(members, nets, strict=True))
    groups: dict[str, list[nn.Module]] = {member.kind: [] for member in members}
    for member, net in pairs:
        groups[member.kind] += [net] if member.kept else []
    average, expected = Average(list(groups.values())).eval(), None
    if any(member.fold is not None for member in members):
        found = np.empty((bags.n_instances, bags.n_classes))
        for fold in np.unique(folds):
            judges = Average([[net] for member, net in pairs if member.fold == fold]).eval()
            judge = Model(judges, bags.classes, describe_parts(bags), **about)
            found[np.repeat(folds == fold, bags.sizes)] = judge.confidence(bags[folds == fold])
        expected = expectation(bags, found, folds)
        if bags.n_classes == 2 and not all(member.kept for member in members):
            _set_slope(average, bags, found)
    return Model(average, bags.classes, describe_parts(bags), **about), expected


def _set_slope(average: Average, bags: Bags, held_out: Floats) -> None:
    steepness, intercept = slope(bags, held_out)
    average.slope.fill_(steepness)
    average.bias.copy_(torch.tensor([0.0, intercept]))


def _measured(
    learned: tuple[Model, Expectation | None], judged: dict[str, Bags]
) -> dict[str, float]:
    """Return the errors of all sets of bags, accuracies where truth is known, and the skill."""
    model, expected = learned
    found = {} if expected is None else vars(expected).copy()
    for name, bags in judged.items():
        evaluation = evaluate(bags, model.confidence(bags))
        error = proportion_error(bags.proportions, evaluation.predicted)
        found["proportion_error" if name == "train" else f"{name}_error"] = error
        if bags.truth is not None and name != "train":
            likeliest = model.confidence(bags).argmax(axis=1)
            found[f"{name}_accuracy"] = accuracy(likeliest, bags.truth)
    return found
