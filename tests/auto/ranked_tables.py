"""Trainings of tables that processes of torchrun share; each writes what it has got.

torchrun --standalone --nproc_per_node=2 ranked_tables.py FOLDER CASE…
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from apportion import LLPClassifier  # noqa: E402
from apportion.bags.bags import Bags  # noqa: E402
from apportion.errors import ApportionError  # noqa: E402
from apportion.runs.run import Run  # noqa: E402
from tests.auto.tables import ALIKE, few_steps, ring_in_bags, train  # noqa: E402

RANK = int(os.environ.get("RANK", 0))
STEPS = 2


def three_classes() -> Bags:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)).astype(np.float32)
    return Bags.from_rows(x, np.arange(60) // 6, truth=np.digitize(x[:, 0], [-0.5, 0.5]))


TABLES = {
    "alike": ALIKE,
    "differing": ring_in_bags(200, 0, 40, differing=True),
    "three classes": three_classes(),
    "one bag": ALIKE[:1],
}


def told(learned: Any) -> dict[str, Any]:
    net = learned.model.net
    return {
        "weights": {name: own.tolist() for name, own in net.state_dict().items()},
        "records": learned.history.records,
        "expected": str(learned.expectation),
    }


def of_table(name: str, **options: Any) -> Any:
    """Train on a table, by auto or by a linear model."""
    name, _, method = name.partition("/")
    return told(train(None, TABLES[name], method=method or "auto", **options))


def of_run(folder: str) -> Any:
    """Begin a run, or go on with it; note which nets this process has been told of."""
    nets: list[int] = []
    learned = train(folder, on_net=lambda record, net: nets.append(record["epoch"]))
    return {**told(learned), "called": nets}


def of_stop(folder: str) -> Any:
    """Train until the first process is asked to stop after the third net."""

    def stop(record: Any, net: Any) -> None:
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    try:
        train(folder, on_net=stop)
    except KeyboardInterrupt:
        return "stopped"


def of_classifier(_: str) -> Any:
    """Fit without a seed, with bags held out, in processes whose random states differ."""
    np.random.seed(RANK)  # noqa: NPY002 (which scikit-learn draws from)
    found = LLPClassifier(device="cpu", validation_fraction=0.2).fit(ALIKE)
    return found.predict_proba(ALIKE.x).tolist()


def of_others(_: str) -> Any:
    """Train on bags that are not those of the other processes."""
    try:
        return of_table("alike" if RANK == 0 else "differing")
    except ApportionError as error:
        return f"{type(error).__name__}: {error}"


def of_seeds(_: str) -> Any:
    """Train with a seed of this process's own."""
    try:
        return of_table("alike", seed=RANK)
    except ApportionError as error:
        return f"{type(error).__name__}: {error}"


KINDS: dict[str, Callable[[str], Any]] = {
    "table": of_table,
    "run": of_run,
    "stop": of_stop,
    "classifier": of_classifier,
    "others": of_others,
    "seeds": of_seeds,
}


def refuse(*_: Any) -> Any:
    raise AssertionError("the first process alone writes")


def result(case: str) -> Any:
    kind, _, name = case.partition(":")
    return KINDS[kind](name)


if __name__ == "__main__":
    few_steps(STEPS)
    for name in ("append", "replacing", "rewind") if RANK else ():
        setattr(Run, name, refuse)
    out, *cases = sys.argv[1:]
    Path(out, f"{RANK}.json").write_text(json.dumps({case: result(case) for case in cases}))
