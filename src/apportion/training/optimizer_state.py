"""The state of an optimiser and a scheduler, as tensors and plain values, and back.

Any optimiser of torch's kind keeps some tensors and numbers for each parameter, and settings for
each group. Which shapes and types they have, only the optimiser itself knows: before a state is
read back, it takes one step of zero gradients, which is undone, and what comes from the disk must
be like what that step left. A scheduler is compared with the new one in the same way. So nothing is
read that the caller's own objects do not have already.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from apportion.errors import ConfigError, RunError, listing
from apportion.runs.header import RESTORE
from apportion.runs.run import Run
from apportion.runs.tensors import check_tensors

__all__ = [
    "changeable",
    "check_trained",
    "load_optimizer",
    "load_settings",
    "named",
    "optimizer_tensors",
    "optimizer_values",
    "plain",
    "restored",
    "settings_of",
    "stepped",
]

HOW = ("fused", "foreach", "capturable")  # how an optimiser computes, which may change with devices
SUMS = ("step", "sum", "exp_inf", "mu_product", "square_avg", "acc_delta", "row_var", "col_var",
        "variance", "exp_avg_sq", "max_exp_avg_sq")  # fmt: skip
COUNTED = (": lr", ": initial_lr", ": last_epoch", ": _step_count")  # never below 0
MAY_OVERFLOW = ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum")  # without harm to a step


def trained(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, nn.Parameter]:
    """Return the parameters of a net that its optimiser trains, by name."""
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return {name: p for name, p in net.named_parameters() if id(p) in own}


def stepped(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, bool]:
    """Return which parameters are trained; false for those that have had no gradient yet."""
    return {name: p in optimizer.state for name, p in trained(net, optimizer).items()}


def _entries(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state of all parameters, as "name of the parameter.name of the entry"."""
    own = trained(net, optimizer)
    known = {id(p) for p in own.values()}
    if any(id(key) not in known for key in optimizer.state):
        raise ConfigError(
            f"{type(optimizer).__name__} has a state that is of no parameter, which a checkpoint "
            "cannot hold.",
            "Leave out run=, or pass another optimiser.",
        )
    return {
        f"{name}.{entry}": value
        for name, p in own.items()
        for entry, value in optimizer.state.get(p, {}).items()
    }


