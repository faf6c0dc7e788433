"""A training's way to its run folder and back. Without a folder nothing is kept."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from os import PathLike
from typing import Any

import torch

from apportion.config import TrainConfig
from apportion.errors import RunError
from apportion.files import as_toml
from apportion.methods.registry import describe
from apportion.model.model import Model, describe_parts
from apportion.runs.evaluation import plain_names, save_evaluations
from apportion.runs.run import FORMAT_VERSION, Run
from apportion.training import checkpoint
from apportion.training.session import Session

log = logging.getLogger("apportion")

# Options that may change from start to start; the precision they lead to may not.
FREE = ("device", "precision", "step_mode", "device_memory_gib", "threads", "checkpoint_every")


class Archive:
    """The run folder of one training."""

    def __init__(self, run: str | PathLike[str] | Run | None) -> None:
        self.run = run if run is None or isinstance(run, Run) else Run(run)
        self.saved: tuple[dict[str, checkpoint.Tensors], dict[str, Any]] | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Lock the folder, and read its checkpoint."""
        if self.run is None:
            yield
            return
        with self.run.locked():
            if self.run.checkpoint.exists():
                self.saved = checkpoint.load(self.run)
            yield

    @property
    def threads(self) -> int | None:
        """How many threads the checkpoint was computed with: only so many give the same bits."""
        return None if self.saved is None else int(self.saved[1]["threads"])

    def resume(self, session: Session) -> bool:
        """Bring a session to where the checkpoint was saved; tell whether there was one."""
        if self.run is None:
            return False
        self.identity = _identity(session)
        if self.saved is None:
            self._begin(self.run, session)
            return False
        (tensors, scalars), self.saved = self.saved, None
        _check_identity(self.run, scalars["identity"], self.identity)
        _check_model(self.run, session, tensors["model"])
        self.run.rewind(scalars["epoch"])
        session.net.load_state_dict(tensors["model"])
        try:
            checkpoint.load_optimizer(
                session.optimizer, tensors.get("optimizer", {}), scalars["optimizer"]
            )
        except ValueError as error:
            raise RunError(
                f"{self.run.checkpoint} was saved with other parameters to train: {error}.",
                "Set requires_grad as it was.",
            ) from error
        session.supervision.load_state_dict(tensors.get("method", {}))
        history = session.history
        history.records.extend(self.run.records())
        if history.n_epochs != scalars["epoch"]:
            raise RunError(
                f"{self.run.log} has {history.n_epochs} epochs, but the checkpoint "
                f"{scalars['epoch']}.",
                "Put the log back as it was, or start again in another folder.",
            )
        if scalars["best_epoch"] is not None:
            history.best_epoch, history.best_error = scalars["best_epoch"], scalars["best_error"]
        session.selected = {k: v.to(session.device) for k, v in tensors.get("best", {}).items()}
        self.run.set_epochs(session.config.epochs)
        log.info("Going on after epoch %d of %s.", history.n_epochs, self.run.folder)
        return True

    def save(self, session: Session) -> None:
        """Log the last epoch, and save a checkpoint if one is due."""
        if self.run is None:
            return
        self.run.append(session.history.records[-1])
        due = session.history.n_epochs % session.config.checkpoint_every == 0
        if due or session.is_finished():
            self.save_checkpoint(session)

    def save_checkpoint(self, session: Session) -> None:
        """Save all that is needed to go on after the last epoch."""
        if self.run is None:
            return
        history, train = session.history, session.train
        tensors = {
            "model": session.net.state_dict(),
            "best": session.selected,
            "optimizer": checkpoint.optimizer_tensors(session.optimizer),
            "method": session.supervision.state_dict(),
        }
        scalars = {
            "epoch": history.n_epochs,
            "best_epoch": history.best_epoch,
            "best_error": None if history.best_epoch is None else history.best_error,
            "threads": torch.get_num_threads(),
            "optimizer": checkpoint.optimizer_scalars(session.optimizer),
            "identity": self.identity,
            "columns": None if train.columns is None else train.columns.to_dict(),
            # For predictions by the weights so far, as of a model:
            "classes": plain_names(train.classes),
            "parts": describe_parts(train),
            "recipe": getattr(session.net, "recipe", None),
        }
        checkpoint.save(self.run, tensors, scalars)

    def save_models(self, session: Session) -> None:
        """Save the selected and the last model, and the evaluation of the selected one."""
        if self.run is None:
            return
        history, train = session.history, session.train
        about = plain_names(train.classes), describe_parts(train)
        for path, weights, epoch in (
            (self.run.model, session.selected, history.selected["epoch"]),
            (self.run.last, session.last, history.n_epochs),
        ):
            model = Model(session.net, *about, columns=train.columns, epoch=epoch)
            model.save(path, weights=weights)
        if not self.run.evaluation.exists():  # it is written once: a finished run learns no more
            save_evaluations(self.run, train.classes, session.evaluations())

    def _begin(self, run: Run, session: Session) -> None:
        """Write down how a new run is trained."""
        logged, allowed = len(run.records()), 0
        if run.config.exists():
            settings = run.settings("Train in a folder of its own, which need not exist yet.")
            if "data" in settings and "data" not in run.about:
                raise RunError(
                    f"{run.folder} holds a run of apportion train, without a checkpoint yet.",
                    f"Go on with it: apportion train --resume {run.folder}; or train in another "
                    "folder.",
                )
            allowed = TrainConfig.from_dict(settings["train"]).checkpoint_every
        if run.model.exists() or logged > allowed:
            what = "a trained model" if run.model.exists() else f"a log of {logged} epochs"
            raise RunError(
                f"{run.folder} has {what}, but no checkpoint to go on from.",
                f"Put {run.checkpoint.name} back, or train in another folder.",
            )
        run.rewind(0)
        resolved = {
            **session.supervision.resolved,
            "device": str(session.device),
            **self.identity["arithmetic"],
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        text = f"format = {FORMAT_VERSION}\n\n[train]\n{session.config.to_toml()}"
        text += f"\n[method]\n{as_toml(describe(session.method))}"
        text += "\n# What followed from data and machine: for readers, and never read again.\n"
        text += f"[resolved]\n{as_toml(resolved)}"
        for section, values in run.about.items():
            text += f"\n[{section}]\n{as_toml(values)}"
        with run.replacing(run.config) as beside:
            beside.write_text(text, encoding="utf-8")


def _check_identity(run: Run, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    ours = json.loads(json.dumps(ours))
    theirs = _with_epochs_added(run, theirs, ours["configuration"])
    for name, value in theirs.items():
        if ours[name] != value:
            raise RunError(
                f"{run.folder} holds a run of another {name}{_difference(value, ours[name])}.",
                "Pass what it was started with, or train in another folder: what was learned so "
                "far depends on it.",
            )


def _with_epochs_added(run: Run, theirs: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return what a run began with, but with more epochs, if that is all that differs.

    The result must be what that many epochs from the start had led to, at the same η.
    """
    before = theirs["configuration"]
    if now["epochs"] <= before["epochs"] or {**before, "epochs": now["epochs"]} != now:
        return theirs
    if now["schedule"] != "constant" or now["warmup"]:
        found = "which falls to 0 at the last" if now["schedule"] != "constant" else "by warmup"
        raise RunError(
            f"{run.folder} was trained for {before['epochs']} epochs, and its learning rate "
            f"depends on how many there are ({now['schedule']}, {found}): none can be added.",
            f"Train {now['epochs']} epochs in another folder.",
        )
    return {**theirs, "configuration": now}


def _identity(session: Session) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    config = asdict(session.config)
    return {
        "training set": checkpoint.fingerprint(session.train),
        "validation set": checkpoint.fingerprint(session.valid),
        "method": describe(session.method),
        "configuration": {name: value for name, value in config.items() if name not in FREE},
        "arithmetic": {"precision": str(session.precision).removeprefix("torch.")},
    }


def _difference(theirs: Any, ours: Any) -> str:
    """Which options differ, where there are names."""
    if not isinstance(theirs, dict):
        return ""
    names = sorted(n for n in theirs.keys() | ours.keys() if theirs.get(n) != ours.get(n))
    return ": " + ", ".join(f"{n} {theirs.get(n)!r}, not {ours.get(n)!r}" for n in names)


def _check_model(run: Run, session: Session, saved: checkpoint.Tensors) -> None:
    mine = {name: tuple(t.shape) for name, t in session.net.state_dict().items()}
    theirs = {name: tuple(t.shape) for name, t in saved.items()}
    for name in sorted(mine.keys() | theirs.keys()):
        if theirs.get(name) != mine.get(name):
            raise RunError(
                f"{run.checkpoint} was saved from another net: {name} is of shape "
                f"{theirs.get(name)} there and {mine.get(name)} here.",
                "Pass a net like the one that it was started with.",
            )
