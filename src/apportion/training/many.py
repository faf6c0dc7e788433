"""Several trainings side by side on one GPU.

One run of a small network leaves most of a GPU idle: its kernels are too small to fill it. Runs in
threads of one process, each on a CUDA stream of its own, fill it together; processes would take
turns instead, unless the machine's owner runs NVIDIA's MPS.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from apportion.config import TrainConfig
from apportion.engine.batches import Shelf
from apportion.engine.device import MOST_RUNS, device_for, own_threads
from apportion.errors import ApportionError, ConfigError, suggestion
from apportion.training.checks import check_types
from apportion.training.fit import fit, train_one
from apportion.training.progress import progress_bars
from apportion.training.session import History

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
        folder of its own if any. Data that jobs share are placed on the GPU once. On a GPU
        `on_epoch` is called in threads, and must not wait for the whole device
        (`torch.cuda.synchronize`), which would disturb a job that is being recorded.
    at_once : int
        How many jobs are trained at a time: 10 at most, and more than 6 hardly help.
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
    >>> from apportion.nets.build import build
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
    if not 1 <= at_once <= MOST_RUNS:
        raise ConfigError(f"at_once is {at_once}.", f"Let it be from 1 to {MOST_RUNS}.")
    complete = [_complete(number, job) for number, job in enumerate(jobs)]
    _check_apart(complete)
    devices = [device_for(job["config"].device) for job in complete]
    shelves = {device: Shelf() for device in devices}
    on_gpu = {device for device in devices if device.type == "cuda"}
    for device in on_gpu:  # jobs, in threads of their own, do not see the caller's stream
        torch.cuda.current_stream(device).synchronize()
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
        try:
            return train_one(
                **{**job, "on_epoch": on_epoch},
                device=devices[number],
                show=shows[number],
                shelf=shelves[devices[number]],
                name=f"job {number} · ",
            )
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # which hold the job's memory on the GPU
            raise

    with (
        own_threads(None),  # jobs that overlap cannot give back what they found
        progress_bars([job["config"].epochs for job in complete], progress) as shows,
        ThreadPoolExecutor(at_once if on_gpu else 1, "apportion-job") as pool,
    ):
        try:
            done = [pool.submit(work, number) for number in range(len(complete))]
            errors = [job.exception() for job in done]
        except KeyboardInterrupt:
            stop.set()  # each job ends after its epoch
            raise
    for device in on_gpu:
        torch.cuda.synchronize(device)
    failed = [error for error in errors if error is not None]
    if failed:
        for number, error in enumerate(errors):
            if error is not None:
                error.add_note(f"This was job {number} of {len(done)}; they are counted from 0.")
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
    try:
        check_types(*(complete[name] for name in ("model", "config", "train", "valid", "test")))
    except ApportionError as error:
        error.add_note(f"This was job {number}; they are counted from 0.")
        raise
    return complete


def _check_apart(jobs: list[dict[str, Any]]) -> None:
    """Two jobs must not write to the same model or the same folder."""
    seen: dict[Any, int] = {}
    for number, job in enumerate(jobs):
        folder = getattr(job["run"], "folder", job["run"])
        run = None if folder is None else Path(folder).resolve()
        weights = [("weights", id(weight)) for weight in job["model"].parameters()]
        for what, key in (*weights, ("run folder", run)):
            if key is not None and seen.setdefault(key, number) != number:
                raise ConfigError(
                    f"jobs {seen[key]} and {number} have the same {what}.",
                    "Give every job its own: copy.deepcopy copies a model.",
                )
