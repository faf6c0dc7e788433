"""Running cells: several at once on one GPU, each recorded as soon as it is done."""

from __future__ import annotations

import logging
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from apportion import __version__
from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.device import device_for
from apportion.errors import ConfigError, suggestion
from apportion.methods.registry import method_named
from apportion.nets.build import build
from apportion.nets.normalized import Normalized
from apportion.nets.resnet import resnet18
from apportion.study.datasets.benchmarks import Benchmark, cifar10, spoken_arabic_digits, svhn
from apportion.study.paper_bags import paper as paper_bags
from apportion.study.reproduce.paper import Cell, Paper
from apportion.study.reproduce.schedule import duration, next_group, predicted
from apportion.training.many import fit_many

__all__ = ["READERS", "hardware_of", "run"]

log = logging.getLogger("apportion")

READERS: dict[str, Callable[[str | PathLike[str] | None], Benchmark]] = {
    "cifar10": cifar10,
    "svhn": svhn,
    "spoken_arabic_digits": spoken_arabic_digits,
}

# The authors normalise all images so, whatever the dataset.
MEAN = 255 * np.array([0.5071, 0.4865, 0.4409], np.float32).reshape(3, 1, 1)
STD = 255 * np.array([0.2673, 0.2564, 0.2762], np.float32).reshape(3, 1, 1)

CURVES = ("loss", "changed", "regret", "label_accuracy", "valid_error", "test_accuracy")


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
    for cell in cells:
        method_named(cell.method)  # before anything is read
        if cell.dataset not in READERS:
            raise ConfigError(
                f"there is no dataset {cell.dataset!r}.", suggestion(cell.dataset, READERS)
            )
    began, done, failed = time.monotonic(), list[Cell](), list[Cell]()
    hardware, kind = hardware_of(device), device_for(device).type
    about = {"hardware": hardware, "commit": commit or _commit()}
    problem = cache(partial(_problem, paper, cache(lambda dataset: READERS[dataset](data))))
    while True:
        results = paper.results()  # which another process may have added to
        left = [cell for cell in cells if cell not in results and cell not in failed]
        shares = {cell: predicted(cell, results.values(), hardware, kind) for cell in left}
        remaining = None if time_limit is None else time_limit - (time.monotonic() - began)
        known = {(c.method, c.dataset) for c, ln in results.items() if ln["hardware"] == hardware}
        group = next_group(left, shares, 1 if kind == "cpu" else at_once, remaining, known)
        if not group:
            return done
        if on_start is not None:
            on_start(group, duration([shares[cell] for cell in group]))
        running = set(group)
        jobs = [
            _job(paper, cell, problem(cell.dataset, cell.bag_size), device, about, running, on_done)
            for cell in group
        ]
        try:
            fit_many(jobs, at_once=len(group))
        except ExceptionGroup as errors:
            failed += running
            for error in errors.exceptions:
                log.error("A cell failed: %s", error)
        done += [cell for cell in group if cell not in running]


def _problem(paper: Paper, read: Callable[[str], Benchmark], dataset: str, size: int) -> Problem:
    data = read(dataset)
    n_classes = len(data.classes)
    train, valid = (
        Bags.from_members(data.x, rows, truth=data.truth, classes=range(n_classes))
        for rows in paper_bags(paper.folder / "bags" / f"{dataset}.npz", size)
    )
    one_bag = np.zeros(len(data.x_test), np.int64)
    test = Bags.from_rows(data.x_test, one_bag, truth=data.truth_test, classes=range(n_classes))

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
    running: set[Cell],
    on_done: Callable[[Cell, dict[str, Any]], None] | None,
) -> dict[str, Any]:
    """What `fit_many` takes, with a function that records the cell after its last epoch."""
    began, records, together = time.monotonic(), list[dict[str, Any]](), len(running)
    last, share = began, 0.0

    def on_epoch(record: dict[str, Any], model: nn.Module) -> None:  # noqa: ARG001
        nonlocal last, share
        records.append(record)
        now = time.monotonic()
        if len(records) > 1:  # the first compiles
            share += (now - last) / len(running)
        last = now
        if len(records) < cell.epochs:
            return
        best = min(records, key=lambda record: record["valid_error"])
        line = {
            **asdict(cell),
            "selected": round(100 * best["test_accuracy"], 2),
            "last": round(100 * record["test_accuracy"], 2),
            "best_epoch": best["epoch"],
            "seconds": round(now - began, 1),
            "share": round(share, 1),
            "together": together,
            "versions": _versions(),
            **about,
        }
        curves = {name: [round(r[name], 4) for r in records] for name in CURVES if name in record}
        paper.add(line, curves)
        running.discard(cell)
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
    """What git calls this version of the code, if it is git's."""
    package = Path(__file__).parents[1]

    def git(*command: str) -> str:
        return subprocess.run(
            ["git", *command], cwd=package, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        name, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name} with changes" if changes else name
