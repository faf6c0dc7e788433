"""A linear layer that is learned from proportions in seconds, on features that stay as they are.

They are those of a network of the caller's, or summaries of signals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.bags.items import Items
from apportion.engine.batches import place
from apportion.engine.device import device_for, own_threads
from apportion.errors import BagError, count, listing
from apportion.labels.linear import Linear
from apportion.labels.start import fit_features
from apportion.metrics import accuracy, bag_means, proportion_error
from apportion.nets.build import build_net, move_to
from apportion.nets.summary import summaries
from apportion.training.checks import check_sets, warn_of_bags
from apportion.training.features import Features, bags_of, features_of
from apportion.training.history import History

__all__ = ["Frozen", "fit_frozen", "fit_summaries"]

ROWS_PER_PASS = 1024


class Frozen(NamedTuple):
    """The result of a training."""

    net: nn.Module
    history: History  # of one record


def fit_frozen(
    backbone: nn.Module,
    train: Bags,
    valid: Bags | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
) -> Frozen:
    """Learn a linear layer on what a network returns, by `apportion.labels.start.fit_features`.

    Parameters
    ----------
    backbone : nn.Module
        Maps a batch, called as ``backbone(*x)``, to features (b, …). Its weights stay as they are;
        it becomes a part of the net that is returned: an nn.Sequential of it, nn.Flatten and
        nn.Linear.
    valid : Bags, optional
        Only reported.
    threads : int, optional
        CPU threads; by default as torch is set.

    Examples
    --------
    >>> truth = np.arange(60) % 2
    >>> x = np.random.default_rng(0).normal(size=(60, 3)) + 3 * truth[:, None]
    >>> bags = Bags.from_rows(x, np.arange(60) * (1 + truth) // 20, truth=truth)
    >>> found = fit_frozen(nn.Linear(3, 8), bags, device="cpu")
    >>> found.history["label_accuracy"][0] > 0.9
    True
    """
    check_sets(train, valid, None)
    _check_one_part(backbone, train)

    def with_layer(layer: nn.Linear) -> nn.Module:
        return nn.Sequential(backbone, nn.Flatten(), layer)

    return _fitted(backbone, backbone, with_layer, train, valid, seed, device, threads)


def fit_summaries(
    train: Bags,
    valid: Bags | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
) -> Frozen:
    """Learn a linear layer on summaries of signals, as `fit_frozen` on what a network returns.

    The result is the net "summary" of `apportion.nets.build.build_net`.

    Examples
    --------
    >>> truth = np.arange(300) % 2
    >>> x = np.random.default_rng(0).normal(size=(300, 3, 20)) * (1 + truth[:, None, None])
    >>> bags = Bags.from_rows(x, np.arange(300) * (1 + truth) // 60, truth=truth)
    >>> fit_summaries(bags, device="cpu").history["label_accuracy"][0] > 0.9
    True
    """
    check_sets(train, valid, None)
    net = build_net("summary", train, seed=seed)
    network: Any = net.network

    def features(*x: Tensor) -> Tensor:
        return summaries(*net.prepare(*x))

    def with_layer(layer: nn.Linear) -> nn.Module:
        network.fc = layer
        return net

    return _fitted(net, features, with_layer, train, valid, seed, device, threads)


def _fitted(
    owner: nn.Module,
    features: Features,
    with_layer: Callable[[nn.Linear], nn.Module],
    train: Bags,
    valid: Bags | None,
    seed: int,
    device: str,
    threads: int | None,
) -> Frozen:
    """Learn a layer on features, and make a net of both; the owner computes the features."""
    warn_of_bags(train)
    began, there = time.perf_counter(), device_for(device)
    move_to(there, owner)
    placed = [
        instances for instances in place((train, valid, None), there) if instances is not None
    ]
    with own_threads(threads):
        found = [
            bags_of(features_of(features, owner, instances, ROWS_PER_PASS), instances)
            for instances in placed
        ]
        start = fit_features(found[0], seed=seed)
    record: dict[str, Any] = {"epoch": 1}
    sets = (("", train), *([] if valid is None else [("valid_", valid)]))
    for (name, bags), own in zip(sets, found, strict=True):
        confidence = start.linear.confidence(own.x)[own.index]
        predicted = bag_means(confidence, bags.offsets)
        known = {"": "proportion_error"}.get(name, f"{name}error")
        record[known] = proportion_error(bags.proportions, predicted)
        if bags.truth is not None:
            guessed = confidence.argmax(axis=1) if name else start.labels
            record[f"{name or 'label_'}accuracy"] = accuracy(guessed, bags.truth)
    record["seconds"] = {"train": round(time.perf_counter() - began, 4)}
    net = with_layer(_layer(start.linear)).to(there).eval()
    return Frozen(net, History([record], labels=start.labels))


def _check_one_part(backbone: nn.Module, train: Bags) -> None:
    """Check that instances are single arrays, which is what nn.Sequential passes on."""
    names = train.x.names if isinstance(train.x, Items) else None
    if names or len(train.parts) > 1:
        what = f"named {listing(names)}" if names else "of each instance"
        raise BagError(
            f"{type(backbone).__name__} would take {count(len(train.parts), 'part')} {what}, but a "
            "linear layer is learned on a network of one.",
            "Pass instances of one part, for example one array, which the network takes apart.",
        )


def _layer(linear: Linear) -> nn.Linear:
    """Return a linear model of standardised features as a layer of features as they are."""
    weights = linear.weights / linear.encoding.std[:, None].astype(np.float64)
    bias = linear.bias - linear.encoding.mean.astype(np.float64) @ weights
    layer = nn.Linear(weights.shape[0], weights.shape[1], device="cpu")
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weights.T.copy()))
        layer.bias.copy_(torch.from_numpy(bias))
    return layer
