"""What `benchmarks/performance.py` measures inside one process, by the code of one source tree.

    PYTHONPATH=TREE/src python benchmarks/_probes.py NAME '{"n": 1000, …}'

Prints the measured values as JSON: ``{name: [value, unit]}``. Only what users import is used, so
that the same probe measures any two trees. Torch and apportion are imported where a probe needs
them: some probes measure just that.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

Values = dict[str, list[Any]]


def since_start() -> float:
    """Return the seconds since the runner started this process."""
    return time.time() - float(os.environ["BEGAN"])


def seconds(do: Callable[..., Any], *arguments: Any) -> float:
    began = time.perf_counter()
    do(*arguments)
    return time.perf_counter() - began


def table(n: int, columns: int, classes: int, size: int) -> tuple[Any, Any, Any]:
    """Return rows of two or more overlapping classes, the bag of each, and its true class."""
    rng = np.random.default_rng(0)
    bag = np.arange(n) // size
    shares = rng.dirichlet(np.ones(classes), size=bag[-1] + 1)
    truth = (rng.random(n)[:, None] > shares[bag].cumsum(axis=1)[:, :-1]).sum(axis=1)
    centres = rng.normal(size=(classes, columns))
    return (rng.normal(size=(n, columns)) + centres[truth]).astype(np.float32), bag, truth


def bags_of(n: int, columns: int, classes: int, size: int) -> Any:
    from apportion import Bags

    x, bag, truth = table(n, columns, classes, size)
    return Bags.from_rows(x, bag, truth=truth)


def warm(**_: Any) -> Values:
    """Compile, and write the byte code: what later probes find as users find it the second time."""
    from apportion import LLPClassifier, assign

    late = time.monotonic() + 200
    for dtype in (np.float64, np.float32):
        for classes in (10, 2):
            cost = np.random.default_rng(0).random((65_536, classes)).astype(dtype)
            counts = np.bincount(np.arange(len(cost)) % classes)
            # Compiled code needs a few ms. It may be made beside this process, so ask until it is.
            while seconds(assign, cost, counts) > 0.2 and time.monotonic() < late:
                time.sleep(0.2)
    x, bag, truth = table(200, 4, 2, 20)
    LLPClassifier("fpl", epochs=2, verbose=False).fit(x, truth, bags=bag)
    return {}


# -- The first minute -----------------------------------------------------------------------------


def first_assign(n: int, classes: int) -> Values:
    """The first decision of a process whose cache of compiled code is empty."""
    from apportion import assign

    rng = np.random.default_rng(0)
    decided = assign(rng.random((n, classes)), np.bincount(np.arange(n) % classes))
    took = since_start()
    assert len(decided.labels) == n
    return {f"first `assign`, {n:,} × {classes}": [took, "s"]}


def first_fit(n: int, columns: int, classes: int, size: int) -> Values:
    """The first epoch of a process whose cache of compiled code is empty."""
    from apportion import TrainConfig, build_net, fit

    bags = bags_of(n, columns, classes, size)
    ends: list[float] = []
    history = fit(
        build_net("mlp", bags),
        bags,
        config=TrainConfig(epochs=2),
        on_epoch=lambda *_: ends.append(since_start()),
        progress=False,
    )
    what = f"first `fit`, {n:,} × {columns}, {classes} classes"
    return {
        f"{what}: wait for the first decision": [history["seconds"][0]["labels"], "s"],
        f"{what}: process start to end of epoch 1": [ends[0], "s"],
    }


def first_import(code: str) -> Values:
    exec(code, {})
    return {code: [since_start(), "s"]}


# -- Prediction -----------------------------------------------------------------------------------


def one_row(calls: int, many: int, nets: list[str]) -> Values:
    """The milliseconds of `predict_proba` for one row, and the seconds for many."""
    import pandas as pd

    from apportion import LLPClassifier

    x, bag, truth = table(2000, 20, 2, 50)
    frame = pd.DataFrame(x, columns=[f"c{j}" for j in range(20)])
    values: Values = {}
    rows = np.random.default_rng(1).normal(size=(many, 20))
    options: dict[str, dict] = {"mlp": {"method": "fpl", "epochs": 2}}
    options |= {"linear": {"method": "linear"}, "auto": {"method": "auto"}}
    for net in nets:
        for kind, given in (("array", x), ("frame", frame)):
            made = LLPClassifier(**options[net], random_state=0, verbose=False)
            made.fit(given, truth, bags=bag)
            for door, predictor in (("Model", made.model_), ("LLPClassifier", made)):
                row = given[:1]
                for _ in range(20):
                    predictor.predict_proba(row)
                each = [
                    seconds(lambda p=predictor, r=row: p.predict_proba(r)) for _ in range(calls)
                ]
                what = f"one row, {net}: `{door}.predict_proba`, {kind}"
                values[what] = [1000 * statistics.median(each), "ms"]
                if net == "mlp" and kind == "array":
                    predictor.predict_proba(rows[:20_000])
                    took = seconds(predictor.predict_proba, rows)
                    values[f"{many:,} rows × 20, mlp: `{door}.predict_proba`, array"] = [took, "s"]
    return values


# -- Small fits -----------------------------------------------------------------------------------


class BareLoop:
    """The same steps in plain PyTorch: the same net over the same rows, with fixed labels."""

    def __init__(self, bags: Any, batch_size: int) -> None:
        import torch

        from apportion import build_net

        self.torch, self.batch_size = torch, batch_size
        self.x = torch.from_numpy(bags.x[bags.index])
        self.labels = torch.from_numpy(np.ascontiguousarray(bags.truth))
        self.net = build_net("mlp", bags)
        self.optimizer = torch.optim.AdamW(
            self.net.parameters(), lr=1e-3, weight_decay=0, fused=True
        )

    def train(self, epochs: int) -> None:
        cross_entropy = self.torch.nn.functional.cross_entropy
        for _ in range(epochs):
            for rows in self.torch.randperm(len(self.x)).split(self.batch_size):
                loss = cross_entropy(self.net(self.x[rows]), self.labels[rows])
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()

    def seconds(self, epochs: int, threads: int) -> float:
        before = self.torch.get_num_threads()
        self.torch.set_num_threads(threads)
        took = seconds(self.train, epochs)
        self.torch.set_num_threads(before)
        return took


def small_fit(n: int, columns: int, epochs: int) -> Values:
    """A whole `fit` with default options, and a bare loop of as many steps, after a warm-up."""
    from apportion import TrainConfig, build_net, fit

    bags, config = bags_of(n, columns, 2, 50), TrainConfig(epochs=epochs)

    def whole(config: TrainConfig) -> None:
        fit(build_net("mlp", bags), bags, method="fpl", config=config, progress=False)

    bare = BareLoop(bags, config.batch_size)
    whole(TrainConfig(epochs=2))
    bare.seconds(2, 2)
    own = seconds(whole, config)
    loop = min(bare.seconds(epochs, threads) for threads in (1, 2))
    what = f"`fit`, {n:,} × {columns}, {epochs} epochs"
    return {
        what: [own, "s"],
        f"{what}: ÷ a bare loop's time": [own / loop, "×"],
    }


def small_steps(n: int, columns: int, epochs: int, batch_sizes: list[int]) -> Values:
    """The training phase of an epoch beside a bare loop's epoch, in turns."""
    from apportion import TrainConfig, build_net, fit

    bags, values = bags_of(n, columns, 2, 50), Values()
    for size in batch_sizes:
        bare, loops = BareLoop(bags, size), list[list[float]]()

        def in_turn(_record: Any, _net: Any, bare: Any = bare, loops: Any = loops) -> None:
            loops.append([bare.seconds(1, threads) for threads in (1, 2)])

        history = fit(
            build_net("mlp", bags),
            bags,
            method="fpl",
            config=TrainConfig(epochs=epochs, batch_size=size),
            on_epoch=in_turn,
            progress=False,
        )
        own = statistics.median(phases["train"] for phases in history["seconds"][3:])
        loop = min(statistics.median(column) for column in zip(*loops[3:], strict=True))
        what = f"training of an epoch ÷ a bare loop's, {size} rows per step"
        values[what] = [own / loop, "×"]
    return values


