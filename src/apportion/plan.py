"""The plan: what follows from the bags alone, each choice with its reason.

The estimator, the command line and the readers of data all ask here. Nothing else decides a
default that depends on the data, but for the nets of an average (`apportion.auto.members`). An
option that is given always wins. Print a plan to read it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from apportion.bags.bags import Bags
from apportion.bags.items import Items
from apportion.bags.sparse import is_sparse, rows_at_once
from apportion.config import FOR_TRAINING, PRESETS, TrainConfig
from apportion.errors import ConfigError, Option, count, must_be, suggestion
from apportion.threads import available_cores, idle_cores, threads_worth

__all__ = [
    "AUTO",
    "FROM_FEATURES",
    "METHOD",
    "SIGNALS",
    "SPARSE",
    "STRONG",
    "Choice",
    "Choices",
    "Plan",
    "Pretrain",
    "Pretraining",
    "check_preset",
    "check_pretrain",
    "check_share",
    "default_method",
    "held_out_share",
    "is_path",
    "kind_of_instances",
    "kind_of_rows",
    "make_plan",
    "planned_pretraining",
    "planned_stem",
    "preset_options",
    "pseudo_labels_for",
    "share_reported",
    "steps_fitting",
    "threads_for",
    "threads_of_steps",
    "views_for",
]

SHARE = 0.1  # of the bags, to select the epoch by
FEWEST_HELD_OUT = 5  # bags: fewer select worse than taking the last epoch
WEIGHT_DECAY = 0.1  # of AdamW
MOST_SEEN = 3e7  # instances that the net is shown in all epochs together
MOST_VIEWED = 2e7  # rows that it is shown in all epochs of pre-training together
MOST_TUNED = 2.65e6  # rows that it is shown after that: 80 epochs of the paper's bags of CIFAR-10
SMALL_IMAGE = 64  # pixels of the longer side: larger ones may be halved twice at once

METHOD, AUTO = "fpl", "auto"
FROM_FEATURES = "fpl-mean-map"  # the same, but for where its first labels come from
STRONG, PRETRAIN, PAPER = "strong", "pretrain", "paper"  # presets; one is also a method
ONE_NET = "count-likelihood"  # the best method of a single net on tables
OF_EVERY_METHOD = ("seed", "device", "threads")  # options of `TrainConfig`
SPARSE, ITEMS, SIGNALS = "sparse rows", "items of a Dataset", "signals"
NET_OF_KIND = {
    "table": "mlp",
    SPARSE: "mlp",
    ITEMS: "mlp",
    SIGNALS: "conv1d",
    "images": "resnet18",
}

Pretrain = bool | str | PathLike[str] | None  # whether to pre-train, or what has been


@dataclass(frozen=True)
class Choice:
    """A value, and why it was chosen."""

    value: Any
    reason: str

    def __str__(self) -> str:
        whole = isinstance(self.value, int) and not isinstance(self.value, bool)
        value = f"{self.value:,}" if whole else self.value
        return self.reason if value is None else f"{value} ({self.reason})"


@dataclass(frozen=True)
class Choices:
    """Choices under their names, as fields. Printed, it has one line per choice."""

    def reasons(self) -> dict[str, str]:
        """Return every choice with its reason, as text."""
        return {name: str(choice) for name, choice in self._choices()}

    def _choices(self) -> Iterator[tuple[str, Choice]]:
        found = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ((name, choice) for name, choice in found if choice is not None)

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self._choices()) + 2
        return "\n".join(f"{name:<{width}}{choice}" for name, choice in self._choices())


@dataclass(frozen=True)
class Pretraining:
    """How a net learns features of rows without labels, before it is trained."""

    epochs: int
    rows: int

    def __str__(self) -> str:
        return f"{count(self.epochs, 'epoch')} on {count(self.rows, 'row')} without labels"


@dataclass(frozen=True)
class Plan(Choices):
    """What a training will use, and why.

    Examples
    --------
    >>> bags = Bags.from_rows(np.zeros((600, 3)), np.arange(600) // 20, np.full((30, 2), 0.5))
    >>> print(make_plan(bags, validation=held_out_share(30)))
    net           mlp (the instances are rows of a table)
    method        count-likelihood (the default of a single net on a table)
    epochs        100 (the default)
    batch_size    32 (about a hundredth of 600 instances, from 32 to 1,024)
    weight_decay  0.1 (the default of a plan)
    validation    0.0 (a tenth of 30 bags is fewer than 5, which select worse than the last epoch)
    threads       1 (steps of 32 rows × 3 columns are too small to share among cores)
    """

    net: Choice
    method: Choice
    epochs: Choice
    batch_size: Choice
    weight_decay: Choice
    validation: Choice  # the share of the bags that is held out to select the epoch by
    threads: Choice  # of a step; training decides it again when it begins, unless it is given
    stem: Choice | None = None  # these two are options of resnet18, which the preset decides
    mirror: Choice | None = None
    pretraining: Choice | None = None  # of images: `Pretraining`, or None for none or what is read

    @property
    def net_options(self) -> dict[str, Any]:
        """The options of the net that are planned."""
        found = {"stem": self.stem, "mirror": self.mirror}
        return {name: choice.value for name, choice in found.items() if choice is not None}

    def config(self, options: Mapping[str, Any]) -> TrainConfig:
        """Return the configuration of the plan, with further options over it."""
        planned = {
            name: getattr(self, name).value for name in ("epochs", "batch_size", "weight_decay")
        }
        given = {name: value for name, value in options.items() if value is not None}
        preset = given.pop("preset", None)
        base = {} if preset is None else preset_options(preset)
        return TrainConfig.from_dict({**base, **planned, **given})


def make_plan(
    train: Bags,
    *,
    validation: Choice,
    net: str | None = None,
    method: Choice | None = None,
    unit: str = "instances",
    options: Mapping[str, Any] | None = None,
    net_options: Mapping[str, Any] | None = None,
    pretrain: Pretrain = None,
    is_own_net: bool = False,
) -> Plan:
    """Decide what follows from the training bags.

    Parameters
    ----------
    validation : Choice
        What `held_out_share` decided before the bags were split.
    net : str, optional
        Its name, if it is given.
    method : Choice, optional
        What was given, or what `default_method` decided.
    unit : "instances" or "bags"
        What the steps of that method are made of.
    options : mapping, optional
        Options of `TrainConfig` that are given, and possibly a `preset`, whose options win over
        what follows from the bags.
    net_options : mapping, optional
        Options of the net that are given.
    pretrain : bool or path, optional
        Whether to pre-train the net on the rows without labels, or what was pre-trained; by default
        what the preset says.
    is_own_net : bool
        Whether the net is the caller's, who knows what it has learned before.
    """
    given = {name: value for name, value in (options or {}).items() if value is not None}
    preset = given.pop("preset", None)
    known = {} if preset is None else preset_options(preset)
    check_preset(preset, kind_of_instances(train))

    def chosen(name: str, value: Any, reason: str) -> Choice:
        if name in given:
            return Choice(given[name], "given")
        if known.get(name) is not None:
            return Choice(known[name], f"the preset {preset!r}")
        return Choice(value, reason)

    n, kind = train.n_instances, kind_of_instances(train)
    rows = len(train.distinct()) if kind == "images" else n
    size, size_reason = _batch_size(n), f"about a hundredth of {n:,} instances, from 32 to 1,024"
    if preset == STRONG and (fitting := steps_fitting(rows)) < known["batch_size"]:
        known["batch_size"], size = None, fitting
        size_reason = f"for {rows:,} rows; the preset {preset!r} has {PRESETS[STRONG].batch_size}"
    if kind == SPARSE and size > (most := rows_at_once(train.parts[0], size)):
        columns = count(train.parts[0].shape[1], "column")
        size, size_reason = max(32, most), f"of {columns}, which are dense a batch at a time"
    own_net = f"the instances are {'rows of a table' if kind == 'table' else kind}"
    epochs, epochs_reason = _epochs(n)
    if preset == STRONG and (enough := _epochs_after_pretraining(rows)) < known["epochs"]:
        known["epochs"], epochs = None, enough
        epochs_reason = f"for {rows:,} rows; the preset {preset!r} has {PRESETS[STRONG].epochs}"
    plan = Plan(
        net=Choice(NET_OF_KIND[kind], own_net) if net is None else Choice(net, "given"),
        method=default_method(kind, ["net"]) if method is None else method,
        epochs=chosen("epochs", epochs, epochs_reason),
        batch_size=chosen("batch_size", size, size_reason),
        weight_decay=chosen("weight_decay", WEIGHT_DECAY, "the default of a plan"),
        validation=validation,
        threads=Choice(given.get("threads"), "given"),
    )
    config = plan.config(options or {})
    if preset == STRONG and plan.net.value == NET_OF_KIND["images"] and not is_own_net:
        plan = replace(plan, **_options_of_resnet(train, config, net_options or {}))
    if kind == "images" or pretrain:
        planned = planned_pretraining(kind, rows, preset, pretrain, is_own_net=is_own_net)
        plan = replace(plan, pretraining=planned)
    if "threads" in given:
        return plan
    return replace(plan, threads=threads_of_steps(train, unit, config))


def steps_fitting(rows: int) -> int:
    """Return a power of two from 32 to 1024, of which rows make eight steps or more.

    Examples
    --------
    >>> steps_fitting(35_000), steps_fitting(1_500), steps_fitting(100)
    (1024, 128, 32)
    """
    return int(2 ** np.clip(np.floor(np.log2(max(rows, 2) / 8)), 5, 10))


def planned_stem(height: int, width: int) -> Choice:
    """Decide how resnet18 begins: whether it halves images twice at once.

    Examples
    --------
    >>> print(planned_stem(32, 32))
    cifar (images of 32 × 32 would be halved twice at once)
    """
    size = f"images of {height} × {width}"
    if max(height, width) <= SMALL_IMAGE:
        return Choice("cifar", f"{size} would be halved twice at once")
    return Choice("imagenet", f"{size} can be halved twice at once")


def _options_of_resnet(
    train: Bags, config: TrainConfig, given: Mapping[str, Any]
) -> dict[str, Choice]:
    height, width = map(int, train.parts[0].shape[2:])
    flips = _flips(config.augment)
    why = "flip is" if flips else "flip is not"
    found = {
        "stem": planned_stem(height, width),
        "mirror": Choice(flips, f"{why} among the augmentations"),
    }
    return found | {name: Choice(given[name], "given") for name in found if name in given}


def _flips(augment: Sequence[str]) -> bool:
    return any(name.partition(":")[0] == "flip" for name in augment)


def views_for(augment: Sequence[str]) -> tuple[str, ...]:
    """Return the augmentations of pre-training, if these are those of training.

    Examples
    --------
    >>> views_for(("strong",)), views_for(("flip", "strong"))
    (('views',), ('flip', 'views'))
    """
    return ("flip", "views") if _flips(augment) else ("views",)


def planned_pretraining(
    kind: str, rows: int, preset: str | None, asked: Pretrain, *, is_own_net: bool = False
) -> Choice:
    """Decide whether a net is pre-trained on so many rows without labels, and for how long.

    Examples
    --------
    >>> print(planned_pretraining("images", 33_000, "strong", None))
    500 epochs on 33,000 rows without labels (the preset 'strong')
    >>> print(planned_pretraining("images", 33_000, None, None))
    none (the preset 'strong' does that)
    """
    check_pretrain(asked, kind)
    if is_path(asked):
        return Choice(None, f"loaded from {_short(asked)}")
    if asked is None and is_own_net:
        return Choice("none", "the net that was passed is taken to be trained already")
    if asked is None and preset != STRONG:
        return Choice("none", f"the preset {STRONG!r} does that")
    if asked is False:
        return Choice("none", "given")
    most = PRESETS[PRETRAIN].epochs
    epochs = int(np.clip(round(MOST_VIEWED / rows), 20, most))
    reason = "given" if asked else f"the preset {preset!r}"
    return Choice(Pretraining(min(epochs, most), rows), reason)


def check_pretrain(asked: Any, kind: str) -> Pretrain:
    """Check what says whether a net for such instances is pre-trained, or where that is kept."""
    if asked is None or asked is False:
        return asked
    if asked is not True and not (isinstance(asked, str | PathLike) and str(asked)):
        raise ConfigError(
            f"pretrain is {asked!r:.60}.",
            "Pass True, False, or the folder of a run of apportion pretrain.",
        )
    if kind != "images":
        value = repr(str(asked)) if is_path(asked) else asked
        raise ConfigError(
            f"pretrain is {value}, but the instances are {_called(kind)}: views are known of "
            "images alone.",
            "Leave it out.",
        )
    return asked


def is_path(asked: Pretrain) -> bool:
    """Tell whether something that was pre-trained is to be read."""
    return not (asked is None or isinstance(asked, bool))


def _short(path: Any) -> str:
    """Return a path for readers elsewhere: never an absolute one."""
    found = Path(path).expanduser()
    return found.name if found.is_absolute() else str(found)


def _called(kind: str) -> str:
    return {"table": "rows of a table", ITEMS: "rows of a Dataset"}.get(kind, kind)


def check_preset(name: str | None, kind: str) -> None:
    """Check that a preset is one for training, and for such instances."""
    if name is None:
        return
    preset_options(name)
    if name == STRONG and kind != "images":
        remedy = "Leave the preset out" + {
            "table": f": {AUTO!r}, an average of nets, is the default for tables.",
            SPARSE: ": a linear model is the default for sparse rows.",
        }.get(kind, ", or choose a method.")
        raise ConfigError(
            f"preset is {name!r}, but the instances are {_called(kind)}: it is for images alone.",
            remedy,
        )


def default_method(kind: str, given: Collection[str], preset: str | None = None) -> Choice:
    """Decide the method if none is given.

    Parameters
    ----------
    kind : str
        What the instances are: see `kind_of_instances`.
    given : collection of str
        The names of the options that are given.
    preset : str, optional
        The preset, if it is one of them.

    Examples
    --------
    >>> print(default_method("table", ["seed"]))
    auto (the default for tables)
    >>> print(default_method("table", ["seed", "epochs"]))
    count-likelihood (the default of a single net on a table, which epochs asks for)
    """
    check_preset(preset, kind)
    if preset == STRONG:
        return Choice(STRONG, f"the preset {preset!r}")
    fpl = "Follow the Perturbed Leader"
    if (named := pseudo_labels_for(kind, preset)) == FROM_FEATURES:
        fpl += ", from labels that summaries of the signals give"
    for name in ("preset", "eta"):
        if name in given:
            return Choice(named, f"{fpl}, since {name} is given")
    if kind not in ("table", SPARSE, ITEMS):
        return Choice(named, f"the default: {fpl}")
    for_one = [name for name in given if name not in (*OF_EVERY_METHOD, "validation")]
    if not for_one and kind == SPARSE:
        return Choice("linear", "the default for sparse rows: many columns, of which each has few")
    if not for_one and kind == "table":
        return Choice(AUTO, "the default for tables")
    asks = "" if for_one in ([], ["net"]) else f", which {' and '.join(for_one)} ask"
    asks += "" if not asks else "s for" if len(for_one) == 1 else " for"
    rows = {"table": "a table", SPARSE: "sparse rows"}.get(kind, "rows of a Dataset")
    return Choice(ONE_NET, f"the default of a single net on {rows}{asks}")


def pseudo_labels_for(kind: str, preset: str | None = None) -> str:
    """Return the name of the method of pseudo labels for such instances.

    Examples
    --------
    >>> pseudo_labels_for("images"), pseudo_labels_for("signals")
    ('fpl', 'fpl-mean-map')
    """
    return FROM_FEATURES if kind == SIGNALS and preset != PAPER else METHOD


def held_out_share(n_bags: int, asked: float | None = None, *, needed_by: str = "") -> Choice:
    """Decide which share of the bags is held out, whole, to select the epoch by.

    Parameters
    ----------
    asked : float, optional
        What is asked for, which is always done.
    needed_by : str
        The option that needs bags to be held out, however few there are; "" if there is none.

    Examples
    --------
    >>> print(held_out_share(200))
    0.1 (a tenth of 200 bags selects the epoch)
    >>> print(held_out_share(20, 0.2))
    0.2 (given)
    >>> print(held_out_share(20, needed_by="patience"))
    0.1 (a tenth of 20 bags, which patience goes by)
    """
    if asked is not None:
        check_share(asked)
        return Choice(float(asked), "given")
    tenth = f"a tenth of {count(n_bags, 'bag')}"
    if needed_by and n_bags > 1:
        return Choice(SHARE, f"{tenth}, which {needed_by} goes by")
    if round(SHARE * n_bags) < FEWEST_HELD_OUT:
        fewer = f"is fewer than {FEWEST_HELD_OUT}, which select worse than the last epoch"
        return Choice(0.0, f"{tenth} {fewer}")
    return Choice(SHARE, f"{tenth} selects the epoch")


def share_reported(asked: float | None) -> Choice:
    """Decide which share of the bags is held out, whole, from a training that selects nothing."""
    if asked is None:
        return Choice(0.0, "nothing is selected, so all bags are learned from")
    reported = "; it selects nothing, and is only reported" if asked else ""
    return Choice(float(asked), f"given{reported}")


def check_share(asked: Any, name: str = "validation") -> None:
    """Check a share of bags that is asked for, by the name that the caller has for it."""
    number = isinstance(asked, Real) and not isinstance(asked, bool)
    if asked is not None and not (number and 0 <= float(asked) < 1):
        raise must_be(name, "a number from 0 to below 1", asked)


def kind_of_instances(bags: Bags) -> str:
    """Return what the instances are, by their shape: "table", "signals" or "images".

    Rows of numbers that are no table in memory are "sparse rows" or "items of a Dataset".
    """
    return "table" if bags.x is None else kind_of_rows(bags.x)


def kind_of_rows(x: Any) -> str:
    """Return what the rows of an array, a frame, a Dataset, or the first of a tuple of them are."""
    first = x.parts[0] if isinstance(x, Items) else x[0] if isinstance(x, tuple) else x
    flat = ITEMS if isinstance(x, Items) else SPARSE if is_sparse(first) else "table"
    return {3: SIGNALS, 4: "images"}.get(len(first.shape), flat)


def preset_options(name: str) -> dict[str, Any]:
    """Return the options of a preset for training."""
    if name == PRETRAIN:
        raise ConfigError(
            f"the preset {name!r} is for pre-training without labels, not for training.",
            ("Pass ", Option("preset", repr(STRONG), STRONG), ", which pre-trains by it first."),
        )
    if name not in FOR_TRAINING:
        raise ConfigError(f"there is no preset {name!r:.60}.", suggestion(str(name), FOR_TRAINING))
    return asdict(TrainConfig.preset(name))


def threads_of_steps(train: Bags, unit: str, config: TrainConfig) -> Choice:
    """Decide how many threads share the steps of a training, in units of instances or bags."""
    rows = min(config.batch_size, train.n_instances)
    if unit == "bags":
        mean = train.sizes.mean()
        n_bags = config.bags_per_step or max(1, config.batch_size // mean)
        rows = int(mean * min(n_bags, train.n_bags))
    return threads_for(train, min(rows, config.instances_per_pass))


def threads_for(train: Bags, per_step: int) -> Choice:
    """Decide how many threads share a step of so many instances.

    Examples
    --------
    >>> bags = Bags.from_rows(np.zeros((600, 3)), np.arange(600) // 20, np.full((30, 2), 0.5))
    >>> print(threads_for(bags, 32))
    1 (steps of 32 rows × 3 columns are too small to share among cores)
    """
    cores = available_cores()
    if kind_of_instances(train) in ("signals", "images"):
        return Choice(cores, "one per available core")
    columns = 1 if train.x is None else sum(int(np.prod(part.shape[1:])) for part in train.parts)
    worth = threads_worth(per_step * columns)
    step = f"steps of {per_step:,} rows × {count(columns, 'column')}"
    if worth == 1:
        return Choice(1, f"{step} are too small to share among cores")
    most, idle = min(worth, cores), cores if cores == 1 else idle_cores()
    reason = f"{step} are worth {worth}"
    if idle < most:
        verb = "is" if idle == 1 else "are"
        return Choice(idle, f"{reason}, but {idle} of {count(cores, 'core')} {verb} idle")
    return Choice(most, reason if most == worth else f"{reason}, on {count(cores, 'core')}")


def _batch_size(n_instances: int) -> int:
    """Return about a hundredth of the instances: a power of two from 32 to 1024."""
    return int(2 ** np.clip(np.round(np.log2(n_instances / 100)), 5, 10))


def _epochs_after_pretraining(rows: int) -> int:
    return int(max(20, round(MOST_TUNED / rows)))


def _epochs(n_instances: int) -> tuple[int, str]:
    epochs = int(np.clip(round(MOST_SEEN / n_instances), 20, 100))
    if epochs == 100:
        return epochs, "the default"
    return epochs, f"{n_instances:,} instances: fewer epochs show the net enough of them"
