"""A small experiment that runs anywhere: handwritten digits, in bags whose proportions are known.

Of scikit-learn's 1,797 digits 30 % are kept for the test. From the rest come bags of 128 by the
paper's protocol, and each method trains the same perceptron on the same bags. The upper bound
trains it on bags of one instance, whose proportions are its label: supervised learning. The runs of
the first draw are kept, and shown side by side in a report.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from apportion.assign import assign
from apportion.bags import Bags
from apportion.config import TrainConfig
from apportion.data.benchmarks import digits
from apportion.data.protocols import rand
from apportion.methods import Method
from apportion.nets import build
from apportion.report.build import build as build_report
from apportion.run import RunError
from apportion.train import fit

__all__ = ["SUPERVISED", "Trial", "clear", "show", "trial", "verdict"]

if TYPE_CHECKING:
    from rich.console import Console

SUPERVISED = "true labels"
SHOWN = {
    "fpl": "the paper's method",
    "greedy": "without perturbation",
    "proportion-loss": "Eq. 7",
    SUPERVISED: "upper bound",
}
REPORTED = ("fpl", "proportion-loss")


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
    run: str | PathLike[str] | None = None,
) -> Trial:
    """Train one method; split, bags and network are drawn by the seed, the same for every method.

    Parameters
    ----------
    run : path, optional
        A folder to keep the training in, as of `fit`.

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
    x, x_test = (images.reshape(-1, 1, 8, 8) for images in (data.x, data.x_test))
    train = Bags.from_members(x, members, labels=data.labels, classes=range(10))
    one = np.zeros(len(x_test), int)
    test = Bags.from_rows(x_test, one, labels=data.labels_test, classes=range(10))
    config = TrainConfig(
        epochs=epochs,
        batch_size=64,
        learning_rate=1e-3,
        seed=seed,
        device="cpu",
        threads=threads,
    )
    began = time.perf_counter()
    model = build("mlp", train, seed=seed)
    history = fit(model, train, test=test, method=method, config=config, run=run)
    return Trial(history["test_accuracy"][-1], time.perf_counter() - began)


def clear(out: Path, *, force: bool) -> None:
    """See that a folder is free for the demo, or make it so if it holds one that may go."""
    if not out.exists():
        return
    there = sorted(path.name for path in out.iterdir()) if out.is_dir() else [out.name]
    own = out.is_dir() and {"report.html", *REPORTED}.issuperset(there)
    if there and not (force and own):
        raise RunError(
            f"--out {out} is a file."
            if not out.is_dir()
            else f"--out {out} has {len(there)} files already, such as {there[0]}.",
            "Pass --force to replace them, or another folder."
            if own
            else "Pass another folder: this one holds more than a demo.",
        )
    if there:
        shutil.rmtree(out)


def verdict(found: Mapping[str, Sequence[Trial]]) -> str:
    """Say which method that knows no labels is ahead here, and whether that means much.

    Examples
    --------
    >>> verdict({"a": [Trial(0.9, 1.0), Trial(0.8, 1.0)], "b": [Trial(0.82, 1.0), Trial(0.7, 1.0)]})
    'Here a is ahead of b by 9.0 points on average, and their ranges overlap.'
    """
    ranges = {m: [t.accuracy for t in trials] for m, trials in found.items() if m != SUPERVISED}
    first, second = sorted(ranges, key=lambda method: -np.mean(ranges[method]))[:2]
    points = 100 * (np.mean(ranges[first]) - np.mean(ranges[second]))
    overlap = "overlap" if min(ranges[first]) <= max(ranges[second]) else "do not overlap"
    return (
        f"Here {first} is ahead of {second} by {points:.1f} points on average, and their ranges "
        f"{overlap}."
    )


def show(console: Console, out: Path, seeds: int = 3) -> None:
    """Run some methods on some draws, print a table of what came out, and write a report.

    Parameters
    ----------
    out : Path
        A folder, new or empty, for the runs of the first draw and the report.
    """
    from rich.progress import Progress
    from rich.table import Table

    assign(np.zeros((2, 2), np.float32), [1, 1])  # compiles: no method should bear that time
    found: dict[str, list[Trial]] = {method: [] for method in SHOWN}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=seeds * len(SHOWN))
        for seed in range(seeds):
            for method in SHOWN:
                progress.update(task, description=f"draw {seed + 1} of {seeds}: {method}")
                kept = out / method if seed == 0 and method in REPORTED else None
                found[method].append(trial(method, seed, threads=1, run=kept))
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
        + " of test digits, bags and network. "
        + verdict(found)
    )
    report = build_report([out / method for method in REPORTED], out / "report.html")
    console.print(
        f"\n{' and '.join(REPORTED)} of the first draw side by side, with pictures: open\n"
        f"  {report.resolve().as_uri()}",
        soft_wrap=True,
    )
