r"""One optimiser step: in one pass through the network, or piece by piece where that is too large.

A method's loss is a mean over instances plus a mean over bags of a function of each bag's mean
moments, :math:`\ell(m)` with :math:`m = \sum_j \phi(\mathrm{conf}(x_j)) / |B|`, where φ is the
confidence itself unless the method says otherwise. Pieces of a mean over instances simply add up.
For the other part a first pass without gradients finds m; then

.. math:: \nabla \ell(m) = \sum_j \nabla \langle \ell'(m), \phi(\mathrm{conf}(x_j)) / |B| \rangle

with :math:`\ell'(m)` held fixed, which again adds up over pieces. Both passes cut the same pieces
and draw the same random numbers, so the gradient is that of a single pass (but for BatchNorm, which
normalises each piece by itself).

Several ranks share the instances of every piece. The sums m over all of them are those of one rank,
and so are the sums of the gradients of their shares, which are taken in one place, before clipping.

On a GPU, steps of a shape that many have are recorded as a CUDA graph after a few of them, and the
others are replays. Steps of several passes are not: their pieces are seeded on the host.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import Function
from torch.nn.modules.instancenorm import _InstanceNorm

from apportion.engine.averaged import AveragedNet
from apportion.engine.batches import Batch, Instances, Step
from apportion.engine.capture import CapturedStep, as_recorded
from apportion.engine.copies import Parts
from apportion.engine.distributed import Ranks
from apportion.engine.generators import OwnGenerators, global_generator
from apportion.engine.update import update
from apportion.errors import ApportionError, ConfigError

__all__ = ["Losses", "Mode", "Stepper", "frozen_statistics"]

log = logging.getLogger("apportion")

Mode = Literal["eager", "captured", "compiled"]

WARM_UP = 3  # steps of a shape before it is recorded
MOST_GRAPHS = 4  # each keeps the memory of a step


class Losses(Protocol):
    """The losses that a step minimises: their sum, where a method has both."""

    views: int

    def mixed(self, batch: Batch) -> Batch:
        """Return the batch that goes through the net."""

    def instance_loss(self, net: nn.Module, batch: Batch, logits: Tensor) -> Tensor | None:
        """Return the mean over the batch's instances."""

    def moments(self, confidence: Tensor) -> Tensor:
        """Return the numbers (b, F) of each instance whose means over bags `bag_loss` takes."""

    def bag_loss(self, means: Tensor, proportions: Tensor, sizes: Tensor) -> Tensor | None:
        """Return the mean over bags: of their mean moments (k, F), proportions and sizes."""


