"""Evaluation of the selected model on each set of bags: the file evaluation.safetensors of a run.

It is computed once, when training ends, so that a report needs neither the data nor the network.
For each set of bags it has the given and the predicted proportions; where the truth is known, the
confusion of classes and the calibration of confidences; which rows the model is least sure of; and,
for one set of a table, how much worse its proportions are predicted without each column.

It has no instances: rows are kept by their numbers alone. Names of bags, classes and columns are
kept as they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from apportion.errors import RunError
from apportion.runs.header import RESTORE, metadata, opened, seal
from apportion.runs.run import Run

__all__ = ["BINS", "MOST_COLUMNS", "Effects", "Evaluation", "Unsure", "plain_names",
           "read_evaluations", "save_evaluations"]  # fmt: skip

BINS = 20  # of confidence, in the calibration
MOST_COLUMNS = 200  # of a table whose effects are measured
KIND = "evaluation"

# The arrays of a set of bags by their names in the file: the kind of their numbers, and their axes
# of n bags, k unsure instances, m columns, C classes and b bins.
ARRAYS = {
    "sizes": ("i", "n"),
    "given": ("f", "nC"),
    "predicted": ("f", "nC"),
    "confusion": ("i", "CC"),
    "calibration": ("f", "b3"),
    "known": ("i", "n"),
    "right": ("i", "n"),
    "unsure.rows": ("i", "k"),
    "unsure.bags": ("i", "k"),
    "unsure.confidence": ("f", "kC"),
    "unsure.truth": ("i", "k"),
    "effects.increase": ("f", "m3"),
    "effects.measured": ("i", "2"),
}
NAMES = ("ids", "effects.names")  # as JSON: a header has no room for millions of names
OF_TRUTH = ("confusion", "calibration", "known", "right", "unsure.truth")  # if that is known
OF_EFFECTS = ("effects.names", "effects.increase", "effects.measured")  # if they were measured

SETS = {"train", "valid", "test"}
# The largest values, with rounding; the smallest is 0, of sizes and of what was measured 1.
LIMITS = {
    "sizes": 2**53,
    "given": 1.01,
    "predicted": 1.01,
    "confusion": 2**53,
    "calibration": 2.0**53,
    "known": 2**53,
    "right": 2**53,
    "effects.measured": 2**53,
    "unsure.rows": 2**53,
    "unsure.confidence": 1.01,
}

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Unsure:
    """Instances whose two likeliest classes are nearest to each other, the least sure first."""

    rows: Ints  # (k,) of x, each once
    bags: Ints  # (k,) positions of their bags
    confidence: Floats  # (k, C)
    truth: Ints | None  # (k,) positions of classes; −1 where one is not known


@dataclass(frozen=True, eq=False)
class Effects:
    """How much the proportion error grows when the values of a column are shuffled."""

    names: list[str]  # of the m columns
    increase: Floats  # (m, 3) the mean over bags, and the ends of its interval
    measured: Ints  # (2,) how many bags and how many of their instances it was measured on


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Evaluation of the selected model on one set of bags."""

    ids: list[Any]  # the names of the n bags
    sizes: Ints  # (n,)
    given: Floats  # (n, C) proportions
    predicted: Floats  # (n, C) mean confidences
    confusion: Ints | None  # (C, C) instances, by true class and likeliest class
    calibration: Floats | None  # (BINS, 3) instances, their summed confidence, how many are right
    known: Ints | None  # (n,) instances of each bag whose truth is known
    right: Ints | None  # (n,) those of them that the model gets right
    unsure: Unsure
    effects: Effects | None = None  # of the columns of a table, for one of the sets


def plain_names(names: Any) -> list[Any]:
    """Return names as JSON keeps them: strings and numbers as they are, all others as strings."""
    plain = (name.item() if isinstance(name, np.generic) else name for name in names)
    return [name if isinstance(name, bool | int | float | str) else str(name) for name in plain]


def save_evaluations(run: Run, classes: Any, evaluations: Mapping[str, Evaluation]) -> None:
    """Write the evaluation of each set of bags into the folder of a run."""
    content = {"classes": plain_names(classes), "sets": list(evaluations)}
    arrays = {
        f"{of}.{name}": np.ascontiguousarray(array)
        for of, evaluation in evaluations.items()
        for name, array in _arrays(evaluation).items()
        if array is not None
    }
    with run.replacing(run.evaluation) as beside:
        save_file(arrays, beside, metadata(KIND, content))
        seal(beside)


def _arrays(evaluation: Evaluation) -> dict[str, Any]:
    found = dict(vars(evaluation))
    for group in ("unsure", "effects"):
        own = getattr(evaluation, group)
        found |= {} if own is None else {f"{group}.{name}": v for name, v in vars(own).items()}
    texts = {name: json.dumps(found[name]).encode() for name in NAMES if name in found}
    as_bytes = {name: np.frombuffer(text, np.uint8) for name, text in texts.items()}
    return as_bytes | {name: found.get(name) for name in ARRAYS}


