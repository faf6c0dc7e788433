"""What a trained network says of instances, and the labels that meet known counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from apportion.bags.bags import Bags
from apportion.engine.feed import readable_part
from apportion.errors import DataError
from apportion.estimator.inputs import rows_of
from apportion.labels.assign import assign
from apportion.nets.build import move_to

__all__ = ["confidences", "under_counts"]

ROWS_PER_PASS = 16_384

Floats = NDArray[np.float64]


def confidences(module: nn.Module, x: Any, device: torch.device, n_classes: int) -> Floats:
    """Give the probability of every class for every row, in pieces that fit into memory."""
    move_to(device, module)
    module.eval()
    parts = x if isinstance(x, tuple) else (x,)
    found = np.empty((rows_of(x), n_classes))
    with torch.inference_mode():
        for first in range(0, len(found), ROWS_PER_PASS):
            some = slice(first, first + ROWS_PER_PASS)
            batch = (readable_part(part[some]).to(device) for part in parts)
            given = module(*(b.float() if b.dtype == torch.float64 else b for b in batch))
            found[some] = given.double().softmax(dim=1).cpu().numpy()
    bad = ~np.isfinite(found).all(axis=1)
    if bad.any():
        raise DataError(
            f"the confidences of {bad.sum():,} rows are not finite; row {bad.argmax()} is the "
            "first.",
            "Replace values of X that are missing, infinite or very large.",
        )
    return found


def under_counts(bags: Bags, confidence: Callable[[Any], Floats]) -> NDArray[np.int64]:
    """Give the most likely labels of instances, bag after bag, that meet the counts."""
    rows = np.unique(bags.index)
    x = tuple(part[rows] for part in bags.x) if isinstance(bags.x, tuple) else bags.x[rows]
    likely = confidence(x)[np.searchsorted(rows, bags.index)]
    cost = -np.log(np.maximum(likely, np.finfo(np.float64).tiny))
    labels: NDArray[np.int64] = assign(cost, bags.counts, bags.offsets).labels
    return labels
