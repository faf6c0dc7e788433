"""Several runs beside each other: what came out, and what differs in how they were trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from apportion.report.reading import RunRead
from apportion.report.words import duration, method_in_words, network_in_words, percent, plain
from apportion.runs.evaluation import Evaluation

__all__ = ["compared", "differences"]


def compared(runs: Sequence[RunRead]) -> dict[str, Any]:
    """Make a table of runs: a header, and a row a run with the best of its columns marked.

    A column that no run fills is left out. The best is marked only where it means something: all
    runs have the number, of the same bags, and not all the same one.
    """
    comparable = same_bags(runs)
    columns: list[tuple[str, list[float | None], Callable[..., str], Callable[..., float] | None]]
    columns = []
    for name, label in (("test", "test"), ("valid", "validation"), ("train", "training")):
        errors = [run.error(name) for run in runs]
        columns.append((f"{label} error", errors, plain, min))
    for name, label in (("test", "test"), ("valid", "validation"), ("train", "training")):
        shares = [run.accuracy(name) for run in runs]
        columns.append((f"{label} accuracy", shares, _percent, max))
    columns.append(("time", [run.total_seconds for run in runs], duration, None))
    columns = [column for column in columns if any(v is not None for v in column[1])]
    rows = []
    for number, run in enumerate(runs):
        cells = [
            {"text": write(values[number]), "best": comparable and _is_best(values, number, best)}
            for _, values, write, best in columns
        ]
        rows.append(
            {
                "name": run.name,
                "number": number + 1,
                "method": method_in_words(run.config, brief=True),
                "network": network_in_words(run) or "–",
                "epochs": f"{run.epochs:,}"
                if run.is_finished
                else f"{run.epochs:,} of {run.epochs_wanted:,}",
                "selected": f"{run.selected['epoch']:,}" if run.is_validated else "last",
                "cells": cells,
            }
        )
    header = [column[0] for column in columns]
    return {"header": header, "rows": rows, "comparable": comparable}


def same_bags(runs: Sequence[RunRead]) -> bool:
    """Tell whether all runs have ended, and were judged by the same sets of bags."""
    first = runs[0]
    return bool(first.evaluations) and all(
        list(run.classes) == list(first.classes)
        and run.evaluations.keys() == first.evaluations.keys()
        and all(
            _same(evaluation, first.evaluations[name])
            for name, evaluation in run.evaluations.items()
        )
        for run in runs
    )


def _same(one: Evaluation, other: Evaluation) -> bool:
    return one.ids == other.ids and bool(np.array_equal(one.given, other.given))


def _percent(share: float | None) -> str:
    return "–" if share is None else percent(share)


def _is_best(
    values: Sequence[float | None], number: int, best: Callable[..., float] | None
) -> bool:
    if best is None or None in values or len(set(values)) < 2:
        return False
    return values[number] == best(values)


def differences(runs: Sequence[RunRead]) -> list[dict[str, Any]]:
    """List the options that are not the same in all runs, section by section.

    Examples
    --------
    >>> from pathlib import Path
    >>> def run(**options):
    ...     return RunRead("a", Path("a"), {"train": options}, "", [], [], {}, None, {})
    >>> differences([run(epochs=5, seed=0), run(epochs=9, seed=0)])
    [{'option': 'train.epochs', 'values': ['5', '9']}]
    """
    flat = [
        {
            f"{section}.{name}": value
            for section, options in run.config.items()
            if isinstance(options, dict)
            for name, value in options.items()
        }
        for run in runs
    ]
    names = dict.fromkeys(name for options in flat for name in options)
    found = []
    for name in names:
        values = [_written(options.get(name)) for options in flat]
        if len(set(values)) > 1:
            found.append({"option": name, "values": values})
    return found


def _written(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
