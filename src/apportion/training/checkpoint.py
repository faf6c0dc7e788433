"""Checkpoints: everything that a run needs to continue, in one safetensors file.

On the CPU, with the same number of threads, a continued run is bit-identical. On a GPU some of
torch's kernels add in no fixed order, and even two equal runs differ in the last bits.

Tensors are stored under dotted names, and everything else in the file's header
(`apportion.runs.header`). Nothing is pickled, and nothing in a file is ever imported or run: names
in it only say where in the caller's own model, optimiser and method a tensor goes.

The random state is two numbers, seed and epoch, because every random number is a function of them
(`apportion.randomness`). The schedule of the learning rate is a function of the epoch likewise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.bags.items import Items
from apportion.bags.sparse import is_sparse
from apportion.config import MOST_THREADS
from apportion.errors import RunError, count, listing
from apportion.runs.header import RESTORE, metadata, opened, seal
from apportion.runs.run import Run
from apportion.runs.tensors import check_tensors

__all__ = [
    "Tensors",
    "check_header",
    "check_optimizer",
    "fingerprint",
    "load",
    "load_optimizer",
    "optimizer_tensors",
    "save",
    "stepped",
]

Tensors = dict[str, Tensor]
KIND = "checkpoint"
SAMPLED_ROWS = 1024
SAMPLED_ITEMS = 16  # of a Dataset, which may be slow
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # the state of AdamW for each parameter


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


HEADER: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "epoch": ("an integer ≥ 1", lambda v: _is_whole(v, 1, 2**53)),
    "best_epoch": ("an integer ≥ 1 or null", lambda v: v is None or _is_whole(v, 1, 2**53)),
    "best_error": ("from 0 to 1 or null", lambda v: v is None or (type(v) is float and 0 <= v < 2)),
    "threads": (f"from 1 to {MOST_THREADS}", lambda v: _is_whole(v, 1, MOST_THREADS)),
    "trained": ("true or false by parameter", _are_trained),
    "identity": ("an object", lambda v: isinstance(v, dict)),
}


def trained(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, nn.Parameter]:
    """Return the parameters of a net that its optimiser trains, by name."""
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return {name: p for name, p in net.named_parameters() if id(p) in own}


def stepped(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, bool]:
    """Return which parameters are trained; false for those that have had no gradient yet."""
    return {name: p in optimizer.state for name, p in trained(net, optimizer).items()}


def optimizer_tensors(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors of an optimiser's state, as "name of the parameter.name"."""
    return {
        f"{name}.{entry}": value
        for name, p in trained(net, optimizer).items()
        for entry, value in optimizer.state.get(p, {}).items()
    }


def check_optimizer(
    run: Run,
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, Tensor],
    was: Mapping[str, bool],
) -> None:
    """Check the saved state of AdamW, whose fused steps would write beyond tensors that are short.

    Raises
    ------
    RunError
        If other parameters were trained, or the state is not that of these.
    """
    own = trained(net, optimizer)
    for names, once in ((was.keys() - own, "were"), (own.keys() - was, "were not")):
        if names:
            raise RunError(
                f"{run.checkpoint} was saved with other parameters to train: "
                f"{listing(sorted(names))} {once} trained then.",
                "Freeze and unfreeze what was frozen then (requires_grad), or train in another "
                "folder.",
            )
    like = {
        f"{name}.{entry}": torch.zeros((), device="meta") if entry == "step" else own[name]
        for name in own
        for entry in MOMENTS
        if was[name]
    }
    finite = [name for name in like if not name.endswith(".exp_avg_sq")]  # which may overflow
    check_tensors(
        run.checkpoint,
        tensors,
        like,
        problem="has the state of another optimiser",
        remedy=RESTORE,
        finite=finite,
    )
    for name in like:
        least = 1 if name.endswith(".step") else 0
        if not name.endswith(".exp_avg") and not (tensors[name] >= least).all():
            raise RunError(
                f"{run.checkpoint} is damaged: {name} has values below {least}.", RESTORE
            )


def load_optimizer(
    net: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Restore the saved state of AdamW after a check; its settings stay as they are here."""
    own = trained(net, optimizer)
    for key, value in tensors.items():
        name, _, entry = key.rpartition(".")
        p = own[name]
        # In memory as the parameter is: fused steps read both from end to end.
        place = torch.zeros_like(p, requires_grad=False) if entry != "step" else value.to(p.device)
        optimizer.state[p][entry] = place.copy_(value)


def fingerprint(bags: Bags | None) -> str:
    """Return a hash of all fields but the truth, which uses a sample of the rows of x."""
    if bags is None:
        return ""
    digest = hashlib.sha256()
    for array in (bags.index, bags.offsets, bags.proportions, bags.counts):
        digest.update(np.ascontiguousarray(array).tobytes())
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