# -- Many fits at once ----------------------------------------------------------------------------


def one_of_a_grid(given: tuple[Any, Any, Any], epochs: int, seed: int) -> None:
    from apportion import LLPClassifier

    warnings.simplefilter("ignore")
    logging.getLogger("apportion").setLevel(logging.ERROR)
    x, bag, truth = given
    LLPClassifier("fpl", epochs=epochs, random_state=seed, verbose=False).fit(x, truth, bags=bag)


def worker_is_ready(given: tuple[Any, Any, Any], folder: str, n: int) -> None:
    """Fit once, and wait until n workers have: so each of them does, and all are there."""
    one_of_a_grid(given, 2, 0)
    Path(folder, str(os.getpid())).touch()
    until = time.monotonic() + 120
    while len(list(Path(folder).iterdir())) < n and time.monotonic() < until:
        time.sleep(0.01)


def grid(fits: int, epochs: int, workers: list[int], by_joblib: bool) -> Values:
    """Fits by many workers, which are already there, over the time that two take."""
    from joblib import Parallel, delayed

    given, took = table(1800, 64, 10, 30), []
    for n in workers:
        with TemporaryDirectory() as folder:
            if by_joblib:
                with Parallel(n, batch_size=1) as parallel:
                    parallel(delayed(worker_is_ready)(given, folder, n) for _ in range(n))
                    call = [delayed(one_of_a_grid)(given, epochs, seed) for seed in range(fits)]
                    took.append(seconds(parallel, call))
                continue
            with ProcessPoolExecutor(n, get_context("spawn")) as pool:
                list(pool.map(worker_is_ready, [given] * n, [folder] * n, [n] * n))
                each = [given] * fits, [epochs] * fits, range(fits)
                took.append(seconds(lambda *each: list(pool.map(one_of_a_grid, *each)), *each))
    whose = "workers of joblib" if by_joblib else "workers"
    what = f"{fits} fits of 1,800 × 64 by {workers[0]} {whose}"
    return {what: [took[0], "s"], f"{what} ÷ by {workers[1]}": [took[0] / took[1], "×"]}


