r"""One optimiser step: in one pass through the network, or piece by piece where that is too large.

A method's loss is a mean over instances plus a mean over bags of a function of each bag's mean
confidence, :math:`\ell(m)` with :math:`m = \sum_j \mathrm{conf}(x_j) / |B|`. Pieces of a mean over
instances simply add up. For the other part a first pass without gradients finds m; then

.. math:: \nabla \ell(m) = \sum_j \nabla \langle \ell'(m), \mathrm{conf}(x_j) / |B| \rangle

with :math:`\ell'(m)` held fixed, which again adds up over pieces. Both passes cut the same pieces
and draw the same random numbers, so the gradient is that of a single pass (but for BatchNorm, which
normalises each piece by itself).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.instancenorm import _InstanceNorm

from apportion.config import ConfigError
from apportion.engine.batches import Batch, Instances, Step
from apportion.engine.streams import generator

__all__ = ["Losses", "Stepper", "frozen_statistics"]


class Losses(Protocol):
    """What a step minimises: the sum of the two, where a method has both."""

    def instance_loss(self, model: nn.Module, batch: Batch, logits: Tensor) -> Tensor | None:
        """Give the mean over the batch's instances."""

    def bag_loss(self, mean_confidence: Tensor, proportions: Tensor) -> Tensor | None:
        """Give the mean over bags (k, C)."""


class Stepper:
    """Takes the optimiser steps of one run."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        losses: Losses,
        instances: Instances,
        *,
        precision: torch.dtype,
        instances_per_pass: int,
        augment: Callable[[tuple[Tensor, ...], torch.Generator], tuple[Tensor, ...]],
    ) -> None:
        self.model, self.optimizer, self.losses = model, optimizer, losses
        self.instances, self.precision, self.augment = instances, precision, augment
        self.most = instances_per_pass

    def __call__(self, step: Step) -> Tensor:
        """Take one step, and give its loss without waiting for the device."""
        self.optimizer.zero_grad(set_to_none=True)
        device = self.instances.device.type
        with torch.autocast(device, self.precision, enabled=self.precision is not torch.float32):
            whole = len(step.position) <= self.most
            loss = self.one_pass(step) if whole else self.two_passes(step)
        self.optimizer.step()
        return loss

    def one_pass(self, step: Step) -> Tensor:
        """Put the gradient into the parameters."""
        batch, logits = self._forward(step, slice(None))
        parts = [self.losses.instance_loss(self.model, batch, logits)]
        if step.proportions is not None:
            means = _sums(step, slice(None), logits)
            parts.append(self.losses.bag_loss(means, step.proportions))
        given = [part for part in parts if part is not None]
        if not given:
            raise ConfigError(
                f"{type(self.losses).__name__} gives no loss for a step.",
                "Override instance_loss, or bag_loss of a method whose unit is 'bags'.",
            )
        loss = torch.stack(given).sum()
        torch.autograd.backward(loss)
        return loss.detach()

    def two_passes(self, step: Step) -> Tensor:
        """Put the same gradient into the parameters, piece by piece."""
        pieces = step.pieces(self.most)
        seed = int(torch.randint(2**62, ()))
        loss, slope = torch.zeros((), device=self.instances.device), None
        if step.proportions is not None:
            means = torch.zeros_like(step.proportions)
            with torch.no_grad(), frozen_statistics(self.model):
                for i, piece in enumerate(pieces):
                    self._reseed(seed + i)
                    means += _sums(step, piece, self._forward(step, piece)[1])
            torch.clear_autocast_cache()  # its weights know no gradients in older torch
            means.requires_grad_()
            if (bag_loss := self.losses.bag_loss(means, step.proportions)) is not None:
                (slope,) = torch.autograd.grad(bag_loss, means)
                loss += bag_loss.detach()
        for i, piece in enumerate(pieces):
            self._reseed(seed + i)
            batch, logits = self._forward(step, piece)
            part = logits.new_zeros(())
            if (instance_loss := self.losses.instance_loss(self.model, batch, logits)) is not None:
                part = part + instance_loss * (len(batch.position) / len(step.position))
                loss += part.detach()
            if slope is not None:
                part = part + (slope * _sums(step, piece, logits)).sum()
            torch.autograd.backward(part)
        self._reseed(seed + len(pieces))
        return loss

    def _forward(self, step: Step, piece: slice) -> tuple[Batch, Tensor]:
        position = step.position[piece]
        x = self.instances.rows(self.instances.index.index_select(0, position))
        batch = Batch(self.augment(x, generator(self.instances.device)), position, step.progress)
        return batch, self.model(*batch.x).float()

    def _reseed(self, seed: int) -> None:
        for device in {torch.device("cpu"), self.instances.device}:
            generator(device).manual_seed(seed)


def _sums(step: Step, piece: slice, logits: Tensor) -> Tensor:
    """What a piece adds to the mean confidence of each bag of the step."""
    assert step.proportions is not None
    assert step.bag is not None
    assert step.weight is not None
    shares = logits.softmax(dim=1) * step.weight[piece, None]
    return torch.zeros_like(step.proportions).index_add(0, step.bag[piece], shares)


@contextmanager
def frozen_statistics(model: nn.Module) -> Iterator[None]:
    """Let normalisation layers use the statistics of the batch without remembering them."""
    before: list[tuple[Any, str, Any]] = []
    for module in model.modules():
        if getattr(module, "track_running_stats", False):
            # InstanceNorm remembers whatever the flag says, but nothing at a momentum of 0.
            name = "momentum" if isinstance(module, _InstanceNorm) else "track_running_stats"
            before.append((module, name, getattr(module, name)))
            setattr(module, name, 0)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
