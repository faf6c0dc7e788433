"""Instances on the device, and the steps of an epoch.

An epoch uses every instance exactly once. Where a method learns from instances, these are shuffled
across bags and cut into steps; where it learns from rows, the distinct rows are, of which each may
be several instances; where it learns from bags, whole bags are. A step of one instance
alone joins its neighbour: BatchNorm could not learn from it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress, pairwise, starmap
from typing import Any, Literal, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.bags.items import Draw, Items
from apportion.bags.sparse import is_sparse
from apportion.config import TrainConfig
from apportion.engine.copies import Parts
from apportion.engine.device import memory_for
from apportion.engine.distributed import ALONE, Ranks
from apportion.engine.feed import Feed, Resident, Streamed, readable_part
from apportion.engine.inference import cut, fill_confidence, rows_per_pass
from apportion.engine.items import Itemwise
from apportion.randomness import Purpose, generator

__all__ = ["Batch", "Instances", "Shelf", "Step", "Unit", "even_cuts", "place", "plan"]

log = logging.getLogger("apportion")

PIECE = 2**20  # row numbers that are looked up at a time

Unit = Literal["instances", "rows", "bags"]
Ints = NDArray[np.int64]


class Batch(NamedTuple):
    """Instances that go through the network together."""

    x: Parts  # as the net takes them
    position: Tensor  # (b,) which they are: positions in `Bags.index`, or among distinct rows
    progress: Tensor  # () how much of the training is done, from 0 to 1, in float64
    target: Tensor | None = None  # (b, C) what they are to be taken for, if the method says it
    share: slice | None = None  # which they are of those of all ranks, where there are several
    of: int = 0  # how many instances these are

    def shared(self, share: slice, of: int) -> Batch:
        """Return a rank's share of the instances of all ranks."""
        return Batch(
            tuple(part[share] for part in self.x),
            self.position[share],
            self.progress,
            None if self.target is None else self.target[share],
            share,
            of,
        )

    def noise_like(self, part: Tensor) -> Tensor:
        """Draw normal numbers of the shape of a part, for each instance what one rank draws."""
        if self.share is None:
            return torch.randn_like(part)
        shape = self.of, *part.shape[1:]
        return torch.randn(shape, dtype=part.dtype, device=part.device)[self.share]


@dataclass(frozen=True, eq=False)
class Step:
    """The instances of one optimiser step, and their bags where a step is made of whole ones."""

    position: Tensor  # (b,) which instances: positions in `Bags.index`, or among distinct rows
    progress: float
    proportions: Tensor | None = None  # (k, C) of the step's bags
    sizes: Tensor | None = None  # (k,) of the step's bags, in float32
    bag: Tensor | None = None  # (b,) the bag of each instance, as a row of `proportions`
    weight: Tensor | None = None  # (b,) one over the size of that bag
    x: Parts | None = None  # their rows, where they go through the network in one pass
    draw: Draw | None = None  # what is random in their rows, where they are read anew
    unit: Unit = "instances"  # what the positions are of
    typical: bool = False  # whether many steps of the epoch are of this shape

    @property
    def shape(self) -> tuple[int, int]:
        """The number of instances and, where a step is made of whole bags, of bags."""
        return len(self.position), 0 if self.proportions is None else len(self.proportions)

    def pieces(self, most: int) -> list[slice]:
        """Cut the step into pieces of almost equal size: at most `most` instances, at least two."""
        return pieces_of(len(self.position), most)


