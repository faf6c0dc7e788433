"""The optimiser of a training and its learning rate: those of the configuration, or the caller's.

An optimiser of one's own is made by a function of the net's parameters, a scheduler by a function
of the optimiser. The scheduler takes one step after each step of the optimiser, which is the finer
of the two habits and can express the other; `ReduceLROnPlateau` takes one per epoch instead, by the
validation error.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from apportion.config import TrainConfig
from apportion.errors import ConfigError, RunError, count, listing
from apportion.runs.header import RESTORE
from apportion.runs.run import Run
from apportion.training.optimizer_state import (
    changeable,
    load_optimizer,
    load_settings,
    optimizer_values,
    plain,
    restored,
    settings_of,
)

__all__ = ["MakeOptimizer", "MakeScheduler", "Optimization"]

log = logging.getLogger("apportion")

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
MakeScheduler = Callable[[torch.optim.Optimizer], LRScheduler]

SCHEDULER = "the state of the scheduler"  # in errors
OF_CONFIG = "that of the configuration"
OF_OPTIMIZER = ("learning_rate", "weight_decay")  # options that an own optimiser replaces,
OF_SCHEDULER = ("schedule", "warmup")  # and those that an own scheduler replaces


class Optimization:
    """What changes the weights of one training, and how fast.

    Parameters
    ----------
    net : nn.Module
        On its device.
    optimizer, scheduler : callable, optional
        As of `apportion.fit`; without one, what the configuration says.
    """

    def __init__(
        self,
        net: nn.Module,
        config: TrainConfig,
        device: torch.device,
        *,
        optimizer: MakeOptimizer | None = None,
        scheduler: MakeScheduler | None = None,
        validated: bool = False,
    ) -> None:
        self.net, self.config = net, config
        self.is_own = optimizer is not None
        self.by_config = optimizer is None and scheduler is None
        self.parameters = [p for p in net.parameters() if p.requires_grad]
        if optimizer is None:
            self.optimizer = _by_config(self.parameters, config, device)
        else:
            self.optimizer = _made_optimizer(optimizer, net, self.parameters)
        self.began = [  # before the scheduler changes them
            {name: value.clone() if isinstance(value, Tensor) else value
             for name, value in group.items() if name in changeable(group)}
            for group in self.optimizer.param_groups
        ]  # fmt: skip
        self.scheduler: Any = None
        if scheduler is not None:
            self.scheduler = _made_scheduler(scheduler, self.optimizer, validated=validated)
        self.by_epoch = isinstance(self.scheduler, ReduceLROnPlateau)
        self.rate: float | None = None  # of the last step, by the configuration
        self.on_host = _numbers(self.optimizer)

    def before_step(self, progress: float) -> None:
        """Set the learning rate, if the configuration decides it."""
        if not self.by_config:
            return
        rate = self.config.learning_rate_at(progress)
        if rate == self.rate:
            return
        self.rate = rate
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def after_step(self) -> bool:
        """Take a step of the scheduler; tell if it changed numbers that a recording has fixed."""
        if self.scheduler is None or self.by_epoch:
            return False
        self.scheduler.step()
        return self._changed()

    def after_epoch(self, valid_error: float | None) -> bool:
        """Take a step of a scheduler that goes by the validation error, likewise."""
        if not self.by_epoch:
            return False
        self.scheduler.step(valid_error)
        return self._changed()

    def _changed(self) -> bool:
        before, self.on_host = self.on_host, _numbers(self.optimizer)
        return before != self.on_host

    @property
    def is_recordable(self) -> bool:
        """Whether a CUDA graph can hold a step of the optimiser."""
        groups = self.optimizer.param_groups
        plain_sgd = type(self.optimizer) is torch.optim.SGD  # which keeps nothing on the host
        return plain_sgd or all(group.get("capturable") for group in groups)

    @property
    def rates(self) -> list[float]:
        """The learning rate of each group of parameters."""
        if self.by_config:
            return [self.config.learning_rate]
        return [float(group["lr"]) for group in self.optimizer.param_groups if "lr" in group]

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return what an optimiser and a scheduler can be recognised by, before the first step."""
        if self.by_config:
            return {"optimiser": {"class": OF_CONFIG}, "scheduler": {"class": OF_CONFIG}}
        optimiser: dict[str, Any] = {"class": type(self.optimizer).__name__}
        names = {id(p): name for name, p in self.net.named_parameters()}
        for i, (group, began) in enumerate(
            zip(self.optimizer.param_groups, self.began, strict=True)
        ):
            within = [names[id(p)] for p in group["params"]]
            optimiser[f"parameters of group {i}"] = f"{len(within)}: {listing(within)}"
            for name, value in began.items():
                optimiser[f"{name} of group {i}"] = plain(value, f"{name} of the optimiser")
        if self.scheduler is None:
            return {"optimiser": optimiser, "scheduler": {"class": None}}
        scheduler = plain(self.scheduler.state_dict(), SCHEDULER)
        return {
            "optimiser": optimiser,
            "scheduler": {"class": type(self.scheduler).__name__, **scheduler},
        }

    def state(self) -> dict[str, Any] | None:
        """Return the settings and the plain state of the caller's optimiser and scheduler."""
        if self.by_config:
            return None
        state = None if self.scheduler is None else self.scheduler.state_dict()
        return {
            "settings": settings_of(self.optimizer),
            "values": optimizer_values(self.net, self.optimizer),
            "scheduler": plain(state, SCHEDULER),
        }

    def load(
        self,
        run: Run,
        tensors: Mapping[str, Tensor],
        was: Mapping[str, bool],
        state: Mapping[str, Any] | None,
    ) -> None:
        """Go on from the tensors of an optimiser and from what `state` returned, after a check."""
        if (state is None) != self.by_config:
            raise RunError(f"{run.checkpoint} is damaged: optimizer is of another run.", RESTORE)
        values = {} if state is None else state["values"]
        load_optimizer(run, self.net, self.optimizer, tensors, was, values)
        if state is not None:
            load_settings(run, self.optimizer, state["settings"])
        if state is not None and self.scheduler is not None:
            own = self.scheduler.state_dict()
            self.scheduler.load_state_dict(restored(run, own, state["scheduler"], SCHEDULER))
        self.on_host = _numbers(self.optimizer)

    def say_unused(self) -> None:
        """Log which options of the configuration the caller's optimiser and scheduler replace."""
        replaced = (*(OF_OPTIMIZER if self.is_own else ()), *OF_SCHEDULER)
        given = [
            f"{option.name}={getattr(self.config, option.name)!r}"
            for option in fields(TrainConfig)
            if option.name in replaced and getattr(self.config, option.name) != option.default
        ]
        if given and not self.by_config:
            whose = "optimizer" if self.is_own else "scheduler"
            log.warning(
                "%s of the configuration has no effect: the %s that was passed decides.",
                listing(given),
                whose,
            )
        inside = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        left_out = [n for n, p in self.net.named_parameters()
                    if p.requires_grad and id(p) not in inside]  # fmt: skip
        if left_out:
            log.warning(
                "The optimiser leaves out %s, which stay as they are: %s.",
                count(len(left_out), "parameter"),
                listing(left_out),
            )


