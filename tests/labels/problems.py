"""Costs and counts of every kind, and a checker of its own that proves labels optimal."""

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import apportion
from apportion.labels.assign import Assignment

Array = NDArray[Any]
EPS = 2.0**-52
INF, NAN = math.inf, math.nan


# --------------------------------------------------------------------------------- the certificate


def above_least(cost: Array) -> Array:
    """Costs in float64, each row less its minimum."""
    wide: Array = np.asarray(cost, np.float64)
    least: Array = wide.min(axis=1, keepdims=True)
    return wide - least


def exact_gap(cost: Array, labels: Array, prices: Array) -> float:
    """Primal minus dual value of labels that meet the counts: nothing is rounded but the sum."""
    rows = np.arange(len(cost))
    high = cost - prices
    with np.errstate(invalid="ignore"):
        back = high - cost
        low = (cost - (high - back)) - (prices + back)  # high + low is cost - prices exactly
    best = high.min(axis=1)
    rest = np.where(high == best[:, None], low, INF).min(axis=1)
    own = high[rows, labels], low[rows, labels]
    return math.fsum(np.concatenate([*own, -best, -rest]).tolist())


def certify(cost: Any, counts: Any, result: Assignment) -> None:
    """Prove one bag's labels optimal from nothing but the costs, the counts and the prices."""
    cost, counts, labels, prices = np.float64(cost), np.array(counts), result.labels, result.prices
    n, C = cost.shape
    assert (labels.shape, labels.dtype) == ((n,), np.int64)
    assert (prices.shape, prices.dtype) == ((C,), np.float64)
    assert np.isfinite(prices).all()
    assert np.bincount(labels, minlength=C).tolist() == counts.tolist()

    shifted = above_least(cost)
    span = shifted[np.isfinite(shifted)].max(initial=0.0)
    whole = bool((cost == np.floor(cost)).all()) and span * C < 2**53
    assert result.tolerance == (0 if whole else 8 * EPS * n * span)
    if whole and n:
        assert (prices == np.rint(prices)).all()

    gap = exact_gap(shifted, labels, prices)
    assert gap <= result.tolerance
    assert 0 <= result.gap <= result.tolerance
    largest = np.abs(prices[counts > 0]).max(initial=0.0)
    assert abs(gap - result.gap) <= (0 if whole else 4 * EPS * n * (span + largest))

    paid = cost[np.arange(n), labels]
    size = math.fsum(np.abs(paid))
    rounding = 0 if whole and size < 2**53 else 64 * EPS * size
    assert abs(result.objective - math.fsum(paid)) <= rounding


def spent(cost: Array, labels: Array) -> float:
    return math.fsum(above_least(cost)[np.arange(len(cost)), labels])


def matched(cost: Array, counts: Array) -> Array:
    """scipy's labels: an assignment of rows to columns, with a column for each label to give."""
    columns = np.repeat(np.arange(len(counts)), counts)
    return columns[linear_sum_assignment(above_least(cost)[:, columns])[1]]


# ----------------------------------------------------------------------------------- the instances


def forbid(rng: Any, cost: Array, hidden: Array) -> Array:
    """+inf in many places, never where the hidden labels are: they stay possible."""
    forbidden = rng.random(cost.shape) < rng.choice([0.2, 0.6, 0.9])
    return np.where(forbidden & (np.arange(cost.shape[1]) != hidden[:, None]), INF, cost)


def chain(cost: Array, hidden: Array) -> Array:
    """A row may have its hidden label or the next class: prices add up from class to class."""
    steps = np.arange(cost.shape[1]) - hidden[:, None]
    return np.where((steps == 0) | (steps == 1), cost - steps, INF)


