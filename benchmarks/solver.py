"""How fast `assign` is, beside the exact solvers of scipy, POT and OR-tools.

    make bench                                     # everything, about 15 minutes on two cores
    .venv/bin/python benchmarks/solver.py --quick  # four sizes only, about a minute

Ours and the peers solve the same fresh instances in one process, in turns call by call: a noisy
machine is noisy for all of them, and each finds the caches as another has left them. What counts is
the ratio. A peer's time includes what it takes to convert its input. Bags of up to 256 instances
are solved in one call over 1,000 of them (a single call of that size measures Python), the peers in
a loop. All objectives are compared.

Writes what it prints, Markdown, to build/solver.md (or --out), and with --json one JSON object per
row of the comparison with the peers.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import ot
from ortools.graph.python import min_cost_flow
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import csr_array, kron, vstack

from apportion import assign
from apportion.labels.assign import compile_ahead

Instance = tuple[np.ndarray, np.ndarray]  # costs and counts
SECONDS_A_PEER = 3.0  # in each case
SECONDS_A_CASE = 15.0  # in all, after a first few turns
CORES = len(os.sched_getaffinity(0))


# -- Instances ------------------------------------------------------------------------------------


def gaussian(rng: np.random.Generator, n: int, n_classes: int) -> Instance:
    counts = rng.multinomial(n, rng.dirichlet(np.ones(n_classes)))
    return rng.standard_normal((n, n_classes)), counts


def epochs(rng: np.random.Generator, n: int, n_classes: int, eta: float = 5) -> Iterator[Instance]:
    """The costs of one bag, epoch after epoch, as the paper's method meets them.

    A network's confidences drift towards the truth while the labels that were decided, through
    Eq. 2, add up to the costs of the next decision.
    """
    truth = rng.choice(n_classes, size=n, p=rng.dirichlet(np.ones(n_classes)))
    counts, every = np.bincount(truth, minlength=n_classes), np.arange(n)
    labels, prices = rng.permutation(truth), None
    total, taste = np.zeros((n, n_classes)), rng.standard_normal((n, n_classes))
    for epoch in range(1, 401):
        logits = taste + rng.standard_normal((n, n_classes)) / 2
        logits[every, truth] += 3 * min(1, epoch / 50)
        confidence = np.exp(logits - logits.max(axis=1, keepdims=True))
        confidence /= confidence.sum(axis=1, keepdims=True)
        unlikelihood = confidence.max(axis=1, keepdims=True) - confidence
        unlikelihood[every, labels] = 1 - confidence[every, labels]
        total += unlikelihood
        cost = total + eta * rng.standard_normal((n, n_classes))
        yield cost, counts
        decided = assign(cost, counts, prices=prices)
        labels, prices = decided.labels, decided.prices


def realistic(rng: np.random.Generator, n: int, n_classes: int) -> Instance:
    stream = epochs(rng, n, n_classes)
    for _ in range(1 if n * n_classes > 10**6 else 9):
        next(stream)
    return next(stream)


# -- The exact peers: each takes costs and counts, and gives the objective ------------------------


def scipy_lsa(cost: np.ndarray, counts: np.ndarray) -> float:
    square = cost[:, np.repeat(np.arange(len(counts)), counts)]
    return float(square[linear_sum_assignment(square)].sum())


def scipy_highs(cost: np.ndarray, counts: np.ndarray) -> float:
    n, n_classes = cost.shape
    rows = kron(csr_array(np.eye(n)), np.ones((1, n_classes)))
    columns = kron(np.ones((1, n)), csr_array(np.eye(n_classes)))
    right = np.concatenate([np.ones(n), counts])
    both: Any = vstack([rows, columns])
    solved: Any = linprog(cost.ravel(), A_eq=both, b_eq=right, method="highs")
    return float(solved.fun)


def pot_emd(cost: np.ndarray, counts: np.ndarray) -> float:
    low = cost.min()  # emd goes wrong with negative costs
    plan = ot.emd(np.ones(len(cost)), counts.astype(float), cost - low, numItermax=10**9)
    return float((plan * cost).sum())


def ortools_flow(cost: np.ndarray, counts: np.ndarray) -> float:
    n, n_classes = cost.shape
    low = cost.min()
    unit = (cost.max() - low) / 2**40  # it takes whole numbers only
    flow = min_cost_flow.SimpleMinCostFlow()
    flow.add_arcs_with_capacity_and_unit_cost(
        np.repeat(np.arange(n), n_classes),
        np.tile(np.arange(n, n + n_classes), n),
        np.ones(n * n_classes, np.int64),
        ((cost - low) / unit).astype(np.int64).ravel(),
    )
    flow.set_nodes_supplies(np.arange(n + n_classes), np.concatenate([np.ones(n, int), -counts]))
    assert flow.solve() == flow.OPTIMAL
    return float(flow.optimal_cost() * unit + low * n)


# Each peer with the most rows, and the most costs, that it can solve within a minute or so.
PEERS = {
    "scipy linear_sum_assignment": (scipy_lsa, 4096, 10**8),
    "scipy HiGHS": (scipy_highs, 10**8, 30_000),
    "POT emd": (pot_emd, 70_000, 5_000_000),
    "OR-tools min-cost flow": (ortools_flow, 10**8, 10**8),
}


# -- Measuring ------------------------------------------------------------------------------------


def clock(call: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = call(*arguments, **options)
    return time.perf_counter() - began, answer


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g}"


def compare(make: Callable[..., Instance], n: int, n_classes: int) -> dict[str, Any]:
    """One row of the table: ours, all peers that can, and the ratio to the fastest of them."""
    rng = np.random.default_rng([n, n_classes])
    peers = {
        name: solve
        for name, (solve, rows, costs) in PEERS.items()
        if n <= rows and n * n_classes <= costs
    }
    times: dict[str, list[float]] = {name: [] for name in peers}
    ours: list[float] = []
    batched = n <= 256
    turn = 1000 if batched else 1
    bags = [make(rng, n, n_classes) for _ in range(turn)]
    began = time.perf_counter()
    while len(ours) < 200 and (len(ours) < 5 or time.perf_counter() - began < SECONDS_A_CASE):
        if batched:
            offsets = np.arange(turn + 1) * n
            costs, counts = (np.concatenate(part) for part in zip(*bags, strict=True))
            seconds, answer = clock(assign, costs, counts.reshape(turn, -1), offsets)
            objectives = answer.objective[:10]
        for place, bag in enumerate(bags[:10]):
            if not batched:
                seconds, answer = clock(assign, *bag)
                objectives = [answer.objective]
            for name, spent in times.items():
                if sum(spent) < SECONDS_A_PEER:
                    theirs, reached = clock(peers[name], *bag)
                    spent.append(theirs)
                    objective = objectives[place]
                    assert abs(reached - objective) <= 1e-7 * (n + abs(objective)), name
        ours.append(seconds / turn)
        bags = bags[10:] + bags[:10] if batched else [make(rng, n, n_classes)]
    medians = {name: statistics.median(spent) for name, spent in times.items()}
    fastest = min(medians, key=lambda name: medians[name])
    mine = statistics.median(ours)
    return {
        "case": f"{n} x {n_classes}",
        "costs": make.__name__,
        "ours_ms": 1000 * mine,
        "ours_99_ms": None if batched else 1000 * float(np.quantile(ours, 0.99)),
        "peer": fastest,
        "peer_ms": 1000 * medians[fastest],
        "ratio": medians[fastest] / mine,
        "others": {name: time / mine for name, time in medians.items() if name != fastest},
    }


def in_words(row: dict[str, Any]) -> list[str]:
    n, n_classes = map(int, row["case"].split(" x "))
    worst = row["ours_99_ms"]
    return [
        f"{n:,} × {n_classes:,}",
        row["costs"],
        f"{row['ours_ms']:.3g}",
        "" if worst is None else f"{worst:.3g}",
        f"{row['peer']} {row['peer_ms']:.3g}",
        f"**{row['ratio']:.3g}×**",
        " · ".join(f"{name} {ratio:,.3g}×" for name, ratio in row["others"].items()),
    ]


def warm_and_cold(n: int, n_classes: int, bags: int, last: int) -> list[str]:
    """From the last epoch's prices, and from nothing, on the same costs."""
    warm, cold = [], []
    for seed in range(bags):
        prices = None
        for epoch, (cost, counts) in enumerate(epochs(np.random.default_rng(seed), n, n_classes)):
            if epoch >= last:
                break
            seconds, answer = clock(assign, cost, counts, prices=prices)
            if epoch > last // 2:
                warm.append(seconds)
                cold.append(clock(assign, cost, counts)[0])
            prices = answer.prices
    ratio = statistics.median(cold) / statistics.median(warm)
    medians = milliseconds(statistics.median(cold)), milliseconds(statistics.median(warm))
    return [f"{n:,} × {n_classes:,}", *medians, f"**{ratio:.2f}×**"]


