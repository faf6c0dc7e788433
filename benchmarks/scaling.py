"""Time and memory of an epoch against the number of instances, the size of bags and the classes.

    python benchmarks/scaling.py [--quick] [--repeats 3]

Synthetic tables, the perceptron `mlp`, `fpl`, on the CPU. Every setting runs in a process of its
own, and all of them in turn, `--repeats` times; a time is the median over the epochs of a process,
and the least of the repeats. Memory is what a process needs at its peak beyond what it had when
the data, the model and the optimiser were there; what it needs for an instance more is the slope
between two sizes. Streaming reads a mapped file of twice the memory that it is given.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

DEFAULTS = {"size": 256, "classes": 10, "epochs": 5, "batch_size": 256, "columns": 20}


def measure(n, size, classes, epochs, batch_size, columns, streamed=None):
    """Train; give the median seconds of an epoch by phases, and the bytes beyond the data."""
    from apportion import Bags, TrainConfig, fit
    from apportion.nets.build import build_net
    from apportion.study.protocols import shuffle

    logging.getLogger("apportion").setLevel(logging.ERROR)
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=n)
    x = rng.normal(size=(n, columns)).astype(np.float32) + labels[:, None].astype(np.float32)
    memory = None
    with tempfile.TemporaryDirectory() as folder:
        if streamed is not None:  # or not, from the same mapped file
            np.save(Path(folder, "x.npy"), x)
            memory = x.nbytes / 2 / 2**30 if streamed else None
            x = np.load(Path(folder, "x.npy"), mmap_mode="r")
        members = shuffle(n, size, seed=0)
        bags = Bags.from_members(x, members, truth=labels, classes=range(classes))
        model = build_net("mlp", bags)
        config = TrainConfig(epochs=epochs, batch_size=batch_size, device_memory_gib=memory)
        small = bags[: max(1, 1000 // size)]
        fit(build_net("mlp", small), small, config=TrainConfig(epochs=1))  # compiles, and warms up
        history, needed = watched(lambda: fit(model, bags, config=config))
    seconds = history["seconds"]
    phases = {phase: float(np.median([s[phase] for s in seconds])) for phase in seconds[0]}
    return {"seconds": phases, "bytes": needed}


def watched(do):
    """What something gives, and how much its peak is above the memory before."""
    before = peak = resident()
    done = threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        given = do()
    finally:
        done.set()
        watcher.join()
    return given, peak - before


def resident():
    """The memory of this process now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def in_a_process_of_its_own(setting):
    command = [sys.executable, __file__, "--one", json.dumps(setting)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def least(settings, repeats):
    """What each setting takes at best, all of them measured in turn."""
    found: list[list[dict]] = [[] for _ in settings]
    for _ in range(repeats):
        for results, setting in zip(found, settings, strict=True):
            results.append(in_a_process_of_its_own({**DEFAULTS, **setting}))
    return [min(results, key=lambda r: sum(r["seconds"].values())) for results in found]


def table(title, names, settings, repeats):
    """Print a row a setting; give the microseconds an instance of each."""
    print(f"\n| {title} | seconds | µs an instance | phases |\n|---|---|---|---|")
    each = []
    for name, setting, found in zip(names, settings, least(settings, repeats), strict=True):
        seconds = sum(found["seconds"].values())
        each.append(1e6 * seconds / setting["n"])
        phases = " · ".join(f"{phase} {value:.3f}" for phase, value in found["seconds"].items())
        print(f"| {name} | {seconds:.3f} | {each[-1]:.2f} | {phases} |", flush=True)
    print(f"\nlargest over smallest: {max(each) / min(each):.2f}")
    return each


def memory(n, classes):
    """Print the bytes for an instance more, beside 16 for each of its classes and 64."""
    settings = [{**DEFAULTS, "n": k, "classes": classes, "batch_size": 8192} for k in (n, 2 * n)]
    small, large = (in_a_process_of_its_own(setting)["bytes"] for setting in settings)
    print(
        f"{classes} classes: {small / 2**20:.0f} MiB for {n:,} instances, {large / 2**20:.0f} for "
        f"{2 * n:,}: {(large - small) / n:.0f} bytes an instance ({16 * classes + 64} = 16 C + 64)",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the instances")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(**json.loads(options.one))))
        return
    scale = 10 if options.quick else 1
    some = 200_000 // scale

    numbers = [n // scale for n in (20_000, 200_000, 2_000_000)]
    settings = [{"n": n, "epochs": max(5, 500_000 // n)} for n in numbers]
    table("instances", numbers, settings, options.repeats)
    sizes = [min(size, some) for size in (16, 256, 4096, 65_536)]
    table("bags of", sizes, [{"n": some, "size": size} for size in sizes], options.repeats)
    classes = [2, 10, 100]
    table("classes", classes, [{"n": some, "classes": c} for c in classes], options.repeats)
    for columns in (20, 3072):
        n = some if columns == 20 else some // 10
        settings = [{"n": n, "columns": columns, "streamed": way} for way in (False, True)]
        each = table(f"{columns} columns", ["in place", "streamed"], settings, options.repeats)
        print(f"streaming runs at {each[0] / each[1]:.0%} of the speed")
    print("\nMemory beyond data, model and optimiser:")
    memory(1_000_000 // scale, 10)
    memory(100_000 // scale, 100)


if __name__ == "__main__":
    main()