# -- Solver ---------------------------------------------------------------------------------------


def solver(cases: list[list[int]], seconds_per_case: float) -> Values:
    """The milliseconds per bag of `assign` on fresh Gaussian costs, as benchmarks/solver.py."""
    from apportion import assign

    values: Values = {}
    for n, classes in cases:
        rng = np.random.default_rng([n, classes])
        bags = 1000 if n <= 256 else 1
        offsets, took = np.arange(bags + 1) * n, list[float]()
        began = time.perf_counter()
        while len(took) < 5 or time.perf_counter() - began < seconds_per_case:
            cost = rng.standard_normal((bags * n, classes))
            counts = np.array(
                [rng.multinomial(n, rng.dirichlet(np.ones(classes))) for _ in range(bags)]
            )
            took.append(seconds(assign, cost, counts, offsets))
        values[f"`assign`, {n:,} × {classes:,}"] = [1000 * statistics.median(took) / bags, "ms"]
    return values


PROBES: dict[str, Callable[..., Values]] = {
    probe.__name__: probe
    for probe in (
        warm,
        first_assign,
        first_fit,
        first_import,
        one_row,
        small_fit,
        small_steps,
        grid,
        solver,
    )
}


def main() -> None:
    name, settings = sys.argv[1:]
    warnings.simplefilter("ignore")
    logging.getLogger("apportion").setLevel(logging.ERROR)
    values = PROBES[name](**json.loads(settings))
    import apportion

    print(json.dumps({"from": apportion.__file__, "values": values}))


if __name__ == "__main__":
    main()
