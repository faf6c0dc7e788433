"""From run folders to one HTML file that needs nothing but itself."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from statistics import median
from typing import Any

from apportion import __version__
from apportion.bags.bags import Bags
from apportion.errors import Option, RunError, Words, count
from apportion.files import check_free, replacing, writing
from apportion.report import words
from apportion.report.advice import commands, notices
from apportion.report.answers import answers, of_data
from apportion.report.charts import Worst, bag_chart, calibration_chart, heat_map, worst
from apportion.report.compare import compared, differences, same_bags, verdict
from apportion.report.curves import learning_curves, time_chart
from apportion.report.drawing import Chart
from apportion.report.effects import column_effects, effects_missing
from apportion.report.examples import unsure_examples
from apportion.report.instances import Instances, with_instances
from apportion.report.read import SET_NAMES, RunRead, read_runs
from apportion.report.weigh import OFF, told_class
from apportion.report.words import PHASES, duration, listed, percent, plain, shortened, spanned
from apportion.runs.run import Run

__all__ = ["write_report"]

Shown = Mapping[str, Bags] | Instances | None

MOST_NUMBERS = 20  # classes of a confusion that is written in numbers


def write_report(
    runs: Sequence[str | PathLike[str]],
    out: str | PathLike[str] | None = None,
    *,
    instances: Shown | Sequence[Shown | None] = None,
    force: bool = False,
    date: datetime | None = None,
) -> Path:
    """Write a report of one run, or of several side by side.

    Parameters
    ----------
    runs : sequence of paths
        Run folders. They may still be in training.
    out : path, optional
        The file; by default report.html in the folder of a single run, or in the current folder
        for several.
    instances : mapping, or a sequence with one per run, optional
        The bags of the run, ``{"train": …, "valid": …, "test": …}`` as far as there are such, to
        show the instances that it is least sure of. Without them the page has the numbers of rows
        alone: a run keeps no instances.
    force : bool
        Whether to replace an existing file.
    date : datetime, optional
        When the page was written; by default now.

    Returns
    -------
    Path
        The file: a page that needs neither the folders nor a network connection.

    Raises
    ------
    RunError
        If a folder holds no run, or one without a finished epoch; if the instances are not those
        of the run; if the file exists or cannot be written.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from apportion import Bags, TrainConfig, fit
    >>> from apportion.nets.build import build_net
    >>> bags = Bags.from_rows(np.eye(4), ["a", "a", "b", "b"], truth=["no", "yes", "no", "no"])
    >>> with TemporaryDirectory() as folder:
    ...     history = fit(build_net("mlp", bags), bags, config=TrainConfig(epochs=2), run=folder)
    ...     write_report([folder]).name
    'report.html'
    """
    if isinstance(runs, str | PathLike) or not runs:
        raise RunError(f"the runs are {runs!r}.", "Pass a list of one run folder or more.")
    file = Path(out) if out is not None else Run(runs[0] if len(runs) == 1 else ".").report
    check_free(file, force=force, error=RunError)
    read = read_runs(runs)
    shown = instances if isinstance(instances, Sequence) else [instances] * len(read)
    if len(shown) != len(read):
        raise RunError(
            f"instances of {count(len(shown), 'run')} are given for {len(read)}.",
            "Pass one mapping, or a list of one for each run.",
        )
    read = [
        run if own is None else with_instances(run, own)
        for run, own in zip(read, shown, strict=True)
    ]
    text = page(read, datetime.now(UTC) if date is None else date)
    remedy: Words = (
        "Pass ",
        Option("out", '"report.html"', "report.html"),
        " in a folder that you may write to and that has space left.",
    )
    with writing(file, RunError, remedy):
        file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file, RunError, remedy) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")
    return file


def page(runs: Sequence[RunRead], date: datetime) -> str:
    """Return the page of runs that were read."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("apportion.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    of_words = (f for f in vars(words).values() if getattr(f, "__module__", "") == words.__name__)
    environment.filters |= {function.__name__: function for function in of_words}
    environment.filters["quoted"] = shlex.quote
    environment.filters |= {"folds": folds, "figures": figures, "bags": bags, "phases": phases}
    environment.filters |= {
        "nets": nets,
        "instances": truth_known,
        "unsure_examples": unsure_examples,
        "answers": answers,
        "notices": notices,
        "commands": commands,
        "column_effects": column_effects,
        "effects_missing": effects_missing,
    }
    several, curves = len(runs) > 1, learning_curves(runs)
    return environment.get_template("page.html.j2").render(
        title=title(runs),
        several=several,
        ended=any(run.evaluations for run in runs),
        runs=runs,
        verdict=list(verdict(runs)) if several else [],
        shared=list(of_data(runs[0])) if several and same_bags(runs) else [],
        compared=compared(runs),
        with_accuracy=any(run.with_truth for run in runs),
        differences=differences(runs),
        training="Learning curves" if curves else "Training",
        curves=curves,
        time=time_chart(runs),
        tables=any(own.effects for run in runs for own in run.evaluations.values()),
        written=words.date(date.timestamp()),
        version=__version__,
        sets=SET_NAMES,
        off=OFF,
    )


