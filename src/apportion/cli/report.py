"""The verb `apportion report`."""

from pathlib import Path
from typing import Annotated

import typer

from apportion.runs.run import Run

__all__ = ["report"]


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, one or more.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The file. By default report.html: in the run's folder, or here."),
    ] = None,
    with_instances: Annotated[
        bool,
        typer.Option(
            "--with-instances",
            help="Read the data of the runs again, and show the instances that are least certain.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Show what a run has learned: one HTML file that needs no network.

    A page in the run's own folder, runs/a/report.html:

      apportion report runs/a

    Several runs side by side:

      apportion report runs/a runs/b --out comparison.html

    A run that is still being trained, again and again:

      apportion report runs/a --force

    The page has names of bags, classes and columns, and numbers of rows, but no
    instances: a run keeps none. With the rows, images or signals that the model is
    least sure of, from the data as they were in training:

      apportion report runs/a --with-instances
    """
    from apportion.report.build import write_report

    instances = None
    if with_instances:
        from apportion.cli._instances import instances_of

        instances = [instances_of(Run(run)) for run in runs]
    typer.echo(f"Wrote {write_report(runs, out, instances=instances, force=force)}")
