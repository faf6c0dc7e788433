"""Training of a table: an average, or a linear model, with or without a run folder."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from apportion.auto.archive import Archive
from apportion.auto.held_out import Expectation, expectation, slope
from apportion.auto.members import (
    Member,
    check_is_table,
    folds_of,
    members_of,
    per_step,
)
from apportion.auto.nets import train_net
from apportion.bags.bags import Bags
from apportion.engine.device import device_for, own_stream, own_threads
from apportion.engine.distributed import Ranks, together
from apportion.metrics import proportion_error
from apportion.model.model import Model
from apportion.nets.average import Average
from apportion.nets.build import from_recipe
from apportion.plan.kinds import kind_of_instances
from apportion.plan.methods import AUTO
from apportion.plan.threads import threads_for
from apportion.runs.evaluation import Evaluation
from apportion.runs.run import Run
from apportion.training.checks import check_sets, warn_of_bags
from apportion.training.effects import with_effects
from apportion.training.evaluate import evaluate
from apportion.training.history import History
from apportion.training.progress import Stopwatch, brief, progress_bars, readable
from apportion.training.ranks import check_alike

__all__ = ["Learned", "train_table"]

log = logging.getLogger("apportion")

OnNet = Callable[[dict[str, Any], nn.Module], None]


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
    on_net: OnNet | None = None,
    progress: bool | None = None,
) -> Learned:
    """Train all nets of a table, and average them.

    One process trains one after the other. Several that torchrun has started train one each at a
    time, and hand them to each other: all get the same result, which is that of one process.

    Parameters
    ----------
    train, valid, test : Bags
        Bags to learn from, and others that are only reported. Truth is used for accuracies alone.
    method : str
        "auto", or the name of a linear model.
    threads : int, optional
        By default as many as steps are worth, on the cores that are idle.
    run : path or Run, optional
        A folder for the log, the nets so far and the model. If it holds a training of the same
        bags, it goes on after the last net that is complete, to the same result.
    on_net : callable, optional
        Called with the record and the net after each; it may raise KeyboardInterrupt. Of several
        processes the first alone calls it.
    progress : bool, optional
        Whether to show a progress bar; by default on a terminal.
    """
    check_is_table(method, kind_of_instances(train))
    check_sets(train, valid, test)
    sets = {"train": train, "valid": valid, "test": test}
    judged = {name: bags for name, bags in sets.items() if bags is not None}
    bags = train.without_truth()
    members, folds = members_of(bags, method), folds_of(bags, seed)
    usual = min(threads_for(bags, per_step(bags)).value, torch.get_num_threads())
    options = {"seed": seed, "device": device, "threads": threads}
    told = {
        "method": method,
        "configuration": options,
        "functions": [] if on_net is None else ["on_net"],
    }
    with together(device) as ranks:
        if ranks.are_several:
            check_alike(ranks, sets.values(), run, told)
        with (
            Archive(run, judged, method, options, members=members, ranks=ranks).opened() as archive,
            own_threads(ranks.told(threads or archive.threads or usual)),
            own_stream(device_for(device)),
            progress_bars([len(members)], progress if ranks.leads else False, "net") as (show,),
        ):
            nets, records = archive.resume()
            if not nets:
                warn_of_bags(bags)
            learned: _Learned | None = None
            while len(nets) < len(members):
                side_by_side = members[len(nets) :][: ranks.world]
                own: _Trained | None = None
                with ranks.patient() as wait:
                    if ranks.rank < len(side_by_side):
                        own = _trained(side_by_side[ranks.rank], bags, folds, method, seed, device)
                    wait()
                for rank in range(len(side_by_side)):
                    net, record = _handed_over(own, rank, ranks)
                    nets.append(net)
                    record = {"epoch": len(nets), **record}
                    if len(nets) == len(members):
                        clock = Stopwatch(device_for(device))
                        with clock("evaluation"):
                            learned = _assembled(judged, members, nets, folds, device, ranks)
                        seconds = record.pop("seconds") | clock.seconds
                        record = ranks.told({**record, **learned.numbers(), "seconds": seconds})
                    records.append(record)
                    archive.save(nets, record)
                    log.info("%s", readable(record, len(members), "net"))
                    show(len(nets), brief(record))
                if on_net is not None:  # which may end the training: now that all are saved
                    for net, record in list(zip(nets, records, strict=True))[-len(side_by_side) :]:
                        ranks.by_first(partial(_call, on_net, record, net))
            if learned is None:
                learned = _assembled(judged, members, nets, folds, device, ranks)
            model, expected, evaluations = learned
            archive.save_model(
                model, lambda: with_effects(evaluations, judged, model.predict_proba, seed)
            )
            if expected is not None:
                tell = log.info if expected.learned else log.warning
                tell("%s: %s.", method, expected)
        return Learned(model, History(records), expected)


_Trained = tuple[nn.Module, dict[str, Any]]  # a net and its record


def _trained(
    member: Member, bags: Bags, folds: Any, method: str, seed: int, device: str
) -> _Trained:
    clock = Stopwatch(device_for(device))
    with clock("train"):
        own = bags if member.fold is None else bags[folds != member.fold]
        about: dict[str, Any] = {"seed": (seed + member.number) % 2**63, "device": device}
        about["step"] = per_step(bags)  # that of all bags, whichever it sees
        net, told = train_net(member.kind, own, **about, alone=method != AUTO)
    return net, {"member": str(member), **told, "seconds": clock.seconds}


def _handed_over(own: _Trained | None, rank: int, ranks: Ranks) -> _Trained:
    """Return, on all ranks, the net that one of them has trained, and its record."""
    told = None if own is None else [own[0].recipe, own[1]]
    recipe, record = ranks.told(told, rank)
    net = own[0] if own is not None and ranks.rank == rank else from_recipe(recipe)
    ranks.as_of(rank, net.state_dict().values())
    return net, record


def _call(on_net: OnNet, record: dict[str, Any], net: nn.Module) -> None:
    on_net(copy.deepcopy(record), net)


class _Learned(NamedTuple):
    """The model of all nets, what to expect of it, and what it is like on each set of bags."""

    model: Model
    expectation: Expectation | None
    evaluations: dict[str, Evaluation]

    def numbers(self) -> dict[str, float]:
        """Return errors, accuracies where the truth is known, and the skill, for the log."""
        found = {} if self.expectation is None else dict(vars(self.expectation))
        for name, own in self.evaluations.items():
            error = proportion_error(own.given, own.predicted)
            found["proportion_error" if name == "train" else f"{name}_error"] = error
            if own.confusion is not None:
                found[f"{name}_accuracy"] = float(np.trace(own.confusion) / own.confusion.sum())
        return found


def _assembled(
    sets: Mapping[str, Bags],
    members: Sequence[Member],
    nets: Sequence[nn.Module],
    folds: Any,
    device: str,
    ranks: Ranks,
) -> _Learned:
    bags, expected = sets["train"].without_truth(), None

    def model_of(net: nn.Module) -> Model:
        return Model.trained_on(bags, net.eval(), epoch=len(nets), device=device)

    model = model_of(nets[0])
    if len(members) > 1:
        pairs = sorted(zip(members, nets, strict=True), key=lambda pair: pair[0].number)
        groups: dict[str, list[nn.Module]] = {member.kind: [] for member, _ in pairs}
        for member, net in pairs:
            groups[member.kind] += [net] if member.kept else []
        average = Average(list(groups.values()))
        if any(member.fold is not None for member in members):
            held_out = np.empty((bags.n_instances, bags.n_classes))
            for fold in np.unique(folds):
                own = Average([[net] for member, net in pairs if member.fold == fold])
                judged = np.repeat(folds == fold, bags.sizes)
                held_out[judged] = model_of(own).confidence(bags[folds == fold])
            expected = expectation(bags, held_out, folds)
            if bags.n_classes == 2 and not all(member.kept for member in members):
                steepness, intercept = ranks.told(slope(bags, held_out))
                average.slope.fill_(steepness)
                average.bias.copy_(torch.tensor([0.0, intercept]))
        model = model_of(average)
    found = {name: evaluate(own, model.confidence(own)) for name, own in sets.items()}
    return _Learned(model, expected, found)
