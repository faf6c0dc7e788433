"""Run folders, read for a report: files only, neither data nor network are needed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.bags.columns import Columns
from apportion.errors import RunError, count
from apportion.metrics import bootstrap, proportion_error, total_variation
from apportion.runs.evaluation import Evaluation, read_evaluations
from apportion.runs.header import columns_of, read_header
from apportion.runs.run import Run, check_classifies, planned

SET_NAMES = {"test": "test", "valid": "validation", "train": "training"}  # the most telling first

Floats = NDArray[np.float64]
Interval = tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that a model is least sure of, as they are stored, and their names if known."""

    parts: tuple[NDArray[Any], ...]
    names: Sequence[str] | None = None  # of files or signals


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
    times: Sequence[int | None] = ()  # when each record was written, in seconds since 1970
    instances: Mapping[str, Rows] = field(default_factory=dict)  # only if they are asked for
    model_epoch: int | None = None  # of the model, once training has ended

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
    def began(self) -> float | None:
        """When the first record was begun, in seconds since 1970, if the log says so."""
        first = self.times[0] if self.times else None
        took = sum(self.records[0].get("seconds", {}).values())
        return None if first is None else max(first - took, 0.0)

    @property
    def ended(self) -> float | None:
        """When the last record was written."""
        return self.times[-1] if self.times else None

    @property
    def place(self) -> str:
        """The path of the folder for readers elsewhere: never an absolute one."""
        if not self.folder.is_absolute():
            return str(self.folder)
        here = Path.cwd()
        inside = self.folder.is_relative_to(here) and self.folder != here
        return str(self.folder.relative_to(here)) if inside else self.folder.name

    @property
    def kind(self) -> str:
        """What an instance is, in one word."""
        kind = self.config.get("data", {}).get("kind")
        return {"table": "row", "images": "image", "signals": "signal"}.get(kind, "instance")

    @property
    def by_command(self) -> bool:
        """Whether the command line started it, and can do so again."""
        return "data" in self.config

    @property
    def selected(self) -> Mapping[str, Any]:
        """The record of the model's epoch; until training has ended, of the lowest error so far.

        Without any validation error it is the last one.
        """
        if self.is_settled and self.model_epoch is not None and self.model_epoch <= self.done:
            return self.records[self.model_epoch - 1]
        judged = [r for r in self.records if r.get("valid_error") is not None]
        return min(judged, key=lambda r: float(r["valid_error"])) if judged else self.records[-1]

    @property
    def is_settled(self) -> bool:
        """Whether the last epoch was selected, since it was as good as any other."""
        wanted = self.config.get("train", {}).get("select") == "last"
        return wanted and bool(self.evaluations) and self.unit == "epoch"

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

    def variations(self, of: str) -> Floats:
        """Return by how much of each bag of a set given and predicted proportions differ."""
        own = self.evaluations[of]
        found: Floats = total_variation(own.given, own.predicted)
        return found

    def error_interval(self, of: str) -> Interval:
        """Return the 95% interval of the proportion error over the bags of a set."""
        return bootstrap(self.variations(of)) if of in self.evaluations else None

    def accuracy_interval(self, of: str) -> Interval:
        """Return the 95% interval of the accuracy over the bags of a set."""
        own = self.evaluations.get(of)
        if own is None or own.right is None or own.known is None:
            return None
        return bootstrap(own.right, own.known)

    def gain_interval(self, of: str, without: Sequence[int] = ()) -> Interval:
        """Return the interval of how much less the error is than that of the mean, over bags.

        Some of these may be left out.
        """
        mean = self.overall
        if mean is None or of not in self.evaluations:
            return None
        gain = total_variation(self.evaluations[of].given, mean) - self.variations(of)
        return bootstrap(np.delete(gain, list(without)))

    def _logged(self, name: str) -> float | None:
        value = self.selected.get(name)
        return None if value is None else float(value)

    def error_of_mean(self, of: str) -> float | None:
        """Return the error of predicting the mean of the training bags for every bag."""
        evaluation, mean = self.evaluations.get(of), self.overall
        if evaluation is None or mean is None:
            return None
        return proportion_error(evaluation.given, mean)

    @property
    def overall(self) -> Floats | None:
        """The overall shares of classes in the training bags."""
        train = self.evaluations.get("train")
        return None if train is None else np.average(train.given, axis=0, weights=train.sizes)


def read_runs(folders: Sequence[str | PathLike[str]]) -> list[RunRead]:
    """Read runs, under names that tell them apart."""
    paths = [Path(folder) for folder in folders]
    names = _names([path.resolve().parts for path in paths])
    return [
        read_run(path, name, number)
        for number, (path, name) in enumerate(zip(paths, names, strict=True), start=1)
    ]


def _names(parts: Sequence[tuple[str, ...]]) -> list[str]:
    """Name folders by as many last parts of their paths as tell them apart.

    Examples
    --------
    >>> _names([("/", "x", "a"), ("/", "y", "a"), ("/", "y", "b")])
    ['x/a', 'y/a', 'y/b']
    """
    names = [own[-1] for own in parts]
    for length in range(2, max(map(len, parts))):
        if len(set(names)) == len(names):
            break
        names = ["/".join(own[1:][-length:]) for own in parts]
    return names


def without_folders(value: Any) -> Any:
    """Return an option without the folders of an absolute path, which are nobody's business.

    Examples
    --------
    >>> without_folders("/home/ann/rows.csv"), without_folders("rows.csv"), without_folders(0.1)
    ('rows.csv', 'rows.csv', 0.1)
    """
    if not isinstance(value, str):
        return value
    if PureWindowsPath(value).is_absolute():
        return PureWindowsPath(value).name
    return PurePosixPath(value).name if value.startswith(("/", "~")) else value


def _as_text(config: Mapping[str, Any]) -> str:
    """Write a configuration again, without absolute paths."""
    lines = []
    for name, value in config.items():
        if not isinstance(value, dict):
            lines.append(f"{name} = {written(value)}")
            continue
        own = (f"{option} = {written(without_folders(v))}" for option, v in value.items())
        lines += ["", f"[{name}]", *own]
    return "\n".join(lines)


def written(value: Any) -> str:
    """Write a value as TOML has it."""
    return json.dumps(value, ensure_ascii=False, default=str)


def read_run(folder: Path, name: str, number: int = 1) -> RunRead:
    """Read a run.

    Raises
    ------
    RunError
        If the folder holds no run, a damaged one, or one without a finished epoch.
    """
    run = Run(folder)
    config, records = run.settings(), run.records()
    check_classifies(run, config)
    first = Run(run.pretraining)
    if not records and first.config.exists() and not first.pretrained.exists():
        done, (total, unit) = len(first.records()), planned(first.settings())
        raise RunError(
            f"{folder} has nothing to report yet: {done} of {count(total, unit)} of pre-training "
            "are done.",
            "Wait for the end of the first epoch after it.",
        )
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
        config_text=_as_text(config),
        records=records,
        classes=[str(c) for c in classes],
        evaluations=evaluations,
        columns=columns_of(header),
        recipe=header.get("recipe") or {},
        number=number,
        times=run.times(),
        model_epoch=header.get("epoch"),
    )
