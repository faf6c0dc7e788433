"""Evaluation of the selected model on each set of bags: the file evaluation.safetensors of a run.

It is computed once, when training ends, so that a report needs neither the data nor the network.
For each set of bags it has the given and the predicted proportions; where the truth is known, the
confusion of classes and the calibration of confidences; and the instances that the model is least
sure of.
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

__all__ = ["BINS", "Evaluation", "Unsure", "plain_names", "read_evaluations", "save_evaluations"]

BINS = 20  # of confidence, in the calibration
KIND = "evaluation"

# The arrays of a set of bags by their names in the file: the kind of their numbers, and their axes
# of n bags, k unsure instances, C classes and b bins.
ARRAYS = {
    "sizes": ("i", "n"),
    "given": ("f", "nC"),
    "predicted": ("f", "nC"),
    "confusion": ("i", "CC"),
    "calibration": ("f", "b3"),
    "unsure.rows": ("i", "k"),
    "unsure.bags": ("i", "k"),
    "unsure.confidence": ("f", "kC"),
    "unsure.truth": ("i", "k"),
}
OF_TRUTH = ("confusion", "calibration", "unsure.truth")  # missing where the truth is not known

SETS = {"train", "valid", "test"}
# The largest values, with rounding; the smallest is 0.
LIMITS = {
    "sizes": 2**53,
    "given": 1.01,
    "predicted": 1.01,
    "confusion": 2**53,
    "calibration": 2.0**53,
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
    truth: Ints | None  # (k,) positions of classes, −1 where unknown
    x: tuple[NDArray[Any], ...]  # the instances as stored, one array per part


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Evaluation of the selected model on one set of bags."""

    ids: list[Any]  # the names of the n bags
    sizes: Ints  # (n,)
    given: Floats  # (n, C) proportions
    predicted: Floats  # (n, C) mean confidences
    confusion: Ints | None  # (C, C) instances, by true class and likeliest class
    calibration: Floats | None  # (BINS, 3) instances, their summed confidence, how many are right
    unsure: Unsure


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
    unsure = {f"unsure.{name}": array for name, array in vars(evaluation.unsure).items()}
    found = vars(evaluation) | unsure
    ids = json.dumps(evaluation.ids).encode()  # a header has no room for millions of names
    parts = {f"unsure.x{number}": part for number, part in enumerate(evaluation.unsure.x)}
    return {"ids": np.frombuffer(ids, np.uint8)} | {name: found[name] for name in ARRAYS} | parts


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
    own = _under(f"{of}.", arrays)
    ids = json.loads(own["ids"].tobytes())
    if not _are_names(ids):
        raise TypeError(f"{of}.ids are {ids!r:.60}")
    if own["ids"].dtype != np.uint8:
        raise TypeError(f"{of}.ids is {own['ids'].dtype}")
    lengths = {"n": len(ids), "k": len(own["unsure.rows"]), "C": n_classes, "b": BINS, "3": 3}
    for name, (kind, axes) in ARRAYS.items():
        shape = tuple(lengths[axis] for axis in axes)
        if name in own and (own[name].dtype.kind, own[name].shape) != (kind, shape):
            raise ValueError(f"{of}.{name} is {own[name].dtype} of shape {own[name].shape}")
    x = tuple(own[f"unsure.x{number}"] for number in range(len(_under("unsure.x", own))))
    for number, part in enumerate(x):
        if part.dtype.kind not in "fiub":
            raise ValueError(f"{of}.unsure.x{number} is {part.dtype}")
        if len(part) != lengths["k"]:
            raise ValueError(f"{of}.unsure.x{number} has {len(part)} rows")
    if len({name in own for name in OF_TRUTH}) > 1:
        raise ValueError(f"{of} has the truth in part")
    if foreign := own.keys() - ARRAYS - {"ids", *(f"unsure.x{number}" for number in range(len(x)))}:
        raise ValueError(f"{of}.{min(foreign)} is not known")
    for name, most in LIMITS.items():
        if name in own and not ((own[name] >= (name == "sizes")) & (own[name] <= most)).all():
            raise ValueError(f"{of}.{name} has values below 0 or too large")
    for name, least, limit in (("unsure.bags", 0, len(ids)), ("unsure.truth", -1, n_classes)):
        if name in own and not ((own[name] >= least) & (own[name] < limit)).all():
            raise ValueError(f"{of}.{name} is beyond its {limit} names")
    found: dict[str, Any] = {n: own.get(n) if n in OF_TRUTH else own[n] for n in ARRAYS}
    unsure = _under("unsure.", found)
    bags = {name: array for name, array in found.items() if "." not in name}
    return Evaluation(ids=ids, **bags, unsure=Unsure(**unsure, x=x))


def _are_names(names: Any) -> bool:
    plain = bool | int | float | str
    if not isinstance(names, list) or not all(isinstance(name, plain) for name in names):
        return False
    return all(math.isfinite(name) for name in names if isinstance(name, float))


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
