"""Run folders, read for a report: files only, neither data nor network are needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.bags.columns import Columns
from apportion.errors import RunError
from apportion.metrics import proportion_error
from apportion.runs.evaluation import Evaluation, read_evaluations
from apportion.runs.header import columns_of, read_header
from apportion.runs.run import Run, planned

SET_NAMES = {"test": "test", "valid": "validation", "train": "training"}  # the most telling first


@dataclass(frozen=True, eq=False)
class RunRead:
    """A run, as far as it got."""

    name: str  # to tell it from others: the last part of its path, or all of it
    folder: Path
    config: Mapping[str, Any]
    config_text: str
    records: Sequence[Mapping[str, Any]]  # one per epoch, at least one
    classes: Sequence[str]  # none before training has ended
    evaluations: Mapping[str, Evaluation]  # of "train", "valid" and "test", those there are
    columns: Columns | None  # of a table
    recipe: Mapping[str, Any]  # of a network of this library
    number: int = 1  # on the page

    @property
    def done(self) -> int:
        """How many epochs, or nets of an average, are done."""
        return len(self.records)

    @property
    def wanted(self) -> int:
        """How many of them there will be."""
        return planned(self.config)[0]

    @property
    def unit(self) -> str:
        """What the records are of: "epoch" or "net"."""
        return planned(self.config)[1]

    @property
    def is_finished(self) -> bool:
        """Whether training has ended, which may be early."""
        return bool(self.evaluations) or self.done >= self.wanted

    @property
    def by_command(self) -> bool:
        """Whether the command line started it, and can do so again."""
        return "data" in self.config

    @property
    def selected(self) -> Mapping[str, Any]:
        """The record of the first epoch of lowest validation error; without any, the last one."""
        judged = [r for r in self.records if r.get("valid_error") is not None]
        return min(judged, key=lambda r: float(r["valid_error"])) if judged else self.records[-1]

    @property
    def is_validated(self) -> bool:
        """Whether there were bags to select an epoch by."""
        return self.unit == "epoch" and self.selected.get("valid_error") is not None

    def curve(self, name: str) -> NDArray[np.float64]:
        """Return one value per epoch: NaN where there is none, empty if there is none at all.

        Nets of an average follow one another in no order that a curve could show.

        Examples
        --------
        >>> records = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25, "changed": 0.1}]
        >>> run = RunRead("a", Path("a"), {"train": {"epochs": 2}}, "", records, [], {}, None, {})
        >>> run.curve("changed"), run.curve("regret")
        (array([nan, 0.1]), array([], dtype=float64))
        """
        if self.unit == "net":
            return np.empty(0)
        numbers = np.array([r.get(name) for r in self.records], dtype=np.float64)
        numbers[~np.isfinite(numbers)] = math.nan
        return numbers if np.isfinite(numbers).any() else np.empty(0)

    def seconds(self) -> dict[str, list[float]]:
        """Return the seconds of each phase, epoch by epoch."""
        each = [record.get("seconds", {}) for record in self.records]
        names = dict.fromkeys(name for epoch in each for name in epoch)
        return {name: [float(epoch.get(name, 0)) for epoch in each] for name in names}

    @property
    def total_seconds(self) -> float:
        """How long all epochs took."""
        return sum(map(sum, self.seconds().values()))

    @property
    def held_out(self) -> str | None:
        """The set of bags to judge by: of those there are, the one farthest from training."""
        return next((of for of in SET_NAMES if of in self.evaluations), None)

    @property
    def with_truth(self) -> str | None:
        """The set to judge single instances by: as `held_out`, where their classes are known."""
        known = (of for of in SET_NAMES if of in self.evaluations and self.accuracy(of) is not None)
        return next(known, None)

    def accuracy(self, of: str) -> float | None:
        """Return the share of a set's instances that the selected model gets right."""
        evaluation = self.evaluations.get(of)
        if evaluation is None:
            return self._logged(f"{of}_accuracy")
        confusion = evaluation.confusion
        if confusion is None or not confusion.sum():
            return None
        return float(np.trace(confusion) / confusion.sum())

    def error(self, of: str) -> float | None:
        """Return the proportion error of the selected model on a set."""
        evaluation = self.evaluations.get(of)
        if evaluation is None:
            return self._logged(f"{of}_error")
        found = proportion_error(evaluation.given, evaluation.predicted)
        return found if math.isfinite(found) else None

    def _logged(self, name: str) -> float | None:
        value = self.selected.get(name)
        return None if value is None else float(value)

    def error_of_mean(self, of: str) -> float | None:
        """Return the error of predicting the mean of the training bags for every bag."""
        evaluation, train = self.evaluations.get(of), self.evaluations.get("train")
        if evaluation is None or train is None:
            return None
        mean = np.average(train.given, axis=0, weights=train.sizes)
        return proportion_error(evaluation.given, mean)


def read_runs(folders: Sequence[str | PathLike[str]]) -> list[RunRead]:
    """Read runs, under names that tell them apart."""
    paths = [Path(folder) for folder in folders]
    names = [path.resolve().name for path in paths]
    return [
        read_run(path, name if names.count(name) == 1 else str(path), number)
        for number, (path, name) in enumerate(zip(paths, names, strict=True), start=1)
    ]


def read_run(folder: Path, name: str, number: int = 1) -> RunRead:
    """Read a run.

    Raises
    ------
    RunError
        If the folder holds no run, a damaged one, or one without a finished epoch.
    """
    run = Run(folder)
    config, records = run.settings(), run.records()
    if not records:
        raise RunError(
            f"{folder} has nothing to report yet: {run.log.name} is missing or empty.",
            f"Wait for the end of the first {planned(config)[1]}.",
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
        number=number,
    )
