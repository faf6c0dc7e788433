"""A training's way to its run folder and back. Without a folder nothing is kept."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from os import PathLike
from time import monotonic
from typing import Any, Self

import torch

from apportion.config import TrainConfig
from apportion.engine.distributed import ALONE, Ranks
from apportion.errors import RunError, count, listing
from apportion.files import as_toml
from apportion.methods.registry import describe
from apportion.metrics import prevalence
from apportion.model.model import Model, describe_parts
from apportion.plan.choices import Choice
from apportion.runs.evaluation import plain_names, save_evaluations
from apportion.runs.header import RESTORE
from apportion.runs.run import FORMAT_VERSION, Run
from apportion.runs.tensors import check_tensors, is_finite
from apportion.training import checkpoint
from apportion.training.history import BY_CALLER
from apportion.training.identity import check_identity, difference, identity_of, with_epochs_added
from apportion.training.optimizer_state import named, optimizer_tensors, stepped
from apportion.training.session import Session

__all__ = ["Archive", "Folder", "begin"]

log = logging.getLogger("apportion")

MOST_UNSAVED = 300.0  # seconds since the last checkpoint, after which one is due at an epoch's end

GROUPS = (
    "model",
    "best",
    "followed",
    "average",
    "optimizer",
    "method",
)  # of the tensors in a checkpoint


class Folder:
    """The run folder of a training, locked and with its checkpoint; None keeps nothing.

    All ranks read it, and the first alone writes.
    """

    def __init__(self, run: str | PathLike[str] | Run | None, ranks: Ranks = ALONE) -> None:
        self.run = run if run is None or isinstance(run, Run) else Run(run)
        self.ranks = ranks
        self.saved: tuple[dict[str, checkpoint.Tensors], dict[str, Any]] | None = None

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """Lock the folder, and read its checkpoint."""
        if self.run is None:
            yield self
            return
        with self.run.locked() if self.ranks.leads else nullcontext():
            if self.ranks.by_first(self.run.checkpoint.exists):
                self.saved = checkpoint.load(self.run)
                checkpoint.check_header(self.run, self.saved[1])
            yield self

    @property
    def threads(self) -> int | None:
        """How many threads the checkpoint was computed with: only so many give the same bits."""
        threads: int | None = None if self.saved is None else self.saved[1]["threads"]
        return threads


class Archive(Folder):
    """The run folder of the training of one net."""

    saved_at: float  # on the clock, or when the training began

    def resume(self, session: Session) -> bool:
        """Bring a session to where the checkpoint was saved; tell whether there was one."""
        if self.run is None:
            return False
        self.saved_at = monotonic()
        self.identity = identity_of(session)
        if self.saved is None:
            method, plan = describe(session.method), _plan(session)
            if self.ranks.leads:
                begin(self.run, asdict(session.config), method, self._resolved(session), plan)
            return False
        (tensors, header), self.saved = self.saved, None
        run, net = self.run, session.net
        groups = {name: tensors.get(name, {}) for name in GROUPS}
        by_config = session.optimization.by_config
        theirs = with_epochs_added(run, header, self.identity, by_config=by_config)
        check_identity(run, theirs, self.identity)
        for name, value in json.loads(json.dumps(_model_about(session))).items():
            if name == "recipe" and header.get(name) is not None and header[name] != value:
                raise RunError(
                    f"{run.folder} holds a run of another net{difference(header[name], value)}.",
                    "Pass a net like the one that it was started with, or train in another folder.",
                )
            if header.get(name) != value:
                raise RunError(f"{run.checkpoint} is damaged: {name} is of another run.", RESTORE)
        _check_groups(run, session, tensors, header)
        session.optimization.load(run, groups["optimizer"], header["trained"], header["optimizer"])
        if self.ranks.leads:
            run.rewind(header["epoch"])
        records = run.records()[: header["epoch"]]
        _check_log(run, records, header)
        try:
            session.supervision.load_state_dict(groups["method"])
        except (ArithmeticError, LookupError, TypeError, ValueError, RuntimeError) as error:
            problem = str(error).partition("\n")[0].rstrip(".")
            raise RunError(
                f"{run.checkpoint} has the state of another method: {problem}.", RESTORE
            ) from error
        if session.supervision.next_epoch not in (None, header["epoch"] + 1):
            raise RunError(
                f"{run.checkpoint} was saved after epoch {header['epoch']}, but the state of the "
                f"method is that before epoch {session.supervision.next_epoch}.",
                RESTORE,
            )
        session.kept.load_state_dict(groups["model"])
        if session.averaged is not None:
            net.load_state_dict(groups["followed"])
            session.averaged.steps.copy_(groups["average"]["steps"])
        history = session.history
        history.records.extend(records)
        if header["best_epoch"] is not None:
            history.best_epoch, history.best_error = header["best_epoch"], header["best_error"]
        session.selected = {k: v.to(session.device) for k, v in groups["best"].items()}
        before = header["identity"]["configuration"]["epochs"]
        session.is_ended = header["ended"] is not None and session.config.epochs == before
        if self.ranks.leads:
            run.set_epochs(session.config.epochs)
        session.share()
        ended = f", where {header['ended']} had ended it" if header["ended"] else ""
        does = "Stays" if session.is_ended else "Going on"
        log.info("%s after epoch %d of %s%s.", does, history.n_epochs, self.run.folder, ended)
        return True

    def save(self, session: Session) -> None:
        """Log the last epoch, and save a checkpoint if one is due."""
        if self.run is None:
            return
        if self.ranks.leads:
            self.run.append(session.history.records[-1])
        by_epochs = session.history.n_epochs % session.config.checkpoint_every == 0
        if by_epochs or session.is_finished() or self._is_long_ago():
            self.save_checkpoint(session)

    def _is_long_ago(self) -> bool:
        """Tell whether too much would be lost by now, by the clock of the first rank."""
        return bool(self.ranks.told(monotonic() - self.saved_at >= MOST_UNSAVED))

    def save_checkpoint(self, session: Session) -> None:
        """Save all that is needed to go on after the last epoch."""
        if self.run is None:
            return
        of_method = session.supervision.state_dict()  # which all ranks put together
        self.saved_at = monotonic()
        if not self.ranks.leads:
            return
        history, train = session.history, session.train
        tensors = {
            "model": session.kept.state_dict(),
            "best": session.selected,
            "optimizer": optimizer_tensors(session.net, session.optimizer),
            "method": of_method,
        }
        if session.averaged is not None:
            tensors["followed"] = session.net.state_dict()
            tensors["average"] = {"steps": session.averaged.steps}
        scalars = {
            "epoch": history.n_epochs,
            "best_epoch": history.best_epoch,
            "best_error": None if history.best_epoch is None else history.best_error,
            "threads": torch.get_num_threads(),
            "trained": stepped(session.net, session.optimizer),
            "ended": BY_CALLER if session.is_ended else None,
            "optimizer": session.optimization.state(),
            "identity": self.identity,
            "columns": None if train.columns is None else train.columns.to_dict(),
            **_model_about(session),
        }
        checkpoint.save(self.run, tensors, scalars)

    def save_models(self, session: Session) -> None:
        """Save the selected and the last model, and the evaluation of the selected one."""
        run = self.run
        if run is None or not session.classifies:
            return
        if self.ranks.leads:
            self._save_weights(run, session)
        # It is written once: a finished run learns no more.
        if self.ranks.by_first(lambda: not run.evaluation.exists()):
            evaluations = session.evaluations()
            if self.ranks.leads:
                save_evaluations(run, session.train.classes, evaluations)

    def _save_weights(self, run: Run, session: Session) -> None:
        history, train = session.history, session.train
        about = plain_names(train.classes), describe_parts(train)
        of_train: dict[str, Any] = {"columns": train.columns, "prevalence": prevalence(train)}
        for path, weights, epoch in (
            (run.model, session.selected, history.selected["epoch"]),
            (run.last, session.last, history.n_epochs),
        ):
            model = Model(session.net, *about, epoch=epoch, **of_train)
            model.save(path, weights=weights)

    def _resolved(self, session: Session) -> dict[str, Any]:
        return {
            **session.supervision.resolved,
            **_own_names(session),
            "device": str(session.device),
            **self.identity["arithmetic"],
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }


def begin(
    run: Run,
    train: Mapping[str, Any],
    method: Mapping[str, Any],
    resolved: Mapping[str, Any],
    plan: Mapping[str, str],
) -> None:
    """Write down how a new run is trained, by the caller's plan if it has one."""
    logged, allowed = len(run.records()), 0
    if run.config.exists():
        settings = run.settings("Train in a folder of its own, which need not exist yet.")
        if "data" in settings and "data" not in run.about:
            raise RunError(
                f"{run.folder} holds a run of apportion train, without a checkpoint yet.",
                f"Go on with it: apportion train --resume {shlex.quote(str(run.folder))}; or "
                "train in another folder.",
            )
        allowed = TrainConfig.from_dict(settings["train"]).checkpoint_every
    if run.model.exists() or logged > allowed:
        what = "a trained model" if run.model.exists() else f"a log of {logged} records"
        raise RunError(
            f"{run.folder} has {what}, but no checkpoint to go on from.",
            f"Put {run.checkpoint.name} back, or train in another folder.",
        )
    if logged:
        what = f"after {count(logged, 'record')} of its log, without a checkpoint"
        log.info("%s was left %s: it begins again.", run.folder, what)
    run.rewind(0)
    text = f"format = {FORMAT_VERSION}\n\n[train]\n{as_toml(train)}"
    text += f"\n[method]\n{as_toml(method)}"
    text += "\n# What followed from data and machine: for readers, and no options.\n"
    text += f"[resolved]\n{as_toml(resolved)}"
    for section, values in {"plan": plan, **run.about}.items():
        text += f"\n[{section}]\n{as_toml(values)}"
    with run.replacing(run.config) as beside:
        beside.write_text(text, encoding="utf-8")


