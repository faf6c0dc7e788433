"""Instances on the device, and the steps of an epoch.

An epoch uses every instance exactly once. Where a method learns from instances, these are shuffled
across bags and cut into steps; where it learns from bags, whole bags are. A step of one instance
alone joins its neighbour: BatchNorm could not learn from it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.bags import BagError, Bags
from apportion.config import TrainConfig
from apportion.engine.streams import Purpose, stream

__all__ = ["Batch", "Instances", "Step", "Unit", "even_cuts", "place", "plan"]

Unit = Literal["instances", "bags"]
Ints = NDArray[np.int64]


class Batch(NamedTuple):
    """Instances that go through the network together."""

    x: tuple[Tensor, ...]  # their parts, as the model takes them
    position: Tensor  # (b,) which they are: positions in `Bags.index`
    progress: float  # how much of the training is done, from 0 to 1


@dataclass(frozen=True, eq=False)
class Step:
    """The instances of one optimiser step, and their bags where a step is made of whole ones."""

    position: Tensor  # (b,) which instances: positions in `Bags.index`
    progress: float
    proportions: Tensor | None = None  # (k, C) of the step's bags
    bag: Tensor | None = None  # (b,) the bag of each instance, as a row of `proportions`
    weight: Tensor | None = None  # (b,) one over the size of that bag

    def pieces(self, most: int) -> list[slice]:
        """Cut into parts of almost equal size, of at most so many instances, but two at least."""
        n = len(self.position)
        n_pieces = -(-n // most) if most == 1 else max(min(-(-n // most), n // 2), 1)
        cuts = np.linspace(0, n, n_pieces + 1).astype(int).tolist()
        return [slice(*ends) for ends in pairwise(cuts)]


class Instances:
    """The instances of some bags on a device, without the truth."""

    def __init__(self, bags: Bags, parts: tuple[Tensor, ...], device: torch.device) -> None:
        distinct, inverse = np.unique(bags.index, return_inverse=True)
        self.bags, self.parts, self.device = bags.without_labels(), parts, device
        self.index = torch.from_numpy(bags.index).to(device)
        self.offsets = torch.from_numpy(bags.offsets).to(device)
        self.proportions = torch.from_numpy(bags.proportions).to(device)
        self.distinct = torch.from_numpy(distinct).to(device)
        self.inverse = torch.from_numpy(inverse).to(device)

    def rows(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Gather rows of x: float64 as float32, everything else as it is stored."""
        gathered = (part.index_select(0, rows) for part in self.parts)
        return tuple(part.float() if part.dtype is torch.float64 else part for part in gathered)

    @torch.no_grad()
    def confidence(self, model: nn.Module, precision: torch.dtype, most: int) -> Tensor:
        """Give conf(x, c, f) of every instance (N, C); each distinct row is computed once."""
        was_training = model.training
        model.eval()
        found = torch.empty(len(self.distinct), self.bags.n_classes, device=self.device)
        with torch.autocast(self.device.type, precision, enabled=precision is not torch.float32):
            for rows, place in zip(
                *(torch.split(t, most) for t in (self.distinct, found)), strict=True
            ):
                place.copy_(model(*self.rows(rows)).float().softmax(dim=1))
        model.train(was_training)
        return found.index_select(0, self.inverse)

    def steps(self, unit: Unit, config: TrainConfig, epoch: int) -> Iterator[Step]:
        """Give the steps of an epoch."""
        shuffle = stream(config.seed, Purpose.SHUFFLE, epoch)
        if unit == "instances":
            position = shuffle.permutation(len(self.index))
            ends = even_cuts(len(position), config.batch_size)
        else:
            order = shuffle.permutation(self.bags.n_bags)
            sizes = self.bags.sizes[order]
            cuts = plan(sizes, config.batch_size, config.bags_per_step)
            position = self._positions(order)
            ends = np.append(0, np.cumsum(sizes))[cuts].tolist()
        positions = torch.from_numpy(position).to(self.device)
        for s, (first, last) in enumerate(pairwise(ends)):
            progress = (epoch - 1 + s / (len(ends) - 1)) / config.epochs
            step = Step(positions[first:last], progress)
            yield (
                step
                if unit == "instances"
                else self._with_bags(step, order[slice(*cuts[s : s + 2])])
            )

    def _positions(self, order: Ints) -> Ints:
        """The positions of all instances, bag after bag in the given order."""
        sizes = self.bags.sizes[order]
        starts = np.cumsum(sizes) - sizes
        shift = np.repeat(self.bags.offsets[order] - starts, sizes)
        positions: Ints = np.arange(len(shift)) + shift
        return positions

    def _with_bags(self, step: Step, bags: Ints) -> Step:
        sizes = torch.from_numpy(self.bags.sizes[bags])
        return Step(
            step.position,
            step.progress,
            self.proportions[torch.from_numpy(bags).to(self.device)].float(),
            torch.arange(len(bags)).repeat_interleave(sizes).to(self.device),
            (1 / sizes).repeat_interleave(sizes).to(self.device, torch.float32),
        )


