"""Several runs side by side: their results, and how their options differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from apportion.report.read import SETS, RunRead
from apportion.report.words import duration, method_in_words, network_in_words, percent, plain

__all__ = ["compared", "differences"]


def compared(runs: Sequence[RunRead]) -> dict[str, Any]:
    """Return a table of runs: a header, and one row per run with the best values marked.

    A column that no run fills is left out. The best is marked only if all runs have the value, on
    the same bags, and not all the same one.
    """
    comparable = same_bags(runs)
    columns: list[tuple[str, list[float | None], Callable[..., str], Callable[..., float] | None]]
    columns = [
        *((f"{name} error", [run.error(of) for run in runs], plain, min)
          for of, name in SETS.items()),
        *((f"{name} accuracy", [run.accuracy(of) for run in runs], percent, max)
          for of, name in SETS.items()),
        ("time", [run.total_seconds for run in runs], duration, None),
    ]  # fmt: skip
    columns = [column for column in columns if any(v is not None for v in column[1])]
    rows = [
        {
            "name": run.name,
            "number": number + 1,
            "method": method_in_words(run.config, brief=True),
            "network": network_in_words(run) or "–",
            "epochs": f"{run.epochs:,}" + ("" if run.is_finished else f" of {run.epochs_wanted:,}"),
            "selected": f"{run.selected['epoch']:,}" if run.is_validated else "last",
            "cells": [
                {
                    "text": write(values[number]),
                    "best": comparable and _is_best(values, number, best),
                }
                for _, values, write, best in columns
            ],
        }
        for number, run in enumerate(runs)
    ]
    return {"header": [column[0] for column in columns], "rows": rows, "comparable": comparable}


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


def _is_best(
    values: Sequence[float | None], number: int, best: Callable[..., float] | None
) -> bool:
    if best is None or None in values or len(set(values)) < 2:
        return False
    return values[number] == best(values)


def differences(runs: Sequence[RunRead]) -> list[dict[str, Any]]:
    """List the options that are not the same in all runs.

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
            if isinstance(options, dict) and section != "plan"  # the other sections have its values
            for name, value in options.items()
        }
        for run in runs
    ]
    names = dict.fromkeys(name for options in flat for name in options)
    rows = [(name, [_written(options.get(name)) for options in flat]) for name in names]
    return [{"option": name, "values": values} for name, values in rows if len(set(values)) > 1]


def _written(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
