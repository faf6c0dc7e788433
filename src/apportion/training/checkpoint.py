"""Checkpoints: everything that a run needs to go on, in one safetensors file.

On the CPU, at the same number of threads, a run goes on to the same bits. On a GPU some of torch's
kernels add in an order of their own, and two runs differ in the last bits as it is.

Tensors are stored under dotted names, and scalars as one JSON text in the file's metadata. Nothing
is pickled, and nothing in a file is ever imported or run: names in it only say where in the
caller's own model, optimiser and method a tensor goes.

The random state is two numbers, seed and epoch, because every random number is a function of them
(`apportion.randomness`). The schedule of the learning rate is a function of the epoch likewise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from apportion.bags.bags import Bags
from apportion.errors import RunError
from apportion.runs.run import FORMAT_VERSION, Run

__all__ = [
    "FORMAT_VERSION",
    "Tensors",
    "fingerprint",
    "load",
    "load_optimizer",
    "optimizer_scalars",
    "optimizer_tensors",
    "save",
]

Tensors = dict[str, Tensor]
SAMPLED_ROWS = 1024


def save(
    run: Run, path: Path, tensors: Mapping[str, Mapping[str, Tensor]], scalars: Mapping[str, Any]
) -> None:
    """Save groups of tensors, and scalars, in the place of what was there before.

    The group "" is for the weights of a model under their own names.
    """
    flat = {
        f"{group}.{name}" if group else name: tensor.detach().cpu().contiguous().clone()
        for group, members in tensors.items()
        for name, tensor in members.items()
    }
    metadata = {"apportion": str(FORMAT_VERSION), "scalars": json.dumps(scalars)}

    with run.replacing(path) as beside:
        try:
            save_file(flat, beside, metadata)
        except SafetensorError as error:  # what the operating system said is in its text alone
            raise OSError(str(error)) from error


def load(path: Path) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """Read what `save` wrote."""
    again = "Restore the file from a copy, or start again in another folder."
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies: a tensor that is still mapped would keep a replaced file on the disk.
            flat = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} is damaged or cut short: {error}.", again) from error
    version = metadata.get("apportion")
    if version is None:
        raise RunError(f"{path} was not saved by apportion.", again)
    if version != str(FORMAT_VERSION):
        raise RunError(
            f"{path} is of format version {version}; this apportion reads {FORMAT_VERSION}.",
            "Use the version of apportion that saved it, or start again in another folder.",
        )
    tensors: dict[str, Tensors] = {}
    for name, tensor in flat.items():
        group, _, member = name.partition(".")
        tensors.setdefault(group, {})[member] = tensor
    return tensors, json.loads(metadata["scalars"])


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Give the tensors of an optimiser's state, as "number of the parameter.name"."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, entry in state.items() for name, value in entry.items()}


def optimizer_scalars(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Give the settings of an optimiser."""
    groups: list[dict[str, Any]] = optimizer.state_dict()["param_groups"]
    return [{**group, "lr": float(group["lr"])} for group in groups]  # a tensor on a GPU


def load_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], groups: list[dict[str, Any]]
) -> None:
    """Put an optimiser into the state that was saved; how it computes stays as it is here."""
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
    """Tell bags from other bags: a hash of all but the truth, of x by a sample of its rows."""
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
