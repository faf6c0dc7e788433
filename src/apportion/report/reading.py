"""What is in a run folder, read for a report. Files only: neither data nor network are needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.bags.columns import Columns
from apportion.errors import RunError
from apportion.runs.evaluation import Evaluation, read_evaluations
from apportion.runs.header import columns_of, read_header
from apportion.runs.run import Run

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
    evaluations: Mapping[str, Evaluation]  # of "train", "valid" and "test", those there are
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
        return bool(self.evaluations) or self.epochs >= self.epochs_wanted

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
        return next((name for name in ("test", "valid", "train") if name in self.evaluations), None)

    @property
    def with_truth(self) -> str | None:
        """The set to judge single instances by: as `held_out`, where their classes are known."""
        return next((name for name in ("test", "valid", "train") if self._knows(name)), None)

    def _knows(self, name: str) -> bool:
        evaluation = self.evaluations.get(name)
        return evaluation is not None and evaluation.confusion is not None

    def accuracy(self, name: str) -> float | None:
        """Give the share of a set's instances that the selected model gets right."""
        evaluation = self.evaluations.get(name)
        if evaluation is None:
            logged = self.selected.get(f"{name}_accuracy")
            return None if logged is None else float(logged)
        if evaluation.confusion is None or not evaluation.confusion.sum():
            return None
        return float(np.trace(evaluation.confusion) / evaluation.confusion.sum())

    def error(self, name: str) -> float | None:
        """Give the proportion error of the selected model on a set."""
        evaluation = self.evaluations.get(name)
        if evaluation is None:
            logged = self.selected.get(f"{name}_error")
            return None if logged is None else float(logged)
        found = float(np.mean(variations(evaluation)))
        return found if math.isfinite(found) else None

    def error_of_guessing(self, name: str) -> float | None:
        """Give the error if every bag were said to be like the mean of the training bags."""
        evaluation, train = self.evaluations.get(name), self.evaluations.get("train")
        if evaluation is None or train is None:
            return None
        guess = np.average(train.given, axis=0, weights=train.sizes)
        return float(np.abs(evaluation.given - guess).sum(axis=1).mean() / 2)


def variations(evaluation: Evaluation) -> NDArray[np.float64]:
    """Give the total variation of given and predicted proportions, bag by bag."""
    found: NDArray[np.float64] = np.abs(evaluation.given - evaluation.predicted).sum(axis=1) / 2
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
    classes, evaluations = read_evaluations(run)
    header = read_header(run.model, "model") if run.model.exists() else {}
    return RunRead(
        name=name,
        folder=folder,
        config=config,
        config_text=run.config.read_text(encoding="utf-8"),
        records=records,
        classes=[str(c) for c in classes],
        evaluations=evaluations,
        columns=columns_of(header),
        recipe=header.get("recipe") or {},
    )
