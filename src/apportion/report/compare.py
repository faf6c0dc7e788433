"""Several runs side by side: their results, and how their options differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from apportion.report.read import SET_NAMES, RunRead
from apportion.report.words import duration, percent, plain

MEASURES: tuple[tuple[str, Callable[..., float | None], Callable[..., str], Any], ...] = (
    ("error", RunRead.error, plain, min),
    ("accuracy", RunRead.accuracy, percent, max),
)


def compared(runs: Sequence[RunRead]) -> list[tuple[str, list[tuple[str, bool]]]]:
    """Return the columns of a table of runs: a title, and per run a text and whether it is best.

    A column that no run fills is left out. The best is marked only if all runs have the value, on
    the same bags, and not all the same one.
    """
    comparable = same_bags(runs)
    columns = []
    for what, measure, write, best in MEASURES:
        for of, name in SET_NAMES.items():
            values = [measure(run, of) for run in runs]
            marked = comparable and None not in values and len(set(values)) > 1
            cells = [(write(value), marked and value == best(values)) for value in values]
            if any(value is not None for value in values):
                columns.append((f"{name} {what}", cells))
    return [*columns, ("time", [(duration(run.total_seconds), False) for run in runs])]


def same_bags(runs: Sequence[RunRead]) -> bool:
    """Return whether all runs have ended, and were evaluated on the same sets of bags."""
    first = runs[0]
    return bool(first.evaluations) and all(
        list(run.classes) == list(first.classes)
        and run.evaluations.keys() == first.evaluations.keys()
        and all(
            own.ids == first.evaluations[of].ids
            and np.array_equal(own.given, first.evaluations[of].given)
            for of, own in run.evaluations.items()
        )
        for run in runs
    )


def differences(runs: Sequence[RunRead]) -> list[tuple[str, list[str]]]:
    """List the options that are not the same in all runs.

    Examples
    --------
    >>> from pathlib import Path
    >>> def run(**options):
    ...     return RunRead("a", Path("a"), {"train": options}, "", [], [], {}, None, {})
    >>> differences([run(epochs=5, seed=0), run(epochs=9, seed=0)])
    [('train.epochs', ['5', '9'])]
    """
    flat = [
        {
            f"{section}.{name}": value
            for section, options in run.config.items()
            if isinstance(options, dict) and section != "plan"  # the other sections have its values
            for name, value in options.items()
        }
        for run in runs
    ]
    names = dict.fromkeys(name for options in flat for name in options)
    rows = [(name, [_written(options.get(name)) for options in flat]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _written(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
