"""Rows that are the items of a Dataset: read and stacked here, or by the workers of a DataLoader.

The workers stay for all of a training. A batch is the same whoever reads it, since what an item
draws at random depends on seed, epoch and rows alone. On a GPU batches arrive through pinned
memory, on a stream of their own, while it computes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

from apportion.bags.items import Draw, Items, stacked
from apportion.engine.copies import Copies, Parts
from apportion.engine.generators import OwnGenerators
from apportion.errors import ApportionError, RunError

__all__ = ["Itemwise", "taken_by_name"]

Ints = NDArray[np.int64]

AHEAD = 2  # batches per worker that are read before they are needed


class Request(NamedTuple):
    """A batch to be read."""

    rows: Ints
    draw: Draw | None


class Itemwise:
    """Rows that are the items of a Dataset."""

    def __init__(self, items: Items, device: torch.device, workers: int = 0) -> None:
        self.items, self.device, self.workers = items, device, workers
        self.names: tuple[str, ...] | None = items.names
        self.parts: Sequence[Any] = items.parts
        self.copies = Copies(device)
        self.pool: list[_Workers] = []  # several where batches are read within others

    def batches(
        self, rows: Ints, spans: Iterable[tuple[int, int]], draw: Draw | None = None
    ) -> Iterator[Parts]:
        """Yield the rows of one span after the other; with `draw`, as they are trained on."""
        requests = [Request(rows[first:end], draw) for first, end in spans]
        sent: deque[Any] = deque()
        for parts in self._read(requests):
            sent.append(self.copies.send(parts))
            if len(sent) > self.copies.ahead:
                yield self.copies.arrived(*sent.popleft())
        while sent:
            yield self.copies.arrived(*sent.popleft())

    def _read(self, requests: list[Request]) -> Iterator[Parts]:
        if not self.workers or len(requests) < 2:  # not worth processes
            for request in requests:
                with OwnGenerators.turn:  # which other runs draw from too
                    parts = read_batch(self.items, request)
                yield self.copies.pinned(parts)
            return
        workers = next((own for own in self.pool if not own.busy), None)
        if workers is None:
            workers = _Workers(self.items, self.workers, self.device)
            self.pool.append(workers)
        yield from workers.read(requests)

    def close(self) -> None:
        """End the worker processes."""
        for workers in self.pool:
            workers.close()
        self.pool.clear()


class _Workers:
    """Processes that read batches, one sequence of them at a time."""

    def __init__(self, items: Items, n: int, device: torch.device) -> None:
        self.orders, self.busy = _Requests(), False
        self.loader: Any = DataLoader(
            _Reader(items),
            batch_size=None,  # a request is a whole batch
            sampler=self.orders,
            num_workers=n,
            collate_fn=_as_it_is,
            pin_memory=device.type == "cuda",
            prefetch_factor=AHEAD,
            persistent_workers=True,
            generator=torch.Generator(),  # it draws a seed, which must not be one of the run's
        )
        self.iterator: Any = None

    def read(self, requests: Sequence[Request]) -> Iterator[Parts]:
        """Yield batches in their order."""
        self.busy, self.orders.requests = True, requests
        try:
            self.iterator = iter(self.loader)
            for _ in requests:
                parts = self._next()
                if isinstance(parts, ApportionError):
                    raise parts
                yield parts
        finally:
            self.busy = False

    def _next(self) -> Any:
        try:
            return next(self.iterator)
        except RuntimeError as error:
            if "exited unexpectedly" not in str(error):
                raise
            raise RunError(
                "a process that reads the Dataset was ended from outside, for example for want of "
                "memory.",
                "Run again: a training with a run folder goes on from its last checkpoint. Fewer "
                "workers, or none, take less memory.",
            ) from error

    def close(self) -> None:
        """End the processes, also where the traceback of an error still has the iterator."""
        end = getattr(self.iterator, "_shutdown_workers", None)
        self.loader = self.iterator = None
        if end is not None:
            end()


class _Requests(Sequence[Request]):
    """What the workers are to read next."""

    requests: Sequence[Request] = ()

    def __len__(self) -> int:
        return len(self.requests)

    def __getitem__(self, number: Any) -> Any:
        return self.requests[number]


class _Reader(Dataset[Any]):
    """Reads requests, in a worker."""

    def __init__(self, items: Items) -> None:
        self.items = items

    def __getitem__(self, request: Request) -> Parts | ApportionError:
        try:
            return read_batch(self.items, request)
        except ApportionError as error:  # which a DataLoader would wrap in its own words
            return error


def read_batch(items: Items, request: Request) -> Parts:
    """Read items, and stack each of their parts as a DataLoader does."""
    read = items.read(*request)
    return tuple(
        stacked(default_collate, [own[number] for own in read], request.rows)
        for number in range(len(items.parts))
    )


def _as_it_is(batch: Any) -> Any:
    return batch


@contextmanager
def taken_by_name(net: nn.Module, names: tuple[str, ...] | None) -> Iterator[None]:
    """Pass parts that have names to a net as keyword arguments: ``net(*x)`` is ``net(**item)``.

    The nets of this library, which have a recipe, take parts by position.
    """
    if names is None or getattr(net, "recipe", None) is not None:
        yield
        return

    def named(_: nn.Module, x: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
        return ((), {**dict(zip(names, x, strict=True)), **given}) if x else (x, given)

    hook = net.register_forward_pre_hook(named, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
