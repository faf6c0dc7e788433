"""The verb `apportion train`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.cli.options import (
    BagOption,
    ClassesOption,
    CountsOption,
    ExcludeOption,
    FileOption,
    ImagesOption,
    LabelOption,
    NamesOption,
    NormalizeOption,
    OrderOption,
    ProportionsOption,
    SignalOption,
    SizeOption,
    given_source,
    listed,
)

__all__ = ["train"]

LEARNING = "Learning"
RUN = "The run"


def train(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="rows or config.toml",
            help="A .csv, .csv.gz or .parquet file with a row an instance; or a configuration.",
        ),
    ] = None,
    bag: BagOption = None,
    proportions: ProportionsOption = None,
    classes: ClassesOption = None,
    counts: CountsOption = False,
    normalize: NormalizeOption = False,
    label: LabelOption = None,
    exclude: ExcludeOption = None,
    names: NamesOption = None,
    images: ImagesOption = None,
    file: FileOption = None,
    size: SizeOption = None,
    signal: SignalOption = None,
    order: OrderOption = None,
    net: Annotated[
        str | None,
        typer.Option(
            help="mlp, conv1d or resnet18.", show_default="by the data", rich_help_panel=LEARNING
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="fpl, fpl-plain, greedy, naive, proportion-loss, pi-model or llp-vat.",
            show_default="fpl",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    eta: Annotated[
        float | None,
        typer.Option(
            help="How much pseudo labels are perturbed.",
            show_default="5 · epochs / 400",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Instead of defaults by the data: default, or paper, which is what Matsuo et al. "
            "did.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="How often every row is used.",
            show_default="100, fewer for large data",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Rows in a step.", show_default="a hundredth of them", rich_help_panel=LEARNING
        ),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(show_default="0.001", rich_help_panel=LEARNING)
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(show_default="0.1", rich_help_panel=LEARNING)
    ] = None,
    augment: Annotated[
        str | None,
        typer.Option(help="crop,flip,noise: any of them.", rich_help_panel=LEARNING),
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(
            help="The share of the bags to select the best epoch by, if the proportions have no "
            "column 'split'.",
            show_default="0.1, if that is 5 bags at least",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Stop once so many epochs have brought nothing better.", rich_help_panel=LEARNING
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Decides everything random.", show_default="0", rich_help_panel=LEARNING),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="auto, cpu, cuda, cuda:1, …", show_default="auto", rich_help_panel=LEARNING
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads.", rich_help_panel=LEARNING)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the run.",
            show_default="runs/1, runs/2, …",
            rich_help_panel=RUN,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with the run in this folder.", rich_help_panel=RUN),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the run in --out.", rich_help_panel=RUN)
    ] = False,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Log for TensorBoard as well.", rich_help_panel=RUN),
    ] = False,
) -> None:
    """Learn a classifier of rows from the proportions of bags, in a run folder.

    Rows with a column 'ward', and a table with a row a ward and a column a class:

      apportion train rows.csv --bag ward --proportions wards.csv --out runs/a

    Image files, and signals with a row a frame:

      apportion train files.csv --images slides/ --proportions patients.csv

      apportion train frames.csv --signal word --proportions speakers.csv

    The same again from the configuration that a run keeps, with other options:

      apportion train runs/a/config.toml --method proportion-loss --out runs/b

    After Ctrl-C, a crash or a power cut, as if nothing had happened:

      apportion train --resume runs/a

    Every epoch tells the loss; the validation error, the share of a held-out
    bag that is given to the wrong class, which selects the epoch; how many
    pseudo labels changed; and their regret: what they cost above the best ones
    in hindsight. The folder holds config.toml, whose sections data, model,
    method and train may be edited and trained from again, log.jsonl with a line
    an epoch, checkpoints, and the model for apportion predict and export.
    """
    from apportion.cli._training import train_job
    from apportion.cli.job import Job, job_of_run
    from apportion.cli.source import Source
    from apportion.errors import ConfigError
    from apportion.runs.run import Run

    given = given_source(
        bag=bag,
        proportions=proportions,
        classes=classes,
        counts=counts,
        normalize=normalize,
        label=label,
        exclude=exclude,
        names=names,
        images=images,
        file=file,
        size=size,
        signal=signal,
        order=order,
    )
    sections: dict[str, dict[str, Any]] = {
        "model": {"net": net, "validation": validation},
        "method": {"name": method, "eta": eta},
        "train": {
            "preset": preset,
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "augment": listed(augment),
            "patience": patience,
            "seed": seed,
            "device": device,
            "threads": threads,
        },
    }
    if resume is not None:
        # Where and with how many threads it computes may change; the rest was decided.
        free = {name: sections["train"].pop(name) for name in ("device", "threads")}
        options = [name for own in sections.values() for name, v in own.items() if v is not None]
        _check_alone(source, out, [*given, *options, *(["force"] if force else [])])
        out = resume
        job = _changed(job_of_run(Run(resume)), {"train": free})
    elif source is None:
        raise ConfigError(
            "neither rows nor a configuration are given.",
            "Pass a table of rows: apportion train rows.csv --bag ward --proportions wards.csv; or "
            "a .toml file; or --resume and the folder of a run.",
        )
    else:
        if source.suffix.lower() == ".toml":
            job = Job.from_toml(source, given)
        else:
            job = Job(Source(str(source), **given))
        job = _changed(job, sections)
        _check_free(out, force=force)
    train_job(job, out, resuming=resume is not None, force=force, tensorboard=tensorboard)


def _check_alone(source: Path | None, out: Path | None, options: list[str]) -> None:
    """With --resume nothing may be given that was decided when the run began."""
    from apportion.errors import ConfigError

    beside = ["--method" if name == "name" else f"--{name.replace('_', '-')}" for name in options]
    beside += ["--out"] * (out is not None) + [str(source)] * (source is not None)
    if beside:
        raise ConfigError(
            f"--resume goes on with a run as it began, but there is also {', '.join(beside)}.",
            "Leave it out; or start another run: apportion train runs/a/config.toml with it, and "
            "--out runs/b, say.",
        )


def _changed(job: Any, sections: dict[str, dict[str, Any]]) -> Any:
    """Put what was given as flags over what the configuration says."""
    from dataclasses import replace

    changes = {}
    for section, options in sections.items():
        own = {name: value for name, value in options.items() if value is not None}
        before = dict(getattr(job, section))
        if "name" in own or "preset" in own:  # which has other settings
            before = {}
        changes[section] = {**before, **own}
    return replace(job, **changes)


def _check_free(out: Path | None, *, force: bool) -> None:
    """See to the folder before anything is read. What it holds stays until training has begun."""
    from apportion.errors import RunError
    from apportion.runs.run import Run

    if out is None:
        return
    if out.exists() and not out.is_dir():
        raise RunError(f"--out {out} is a file.", "Pass a folder, which need not exist yet.")
    there = sorted(path.name for path in out.glob("*") if path.name != "lock")
    foreign = [path.name for path in Run(out).foreign() if path.name != "columns.json"]
    if foreign:
        raise RunError(
            f"--out {out} has {foreign[0]}, which is no part of a run.",
            "Pass another folder, which need not exist yet.",
        )
    if there and not force:
        raise RunError(
            f"--out {out} holds a run already.",
            f"Go on with it: apportion train --resume {out}; or pass another folder, or --force to "
            "replace it.",
        )
