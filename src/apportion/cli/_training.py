"""A training as `apportion train` does it: with bars or lines, and a way out that loses nothing."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from apportion.cli.job import Job, Prepared
from apportion.cli.source import Source
from apportion.errors import RunError
from apportion.model.trained import read_columns, save_columns
from apportion.runs.run import Run
from apportion.training.fit import fit
from apportion.training.progress import announce
from apportion.training.session import History
from apportion.training.tensorboard import tensorboard as event_files

__all__ = ["train_job"]

INTERRUPTED = 130  # the exit code of what Ctrl-C has ended


def train_job(
    job: Job, out: Path | None, *, resuming: bool, force: bool, tensorboard: bool
) -> None:
    """Train in a folder, and say what came out.

    Parameters
    ----------
    out : Path, optional
        The folder; by default the first of runs/1, runs/2 and so on that is not there.
    resuming : bool
        Whether the folder holds the run already, and it is to go on.
    force : bool
        Whether a run that the folder holds is to be replaced.
    tensorboard : bool
        Whether to log for TensorBoard as well.
    """
    if resuming and out is not None and Run(out).evaluation.exists():
        epochs = len(Run(out).records())
        typer.echo(f"{out} is finished: {epochs} epochs. There is nothing to do.")
        return
    with ExitStack() as stack:
        stack.enter_context(_log_shown())
        known = read_columns(Run(out)) if resuming and out is not None else None
        found = job.prepare(known)
        bags, config = found.bags, found.config
        interruption = stack.enter_context(_interruptible())
        if out is not None and resuming:
            run = Run(out)
        else:
            run = stack.enter_context(_new_run(out, force=force))
            run.about = found.about
            if found.columns is not None:
                save_columns(run, found.columns)
        log_events = None
        if tensorboard:
            log_events = stack.enter_context(event_files(run.tensorboard))

        def on_epoch(record: dict[str, Any], model: Any) -> None:
            if log_events is not None:
                log_events(record, model)
            interruption.after_epoch()

        announce(_plan(run, found), None)
        try:
            history = fit(
                found.model,
                replace(bags["train"], columns=found.columns),
                bags.get("valid"),
                bags.get("test"),
                method=found.method,
                config=config,
                run=run,
                on_epoch=on_epoch,
            )
        except KeyboardInterrupt:
            typer.echo(_stopped(run, config.epochs), err=True)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            interruption.over = True
    typer.echo(_told(run, history, job.source))
    if tensorboard:
        typer.echo(f"  tensorboard --logdir {shlex.quote(str(run.tensorboard))}")


@contextmanager
def _new_run(out: Path | None, *, force: bool) -> Iterator[Run]:
    """Make the folder of a new run, and keep others out of it.

    If the run fails before its first epoch ends, all is left as it was: a run that it replaces is
    set aside until then.
    """
    folder = _claimed() if out is None else Path(os.path.realpath(out))
    aside = folder.with_name(f"{folder.name}.replaced")
    replaces = force and any(path.name != "lock" for path in folder.glob("*"))
    made = out is None or replaces or not folder.exists()
    if replaces:
        if aside.exists():
            raise RunError(
                f"{aside} holds a run that was to be replaced by one that was cut short.",
                "Put it back in its place, or remove it.",
            )
        with Run(folder).locked():  # which fails if somebody is training there
            folder.rename(aside)
    run, is_ours = Run(folder if out is None or replaces else out), False
    try:
        with run.locked():
            if any(path.name != "lock" for path in folder.glob("*")):
                raise RunError(
                    f"{run.folder} holds a run that another process has begun by now.",
                    "Pass another folder.",
                )
            is_ours = True
            yield run
    finally:
        if is_ours and run.records():
            if replaces:
                shutil.rmtree(aside)
        elif is_ours:
            shutil.rmtree(folder)
            if not made:
                folder.mkdir()
        if replaces and aside.exists() and not folder.exists():
            aside.rename(folder)


def _claimed() -> Path:
    """Make the first folder of runs/1, runs/2 and so on that nobody else has made."""
    for number in count(1):
        folder = Path("runs", str(number))
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError  # for type checkers: numbers do not end


def _stopped(run: Run, epochs: int) -> str:
    done = len(run.records())
    if not done:
        return "\nStopped before the first epoch ended: nothing is kept."
    return (
        f"\nStopped after {done} of {epochs} epochs. To go on:\n"
        f"  apportion train --resume {shlex.quote(str(run.folder))}"
    )


def _plan(run: Run, found: Prepared) -> str:
    """One sentence on what is about to happen."""
    train, config = found.bags["train"], found.config
    others = [f"{b.n_bags:,} of {name}" for name, b in found.bags.items() if name != "train"]
    return (
        f"Learning from {train.n_instances:,} rows in bags: {train.n_bags:,} of train"
        f"{''.join(', ' + other for other in others)}. Classes: {train.n_classes}. Network: "
        f"{found.about['model']['net']}. Epochs: {config.epochs}, {config.batch_size:,} rows a "
        f"step. Folder: {run.folder}"
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
    folder, rows = (shlex.quote(str(path)) for path in (run.folder, source.rows))
    named = f" --names {shlex.quote(','.join(source.names))}" if source.names else ""
    return (
        f"{chosen}\nThe model is in {run.folder}. Next:\n"
        f"  apportion report {folder}\n"
        f"  apportion predict {folder} {rows}{named} --out predictions.csv"
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
        self.asked = self.over = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        if self.over:  # and what is left takes a moment, which must not be cut short
            return
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
