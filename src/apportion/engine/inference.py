"""Confidences of a net over batches: the one place that computes them, in training and after it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from apportion.bags.sparse import is_sparse, rows_at_once
from apportion.engine.copies import Parts, as_networks_take
from apportion.engine.feed import readable_part
from apportion.errors import DataError

__all__ = ["cut", "fill_confidence", "rows_per_pass", "slices"]

# Values of images and signals that go through a net at once. A ResNet-18 takes 50 to 250 bytes for
# each, and rows by the thousand are faster only where they are small.
AT_ONCE = {"cpu": 2**22, "cuda": 2**26}


def rows_per_pass(x: Any, most: int, device: torch.device) -> int:
    """Return how many rows of x go through a net at once, without gradients: at most so many.

    Examples
    --------
    >>> images, table = torch.empty(9, 3, 224, 224), torch.empty(9, 150_528)
    >>> [rows_per_pass(x, 4096, torch.device("cpu")) for x in (images, table)]
    [27, 4096]
    """
    if is_sparse(x):
        return rows_at_once(x, most)
    if len(x.shape) < 3:
        return most
    values: int = max(1, math.prod(x.shape[1:]))
    return min(most, max(1, AT_ONCE.get(device.type, AT_ONCE["cpu"]) // values))


def cut(n: int, most: int) -> list[tuple[int, int]]:
    """Cut n rows into spans of at most `most` rows.

    Examples
    --------
    >>> cut(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return list(pairwise([*range(0, n, most), n]))


def slices(
    parts: Sequence[Any], spans: Iterable[tuple[int, int]], device: torch.device
) -> Iterator[Parts]:
    """Yield the rows of arrays span by span, on a device."""
    for first, end in spans:
        some = (readable_part(part[first:end]).to(device) for part in parts)
        yield as_networks_take(some)


@torch.no_grad()
def fill_confidence(
    found: Tensor,
    net: nn.Module,
    batches: Iterable[Parts],
    spans: Iterable[tuple[int, int]],
    precision: torch.dtype = torch.float32,
) -> None:
    """Compute conf(x, c, f) of rows (n, C), batch by batch, in evaluation mode, in place.

    A net that is in evaluation mode is not changed at all: several threads may share it.
    """
    enabled = precision is not torch.float32
    with evaluating(net), torch.autocast(found.device.type, precision, enabled=enabled):
        for (first, end), x in zip(spans, batches, strict=True):
            logits = net(*x)
            if logits.shape != (wanted := (end - first, found.shape[1])):
                raise DataError(
                    f"the net returned logits of shape {tuple(logits.shape)}, not {wanted}.",
                    "Pass a net with one logit per class.",
                )
            found[first:end] = logits.to(found.dtype).softmax(dim=1)


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Put a net in evaluation mode, and each of its modules back as it was."""
    training = [module for module in net.modules() if module.training]
    if training:
        net.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
