"""Several trainings side by side on one GPU.

One run of a small network leaves most of a GPU idle: its kernels are too small to fill it. Runs in
threads of one process, each on a CUDA stream of its own, fill it together; processes would take
turns instead, unless the machine's owner runs NVIDIA's MPS.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from os import PathLike
from typing import Any

import torch
from torch import nn

from apportion.engine.batches import Shelf
from apportion.engine.device import MOST_RUNS, device_for, own_threads
from apportion.engine.distributed import is_first, is_one_of_many, together
from apportion.errors import ConfigError, must_be
from apportion.runs.run import Run
from apportion.training.fit import train_one
from apportion.training.history import History
from apportion.training.job import Job
from apportion.training.progress import progress_bars

__all__ = ["fit_many"]


def fit_many(
    jobs: Sequence[Job], *, at_once: int = 4, progress: bool | None = None
) -> list[History]:
    """Train several nets that have nothing to do with each other.

    Each job returns what `fit` returns alone, up to the order in which a GPU adds. Jobs on the CPU,
    which one training can fill, and of several processes are done one after the other.

    Parameters
    ----------
    jobs : sequence of Job
        Every job needs a net of its own, and a run folder of its own if any. Data that jobs share
        are placed on the GPU once.
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
    >>> from apportion import Bags, TrainConfig, build_net
    >>> x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    >>> bags = Bags.from_rows(x, np.arange(60) % 3, {0: [0.5, 0.5], 1: [0.2, 0.8], 2: [1, 0]})
    >>> fit_many([Job(build_net("mlp", bags), bags, config=TrainConfig(epochs=n)) for n in (2, 3)])
    [History(2 epochs, no selection), History(3 epochs, no selection)]
    """
    if isinstance(jobs, Job):
        raise ConfigError("jobs is a Job.", "Pass a list of jobs; fit trains a single net.")
    if not 1 <= at_once <= MOST_RUNS:
        raise must_be("at_once", f"an integer from 1 to {MOST_RUNS}", at_once)
    jobs = list(jobs)
    _check_apart(jobs)
    devices = [device_for(job.config.device) for job in jobs]
    shelves = {device: Shelf() for device in devices}
    on_gpu = {device for device in devices if device.type == "cuda"}
    for device in on_gpu:  # jobs, in threads of their own, do not see the caller's stream
        torch.cuda.current_stream(device).synchronize()
    # Threads of several processes would talk over one connection, each in an order of its own.
    width = at_once if on_gpu and not is_one_of_many() else 1
    stop = threading.Event()

    def work(number: int) -> History:
        job = jobs[number]

        def on_epoch(record: dict[str, Any], net: nn.Module) -> bool | None:
            answer = None if job.on_epoch is None else job.on_epoch(record, net)
            if stop.is_set():
                raise KeyboardInterrupt
            return answer

        if stop.is_set():
            raise KeyboardInterrupt
        try:
            watched = replace(job, on_epoch=on_epoch)
            shelf = shelves[devices[number]]
            with together(job.config.device) as own:  # a thread takes a GPU by itself
                about: dict[str, Any] = {"shelf": shelf, "name": f"job {number} · ", "ranks": own}
                return train_one(watched, shows[number], **about)
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # which hold the job's memory on the GPU
            raise

    epochs = [job.config.epochs for job in jobs]
    with (
        own_threads(None),  # jobs that overlap cannot restore what they found
        progress_bars(epochs, progress if is_first() else False) as shows,
        ThreadPoolExecutor(width, "apportion-job") as pool,
    ):
        try:
            done = [pool.submit(copy_context().run, work, number) for number in range(len(jobs))]
            errors = [future.exception() for future in done]
        except KeyboardInterrupt:
            stop.set()  # each job ends after its epoch
            raise
    for device in on_gpu:
        torch.cuda.synchronize(device)
    failed = {number: error for number, error in enumerate(errors) if error is not None}
    for number, error in failed.items():
        error.add_note(f"This was job {number} of {len(done)}; they are counted from 0.")
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {len(done)} jobs failed", [*failed.values()])
    return [future.result() for future in done]


def _check_apart(jobs: Sequence[Job]) -> None:
    """Check that all are jobs, and that no two write to the same net or the same folder."""
    seen: dict[Any, int] = {}
    for number, job in enumerate(jobs):
        if not isinstance(job, Job):
            raise ConfigError(
                f"job {number} (counted from 0) is a {type(job).__name__}.",
                "Pass a list of Job(net, train, …), which takes the arguments of fit.",
            )
        own = Run(job.run) if isinstance(job.run, str | PathLike) else job.run
        run = None if own is None else own.folder.resolve()
        weights = [("weights", id(weight)) for weight in job.net.parameters()]
        for what, key in (*weights, ("run folder", run)):
            if key is not None and seen.setdefault(key, number) != number:
                copies = ": copy.deepcopy copies a net" if what == "weights" else ""
                raise ConfigError(
                    f"jobs {seen[key]} and {number} have the same {what}.",
                    f"Every job needs its own{copies}.",
                )
