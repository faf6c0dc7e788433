"""Running cells: several at once on one GPU, each recorded as soon as it is done."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from os import PathLike
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from apportion import __version__
from apportion.bags import Bags
from apportion.config import TrainConfig
from apportion.data.benchmarks import (
    Benchmark,
    cifar10,
    paper_bags,
    spoken_arabic_digits,
    svhn,
)
from apportion.data.protocols import pools, rand
from apportion.engine.device import device_for
from apportion.errors import suggestion
from apportion.many import fit_many
from apportion.nets import Normalized, build, resnet18
from apportion.reproduce.paper import Cell, Paper, PaperError

__all__ = ["READERS", "hardware_of", "predicted", "run"]

READERS: dict[str, Callable[[str | PathLike[str] | None], Benchmark]] = {
    "cifar10": cifar10,
    "svhn": svhn,
    "spoken_arabic_digits": spoken_arabic_digits,
}

# The authors normalise all images so, whatever the dataset.
MEAN = 255 * np.array([0.5071, 0.4865, 0.4409], np.float32).reshape(3, 1, 1)
STD = 255 * np.array([0.2673, 0.2564, 0.2762], np.float32).reshape(3, 1, 1)

DRAWN = 102_400  # instances in the bags of a pool, where the paper's own are not known
CURVES = ("loss", "changed", "regret", "label_accuracy", "valid_error", "test_accuracy")
UNKNOWN = {"cuda": 0.5, "cpu": 600.0}  # seconds an epoch, where no such cell was run yet
SETTING_UP = 60.0  # seconds: reading, compiling


@dataclass(frozen=True)
class Problem:
    """What a cell trains: bags, and a network by its seed."""

    train: Bags
    valid: Bags
    test: Bags
    network: Callable[[int], nn.Module]


def run(
    paper: Paper,
    cells: Sequence[Cell],
    *,
    data: str | PathLike[str] | None = None,
    at_once: int = 4,
    time_limit: float | None = None,
    device: str = "auto",
    commit: str | None = None,
    on_start: Callable[[Sequence[Cell], float], None] | None = None,
    on_done: Callable[[Cell, dict[str, Any]], None] | None = None,
) -> list[Cell]:
    """Run cells, and record each as soon as it is done.

    Parameters
    ----------
    time_limit : float, optional
        Seconds. A cell is started only if its end is predicted to lie within them.
    commit : str, optional
        Which version of the code this is; by default what git says.
    on_start : callable, optional
        Called with the cells that are started together, and the seconds they will take.
    on_done : callable, optional
        Called with a cell and its line, once that is recorded.

    Returns
    -------
    list of Cell
        Those that were run.
    """
    began, left, done = time.monotonic(), list(cells), []
    hardware, source = hardware_of(device), commit or _commit()
    at_once = 1 if device_for(device).type == "cpu" else at_once
    problem = cache(partial(_problem, paper, _reader(data)))
    while left:
        results = list(paper.results().values())
        remaining = None if time_limit is None else time_limit - (time.monotonic() - began)
        seconds = [predicted(cell, results, hardware, device) for cell in left[:at_once]]
        group = _that_fit(left[:at_once], seconds, remaining)
        if not group:
            break
        if on_start is not None:
            on_start(group, SETTING_UP + sum(seconds[: len(group)]))
        about = {"together": len(group), "hardware": hardware, "commit": source}
        jobs = [
            _job(paper, cell, problem(cell.dataset, cell.bag_size), device, about, on_done)
            for cell in group
        ]
        fit_many(jobs, at_once=len(group))
        done += group
        left = left[len(group) :]
    return done


def _that_fit(
    cells: Sequence[Cell], seconds: Sequence[float], remaining: float | None
) -> list[Cell]:
    """The first of the cells, as many as end in time together."""
    group, total = [], SETTING_UP
    for cell, own in zip(cells, seconds, strict=True):
        total += own
        if remaining is not None and total > remaining:
            break
        group.append(cell)
    return group


def predicted(
    cell: Cell, results: Sequence[dict[str, Any]], hardware: str, device: str = "auto"
) -> float:
    """How many seconds a cell adds to those that run beside it, by what the like of it took."""
    here = [line for line in results if line["hardware"] == hardware]
    for alike in (("method", "dataset"), ("method",), ()):
        like = [line for line in here if all(line[n] == getattr(cell, n) for n in alike)]
        if like:
            each = median(line["seconds"] / line["together"] / line["epochs"] for line in like)
            return float(each) * cell.epochs
    return UNKNOWN[device_for(device).type] * cell.epochs


def _reader(folder: str | PathLike[str] | None) -> Callable[[str], Benchmark]:
    """Read every dataset once, so that cells share it."""

    @cache
    def read(dataset: str) -> Benchmark:
        if dataset not in READERS:
            raise PaperError(f"there is no dataset {dataset!r}.", suggestion(dataset, READERS))
        return READERS[dataset](folder)

    return read


def _problem(paper: Paper, read: Callable[[str], Benchmark], dataset: str, size: int) -> Problem:
    data = read(dataset)
    n_classes = len(data.classes)
    bags_file = paper.folder / "bags" / f"{dataset}.npz"
    if bags_file.exists():
        members = paper_bags(bags_file, size)
    else:  # bags that the paper does not tell: drawn by its protocol, from pools of half each
        first, second = pools(len(data.x), (0.5, 0.5), seed=0)
        draw = partial(rand, data.labels, size, DRAWN // size)
        members = draw(rows=first, seed=0).members, draw(rows=second, seed=1).members
    train, valid = (
        Bags.from_members(data.x, rows, labels=data.labels, classes=range(n_classes))
        for rows in members
    )
    one_bag = np.zeros(len(data.x_test), np.int64)
    test = Bags.from_rows(data.x_test, one_bag, labels=data.labels_test, classes=range(n_classes))

    def network(seed: int) -> nn.Module:
        if data.x.ndim == 3:
            return build("conv1d", train, seed=seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return Normalized(resnet18(n_classes), MEAN, STD)

    return Problem(train, valid, test, network)


def _job(
    paper: Paper,
    cell: Cell,
    problem: Problem,
    device: str,
    about: dict[str, Any],
    on_done: Callable[[Cell, dict[str, Any]], None] | None,
) -> dict[str, Any]:
    """What `fit_many` takes, with a function that records the cell after its last epoch."""
    began, records = time.monotonic(), list[dict[str, Any]]()

    def on_epoch(record: dict[str, Any], model: nn.Module) -> None:  # noqa: ARG001
        records.append(record)
        if len(records) < cell.epochs:
            return
        best = min(records, key=lambda record: record["valid_error"])
        line = {
            **asdict(cell),
            "selected": round(100 * best["test_accuracy"], 2),
            "last": round(100 * record["test_accuracy"], 2),
            "best_epoch": best["epoch"],
            "seconds": round(time.monotonic() - began, 1),
            "versions": _versions(),
            **about,
        }
        curves = {name: [round(r[name], 4) for r in records] for name in CURVES if name in record}
        paper.add(line, curves)
        if on_done is not None:
            on_done(cell, line)

    return {
        "model": problem.network(cell.seed),
        "train": problem.train,
        "valid": problem.valid,
        "test": problem.test,
        "method": cell.method,
        "config": TrainConfig.preset("paper", epochs=cell.epochs, seed=cell.seed, device=device),
        "on_epoch": on_epoch,
    }


def hardware_of(device: str) -> str:
    """Name what computes."""
    found = device_for(device)
    if found.type == "cuda":
        return str(torch.cuda.get_device_name(found))
    return f"CPU ({platform.machine()}, {torch.get_num_threads()} threads)"


def _versions() -> dict[str, str]:
    return {
        "apportion": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def _commit() -> str:
    """What git calls this version of the code."""
    here = Path(__file__).parent
    try:
        name, changes = (
            subprocess.run(
                ["git", *command], cwd=here, capture_output=True, text=True, check=True
            ).stdout.strip()
            for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "--", "."))
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name} with changes" if changes else name