class Stepper:
    """Takes the optimiser steps of one run."""

    def __init__(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        losses: Losses,
        instances: Instances,
        *,
        precision: torch.dtype,
        instances_per_pass: int,
        augment: Callable[[Parts, torch.Generator], Parts],
        clip_norm: float | None = None,
        own_optimizer: bool = False,
        mode: Mode = "eager",
        generators: OwnGenerators | None = None,
        average: AveragedNet | None = None,
    ) -> None:
        self.net, self.optimizer, self.losses = net, optimizer, losses
        self.parameters = [*net.parameters()]  # a frozen one may be trained later
        self.clip_norm, self.own_optimizer = clip_norm, own_optimizer
        self.instances, self.precision, self.augment = instances, precision, augment
        self.ranks = instances.ranks
        self.most, self.mode = instances_per_pass * self.ranks.world, mode
        self.generators, self.average = generators, average
        self.several = self.ranks.are_several
        # What the net draws by itself, each rank in its own way.
        self.apart = OwnGenerators(instances.device) if self.several else None
        self.progress = torch.zeros((), dtype=torch.float64, device=instances.device)
        self.warm = Counter[tuple[int, int]]()
        self.graphs: dict[tuple[int, int], CapturedStep] = {}
        self.places: list[int] = []  # of the weights in memory, when they were recorded

    def begin_epoch(self, seed: int = 0, epoch: int = 0) -> None:
        """Forget recordings of weights that were moved since, as to another device and back."""
        self._reseed_apart(seed, epoch)
        nets = [self.net] if self.average is None else [self.net, self.average.net]
        places = [t.data_ptr() for net in nets for t in chain(net.parameters(), net.buffers())]
        if places != self.places:
            self.places = places
            self.graphs.clear()
            self.warm.clear()

    def __call__(self, step: Step) -> Tensor:
        """Take one step, and return its loss without waiting for the device."""
        self.progress.fill_(step.progress)
        if self.graphs and step.shape in self.graphs:
            return self.graphs[step.shape](step)
        recordable = self.mode != "eager" and step.typical and step.x is not None
        if not recordable or len(self.graphs) == MOST_GRAPHS:
            with self.generators or nullcontext():
                return self.take(step)
        try:
            with (
                self.generators or nullcontext(),
                as_recorded(self.net, compiled=self.mode == "compiled"),
            ):
                return self._recorded(step)
        except ApportionError:
            raise
        except Exception as error:  # noqa: BLE001 (compilers raise anything)
            self._do_without(error, step)
        return self(step)

    def _recorded(self, step: Step) -> Tensor:
        """Take a step before it is recorded, or record the step and replay it."""
        self.warm[step.shape] += 1
        if self.warm[step.shape] <= WARM_UP:
            before = host_state()
            loss = self.take(step)
            if before != host_state() and self.warm[step.shape] == WARM_UP:  # compilers draw, too
                self.record_no_more(
                    "the network, the method or the augmentation draws random numbers on the host"
                )
            return loss
        self.graphs[step.shape] = CapturedStep(self.take, step)
        how = " of compiled kernels" if self.mode == "compiled" else ""
        log.info("Steps of %d instances are one CUDA graph%s.", len(step.position), how)
        return self.graphs[step.shape](step)

    def record_no_more(self, reason: str) -> None:
        """Take all further steps kernel by kernel, and log the reason."""
        self.mode = "captured"  # which is what cannot be done
        self._say_without(reason)
        self.mode = "eager"
        self.graphs.clear()

    def _do_without(self, error: Exception, step: Step) -> None:
        """Fall back to a mode that demands less of the net and the method, and log the reason."""
        recording = self.warm[step.shape] > WARM_UP
        if self.mode == "captured" and not recording:
            raise error
        cause = error.__context__ if recording and error.__context__ is not None else error
        self._say_without(f"{type(cause).__name__}: {str(cause).strip().partition(chr(10))[0]}")
        self.mode = "captured" if self.mode == "compiled" else "eager"
        self.warm.clear()
        if recording and self.generators is not None:
            self.generators.renew()

    def _say_without(self, reason: str) -> None:
        what = "compiled" if self.mode == "compiled" else "recorded as a CUDA graph"
        log.warning("Steps cannot be %s, and are slower without: %s", what, reason)

    def take(self, step: Step) -> Tensor:
        """Take one step, kernel by kernel."""
        with self._arithmetic():
            whole = len(step.position) <= self.most
            loss = self.one_pass(step) if whole else self.two_passes(step)
        if self.several:
            loss = self._summed(loss)
        if self.clip_norm is not None:
            moved = (p for group in self.optimizer.param_groups for p in group["params"])
            nn.utils.clip_grad_norm_(moved, self.clip_norm)
        if self.own_optimizer:
            self.optimizer.step()
        else:
            update(self.optimizer)
        if self.average is not None:
            self.average.follow()
        return loss

    def _arithmetic(self) -> AbstractContextManager[Any]:
        device, mixed = self.instances.device.type, self.precision is not torch.float32
        if mixed or torch.is_autocast_enabled(device):  # by the caller
            return torch.autocast(device, self.precision, enabled=mixed)
        return nullcontext()

    def one_pass(self, step: Step) -> Tensor:
        """Put the gradient into the parameters."""
        ((piece, x),) = self.instances.pieces(step, self.most)
        batch, logits = self._forward(step, piece, x)
        parts = [self._instance_loss(step, piece, batch, logits)]
        if step.proportions is not None:
            sums: Tensor = self._sums(step, piece, logits)
            if self.several:
                sums = _OverRanks.apply(sums, self.ranks)  # type: ignore[no-untyped-call]
            parts.append(self._bag_loss(step, sums))
        given = [part for part in parts if part is not None]
        if not given:
            raise ConfigError(
                f"{type(self.losses).__name__} returns no loss for a step.",
                "Override instance_loss, or bag_loss of a method whose unit is 'bags'.",
            )
        loss = sum(given[1:], start=given[0])
        self._forget_gradients()
        torch.autograd.backward(loss)
        if not self.ranks.leads:  # the loss of bags is the same on all ranks, and counts once
            loss = torch.zeros_like(loss) if parts[0] is None else parts[0]
        return loss.detach()

    def two_passes(self, step: Step) -> Tensor:
        """Put the same gradient into the parameters, piece by piece."""
        self._forget_gradients()
        seed = 1 + int(torch.randint(2**62, ()))
        loss, slope = torch.zeros((), device=self.instances.device), None
        if step.proportions is not None:
            means: Tensor | None = None
            with torch.no_grad(), frozen_statistics(self.net):
                for i, (piece, x) in enumerate(self.instances.pieces(step, self.most)):
                    self._reseed(seed + i)
                    sums = self._sums(step, piece, self._forward(step, piece, x)[1])
                    means = sums if means is None else means.add_(sums)
            assert means is not None
            self.ranks.sum_([means])
            torch.clear_autocast_cache()  # its weights know no gradients in older torch
            means.requires_grad_()
            if (bag_loss := self._bag_loss(step, means)) is not None:
                (slope,) = torch.autograd.grad(bag_loss, means)
                loss += bag_loss.detach() if self.ranks.leads else 0
        for i, (piece, x) in enumerate(self.instances.pieces(step, self.most)):
            self._reseed(seed + i)
            batch, logits = self._forward(step, piece, x)
            part = logits.new_zeros(())
            instance_loss = self._instance_loss(step, piece, batch, logits)
            if instance_loss is not None:
                part = part + instance_loss
                loss += part.detach()
            if slope is not None:
                part = part + (slope * self._sums(step, piece, logits)).sum()
            torch.autograd.backward(part)
        self._reseed(seed - 1)
        return loss

    def _instance_loss(
        self, step: Step, piece: slice, batch: Batch, logits: Tensor
    ) -> Tensor | None:
        """Return what the instances of a piece, or a rank's share of it, add to the step's mean."""
        loss = self.losses.instance_loss(self.net, batch, logits)
        counted = self.ranks.counted(piece)
        if loss is None or counted == len(step.position):
            return loss
        return loss * (counted / len(step.position))

    def _summed(self, loss: Tensor) -> Tensor:
        """Sum the gradients over all ranks; return the loss of the whole step.

        A weight that no rank has a gradient of stays without.
        """
        moved = [own for own in self.parameters if own.requires_grad]
        given = [float(own.grad is not None) for own in moved]
        known = torch.tensor(given, dtype=loss.dtype, device=loss.device)
        for own in moved:
            own.grad = torch.zeros_like(own) if own.grad is None else own.grad
        total = loss.clone()
        self.ranks.sum_([total, known, *(own.grad for own in moved if own.grad is not None)])
        if not all(given):
            for own, ranks_with in zip(moved, known.tolist(), strict=True):
                own.grad = own.grad if ranks_with else None
        return total

    def _forget_gradients(self) -> None:
        """Do what `zero_grad` does, which takes as long as a layer of a small net."""
        for parameter in self.parameters:
            parameter.grad = None

    def _forward(self, step: Step, piece: slice, x: Parts) -> tuple[Batch, Tensor]:
        if self.losses.views > 1:
            x = tuple(torch.cat([part] * self.losses.views) for part in x)
        if self.several:
            return self._forward_of_share(step, piece, x)
        changed = self.augment(x, global_generator(self.instances.device))
        batch = self.losses.mixed(Batch(changed, step.position[piece], self.progress))
        return batch, self.net(*batch.x).float()

    def _forward_of_share(self, step: Step, piece: slice, x: Parts) -> tuple[Batch, Tensor]:
        own, n = self.ranks.share(piece), piece.stop - piece.start
        share = slice(own.start - piece.start, own.stop - piece.start)
        of_device = global_generator(self.instances.device)
        if self.instances.reads_all:
            changed = self.augment(x, of_device)
            batch = self.losses.mixed(Batch(changed, step.position[piece], self.progress))
            batch = batch.shared(share, n)
        with self.apart or nullcontext():
            if not self.instances.reads_all:  # there is nothing to draw, or each draws its own
                x = self.augment(x, of_device)
                known = Batch(x, step.position[own], self.progress, None, share, n)
                batch = self.losses.mixed(known)
            return batch, self.net(*batch.x).float()

    def _sums(self, step: Step, piece: slice, logits: Tensor) -> Tensor:
        """Compute what a piece, or a rank's share of it, adds to the mean moments of each bag."""
        assert step.sizes is not None
        assert step.bag is not None
        assert step.weight is not None
        own = self.ranks.share(piece) if self.several else piece
        shares = self.losses.moments(logits.softmax(dim=1)) * step.weight[own, None]
        sums = shares.new_zeros(len(step.sizes), shares.shape[1])
        if self.several and not self.ranks.counted(piece):
            return sums + 0 * shares.sum()
        return sums.index_add(0, step.bag[own], shares)

    def _bag_loss(self, step: Step, means: Tensor) -> Tensor | None:
        assert step.proportions is not None
        assert step.sizes is not None
        return self.losses.bag_loss(means, step.proportions, step.sizes)

    def _reseed(self, seed: int) -> None:
        for device in {torch.device("cpu"), self.instances.device}:
            global_generator(device).manual_seed(seed)
        self._reseed_apart(seed, 0)

    def _reseed_apart(self, seed: int, epoch: int) -> None:
        if self.apart is not None:
            self.apart.reseed(seed + self.ranks.rank * 2**32, epoch)


class _OverRanks(Function):
    """Sums over all ranks, each of which has the gradient of what it has added itself."""

    @staticmethod
    def forward(_: Any, sums: Tensor, ranks: Ranks) -> Tensor:
        return ranks.total(sums)

    @staticmethod
    def backward(_: Any, slope: Tensor) -> tuple[Tensor, None]:
        return slope, None


def host_state() -> tuple[object, ...]:
    """Return the state of the generators on the host: torch's, Python's and numpy's."""
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002
    inner: Any = numpy_state["state"]
    return (
        torch.default_generator.get_state().numpy().tobytes(),
        random.getstate(),
        *(value.tobytes() if hasattr(value, "tobytes") else value for value in inner.values()),
    )


@contextmanager
def frozen_statistics(net: nn.Module) -> Iterator[None]:
    """Use the batch's own statistics in normalisation layers, and leave the running ones alone."""
    before: list[tuple[Any, str, Any]] = []
    for module in net.modules():
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