def whole_epoch(size: int, n: int = 102_400, n_classes: int = 10) -> list[str]:
    """All bags of an epoch, warm, beside numpy's argmin over the same matrix."""
    streams = [epochs(np.random.default_rng(seed), size, n_classes) for seed in range(n // size)]
    offsets, prices = np.arange(n // size + 1) * size, None
    ours, theirs = [], []
    for epoch in range(16):
        parts = [next(stream) for stream in streams]
        cost, counts = np.concatenate([c for c, _ in parts]), np.array([k for _, k in parts])
        for _ in range(3):
            seconds, answer = clock(assign, cost, counts, offsets, prices=prices)
            argmin = clock(cost.argmin, axis=1)[0]
            if epoch > 5:
                ours.append(seconds)
                theirs.append(argmin)
        prices = answer.prices
    mine, numpy = statistics.median(ours), statistics.median(theirs)
    return [f"{size:,}", milliseconds(mine), milliseconds(numpy), f"**{mine / numpy:.2f}×**"]


PEAK = """
import re, sys
from pathlib import Path
import numpy as np
from apportion.labels.assign import assign, compile_ahead
def instance(n):
    rng = np.random.default_rng(0)
    cost = rng.standard_normal((n, 10), dtype=sys.argv[1])
    return cost, rng.multinomial(n, rng.dirichlet(np.ones(10)))
def memory(what):
    return 1024 * int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
compile_ahead(wait=True)
cost, counts = instance(1_000_000)
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
assign(cost, counts)
print((memory("VmHWM") - before) / cost.nbytes)
"""


def peak_memory(dtype: str) -> list[str]:
    command = [sys.executable, "-c", PEAK, dtype]
    used = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [dtype, f"**{float(used):.2f}×**"]


def call_overhead(n: int = 64, n_classes: int = 10) -> list[str]:
    """A single call beside its kernel."""
    kernel = sys.modules["apportion.labels.kernel"]
    cost, counts = gaussian(np.random.default_rng(0), n, n_classes)
    prices, labels = np.zeros((1, n_classes)), np.empty(n, np.int64)
    where, values = np.empty((1, 3), np.int64), np.empty((1, 3))
    rest = np.array([0, n]), prices, False, labels, 0, 1, where, values
    both = [
        (clock(assign, cost, counts)[0], clock(kernel.solve_bags, cost, counts[None], *rest)[0])
        for _ in range(3000)
    ]
    whole, inside = (1e6 * statistics.median(column) for column in zip(*both, strict=True))
    return [f"{n} × {n_classes}", f"{whole:.1f}", f"{inside:.1f}", f"**{whole - inside:.1f}**"]


# -- Telling --------------------------------------------------------------------------------------


def hardware() -> str:
    names = ("numpy", "numba", "scipy", "POT", "ortools")
    model = platform.processor() or platform.machine()
    about = Path("/proc/cpuinfo")
    if about.exists():
        lines = [line for line in about.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    return f"{model}, {CORES} cores; Python {platform.python_version()}, {versions}."


class Page:
    """Markdown, printed as it grows and written to a file."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.file = file.open("w")

    def line(self, *text: str) -> None:
        for out in (sys.stdout, self.file):
            print(*text, sep="\n", file=out, flush=True)

    def table(self, title: str, head: str, rows: Iterator[list[str]]) -> None:
        self.line("", f"## {title}", "", head, "|---" * (head.count("|") - 1) + "|")
        for row in rows:
            self.line(f"| {' | '.join(row)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="four sizes only")
    parser.add_argument("--out", type=Path, default=Path("build/solver.md"))
    parser.add_argument("--json", type=Path, help="also write the comparison as JSON lines")
    options = parser.parse_args()
    compile_ahead(wait=True)

    sizes = [(n, c) for n in (16, 64, 256, 1024, 4096) for c in (2, 10, 100, 1000)]
    large = [(65_536, 10), (1_000_000, 10)]
    makers = [gaussian, realistic]
    if options.quick:
        sizes, large, makers = [(4096, 2), (1024, 10), (4096, 1000), (16, 1000)], [], [gaussian]
    page = Page(options.out)
    page.line("# `assign` and its exact peers", "", hardware())
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text("")

    def compared() -> Iterator[list[str]]:
        for make in makers:
            for n, c in [*sizes, *large]:
                if make is gaussian or c == 10:
                    row = compare(make, n, c)
                    if options.json:
                        with options.json.open("a") as file:
                            print(json.dumps(row), file=file)
                    yield in_words(row)

    page.table(
        "Cold, against the peers (medians, ms per bag)",
        "| bag | costs | ours | 99 % | fastest exact peer | ratio | the others |",
        compared(),
    )
    if options.quick:
        return
    page.table(
        "Warm, from the prices of the epoch before (medians, ms)",
        "| bag | cold | warm | warm is faster by |",
        (warm_and_cold(n, 10, 6, 30) for n in (256, 1024, 4096)),
    )
    page.table(
        "A whole epoch: 102,400 × 10, warm (medians, ms)",
        "| bag size | ours | numpy argmin(axis=1) | ratio |",
        (whole_epoch(size) for size in (64, 256, 1024, 4096)),
    )
    page.table(
        "Peak memory at 1,000,000 × 10, beyond the costs",
        "| costs | of their size |",
        (peak_memory(dtype) for dtype in ("float64", "float32")),
    )
    page.table(
        "What a single call adds to the kernel (medians, µs)",
        "| bag | call | kernel | difference |",
        iter([call_overhead()]),
    )


if __name__ == "__main__":
    main()
