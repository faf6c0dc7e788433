"""Every method on tables: what `LLPClassifier` reaches, and what could have been reached.

    python benchmarks/tabular.py --data FOLDER [--jobs 2] [--seeds 0 1 2] [--time-limit SECONDS]
    python benchmarks/tabular.py --data FOLDER --only 'shuffle-512 .* linear$'
    python benchmarks/tabular.py --render

FOLDER holds UCI's files, plain or as .xz: adult.data and adult.test, bank-full.csv (with commas)
and magic04.data (with a header row). Without --data only the tables that scikit-learn brings are
run. `benchmarks/_cells.py` says what the cells are, `_contenders.py` what is compared and measured.

Each training adds a line to benchmarks/tabular.jsonl, and is not repeated. They are ordered by
seed, so that every method has seen the same cells when it is stopped, and each runs in one thread.
`--render` makes the tables of docs/tables.md from the lines alone. From a plain source tree:

    PYTHONPATH=src python benchmarks/tabular.py --data FOLDER --jobs 16 --commit HASH
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import time
import warnings
from multiprocessing import TimeoutError as TimeOut
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import sklearn

sys.path.insert(0, str(Path(__file__).parents[1]))  # a script only looks beside itself

from apportion import LLPClassifier
from apportion.study.results import add_result, provenance, read_results
from benchmarks._cells import CELLS, FILES, Cell, bagged
from benchmarks._contenders import BOUNDS, CONTENDERS, confidence, scores
from benchmarks._table_page import render

KEY = ("table", "regime", "noise", "seed", "method")
RESULTS = Path(__file__).with_name("tabular.jsonl")
PAGE = Path(__file__).parents[1] / "docs" / "tables.md"
Job = tuple[Cell, int, str, Path | None, str | None]


def run(job: Job) -> dict:
    """Train and measure one method on one cell; a failure is a line with its error."""
    cell, seed, method, folder, commit = job
    line = {**cell._asdict(), "seed": seed, "method": method}
    try:
        data = bagged(cell, seed, folder)
        began = time.perf_counter(), time.process_time()
        found = confidence(method, data, seed)
        wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    except Exception as error:  # noqa: BLE001
        return {**line, "error": f"{type(error).__name__}: {error}".partition("\n")[0]}
    about = provenance("cpu", commit)
    about["versions"]["scikit-learn"] = sklearn.__version__
    sizes = {"n_bags": len(data.proportions), "n_instances": len(data.bags)}
    costs = {"seconds": round(wall, 2), "cpu_seconds": round(cpu, 2)}
    return {**line, **sizes, **scores(found, data), **costs, **about}


def warm_up() -> None:
    """Prepare a process: what is compiled or imported at first use belongs to no training."""
    warnings.simplefilter("ignore")
    logging.getLogger("apportion").setLevel(logging.ERROR)
    x, halves = np.arange(8.0)[:, None], {0: [0.5, 0.5], 1: [0.5, 0.5]}
    classifier = LLPClassifier("fpl", epochs=1, device="cpu", verbose=False, random_state=0)
    classifier.fit(x, bags=np.arange(8) // 4, proportions=halves)


def recorded(path: Path = RESULTS) -> list[dict]:
    return read_results(path, KEY)


def missing(options: argparse.Namespace) -> list[Job]:
    """Return what is asked for and has no line yet."""
    done = {tuple(line[name] for name in KEY) for line in recorded(options.results)}
    return [
        (cell, seed, method, options.data, options.commit)
        for seed in options.seeds
        for cell in CELLS
        for method in (*BOUNDS, *CONTENDERS)
        if (*cell, seed, method) not in done
        and (options.data is not None or cell.table not in FILES)
        and all(re.search(pattern, f"{cell} {method}") for pattern in options.only)
    ]


def run_all(options: argparse.Namespace) -> int:
    """Run what is missing, until the time limit, and return how many trainings failed."""
    jobs, failed = missing(options), 0
    began, limit = time.monotonic(), options.time_limit
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):  # read by processes when they start
        os.environ[f"{name}_NUM_THREADS"] = "1"
    with get_context("spawn").Pool(options.jobs, warm_up) as pool:  # leaving it ends the processes
        lines = pool.imap_unordered(run, jobs)
        for n in range(1, len(jobs) + 1):
            try:
                left = None if limit is None else max(0.0, began + limit - time.monotonic())
                line = lines.next(timeout=left)
            except TimeOut:
                print(f"The time is up: {len(jobs) - n + 1} of {len(jobs)} trainings are left.")
                break
            if "error" in line:
                failed += 1
            else:
                add_result(options.results, line)
            told = (
                line.get(name, "") for name in (*KEY, "auc", "accuracy", "cpu_seconds", "error")
            )
            print(f"{n}/{len(jobs)}", *told, flush=True)
    return failed


def write(text: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, mark, rest = page.partition("<!-- tabular -->\n")
    _, end, after = rest.partition("<!-- end of tabular -->")
    if not (mark and end):
        sys.exit(f"{PAGE} lacks its marks, <!-- tabular --> and <!-- end of tabular -->.")
    PAGE.write_text(f"{before}{mark}{text}\n{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="the folder of UCI's files")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--only", nargs="+", default=[], help="patterns of 'TABLE REGIME NOISE METHOD', all to meet"
    )
    parser.add_argument("--time-limit", type=float, metavar="SECONDS")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of lines")
    parser.add_argument("--commit", help="the version of the code, if git cannot tell")
    parser.add_argument("--list", action="store_true", help="show what would be run")
    parser.add_argument("--render", action="store_true", help="write the tables of docs/tables.md")
    options = parser.parse_args()
    if options.render:
        write(render(recorded(options.results)))
    elif options.list:
        for cell, seed, method, *_ in missing(options):
            print(cell, method, seed)
    else:
        sys.exit(1 if run_all(options) else 0)


if __name__ == "__main__":
    main()