def _by_config(
    parameters: list[nn.Parameter], config: TrainConfig, device: torch.device
) -> torch.optim.Optimizer:
    on_gpu = device.type == "cuda"  # where a graph reads rate and state from the device
    rate = torch.tensor(config.learning_rate, device=device) if on_gpu else config.learning_rate
    return torch.optim.AdamW(
        parameters, lr=rate, weight_decay=config.weight_decay, fused=True, capturable=on_gpu
    )


def _made_optimizer(
    make: MakeOptimizer, net: nn.Module, parameters: Sequence[nn.Parameter]
) -> torch.optim.Optimizer:
    try:
        made: Any = make(list(parameters))
    except Exception as error:
        error.add_note(
            "optimizer= was called with a list of the net's parameters. It must return an "
            "optimiser of them: lambda parameters: torch.optim.SGD(parameters, lr=0.1). For groups "
            "of parameters, name the net itself in it."
        )
        raise
    if not isinstance(made, torch.optim.Optimizer):
        raise ConfigError(
            f"optimizer returned a {type(made).__name__}, not a torch.optim.Optimizer.",
            "Pass a function such as lambda parameters: torch.optim.SGD(parameters, lr=0.1).",
        )
    closure = inspect.signature(made.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise ConfigError(
            f"{type(made).__name__} computes the loss several times per step, by a closure.",
            "Pass an optimiser that takes a step from one gradient, such as SGD or AdamW.",
        )
    own = {id(p) for p in net.parameters()}
    foreign = [p for group in made.param_groups for p in group["params"] if id(p) not in own]
    if foreign:
        raise ConfigError(
            f"optimizer returned a {type(made).__name__} of {count(len(foreign), 'parameter')} "
            f"that {type(net).__name__} does not have.",
            "Make it from the parameters that it is called with, or from those of the net that is "
            "trained: a loop over nets must bind each net to its own function.",
        )
    return made


def _made_scheduler(
    make: MakeScheduler, optimizer: torch.optim.Optimizer, *, validated: bool
) -> LRScheduler:
    made: Any = make(optimizer)
    if not isinstance(made, LRScheduler):
        raise ConfigError(
            f"scheduler returned a {type(made).__name__}, not a torch.optim.lr_scheduler.",
            "Pass a function of the optimiser, such as lambda optimizer: "
            "torch.optim.lr_scheduler.StepLR(optimizer, 1000).",
        )
    if made.optimizer is not optimizer:
        raise ConfigError(
            f"scheduler returned a {type(made).__name__} of another optimiser.",
            "Make it from the optimiser that it is called with.",
        )
    if isinstance(made, ReduceLROnPlateau) and not validated:
        raise ConfigError(
            "ReduceLROnPlateau goes by the validation error, but there are no validation bags.",
            "Hold out bags to validate on, or pass another scheduler.",
        )
    return made


def _numbers(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the settings that a CUDA graph would fix; tensors are read from the device."""
    return [
        {name: value for name, value in group.items() if name != "params"
         and not isinstance(value, Tensor)}
        for group in optimizer.param_groups
    ]  # fmt: skip
