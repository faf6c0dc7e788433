"""Seconds of an epoch of every method that the paper compares, alone and four together.

    python benchmarks/methods.py [--methods fpl llp-vat] [--size 1024] [--instances 102400]
    python benchmarks/methods.py --render

The preset `paper`, with as many instances again to validate on: ResNet-18 on images of 32 × 32, and
with convolutions of one dimension on signals of 13 × 93. Both are random numbers, in bags drawn by
the paper's protocol. A run-epoch is an epoch of one of the trainings that run together, divided by
how many do: medians over the epochs after the first three. On the CPU they run alone.

Each measurement adds a line to benchmarks/methods.jsonl, and is not repeated. `--render` makes the
table of papers/matsuo2023/README.md from the lines alone.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from apportion import Bags, Job, TrainConfig, build_net, fit_many
from apportion.engine.device import device_for
from apportion.study.protocols import rand
from apportion.study.results import add_result, provenance, read_results

KEY = ("net", "method", "size", "instances", "together")
RESULTS = Path(__file__).with_name("methods.jsonl")
PAGE = Path(__file__).parents[1] / "papers" / "matsuo2023" / "README.md"
METHODS = ("fpl", "proportion-loss", "pi-model", "llp-vat", "count-likelihood")
SHAPES = {"resnet18": (3, 32, 32), "conv1d": (13, 93)}
CLASSES = 10
WARM_UP = 3  # epochs: compiling, recording, trying kernels


class Clock:
    """The times at which epochs end."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def __call__(self, *_: Any) -> None:
        self.ends.append(time.perf_counter())

    def epoch(self) -> float:
        """Return the median length of the epochs after the first ones."""
        return float(np.median([b - a for a, b in pairwise(self.ends[WARM_UP - 1 :])]))


def drawn(net: str, size: int, instances: int, seed: int) -> Bags:
    """Draw bags of random instances: a third as many rows as instances, as in the paper."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(CLASSES, size=max(instances // 3, 4 * size))
    shape = (len(truth), *SHAPES[net])
    if net == "resnet18":
        x: Any = rng.integers(256, size=shape, dtype=np.uint8)
    else:
        x = rng.standard_normal(shape, np.float32)
    members = rand(truth, size, max(2, instances // size), seed=seed).members
    return Bags.from_members(x, members, truth=truth, classes=range(CLASSES))


def measured(
    net: str, method: str, size: int, instances: int, together: int, config: TrainConfig
) -> dict[str, Any]:
    """Train for a few epochs, and return the line."""
    train, valid = (drawn(net, size, instances, seed) for seed in (0, 1))
    clocks = [Clock() for _ in range(together)]
    jobs = [
        Job(build_net(net, train, seed=i), train, valid, method=method, config=config, on_epoch=own)
        for i, own in enumerate(clocks)
    ]
    histories = fit_many(jobs, at_once=together, progress=False)
    phases: dict[str, float] = {}
    for phase in histories[0].records[-1]["seconds"]:
        found = [record["seconds"].get(phase, 0.0) for record in histories[0].records[WARM_UP:]]
        phases[phase] = round(float(np.median(found)), 4)
    each = float(np.median([clock.epoch() for clock in clocks])) / together
    key = dict(zip(KEY, (net, method, size, instances, together), strict=True))
    return {
        **key,
        "seed": 0,
        "seconds": round(each, 4),
        "phases": phases,
        **provenance(config.device),
    }


def recorded(path: Path) -> list[dict[str, Any]]:
    return read_results(path, (*KEY, "seconds"))


def render(lines: list[dict[str, Any]]) -> str:
    """Make the table: seconds of a run-epoch, alone and together, by net and method."""
    found = {tuple(line[name] for name in KEY): line["seconds"] for line in lines}
    rows = []
    for size, instances in dict.fromkeys((line["size"], line["instances"]) for line in lines):
        at_once = sorted({line["together"] for line in lines})
        heads = [f"`{net}`, {'alone' if n == 1 else n}" for net, n in product(SHAPES, at_once)]
        rows += [f"| bags of {size:,}, {instances:,} instances | " + " | ".join(heads) + " |"]
        rows += ["|---|" + "---|" * len(heads)]
        for method in METHODS:
            own = (
                found.get((net, method, size, instances, n)) for net, n in product(SHAPES, at_once)
            )
            rows.append(
                f"| `{method}` | " + " | ".join(f"{s:.3f}" if s else "–" for s in own) + " |"
            )
    hardware = {(line["hardware"], line["versions"]["torch"]) for line in lines}
    rows += ["", "; ".join(f"{name}, torch {torch}" for name, torch in sorted(hardware)) + "."]
    return "\n".join(rows)


def write(text: str) -> None:
    before, mark, rest = PAGE.read_text(encoding="utf-8").partition("<!-- seconds -->\n")
    _, end, after = rest.partition("<!-- end of seconds -->")
    if not (mark and end):
        sys.exit(f"{PAGE} lacks its marks, <!-- seconds --> and <!-- end of seconds -->.")
    PAGE.write_text(f"{before}{mark}{text}\n{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nets", nargs="+", choices=SHAPES, default=[*SHAPES])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--size", type=int, default=1024, help="of bags")
    parser.add_argument("--instances", type=int, help="102,400, or 2,048 on the CPU")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--together", type=int, nargs="+", help="1 and 4, or 1 on the CPU")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of lines")
    parser.add_argument("--render", action="store_true", help="write the table of the README")
    options = parser.parse_args()
    if options.render:
        write(render(recorded(options.results)))
        return
    logging.getLogger("apportion").setLevel(logging.ERROR)
    on_gpu = device_for(options.device).type == "cuda"
    instances = options.instances or (102_400 if on_gpu else 2_048)
    # As the preset's 400 epochs would be, and these few would not.
    how = {"epochs": options.epochs, "device": options.device, "step_mode": "compiled"}
    config = TrainConfig.preset("paper", **how)
    lines = recorded(options.results) if options.results.exists() else []
    done = {tuple(line[name] for name in KEY) for line in lines}
    at_once = options.together or ([1, 4] if on_gpu else [1])
    for net, n, method in product(options.nets, at_once, options.methods):
        if (net, method, options.size, instances, n) not in done:
            line = measured(net, method, options.size, instances, n, config)
            add_result(options.results, line)
            told = " · ".join(f"{phase} {value:.3f}" for phase, value in line["phases"].items())
            print(f"{net} {method} × {n}: {line['seconds']:.3f} s ({told})", flush=True)
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
