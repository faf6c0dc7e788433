"""Checks of the input of `fit`, before anything is trained or written."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.bags.describe import separability_warning
from apportion.bags.items import Items
from apportion.bags.sparse import is_sparse
from apportion.config import TrainConfig
from apportion.data.constants import check_constants
from apportion.engine.batches import Instances
from apportion.engine.copies import Parts, as_networks_take
from apportion.engine.feed import readable_part
from apportion.errors import BagError, ConfigError, DataError, count
from apportion.plan.kinds import kind_of_instances

log = logging.getLogger("apportion")

CELLS = 2**22  # values that are compared at once


def warn_of_bags(train: Bags) -> None:
    """Warn of bags that classes can barely be told apart from, and of columns that stand for bags.

    Columns of a table were warned of when it was read.
    """
    if said := separability_warning(train):
        log.warning("%s", said)
    # The items of a Dataset would all be read, and sparse columns are 0 in many bags.
    if train.columns is None and not isinstance(train.x, Items) and not is_sparse(train.x):
        check_constants(train, remedy="Leave such columns out of x.", leave_out=False)


def check_differ(bags: Bags) -> None:
    """Check that not all rows of bags are the same, from which nothing can be learned.

    They are read up to the first that differs.
    """
    rows = bags.distinct()
    begin, step = 1, 1
    most = max(CELLS // max(sum(math.prod(part.shape[1:]) for part in bags.parts), 1), 1)
    while begin < len(rows):
        some = rows[begin : begin + step]
        for part in bags.parts:
            if (_bytes_of(part, some) != _bytes_of(part, rows[:1])).any():
                return
        begin, step = begin + step, min(2 * step, most)
    noun = {"images": "image", "signals": "signal"}.get(kind_of_instances(bags), "row")
    if len(rows) == 1:
        raise DataError(
            f"there is 1 {noun} alone: there are no others to tell it apart from.", "Pass more."
        )
    raise DataError(
        f"all {count(len(rows), noun)} are the same: nothing can be learned from them.",
        "Look at what was read. Pixels may all be cut to the largest value, for example."
        if noun == "image"
        else "Look at what was read. Numbers are seen in float32, which has seven digits: subtract "
        "what is large and constant.",
    )


def _bytes_of(part: Any, rows: NDArray[np.int64]) -> Tensor:
    if isinstance(part, Tensor):
        taken = part[torch.from_numpy(rows).to(part.device)].detach()
    else:
        (taken,) = as_networks_take([readable_part(part[rows])])
    # contiguous() would leave strides of axes of length 1 as they are, which view() refuses
    own = taken.cpu().clone(memory_format=torch.contiguous_format)
    return own.reshape(len(rows), -1).view(torch.uint8)


def check_types(net: Any, config: Any, train: Any, valid: Any, test: Any) -> None:
    """Check the types of the arguments of `fit`."""
    if not isinstance(config, TrainConfig):
        raise ConfigError(
            f"config must be a TrainConfig; got {config!r}.",
            'Pass TrainConfig(epochs=…), or TrainConfig.preset("paper") for a preset.',
        )
    if not isinstance(net, nn.Module):
        raise ConfigError(
            f"net must be an nn.Module; got {net!r}.", "apportion.build_net returns one."
        )
    for name, bags in (("train", train), ("valid", valid), ("test", test)):
        if not isinstance(bags, Bags) and (bags is not None or name == "train"):
            raise BagError(
                f"{name} is of type {type(bags).__name__}, not Bags.",
                "Bags.from_rows makes them from rows and one bag id per row.",
            )
        if bags is not None:
            _ = bags.parts  # which raises if there are no rows


def check_functions(optimizer: Any, scheduler: Any, augment: Any, on_epoch: Any) -> None:
    """Check that those arguments of `fit` that are called can be called."""
    made = "lambda parameters: torch.optim.SGD(parameters, lr=0.1)"
    rate = "lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1000)"
    for name, what, given, remedy in (
        ("optimizer", "of parameters", optimizer, f"Pass what makes it: {made}."),
        ("scheduler", "of the optimiser", scheduler, f"Pass what makes it: {rate}."),
        ("augment", "of a batch", augment, "Names go into TrainConfig(augment=…)."),
        ("on_epoch", "of a record and the net", on_epoch, "Pass a function, or leave it out."),
    ):
        if given is not None and not callable(given):
            raise ConfigError(
                f"{name} must be a function {what}; got {type(given).__name__}.", remedy
            )


def is_end(answer: Any, name: str = "on_epoch") -> bool:
    """Tell whether an answer of `on_epoch`, or of a function of another name, ends the training."""
    single = isinstance(answer, Tensor) and answer.dtype is torch.bool and answer.numel() == 1
    if answer is None or single or isinstance(answer, bool | np.bool_):
        return bool(answer)
    raise ConfigError(
        f"{name} must return True to end the training, False or None; got {answer!r:.60}.",
        "Return nothing to go on.",
    )


def check_sets(train: Bags, valid: Bags | None, test: Bags | None) -> None:
    """Check that all bags have the same classes."""
    for name, bags in (("validation", valid), ("test", test)):
        if bags is not None and bags.classes != train.classes:
            raise BagError(
                f"the {name} bags have the classes {bags.classes}, but the training bags "
                f"{train.classes}.",
                "Pass classes= to Bags, so that all have the same in the same order.",
            )
        names = [b.x.names if b and isinstance(b.x, Items) else None for b in (train, bags)]
        if bags is not None and names[0] != names[1]:
            raise BagError(
                f"the {name} instances have parts of the names {names[1]}, but the training "
                f"instances {names[0]}.",
                "Pass Datasets whose items have the same entries in the same order.",
            )


def check_input(
    net: nn.Module, config: TrainConfig, train: Bags, valid: Bags | None, test: Bags | None
) -> None:
    """Check that the arguments of `fit` fit each other."""
    check_sets(train, valid, test)
    if config.patience is not None and valid is None:
        raise ConfigError(
            f"patience is {config.patience}, but there are no validation bags to stop by.",
            "Hold out bags to validate on, or leave patience out.",
        )
    if not any(p.requires_grad for p in net.parameters()):
        raise ConfigError(
            f"{type(net).__name__} has no parameters to train.",
            "Set requires_grad of some to True.",
        )


def _remedy(x: Sequence[Tensor], net: nn.Module, error: Exception) -> str:
    looked_up = [module for module in net.modules() if isinstance(module, nn.Embedding)]
    ids = [part for part in x if not part.is_floating_point()]
    if looked_up and any(part.dtype not in (torch.int32, torch.int64) for part in ids):
        return "Ids of an Embedding must be int64: pass x.astype(numpy.int64)."
    if looked_up and ids and isinstance(error, IndexError):
        has = " or ".join(f"{own.num_embeddings:,}" for own in looked_up[:3])
        least, most = min(int(p.min()) for p in ids), max(int(p.max()) for p in ids)
        return (
            f"Ids must be from 0 to below num_embeddings, which is {has}; these are from "
            f"{least:,} to {most:,}."
        )
    if any(part.is_floating_point() for part in x):
        return (
            "It must take them as they are stored. If they are ids of an Embedding, pass an array "
            "of integers, which stay integers: columns of a DataFrame become float32."
        )
    return (
        "It must take them as they are stored: pass x.astype(numpy.float32), or put the net into "
        "apportion.nets.normalized.Normalized, which turns integers into floating-point numbers."
    )


def check_batch(
    name: str,
    net: nn.Module,
    instances: Instances,
    augment: Callable[[Parts, torch.Generator], Parts] | None = None,
    *,
    classifies: bool = True,
) -> None:
    """Check that instances can be augmented, and that the net returns one logit per class.

    What a net returns that does not classify is not looked at.
    """
    n_classes, rows = instances.bags.n_classes, instances.bags.index[:2]
    (stored,) = instances.feed.batches(rows, [(0, len(rows))])
    x = stored
    if augment is not None:
        try:
            x = augment(stored, torch.Generator(instances.device))
        except Exception as error:
            took = ", ".join(_kind(part) for part in stored)
            error.add_note(f"augment was called with a batch of {name} instances: {took}.")
            raise
    was_training = net.training
    net.eval()
    try:
        with torch.no_grad():
            given = net(*x)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        took = ", ".join(_kind(part) for part in x)
        raise ConfigError(
            f"{type(net).__name__} cannot take {name} instances, a batch of {took}: {error}",
            _remedy(x, net, error),
        ) from error
    finally:
        net.train(was_training)
    wanted = (len(rows), n_classes)
    if not classifies:
        return
    if not isinstance(given, Tensor) or tuple(given.shape) != wanted:
        found = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else str(type(given))
        remedy = f"It must return {n_classes} logits per instance, and nothing else."
        if isinstance(given, Tensor) and len(given) == len(rows):
            head = f"nn.Linear({given[0].numel()}, {n_classes})"
            remedy += f" If these are features: nn.Sequential(net, nn.Flatten(), {head})."
        raise ConfigError(
            f"{type(net).__name__} returns {found} for {len(rows)} instances of {n_classes} "
            f"classes, not {wanted}.",
            remedy,
        )


def _kind(part: Tensor) -> str:
    return f"{tuple(part.shape)} {str(part.dtype).removeprefix('torch.')}"
