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

from apportion.errors import RunError
from apportion.files import as_toml, read_toml
from apportion.methods.registry import describe
from apportion.runs.run import Run
from apportion.training import checkpoint
from apportion.training.evaluate import plain_names, save_outcomes
from apportion.training.session import Session

log = logging.getLogger("apportion")

# Options that may change from start to start; the precision they lead to may not.
FREE = ("device", "precision", "steps", "device_memory", "threads", "checkpoint_every")


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
                self.saved = checkpoint.load(self.run.checkpoint)
                if "identity" not in self.saved[1]:
                    raise RunError(
                        f"{self.run.checkpoint} is no checkpoint: it holds a model alone.",
                        "Put the checkpoint back, or train in another folder.",
                    )
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
        self._check_identity(self.run, scalars["identity"])
        _check_model(self.run, session, tensors["model"])
        self.run.rewind(scalars["log_bytes"])
        session.model.load_state_dict(tensors["model"])
        try:
            checkpoint.load_optimizer(
                session.optimizer, tensors.get("optimizer", {}), scalars["optimizer"]
            )
        except ValueError as error:
            raise RunError(
                f"{self.run.checkpoint} was saved with other parameters to train: {error}.",
                "Let requires_grad be as it was.",
            ) from error
        session.supervision.load_state_dict(tensors.get("method", {}))
        history = session.history
        history.records.extend(self.run.records())
        if history.epoch != scalars["epoch"]:
            raise RunError(
                f"{self.run.log} has {history.epoch} epochs, but the checkpoint "
                f"{scalars['epoch']}.",
                "Put the log back as it was, or start again in another folder.",
            )
        if scalars["best_epoch"] is not None:
            history.best_epoch, history.best_error = scalars["best_epoch"], scalars["best_error"]
        history.selected = {k: v.to(session.device) for k, v in tensors.get("best", {}).items()}
        log.info("Going on after epoch %d of %s.", history.epoch, self.run.folder)
        return True

    def save(self, session: Session) -> None:
        """Log the last epoch, and save a checkpoint if one is due."""
        if self.run is None:
            return
        history = session.history
        self.run.append(history.records[-1])
        if history.epoch % session.config.checkpoint_every == 0 or session.is_finished():
            self.save_checkpoint(session)

    def save_checkpoint(self, session: Session) -> None:
        """Save all that is needed to go on after the last epoch."""
        if self.run is None:
            return
        history = session.history
        tensors = {
            "model": session.model.state_dict(),
            "best": history.selected,
            "optimizer": checkpoint.optimizer_tensors(session.optimizer),
            "method": session.supervision.state_dict(),
        }
        scalars = {
            "epoch": history.epoch,
            "best_epoch": history.best_epoch,
            "best_error": None if history.best_epoch is None else history.best_error,
            "log_bytes": self.run.log_bytes(),
            "threads": torch.get_num_threads(),
            "optimizer": checkpoint.optimizer_scalars(session.optimizer),
            "identity": self.identity,
        }
        checkpoint.save(self.run, self.run.checkpoint, tensors, scalars)

    def save_models(self, session: Session) -> None:
        """Save the selected and the last weights, and what the selected ones make of the bags."""
        if self.run is None:
            return
        history = session.history
        train = session.train
        instance = [{"shape": list(p.shape[1:]), "dtype": _name(p.dtype)} for p in train.parts]
        recipe = getattr(session.model, "recipe", None)
        for path, weights, epoch in (
            (self.run.model, history.selected, history.best_epoch or history.epoch),
            (self.run.last, history.last, history.epoch),
        ):
            about = {
                "epoch": epoch,
                "classes": plain_names(train.classes),
                "recipe": recipe,  # how to make the network again, if it is one of this library
                "parts": instance,
            }
            checkpoint.save(self.run, path, {"": weights}, about)
        if not self.run.outcome.exists():  # it is written once: a finished run learns no more
            save_outcomes(self.run, train.classes, session.outcomes())

    def _begin(self, run: Run, session: Session) -> None:
        """Write down how a new run is trained."""
        logged = len(run.records())
        if run.model.exists() or logged > _checkpoint_every(run):
            what = "a trained model" if run.model.exists() else f"a log of {logged} epochs"
            raise RunError(
                f"{run.folder} has {what}, but no checkpoint to go on from.",
                "Put checkpoint.safetensors back, or train in another folder.",
            )
        run.rewind(0)
        resolved = {
            **session.supervision.resolved,
            "device": str(session.device),
            "precision": _name(session.precision),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        text = f"format = {checkpoint.FORMAT_VERSION}\n\n[train]\n{session.config.to_toml()}"
        text += f"\n[method]\n{as_toml(describe(session.method))}"
        text += "\n# What followed from data and machine: for readers, and never read again.\n"
        text += f"[resolved]\n{as_toml(resolved)}"
        for section, values in run.about.items():
            text += f"\n[{section}]\n{as_toml(values)}"
        with run.replacing(run.config) as beside:
            beside.write_text(text, encoding="utf-8")

    def _check_identity(self, run: Run, theirs: dict[str, Any]) -> None:
        ours = json.loads(json.dumps(self.identity))
        for name, value in theirs.items():
            if ours[name] != value:
                raise RunError(
                    f"{run.folder} holds a run of another {name}{_difference(value, ours[name])}.",
                    "Pass what it was started with, or train in another folder: what was learned "
                    "so far depends on it.",
                )


def _checkpoint_every(run: Run) -> int:
    """How many epochs may have been logged without a checkpoint; 0 where there was no run yet."""
    if not run.config.exists():
        return 0
    remedy = "Train in a folder of its own, which need not exist yet."
    config = read_toml(run.config, RunError, remedy)
    try:
        return int(config["format"] and config["train"]["checkpoint_every"])
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{run.config} is not the configuration of a run.", remedy) from None


def _name(dtype: Any) -> str:
    """A type of numpy or torch by the name that both give it."""
    return str(dtype).removeprefix("torch.")


def _identity(session: Session) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    config = asdict(session.config)
    return {
        "training set": checkpoint.fingerprint(session.train),
        "validation set": checkpoint.fingerprint(session.valid),
        "method": describe(session.method),
        "configuration": {name: value for name, value in config.items() if name not in FREE},
        "arithmetic": {"precision": _name(session.precision)},
    }


def _difference(theirs: Any, ours: Any) -> str:
    """Which options differ, where there are names."""
    if not isinstance(theirs, dict):
        return ""
    names = sorted(n for n in theirs.keys() | ours.keys() if theirs.get(n) != ours.get(n))
    return ": " + ", ".join(f"{n} {theirs.get(n)!r}, not {ours.get(n)!r}" for n in names)


def _check_model(run: Run, session: Session, saved: checkpoint.Tensors) -> None:
    mine = {name: tuple(t.shape) for name, t in session.model.state_dict().items()}
    theirs = {name: tuple(t.shape) for name, t in saved.items()}
    for name in sorted(mine.keys() | theirs.keys()):
        if theirs.get(name) != mine.get(name):
            raise RunError(
                f"{run.checkpoint} was saved of another model: {name} is of shape "
                f"{theirs.get(name)} there and {mine.get(name)} here.",
                "Pass a model like the one that it was started with.",
            )
