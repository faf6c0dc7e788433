"""Time and memory of an epoch against the number of instances, the size of bags and the classes.

    python benchmarks/scaling.py [--quick]

Synthetic tables of 20 columns, the perceptron `mlp`, `fpl`, on the CPU. Every setting runs in a
process of its own; times are medians over epochs, and memory is what the process needs at its peak
beyond what it had when the data, the model and the optimiser were there.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

COLUMNS = 20


def measure(n, size, classes, epochs, batch_size):
    """Train, and give the median seconds of an epoch by phases, and the bytes beyond the data."""
    from apportion import Bags, TrainConfig, fit
    from apportion.data.protocols import random
    from apportion.nets import build

    logging.getLogger("apportion").setLevel(logging.ERROR)
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=n)
    x = rng.normal(size=(n, COLUMNS)).astype(np.float32) + labels[:, None].astype(np.float32)
    members = random(n, size, seed=0)
    bags = Bags.from_members(x, members, labels=labels, classes=range(classes))
    model = build("mlp", bags)
    config = TrainConfig(epochs=epochs, batch_size=batch_size)
    small = bags.subset(slice(0, max(1, 1000 // size)))
    fit(build("mlp", small), small, config=TrainConfig(epochs=1))  # compiles, and warms up

    peak, done = [resident()], threading.Event()

    def watch():
        while not done.wait(0.002):
            peak[0] = max(peak[0], resident())

    before = resident()
    watcher = threading.Thread(target=watch)
    watcher.start()
    history = fit(model, bags, config=config)
    done.set()
    watcher.join()
    phases = {
        phase: float(np.median([seconds[phase] for seconds in history["seconds"]]))
        for phase in history["seconds"][0]
    }
    return {"seconds": phases, "bytes": peak[0] - before}


def resident():
    """The memory of this process now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def in_a_process_of_its_own(*setting):
    command = [sys.executable, __file__, "--one", json.dumps(setting)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def row(name, setting):
    found = in_a_process_of_its_own(*setting)
    n, _, classes = setting[:3]
    seconds = sum(found["seconds"].values())
    allowed = 16 * n * classes + 64 * n
    phases = " · ".join(f"{phase} {value:.3f}" for phase, value in found["seconds"].items())
    print(
        f"| {name} | {seconds:.3f} | {1e6 * seconds / n:.2f} | {phases} | "
        f"{found['bytes'] / 2**20:.0f} | {allowed / 2**20:.0f} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the instances")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*json.loads(options.one))))
        return
    scale = 10 if options.quick else 1
    print("| setting | seconds | µs an instance | phases (s) | MiB beyond | 16 NC + 64 N (MiB) |")
    print("|---|---|---|---|---|---|")
    for n in (20_000, 200_000, 2_000_000):
        row(f"{n // scale:,} instances", (n // scale, 256, 10, 7 if n < 10**6 else 4, 256))
    for size in (16, 256, 4096, 65_536):
        row(f"bags of {size:,}", (200_000 // scale, min(size, 200_000 // scale), 10, 7, 256))
    for classes in (2, 10, 100):
        row(f"{classes} classes", (200_000 // scale, 256, classes, 7, 256))


if __name__ == "__main__":
    main()
