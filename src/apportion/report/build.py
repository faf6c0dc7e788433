"""From run folders to one HTML file, which needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from apportion import __version__
from apportion.errors import RunError
from apportion.files import check_free, replacing, writing
from apportion.report.bag_charts import proportions_chart, worst
from apportion.report.charts import PHASES, learning_curves, time_chart
from apportion.report.comparing import compared, differences
from apportion.report.examples import unsure_examples
from apportion.report.instance_charts import calibration_chart, heat_map
from apportion.report.reading import RunRead, read_runs
from apportion.report.words import (
    SETS,
    commands,
    count,
    duration,
    listed,
    method_in_words,
    network_in_words,
    notices,
    percent,
    plain,
    shortened,
    summary,
)
from apportion.runs.run import Run

__all__ = ["write_report"]

MOST_NUMBERS = 20  # classes of a confusion that is written in numbers


def write_report(
    runs: Sequence[str | PathLike[str]],
    out: str | PathLike[str] | None = None,
    *,
    force: bool = False,
) -> Path:
    """Write a report of one run, or of several side by side.

    Parameters
    ----------
    runs : sequence of paths
        Run folders. Training may still be going on in them.
    out : path, optional
        The file; by default report.html, in the folder of the one run or, for several, in the
        current one.
    force : bool
        Whether to replace a file that is there.

    Returns
    -------
    Path
        The file: a page that needs neither the folders nor a network any more.

    Raises
    ------
    RunError
        If a folder holds no run, or one without an epoch.
    RunError
        If the file is there already, or cannot be written.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from apportion import Bags, TrainConfig, fit
    >>> from apportion.nets.build import build
    >>> bags = Bags.from_rows(np.eye(4), ["a", "a", "b", "b"], truth=["no", "yes", "no", "no"])
    >>> with TemporaryDirectory() as folder:
    ...     history = fit(build("mlp", bags), bags, config=TrainConfig(epochs=2), run=folder)
    ...     write_report([folder]).name
    'report.html'
    """
    if isinstance(runs, str | PathLike) or not runs:
        raise RunError(f"the runs are {runs!r}.", "Pass a list of one run folder or more.")
    file = Path(out) if out is not None else _default(runs)
    check_free(file, force=force, error=RunError)
    text = page(read_runs(runs))
    with writing(file, RunError):
        file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file, RunError) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")
    return file


def _default(runs: Sequence[str | PathLike[str]]) -> Path:
    return Run(runs[0] if len(runs) == 1 else ".").report


def page(runs: Sequence[RunRead]) -> str:
    """Make the page of runs that were read."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("apportion.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "plain": plain, "duration": duration}
    environment.filters |= {"shortened": shortened, "folds": _folds}
    several = len(runs) > 1
    names = [shortened(run.name, 40) for run in runs]
    return environment.get_template("page.html.j2").render(
        title=_title(names),
        several=several,
        ended=any(run.evaluations for run in runs),
        runs=[_run(run, number) for number, run in enumerate(runs, start=1)],
        compared=compared(runs) if several else None,
        differences=differences(runs) if several else [],
        curves=learning_curves(runs),
        time=time_chart(runs),
        version=__version__,
        sets=SETS,
    )


def _title(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"Run {names[0]}"
    return f"Runs {listed(names)}" if len(names) <= 4 else f"{len(names)} runs"


def _folds(text: str, most: int = 18) -> str:
    """Let only long names be broken into lines."""
    return "nowrap" if len(text) <= most else "name"


def _run(run: RunRead, number: int) -> dict[str, Any]:
    """Give the page all that it says of one run."""
    return {
        "name": run.name,
        "number": number,
        "folder": str(run.folder),
        "finished": run.is_finished,
        "summary": summary(run),
        "notices": notices(run),
        "figures": _figures(run),
        "bags": _bags(run, number),
        "instances": _instances(run, number),
        "examples": unsure_examples(run),
        "phases": _phases(run),
        "total_seconds": run.total_seconds,
        "config": run.config_text,
        "resolved": dict(run.config.get("resolved", {})),
        "commands": commands(run),
        "method": method_in_words(run.config),
        "network": network_in_words(run),
    }


def _figures(run: RunRead) -> list[tuple[str, str, str]]:
    """The numbers to see first: what, how much, and of what."""
    found: list[tuple[str, str, str]] = []
    for name in ("test", "valid", "train"):
        error = run.error(name)
        if error is not None and (name != "train" or not found):
            guess = run.error_of_guessing(name)
            beside = "" if guess is None or name == "train" else f"guessing the mean: {guess:.4f}"
            found.append((f"{SETS[name].capitalize()} proportion error", plain(error), beside))
    known = [name for name in ("test", "valid", "train") if run.accuracy(name) is not None]
    for name in known[:1]:
        share = run.accuracy(name)
        assert share is not None
        evaluation = run.evaluations.get(name)
        of = "" if evaluation is None else f"of {count(int(evaluation.sizes.sum()), 'instance')}"
        found.append((f"{SETS[name].capitalize()} accuracy", percent(share), of))
    best = "Selected epoch" if run.is_finished else "Best epoch"
    which = best if run.is_validated else "Last epoch"
    epoch = f"{run.selected['epoch']:,}"
    found.append((which, epoch, f"of {run.epochs:,}" if run.is_finished else "so far"))
    found.append(("Training time", duration(run.total_seconds), _each(run)))
    return found


def _each(run: RunRead) -> str:
    return f"{duration(run.total_seconds / run.epochs)} an epoch"


def _bags(run: RunRead, number: int) -> list[dict[str, Any]]:
    return [
        {
            "of": of,
            "chart": proportions_chart(f"bags-{number}-{of}", of, evaluation, run.classes),
            "worst": worst(evaluation, run.classes),
            "n_bags": len(evaluation.sizes),
        }
        for of in ("test", "valid", "train")
        if (evaluation := run.evaluations.get(of)) is not None
    ]


def _instances(run: RunRead, number: int) -> dict[str, Any] | None:
    """Calibration and confusion, where the truth is known."""
    of = run.with_truth
    if of is None:
        return None
    evaluation = run.evaluations[of]
    confusion, calibration = evaluation.confusion, evaluation.calibration
    if confusion is None or calibration is None or not confusion.sum():
        return None
    few = len(run.classes) <= MOST_NUMBERS
    return {
        "of": of,
        "calibration": calibration_chart(f"calibration-{number}", of, calibration),
        "heat_map": None if few else heat_map(f"confusion-{number}", of, confusion, run.classes),
        "confusion": _rows(run.classes, confusion) if few else [],
        "classes": list(run.classes),
        "accuracy": run.accuracy(of),
        "n_instances": int(confusion.sum()),
    }


def _rows(classes: Sequence[str], confusion: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """The rows of a confusion: counts with how dark they are, and how many were recognised."""
    found = []
    for c, label in enumerate(classes):
        total = int(confusion[c].sum())
        cells = [(int(n), round(int(n) / total, 3) if total else 0.0) for n in confusion[c]]
        right = cells[c][0] / total if total else None
        found.append({"label": label, "cells": cells, "total": total, "right": right, "at": c})
    return found


def _phases(run: RunRead) -> list[dict[str, Any]]:
    total = run.total_seconds
    return [
        {
            "name": PHASES.get(name, name),
            "total": sum(each),
            "median": median(each),
            "share": sum(each) / total if total else 0.0,
        }
        for name, each in run.seconds().items()
        if sum(each) > 0
    ]
