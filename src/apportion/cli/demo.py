"""The verb `apportion demo`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["demo"]

SHOWN = {
    "fpl": "the paper's method",
    "greedy": "without perturbation",
    "proportion-loss": "Eq. 7",
    "true labels": "upper bound",
}
REPORTED = ("fpl", "proportion-loss")


def demo(
    out: Annotated[
        Path, typer.Option(help="The folder for the runs of the first draw and the report.")
    ] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Draws of test digits, bags and network.")] = 3,
    force: Annotated[bool, typer.Option("--force", help="Replace what is in --out.")] = False,
) -> None:
    """Train on bags of handwritten digits, compare methods, and write a report.

    It takes about a minute on a CPU. The table compares four methods over three
    draws; the report, an HTML file, shows two of them side by side.
    """
    import logging

    from rich.console import Console

    clear(out, force=force)
    log = logging.getLogger("apportion")
    before = log.level
    log.setLevel(logging.ERROR)
    console = Console(highlight=False)
    console.print("Training on the CPU. The first time, the label solver is compiled as well.")
    try:
        show(console, out, seeds)
    finally:
        log.setLevel(before)


def clear(out: Path, *, force: bool) -> None:
    """Check that a folder is free for the demo, or remove an older demo from it."""
    from apportion.errors import RunError
    from apportion.runs.run import Run

    if out.is_file():
        raise RunError(f"--out {out} is a file.", "Pass a folder.")
    there = sorted(path.name for path in out.glob("*"))
    own = {Run(out).report.name, *REPORTED}.issuperset(there)
    remedy = "Pass --force to replace them, or another folder."
    if not own:
        remedy = "Pass another folder: this one holds more than a demo."
    if there and not (force and own):
        problem = f"--out {out} has {len(there)} files already, such as {there[0]}."
        raise RunError(problem, remedy)
    if there:
        shutil.rmtree(out)


def show(console: Console, out: Path, seeds: int = 3) -> None:
    """Run some methods on some draws, print a table of their accuracies, and write a report.

    Parameters
    ----------
    out : Path
        A folder, new or empty, for the runs of the first draw and the report.
    """
    import numpy as np
    from rich.progress import Progress
    from rich.table import Table

    from apportion.labels.assign import compile_ahead
    from apportion.report.build import write_report
    from apportion.runs.run import Run
    from apportion.study.demo import Trial, trial, verdict

    compile_ahead(10, wait=True)  # outside the time of any method
    found: dict[str, list[Trial]] = {method: [] for method in SHOWN}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=seeds * len(SHOWN))
        for seed in range(seeds):
            for method in SHOWN:
                progress.update(task, description=f"draw {seed + 1} of {seeds}: {method}")
                kept = out / method if seed == 0 and method in REPORTED else None
                found[method].append(trial(method, seed, threads=1, run=kept))
                progress.advance(task)

    table = Table(title="Test accuracy of a perceptron on handwritten digits", title_justify="left")
    table.add_column("method")
    table.add_column("")
    for name in ("accuracy", "least – most", "seconds"):
        table.add_column(name, justify="right")
    for method, trials in found.items():
        accuracies = [trial.accuracy for trial in trials]
        table.add_row(
            method,
            SHOWN[method],
            f"{np.mean(accuracies):.1%}",
            f"{min(accuracies):.1%} – {max(accuracies):.1%}",
            f"{np.mean([trial.seconds for trial in trials]):.1f}",
        )
    console.print(table)
    draws = f"means over {seeds} draws" if seeds > 1 else "one draw"
    console.print(
        "10 bags of 128 digits, of which only the proportions of the ten classes are known; "
        f"100 epochs; {draws} of test digits, bags and network. {verdict(found)}"
    )
    runs, digits = zip(*((out / m, found[m][0].bags) for m in REPORTED), strict=True)
    report = write_report(runs, Run(out).report, instances=digits)  # which are public
    console.print(
        f"\n{' and '.join(REPORTED)} of the first draw side by side, with pictures: open\n"
        f"  {report.resolve().as_uri()}",
        soft_wrap=True,
    )
