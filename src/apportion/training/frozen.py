"""A network that stays as it is, below a linear layer that is learned from proportions: seconds."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.bags.items import Items
from apportion.engine.batches import Instances, place
from apportion.engine.device import device_for, own_threads
from apportion.errors import BagError, ConfigError, count, listing
from apportion.labels.linear import Linear
from apportion.labels.start import fit_features
from apportion.metrics import accuracy, bag_means, proportion_error
from apportion.nets.build import move_to
from apportion.training.checks import check_sets, warn_of_bags
from apportion.training.features import bags_of, features_of, first_batch
from apportion.training.history import History

__all__ = ["ROWS_PER_PASS", "Frozen", "fit_frozen", "layer_of"]

ROWS_PER_PASS = 1024


class Frozen(NamedTuple):
    """The result of a training."""

    net: nn.Sequential  # the backbone, nn.Flatten and nn.Linear
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
        it becomes a part of the net that is returned.
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
    warn_of_bags(train)
    _check_one_part(backbone, train)
    began, there = time.perf_counter(), device_for(device)
    move_to(there, backbone)
    placed = place((train, valid, None), there)
    _check_precision(backbone, placed[0])
    with own_threads(threads):
        features = [_features(backbone, instances) for instances in placed if instances is not None]
        start = fit_features(features[0], seed=seed)
    record: dict[str, Any] = {"epoch": 1}
    sets = (("", train), *([] if valid is None else [("valid_", valid)]))
    for (name, bags), own in zip(sets, features, strict=True):
        confidence = start.linear.confidence(own.x)[own.index]
        predicted = bag_means(confidence, bags.offsets)
        known = {"": "proportion_error"}.get(name, f"{name}error")
        record[known] = proportion_error(bags.proportions, predicted)
        if bags.truth is not None:
            guessed = confidence.argmax(axis=1) if name else start.labels
            record[f"{name or 'label_'}accuracy"] = accuracy(guessed, bags.truth)
    record["seconds"] = {"train": round(time.perf_counter() - began, 4)}
    net = nn.Sequential(backbone, nn.Flatten(), layer_of(start.linear)).to(there).eval()
    return Frozen(net, History([record], labels=start.labels))


def _check_one_part(backbone: nn.Module, train: Bags) -> None:
    """Check that instances are single arrays, which is what nn.Sequential passes on."""
    names = train.x.names if isinstance(train.x, Items) else None
    if names or len(train.parts) > 1:
        what = f"named {listing(names)}" if names else "of each instance"
        raise BagError(
            f"{type(backbone).__name__} would take {count(len(train.parts), 'part')} {what}, but a "
            "linear layer is learned on a network of one.",
            "Pass instances of one part, for example one array, which the network takes apart; or "
            "train the network from its features: FPL(first='mean-map').",
        )


def _check_precision(backbone: nn.Module, instances: Instances) -> None:
    """Check that features are of float32, as the linear layer behind them is."""
    given: Any = first_batch(backbone, backbone, instances)
    if isinstance(given, Tensor) and given.dtype is not torch.float32:
        raise ConfigError(
            f"{type(backbone).__name__} returns features of {str(given.dtype)[6:]}, but a linear "
            "layer takes float32.",
            "Return features.float(), or pass a network of float32: network.float().",
        )


def _features(backbone: nn.Module, instances: Instances) -> Bags:
    return bags_of(features_of(backbone, backbone, instances, ROWS_PER_PASS), instances)


def layer_of(linear: Linear) -> nn.Linear:
    """Return a linear model of standardised features as a layer of features as they are."""
    weights = linear.weights / linear.encoding.std[:, None].astype(np.float64)
    bias = linear.bias - linear.encoding.mean.astype(np.float64) @ weights
    layer = nn.Linear(weights.shape[0], weights.shape[1], device="cpu")
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weights.T.copy()))
        layer.bias.copy_(torch.from_numpy(bias))
    return layer
