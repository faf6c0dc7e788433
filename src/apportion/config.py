"""How to train: every option in one place, as a dataclass that a TOML file can hold.

An option is declared once: its field has the default and the rule that it must meet, and the
docstring the help text, which the command line shows as well. The presets are `default`; `paper`,
which is what Matsuo et al. did: 400 epochs of Adam at a constant 3e-4, 512 instances per step for
pseudo labels and four bags per step for proportion losses; `strong`, the most that images allow,
with the method of that name; and `pretrain`, by which a net learns features without labels first.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

from apportion.errors import ConfigError, must_be, suggestion
from apportion.files import as_toml, parse_toml

__all__ = ["FOR_TRAINING", "MOST_NETS", "MOST_THREADS", "PRESETS", "Rule", "TrainConfig",
           "help_texts"]  # fmt: skip


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


def _integer(least: int, below: int = 2**63, words: str = "") -> Rule:
    def holds(value: Any) -> bool:
        return _is_number(value) and isinstance(value, int) and least <= value < below

    return Rule(f"an integer ≥ {least}{words}", holds)


def _number(words: str, least: float, below: float) -> Rule:
    return Rule(words, lambda value: _is_number(value) and least <= value < below)


def _one_of(*known: str) -> Rule:
    words = ", ".join(map(repr, known[:-1])) + f" or {known[-1]!r}"
    return Rule(words, lambda value: isinstance(value, str) and value in known)


def _or_none(rule: Rule) -> Rule:
    return Rule(f"{rule.words}, or None", lambda value: value is None or rule.holds(value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, value))


ONE_OR_MORE = _integer(1)
MOST_NETS = 64  # of an average
MOST_THREADS = 1024  # more than any machine has use for, and fewer than an operating system refuses
MANY = f" and ≤ {MOST_THREADS:,}"


def option(value: Any, rule: Rule) -> Any:
    """Declare an option: its default and its rule. Its help text is in the docstring."""
    return field(default=value, metadata={"rule": rule})


def help_texts(cls: type) -> dict[str, str]:
    """Return the text of every parameter in the docstring of a class.

    Examples
    --------
    >>> help_texts(TrainConfig)["epochs"]
    'How often every instance is used.'
    """
    section = inspect.getdoc(cls) or ""
    section = section.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^(\w.*?) : .*\n((?: +.*\n?)+)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    Parameters
    ----------
    epochs : int
        How often every instance is used.
    batch_size : int
        Instances per optimiser step. Where a method learns from whole bags, a step takes bags up to
        this many instances, and always at least one.
    bags_per_step : int, optional
        Whole bags per step, however large, for the methods that learn from bags.
    shuffle : "all" or "shard"
        What processes that train together shuffle: all instances, so that they learn what one
        learns; or each a run of them by itself, so that its steps read no others, as where machines
        share rows over a slow network. One process shuffles all.
    instances_per_pass : int
        The most instances that go through the net at once. A larger step is taken in pieces, with
        the same result (except BatchNorm, which normalises each piece by itself).
    learning_rate : float
        The learning rate of AdamW.
    weight_decay : float
        The weight decay of AdamW; with 0 it is Adam.
    schedule : "constant" or "cosine"
        How the learning rate changes: "cosine" falls to 0 over the epochs.
    warmup : float
        The share of training over which the learning rate first rises from 0.
    clip_norm : float, optional
        The most that the gradient of a step may be long, over all parameters together: a longer
        one is scaled down to it.
    average : float
        The decay of averaged weights, for example 0.99: after every step they keep this share (less
        in the first steps), and take the rest from the net. They then decide labels, are validated,
        and are what is kept.
    select : "least" or "last"
        Which epoch is selected, if there are validation bags: that of the least validation error;
        or the last one, unless its error is larger than the least beyond chance: by more than two
        standard errors of the difference per bag, and than the least lies below the epochs around
        it; or by half. Where the learning rate falls to 0 that is steadier.
    patience : int, optional
        Stop when the validation error has not improved for this many epochs.
    augment : tuple of str
        Augmentations of training batches, in this order: crop, flip, noise, zoom, colour, cutout;
        with numbers as in zoom:0.5, which docs/training.md lists. strong and views are several.
    seed : int
        Determines everything random, except the initial weights of a net that is passed in.
    device : str
        Where to compute: cpu, cuda, cuda:1; auto is a CUDA device if there is one.
    precision : "auto", "float32" or "bfloat16"
        "auto" is bfloat16 (mixed precision) on CUDA devices that support it.
    step_mode : "auto", "eager", "captured" or "compiled"
        How steps are taken on a CUDA device: kernel by kernel; recorded as a CUDA graph, which
        saves the time of Python; or with the net compiled by `torch.compile` as well, which first
        takes half a minute. "auto" records, and compiles from 50,000 steps on.
        On the CPU steps are always eager.
    device_memory_gib : float, optional
        How many GiB of instances may be kept on the device, by default what fits into the free
        memory. Larger data are streamed to it, batch by batch.
    threads : int, optional
        CPU threads. By default training takes as many as its steps are worth on the cores that
        are idle when it begins, often 1, and label decisions take all cores. On the CPU, results
        are bit-identical only at the same number of threads: pass one, where that matters.
    workers : int
        Processes that read the items of a Dataset ahead of their use, as in a DataLoader; with 0
        they are read between the steps. Results are the same. Arrays need none.
    checkpoint_every : int
        The number of epochs between checkpoints, in training with a run folder. One is also saved
        after an epoch that ends five minutes or more after the last one.

    Examples
    --------
    >>> config = TrainConfig.preset("paper", epochs=100)
    >>> config.epochs, config.batch_size, config.learning_rate
    (100, 512, 0.0003)
    >>> TrainConfig.from_toml(config.to_toml()) == config
    True
    """

    epochs: int = option(100, ONE_OR_MORE)
    batch_size: int = option(128, ONE_OR_MORE)
    bags_per_step: int | None = option(None, _or_none(ONE_OR_MORE))
    shuffle: Literal["all", "shard"] = option("all", _one_of("all", "shard"))
    instances_per_pass: int = option(4096, ONE_OR_MORE)
    learning_rate: float = option(1e-3, _number("above 0 and below a million", 1e-300, 1e6))
    weight_decay: float = option(0.0, _number("a number ≥ 0", 0, 1e6))
    schedule: Literal["constant", "cosine"] = option("constant", _one_of("constant", "cosine"))
    warmup: float = option(0.0, _number("a share from 0 to below 1", 0, 1))
    clip_norm: float | None = option(None, _or_none(_number("a number above 0", 1e-300, math.inf)))
    average: float = option(0.0, _number("a number from 0 to below 1", 0, 1))
    select: Literal["least", "last"] = option("least", _one_of("least", "last"))
    patience: int | None = option(None, _or_none(ONE_OR_MORE))
    augment: tuple[str, ...] = option((), Rule("a tuple of names, for example ('flip',)", _texts))
    seed: int = option(0, _integer(0, 2**63, " and below 2**63"))
    device: str = option("auto", Rule("a text such as 'cpu' or 'cuda:1'", _is_text))
    precision: Literal["auto", "float32", "bfloat16"] = option(
        "auto", _one_of("auto", "float32", "bfloat16")
    )
    step_mode: Literal["auto", "eager", "captured", "compiled"] = option(
        "auto", _one_of("auto", "eager", "captured", "compiled")
    )
    device_memory_gib: float | None = option(
        None, _or_none(_number("a number of GiB ≥ 0", 0, math.inf))
    )
    threads: int | None = option(None, _or_none(_integer(1, MOST_THREADS + 1, MANY)))
    workers: int = option(0, _integer(0, MOST_THREADS + 1, MANY))
    checkpoint_every: int = option(1, ONE_OR_MORE)

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
            raise ConfigError(f"there is no preset {name!r}.", suggestion(str(name), FOR_TRAINING))
        return cls.from_dict({**asdict(PRESETS[name]), **changes})

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> TrainConfig:
        """Read options by name; an unknown name is an error."""
        if not isinstance(options, Mapping):
            raise must_be("the configuration", "options by name", options)
        known = [option.name for option in fields(cls)]
        for name in options:
            if name not in known:
                raise ConfigError(f"there is no option {name!r}.", suggestion(name, known))
        return cls(**options)

    @classmethod
    def from_toml(cls, text: str) -> TrainConfig:
        """Read what `to_toml` wrote, options written by hand, or the config.toml of a run."""
        read = parse_toml(text, "the configuration")
        return cls.from_dict(read.get("train", read))

    def to_toml(self) -> str:
        """Return all options as TOML, except those that are None."""
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
    "strong": TrainConfig(
        epochs=150,
        batch_size=512,
        learning_rate=2e-3,
        weight_decay=0.05,
        schedule="cosine",
        warmup=0.02,
        average=0.99,
        select="last",
        augment=("strong",),
        step_mode="compiled",
        checkpoint_every=10,
    ),
    "pretrain": TrainConfig(
        epochs=500,
        batch_size=1024,
        learning_rate=2e-3,
        weight_decay=0.005,
        schedule="cosine",
        warmup=0.02,
        augment=("views",),
        step_mode="compiled",
        checkpoint_every=10,
    ),
}
FOR_TRAINING = tuple(name for name in PRESETS if name != "pretrain")
