"""How to train: every option in one place, as a dataclass that a TOML file can hold.

The presets are `default`, and `paper`, which is what Matsuo et al. did: 400 epochs of Adam at a
constant 3e-4, 512 instances a step for pseudo labels and four bags a step for proportion losses.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args

from apportion.errors import ConfigError, suggestion
from apportion.files import as_toml

__all__ = ["PRESETS", "TrainConfig"]

Schedule = Literal["constant", "cosine"]
Precision = Literal["auto", "float32", "bfloat16"]
Steps = Literal["auto", "eager", "captured", "compiled"]


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object) -> bool:
    return isinstance(value, str)


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    Parameters
    ----------
    epochs : int
        How often every instance is used.
    batch_size : int
        Instances in one optimiser step. Where a method learns from whole bags, a step takes bags
        up to this many instances, and always at least one.
    bags_per_step : int, optional
        Whole bags in one step, however large, for the methods that learn from them.
    instances_per_pass : int
        The most instances that go through the network at once. A larger step is taken in pieces,
        with the same result (up to BatchNorm, which then normalises every piece by itself).
    learning_rate, weight_decay : float
        Of AdamW; without decay that is Adam.
    schedule : "constant" or "cosine"
        How the learning rate goes: "cosine" falls to 0 over the epochs.
    warmup : float
        The share of training over which the learning rate first rises from 0.
    patience : int, optional
        Stop once the validation error has not improved for so many epochs.
    augment : tuple of str
        Names from `apportion.nets.augment.AUGMENTATIONS`, applied to training batches in this
        order.
    seed : int
        Everything random follows from it, apart from the weights the model came with.
    device : str
        "auto" takes a CUDA device if there is one.
    precision : "auto", "float32" or "bfloat16"
        "auto" takes bfloat16 (mixed precision) on CUDA devices that have it.
    steps : "auto", "eager", "captured" or "compiled"
        How steps are taken on a CUDA device: kernel by kernel; recorded as a CUDA graph, which
        saves what Python takes; or with the network compiled by `torch.compile` besides, which
        takes half a minute before it saves anything. "auto" records, and compiles where there are
        at least 50,000 steps. On the CPU steps are always eager.
    device_memory : float, optional
        How many GiB of instances may be kept on the device. What is larger is streamed to it,
        batch by batch; by default what does not fit into the memory that is free.
    threads : int, optional
        CPU threads, by default what torch is set to. On the CPU results are equal to the bit only
        at the same number of threads.
    checkpoint_every : int
        Epochs from one checkpoint to the next, in training with a run folder.

    Examples
    --------
    >>> config = TrainConfig.preset("paper", epochs=100)
    >>> config.epochs, config.batch_size, config.learning_rate
    (100, 512, 0.0003)
    >>> TrainConfig.from_toml(config.to_toml()) == config
    True
    """

    epochs: int = 100
    batch_size: int = 128
    bags_per_step: int | None = None
    instances_per_pass: int = 4096
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: Schedule = "constant"
    warmup: float = 0.0
    patience: int | None = None
    augment: tuple[str, ...] = ()
    seed: int = 0
    device: str = "auto"
    precision: Precision = "auto"
    steps: Steps = "auto"
    device_memory: float | None = None
    threads: int | None = None
    checkpoint_every: int = 1

    def __post_init__(self) -> None:
        """Check every option."""
        for field in fields(self):  # numpy's numbers, say of a grid, are taken as Python's
            value = getattr(self, field.name)
            if isinstance(value, Integral | Real) and not isinstance(value, bool | int | float):
                plain = int(value) if isinstance(value, Integral) else float(value)
                object.__setattr__(self, field.name, plain)
        for name in ("epochs", "batch_size", "instances_per_pass", "checkpoint_every"):
            self._check(name, _whole(getattr(self, name), 1), "a whole number of 1 or more")
        for name in ("bags_per_step", "patience", "threads"):
            value = getattr(self, name)
            self._check(name, value is None or _whole(value, 1), "a whole number of 1 or more")
        self._check("seed", _whole(self.seed, 0) and self.seed < 2**63, "0 or more, below 2**63")
        rate, decay, warmup = self.learning_rate, self.weight_decay, self.warmup
        self._check("learning_rate", _number(rate) and 0 < rate < 1e6, "above 0, below a million")
        self._check("weight_decay", _number(decay) and 0 <= decay < 1e6, "a number of 0 or more")
        self._check("warmup", _number(warmup) and 0 <= warmup < 1, "a share from 0 to below 1")
        memory = self.device_memory
        valid = memory is None or (_number(memory) and 0 <= memory < math.inf)
        self._check("device_memory", valid, "a number of GiB, 0 or more")
        choices = {"schedule": Schedule, "precision": Precision, "steps": Steps}
        for name, known in ((name, get_args(choice)) for name, choice in choices.items()):
            self._check(name, getattr(self, name) in known, " or ".join(map(repr, known)))
        self._check("device", isinstance(self.device, str), "a text such as 'cpu' or 'cuda:1'")
        listed = not _text(self.augment) and all(map(_text, self.augment))
        self._check("augment", listed, "a tuple of names, ('flip',) say")
        object.__setattr__(self, "augment", tuple(self.augment))

    def learning_rate_at(self, progress: float) -> float:
        """Give the learning rate when some share of the training is done.

        Examples
        --------
        >>> config = TrainConfig(learning_rate=0.1, schedule="cosine", warmup=0.2)
        >>> [round(config.learning_rate_at(progress), 6) for progress in (0.1, 0.2, 0.6, 1.0)]
        [0.05, 0.1, 0.05, 0.0]
        """
        if progress < self.warmup:
            return self.learning_rate * progress / self.warmup
        if self.schedule == "constant":
            return self.learning_rate
        done = (progress - self.warmup) / (1 - self.warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * done))

    def _check(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ConfigError(f"{name} is {getattr(self, name)!r}.", f"Let it be {rule}.")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> TrainConfig:
        """Give the preset of a name, with some options changed."""
        if name not in PRESETS:
            raise ConfigError(f"there is no preset {name!r}.", suggestion(name, PRESETS))
        return cls.from_dict({**asdict(PRESETS[name]), **changes})

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> TrainConfig:
        """Read options by name; an unknown name is an error."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise ConfigError(f"there is no option {name!r}.", suggestion(name, known))
        return cls(**options)

    @classmethod
    def from_toml(cls, text: str) -> TrainConfig:
        """Read what `to_toml` wrote, options written by hand, or the config.toml of a run."""
        try:
            read = tomllib.loads(text)
            return cls.from_dict(read.get("train", read))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"the configuration is no TOML: {error}.", "Correct it.") from error

    def to_toml(self) -> str:
        """Write all options, but those that are not set."""
        return as_toml(asdict(self))


PRESETS = {
    "default": TrainConfig(),
    "paper": TrainConfig(
        epochs=400,
        batch_size=512,
        bags_per_step=4,
        instances_per_pass=16_384,
        learning_rate=3e-4,
        checkpoint_every=10,
    ),
}