def title(runs: Sequence[RunRead]) -> str:
    """Return the title of the page."""
    names = [shortened(run.name, 40) for run in runs]
    if len(names) == 1:
        return f"Run {names[0]}"
    return f"Runs {listed(names)}" if len(names) <= 4 else f"{len(names)} runs"


def folds(text: str, most: int = 18) -> str:
    """Return the class of a cell: only long names are broken into lines."""
    return "nowrap" if len(text) <= most else "name"


def figures(run: RunRead) -> list[tuple[str, str, str]]:
    """Return the numbers to see first: what, how much, and a remark."""
    found: list[tuple[str, str, str]] = []
    for of, name in SET_NAMES.items():
        error, mean = run.error(of), run.error_of_mean(of)
        if error is not None and (of != "train" or not found):
            remarks = [f"95%: {span}"] if (span := spanned(run.error_interval(of))) else []
            remarks += [f"overall shares: {mean:.4f}"] if mean is not None else []
            remark = " · ".join(remarks)
            found.append((f"{name.capitalize()} proportion error", plain(error), remark))
    known = {of: share for of in SET_NAMES if (share := run.accuracy(of)) is not None}
    for of, share in [*known.items()][:1]:
        evaluation = run.evaluations.get(of)
        remarks = [f"95%: {span}"] if (span := spanned(run.accuracy_interval(of), percent)) else []
        if evaluation is not None and evaluation.confusion is not None:
            remarks.append(f"of {count(int(evaluation.confusion.sum()), 'instance')}")
        found.append(
            (f"{SET_NAMES[of].capitalize()} accuracy", percent(share), " · ".join(remarks))
        )
    if run.unit == "net":
        if run.wanted > 1:
            found.append(("Nets", f"{run.done:,}", "" if run.is_finished else f"of {run.wanted:,}"))
    else:
        which = ("Selected" if run.is_finished else "Best") if run.is_validated else "Last"
        so_far = f"of {run.done:,}" if run.is_finished else "so far"
        found.append((f"{which} epoch", f"{run.selected['epoch']:,}", so_far))
    each = f"{duration(run.total_seconds / run.done)} per {run.unit}"
    found.append(("Training time", duration(run.total_seconds), each))
    return found


def nets(run: RunRead) -> list[tuple[str, str, str, str]]:
    """Return the kind of each net, its loss or its penalty, and how long it took."""
    return [
        (
            str(record.get("member", "–")),
            plain(record.get("loss")),
            plain(record.get("l2"), 3),
            duration(sum(record.get("seconds", {}).values())),
        )
        for record in run.records
    ]


def bags(run: RunRead) -> list[tuple[str, Chart, list[Worst]]]:
    """Return each set of bags with its chart and its worst bags."""
    found = [(of, run.evaluations[of]) for of in SET_NAMES if of in run.evaluations]
    name, only = f"bags-{run.number}", told_class(run) if found else None
    return [
        (
            of,
            bag_chart(f"{name}-{of}", of, own, run.classes, only),
            worst(own, run.classes, only=only),
        )
        for of, own in found
    ]


def truth_known(run: RunRead) -> dict[str, Any] | None:
    """Return calibration and confusion, if the truth is known."""
    of = run.with_truth
    if of is None:
        return None
    confusion, calibration = run.evaluations[of].confusion, run.evaluations[of].calibration
    if confusion is None or calibration is None:
        return None
    few, name = len(run.classes) <= MOST_NUMBERS, f"confusion-{run.number}"
    rows = zip(run.classes, confusion.tolist(), strict=True)
    return {
        "of": of,
        "calibration": calibration_chart(f"calibration-{run.number}", of, calibration),
        "heat_map": None if few else heat_map(name, of, confusion, run.classes),
        "confusion": [(label, row, max(sum(row), 1)) for label, row in rows],
    }


def phases(run: RunRead) -> list[tuple[str, float, float, float]]:
    """Return the name of each phase, its median and total seconds, and its share of the total."""
    known = {PHASES.get(name, name): each for name, each in run.seconds().items() if sum(each) > 0}
    total = run.total_seconds
    return [(name, median(each), sum(each), sum(each) / total) for name, each in known.items()]
