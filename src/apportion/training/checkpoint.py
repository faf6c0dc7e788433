"""Checkpoints: everything that a run needs to continue, in one safetensors file.

On the CPU, with the same number of threads, a continued run is bit-identical. On a GPU some of
torch's kernels add in no fixed order, and even two equal runs differ in the last bits.

Tensors are stored under dotted names, and everything else in the file's header
(`apportion.runs.header`). Nothing is pickled, and nothing in a file is ever imported or run: names
in it only say where in the caller's own model, optimiser and method a tensor goes.

The random state is two numbers, seed and epoch, because every random number is a function of them
(`apportion.randomness`). The schedule of the configuration is a function of the epoch likewise; an
optimiser or scheduler of the caller's keeps its settings and its state in the header.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from apportion.bags.bags import Bags
from apportion.bags.items import Items
from apportion.bags.sparse import is_sparse
from apportion.config import MOST_THREADS
from apportion.errors import RunError, count
from apportion.runs.header import RESTORE, metadata, opened, seal
from apportion.runs.run import Run
from apportion.training.history import BY_CALLER

__all__ = [
    "Tensors",
    "check_header",
    "fingerprint",
    "load",
    "save",
]

Tensors = dict[str, Tensor]
KIND = "checkpoint"
SAMPLED_ROWS = 1024
SAMPLED_ITEMS = 16  # of a Dataset, which may be slow


def save(run: Run, tensors: Mapping[str, Mapping[str, Tensor]], content: Mapping[str, Any]) -> None:
    """Save groups of tensors, and a header, as the checkpoint of a run."""
    flat = {
        f"{group}.{name}": tensor.detach().cpu().contiguous().clone()
        for group, members in tensors.items()
        for name, tensor in members.items()
    }
    with run.replacing(run.checkpoint) as beside:
        save_file(flat, beside, metadata(KIND, content))
        seal(beside)


def load(run: Run) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """Read the groups of tensors and the header that `save` wrote."""
    tensors: dict[str, Tensors] = {}
    with opened(run.checkpoint, KIND, framework="pt") as (file, header):
        for name in file.keys():  # noqa: SIM118
            group, _, member = name.partition(".")
            # Copies: a tensor that is still mapped would keep a replaced file on the disk.
            tensors.setdefault(group, {})[member] = file.get_tensor(name).clone()
    return tensors, header


def check_header(run: Run, header: Mapping[str, Any]) -> None:
    """Check the types and the ranges of what a checkpoint says beside its tensors.

    Raises
    ------
    RunError
        If a value is missing or makes no sense.
    """
    for name, (words, holds) in HEADER.items():
        if name not in header or not holds(header[name]):
            found = f"is {header[name]!r:.60}" if name in header else "is missing"
            raise RunError(f"{run.checkpoint} is damaged: {name} {found}, not {words}.", RESTORE)
    if (header["best_epoch"] or 0) > header["epoch"]:
        of = f"{header['best_epoch']} is selected, of {count(header['epoch'], 'epoch')}"
        raise RunError(f"{run.checkpoint} is damaged: epoch {of}.", RESTORE)
    if (header["best_epoch"] is None) != (header["best_error"] is None):
        raise RunError(f"{run.checkpoint} is damaged: best_epoch and best_error differ.", RESTORE)


def _is_whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _are_trained(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(stepped, bool) for stepped in value.values())


def _is_state(value: Any) -> bool:
    kinds = {"settings": list, "values": dict, "scheduler": dict | None}
    return (
        isinstance(value, dict)
        and value.keys() == kinds.keys()
        and all(isinstance(value[name], kind) for name, kind in kinds.items())
    )


HEADER: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "epoch": ("an integer ≥ 1", lambda v: _is_whole(v, 1, 2**53)),
    "best_epoch": ("an integer ≥ 1 or null", lambda v: v is None or _is_whole(v, 1, 2**53)),
    "best_error": ("from 0 to 1 or null", lambda v: v is None or (type(v) is float and 0 <= v < 2)),
    "threads": (f"from 1 to {MOST_THREADS}", lambda v: _is_whole(v, 1, MOST_THREADS)),
    "trained": ("true or false by parameter", _are_trained),
    "ended": ("null or 'on_epoch'", lambda v: v is None or v == BY_CALLER),
    "optimizer": ("null or an object", lambda v: v is None or _is_state(v)),
    "identity": ("an object", lambda v: isinstance(v, dict)),
}


def fingerprint(bags: Bags | None) -> str:
    """Return a hash of all fields but the truth, which uses a sample of the rows of x."""
    if bags is None:
        return ""
    digest = hashlib.sha256()
    for array in (bags.index, bags.offsets, bags.proportions, bags.counts):
        digest.update(np.ascontiguousarray(array).data)
    digest.update(repr((bags.classes, bags.ids)).encode())
    if isinstance(bags.x, Items):
        digest.update(_told_of(bags.x))
        return digest.hexdigest()
    sample = np.unique(np.linspace(0, bags.n_rows - 1, SAMPLED_ROWS).astype(np.int64))
    for part in bags.parts:
        digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
        if is_sparse(part):
            some = part[sample]
            for array in (some.data, some.indices, some.indptr):
                digest.update(np.ascontiguousarray(array).tobytes())
        elif isinstance(part, Tensor):  # as bytes: numpy does not have all of torch's types
            rows = part[torch.from_numpy(sample).to(part.device)].cpu().contiguous()
            digest.update(rows.view(torch.uint8).numpy().tobytes())
        else:
            digest.update(np.ascontiguousarray(part[sample]).tobytes())
    return digest.hexdigest()


def _told_of(items: Items) -> bytes:
    """Return what tells a Dataset from others: names, shapes and types, and a sample of its items.

    Items that differ when they are read again, by a generator that the Dataset keeps to itself,
    tell nothing.
    """
    told = [f"{items.names}{part.dtype}{part.shape}".encode() for part in items.parts]
    sample = np.unique(np.linspace(0, len(items) - 1, SAMPLED_ITEMS).astype(np.int64))
    for part in items.parts:
        once, again = (part[sample].tobytes() for _ in range(2))
        told += [once] if once == again else []
    return b"".join(told)
