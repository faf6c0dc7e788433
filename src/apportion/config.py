"""How to train: every option in one place, as a dataclass that a TOML file can hold.

An option is declared once: its field has the default, the rule it must meet and the help text,
which the command line and the documentation show. The presets are `default`, and `paper`, which is
what Matsuo et al. did: 400 epochs of Adam at a constant 3e-4, 512 instances per step for pseudo
labels and four bags per step for proportion losses.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

from apportion.errors import ConfigError, must_be, suggestion
from apportion.files import as_toml

__all__ = ["PRESETS", "Rule", "TrainConfig", "declared", "described"]


class Rule(NamedTuple):
    """What a value must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]

    def check(self, name: str, value: Any) -> None:
        """Raise an error that names the option, the rule and the value."""
        if not self.holds(value):
            raise must_be(name, self.words, value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _integer(least: int, below: float = math.inf, words: str = "") -> Rule:
    def holds(value: Any) -> bool:
        return _is_number(value) and isinstance(value, int) and least <= value < below

    return Rule(f"an integer ≥ {least}{words}", holds)


def _number(words: str, holds: Callable[[float], bool]) -> Rule:
    return Rule(words, lambda value: _is_number(value) and holds(value))


def _one_of(*known: str) -> Rule:
    words = ", ".join(map(repr, known[:-1])) + f" or {known[-1]!r}"
    return Rule(words, lambda value: isinstance(value, str) and value in known)


def _or_none(rule: Rule) -> Rule:
    return Rule(f"{rule.words}, or None", lambda value: value is None or rule.holds(value))


def _texts(value: Any) -> bool:
    return not isinstance(value, str) and all(isinstance(text, str) for text in value)


def declared(value: Any, rule: Rule | None, text: str, **shown: Any) -> Any:
    """Declare an option: its default, its rule and its help text.

    Parameters
    ----------
    **shown
        How the command line shows it: `default`, if that is not a plain value; `flag`, whether it
        is a flag of `apportion train`.
    """
    return field(default=value, metadata={"rule": rule, "help": text, **shown})


def described(cls: type) -> str:
    """Return the declared options of a dataclass as the section of a docstring."""
    lines = []
    for option in fields(cls):
        default = option.metadata.get("default", repr(option.default))
        lines += [f"    {option.name} : default {default}", f"        {option.metadata['help']}"]
    return "\n".join(lines)


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    Parameters
    ----------
    {options}

    Examples
    --------
    >>> config = TrainConfig.preset("paper", epochs=100)
    >>> config.epochs, config.batch_size, config.learning_rate
    (100, 512, 0.0003)
    >>> TrainConfig.from_toml(config.to_toml()) == config
    True
    """

    epochs: int = declared(100, _integer(1), "How often every instance is used.", flag=True)
    batch_size: int = declared(
        128,
        _integer(1),
        "Instances per optimiser step. Where a method learns from whole bags, a step takes bags up "
        "to this many instances, and always at least one.",
        flag=True,
    )
    bags_per_step: int | None = declared(
        None,
        _or_none(_integer(1)),
        "Whole bags per step, however large, for the methods that learn from bags.",
    )
    instances_per_pass: int = declared(
        4096,
        _integer(1),
        "The most instances that go through the net at once. A larger step is taken in pieces, "
        "with the same result (except BatchNorm, which normalises each piece by itself).",
    )
    learning_rate: float = declared(
        1e-3, _number("above 0 and below a million", lambda v: 0 < v < 1e6), "Of AdamW.", flag=True
    )
    weight_decay: float = declared(
        0.0,
        _number("a number ≥ 0", lambda v: 0 <= v < 1e6),
        "Of AdamW; without decay that is Adam.",
        flag=True,
    )
    schedule: Literal["constant", "cosine"] = declared(
        "constant",
        _one_of("constant", "cosine"),
        'How the learning rate goes: "cosine" falls to 0 over the epochs.',
    )
    warmup: float = declared(
        0.0,
        _number("a share from 0 to below 1", lambda v: 0 <= v < 1),
        "The share of training over which the learning rate first rises from 0.",
    )
    patience: int | None = declared(
        None,
        _or_none(_integer(1)),
        "Stop when the validation error has not improved for this many epochs.",
        flag=True,
    )
    augment: tuple[str, ...] = declared(
        (),
        Rule("a tuple of names, for example ('flip',)", _texts),
        "Augmentations of training batches, in this order: crop, flip, noise.",
        flag=True,
    )
    seed: int = declared(
        0,
        _integer(0, 2**63, " and below 2**63"),
        "Decides everything random, apart from the weights the net came with.",
        flag=True,
    )
    device: str = declared(
        "auto",
        Rule("a text such as 'cpu' or 'cuda:1'", lambda value: isinstance(value, str)),
        'Where to compute: "cpu", "cuda", "cuda:1"; "auto" takes a CUDA device if there is one.',
        flag=True,
    )
    precision: Literal["auto", "float32", "bfloat16"] = declared(
        "auto",
        _one_of("auto", "float32", "bfloat16"),
        '"auto" takes bfloat16 (mixed precision) on CUDA devices that have it.',
    )
    step_mode: Literal["auto", "eager", "captured", "compiled"] = declared(
        "auto",
        _one_of("auto", "eager", "captured", "compiled"),
        "How steps are taken on a CUDA device: kernel by kernel; recorded as a CUDA graph, which "
        "saves what Python takes; or with the net compiled by `torch.compile` as well, which takes "
        'half a minute before it saves anything. "auto" records, and compiles from 50,000 steps '
        "on. On the CPU steps are always eager.",
    )
    device_memory_gib: float | None = declared(
        None,
        _or_none(_number("a number of GiB ≥ 0", lambda v: 0 <= v < math.inf)),
        "How many GiB of instances may be kept on the device. What is larger is streamed to it, "
        "batch by batch; by default what does not fit into the free memory.",
    )
    threads: int | None = declared(
        None,
        _or_none(_integer(1)),
        "CPU threads, by default what torch is set to. On the CPU results are equal to the bit "
        "only at the same number of threads.",
        flag=True,
    )
    checkpoint_every: int = declared(
        1, _integer(1), "Epochs from one checkpoint to the next, in training with a run folder."
    )

    def __post_init__(self) -> None:
        """Check every option."""
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, Integral | Real) and not isinstance(value, bool | int | float):
                value = int(value) if isinstance(value, Integral) else float(value)  # numpy's
                object.__setattr__(self, option.name, value)
            option.metadata["rule"].check(option.name, value)
        object.__setattr__(self, "augment", tuple(self.augment))

    def learning_rate_at(self, progress: float) -> float:
        """Return the learning rate when some share of the training is done.

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

    @classmethod
    def preset(cls, name: str, **changes: Any) -> TrainConfig:
        """Return the preset of a name, with some options changed."""
        if name not in PRESETS:
            raise ConfigError(f"there is no preset {name!r}.", suggestion(str(name), PRESETS))
        return cls.from_dict({**asdict(PRESETS[name]), **changes})

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> TrainConfig:
        """Read options by name; an unknown name is an error."""
        known = [option.name for option in fields(cls)]
        for name in options:
            if name not in known:
                raise ConfigError(f"there is no option {name!r}.", suggestion(name, known))
        return cls(**options)

    @classmethod
    def from_toml(cls, text: str) -> TrainConfig:
        """Read what `to_toml` wrote, options written by hand, or the config.toml of a run."""
        try:
            read = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            problem = f"the configuration is not valid TOML: {error}."
            raise ConfigError(problem, "Correct it.") from error
        return cls.from_dict(read.get("train", read))

    def to_toml(self) -> str:
        """Return all options as TOML, except those that are None."""
        return as_toml(asdict(self))


if TrainConfig.__doc__:
    TrainConfig.__doc__ = TrainConfig.__doc__.replace("    {options}", described(TrainConfig))

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
