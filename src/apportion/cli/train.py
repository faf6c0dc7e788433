"""The verb `apportion train`: a training in a run folder, which can be stopped and continued."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.cli._folder import check_free, new_run, settled, stopped
from apportion.cli.job import Learning, Prepared, TrainJob, job_of_run
from apportion.cli.options import (
    RUN,
    BegunFolder,
    NewFolder,
    Replaces,
    listed,
    options_of,
    takes,
)
from apportion.cli.source import Source
from apportion.cli.terminal import INTERRUPTED, interruptible, log_shown
from apportion.config import TrainConfig
from apportion.engine.distributed import Ranks, is_of_another, lost, speaks_for_all, together
from apportion.errors import ConfigError, RunError, count
from apportion.runs.run import Run, planned

if TYPE_CHECKING:
    from apportion.bags.columns import Columns
    from apportion.training.history import History

__all__ = ["train"]

# The options of TrainConfig that are flags, and what the plan makes of some of them.
TRAIN = (
    "epochs",
    "batch_size",
    "shuffle",
    "learning_rate",
    "weight_decay",
    "clip_norm",
    "augment",
    "patience",
)
PLACE = ("seed", "device", "threads")
PLANNED = {
    "epochs": "100 of a single net, fewer for large data",
    "batch_size": "a hundredth of the rows",
    "weight_decay": "0.1",
    "threads": "what steps are worth on idle cores",
}


@takes(
    Source.flags(),
    options_of(Learning, "Learning", ("net", "method", "eta", "preset")),
    options_of(TrainConfig, "Learning", (*TRAIN, *PLACE), PLANNED),
    options_of(Learning, "Learning", ("validation", "pretrain", "pretrained")),
)
def train(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="rows or config.toml",
            help="A .csv, .tsv, .txt, .xlsx or .parquet file with one row per instance; or a "
            "configuration.",
        ),
    ] = None,
    out: NewFolder = None,
    resume: BegunFolder = None,
    force: Replaces = False,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Log for TensorBoard as well.", rich_help_panel=RUN),
    ] = False,
    **options: Any,
) -> None:
    """Learn a classifier of rows from the proportions of bags, in a run folder.

    Rows with a column 'ward', and a table with one row per ward and one column per class:

      apportion train rows.csv --bag ward --proportions wards.csv --out runs/a

    Image files, and signals with one row per frame:

      apportion train files.csv --images slides/ --proportions patients.csv

      apportion train frames.csv --signal word --proportions speakers.csv

    The most that images allow: features without labels first. A GPU is needed:

      apportion train files.csv --images slides/ --proportions patients.csv \
