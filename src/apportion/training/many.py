"""Several trainings side by side on one GPU.

One run of a small network leaves most of a GPU idle: its kernels are too small to fill it. Runs in
threads of one process, each on a CUDA stream of its own, fill it together; processes would take
turns instead, unless the machine's owner runs NVIDIA's MPS.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.batches import Shelf
from apportion.engine.device import MOST_RUNS, device_for, own_threads
from apportion.errors import ConfigError, must_be
from apportion.methods.base import Method
from apportion.runs.run import Run
from apportion.training.checks import check_types
from apportion.training.fit import train_one
from apportion.training.history import History
from apportion.training.progress import progress_bars

__all__ = ["Job", "fit_many"]


@dataclass(frozen=True, eq=False)
class Job:
    """One training of `fit_many`: the arguments of `fit`, and what to do at its end.

    On a GPU `on_epoch` and `on_end` are called in the job's thread, and must not wait for the whole
    device (`torch.cuda.synchronize`), which would disturb a job that is being recorded.
    """

    net: nn.Module
    train: Bags
    valid: Bags | None = None
    test: Bags | None = None
    _: KW_ONLY
    method: str | Method = "fpl"
    config: TrainConfig = field(default_factory=TrainConfig)
    run: str | PathLike[str] | Run | None = None
    on_epoch: Callable[[dict[str, Any], nn.Module], None] | None = None
    on_end: Callable[[History], None] | None = None  # called once the run folder is complete

    def __post_init__(self) -> None:
        """Check that everything is what `fit` takes."""
        check_types(self.net, self.config, self.train, self.valid, self.test)


def fit_many(
    jobs: Sequence[Job], *, at_once: int = 4, progress: bool | None = None
) -> list[History]:
    """Train several nets that have nothing to do with each other.

    Each job returns what `fit` returns alone, up to the order in which a GPU adds. Jobs on the CPU,
    which one training can fill, are done one after the other.

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
    >>> from apportion.nets.build import build_net
    >>> x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    >>> bags = Bags.from_rows(x, np.arange(60) % 3, {0: [0.5, 0.5], 1: [0.2, 0.8], 2: [1, 0]})
    >>> fit_many([Job(build_net("mlp", bags), bags, config=TrainConfig(epochs=n)) for n in (2, 3)])
    [History(2 epochs, no selection), History(3 epochs, no selection)]
    """
    if not 1 <= at_once <= MOST_RUNS:
        raise must_be("at_once", f"an integer from 1 to {MOST_RUNS}", at_once)
    _check_apart(jobs)
    devices = [device_for(job.config.device) for job in jobs]
    shelves = {device: Shelf() for device in devices}
    on_gpu = {device for device in devices if device.type == "cuda"}
    for device in on_gpu:  # jobs, in threads of their own, do not see the caller's stream
        torch.cuda.current_stream(device).synchronize()
    stop = threading.Event()

    def work(number: int) -> History:
        job = jobs[number]

        def on_epoch(record: dict[str, Any], net: nn.Module) -> None:
            if job.on_epoch is not None:
                job.on_epoch(record, net)
            if stop.is_set():
                raise KeyboardInterrupt

        if stop.is_set():
            raise KeyboardInterrupt
        try:
            history = train_one(
                job.net,
                job.train,
                job.valid,
                job.test,
                job.method,
                job.config,
                device=devices[number],
                run=job.run,
                on_epoch=on_epoch,
                show=shows[number],
                shelf=shelves[devices[number]],
                name=f"job {number} · ",
            )
            if job.on_end is not None:
                job.on_end(history)
            return history
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # which hold the job's memory on the GPU
            raise

    with (
        own_threads(None),  # jobs that overlap cannot restore what they found
        progress_bars([job.config.epochs for job in jobs], progress) as shows,
        ThreadPoolExecutor(at_once if on_gpu else 1, "apportion-job") as pool,
    ):
        try:
            done = [pool.submit(work, number) for number in range(len(jobs))]
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
    """Check that no two jobs write to the same net or the same folder."""
    seen: dict[Any, int] = {}
    for number, job in enumerate(jobs):
        folder = job.run.folder if isinstance(job.run, Run) else job.run
        run = None if folder is None else Path(folder).resolve()
        weights = [("weights", id(weight)) for weight in job.net.parameters()]
        for what, key in (*weights, ("run folder", run)):
            if key is not None and seen.setdefault(key, number) != number:
                raise ConfigError(
                    f"jobs {seen[key]} and {number} have the same {what}.",
                    "Every job needs its own: copy.deepcopy copies a net.",
                )
