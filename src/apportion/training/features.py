"""Features of a network, and the first labels that follow from them.

The features of an instance are the input of the layer that makes logits: the last `nn.Linear` that
is called and returns one number per class. Where a network has none, or another one knows more of
the instances, a function of a batch returns the features. Both are computed in evaluation mode, in
float32, once per distinct row. Signals have summaries as well (`apportion.nets.summary`), from
which more follows than from a network that is not trained yet: bags that are held out decide.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.engine.batches import Instances
from apportion.engine.copies import Parts
from apportion.engine.inference import cut, evaluating, rows_per_pass
from apportion.errors import ConfigError, DataError, Option
from apportion.labels.linear import LINEAR_FITS
from apportion.labels.start import FIRM, LOOSE, Penalty, fit_features, most_telling
from apportion.methods.base import Method
from apportion.methods.pseudo_labels import FPL
from apportion.nets.measure import may_be_swapped, measure
from apportion.nets.normalized import Normalized
from apportion.nets.summary import summaries
from apportion.plan.kinds import SIGNALS, SPARSE, kind_of_instances
from apportion.training.checks import check_differ

__all__ = ["MEAN_MAP", "Features", "bags_of", "chosen_fit", "features_of", "first_batch",
           "last_layer", "penultimate", "with_first_labels"]  # fmt: skip

log = logging.getLogger("apportion")

Features = Callable[..., Tensor]  # from a batch, as the net takes it, to (b, …)
MEAN_MAP = "mean-map"
FIRST_WEIGHT = 3.0  # epochs


def with_first_labels(
    method: Method, net: nn.Module, instances: Instances, *, seed: int, most: int, resumed: bool
) -> Method:
    """Return a method whose first labels are known, if they follow from features.

    They do if its `first` is a function from a batch to features; or if it is "mean-map" and the
    instances are no rows of a table, which are features themselves: then they are those of the net.
    Of signals they may be summaries instead, which tell more than a net that has learned nothing.
    First labels of a run that is resumed are in its state, and computed no more.
    """
    if not isinstance(method, FPL):
        return method
    first, kind = method.first, kind_of_instances(instances.bags)
    named = isinstance(first, str) and first in LINEAR_FITS and kind not in ("table", SPARSE)
    if named and first != MEAN_MAP:
        other = ", which takes features of the net, or a function from a batch to features."
        raise ConfigError(
            f"first is {first!r}, which is for rows of a table, but the instances are {kind}.",
            ("Pass ", Option("first", repr(MEAN_MAP), MEAN_MAP), other),
        )
    if not (named or callable(first)):
        return method
    check_differ(instances.bags)
    weight = FIRST_WEIGHT if method.first_weight is None else method.first_weight
    if resumed:
        return replace(method, first="random", first_weight=weight)
    if callable(first):
        own = bags_of(features_of(first, first, instances, most), instances)
        several = {"a function": (own, FIRM)}
    else:
        several = _features_known(net, instances, most)
    bags, penalty = chosen_fit(several, seed)
    labels, linear = fit_features(bags, seed=seed, penalty=penalty)
    shape = bags.x.shape[::-1]
    log.info("First labels follow from %d features of each of %d rows.", *shape)
    if method.unlikelihood != "log":
        return replace(method, first=labels, first_weight=weight)
    sure = linear.confidence(bags.x, bags.index)
    return replace(method, first=sure.astype(np.float32), first_weight=weight)


Fits = dict[str, tuple[Bags, Penalty]]  # features, and how to fit them, by where they come from


def _features_known(net: nn.Module, instances: Instances, most: int) -> Fits:
    """Return features of the net; of signals summaries as well, and loose fits to both."""
    summary = _summary_of(instances)
    found = dict[str, Bags]()
    if summary is not None:
        own = features_of(summary, None, instances, most)
        found["summaries"] = bags_of(own, instances)
    try:
        with penultimate(net, instances) as features:
            own = features_of(features, net, instances, most)
            found["the net"] = bags_of(own, instances)
    except ConfigError:  # it has no last layer that is known to be such
        if not found:
            raise
    known: Fits = {source: (bags, FIRM) for source, bags in found.items()}
    loose = {f"{source} in a loose fit": (bags, LOOSE) for source, bags in found.items()}
    return known if summary is None else known | loose


def _summary_of(instances: Instances) -> Features | None:
    """Return what summarises signals, normalised as a net sees them; None if x is something else.

    A net of the caller's may take other things than frames and their lengths, or have the frames
    before the channels.
    """
    bags = instances.bags
    if kind_of_instances(bags) != SIGNALS or may_be_swapped("summary", bags.parts):
        return None
    try:
        measured = measure("summary", bags.parts, bags.distinct(), None)
    except DataError:
        return None
    scaled = Normalized(nn.Identity(), measured.mean, measured.std).to(instances.device)
    return lambda *x: summaries(*scaled.prepare(*x))


def chosen_fit(several: Fits, seed: int) -> tuple[Bags, Penalty]:
    """Return the features that tell most of bags which are held out, and how to fit them."""
    first, *others = several.values()
    if not others or first[0].n_bags < 2:
        return first
    chosen, errors = most_telling([first, *others], seed=seed)
    missed = (f"{error:.3f} by {source}" for source, error in zip(several, errors, strict=True))
    taken = [*several][chosen]
    log.info("Proportions of held-out bags are missed by %s. Taken: %s.", ", ".join(missed), taken)
    return several[taken]


def last_layer(net: nn.Module, instances: Instances) -> nn.Linear:
    """Return the last nn.Linear that is called, and that returns the logits of the net."""
    called: list[tuple[nn.Linear, Tensor]] = []

    def note(layer: Any, _: Any, output: Tensor) -> None:
        called.append((layer, output))

    layers = [module for module in net.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        logits = first_batch(net, net, instances)
    finally:
        for hook in hooks:
            hook.remove()
    last = [layer for layer, output in called if output.shape == logits.shape]
    if not last:
        raise ConfigError(
            f"{type(net).__name__} has no nn.Linear that returns its {instances.bags.n_classes} "
            "logits, and so no features that are known to be such.",
            "Pass a function from a batch to features instead: FPL(first=net.backbone), for "
            "example; or random first labels.",
        )
    return last[-1]


@contextmanager
def penultimate(net: nn.Module, instances: Instances) -> Iterator[Features]:
    """Yield a function that passes a batch through a net, and returns what its last layer gets."""
    kept: list[Tensor] = []
    hook = last_layer(net, instances).register_forward_pre_hook(
        lambda _, given: kept.append(given[0])
    )

    def features(*x: Tensor) -> Tensor:
        kept.clear()
        net(*x)
        return kept[-1]

    try:
        yield features
    finally:
        hook.remove()


@torch.no_grad()
def features_of(features: Features, owner: Any, instances: Instances, most: int) -> NDArray[Any]:
    """Return features (U, D) of the distinct rows, in the order of `Instances.distinct`.

    Parameters
    ----------
    features : callable
        From a batch, called as ``features(*x)``, to a tensor (b, …), which is made flat.
    owner : nn.Module or callable
        Put in evaluation mode meanwhile, if it is a module.
    most : int
        Rows per pass.
    """
    rows, found = instances.distinct, np.empty((0, 0), np.float32)
    spans = cut(len(rows), rows_per_pass(instances.feed.parts[0], most, instances.device))
    if isinstance(features, nn.Module):
        features.to(instances.device)
    with evaluating(owner if isinstance(owner, nn.Module) else nn.Module()):
        for (first, end), x in zip(spans, instances.feed.batches(rows, spans), strict=True):
            given: Any = _called(features, x)
            is_tensor = isinstance(given, Tensor) and given.ndim > 1 and not given.is_complex()
            if not is_tensor or len(given) != end - first:
                what = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else type(given)
                raise DataError(
                    f"the features of {end - first} rows are of {what}.",
                    "Return a tensor with one row of features per row of the batch.",
                )
            flat = given.float().reshape(end - first, -1)
            finite = flat.isfinite().all(dim=1).cpu()
            if not finite.all():
                raise DataError(
                    f"the features of row {rows[first + int(finite.int().argmin())]:,} (counted "
                    "from 0) are not finite.",
                    "Look for missing, infinite and very large values in the row, and for a "
                    "network that has diverged.",
                )
            if not first:
                found = np.empty((len(rows), flat.shape[1]), np.float32)
            found[first:end] = flat.cpu().numpy()
    return found


def bags_of(features: NDArray[Any], instances: Instances) -> Bags:
    """Return the bags of instances with features of their distinct rows for x."""
    place = instances.inverse.long().cpu().numpy()
    return replace(instances.bags, x=features, index=place, columns=None)


@torch.no_grad()
def first_batch(features: Features, net: nn.Module, instances: Instances) -> Tensor:
    """Return what a function of a batch returns for two rows, as a net in evaluation mode."""
    rows = instances.distinct[:2]
    (x,) = instances.feed.batches(rows, [(0, len(rows))])
    with evaluating(net):
        return _called(features, x)


def _called(features: Features, x: Parts) -> Tensor:
    try:
        return features(*x)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        took = ", ".join(f"{tuple(part.shape)} {str(part.dtype)[6:]}" for part in x)
        raise ConfigError(
            f"no features can be computed of a batch of {took}: {error}",
            "They must be computed from instances as they are stored, of this shape and type: "
            "move channels that come last (np.moveaxis(x, -1, 1)), and turn integers into "
            "floating-point numbers, as apportion.nets.normalized.Normalized does.",
        ) from error
