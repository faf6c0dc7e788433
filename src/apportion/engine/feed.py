"""Where the rows of x come from: the device that holds them, or a stream to it.

Data that fit stay on the device as they are stored; a batch is gathered there. Data that do not are
read where they lie, in host memory or a mapped file, by a thread that is a few batches ahead; on a
GPU they travel through pinned buffers on a stream of their own while it computes. Both yield
the same batches. Sparse rows become dense a batch at a time. The items of a Dataset are read as it
reads them (`apportion.engine.items`).
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apportion.bags.items import Draw
from apportion.bags.sparse import is_sparse
from apportion.engine.copies import Copies, Parts, as_networks_take
from apportion.engine.items import Itemwise
from apportion.errors import BagError

__all__ = ["Feed", "Resident", "Streamed", "readable_part"]

Ints = NDArray[np.int64]

AHEAD = 3  # batches that are read before they are needed


class Resident:
    """Rows on the device that computes."""

    names = None  # of parts, by which a net takes them

    def close(self) -> None:
        """Do nothing: there are no processes to end."""

    def __init__(self, parts: Parts, device: torch.device) -> None:
        self.parts, self.device = parts, device

    def batches(
        self,
        rows: Ints,
        spans: Iterable[tuple[int, int]],
        draw: Draw | None = None,  # noqa: ARG002 (for items, which are read anew in every epoch)
    ) -> Iterator[Parts]:
        """Yield the rows of one span after the other; a span is a first place in `rows` and an end.

        The row numbers are copied to the device once, not batch by batch.
        """
        on_device = readable_part(rows).to(self.device)
        for first, end in spans:
            some = on_device[first:end]
            yield as_networks_take(part.index_select(0, some) for part in self.parts)


class Streamed:
    """Rows that are read where they lie, ahead of their use."""

    names = None

    def close(self) -> None:
        """Do nothing: the reader ends with its batches."""

    def __init__(self, parts: Sequence[Any], device: torch.device) -> None:
        self.parts, self.device = parts, device
        self.copies = Copies(device)

    def batches(
        self,
        rows: Ints,
        spans: Iterable[tuple[int, int]],
        draw: Draw | None = None,  # noqa: ARG002 (for items, which are read anew in every epoch)
    ) -> Iterator[Parts]:
        """Yield the rows of one span after the other."""
        with ThreadPoolExecutor(1, "apportion-reader") as reader:
            reads: deque[Future[tuple[Parts, Any]]] = deque()
            for first, end in spans:
                reads.append(reader.submit(self._read, rows[first:end]))
                if len(reads) > AHEAD:
                    yield self.copies.arrived(*reads.popleft().result())
            while reads:
                yield self.copies.arrived(*reads.popleft().result())

    def _read(self, rows: Ints) -> tuple[Parts, Any]:
        """Read rows; on a GPU, start their copies and return the event of their arrival."""
        on_gpu = self.device.type == "cuda"
        return self.copies.send(tuple(_taken(part, rows, pinned=on_gpu) for part in self.parts))


Feed = Resident | Streamed | Itemwise


def _taken(part: Any, rows: Ints, *, pinned: bool) -> Tensor:
    """Copy rows into a buffer."""
    if is_sparse(part):
        dense = readable_part(part[rows])
        return dense.pin_memory() if pinned else dense
    buffer = torch.empty((len(rows), *part.shape[1:]), dtype=part.dtype, pin_memory=pinned)
    try:  # numpy stays in this thread, torch would take those that compute; "clip" spares a copy
        np.take(part.numpy(), rows, axis=0, out=buffer.numpy(), mode="clip")
    except TypeError:  # but it does not have all of torch's types and devices
        buffer.copy_(part[torch.from_numpy(rows).to(part.device)])
    return buffer


def readable_part(part: Any) -> Tensor:
    """Return an array as a tensor, without a copy where torch can read it, as in a mapped file.

    Sparse rows become dense.
    """
    if isinstance(part, Tensor):
        return part.detach()
    if is_sparse(part):
        part = part.toarray()
    array = np.ascontiguousarray(part)
    if array.dtype.kind not in "fiub":
        raise BagError(
            f"x is of type {array.dtype}, which a network cannot take.",
            "Encode it as numbers first, for example float32, uint8 or int64.",
        )
    if array.dtype.itemsize > 8 or not array.dtype.isnative:  # torch does not have these
        array = array.astype(
            np.float64 if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
        )
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():  # torch warns of arrays it may not write to; it only reads
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
