"""The verb `apportion report`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report"]


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, one or more.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The file. By default report.html: in the run's folder, or here."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Show what a run has learned: one HTML file that needs no network.

    A page in the run's own folder, runs/a/report.html:

      apportion report runs/a

    Several runs side by side:

      apportion report runs/a runs/b --out comparison.html

    A run that is still being trained, again and again:

      apportion report runs/a --force
    """
    from apportion.report.build import write_report

    typer.echo(f"Wrote {write_report(runs, out, force=force)}")
