"""What an owner of signals gets without an option, by a linear layer, and by the paper's method.

    python benchmarks/signals.py --data FOLDER [--seeds 0 1 2] [--device cuda]
    python benchmarks/signals.py --render

Spoken Arabic Digits: half of the training utterances are drawn into bags by the paper's protocol,
and all test utterances are tested on. Each is 13 coefficients by its own number of frames. All
options are those of the plan. A training adds a line to benchmarks/signals.jsonl, and is not
repeated. `--render` makes the table of docs/signals.md from the lines alone.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import Bags, LLPClassifier
from apportion.study.datasets.spoken_arabic_digits import read_spoken_arabic_digits
from apportion.study.protocols import pools, rand
from apportion.study.results import add_result, provenance, read_results

KEY = ("method", "size", "n_bags", "seed")
RESULTS = Path(__file__).with_name("signals.jsonl")
PAGE = Path(__file__).parents[1] / "docs" / "signals.md"
BAGS = ((64, 51), (256, 12))  # their size, and how many
METHODS = {"mean-map": "`mean-map`", "default": "no option", "fpl": "`fpl`, random first labels"}


def with_lengths(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return utterances and how many frames of each are not padding."""
    sounds = np.abs(x).sum(axis=1) > 0
    return x, x.shape[2] - sounds[:, ::-1].argmax(axis=1)


def run(data: Any, method: str, size: int, n_bags: int, seed: int, device: str) -> dict[str, Any]:
    """Train once, and return the line."""
    x, truth, x_test, truth_test = data
    members = rand(
        truth, size, n_bags, rows=pools(len(x), (0.5, 0.5), seed=0)[0], seed=seed
    ).members
    bags = Bags.from_members(with_lengths(x), members, truth=truth, classes=range(10))
    asked = None if method == "default" else method
    began = time.perf_counter()
    classifier = LLPClassifier(asked, random_state=seed, device=device, verbose=False)
    classifier.fit(bags.without_truth())
    seconds = round(time.perf_counter() - began, 2)
    right = float((classifier.predict(with_lengths(x_test)) == truth_test).mean())
    key = dict(zip(KEY, (method, size, n_bags, seed), strict=True))
    plan = {name: str(choice) for name, choice in classifier.plan_.reasons().items()}
    about = {"epochs": len(classifier.history_.records), "seconds": seconds, "plan": plan}
    return {**key, "test_accuracy": right, **about, **provenance(device)}


def recorded(path: Path) -> list[dict[str, Any]]:
    return read_results(path, (*KEY, "test_accuracy", "seconds"))


def render(lines: list[dict[str, Any]]) -> str:
    """Make the table: test accuracies of all seeds, in per cent."""
    found: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for line in lines:
        found[line["method"], line["size"], line["n_bags"]].append(100 * line["test_accuracy"])
    rows = ["| bags | " + " | ".join(METHODS.values()) + " |", "|---|" + "---|" * len(METHODS)]
    for size, n_bags in BAGS:
        own = (", ".join(f"{a:.1f}" for a in found[name, size, n_bags]) for name in METHODS)
        rows.append(f"| {n_bags} of {size} | " + " | ".join(a or "–" for a in own) + " |")
    about = {f"Python {x['versions']['python']}, torch {x['versions']['torch']}" for x in lines}
    commits = ", ".join(sorted({f"`{line['commit'][:7]}`" for line in lines}))
    spent = {name: [x["seconds"] for x in lines if x["method"] == name] for name in METHODS}
    took = (f"{said} {min(s):,.1f} to {max(s):,.0f} s" for said, s in _said(spent))
    rows += [
        "",
        f"{'; '.join(sorted(about))}, commits {commits}. On a busy core: {', '.join(took)}.",
    ]
    return "\n".join(rows)


def _said(spent: dict[str, list[float]]) -> list[tuple[str, list[float]]]:
    return [(METHODS[name], seconds) for name, seconds in spent.items() if seconds]


def write(text: str) -> None:
    before, mark, rest = PAGE.read_text(encoding="utf-8").partition("<!-- signals -->\n")
    _, end, after = rest.partition("<!-- end of signals -->")
    if not (mark and end):
        sys.exit(f"{PAGE} lacks its marks, <!-- signals --> and <!-- end of signals -->.")
    PAGE.write_text(f"{before}{mark}{text}\n{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="the folder with the files of UCI or UEA")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of lines")
    parser.add_argument("--render", action="store_true", help="write the table of docs/signals.md")
    options = parser.parse_args()
    if options.render:
        write(render(recorded(options.results)))
        return
    logging.getLogger("apportion").setLevel(logging.ERROR)
    data = read_spoken_arabic_digits(options.data)
    lines = recorded(options.results) if options.results.exists() else []
    done = {tuple(line[name] for name in KEY) for line in lines}
    for seed, (size, n_bags), method in itertools.product(options.seeds, BAGS, options.methods):
        if (method, size, n_bags, seed) not in done:
            line = run(data, method, size, n_bags, seed, options.device)
            add_result(options.results, line)
            print(*(line[name] for name in (*KEY, "test_accuracy", "seconds")), flush=True)


if __name__ == "__main__":
    main()