def _own_names(session: Session) -> dict[str, str]:
    """Return the names of what the caller has passed in place of the configuration's."""
    own, found = session.optimization, {}
    if own.is_own:
        found["optimizer"] = type(own.optimizer).__name__
    if own.scheduler is not None:
        found["scheduler"] = type(own.scheduler).__name__
    if session.augment is not None:
        found["augmentation"] = named(session.augment)
    return found


def _plan(session: Session) -> dict[str, str]:
    """Say what `fit` was given, and what it decides itself."""
    config, recipe = session.config, getattr(session.net, "recipe", None) or {}
    held_out = "none are given: the last epoch is kept"
    if session.valid is not None:
        held_out = f"{count(session.valid.n_bags, 'bag')}, given to fit, select the epoch"
    given = {
        "net": recipe.get("net", type(session.net).__name__),
        "method": describe(session.method)["name"],
        "epochs": config.epochs,
        "batch_size": config.batch_size,
        "threads": config.threads,
    }
    plan = {name: str(Choice(value, "given to fit")) for name, value in given.items()}
    if config.threads is None:
        plan["threads"] = str(Choice(torch.get_num_threads(), "what a step is worth here"))
    return {**plan, "validation": held_out}


def _check_groups(
    run: Run, session: Session, tensors: dict[str, checkpoint.Tensors], header: dict[str, Any]
) -> None:
    """Check the weights, the selected ones too, and that nothing else is in the file."""
    unknown = tensors.keys() - GROUPS
    if unknown:
        found = f"it has tensors of {listing(sorted(unknown))}, which no checkpoint has"
        raise RunError(f"{run.checkpoint} is damaged: {found}.", RESTORE)
    own = session.net.state_dict()
    finite = [name for name, value in own.items() if is_finite(value)]  # masks may hold -inf
    selected = header["best_epoch"] is not None
    followed = {} if session.averaged is None else own
    for group, like in (
        ("model", own),
        ("best", own if selected else {}),
        ("followed", followed),
        ("average", {} if session.averaged is None else {"steps": session.averaged.steps}),
    ):
        check_tensors(
            run.checkpoint,
            tensors.get(group, {}),
            like,
            problem="was saved from another net",
            remedy="Pass a net like the one that it was started with.",
            finite=[name for name in finite if name in like],
        )