--preset strong

    The same again from the configuration that a run keeps, with other options:

      apportion train runs/a/config.toml --method proportion-loss --out runs/b

    After Ctrl-C, a crash or a power cut, as if nothing had happened:

      apportion train --resume runs/a

    A single net, with more epochs than it began with, at its own eta:

      apportion train --resume runs/b --epochs 200

    Tables are learned by an average of small nets, which says in the end what
    to expect of it. --method, or an option of a net such as
    --epochs, trains a single net, as for images and signals. Each of its epochs
    shows the loss; the validation error, the share of a held-out bag that is
    given to the wrong class, which selects the epoch; how many pseudo labels
    changed; and their regret: what they cost above the best ones in hindsight.
    The folder holds config.toml, whose sections data, model, method and train may
    be edited and trained from again, log.jsonl with one record per epoch or net,
    checkpoints, and the model for apportion predict and export.
    """
    with together(options["device"] or "auto") as ranks, _ended_by_torchrun(ranks):
        _train_here(source, out, resume, options, ranks, force=force, tensorboard=tensorboard)


def _train_here(
    source: Path | None,
    out: Path | None,
    resume: Path | None,
    options: dict[str, Any],
    ranks: Ranks,
    *,
    force: bool,
    tensorboard: bool,
) -> None:
    """Read what is asked for, and train it: of several processes the first alone writes."""
    given, sections, more = Source.given(options), _sections(options), False
    if resume is not None:
        resume = Path(ranks.by_first(partial(_settled, resume)))
        # Where and with how many threads it computes may change, and epochs may be added.
        free = {name: sections["train"].pop(name) for name in ("device", "threads", "epochs")}
        chosen = [name for own in sections.values() for name, v in own.items() if v is not None]
        _check_alone(source, out, [*given, *chosen, *(["force"] if force else [])])
        job = job_of_run(Run(resume))
        began, unit = planned(Run(resume).settings())
        _check_added(free["epochs"], began, unit, resume)
        more = (free["epochs"] or 0) > began
        job = job.changed({"train": free})
    elif source is None:
        raise ConfigError(
            "neither rows nor a configuration are given.",
            "Pass a table of rows: apportion train rows.csv --bag ward --proportions wards.csv; or "
            "a .toml file; or --resume and the folder of a run.",
        )
    else:
        if source.suffix.lower() == ".toml":
            job = TrainJob.from_toml(source, given)
        else:
            job = TrainJob(Source(str(source), **given))
        job = job.changed(sections)
        if ranks.leads:
            out = None if out is None else settled(out)
            check_free(out, force=force)
    before = None if resume is None else Run(resume)
    if before is not None and not more and ranks.by_first(before.evaluation.exists):
        if ranks.leads:
            done = count(len(before.records()), unit)
            typer.echo(f"{before.folder} is finished: {done}. There is nothing to do.")
        return
    _train(job, out, before, ranks, force=force, tensorboard=tensorboard)


@contextmanager
def _ended_by_torchrun(ranks: Ranks) -> Iterator[None]:
    """Take the end by torchrun for what it is: another process has ended, or torchrun itself.

    From then on, and after an error, a process has the time to say so.
    """
    if not ranks.are_several:
        yield
        return

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise lost(ranks.world)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except BaseException:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    signal.signal(signal.SIGTERM, before)


def _settled(folder: Path) -> str:
    return str(settled(folder))


def _sections(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the flags that say how to learn, by the sections of a configuration."""
    train = {name: options[name] for name in ("preset", *TRAIN, *PLACE)}
    return {
        "model": {name: options[name] for name in ("net", "validation", "pretrain", "pretrained")},
        "method": {"name": options["method"], "eta": options["eta"]},
        "train": {**train, "augment": listed(train["augment"])},
    }


def _check_alone(source: Path | None, out: Path | None, options: list[str]) -> None:
    """Check that nothing beside --resume was decided when the run began."""
    beside = ["--method" if name == "name" else f"--{name.replace('_', '-')}" for name in options]
    beside += ["--out"] * (out is not None) + [str(source)] * (source is not None)
    if beside:
        raise ConfigError(
            f"--resume goes on with a run as it began, but there is also {', '.join(beside)}.",
            "Leave it out; or start another run, for example with apportion train "
            "runs/a/config.toml, the option and --out runs/b.",
        )


def _check_added(epochs: int | None, before: int, unit: str, folder: Path) -> None:
    """Check that epochs are added, if any number of them is given, and none taken away."""
    if epochs is not None and unit == "net":
        raise ConfigError(
            f"--epochs is {epochs}, but {folder} trains nets of a table, or of summaries of "
            "signals, whose steps are fixed.",
            "Leave it out.",
        )
    if epochs is not None and epochs < before:
        raise ConfigError(
            f"--epochs {epochs} is less than the {before} that {folder} is trained for.",
            "Pass more than that, or leave it out.",
        )


# ---------------------------------------------------------------------------------- training


