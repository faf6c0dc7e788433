"""First labels from features of a network against random ones, on digits.

    python benchmarks/first_labels.py [--seeds 0 1 2 3 4]
    python benchmarks/first_labels.py --render

Of scikit-learn's 1,797 digits 30 % are kept for the test; the others are drawn into bags by the
paper's protocol, as images (1, 8, 8). The nets have random weights when training begins. A training
takes 50 epochs of `fpl` in one thread; it adds a line to benchmarks/first_labels.jsonl, and is not
repeated. `--render` makes the table of docs/images.md from the lines alone.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import nn

from apportion import FPL, Bags, TrainConfig, build_net, fit
from apportion.nets.normalized import Normalized
from apportion.study.datasets.benchmarks import digits
from apportion.study.protocols import rand
from apportion.study.results import add_result, provenance, read_results

KEY = ("net", "size", "n_bags", "first", "first_weight", "epochs", "seed")
RESULTS = Path(__file__).with_name("first_labels.jsonl")
PAGE = Path(__file__).parents[1] / "docs" / "images.md"
BAGS = ((64, 20), (256, 12))  # their size, and how many
FIRST = {"random": None, "mean-map, weight 0": 0.0, "mean-map": None}
EPOCHS = 50


def convolutions(x: np.ndarray) -> nn.Module:
    """Build a small network of images (1, 8, 8)."""
    layers = [
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, 10)),
    ]
    return Normalized(nn.Sequential(*layers), x.mean(), x.std())


def run(net: str, size: int, n_bags: int, first: str, seed: int, epochs: int = EPOCHS) -> dict:
    """Train once, and return the line."""
    data = digits(test=0.3, seed=seed)
    x, x_test = (images.reshape(-1, 1, 8, 8) for images in (data.x, data.x_test))
    members = rand(data.truth, size, n_bags, seed=seed).members
    train = Bags.from_members(x, members, truth=data.truth, classes=range(10))
    one = np.zeros(len(x_test), int)
    test = Bags.from_rows(x_test, one, truth=data.truth_test, classes=range(10))
    torch.manual_seed(seed)
    made = build_net("mlp", train, seed=seed) if net == "mlp" else convolutions(x)
    method = FPL(first=first.partition(",")[0], first_weight=FIRST[first])
    config = TrainConfig(epochs=epochs, batch_size=64, seed=seed, device="cpu", threads=1)
    began = time.perf_counter()
    history = fit(made, train, test=test, method=method, config=config, progress=False)
    key = dict(zip(KEY, (net, size, n_bags, first, FIRST[first], epochs, seed), strict=True))
    found = {name: history[name][-1] for name in ("test_accuracy", "label_accuracy")}
    return {**key, **found, "seconds": round(time.perf_counter() - began, 2), **provenance("cpu")}


def recorded(path: Path = RESULTS) -> list[dict]:
    return read_results(path, (*KEY, "test_accuracy", "label_accuracy"))


def render(lines: list[dict]) -> str:
    """Make the table: mean and standard deviation of the test accuracy, in per cent."""
    found: dict[tuple[str, int, int, str], list[float]] = defaultdict(list)
    for line in lines:
        cell = line["net"], line["size"], line["n_bags"], line["first"]
        found[cell].append(100 * line["test_accuracy"])
    rows = ["| net | bags | " + " | ".join(FIRST) + " |", "|---|---|" + "---|" * len(FIRST)]
    for net, (size, n_bags) in itertools.product(("mlp", "convolutions"), BAGS):
        own = [found[net, size, n_bags, first] for first in FIRST]
        shown = " | ".join(f"{np.mean(a):.1f} ± {np.std(a, ddof=1):.1f}" for a in own)
        rows.append(f"| {net} | {n_bags} of {size} | {shown} |")
    return "\n".join(rows)


def write(text: str) -> None:
    before, mark, rest = PAGE.read_text(encoding="utf-8").partition("<!-- first labels -->\n")
    _, end, after = rest.partition("<!-- end of first labels -->")
    if not (mark and end):
        sys.exit(f"{PAGE} lacks its marks, <!-- first labels --> and <!-- end of first labels -->.")
    PAGE.write_text(f"{before}{mark}{text}\n{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of lines")
    parser.add_argument("--render", action="store_true", help="write the table of docs/images.md")
    options = parser.parse_args()
    if options.render:
        write(render(recorded(options.results)))
        return
    logging.getLogger("apportion").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    lines = recorded(options.results) if options.results.exists() else []
    done = {tuple(line[name] for name in KEY) for line in lines}
    cells = itertools.product(options.seeds, ("mlp", "convolutions"), BAGS, FIRST)
    for seed, net, (size, n_bags), first in cells:
        if (net, size, n_bags, first, FIRST[first], EPOCHS, seed) in done:
            continue
        line = run(net, size, n_bags, first, seed)
        add_result(options.results, line)
        print(*(line[name] for name in (*KEY, "test_accuracy", "seconds")), flush=True)


if __name__ == "__main__":
    main()
