"""Checks that several processes train the same, and can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.distributed import Ranks
from apportion.errors import ConfigError, Option
from apportion.runs.run import Run
from apportion.training.checkpoint import fingerprint

__all__ = ["check_alike", "check_shared", "check_still_alike"]

MOST_APART = 1e-4  # of the norm of all weights: what ranks may differ by, as machines may round


def check_shared(
    ranks: Ranks, net: nn.Module, method: Any, config: TrainConfig, *, classifies: bool
) -> None:
    """Check that several ranks can train a net by a method together."""
    for name, layer in net.named_modules():
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.sparse:
            raise ConfigError(
                f"the gradients of {name or type(layer).__name__} are sparse, which {ranks.world} "
                "processes cannot sum.",
                "Make it without sparse=True, or train in one process.",
            )
    if not classifies:
        raise ConfigError(
            f"pre-training compares all rows of a step, which {ranks.world} processes share.",
            "Pre-train in one process, with a run folder, and load that: load_pretrained.",
        )
    if config.shuffle == "shard" and method.unit == "bags":
        raise ConfigError(
            "shuffle is 'shard', but the method learns from whole bags, whose means all processes "
            "sum.",
            ("Leave out ", Option("shuffle", "'shard'", "shard"), ", or take a method of labels."),
        )


def check_alike(
    ranks: Ranks,
    sets: Iterable[Bags | None],
    run: str | PathLike[str] | Run | None,
    about: Mapping[str, Any],
) -> None:
    """Check that several ranks train the same, on the same sets of bags, with the same run folder.

    Raises
    ------
    ConfigError
        On the ranks whose bags, or what else is said of the training, are not those of the first.
    """
    sets = list(sets)
    names = ("training bags", "validation bags", "test bags")
    own = {name: fingerprint(bags) for name, bags in zip(names, sets, strict=True)}
    own |= {name: repr(value) for name, value in about.items()}
    own["run folder"] = repr(None if run is None else str(getattr(run, "folder", run)))
    own["known truths"] = repr([bags is not None and bags.truth is not None for bags in sets])
    for name, theirs in ranks.told(own).items():
        if own[name] != theirs:
            are = "are not those" if name.endswith("s") else "is not that"
            raise ConfigError(
                f"the {name} of process {ranks.rank} of {ranks.world} {are} of process 0.",
                "All processes must read the same data in the same order, draw with the same "
                "seeds, and pass the same arguments, also those that only the first one uses.",
            )
    ranks.wait()  # none begins where another does not


def check_still_alike(ranks: Ranks, net: nn.Module, epoch: int) -> None:
    """Check that several ranks train the same weights, and still have the same after an epoch.

    All change them by the same gradients: they are others only if a function of the caller, such
    as `on_epoch`, has done something in one rank that it has not done in all.

    Raises
    ------
    ConfigError
        On the ranks that differ from the first.
    """
    if not ranks.are_several:
        return
    trained = [weight.requires_grad for weight in net.parameters()]
    weights = [weight.detach() for weight in net.parameters() if weight.requires_grad]
    norms = [float(torch.linalg.vector_norm(weight)) for weight in weights]
    known, their_norms = ranks.told([trained, norms])
    most = MOST_APART * float(np.linalg.norm(np.nan_to_num(their_norms, posinf=0)))
    if trained != known:
        what = "weights to train"
    elif not np.allclose(norms, their_norms, rtol=0, atol=most, equal_nan=True):
        what = "weights"
    else:
        ranks.wait()  # none goes on where another does not
        return
    raise ConfigError(
        f"the {what} of process {ranks.rank} of {ranks.world} are not those of process 0 after "
        f"epoch {epoch}.",
        "Pass all processes the same optimizer and scheduler. on_epoch is called in the first one "
        "alone, and may change neither the net nor its optimiser: scheduler= changes a learning "
        "rate.",
    )
