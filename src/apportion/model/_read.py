"""What the file of a model says, checked before memory is taken for the net."""

from __future__ import annotations

import math
import operator
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apportion.engine.copies import as_networks_take
from apportion.errors import ApportionError, Option, RunError, count
from apportion.model.learner import read_learner
from apportion.nets.build import from_recipe
from apportion.nets.recipe import groups_of
from apportion.runs.header import RESTORE, columns_of
from apportion.runs.run import Run, check_classifies, planned
from apportion.runs.tensors import check_tensors, is_finite

Net = nn.Module | Callable[[], nn.Module]


def checked_parts(parts: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Check what one instance is."""
    try:
        checked = tuple(
            {"shape": [*map(_length, part["shape"])], "dtype": np.dtype(str(part["dtype"])).name}
            | ({"name": _name(part["name"])} if "name" in part else {})
            for part in parts
        )
        for part in checked:
            torch.from_numpy(np.zeros(0, part["dtype"]))  # if torch has this type
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"parts is {parts!r:.60}: {type(error).__name__} {error}.",
            'Pass one mapping per part, such as {"shape": [3, 32, 32], "dtype": "uint8"}.',
        ) from error
    if not checked:
        raise RunError("parts is empty.", "Describe at least one part of an instance.")
    return checked


def _length(value: Any) -> int:
    n = operator.index(value)
    if isinstance(value, bool) or not 0 <= n < 2**31:
        raise ValueError(f"{value!r:.60} is the length of no axis")
    return n


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is no name of a part")
    return value


def model_of(folder: Path, *, last: bool) -> Path:
    """Return the file of the selected model of a run, which must have ended, or of the last."""
    run = Run(folder)
    settings = run.settings()
    check_classifies(run, settings)
    path = run.checkpoint if last else run.model
    total, unit = planned(settings)
    if last and unit == "net":
        raise RunError(
            f"{run.folder} {'averages' if total > 1 else 'learns'} {count(total, 'net')}: it has a "
            "model at its end, not before.",
            ("Leave out ", Option("last"), "."),
        )
    if not path.is_file():
        in_python = f"fit with the same arguments and run={str(run.folder)!r}"
        by_command = f"apportion train --resume {shlex.quote(str(run.folder))}"
        so_far = ("Pass ", Option("last"), " to take the weights so far.")
        raise RunError(
            f"{run.folder} is not finished: {len(run.records())} of {count(total, unit)} "
            f"are done, and {'there is no checkpoint' if last else 'no model is selected'} "
            "yet.",
            *([so_far] if run.checkpoint.is_file() and unit == "epoch" else []),
            f"Continue it: {by_command if 'data' in settings else in_python}",
        )
    return path


def check_header(path: Path, header: Mapping[str, Any], remedy: str) -> None:
    """Check what a file says of its model, except the recipe of the net."""
    try:
        classes, epoch = header["classes"], header["epoch"]
        if not isinstance(classes, list) or not classes:
            raise TypeError(f"classes is {classes!r:.60}.")
        if not all(isinstance(name, bool | int | float | str | None) for name in classes):
            raise TypeError(f"classes are {classes!r:.60}.")
        if len(set(classes)) < len(classes):
            raise TypeError("a class is named twice.")
        if any(isinstance(name, float) and not math.isfinite(name) for name in classes):
            raise TypeError("a class is a number that is not finite.")
        if not (epoch is None or (type(epoch) is int and 1 <= epoch < 2**53)):
            raise TypeError(f"epoch is {epoch!r:.60}.")
        _check_prevalence(header["prevalence"], len(classes))
        parts, columns = checked_parts(header["parts"]), columns_of(header)
        if columns is not None:
            codes = [[len(columns.codes)]] if columns.codes else []
            if [part["shape"] for part in parts] != [[columns.n_numbers], *codes]:
                raise TypeError("the columns are not those of the parts.")
    except (KeyError, TypeError, RunError) as error:
        problem = f"lacks {error}." if isinstance(error, KeyError) else str(error).split("\n")[0]
        raise RunError(f"{path} has a damaged header: {problem}", remedy) from error


def _check_prevalence(prevalence: Any, n_classes: int) -> None:
    if prevalence is None:
        return
    numbers = isinstance(prevalence, list) and all(type(share) is float for share in prevalence)
    if not numbers or len(prevalence) != n_classes or not all(0 <= p <= 1 for p in prevalence):
        raise TypeError(f"prevalence is {prevalence!r:.60}.")
    if abs(sum(prevalence) - 1) > 1e-3:
        raise TypeError(f"prevalence sums to {sum(prevalence):g}.")


def net_for(
    path: Path, header: Mapping[str, Any], net: Net | None, weights: Mapping[str, Tensor]
) -> nn.Module:
    """Return the net with the weights of a file, after a check that it is the one."""
    recipe = header.get("recipe")
    if net is None and isinstance(recipe, dict) and recipe.get("net") == "learner":
        return read_learner(path, header, weights)
    made = _built(path, header, len(weights)) if net is None else _given(net)
    own = made.state_dict()
    masks = [name for name, value in own.items() if not value.is_meta and not is_finite(value)]
    try:
        check_tensors(
            path,
            weights,
            own,
            problem="has the weights of another net",
            remedy="Pass a net like the one that was trained." if net is not None else RESTORE,
            finite=[name for name in own if name not in masks],
        )
    except RunError:
        if net is None:  # the recipe may be the reason
            _check_shapes(path, header, made)
        raise
    if net is None:
        made = from_recipe(header["recipe"])
    made.load_state_dict(weights)
    if net is None:
        _check_shapes(path, header, made)
    return made


def _built(path: Path, header: Mapping[str, Any], n_weights: int) -> nn.Module:
    """Build the net of a recipe without memory."""
    recipe = header.get("recipe")
    if recipe is None:
        raise RunError(
            f"{path} has the weights of a net that is none of apportion's.",
            "Load it in Python: Model.load(path, net=…) takes a net like the one that was "
            "trained, or a function that makes one; it has predict and to_onnx.",
        )
    with _checking_recipe(path):
        nets = [net for group in groups_of(recipe) for net in group if isinstance(net, dict)]
        hidden = [net["hidden"] for net in nets if isinstance(net.get("hidden"), list)]
        if (layers := sum(map(len, hidden))) > n_weights:
            raise ValueError(f"{layers:,} layers have {n_weights:,} weights")
        return from_recipe(recipe, device="meta")


def _check_shapes(path: Path, header: Mapping[str, Any], net: nn.Module) -> None:
    """Check that a net maps instances to classes, by 0 instances, which take no memory."""
    n_classes, device = len(header["classes"]), next(iter(net.state_dict().values())).device
    with _checking_recipe(path), torch.no_grad():
        x = (torch.empty((0, *own["shape"]), dtype=getattr(torch, own["dtype"]), device=device)
             for own in checked_parts(header["parts"]))  # fmt: skip
        shape = tuple(net.eval()(*as_networks_take(x)).shape)
        if shape != (0, n_classes):
            raise ValueError(f"an instance has logits of shape {shape[1:]} for {n_classes} classes")


@contextmanager
def _checking_recipe(path: Path) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError, RuntimeError, ApportionError) as error:
        problem = str(error).partition("\n")[0].rstrip(".")
        raise RunError(
            f"{path} has the recipe of no net for its instances and classes: {problem}.",
            RESTORE,
        ) from error


def _given(net: Net) -> nn.Module:
    try:
        made = net if isinstance(net, nn.Module) else net()
    except TypeError as error:
        raise RunError(
            f"net cannot be called without arguments: {error}.",
            "Pass a net like the one that was trained, or a function without arguments that makes "
            "one: the data that it was built for are not there any more.",
        ) from error
    if not isinstance(made, nn.Module):
        raise RunError(
            f"net returned a {type(made).__name__}.", "The function must return an nn.Module."
        )
    return made
