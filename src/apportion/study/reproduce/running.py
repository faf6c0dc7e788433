"""Run cells: several at once on one GPU, each in a run folder and recorded when it is done."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from os import PathLike
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.device import device_for
from apportion.errors import ConfigError, RunError, suggestion
from apportion.methods.registry import method_from
from apportion.nets.build import build_net
from apportion.nets.normalized import Normalized
from apportion.nets.resnet import resnet18
from apportion.runs.run import Run
from apportion.study.datasets.benchmarks import Benchmark, cifar10, spoken_arabic_digits, svhn
from apportion.study.paper_bags import paper as paper_bags
from apportion.study.reproduce.paper import Cell, Paper
from apportion.study.reproduce.schedule import next_group, predicted, time_together
from apportion.study.results import provenance
from apportion.training.history import History
from apportion.training.job import Job
from apportion.training.many import fit_many

__all__ = ["READERS", "run"]

log = logging.getLogger("apportion")

READERS: dict[str, Callable[[str | PathLike[str] | None], Benchmark]] = {
    "cifar10": cifar10,
    "svhn": svhn,
    "spoken_arabic_digits": spoken_arabic_digits,
}

# The authors normalise the images of every dataset with these.
MEAN = 255 * np.array([0.5071, 0.4865, 0.4409], np.float32).reshape(3, 1, 1)
STD = 255 * np.array([0.2673, 0.2564, 0.2762], np.float32).reshape(3, 1, 1)

# A net by its seed, and the bags to train, to select and to test with.
Problem = tuple[Callable[[int], nn.Module], tuple[Bags, Bags, Bags]]

CURVES = ("loss", "changed", "regret", "label_accuracy", "valid_error", "test_accuracy")


def run(
    paper: Paper,
    cells: Sequence[Cell],
    *,
    data: str | PathLike[str] | None = None,
    runs: str | PathLike[str] | None = None,
    at_once: int = 4,
    time_limit: float | None = None,
    device: str = "auto",
    commit: str | None = None,
    on_start: Callable[[Sequence[Cell], float], None] | None = None,
    on_done: Callable[[Cell, dict[str, Any]], None] | None = None,
) -> list[Cell]:
    """Run cells, and record each as soon as it is done.

    Each is trained in a run folder of its own, which is removed once its line is recorded. A cell
    that was interrupted goes on from its last checkpoint.

    Parameters
    ----------
    data : path, optional
        Where the official files are; by default the environment variable APPORTION_DATA.
    runs : path, optional
        The folder of the run folders; by default ``runs`` in the paper's folder.
    at_once : int
        How many cells are trained at a time on a GPU.
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
        Those that were recorded.
    """
    for cell in cells:
        method_from(paper.settings_of(cell))  # before anything is read
        if cell.dataset not in READERS:
            raise ConfigError(
                f"there is no dataset {cell.dataset!r}.", suggestion(cell.dataset, READERS)
            )
    began, done, failed = time.monotonic(), list[Cell](), list[Cell]()
    about, kind = provenance(device, commit), device_for(device).type
    hardware = about["hardware"]
    folder = Path(runs or paper.folder / "runs")
    for cell in paper.results():  # of a process that was killed before it removed them
        shutil.rmtree(folder / cell.name, ignore_errors=True)
    problem = cache(partial(_problem, paper, cache(lambda dataset: READERS[dataset](data))))
    while True:
        results = paper.results()  # which another process may have added to
        left = [cell for cell in cells if cell not in results and cell not in failed]
        shares = {
            cell: predicted(cell, results.values(), hardware, kind)
            * _left(folder / cell.name, _config(cell, device))
            for cell in left
        }
        remaining = None if time_limit is None else time_limit - (time.monotonic() - began)
        known = {(c.method, c.dataset) for c, ln in results.items() if ln["hardware"] == hardware}
        group = next_group(left, shares, 1 if kind == "cpu" else at_once, remaining, known)
        if not group:
            return done
        if on_start is not None:
            on_start(group, time_together([shares[cell] for cell in group]))
        running = set(group)
        jobs = []
        for cell in group:
            bags, own = problem(cell.dataset, cell.bag_size), folder / cell.name
            jobs.append(_job(paper, cell, bags, own, device, about, running, on_done))
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

    def net(seed: int) -> nn.Module:
        if data.x.ndim == 3:
            return build_net("conv1d", train, seed=seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return Normalized(resnet18(n_classes), MEAN, STD)

    return net, (train, valid, test)


def _job(
    paper: Paper,
    cell: Cell,
    problem: Problem,
    folder: Path,
    device: str,
    about: Mapping[str, Any],
    running: set[Cell],
    on_done: Callable[[Cell, dict[str, Any]], None] | None,
) -> Job:
    """Return the training of a cell in its run folder, recorded at its end."""
    began, together = time.monotonic(), len(running)
    ends, shares = list[float](), list[float]()  # of the epochs that this process trains

    def on_epoch(record: dict[str, Any], net: nn.Module) -> None:  # noqa: ARG001
        now = time.monotonic()
        if ends:  # the first compiles
            shares.append((now - ends[-1]) / len(running))
        ends.append(now)

    def on_end(history: History) -> None:
        records = history.records
        best, last = history.selected, records[-1]
        lengths = [sum(record["seconds"].values()) for record in records]
        earlier = sum(lengths[: len(lengths) - len(ends)])  # epochs of a process that was killed
        # How many cells ran beside those is not known: they count as these do.
        share = mean(shares) * (len(records) - 1) if shares else sum(lengths[1:]) / together
        line = {
            **asdict(cell),
            "selected": round(100 * best["test_accuracy"], 2),
            "last": round(100 * last["test_accuracy"], 2),
            "best_epoch": best["epoch"],
            "seconds": round(earlier + time.monotonic() - began, 1),
            "share": round(share, 1),
            "together": together,
            **about,
        }
        curves = {name: [round(r[name], 4) for r in records] for name in CURVES if name in last}
        paper.add(line, curves)
        running.discard(cell)
        shutil.rmtree(folder, ignore_errors=True)  # what is left, the next call removes
        if on_done is not None:
            on_done(cell, line)

    net, bags = problem
    return Job(
        net(cell.seed),
        *bags,
        method=method_from(paper.settings_of(cell)),
        config=_config(cell, device),
        run=folder,
        on_epoch=on_epoch,
        on_end=on_end,
    )


def _config(cell: Cell, device: str) -> TrainConfig:
    every = max(1, cell.epochs // 10)  # of 190 MB each, which take about a second to write
    return TrainConfig.preset(
        "paper", epochs=cell.epochs, seed=cell.seed, device=device, checkpoint_every=every
    )


def _left(folder: Path, config: TrainConfig) -> float:
    """Return the share of the epochs that no checkpoint in the folder has."""
    try:
        logged = len(Run(folder).records())
    except RunError:  # which the cell itself will tell
        logged = 0
    return 1 - logged // config.checkpoint_every * config.checkpoint_every / config.epochs