def even_cuts(n: int, batch_size: int) -> list[int]:
    """Cut n instances into steps; the last may be short, but none is a single instance.

    Examples
    --------
    >>> even_cuts(11, 4), even_cuts(9, 4)
    ([0, 4, 8, 11], [0, 4, 9])
    """
    cuts = [*range(0, n, max(batch_size, 2)), n]
    if len(cuts) > 2 and cuts[-1] - cuts[-2] == 1:
        del cuts[-2]
    return cuts


def plan(sizes: Ints, batch_size: int, most_bags: int | None = None) -> Ints:
    """Cut bags of some sizes into steps; step s takes the bags cuts[s] to cuts[s + 1].

    A step takes bags up to `batch_size` instances, or `most_bags` of any size, and always at least
    one; but never a single instance.

    Examples
    --------
    >>> plan(np.array([3, 2, 9, 1, 4]), 5).tolist()
    [0, 2, 3, 5]
    """
    ends = np.cumsum(sizes)
    cuts = [0]
    while cuts[-1] < len(sizes):
        first = cuts[-1]
        if most_bags is None:
            used = ends[first - 1] if first else 0
            cuts.append(max(first + 1, int(np.searchsorted(ends, used + batch_size, "right"))))
        else:
            cuts.append(min(first + most_bags, len(sizes)))
    kept = [0]
    for cut in cuts[1:]:
        if ends[cut - 1] - (ends[kept[-1] - 1] if kept[-1] else 0) > 1:
            kept.append(cut)
    if kept[-1] < len(sizes):
        kept[max(len(kept) - 1, 1) :] = [len(sizes)]
    return np.array(kept)


def place(
    several: tuple[Bags, Bags | None, Bags | None], device: torch.device
) -> tuple[Instances, Instances | None, Instances | None]:
    """Put the instances of bags on a device; arrays that bags share are placed once."""
    placed: dict[int, Tensor] = {}

    def resident(part: Any) -> Tensor:
        if id(part) not in placed:
            placed[id(part)] = _tensor(part).to(device)
        return placed[id(part)]

    def instances(bags: Bags) -> Instances:
        parts = bags.x if isinstance(bags.x, tuple) else (bags.x,)
        return Instances(bags, tuple(resident(part) for part in parts), device)

    train, *others = several
    valid, test = (None if bags is None else instances(bags) for bags in others)
    return instances(train), valid, test


def _tensor(part: Any) -> Tensor:
    if isinstance(part, Tensor):
        return part.detach()
    array = np.ascontiguousarray(part)
    if array.dtype.kind not in "fiub":
        raise BagError(
            f"x is of type {array.dtype}, which a network cannot take.",
            "Encode it as numbers first: float32, uint8 or int64, say.",
        )
    if not array.dtype.isnative or array.dtype.itemsize > 8:  # which torch does not have
        array = array.astype(
            np.float64 if array.dtype.kind == "f" else array.dtype.newbyteorder("=")
        )
    with warnings.catch_warnings():  # torch warns of arrays it may not write to; it only reads
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
