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
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from apportion.bags.bags import Bags
from apportion.runs.header import metadata, opened
from apportion.runs.run import Run

__all__ = [
    "Tensors",
    "fingerprint",
    "load",
    "load_optimizer",
    "optimizer_scalars",
    "optimizer_tensors",
    "save",
]

Tensors = dict[str, Tensor]
KIND = "checkpoint"
SAMPLED_ROWS = 1024


def save(run: Run, tensors: Mapping[str, Mapping[str, Tensor]], content: Mapping[str, Any]) -> None:
    """Save groups of tensors, and a header, as the checkpoint of a run."""
    flat = {
        f"{group}.{name}": tensor.detach().cpu().contiguous().clone()
        for group, members in tensors.items()
        for name, tensor in members.items()
    }
    with run.replacing(run.checkpoint) as beside:
        save_file(flat, beside, metadata(KIND, content))


def load(run: Run) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """Read the groups of tensors and the header that `save` wrote."""
    tensors: dict[str, Tensors] = {}
    with opened(run.checkpoint, KIND, framework="pt") as (file, header):
        for name in file.keys():  # noqa: SIM118
            group, _, member = name.partition(".")
            # Copies: a tensor that is still mapped would keep a replaced file on the disk.
            tensors.setdefault(group, {})[member] = file.get_tensor(name).clone()
    return tensors, header


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors of an optimiser's state, as "number of the parameter.name"."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, entry in state.items() for name, value in entry.items()}


def optimizer_scalars(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the settings of an optimiser."""
    groups: list[dict[str, Any]] = optimizer.state_dict()["param_groups"]
    return [{**group, "lr": float(group["lr"])} for group in groups]  # a tensor on a GPU


def load_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], groups: list[dict[str, Any]]
) -> None:
    """Restore the saved state of an optimiser; how it computes stays as it is here."""
    here = [{**group} for group in optimizer.param_groups]
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        i, _, name = key.partition(".")
        state.setdefault(int(i), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    for group, own in zip(optimizer.param_groups, here, strict=True):
        group["capturable"] = own["capturable"]
        if isinstance(own["lr"], Tensor):
            group["lr"] = own["lr"].fill_(group["lr"])


def fingerprint(bags: Bags | None) -> str:
    """Return a hash of all fields but the truth, which uses a sample of the rows of x."""
    if bags is None:
        return ""
    digest = hashlib.sha256()
    for array in (bags.index, bags.offsets, bags.proportions, bags.counts):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr((bags.classes, bags.ids)).encode())
    sample = np.unique(np.linspace(0, bags.n_rows - 1, SAMPLED_ROWS).astype(np.int64))
    for part in bags.parts:
        digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
        if isinstance(part, Tensor):  # as bytes: numpy does not have all of torch's types
            rows = part[torch.from_numpy(sample).to(part.device)].cpu().contiguous()
            digest.update(rows.view(torch.uint8).numpy().tobytes())
        else:
            digest.update(np.ascontiguousarray(part[sample]).tobytes())
    return digest.hexdigest()
