"""What is in a run folder, read for a report. Files only: neither data nor network are needed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from apportion.bags.columns import Columns
from apportion.errors import RunError
from apportion.model.trained import read_columns
from apportion.runs.run import Run
from apportion.training.evaluate import Outcome, read_outcomes

__all__ = ["RunRead", "read_run", "read_runs", "variations"]


@dataclass(frozen=True, eq=False)
class RunRead:
    """A run, as far as it got."""

    name: str  # to tell it from others: the last part of its path, or all of it
    folder: Path
    config: Mapping[str, Any]
    config_text: str
    records: Sequence[Mapping[str, Any]]  # one an epoch, at least one
    classes: Sequence[str]  # none before training has ended
    outcomes: Mapping[str, Outcome]  # of "train", "valid" and "test", those there are
    columns: Columns | None  # of a table
    recipe: Mapping[str, Any]  # of a network of this library

    @property
    def epochs(self) -> int:
        """How many epochs are done."""
        return len(self.records)

    @property
    def epochs_wanted(self) -> int:
        """How many epochs the configuration asks for."""
        return int(self.config["train"]["epochs"])

    @property
    def is_finished(self) -> bool:
        """Whether training came to its end, which may be an early one."""
        return bool(self.outcomes) or self.epochs >= self.epochs_wanted

    @property
    def by_command(self) -> bool:
        """Whether the command line started it, so that it can do it again."""
        return "data" in self.config

    @property
    def selected(self) -> Mapping[str, Any]:
        """The record of the first epoch of least validation error, or the last one without any."""
        judged = [r for r in self.records if r.get("valid_error") is not None]
        return min(judged, key=lambda r: float(r["valid_error"])) if judged else self.records[-1]

    @property
    def is_validated(self) -> bool:
        """Whether there were bags to select an epoch by."""
        return self.selected.get("valid_error") is not None

    def curve(self, name: str) -> NDArray[np.float64]:
        """Give one number of every epoch: NaN where there is none, empty if there is none at all.

        Examples
        --------
        >>> records = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25, "changed": 0.1}]
        >>> run = RunRead("a", Path("a"), {}, "", records, [], {}, None, {})
        >>> run.curve("changed"), run.curve("regret")
        (array([nan, 0.1]), array([], dtype=float64))
        """
        found = [record.get(name) for record in self.records]
        numbers = np.array([math.nan if n is None else float(n) for n in found])
        numbers[~np.isfinite(numbers)] = math.nan
        return numbers if np.isfinite(numbers).any() else np.empty(0)

    def seconds(self) -> dict[str, list[float]]:
        """Give the seconds of every phase, epoch by epoch."""
        names = dict.fromkeys(name for record in self.records for name in record.get("seconds", {}))
        each = [record.get("seconds", {}) for record in self.records]
        return {name: [float(epoch.get(name, 0)) for epoch in each] for name in names}

    @property
    def total_seconds(self) -> float:
        """How long all epochs took."""
        return sum(map(sum, self.seconds().values()))

    @property
    def held_out(self) -> str | None:
        """The set of bags to judge by: of those there are, the one farthest from training."""
        return next((name for name in ("test", "valid", "train") if name in self.outcomes), None)

    @property
    def with_truth(self) -> str | None:
        """The set to judge single instances by: as `held_out`, where their classes are known."""
        return next((name for name in ("test", "valid", "train") if self._knows(name)), None)

    def _knows(self, name: str) -> bool:
        outcome = self.outcomes.get(name)
        return outcome is not None and outcome.confusion is not None

    def accuracy(self, name: str) -> float | None:
        """Give the share of a set's instances that the selected model gets right."""
        outcome = self.outcomes.get(name)
        if outcome is None:
            logged = self.selected.get(f"{name}_accuracy")
            return None if logged is None else float(logged)
        if outcome.confusion is None or not outcome.confusion.sum():
            return None
        return float(np.trace(outcome.confusion) / outcome.confusion.sum())

    def error(self, name: str) -> float | None:
        """Give the proportion error of the selected model on a set."""
        outcome = self.outcomes.get(name)
        if outcome is None:
            logged = self.selected.get(f"{name}_error")
            return None if logged is None else float(logged)
        found = float(np.mean(variations(outcome)))
        return found if math.isfinite(found) else None

    def error_of_guessing(self, name: str) -> float | None:
        """Give the error if every bag were said to be like the mean of the training bags."""
        outcome, train = self.outcomes.get(name), self.outcomes.get("train")
        if outcome is None or train is None:
            return None
        guess = np.average(train.given, axis=0, weights=train.sizes)
        return float(np.abs(outcome.given - guess).sum(axis=1).mean() / 2)


def variations(outcome: Outcome) -> NDArray[np.float64]:
    """Give the total variation of given and predicted proportions, bag by bag."""
    found: NDArray[np.float64] = np.abs(outcome.given - outcome.predicted).sum(axis=1) / 2
    return found


def spread(sizes: NDArray[np.int64]) -> tuple[int, float, int]:
    """Give the least, the median and the most."""
    return int(sizes.min()), float(median(sizes.tolist())), int(sizes.max())


def read_runs(folders: Sequence[str | PathLike[str]]) -> list[RunRead]:
    """Read runs, under names that tell them apart."""
    paths = [Path(folder) for folder in folders]
    names = [path.resolve().name for path in paths]
    return [
        read_run(path, name if names.count(name) == 1 else str(path))
        for path, name in zip(paths, names, strict=True)
    ]


def read_run(folder: Path, name: str) -> RunRead:
    """Read a run.

    Raises
    ------
    RunError
        If the folder holds none, or one that no epoch has ended of.
    """
    run = Run(folder)
    config, records = run.settings(), run.records()
    if not records:
        raise RunError(
            f"{folder} has no epoch to report yet: log.jsonl is empty or not there.",
            "Wait for the first epoch to end, or train it.",
        )
    classes, outcomes = read_outcomes(run)
    return RunRead(
        name=name,
        folder=folder,
        config=config,
        config_text=run.config.read_text(encoding="utf-8"),
        records=records,
        classes=[str(c) for c in classes],
        outcomes=outcomes,
        columns=read_columns(run),
        recipe=_recipe(run),
    )


def _recipe(run: Run) -> Mapping[str, Any]:
    """How the network was made, which the file of the model may tell."""
    if not run.model.exists():
        return {}
    try:
        with safe_open(run.model, framework="numpy") as file:
            about = file.metadata() or {}
        scalars = json.loads(about.get("scalars", "{}"))
    except (OSError, SafetensorError, ValueError):  # a report does not need it
        return {}
    return scalars.get("recipe") or {}
