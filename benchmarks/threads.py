"""Training with the default number of threads against every other number, alone and in company.

    python benchmarks/threads.py [--quick] [--minutes 8] [--out build/threads.jsonl]
    PYTHONPATH=src python benchmarks/threads.py          # from a plain source tree

Three epochs of `fit` (the perceptron, `fpl`, as many rows per step as a plan would take) on tables
of three sizes: with default threads, and with 1, 2, 4, … up to the number of cores; alone, and
beside another job that keeps every core busy, one process per core. All numbers of threads take
turns within one process, which has trained once before. Prints one row per setting, and writes one
JSON line each: the median and all measured seconds of the three epochs, and their ratio to the
median of the best number. A setting that has taken five seconds is not repeated, and one whose
first epoch takes as long ends with it, and counts three times. No setting begins when the minutes
are nearly over; what is left out is said.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

SIZES = {"1,800 × 64": (1800, 64, 10, 32), "10,000 × 20": (10_000, 20, 2, 128)}
LARGE = {"500,000 × 20": (500_000, 20, 2, 1024)}
REPEATS, REPEATS_OF_LARGE = 7, 2
EPOCHS, LONG = 3, 5.0  # seconds
BUSY = "while True: pass"


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def numbers(most: int) -> list[int | None]:
    """Return the numbers of threads to try: the default, None, and powers of two up to `most`."""
    return [None, *sorted({most, *(2**k for k in range(most.bit_length()) if 2**k <= most)})]


@contextmanager
def company(load: str) -> Iterator[list[subprocess.Popen]]:
    """Keep every core busy, or none."""
    n = cores() if load == "beside another job" else 0
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(n)]
    try:
        yield others
    finally:
        for other in others:
            other.kill()
            other.wait()


class LongEpochError(Exception):
    """An epoch took so long that it stands for all."""


class Training:
    """Three epochs on one table, with any number of threads."""

    def __init__(self, n: int, columns: int, classes: int, batch_size: int) -> None:
        from apportion import Bags

        rng = np.random.default_rng(0)
        truth = rng.integers(classes, size=n)
        x = rng.normal(size=(n, columns)).astype(np.float32) + truth[:, None].astype(np.float32)
        self.bags = Bags.from_rows(x, np.arange(n) // 50, truth=truth)
        self.batch_size = batch_size

    def seconds(self, threads: int | None, epochs: int = EPOCHS) -> float:
        from apportion import TrainConfig, build_net, fit

        config = TrainConfig(
            epochs=epochs, batch_size=self.batch_size, threads=threads, device="cpu"
        )
        net = build_net("mlp", self.bags)

        def check(record: dict[str, Any], _: Any) -> None:
            if record["epoch"] == 1 and time.perf_counter() - began > LONG:
                raise LongEpochError

        began = time.perf_counter()
        try:
            fit(net, self.bags, method="fpl", config=config, on_epoch=check, progress=False)
        except LongEpochError:
            return epochs * (time.perf_counter() - began)
        return time.perf_counter() - began


def measure(size: str, load: str, repeats: int, deadline: float) -> list[dict[str, Any]]:
    """Measure every number of threads, in turns, while there is time."""
    training = Training(*{**SIZES, **LARGE}[size])
    tried = numbers(cores())
    times: dict[int | None, list[float]] = {threads: [] for threads in tried}
    training.seconds(1, epochs=1)
    with company(load):
        for _ in range(repeats):
            for threads, taken in times.items():
                if time.monotonic() < deadline and sum(taken) < LONG:
                    taken.append(training.seconds(threads))
    medians = {threads: statistics.median(taken) for threads, taken in times.items() if taken}
    best = min((median for t, median in medians.items() if t is not None), default=float("nan"))
    return [
        {
            "size": size,
            "load": load,
            "threads": threads or "default",
            "seconds": medians.get(threads),
            "all": taken,
            "to_best": medians[threads] / best if threads in medians else None,
        }
        for threads, taken in times.items()
    ]


def about() -> dict[str, Any]:
    import torch

    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    return {"cores": cores(), "versions": versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without the large table, once each")
    parser.add_argument("--minutes", type=float, default=8.0, help="in all")
    parser.add_argument("--out", type=Path, default=Path("build/threads.jsonl"))
    options = parser.parse_args()
    logging.getLogger("apportion").setLevel(logging.ERROR)
    deadline = time.monotonic() + 60 * (options.minutes - 1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    print(json.dumps(about()))
    with options.out.open("w", encoding="utf-8") as file:
        for size in SIZES if options.quick else {**SIZES, **LARGE}:
            repeats = 1 if options.quick else REPEATS_OF_LARGE if size in LARGE else REPEATS
            for load in ("alone", "beside another job"):
                for line in measure(size, load, repeats, deadline):
                    file.write(json.dumps({**line, **about()}) + "\n")
                    told = "no time was left"
                    if line["seconds"] is not None:
                        told = f"{line['seconds']:8.3f} s  {line['to_best']:5.2f} × the best"
                    print(f"{size:>13} {load:<19} {line['threads']!s:>8} {told}", flush=True)


if __name__ == "__main__":
    main()
