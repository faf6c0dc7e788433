"""Several trainings side by side on one GPU.

One run of a small network leaves most of a GPU idle: its kernels are too small to fill it. Runs in
threads of one process, each on a CUDA stream of its own, fill it together; processes would take
turns instead, unless the machine's owner runs NVIDIA's MPS.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from pathlib import Path
from typing import Any

from torch import nn

from apportion._fit_checks import check_types
from apportion.config import ConfigError, TrainConfig
from apportion.engine.batches import Shelf
from apportion.engine.device import device_for, own_threads
from apportion.engine.progress import progress_bars
from apportion.errors import suggestion
from apportion.train import History, fit, train_one

__all__ = ["fit_many"]


def fit_many(
    jobs: Sequence[Mapping[str, Any]], *, at_once: int = 4, progress: bool | None = None
) -> list[History]:
    """Train several models that have nothing to do with each other.

    Each gives what `fit` gives alone, up to the order in which a GPU adds. Jobs on the CPU, which
    one training can fill, are done one after the other.

    Parameters
    ----------
    jobs : sequence of mappings
        What `fit` takes, by name, but for `progress`. Every job needs a model of its own, and a run
        folder of its own if any. Data that jobs share are placed on the GPU once.
    at_once : int
        How many jobs are trained at a time.
    progress : bool, optional
        Whether to show progress bars; by default on a terminal.

    Returns
    -------
    list of History
        In the order of the jobs.

    Raises
    ------
    ExceptionGroup
        Of the jobs that failed, once the others are done.

    Examples
    --------
    >>> import numpy as np
    >>> from apportion import Bags
    >>> from apportion.nets import build
    >>> x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    >>> bags = Bags.from_rows(x, np.arange(60) % 3, {0: [0.5, 0.5], 1: [0.2, 0.8], 2: [1, 0]})
    >>> fit_many(
    ...     [
    ...         {"model": build("mlp", bags), "train": bags, "config": TrainConfig(epochs=epochs)}
    ...         for epochs in (2, 3)
    ...     ]
    ... )
    [History(2 epochs, no selection), History(3 epochs, no selection)]
    """
    if at_once < 1:
        raise ConfigError(f"at_once is {at_once}.", "Let it be 1 or more.")
    complete = [_complete(number, job) for number, job in enumerate(jobs)]
    _check_apart(complete)
    devices = [device_for(job["config"].device) for job in complete]
    shelves = {device: Shelf() for device in devices}
    if all(device.type == "cpu" for device in devices):
        at_once = 1
    stop = threading.Event()

    def work(number: int) -> History:
        job = complete[number]

        def on_epoch(record: dict[str, Any], model: nn.Module) -> None:
            if job["on_epoch"] is not None:
                job["on_epoch"](record, model)
            if stop.is_set():
                raise KeyboardInterrupt

        if stop.is_set():
            raise KeyboardInterrupt
        return train_one(
            **{**job, "on_epoch": on_epoch},
            show=shows[number],
            shelf=shelves[devices[number]],
            name=f"job {number} · ",
        )

    with (
        own_threads(None),  # jobs that overlap cannot give back what they found
        progress_bars([job["config"].epochs for job in complete], progress) as shows,
        ThreadPoolExecutor(at_once, "apportion-job") as pool,
    ):
        try:
            done = [pool.submit(work, number) for number in range(len(complete))]
            errors = [job.exception() for job in done]
        except KeyboardInterrupt:
            stop.set()  # each job ends after its epoch
            raise
    failed = [error for error in errors if error is not None]
    if failed:
        for number, error in enumerate(errors):
            if error is not None:
                error.add_note(f"This was job {number} of {len(done)}.")
        raise BaseExceptionGroup(f"{len(failed)} of {len(done)} jobs failed", failed)
    return [job.result() for job in done]


def _complete(number: int, job: Mapping[str, Any]) -> dict[str, Any]:
    """A job with all of `fit`'s arguments, checked."""
    known = {
        name: None if option.default is option.empty else option.default
        for name, option in signature(fit).parameters.items()
        if name != "progress"
    }
    for name in job:
        if name not in known:
            raise ConfigError(f"job {number} has {name!r}.", suggestion(name, known))
    complete = {**known, **job}
    if complete["config"] is None:
        complete["config"] = TrainConfig()
    check_types(*(complete[name] for name in ("model", "config", "train", "valid", "test")))
    return complete


def _check_apart(jobs: list[dict[str, Any]]) -> None:
    """Two jobs must not write to the same model or the same folder."""
    seen: dict[Any, int] = {}
    for number, job in enumerate(jobs):
        folder = getattr(job["run"], "folder", job["run"])
        run = None if folder is None else Path(folder).resolve()
        for what, key in (("model", id(job["model"])), ("run folder", run)):
            if key is not None and seen.setdefault(key, number) != number:
                raise ConfigError(
                    f"jobs {seen[key]} and {number} have the same {what}.",
                    "Give every job one of its own: copy.deepcopy copies a model.",
                )
