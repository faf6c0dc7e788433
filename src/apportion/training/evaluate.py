"""What a trained model makes of its bags: the file outcome.safetensors of a run.

It is measured once, when training ends, so that whoever looks at a run needs neither its data nor
its network: for every set of bags the given proportions beside the predicted ones; where the truth
is known, which classes were taken for which, and how often a confidence was right; and the
instances that the model is least sure of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apportion.bags.bags import Bags
from apportion.metrics import bag_means
from apportion.runs.run import Run
from apportion.training import checkpoint

__all__ = ["BINS", "Outcome", "Unsure", "measure", "plain_names", "read_outcomes", "save_outcomes"]

BINS = 20  # of confidence, in the calibration
MOST_UNSURE = 24  # instances that are kept of every set

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Unsure:
    """Instances whose two likeliest classes are nearest to each other, the least sure first."""

    rows: Ints  # (k,) of x, each once
    bags: Ints  # (k,) positions of their bags
    confidence: Floats  # (k, C)
    truth: Ints | None  # (k,) positions of classes
    x: tuple[NDArray[Any], ...]  # the instances as stored, a part each


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the selected model makes of one set of bags."""

    ids: list[Any]  # the names of the bags
    sizes: Ints  # (n,)
    given: Floats  # (n, C) proportions
    predicted: Floats  # (n, C) mean confidences
    confusion: Ints | None  # (C, C) instances: the truth by row, the likeliest class by column
    calibration: Floats | None  # (BINS, 3) instances, their summed confidence, how many are right
    unsure: Unsure


def measure(bags: Bags, confidence: Tensor) -> Outcome:
    """Compare confidences (N, C), one an instance of every bag, with what is known of the bags.

    Examples
    --------
    >>> bags = Bags.from_rows([[0.0], [1.0], [2.0]], ["a", "a", "b"], truth=["no", "yes", "yes"])
    >>> outcome = measure(bags, torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.55, 0.45]]))
    >>> outcome.predicted.round(3)
    array([[0.65, 0.35],
           [0.55, 0.45]])
    >>> outcome.confusion
    array([[1, 0],
           [1, 1]])
    >>> outcome.unsure.rows
    array([2, 1, 0])
    """
    confidence = confidence.detach().cpu()
    predicted = bag_means(confidence.numpy(), bags.offsets)
    two = confidence.topk(min(2, bags.n_classes), dim=1)
    top, likeliest = two.values[:, 0].double().numpy(), two.indices[:, 0].numpy()
    confusion = calibration = None
    if bags.truth is not None:
        cell = bags.truth * bags.n_classes + likeliest
        counted = np.bincount(cell, minlength=bags.n_classes**2)
        confusion = counted.reshape(bags.n_classes, -1).astype(np.int64)
        bin_of = np.clip((top * BINS).astype(np.int64), 0, BINS - 1)
        right = likeliest == bags.truth
        weights = (np.ones_like(top), top, right.astype(np.float64))
        binned = [np.bincount(bin_of, w, BINS).astype(np.float64) for w in weights]
        calibration = np.stack(binned, axis=1)
    margin = (two.values[:, 0] - two.values[:, -1]).numpy()
    return Outcome(
        ids=plain_names(bags.ids),
        sizes=bags.sizes,
        given=bags.proportions,
        predicted=predicted,
        confusion=confusion,
        calibration=calibration,
        unsure=_least_sure(bags, confidence, margin),
    )


def _least_sure(bags: Bags, confidence: Tensor, margin: NDArray[Any]) -> Unsure:
    order = np.argsort(margin, kind="stable")
    _, first = np.unique(bags.index[order], return_index=True)  # a row may stand in several bags
    at = order[np.sort(first)[:MOST_UNSURE]]
    rows = bags.index[at]
    return Unsure(
        rows=rows,
        bags=np.searchsorted(bags.offsets, at, side="right") - 1,
        confidence=confidence[torch.from_numpy(at)].double().numpy(),
        truth=None if bags.truth is None else bags.truth[at],
        x=tuple(_rows_of(part, rows) for part in bags.parts),
    )


def _rows_of(part: Any, rows: Ints) -> NDArray[Any]:
    if isinstance(part, Tensor):
        some = part[torch.from_numpy(rows).to(part.device)].cpu()
        return (some.float() if some.dtype == torch.bfloat16 else some).numpy()
    chosen: NDArray[Any] = np.array(part[rows])
    return chosen.astype(chosen.dtype.newbyteorder("="))  # torch knows no other


def plain_names(names: Any) -> list[Any]:
    """Give names as JSON keeps them: texts and numbers as they are, anything else as text."""
    plain = (name.item() if isinstance(name, np.generic) else name for name in names)
    return [name if isinstance(name, bool | int | float | str) else str(name) for name in plain]


# -------------------------------------------------------------------------------------- the file


def save_outcomes(run: Run, classes: Any, outcomes: Mapping[str, Outcome]) -> None:
    """Write what was measured into a run's folder."""
    tensors = {name: _tensors(outcome) for name, outcome in outcomes.items()}
    scalars = {"classes": plain_names(classes), "sets": list(outcomes)}
    checkpoint.save(run, run.outcome, tensors, scalars)


def _tensors(outcome: Outcome) -> dict[str, Tensor]:
    unsure = outcome.unsure
    ids = json.dumps(outcome.ids).encode()  # as bytes: a header has no room for millions of names
    arrays: dict[str, NDArray[Any] | None] = {
        "ids": np.frombuffer(ids, np.uint8).copy(),
        "sizes": outcome.sizes,
        "given": outcome.given,
        "predicted": outcome.predicted,
        "confusion": outcome.confusion,
        "calibration": outcome.calibration,
        "unsure.rows": unsure.rows,
        "unsure.bags": unsure.bags,
        "unsure.confidence": unsure.confidence,
        "unsure.truth": unsure.truth,
        **{f"unsure.x{number}": part for number, part in enumerate(unsure.x)},
    }
    return {
        name: torch.from_numpy(np.ascontiguousarray(array))
        for name, array in arrays.items()
        if array is not None
    }


def read_outcomes(run: Run) -> tuple[list[Any], dict[str, Outcome]]:
    """Read the classes, and the outcome of every set of bags: of "train", "valid" and "test".

    Of a run that has not ended there are none.
    """
    if not run.outcome.exists():
        return [], {}
    groups, scalars = checkpoint.load(run.outcome)
    outcomes = {
        name: _read({key: tensor.numpy() for key, tensor in groups[name].items()})
        for name in scalars["sets"]
    }
    return scalars["classes"], outcomes


def _read(arrays: Mapping[str, NDArray[Any]]) -> Outcome:
    return Outcome(
        ids=json.loads(arrays["ids"].tobytes()),
        sizes=arrays["sizes"],
        given=arrays["given"],
        predicted=arrays["predicted"],
        confusion=arrays.get("confusion"),
        calibration=arrays.get("calibration"),
        unsure=Unsure(
            rows=arrays["unsure.rows"],
            bags=arrays["unsure.bags"],
            confidence=arrays["unsure.confidence"],
            truth=arrays.get("unsure.truth"),
            x=tuple(arrays[f"unsure.x{number}"] for number in range(_n_parts(arrays))),
        ),
    )


def _n_parts(arrays: Mapping[str, NDArray[Any]]) -> int:
    return sum(name.startswith("unsure.x") for name in arrays)