KINDS: dict[str, Callable[..., Array]] = {  # r: the generator, s: the shape, y: possible labels
    "gaussian": lambda r, s, y: r.normal(size=s),
    "small integers": lambda r, s, y: r.integers(-3, 4, s),
    "large integers": lambda r, s, y: r.integers(-(2**39), 2**39, s),
    "vast integers": lambda r, s, y: r.integers(0, 2**52, s),
    "duplicated rows": lambda r, s, y: r.normal(size=s)[r.integers(0, 1 + s[0] // 9, s[0])],
    "constant": lambda r, s, y: np.full(s, r.normal()),
    "lognormal": lambda r, s, y: r.lognormal(sigma=10, size=s),
    "cubed Cauchy": lambda r, s, y: r.standard_cauchy(s) ** 3,
    "large rows": lambda r, s, y: r.normal(size=s) * r.choice([1, 1, 1, 1e12], (s[0], 1)),
    "large columns": lambda r, s, y: r.normal(size=s) + r.choice([-1e12, 0, 1e12], s[1]),
    "increasing columns": lambda r, s, y: r.random(s) + np.arange(s[1]),
    "offset rows": lambda r, s, y: r.normal(size=s) + r.normal(size=(s[0], 1)) * 1e9,
    "tiny": lambda r, s, y: r.normal(size=s) * 1e-300,
    "near ties": lambda r, s, y: r.integers(0, 4, s) + r.normal(size=s) * 1e-9,
    "forbidden": lambda r, s, y: forbid(r, r.normal(size=s), y),
    "forbidden integers": lambda r, s, y: forbid(r, r.integers(0, 9, s), y),
    "chain": lambda r, s, y: chain(r.random(s), y),
}
WHOLE = ["small integers", "large integers", "forbidden integers"]
COUNTS: dict[str, Callable[..., Array]] = {
    "dense": lambda rng, n, C: rng.multinomial(n, rng.dirichlet(np.full(C, 5.0))),
    "sparse": lambda rng, n, C: rng.multinomial(n, rng.dirichlet(np.full(C, 0.2))),
    "one class": lambda rng, n, C: n * np.eye(C, dtype=int)[rng.integers(C)],
    "uniform": lambda rng, n, C: np.diff(np.arange(C + 1) * n // C),
}


def instance(seed: int, kind: str, n: int, C: int, given: str = "dense") -> tuple[Array, Array]:
    """Costs of a kind, and counts that they allow."""
    rng = np.random.default_rng(seed)
    counts = COUNTS[given](rng, n, C)
    hidden = rng.permutation(np.repeat(np.arange(C), counts))
    return KINDS[kind](rng, (n, C), hidden).astype(np.float64), counts


def instances(sizes: Any, classes: Any, kinds: Any = tuple(KINDS)) -> Any:
    """What `instance` takes: hypothesis draws and shrinks it, numpy draws the numbers."""
    seeds, given = st.integers(0, 2**32), st.sampled_from([*COUNTS])
    return st.tuples(seeds, st.sampled_from(kinds), sizes, classes, given)


FEW = st.integers(0, 12) | st.integers(0, 90)
SMALL = instances(FEW, st.integers(1, 4) | st.integers(1, 14))
MEDIUM = instances(st.integers(100, 700), st.integers(2, 20) | st.just(90))
LARGE = instances(st.integers(1000, 4000), st.integers(2, 8))
SMALL_WHOLE = instances(FEW, st.integers(1, 9), WHOLE)
TYPES = st.sampled_from([np.float32, np.float64])


# --------------------------------------------------------------------------------- other processes


def run_python(script: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    path = [Path(apportion.__file__).parents[1], Path(__file__).parents[2]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **environment}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def best_in_hindsight(total: Array, counts: Array, offsets: Array) -> float:
    """Eq. 3 by trying every labeling of every bag."""
    cost = 0.0
    for i, (first, last) in enumerate(itertools.pairwise(offsets)):
        pool = np.repeat(np.arange(len(counts[i])), counts[i])
        rows = np.arange(first, last)
        cost += min(total[rows, list(order)].sum() for order in itertools.permutations(pool))
    return cost
