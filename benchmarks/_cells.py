"""Cells of the benchmark on tables: a table, a regime that makes its bags, and noise.

Tables: adult (both of UCI's files together), bank marketing and MAGIC gamma telescope, read from a
folder; breast_cancer, digits2 (0–4 against 5–9), digits10 and wine, which scikit-learn brings. A
seed shuffles the rows: 70 % of them, at most 10,000, make the training bags, and at most 5,000 of
the others are the test rows.

Regimes: `rand-N` and `shuffle-N` are the protocols of `apportion.study.protocols` with bags of N
rows; `kmeans-K` makes K clusters of the standardised training rows; `column-NAME` takes the values
of a column as bag ids, and the column away from the rows, as people do who only have sums by place
or by profession.

Noise: `laplace-E` adds Laplace noise of scale 1/E to every count (differential privacy with
ε = E), sets negative counts to 0 and divides by the sum; `round-Q` rounds proportions to multiples
of Q.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.cluster import MiniBatchKMeans

from apportion.study import protocols

EXACT = "exact"
MOST_TRAINING, MOST_TEST, TRAINING = 10_000, 5_000, 0.7
FILES = ("adult", "bank", "magic")  # the tables that are read from a folder
SIZES = {  # rows of small bags, rows of large bags, number of clusters
    "adult": (32, 512, 60),
    "bank": (32, 512, 60),
    "magic": (32, 512, 60),
    "digits2": (32, 128, 16),
    "breast_cancer": (32, 64, 12),
    "digits10": (32, 128, 16),
    "wine": (8, 32, 8),
}
COLUMNS = [("adult", "occupation"), ("bank", "job"), ("adult", "native-country")]
KINDS = ("rand, small", "rand, large", "shuffle, small", "shuffle, large", "kmeans", "column")
ADULT = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
]  # fmt: skip


class Cell(NamedTuple):
    """What is trained on, but for the seed.

    >>> str(Cell("wine", "rand-8", "round-0.1")), Cell("wine", "shuffle-32").kind
    ('wine rand-8 round-0.1', 'shuffle, large')
    """

    table: str
    regime: str
    noise: str = EXACT

    def __str__(self) -> str:
        return " ".join(self)

    @property
    def kind(self) -> str:
        """The regime without its numbers: one of `KINDS`."""
        name, _, detail = self.regime.partition("-")
        if name not in ("rand", "shuffle"):
            return name
        return f"{name}, {'small' if int(detail) == SIZES[self.table][0] else 'large'}"


def _regimes(table: str) -> list[str]:
    small, large, clusters = SIZES[table]
    by_size = [f"{protocol}-{size}" for protocol in ("rand", "shuffle") for size in (small, large)]
    return [*by_size, f"kmeans-{clusters}"]


# All tables in one regime, then in the next: what is there of a run that was stopped compares them.
TWO_CLASSES = [Cell(t, _regimes(t)[i]) for i in range(5) for t in list(SIZES)[:5]]
TWO_CLASSES += [Cell(table, f"column-{name}") for table, name in COLUMNS]
SEVERAL_CLASSES = [Cell(t, _regimes(t)[i]) for i in range(5) for t in list(SIZES)[5:]]
NOISY = [
    Cell(table, f"{protocol}-32", noise)
    for noise in ("laplace-0.2", "round-0.1")
    for protocol, tables in (
        ("rand", ("adult", "magic", "digits2", "breast_cancer")),
        ("shuffle", ("magic", "digits2")),
    )
    for table in tables
]
CELLS = [*TWO_CLASSES, *SEVERAL_CLASSES, *NOISY]


@dataclass(frozen=True, eq=False)
class Bagged:
    """The rows of a cell, cut by a seed."""

    frame: pd.DataFrame  # one row per instance: a row in several bags is repeated
    bags: Any  # (N,) the bag of each instance, 0, 1, …
    proportions: Any  # (n_bags, C) as they are given, with their noise
    truth: Any  # (N,) for bounds
    test: pd.DataFrame
    test_truth: Any
    test_bags: Any  # (M,) the bag that each test row would be in, or None for drawn bags


@lru_cache(4)  # of the last few cells, for the next method
def bagged(cell: Cell, seed: int, folder: Path | None = None) -> Bagged:
    """Cut the rows of a cell, make its bags, and add its noise."""
    frame, truth = _table(cell.table, folder)
    order = np.random.default_rng(7000 + seed).permutation(len(truth))
    n_train = min(MOST_TRAINING, int(TRAINING * len(truth)))
    train, test = order[:n_train], order[n_train : n_train + MOST_TEST]
    regime, _, detail = cell.regime.partition("-")
    members: Any
    test_bags = None
    if regime == "rand":
        members = protocols.rand(truth[train], int(detail), seed=seed).members
    elif regime == "shuffle":
        members = protocols.shuffle(n_train, int(detail), seed=seed).values()
    else:
        if regime == "kmeans":
            x = _numbers(frame, train)
            model = MiniBatchKMeans(int(detail), n_init=3, random_state=seed).fit(x[train])
            own, test_bags = model.labels_, model.predict(x[test])
        else:
            names = frame[detail].to_numpy(str)
            frame = frame.drop(columns=detail)
            own, test_bags = pd.factorize(names[train])[0], names[test]
        members = [np.flatnonzero(own == bag) for bag in np.unique(own)]
    members = list(members)
    index = train[np.concatenate(members)]
    bags = np.repeat(np.arange(len(members)), [len(rows) for rows in members])
    counts = np.zeros((len(members), truth.max() + 1))
    np.add.at(counts, (bags, truth[index]), 1)
    return Bagged(
        frame.iloc[index].reset_index(drop=True),
        bags,
        noisy(counts, cell.noise, seed),
        truth[index],
        frame.iloc[test].reset_index(drop=True),
        truth[test],
        test_bags,
    )


def noisy(counts: Any, noise: str, seed: int) -> Any:
    """Return proportions from true counts (n_bags, C), with noise.

    >>> noisy(np.array([[5.0, 3.0]]), "round-0.1", 0).round(2)
    array([[0.6, 0.4]])
    """
    kind, _, level = noise.partition("-")
    shares = counts / counts.sum(axis=1, keepdims=True)
    if kind == "laplace":
        rng = np.random.default_rng(999 + seed)
        shares = np.clip(counts + rng.laplace(0, 1 / float(level), counts.shape), 0, None)
    elif kind == "round":
        shares = np.round(shares / float(level)) * float(level)
    shares[shares.sum(axis=1) == 0] = 1  # nothing is left of this bag: all classes alike
    return shares / shares.sum(axis=1, keepdims=True)


def categories(frame: pd.DataFrame) -> list[Any]:
    """Return the columns that hold text."""
    return [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]


def _numbers(frame: pd.DataFrame, train: Any) -> Any:
    """Return standardised numbers, and a 0/1 column per category."""
    text = categories(frame)
    x = frame.drop(columns=text).to_numpy(float)
    spread = x[train].std(axis=0)
    x = (x - x[train].mean(axis=0)) / np.where(spread > 0, spread, 1)
    return np.hstack([x, pd.get_dummies(frame[text]).to_numpy(float)]) if text else x


@cache
def _table(name: str, folder: Path | None) -> tuple[pd.DataFrame, Any]:
    """Return all rows of a table, and their classes 0, 1, …"""
    if name == "adult":
        parts = [_read(folder, "adult.data", names=ADULT)]
        parts += [_read(folder, "adult.test", names=ADULT, skiprows=1)]
        frame = pd.concat(parts, ignore_index=True)
        return frame, frame.pop("income").str.startswith(">50K").to_numpy(int)
    if name == "bank":
        frame = _read(folder, "bank-full.csv")
        return frame, (frame.pop("y") == "yes").to_numpy(int)
    if name == "magic":
        frame = _read(folder, "magic04.data")
        return frame, (frame.pop("class") == "g").to_numpy(int)
    found = getattr(datasets, f"load_{name.rstrip('0123456789')}")()
    frame = pd.DataFrame(found.data, columns=[f"x{j}" for j in range(found.data.shape[1])])
    return frame, (found.target >= 5 if name == "digits2" else found.target).astype(int)


def _read(folder: Path | None, name: str, **options: Any) -> pd.DataFrame:
    """Read a file of the folder, plain or as .xz."""
    assert folder is not None
    plain = folder / name
    with plain.open("rb") if plain.exists() else lzma.open(folder / f"{name}.xz") as file:
        frame: pd.DataFrame = pd.read_csv(file, skipinitialspace=True, **options)
    return frame