def optimizer_tensors(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors of an optimiser's state, as "name of the parameter.name"."""
    entries = _entries(net, optimizer)
    return {name: value for name, value in entries.items() if isinstance(value, Tensor)}


def optimizer_values(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the rest of an optimiser's state: numbers, and lists of them."""
    return {
        name: plain(value, f"{name} of {type(optimizer).__name__}")
        for name, value in _entries(net, optimizer).items()
        if not isinstance(value, Tensor)
    }


def settings_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the settings of each group, which schedulers change: rates, momentum, betas."""
    return [
        {name: plain(group[name], f"{name} of the optimiser") for name in changeable(group)}
        for group in optimizer.param_groups
    ]


def load_settings(run: Run, optimizer: torch.optim.Optimizer, saved: list[Any]) -> None:
    """Restore the settings of each group after a check; tensors are changed in place."""
    own = [{name: group[name] for name in changeable(group)} for group in optimizer.param_groups]
    found = restored(run, own, saved, "the settings of the optimiser")
    for group, settings in zip(optimizer.param_groups, found, strict=True):
        for name, value in settings.items():
            if isinstance(value, Tensor):
                group[name].copy_(value)
            else:
                group[name] = value


def changeable(group: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings of a group, but those of how its step is computed."""
    return [name for name in group if name not in ("params", "param_names", *HOW)]


def check_trained(
    run: Run, net: nn.Module, optimizer: torch.optim.Optimizer, was: Mapping[str, bool]
) -> None:
    """Check that the same parameters are trained as when a checkpoint was saved."""
    own = trained(net, optimizer)
    for names, once in ((was.keys() - own, "were"), (own.keys() - was, "were not")):
        if names:
            raise RunError(
                f"{run.checkpoint} was saved with other parameters to train: "
                f"{listing(sorted(names))} {once} trained then.",
                "Freeze and unfreeze what was frozen then (requires_grad), or train in another "
                "folder.",
            )


def load_optimizer(
    run: Run,
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, Tensor],
    was: Mapping[str, bool],
    values: Mapping[str, Any] | None = None,
) -> None:
    """Restore the saved state of an optimiser; its settings and the weights stay as they are.

    Fused steps would write beyond tensors that are too short, so all are compared first.

    Raises
    ------
    RunError
        If other parameters were trained, or the state is not that of these.
    """
    check_trained(run, net, optimizer, was)
    _prime(net, optimizer, was)
    entries = _entries(net, optimizer)
    like = {name: value for name, value in entries.items() if isinstance(value, Tensor)}
    kinds = {name: name.rpartition(".")[2] for name in like}
    check_tensors(
        run.checkpoint,
        tensors,
        like,
        problem="has the state of another optimiser",
        remedy=RESTORE,
        finite=[name for name, kind in kinds.items() if kind not in MAY_OVERFLOW],
    )
    for name, kind in kinds.items():
        least = 1 if kind == "step" else 0
        if kind in SUMS and not (tensors[name] >= least).all():
            raise RunError(
                f"{run.checkpoint} is damaged: {name} has values below {least}.", RESTORE
            )
    others = {name: value for name, value in entries.items() if name not in like}
    plains = restored(run, others, dict(values or {}), "the state of the optimiser")
    own = trained(net, optimizer)
    for name, value in entries.items():
        parameter, _, entry = name.rpartition(".")
        if isinstance(value, Tensor):
            value.copy_(tensors[name])  # in memory as the optimiser has it, and on its device
        else:
            optimizer.state[own[parameter]][entry] = plains[name]


@torch.no_grad()
def _prime(net: nn.Module, optimizer: torch.optim.Optimizer, was: Mapping[str, bool]) -> None:
    """Take a step of zero gradients, so that there is a state; the weights stay as they are."""
    own = trained(net, optimizer)
    before = {name: p.detach().clone() for name, p in own.items()}
    for name, p in own.items():
        zeros = torch.zeros_like(p)
        sparse = isinstance(optimizer, torch.optim.SparseAdam)
        p.grad = None if not was[name] else zeros.to_sparse(1) if sparse else zeros
    optimizer.step()
    for name, p in own.items():
        p.copy_(before[name])
        p.grad = None


def plain(value: Any, where: str) -> Any:
    """Return a value as JSON can hold it: numbers, texts, lists, and functions by their names.

    Examples
    --------
    >>> plain({"betas": (0.9, 0.99), "lr": torch.tensor(0.5), "milestones": {30: 1}}, "here")
    {'betas': [0.9, 0.99], 'lr': 0.5, 'milestones': {'30': 1}}
    >>> plain({"buffer": object()}, "the state of the scheduler")
    Traceback (most recent call last):
    apportion.errors.ConfigError: the state of the scheduler: buffer is of type object, which a \
checkpoint cannot hold.
      Leave out run=, or pass one that keeps numbers and tensors alone.
    """
    if isinstance(value, Tensor) and value.ndim == 0:
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(own, f"{where}: {key}") for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [plain(own, where) for own in value]
    if callable(value):
        return named(value)
    raise ConfigError(
        f"{where} is of type {type(value).__name__}, which a checkpoint cannot hold.",
        "Leave out run=, or pass one that keeps numbers and tensors alone.",
    )


def named(function: Any) -> str:
    """Return what a function can be recognised by: its name.

    Examples
    --------
    >>> named(functools.partial(math.hypot, 1)), named(lambda: 1)
    ('hypot', '<lambda>')
    """
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def restored(run: Run, like: Any, saved: Any, where: str) -> Any:
    """Return what `plain` has made of a value, in the types of a value like it.

    Raises
    ------
    RunError
        If the two differ in more than their numbers.
    """
    if callable(like) and not isinstance(like, Tensor):
        return like
    if isinstance(like, Mapping) and isinstance(saved, dict):
        if {str(key) for key in like} == saved.keys():
            own = {k: restored(run, v, saved[str(k)], f"{where}: {k}") for k, v in like.items()}
            return Counter(own) if isinstance(like, Counter) else own
    elif isinstance(like, list | tuple) and isinstance(saved, list):
        if len(like) == len(saved):
            both = zip(like, saved, strict=True)
            return type(like)(restored(run, a, b, where) for a, b in both)
    elif isinstance(like, Tensor):
        return torch.full_like(like, restored(run, like.item(), saved, where))
    elif _alike(like, saved, where):
        return saved
    raise RunError(
        f"{run.checkpoint} is damaged: {where} is {saved!r:.60}, where the one that was passed has "
        f"{like!r:.60}.",
        RESTORE,
    )


def _alike(like: Any, saved: Any, where: str) -> bool:
    """Tell whether a plain value could be that of another moment."""
    if like is None or isinstance(like, bool | str):
        return type(saved) is type(like) and (isinstance(like, bool) or saved == like)
    if type(saved) not in (int, float) or (math.isfinite(like) and not math.isfinite(saved)):
        return False
    return saved >= 0 or not where.endswith(COUNTED)