def _train(
    job: TrainJob,
    out: Path | None,
    before: Run | None,
    ranks: Ranks,
    *,
    force: bool,
    tensorboard: bool,
) -> None:
    """Train in a new folder or go on with the run before, and report the result."""
    from apportion.training.progress import announce
    from apportion.training.tensorboard import tensorboard as event_files

    with ExitStack() as stack:
        stack.enter_context(log_shown() if ranks.leads else nullcontext())
        begun = before is not None and before.checkpoint.exists()
        found = job.prepare(None if before is None else _columns_of(before), begun=begun)
        interruption = stack.enter_context(interruptible(shown=ranks.leads))
        run = before
        if run is None and ranks.leads:
            run = stack.enter_context(new_run(out, force=force))
        run = _as_first(run, ranks)
        run.about = found.about if before is None else _sections_of(before)
        log_events = None
        if tensorboard and ranks.leads:
            if run.tensorboard.is_symlink():
                raise RunError(
                    f"{run.tensorboard} is a link, and nothing is written through links.",
                    "Remove it, or put the folder itself in its place.",
                )
            log_events = stack.enter_context(event_files(run.tensorboard))

        def on_epoch(record: dict[str, Any], net: Any) -> None:
            if log_events is not None:
                log_events(record, net)
            interruption.after_epoch()

        def on_first(record: dict[str, Any], net: Any) -> None:  # noqa: ARG001
            interruption.after_epoch()

        if ranks.leads:
            announce(_intent(run, found), None)
        try:
            history = found.train(run, on_epoch, on_first)
        except (KeyboardInterrupt, RunError) as stop:
            # Where Ctrl-C has ended another process at once, this one has lost it.
            if isinstance(stop, RunError) and not (interruption.asked and is_of_another(stop)):
                raise
            if ranks.leads and speaks_for_all(stop):
                begun = before is not None or run.has_begun()
                typer.echo(stopped(run, "train", begun=begun), err=True)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            interruption.over = True
        if before is not None and ranks.leads:
            settled(run.folder)
    if not ranks.leads:
        return
    typer.echo(_told(run, history, job.source))
    if tensorboard:
        typer.echo(f"  tensorboard --logdir {shlex.quote(str(run.tensorboard))}")


def _as_first(run: Run | None, ranks: Ranks) -> Run:
    """Return the run, or on other ranks than the first a run in the same folder."""
    folder = ranks.by_first(lambda: None if run is None else str(run.folder))
    return Run(folder) if run is None else run


def _columns_of(run: Run) -> Columns | None:
    """Return the columns that a run has learned, if it got as far as its first checkpoint."""
    from apportion.runs.header import columns_of, read_header

    if not run.checkpoint.exists():
        return None
    return columns_of(read_header(run.checkpoint, "checkpoint"))


def _sections_of(run: Run) -> dict[str, dict[str, Any]]:
    """Return the sections of a run's configuration that `fit` does not write by itself."""
    own = ("format", "train", "method", "resolved")
    return {name: section for name, section in run.settings().items() if name not in own}


# -------------------------------------------------------------------------------- messages


def _intent(run: Run, found: Prepared) -> str:
    """Return a summary of the training that begins, with the plan and its reasons."""
    bags = ", ".join(f"{b.n_bags:,} {name}" for name, b in found.sets.items())
    train = found.sets["train"]
    return (
        f"Learning {train.n_classes} classes from {train.n_instances:,} instances in bags: {bags}. "
        f"Folder: {run.folder}\n{found.plan}"
    )


def _of_table(history: History) -> str:
    """Return what was trained, and what to expect of it."""
    from apportion.auto.held_out import Expectation

    record = history.selected
    kept = "An average of nets" if history.n_epochs > 1 else "A linear model"
    expected = Expectation.of_record(record)
    known = {"proportion_error": "training", "valid_error": "validation", "test_error": "test"}
    found = {name: record[name] for name in known if record.get(name) is not None}
    errors = [f"{known[name]} {error:.4f}" for name, error in found.items()]
    told = [f"{kept} was trained", *([str(expected)] if expected is not None else [])]
    measured = f" Proportion error: {', '.join(errors)}." if errors else ""
    return f"{': '.join(told)}.{measured}"


def _told(run: Run, history: History, source: Source) -> str:
    """Return a summary of the result, and the next commands."""
    record = history.selected
    if "member" in record:
        chosen = _of_table(history)
    elif history.best_epoch is None:
        chosen = f"Epoch {history.n_epochs}, the last, is kept: no bags were held out to select by."
    else:
        error = f"{record['valid_error']:.4f}"
        chosen = f"Epoch {history.best_epoch} selected, of validation proportion error {error}."
    known = {"valid_accuracy": "validation", "test_accuracy": "test"}
    found = {name: record[name] for name in known if record.get(name) is not None}
    accuracies = [f"{known[name]} {share:.1%}" for name, share in found.items()]
    if accuracies:
        chosen += f" Accuracy: {', '.join(accuracies)}."
    folder, rows = (shlex.quote(str(path)) for path in (run.folder, source.rows))
    return (
        f"{chosen}\nThe model is in {run.folder}. Next:\n"
        f"  apportion report {folder}\n"
        f"  apportion predict {folder} {rows}{source.format_flags} --out predictions.csv"
    )
