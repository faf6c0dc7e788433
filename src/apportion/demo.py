"""A small experiment that runs anywhere: handwritten digits, in bags whose proportions are known.

Of scikit-learn's 1,797 digits 30 % are kept for the test. From the rest come bags of 128 by the
paper's protocol, and each method trains the same perceptron on the same bags. The upper bound
trains it on bags of one instance, whose proportions are its label: supervised learning.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from apportion.assign import assign
from apportion.bags import Bags
from apportion.config import TrainConfig
from apportion.data.benchmarks import digits
from apportion.data.protocols import rand
from apportion.methods import Method
from apportion.nets import build
from apportion.train import fit

__all__ = ["SUPERVISED", "Trial", "show", "trial"]

if TYPE_CHECKING:
    from rich.console import Console

SUPERVISED = "true labels"
SHOWN = {
    "fpl": "the paper's method",
    "greedy": "without perturbation",
    "proportion-loss": "Eq. 7",
    SUPERVISED: "upper bound",
}


@dataclass(frozen=True)
class Trial:
    """One method on one draw of the bags."""

    accuracy: float  # on the test digits, of the last epoch
    seconds: float


def trial(
    method: str | Method,
    seed: int,
    *,
    n_bags: int = 10,
    size: int = 128,
    epochs: int = 100,
    threads: int | None = None,
) -> Trial:
    """Train one method; split, bags and network are drawn by the seed, the same for every method.

    Examples
    --------
    >>> trial("fpl", seed=0, n_bags=2, epochs=1).accuracy > 0
    True
    """
    data = digits(test=0.3, seed=seed)
    drawn = rand(data.labels, size, n_bags, seed=seed)
    if method == SUPERVISED:
        method, members = "fpl", drawn.members.reshape(-1, 1)
    else:
        members = drawn.members
    train = Bags.from_members(data.x, members, labels=data.labels, classes=range(10))
    one = np.zeros(len(data.x_test), int)
    test = Bags.from_rows(data.x_test, one, labels=data.labels_test, classes=range(10))
    config = TrainConfig(
        epochs=epochs,
        batch_size=64,
        learning_rate=1e-3,
        seed=seed,
        device="cpu",
        threads=threads,
    )
    began = time.perf_counter()
    history = fit(build("mlp", train, seed=seed), train, test=test, method=method, config=config)
    return Trial(history["test_accuracy"][-1], time.perf_counter() - began)


def show(console: Console, seeds: int = 3) -> None:
    """Run some methods on some draws, and print a table of what came out."""
    from rich.progress import Progress
    from rich.table import Table

    assign(np.zeros((2, 2), np.float32), [1, 1])  # compiles: no method should bear that time
    found: dict[str, list[Trial]] = {method: [] for method in SHOWN}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=seeds * len(SHOWN))
        for seed in range(seeds):
            for method in SHOWN:
                progress.update(task, description=f"draw {seed + 1} of {seeds}: {method}")
                found[method].append(trial(method, seed, threads=1))
                progress.advance(task)

    table = Table(title="Test accuracy of a perceptron on handwritten digits", title_justify="left")
    table.add_column("method")
    table.add_column("")
    table.add_column("accuracy", justify="right")
    table.add_column("least – most", justify="right")
    table.add_column("seconds", justify="right")
    for method, trials in found.items():
        accuracies = [trial.accuracy for trial in trials]
        table.add_row(
            method,
            SHOWN[method],
            f"{np.mean(accuracies):.1%}",
            f"{min(accuracies):.1%} – {max(accuracies):.1%}",
            f"{np.mean([trial.seconds for trial in trials]):.1f}",
        )
    console.print(table)
    console.print(
        "10 bags of 128 digits, of which only the proportions of the ten classes are known; "
        "100 epochs; "
        + (f"means over {seeds} draws" if seeds > 1 else "one draw")
        + " of test digits, bags and network."
    )