class Instances:
    """The instances of some bags, available to a device, without the truth.

    With several `ranks`, steps are those of one rank, but with the rows that this rank computes; or
    with all of them, if it `reads_all`.
    """

    ranks: Ranks = ALONE
    reads_all: bool = False  # as what is drawn for rows may depend on the others of the step

    def __init__(self, bags: Bags, feed: Feed) -> None:
        self.bags, self.feed, self.device = bags.without_truth(), feed, feed.device
        self.offsets = torch.from_numpy(bags.offsets).to(self.device)
        self.proportions = torch.from_numpy(bags.proportions).to(self.device)

    @cached_property
    def distinct(self) -> Ints:
        """The distinct rows, in their order."""
        return self.bags.distinct()

    @cached_property
    def inverse(self) -> Tensor:
        """Which of them each instance is, on the device."""
        if not len(self.distinct):  # of a shard
            return self._here(np.empty(0, np.int64))
        number = np.empty(self.distinct[-1] + 1, narrow(len(self.distinct)))
        number[self.distinct] = np.arange(len(self.distinct), dtype=number.dtype)
        return self._here(number[self.bags.index])

    def shard(self, ranks: Ranks) -> Instances:
        """Return the instances of the whole bags that are a rank's to look at."""
        if not ranks.are_several:
            return self
        return Instances(self.bags.shard(ranks.rank, ranks.world), self.feed)

    def confidence(self, net: nn.Module, precision: torch.dtype, most: int) -> Tensor:
        """Compute conf(x, c, f) of every instance (N, C); each distinct row is computed once."""
        found = torch.empty(len(self.distinct), self.bags.n_classes, device=self.device)
        spans = cut(len(found), rows_per_pass(self.feed.parts[0], most, self.device))
        fill_confidence(found, net, self.feed.batches(self.distinct, spans), spans, precision)
        return found.index_select(0, self.inverse)

    def bag_means(self, confidence: Tensor) -> Tensor:
        """Average the rows of each bag: `apportion.metrics.bag_means` on the device."""
        if not self.bags.n_bags:  # of a shard
            return self.proportions
        # torch's stubs know no keyword arguments of this function.
        means: Tensor = torch.segment_reduce(confidence.double(), "mean", offsets=self.offsets)
        return means

    def steps(self, unit: Unit, config: TrainConfig, epoch: int) -> Iterator[Step]:
        """Yield the steps of an epoch. All but x is copied to the device once, not step by step."""
        shuffle = generator(config.seed, Purpose.SHUFFLE, epoch)
        rows = self.distinct if unit == "rows" else self.bags.index
        if unit != "bags":
            ends = even_cuts(len(rows), config.batch_size)
            if config.shuffle == "shard":
                position = self._shuffled_run(ends, config, epoch)
            else:
                position = np.arange(len(rows), dtype=narrow(len(rows)))
                shuffle.shuffle(position)  # as `permutation` does, of numbers half as large
            shapes = [(end - first, 0) for first, end in pairwise(ends)]
        else:
            order = shuffle.permutation(self.bags.n_bags)
            sizes = self.bags.sizes[order]
            cuts = plan(sizes, config.batch_size, config.bags_per_step)
            position = self.bags.positions(order)
            ends = np.append(0, np.cumsum(sizes))[cuts].tolist()
            shapes = list(zip(np.diff(ends).tolist(), np.diff(cuts).tolist(), strict=True))
            within = np.arange(len(order)) - np.repeat(cuts[:-1], np.diff(cuts))  # the step
            bag = self._here(np.repeat(within, sizes))
            weight = self._here(np.repeat(1 / sizes, sizes).astype(np.float32))
            proportions = self.proportions[self._here(order)].float()
            sizes_here = self._here(sizes.astype(np.float32))
        spans, often = list(pairwise(ends)), Counter(shapes)
        one_pass = [n <= config.instances_per_pass * self.ranks.world for n, _ in shapes]
        draw = Draw(config.seed, epoch)
        read: Iterable[tuple[int, int]] = compress(spans, one_pass)
        if self.ranks.are_several:
            read = starmap(self._to_read, read)
        x = self.feed.batches(_narrowed(rows, position), read, draw)
        positions = self._here(position)
        if self.device.type != "cpu":
            positions = positions.long()  # at once, rather than step by step
        for s, (first, end) in enumerate(spans):
            step = Step(
                positions[first:end].long(),
                (epoch - 1 + s / len(spans)) / config.epochs,
                x=next(x) if one_pass[s] else None,
                draw=draw,
                typical=4 * often[shapes[s]] >= len(spans),
                unit=unit,
            )
            if unit == "bags":
                step = replace(
                    step,
                    proportions=proportions[cuts[s] : cuts[s + 1]],
                    sizes=sizes_here[cuts[s] : cuts[s + 1]],
                    bag=bag[first:end],
                    weight=weight[first:end],
                )
            yield step

    def _shuffled_run(self, ends: list[int], config: TrainConfig, epoch: int) -> NDArray[Any]:
        """Return the positions of an epoch in which this rank's shares are a run of its own.

        All runs together are all instances. Those of the other ranks are not known here.
        """
        shares, first = [], 0
        for begin, end in pairwise(ends):
            for piece in pieces_of(end - begin, config.instances_per_pass * self.ranks.world):
                piece = slice(begin + piece.start, begin + piece.stop)
                own, counted = self.ranks.share(piece), self.ranks.counted(piece)
                shares += [own] * bool(counted)
                first += own.start - piece.start if counted else piece.stop - piece.start
        n = ends[-1]
        run = np.arange(first, first + sum(s.stop - s.start for s in shares), dtype=narrow(n))
        generator(config.seed, Purpose.SHUFFLE, epoch, block=self.ranks.rank).shuffle(run)
        position = np.full(n, min(first, n - 1), run.dtype)  # what does not count is its own, too
        taken = 0
        for own in shares:
            position[own] = run[taken : taken + own.stop - own.start]
            taken += own.stop - own.start
        return position

    def pieces(self, step: Step, most: int) -> Iterator[tuple[slice, Parts]]:
        """Yield the rows of a step, piece by piece; where there are several ranks, this one's."""
        pieces = step.pieces(most)
        if step.x is not None and len(pieces) == 1:
            yield pieces[0], step.x
        elif step.x is not None:
            yield from ((piece, tuple(part[piece] for part in step.x)) for piece in pieces)
        else:
            all_rows = self.distinct if step.unit == "rows" else self.bags.index
            rows = all_rows[step.position.cpu().numpy()]
            spans = [self._to_read(piece.start, piece.stop) for piece in pieces]
            yield from zip(pieces, self.feed.batches(rows, spans, step.draw), strict=True)

    def _to_read(self, first: int, end: int) -> tuple[int, int]:
        """Return which rows of a step this rank reads, of those from first to end - 1."""
        if self.reads_all or not self.ranks.are_several:
            return first, end
        own = self.ranks.share(slice(first, end))
        return own.start, own.stop

    def _here(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


def pieces_of(n: int, most: int) -> list[slice]:
    """Cut a step into pieces of almost equal size: at most `most` instances, at least two."""
    if n <= most:
        return [slice(0, n)]
    n_pieces = -(-n // most) if most == 1 else max(min(-(-n // most), n // 2), 1)
    cuts = np.linspace(0, n, n_pieces + 1).astype(int).tolist()
    return [slice(*ends) for ends in pairwise(cuts)]


def narrow(below: int) -> type[np.signedinteger[Any]]:
    """Return the type that takes the least memory for numbers from 0 to below - 1."""
    return np.int32 if below <= 2**31 else np.int64


def _narrowed(rows: Ints, position: NDArray[Any]) -> NDArray[Any]:
    """Return the rows at some positions, in as little memory as can be."""
    found = np.empty(len(position), narrow(int(rows.max(initial=0)) + 1))
    for first, end in cut(len(position), PIECE):
        found[first:end] = rows[position[first:end]]
    return found


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
    for end in cuts[1:]:
        if ends[end - 1] - (ends[kept[-1] - 1] if kept[-1] else 0) > 1:
            kept.append(end)
    if kept[-1] < len(sizes):
        kept[max(len(kept) - 1, 1) :] = [len(sizes)]
    return np.array(kept)


class Shelf:
    """What several trainings share: arrays that are on a device already, by their identity."""

    def __init__(self) -> None:
        self.placed = WeakValueDictionary[int, Tensor]()  # as long as a training uses them
        self.arrays: dict[int, Any] = {}  # kept, so that no other array gets their identity

    def bytes_of(self, parts: tuple[Any, ...], device: torch.device) -> int:
        """Return how many bytes placing the parts would add to the device."""
        new = {id(part): part for part in parts if id(part) not in self.placed}
        return sum(
            int(np.prod(part.shape)) * part.dtype.itemsize
            for part in new.values()
            if not (isinstance(part, Tensor) and part.is_cuda and part.device == device)
        )

    def place(self, part: Any, device: torch.device) -> Tensor:
        """Put an array on the device, once."""
        tensor = self.placed.get(id(part))
        if tensor is None:
            self.arrays[id(part)] = part
            self.placed[id(part)] = tensor = readable_part(part).to(device)
        return tensor


def place(
    several: tuple[Bags, Bags | None, Bags | None],
    device: torch.device,
    *,
    limit: int | None = None,
    shelf: Shelf | None = None,
    workers: int = 0,
) -> tuple[Instances, Instances | None, Instances | None]:
    """Make the instances of bags available to a device; arrays they share are placed once.

    What does not fit into its free memory, or into `limit` bytes, is streamed. The items of a
    Dataset, which sets may share, are read by so many worker processes.
    """
    shelf = shelf or Shelf()
    parts_of = [() if b is None else b.parts for b in several]
    itemwise = {id(b.x): Itemwise(b.x, device, workers) for b in several if b and _has_items(b)}
    left = memory_for(chain(*parts_of), device) if limit is None else limit

    def instances(name: str, bags: Bags, parts: tuple[Any, ...]) -> Instances:
        nonlocal left
        if id(bags.x) in itemwise:
            return Instances(bags, itemwise[id(bags.x)])
        if any(map(is_sparse, parts)):
            for part in parts:
                readable_part(part[:1])  # which raises if a network cannot take it
            return Instances(bags, Streamed(parts, device))
        needed = shelf.bytes_of(parts, device)
        where = f"{_mebibytes(needed)} of {name} instances"
        if needed <= left:
            left -= needed
            if needed and device.type == "cuda":
                log.info("%s stay on %s.", where, device)
            resident = tuple(shelf.place(part, device) for part in parts)
            return Instances(bags, Resident(resident, device))
        log.info("%s are streamed to %s, with room for %s.", where, device, _mebibytes(left))
        return Instances(bags, Streamed(tuple(map(readable_part, parts)), device))

    train, valid, test = (
        None if bags is None else instances(name, bags, parts)
        for name, bags, parts in zip(
            ("training", "validation", "test"), several, parts_of, strict=True
        )
    )
    assert train is not None
    return train, valid, test


def _has_items(bags: Bags) -> bool:
    return isinstance(bags.x, Items)


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
