"""What is measured of a tree: each figure is a function that measures one turn of it.

It returns ``{what: [value, unit]}``, with a dictionary of further fields as a third entry if there
are any. `quick` asks for less of everything, to try the figure itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._trees import HERE, Tree

Values = dict[str, list[Any]]
CASES = [
    *((16, 10), (64, 10), (256, 10), (1024, 10), (4096, 10), (65_536, 10), (1_000_000, 10)),
    *((4096, 2), (4096, 100), (4096, 1000), (16, 1000)),
]


@dataclass(frozen=True)
class Figure:
    """How to measure something, how often, and of which trees."""

    measure: Callable[[Tree, bool], Values]
    turns: int
    trees: tuple[str, ...] = ("before", "now")


def first_assign(tree: Tree, quick: bool) -> Values:
    """From the start of a process to the first decision, with nothing compiled."""
    cases = [(1000, 2)] if quick else [(100_000, 10), (4096, 10), (1000, 2)]
    return _joined(tree.probe("first_assign", cold=True, n=n, classes=c) for n, c in cases)


def first_fit(tree: Tree, quick: bool) -> Values:
    """How long the first decision of `fit` takes, with nothing compiled, and the first epoch."""
    cases = [(50_000, 20, 10, 50), (1797, 64, 10, 30), (10_000, 20, 2, 50)][2 * quick :]
    names = ("n", "columns", "classes", "size")
    return _joined(
        tree.probe("first_fit", cold=True, **dict(zip(names, case, strict=True))) for case in cases
    )


def imports(tree: Tree, _: bool) -> Values:
    """The import of the estimator, and of what it stands on, each in a process of its own."""
    code, others = "from apportion import LLPClassifier", "import torch, sklearn, pandas"
    own, reference = (tree.probe("first_import", code=text)[text][0] for text in (code, others))
    ratio = [own / reference, "×"]
    return {f"`{code}`": [own, "s"], f"`{code}` ÷ `{others}`": ratio}


def command_line(tree: Tree, _: bool) -> Values:
    """Whole processes of the command line, on 200 rows and a run of them."""
    rows, wards, run = (tree.folder / name for name in ("rows.csv", "wards.csv", "run"))
    data = ("rows.csv", "--bag", "ward", "--proportions", "wards.csv")
    if not run.exists():
        rng = np.random.default_rng(0)
        lines = [",".join(f"{value:.3f}" for value in row) for row in rng.normal(size=(200, 4))]
        rows.write_text(
            "".join(
                f"{text}\n"
                for text in [
                    "ward,a,b,c,d",
                    *(f"w{i // 20},{line}" for i, line in enumerate(lines)),
                ]
            )
        )
        shares = rng.integers(1, 20, size=10)
        wards.write_text(
            "".join(
                f"{text}\n"
                for text in [
                    "ward,no,yes",
                    *(f"w{i},{k / 20},{1 - k / 20}" for i, k in enumerate(shares)),
                ]
            )
        )
        tree.run(
            "-m", "apportion", "train", *data, "--method", "fpl", "--epochs", "3", "--out", "run"
        )
    verbs = {
        "--help": ("--help",),
        "check": ("check", *data),
        "predict": ("predict", "run", "rows.csv", "--out", "predictions.csv", "--force"),
        "report": ("report", "run", "--force"),
    }
    return {
        f"`apportion {verb}`": [tree.run("-m", "apportion", *command)[0], "s"]
        for verb, command in verbs.items()
    }


def one_row(tree: Tree, quick: bool) -> Values:
    """`predict_proba` of one row, and of a million, in a process that has predicted before."""
    calls, many = (20, 20_000) if quick else (300, 1_000_000)
    return tree.probe("one_row", calls=calls, many=many, nets=["mlp", "linear", "auto"])


def small_fit(tree: Tree, quick: bool) -> Values:
    """A whole fit of 10,000 × 20, beside a bare loop of as many steps."""
    return tree.probe("small_fit", n=10_000, columns=20, epochs=3 if quick else 100)


def small_steps(tree: Tree, quick: bool) -> Values:
    """Training alone of 10,000 × 20, beside a bare loop of the same steps, epoch by epoch."""
    settings: dict[str, Any] = {"epochs": 8 if quick else 30, "batch_sizes": [32, 128, 512]}
    return tree.probe("small_steps", n=10_000, columns=20, **settings)


def grid(tree: Tree, quick: bool) -> Values:
    """32 fits by eight workers, over the time that two workers take."""
    fits, workers = (4, [3, 2]) if quick else (32, [8, 2])
    settings: dict[str, Any] = {"fits": fits, "epochs": 10, "workers": workers}
    return _joined(tree.probe("grid", **settings, by_joblib=way) for way in (False, True))


def threads(tree: Tree, quick: bool) -> Values:
    """Three epochs with the default number of threads, over those with the best number."""
    out = tree.folder / "threads.jsonl"
    tree.run(str(HERE / "threads.py"), "--out", str(out), *["--quick"] * quick)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return {
        f"default threads ÷ the best number, {line['size']}, {line['load']}": [line["to_best"], "×"]
        for line in lines
        if line["threads"] == "default" and line["to_best"] is not None
    }


def streaming(tree: Tree, quick: bool) -> Values:
    """The speed of an epoch from a mapped file of twice the given memory, of that in place."""
    values: Values = {}
    for n, columns in [(20_000, 20)] if quick else [(200_000, 20), (20_000, 3072)]:
        setting = {"n": n, "columns": columns, "size": 256, "classes": 10}
        setting |= {"epochs": 5, "batch_size": 256}
        took = []
        for way in (False, True):
            one = json.dumps({**setting, "streamed": way})
            _, printed = tree.run(str(HERE / "scaling.py"), "--one", one)
            took.append(sum(json.loads(printed)["seconds"].values()))
        values[f"epoch of {n:,} × {columns:,}, in place"] = [took[0], "s"]
        values[f"speed when streamed, {n:,} × {columns:,}"] = [100 * took[0] / took[1], "%"]
    return values


def solver(tree: Tree, quick: bool) -> Values:
    """`assign` alone, cold, on fresh Gaussian costs: ms per bag."""
    cases = [case for case in CASES if case[0] * case[1] < 10**5] if quick else CASES
    return tree.probe("solver", cases=cases, seconds_per_case=0.1 if quick else 1.0)


def peers(tree: Tree, _: bool) -> Values:
    """`assign` beside the fastest exact peer, by benchmarks/solver.py."""
    out = tree.folder / "peers.jsonl"
    tree.run(str(HERE / "solver.py"), "--quick", "--json", str(out))
    values: Values = {}
    for line in map(json.loads, out.read_text().splitlines()):
        what = re.sub(r"\d+", lambda number: f"{int(number[0]):,}", line["case"])
        more = {name: line[name] for name in ("peer", "peer_ms", "ratio")}
        values[what.replace(" x ", " × ")] = [line["ours_ms"], "ms", more]
    return values


def _joined(parts: Any) -> Values:
    return {what: value for part in parts for what, value in part.items()}


FIGURES = {
    "first-assign": Figure(first_assign, 2),
    "first-fit": Figure(first_fit, 2),
    "import": Figure(imports, 7),
    "command-line": Figure(command_line, 5),
    "one-row": Figure(one_row, 3),
    "small-fit": Figure(small_fit, 3),
    "small-steps": Figure(small_steps, 3),
    "grid": Figure(grid, 1),
    "threads": Figure(threads, 1),
    "streaming": Figure(streaming, 2),
    "solver": Figure(solver, 3),
    "peers": Figure(peers, 1, trees=("now",)),
}
