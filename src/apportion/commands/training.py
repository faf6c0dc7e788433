"""A training as `apportion train` does it: with bars or lines, and a way out that loses nothing."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import typer

from apportion._tensorboard import tensorboard as event_files
from apportion._trained import read_columns, save_columns
from apportion.commands.job import Job, Prepared
from apportion.commands.source import Source
from apportion.engine.progress import announce
from apportion.run import Run
from apportion.train import History, fit

__all__ = ["EVENTS", "OWN_FILES", "train_job"]

INTERRUPTED = 130  # the exit code of what Ctrl-C has ended
EVENTS = "tensorboard"  # the folder of event files in a run's

# What a run's folder may hold, so that nothing else is ever removed.
OWN_FILES = {"columns.json", "config.toml", "lock", "log.jsonl", "report.html"} | {
    f"{name}.safetensors" for name in ("checkpoint", "last", "model", "outcome")
}


def train_job(job: Job, run: Run, *, resuming: bool, force: bool, tensorboard: bool) -> None:
    """Train in a folder, and say what came out.

    Parameters
    ----------
    resuming : bool
        Whether the folder holds the run already, and it is to go on.
    force : bool
        Whether a run that the folder holds is to be replaced.
    tensorboard : bool
        Whether to log for TensorBoard as well.
    """
    if resuming and run.outcome.exists():
        typer.echo(
            f"{run.folder} is finished: {len(run.records())} epochs. There is nothing to do."
        )
        return
    with ExitStack() as stack:
        stack.enter_context(_log_shown())
        found = job.prepare(read_columns(run) if resuming else None)
        bags, config = found.bags, found.config
        interruption = stack.enter_context(_interruptible())
        if not resuming:
            stack.enter_context(_new_folder(run, force=force))
            if found.columns is not None:
                save_columns(run, found.columns)
        log_events = None
        if tensorboard:
            log_events = stack.enter_context(event_files(run.folder / EVENTS))

        def on_epoch(record: dict[str, Any], model: Any) -> None:
            if log_events is not None:
                log_events(record, model)
            interruption.after_epoch()

        announce(_plan(run, found), None)
        try:
            history = fit(
                found.model,
                bags["train"],
                bags.get("valid"),
                bags.get("test"),
                method=found.method,
                config=config,
                run=Run(run.folder, found.about),
                on_epoch=on_epoch,
            )
        except KeyboardInterrupt:
            typer.echo(_stopped(run, config.epochs), err=True)
            raise typer.Exit(INTERRUPTED) from None
    typer.echo(_told(run, history, job.source))
    if tensorboard:
        typer.echo(f"  tensorboard --logdir {run.folder / EVENTS}")


@contextmanager
def _new_folder(run: Run, *, force: bool) -> Iterator[None]:
    """Make the folder of a new run; if it fails before its first epoch ends, leave all as it was.

    The run that it replaces is set aside until then.
    """
    folder, aside = run.folder, run.folder.with_name(f"{run.folder.name}.replaced")
    existed = folder.exists()
    if existed and force:
        with run.locked():  # which fails if somebody is training there
            shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        if run.records():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            shutil.rmtree(folder)
            if aside.exists():
                aside.rename(folder)
            elif existed:
                folder.mkdir()


def _stopped(run: Run, epochs: int) -> str:
    done = len(run.records())
    if not done:
        return "\nStopped before the first epoch ended: nothing is kept."
    return (
        f"\nStopped after {done} of {epochs} epochs. To go on:\n"
        f"  apportion train --resume {run.folder}"
    )


def _plan(run: Run, found: Prepared) -> str:
    """One sentence on what is about to happen."""
    train, config = found.bags["train"], found.config
    held_out = [f"{b.n_bags:,} of {name}" for name, b in found.bags.items() if name != "train"]
    return (
        f"Learning {train.n_classes} classes from {train.n_bags:,} bags of "
        f"{train.n_instances:,} rows in all{' beside ' + ', '.join(held_out) if held_out else ''}: "
        f"{found.about['model']['net']}, {config.batch_size:,} rows a step, "
        f"{config.epochs} epochs, in {run.folder}"
    )


def _told(run: Run, history: History, source: Source) -> str:
    """What came out, and what can be done with it."""
    record = history.records[(history.best_epoch or history.epoch) - 1]
    if history.best_epoch is None:
        chosen = f"Epoch {history.epoch}, the last, is kept: no bags were held out to select by."
    else:
        error = f"{record['valid_error']:.4f}"
        chosen = f"Epoch {history.best_epoch} selected, of validation proportion error {error}."
    known = {"valid_accuracy": "validation", "test_accuracy": "test"}
    accuracies = [f"{what} {record[name]:.1%}" for name, what in known.items() if name in record]
    if accuracies:
        chosen += f" Accuracy: {', '.join(accuracies)}."
    return (
        f"{chosen}\nThe model is in {run.folder}. Next:\n"
        f"  apportion report {run.folder}\n"
        f"  apportion predict {run.folder} {source.rows} --out predictions.csv"
    )


# ------------------------------------------------------------------------- a person at a terminal


@contextmanager
def _log_shown() -> Iterator[None]:
    """Show the log: all of it in a file or a pipe, warnings alone where there are bars."""
    logger, handler = logging.getLogger("apportion"), logging.StreamHandler(sys.stderr)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if sys.stderr.isatty() else logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


class _Interruption:
    """Ctrl-C: the first ends training after the epoch, when it can be left; the second at once."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True
        typer.echo("\nStopping after this epoch; Ctrl-C again stops at once.", err=True)

    def after_epoch(self) -> None:
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def _interruptible() -> Iterator[_Interruption]:
    interruption = _Interruption()
    before = signal.signal(signal.SIGINT, interruption.ask)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)
