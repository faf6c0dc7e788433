"""The figures of docs/performance.md and README.md: two source trees, measured in turns.

    make bench [BEFORE=REF]                                      # everything, and the pages
    python benchmarks/performance.py --before REF --only import one-row     # some figures again
    python benchmarks/performance.py --before REF --quick [--only …]        # tries, writes no page
    python benchmarks/performance.py --render                               # the pages alone

REF is a commit, branch or tag, or the root of another source tree; it is compared with the working
tree. `benchmarks/_figures.py` says what is measured. Every turn of a figure runs in processes of
its own, one tree after the other, so that a noisy machine is noisy for both; a line holds the
median of the turns, and the least and the largest. Leave the machine alone meanwhile.

After each figure its lines replace those that benchmarks/performance.jsonl had of it. A figure
that fails leaves a line with its error, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # a script only looks beside itself

from benchmarks._figures import FIGURES, Figure
from benchmarks._performance_page import render, render_short
from benchmarks._trees import ROOT, FailedError, Tree, earlier_tree, working_tree

LINES = Path(__file__).with_name("performance.jsonl")
PAGES = {ROOT / "docs" / "performance.md": render, ROOT / "README.md": render_short}
LIBRARIES = ("torch", "numpy", "numba", "scikit-learn", "pandas")
MARKS = ("<!-- performance -->\n", "<!-- end of performance -->")


def measure(name: str, figure: Figure, trees: list[Tree], quick: bool) -> list[dict[str, Any]]:
    """Measure a figure in turns; return one line per value and tree, and one per failure."""
    turns: dict[str, list[dict]] = {tree.name: [] for tree in trees}
    errors: dict[str, str] = {}
    for _ in range(1 if quick else figure.turns):
        for tree in trees:
            if tree.name in figure.trees and tree.name not in errors:
                try:
                    turns[tree.name].append(figure.measure(tree, quick))
                except (FailedError, OSError, ValueError, LookupError) as error:
                    errors[tree.name] = f"{error}" or type(error).__name__
    lines = []
    for tree in trees:
        own = {"figure": name, "tree": tree.name, "commit": tree.commit, **about()}
        lines += [{**own, **line} for line in summary(turns[tree.name])]
        if tree.name in errors:
            lines.append({**own, "what": name, "error": errors[tree.name]})
    return lines


def summary(turns: list[dict[str, list[Any]]]) -> list[dict[str, Any]]:
    """Return the median and the range of every value over the turns."""
    lines = []
    for what in turns[0] if turns else ():
        values = [turn[what][0] for turn in turns]
        _, unit, *more = turns[0][what]
        low, high, median = min(values), max(values), statistics.median(values)
        line = {"what": what, "value": median, "unit": unit, "spread": [low, high]}
        lines.append({**line, "n": len(values), **(more[0] if more else {})})
    return lines


def about() -> dict[str, Any]:
    """Return what a line says of its making."""
    versions = {"python": platform.python_version()}
    versions |= {library: version(library) for library in LIBRARIES}
    return {"date": date.today().isoformat(), "hardware": hardware(), "versions": versions}


def hardware() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    model, known = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if known.exists():
        lines = [line for line in known.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    return f"{cores} cores of an {model}"


def recorded(path: Path = LINES) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def record(path: Path, name: str, lines: list[dict[str, Any]]) -> None:
    """Replace the lines of a figure; figures stay in the order in which they are declared."""
    kept = [line for line in recorded(path) if line["figure"] != name] + lines
    order = list(FIGURES)
    kept.sort(key=lambda line: order.index(line["figure"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    beside.replace(path)


def write_pages() -> None:
    """Write what the lines give between the marks of each page."""
    for path, make in PAGES.items():
        before, mark, rest = path.read_text(encoding="utf-8").partition(MARKS[0])
        _, end, after = rest.partition(MARKS[1])
        if not (mark and end):
            sys.exit(f"{path} lacks its marks, {' and '.join(MARKS)}.")
        path.write_text(f"{before}{mark}{make(recorded())}\n{end}{after}", encoding="utf-8")


def run(options: argparse.Namespace) -> bool:
    """Measure what is asked for, and return whether all of it succeeded."""
    path = ROOT / "build" / "performance.jsonl" if options.quick else LINES
    succeeded, began = True, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="apportion-bench-") as folder:
        trees = [earlier_tree(options.before, Path(folder)), working_tree(Path(folder))]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda tree: tree.probe("warm"), trees))
        for name in options.only or FIGURES:
            lines = measure(name, FIGURES[name], trees, options.quick)
            record(path, name, lines)
            if not options.quick:
                write_pages()
            for line in lines:
                told = f"{line['value']:.4g} {line['unit']}" if "value" in line else line["error"]
                print(f"{line['tree']:>6}  {line['what']}: {told}", flush=True)
            succeeded &= all("error" not in line for line in lines)
            print(f"        [{name}: {time.monotonic() - began:.0f} s since the start]", flush=True)
    return succeeded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", metavar="REF", help="a commit, or the root of a source tree")
    parser.add_argument("--only", nargs="+", choices=FIGURES, help="figures, by their names")
    parser.add_argument("--quick", action="store_true", help="one small turn each, no page")
    parser.add_argument("--render", action="store_true", help="write the pages from the lines")
    options = parser.parse_args()
    if options.render:
        write_pages()
    elif options.before is None:
        parser.error("--before is needed: what to compare the working tree with")
    else:
        sys.exit(not run(options))


if __name__ == "__main__":
    main()
