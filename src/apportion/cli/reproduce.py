"""The verb `apportion reproduce`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["reproduce"]


def reproduce(
    paper: Annotated[
        Path, typer.Argument(help="A folder with a paper's tables, bags and results.")
    ] = Path("papers/matsuo2023"),
    data: Annotated[
        Path | None,
        typer.Option(envvar="APPORTION_DATA", help="Where the official data files are."),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Where to train: a run folder per cell; by default PAPER/runs."),
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--next", help="Run the next cells, in the paper's order.")
    ] = False,
    only: Annotated[
        str, typer.Option(help="Run these cells, e.g. method=fpl,bag_size=64/1024.")
    ] = "",
    seeds: Annotated[str, typer.Option(help="Cells of these seeds only, e.g. 0,1,2.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be run, and how long.")
    ] = False,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Start only what will end within this many seconds.")
    ] = None,
    at_once: Annotated[
        int, typer.Option(min=1, max=10, help="Cells to run at a time, on a GPU.")
    ] = 4,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="In place of the table's, for a trial.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    commit: Annotated[
        str | None, typer.Option(help="The code's version, where git cannot tell it.")
    ] = None,
    render: Annotated[
        bool, typer.Option("--render", help="Write tables and figures from the recorded lines.")
    ] = False,
) -> None:
    """Run the cells of a paper's tables that have no result yet, and record them.

    A cell that was interrupted goes on from its last checkpoint when it is run again.

    What is left, and how long it would take:

        apportion reproduce

    As many of the next cells as end within 500 seconds, four at a time:

        apportion reproduce --next --time-limit 500 --data ~/data

    Some cells; then tables and figures from all that is recorded:

        apportion reproduce --only method=fpl,bag_size=64/1024 --seeds 1,2 --data ~/data
        apportion reproduce --render
    """
    from dataclasses import replace

    from apportion.engine.device import device_for
    from apportion.errors import must_be
    from apportion.report.words import duration
    from apportion.study.reproduce.paper import Paper, select
    from apportion.study.reproduce.rendering import render as write
    from apportion.study.reproduce.running import run
    from apportion.study.reproduce.schedule import predicted
    from apportion.study.results import hardware_of

    try:
        chosen = [int(seed) for seed in seeds.split(",")] if seeds else None
    except ValueError:
        raise must_be("seeds", "integers, e.g. 0,1,2", seeds) from None
    folder = Paper(paper)
    cells = folder.cells(chosen)
    if epochs is not None:
        cells = list(dict.fromkeys(replace(cell, epochs=epochs) for cell in cells))
    cells = select(cells, only)
    results = folder.results()
    left = [cell for cell in cells if cell not in results]
    if not render or go_on or only or dry_run:
        typer.echo(f"{len(cells) - len(left)} of {len(cells)} cells have a result.")
    if (go_on or only) and not dry_run:

        def started(group: Sequence[Any], seconds: float) -> None:
            typer.echo(f"Running {', '.join(map(str, group))}: about {duration(seconds)}.")

        def done(cell: Any, line: dict[str, Any]) -> None:
            typer.echo(f"{cell}: {line['selected']:.2f} selected, {line['last']:.2f} last")

        were_run = run(
            folder,
            left,
            data=data,
            runs=runs,
            at_once=at_once,
            time_limit=time_limit,
            device=device,
            commit=commit,
            on_start=started,
            on_done=done,
        )
        typer.echo(f"{len(were_run)} cells were run, {len(left) - len(were_run)} are left.")
        if left and not were_run:
            typer.echo("None ends within the time limit, or all of them failed.", err=True)
            raise typer.Exit(1)
    elif not render or dry_run:
        hardware, kind = hardware_of(device), device_for(device).type
        each = [predicted(cell, results.values(), hardware, kind) for cell in left]
        for cell, seconds in zip(left, each, strict=True):
            typer.echo(f"  {cell}: {duration(seconds)}")
        typer.echo(f"{duration(sum(each))} in all on {hardware}; --next runs them in this order.")
    if render and not dry_run:
        for name in write(folder):
            typer.echo(f"Wrote {folder.folder / name}")