def read_evaluations(run: Run) -> tuple[list[Any], dict[str, Evaluation]]:
    """Read the classes, and the evaluations of "train", "valid" and "test", those there are.

    A run that has not ended has none.

    Raises
    ------
    RunError
        If the file is damaged or not an evaluation.
    """
    if not run.evaluation.exists():
        return [], {}
    with opened(run.evaluation, KIND) as (file, header):
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    try:
        classes, sets = header["classes"], header["sets"]
        if not _are_names(classes) or len(set(classes)) < len(classes):
            raise ValueError(f"classes are {classes!r:.60}")
        if not isinstance(sets, list) or not set(sets) <= SETS or len(set(sets)) < len(sets):
            raise ValueError(f"sets are {sets!r:.60}")
        if foreign := [name for name in arrays if name.partition(".")[0] not in sets]:
            raise ValueError(f"{foreign[0]} is of no set")
        return classes, {of: _read(arrays, of, len(classes)) for of in sets}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        problem = f"{run.evaluation} is damaged: {type(error).__name__} {error}."
        raise RunError(problem, RESTORE) from error


def _read(arrays: Mapping[str, NDArray[Any]], of: str, n_classes: int) -> Evaluation:
    own: dict[str, Any] = _under(f"{of}.", arrays)
    if foreign := own.keys() - ARRAYS - set(NAMES):
        raise ValueError(f"{of}.{min(foreign)} is not known")
    for group, what in ((OF_TRUTH, "the truth"), (OF_EFFECTS, "effects")):
        if len({name in own for name in group}) > 1:
            raise ValueError(f"{of} has {what} in part")
    names = {name: _names(own.pop(name), f"{of}.{name}") for name in NAMES if name in own}
    columns = names.get("effects.names", [])
    if not all(isinstance(name, str) for name in columns) or len(set(columns)) < len(columns):
        raise ValueError(f"{of}.effects.names are {columns!r:.60}")
    lengths = {"n": len(names["ids"]), "k": len(own["unsure.rows"]), "m": len(columns)}
    lengths |= {"C": n_classes, "b": BINS, "2": 2, "3": 3}
    for name, (kind, axes) in ARRAYS.items():
        shape = tuple(lengths[axis] for axis in axes)
        if name in own and (own[name].dtype.kind, own[name].shape) != (kind, shape):
            raise ValueError(f"{of}.{name} is {own[name].dtype} of shape {own[name].shape}")
    for name, most in LIMITS.items():
        least = name in ("sizes", "effects.measured")
        if name in own and not ((own[name] >= least) & (own[name] <= most)).all():
            raise ValueError(f"{of}.{name} has values below {int(least)} or too large")
    for name, first, limit in (("unsure.bags", 0, lengths["n"]), ("unsure.truth", -1, n_classes)):
        if name in own and not ((own[name] >= first) & (own[name] < limit)).all():
            raise ValueError(f"{of}.{name} is beyond its {limit} names")
    right, known = own.get("right", 0), own.get("known", 0)
    if np.any(right > known) or np.any(known > own["sizes"]):
        raise ValueError(f"{of}.right or {of}.known has more instances than there are")
    if columns and not _are_intervals(own["effects.increase"]):
        raise ValueError(f"{of}.effects.increase has no intervals of shares")
    found: dict[str, Any] = {n: own[n] for n in ARRAYS if n not in (*OF_TRUTH, *OF_EFFECTS)}
    found |= {name: own.get(name) for name in OF_TRUTH}
    effects = Effects(columns, **_under("effects.", own)) if "effects.names" in names else None
    bags = {name: array for name, array in found.items() if "." not in name}
    unsure = Unsure(**_under("unsure.", found))
    return Evaluation(ids=names["ids"], **bags, unsure=unsure, effects=effects)


def _names(array: NDArray[Any], what: str) -> list[Any]:
    names = json.loads(array.tobytes())
    if not _are_names(names):
        raise TypeError(f"{what} are {names!r:.60}")
    if array.dtype != np.uint8:
        raise TypeError(f"{what} is {array.dtype}")
    return list(names)


def _are_intervals(increase: Floats) -> bool:
    mean, low, high = increase.T
    return bool(((low <= mean) & (mean <= high)).all() and (np.abs(increase) <= 1.01).all())


def _are_names(names: Any) -> bool:
    plain = bool | int | float | str
    if not isinstance(names, list) or not all(isinstance(name, plain) for name in names):
        return False
    return all(math.isfinite(name) for name in names if isinstance(name, float))


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
