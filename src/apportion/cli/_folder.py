"""The folder of a new run: claimed, free or replaced, and what a kill may leave of that.

A run that --force replaces is set aside, as `NAME.replaced`, until its replacement is finished.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import typer

from apportion.errors import RunError, count
from apportion.files import writing
from apportion.runs.header import read_header
from apportion.runs.run import WITHOUT_LABELS, Run, planned

ASIDE = ".replaced"  # the end of the name of a run that is being replaced
TRY_AGAIN = "Make room on its disk, or make it one that you may write to, and run again."


def check_free(out: Path | None, *, force: bool) -> None:
    """Check the folder before anything is read. What it holds stays until training has begun."""
    if out is None:
        return
    if out.exists() and not out.is_dir():
        raise RunError(f"--out {out} is a file.", "Pass a folder, which need not exist yet.")
    if out.name.endswith(ASIDE):
        raise RunError(f"--out {out} has the name of a run set aside.", "Pass another folder.")
    if foreign := Run(out).foreign():
        raise RunError(
            f"--out {out} has {foreign[0].name}, which is no part of a run.",
            "Pass another folder, which need not exist yet.",
        )
    if not Run(out).is_empty() and not force:
        if not os.path.lexists(Run(out).config):
            held = next(path.name for path in Run(out).files if os.path.lexists(path))
            raise RunError(
                f"--out {out} has {held}, but no run to go on with: it has no config.toml.",
                "Pass another folder, or --force to replace what it holds.",
            )
        raise RunError(
            f"--out {out} holds a run already.",
            f"Go on with it: apportion {_verb_of(Run(out))} --resume {shlex.quote(str(out))}; or "
            "pass another folder, or --force to replace it.",
        )


def _verb_of(run: Run) -> str:
    """Return the verb that goes on with a run."""
    with suppress(RunError):
        return "pretrain" if run.settings()["method"]["name"] == WITHOUT_LABELS else "train"
    return "train"


@contextmanager
def new_run(out: Path | None, *, force: bool) -> Iterator[Run]:
    """Make the folder of a new run, and keep others out of it.

    A run that it replaces is set aside until it is finished. If it fails before its first epoch
    ends, all is left as it was.
    """
    folder = _claimed() if out is None else out
    made = out is None or not folder.exists()
    replaces = force and _set_aside(folder)
    run = Run(folder)
    with ExitStack() as at_the_end, run.locked():
        if not run.is_empty():
            raise RunError(
                f"{run.folder} holds a run that another process has begun by now.",
                "Pass another folder.",
            )
        try:
            yield run
        finally:
            with suppress(OSError):  # what stays is settled the next time
                if run.is_finished() and replaces:
                    shutil.rmtree(aside_of(folder))
                elif not run.has_begun():
                    run.clear()
                    at_the_end.callback(_leave, folder, made=made, replaces=replaces)


def _leave(folder: Path, *, made: bool, replaces: bool) -> None:
    """Leave a folder in which no run has begun as it was before."""
    with suppress(OSError):
        shutil.rmtree(folder)
        if replaces:
            aside_of(folder).rename(folder)
        elif not made:
            folder.mkdir()


def aside_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{ASIDE}")


def _set_aside(folder: Path) -> bool:
    """Set the run in a folder aside, and tell whether there was one.

    If there is one aside already, whose replacement was killed, that one stays: it is the last
    that was not cut short.
    """
    run, aside = Run(folder), aside_of(folder)
    if run.is_empty():
        return False
    if os.path.lexists(aside) and not _is_aside(aside):
        raise RunError(f"{aside} is in the way, and is no run that was set aside.", "Rename it.")
    with run.locked(), writing(folder, RunError, TRY_AGAIN):  # or somebody is training there
        if aside.exists():
            run.clear()
            told = f"Replacing an unfinished run; the one before it is in {aside} until the end."
            typer.echo(told, err=True)
        else:
            folder.rename(aside)
    return True


def _is_aside(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and not Run(folder).foreign()


def settled(folder: Path) -> Path:
    """Settle what a --force that was killed has left of a run; return the folder behind links.

    The run that was set aside is put back if its replacement has not begun, and removed if that
    is finished. Otherwise it stays.
    """
    if folder.is_symlink() or folder.name in ("", ".."):  # what can be renamed is behind it
        folder = Path(os.path.realpath(folder))
    run, aside = Run(folder), aside_of(folder)
    if not _is_aside(aside) or (folder.exists() and not folder.is_dir()) or run.foreign():
        return folder
    with run.locked(), writing(aside, RunError, TRY_AGAIN):
        if run.is_finished():
            shutil.rmtree(aside)
            typer.echo(f"Removed {aside}: the run that replaces it is finished.", err=True)
        if not run.is_empty():
            return folder
    with writing(aside, RunError, TRY_AGAIN):
        shutil.rmtree(folder)
        aside.rename(folder)
    typer.echo(f"Put back {folder}, which a --force that was killed had set aside.", err=True)
    return folder


def _claimed() -> Path:
    """Make the first folder of runs/1, runs/2 and so on that nobody else has made."""
    number = 0
    while True:
        number += 1
        folder = Path("runs", str(number))
        with writing(folder, RunError, TRY_AGAIN), suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder


def stopped(run: Run, verb: str, *, begun: bool) -> str:
    """Say how far a run, or its pre-training, got that was stopped, and how to go on with it."""
    if not begun:
        return "\nStopped before anything was learned: nothing is kept. Begin as you did."
    first, of_what, going = Run(run.pretraining), "", run
    if not run.records() and first.config.exists() and not first.pretrained.exists():
        going, of_what = first, " of pre-training"
    done, (total, unit), saved = len(going.records()), planned(going.settings()), 0
    if going.checkpoint.exists():
        saved = read_header(going.checkpoint, "checkpoint")["epoch"]
    lost = f", of which {saved or 'none'} {'is' if saved < 2 else 'are'} saved"
    aside = aside_of(run.folder)
    kept = f"\nThe run that it replaces is kept in {aside} until then." if aside.exists() else ""
    return (
        f"\nStopped after {done} of {count(total, unit)}{of_what}{lost if saved < done else ''}. "
        f"To go on:\n  apportion {verb} --resume {shlex.quote(str(run.folder))}{kept}"
    )