def _model_about(session: Session) -> dict[str, Any]:
    """Return what a model's header says: a checkpoint is one too, that of the last epoch."""
    return {
        "classes": plain_names(session.train.classes),
        "parts": describe_parts(session.train),
        "prevalence": prevalence(session.train).tolist(),
        "recipe": getattr(session.net, "recipe", None),
    }


def _check_log(run: Run, records: list[dict[str, Any]], header: dict[str, Any]) -> None:
    """Check that the log and the checkpoint are of the same epochs, and select the same one."""
    remedy = "Restore both files as they were, or start again in another folder."
    if len(records) != header["epoch"]:
        raise RunError(
            f"{run.log} has {len(records)} epochs, but the checkpoint {header['epoch']}.", remedy
        )
    errors = {r["epoch"]: r["valid_error"] for r in records if r.get("valid_error") is not None}
    if len(errors) not in (0, len(records)):
        raise RunError(f"{run.log} has the validation error of some epochs only.", remedy)
    best = min(errors, key=errors.__getitem__) if errors else None
    if (best, errors.get(best)) != (header["best_epoch"], header["best_error"]):
        raise RunError(
            f"{run.checkpoint} has selected epoch {header['best_epoch']} of error "
            f"{header['best_error']}; by {run.log.name} it is epoch {best} of error "
            f"{errors.get(best)}.",
            remedy,
        )
