"""The experiment of `apportion demo`: handwritten digits in bags whose proportions are known.

Of scikit-learn's 1,797 digits 30 % are kept for the test. From the rest come bags of 128 by the
paper's protocol, and each method trains the same perceptron on the same bags. The upper bound
trains it on bags of one instance, whose proportions are its label: supervised learning.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike

import numpy as np

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.methods.base import Method
from apportion.nets.build import build_net
from apportion.study.datasets.benchmarks import digits
from apportion.study.protocols import rand
from apportion.training.fit import fit

__all__ = ["SUPERVISED", "Trial", "trial", "verdict"]

SUPERVISED = "true labels"


@dataclass(frozen=True)
class Trial:
    """One method on one draw of the bags."""

    accuracy: float  # on the test digits, of the last epoch
    seconds: float
    bags: Mapping[str, Bags] = field(default_factory=dict)  # that it was trained and tested on


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
    """Train one method; the seed decides split, bags and net, the same for every method.

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
    members = rand(data.truth, size, n_bags, seed=seed).members
    if method == SUPERVISED:
        method, members = "fpl", members.reshape(-1, 1)
    x, x_test = (images.reshape(-1, 1, 8, 8) for images in (data.x, data.x_test))
    train = Bags.from_members(x, members, truth=data.truth, classes=range(10))
    one = np.zeros(len(x_test), int)
    test = Bags.from_rows(x_test, one, truth=data.truth_test, classes=range(10))
    config = TrainConfig(
        epochs=epochs, batch_size=64, learning_rate=1e-3, seed=seed, device="cpu", threads=threads
    )
    began = time.perf_counter()
    net = build_net("mlp", train, seed=seed)
    history = fit(net, train, test=test, method=method, config=config, run=run)
    took = time.perf_counter() - began
    return Trial(history["test_accuracy"][-1], took, {"train": train, "test": test})


def verdict(found: Mapping[str, Sequence[Trial]]) -> str:
    """Return which method that knows no labels is ahead, and whether the ranges overlap.

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
