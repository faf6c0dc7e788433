"""The methods on handwritten digits, over many draws of split, bags and network.

    python benchmarks/digits.py [--seeds 20] [--jobs 2] [--cache trials.jsonl]

Prints the tables of docs/results.md: every method at 5, 10 and 40 bags of 128, with paired
differences to `fpl`, and the accuracy of `fpl` for several η and numbers of epochs. Every trial
runs in one thread, `--jobs` of them at a time; those that are in `--cache` are not repeated.
"""

from __future__ import annotations

import argparse
import logging
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import torch

from apportion.methods.pseudo_labels import FPL
from apportion.methods.registry import METHODS
from apportion.study.demo import SUPERVISED, trial
from apportion.study.results import add_result, provenance, read_results

KEY = ("method", "seed", "n_bags", "epochs", "eta")
BAGS = (5, 10, 40)
EPOCHS = (25, 50, 100, 200, 400)
RATES = (0, 1 / 400, 2 / 400, 5 / 400, 10 / 400, 20 / 400)  # η / epochs


def run(job):
    method, seed, n_bags, epochs, eta = job
    logging.getLogger("apportion").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    chosen = method if eta is None else FPL(eta=eta)
    accuracy = 100 * trial(chosen, seed, n_bags=n_bags, epochs=epochs).accuracy
    return {**dict(zip(KEY, job, strict=True)), "accuracy": accuracy, **provenance("cpu")}


def results(jobs, workers, cache):
    """Run what is not in the cache yet; return {job: accuracy}."""
    lines = read_results(cache, (*KEY, "accuracy")) if cache else []
    done = {tuple(line[name] for name in KEY): line["accuracy"] for line in lines}
    todo = [job for job in jobs if job not in done]
    with ProcessPoolExecutor(workers) as pool:
        running = {pool.submit(run, job): job for job in todo}
        for n, future in enumerate(as_completed(running), 1):
            line = future.result()
            done[running[future]] = line["accuracy"]
            print(f"\r{n}/{len(todo)} trials", end="", file=sys.stderr, flush=True)
            if cache:
                add_result(cache, line)
    return done


def mean_and_error(values):
    return np.mean(values), np.std(values, ddof=1) / np.sqrt(len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    seeds = range(options.seeds)

    methods = [*(name for name in METHODS if name != "strong"), SUPERVISED]  # it is for images
    comparison = {(m, s, n, 100, None) for m in methods for s in seeds for n in BAGS}
    rates = {
        ("fpl", s, 10, t, r * t) for s in seeds[: len(seeds) // 2] for t in EPOCHS for r in RATES
    }
    found = results(sorted(comparison | rates, key=str), options.jobs, options.cache)

    print(f"\nTest accuracy (%), {len(seeds)} draws, 100 epochs; in brackets the difference to fpl")
    print(
        "\n| method | " + " | ".join(f"{n} bags" for n in BAGS) + " |\n|---|" + "---|" * len(BAGS)
    )
    for method in methods:
        cells = []
        for n in BAGS:
            own, fpl = (
                np.array([found[m, s, n, 100, None] for s in seeds]) for m in (method, "fpl")
            )
            mean, error = mean_and_error(own)
            difference, paired = mean_and_error(own - fpl)
            beside = "" if method == "fpl" else f" ({difference:+.1f} ± {paired:.1f})"
            cells.append(f"{mean:.1f} ± {error:.1f}{beside}")
        print(f"| {method} | " + " | ".join(cells) + " |")

    print(f"\nfpl at 10 bags by η / epochs, {len(seeds) // 2} draws")
    print("\n| epochs | " + " | ".join(f"{400 * r:g} / 400" for r in RATES) + " |")
    print("|---|" + "---|" * len(RATES))
    for t in EPOCHS:
        accuracies = (
            [found["fpl", s, 10, t, r * t] for s in seeds[: len(seeds) // 2]] for r in RATES
        )
        cells = ["{:.1f} ± {:.1f}".format(*mean_and_error(own)) for own in accuracies]
        print(f"| {t} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
