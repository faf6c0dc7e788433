"""What a training will use: what follows from the bags, and what is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apportion.bags.bags import Bags
from apportion.bags.sparse import rows_at_once
from apportion.config import PRESETS, TrainConfig
from apportion.errors import count
from apportion.plan.choices import Choice, Choices
from apportion.plan.images import (
    Pretrain,
    epochs_after_pretraining,
    options_of_resnet,
    planned_pretraining,
    steps_fitting,
)
from apportion.plan.kinds import IMAGES, ITEMS, SIGNALS, SPARSE, TABLE, kind_of_instances
from apportion.plan.methods import STRONG, check_preset, default_method, preset_options
from apportion.plan.threads import threads_of_steps

__all__ = ["NET_OF_KIND", "WEIGHT_DECAY", "Plan", "make_plan"]

WEIGHT_DECAY = 0.1  # of AdamW
RATE_OF_BAGS = 3e-4  # of losses of whole bags, after pre-training: the paper's
MOST_SEEN = 3e7  # instances that the net is shown in all epochs together

NET_OF_KIND = {
    TABLE: "mlp",
    SPARSE: "mlp",
    ITEMS: "mlp",
    SIGNALS: "conv1d",
    IMAGES: "resnet18",
}


@dataclass(frozen=True)
class Plan(Choices):
    """What a training will use, and why.

    Examples
    --------
    >>> from apportion.plan.held_out import held_out_share
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
    learning_rate: Choice | None = None  # if it is neither the default nor that of the preset
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
        names = ("epochs", "batch_size", "weight_decay", "learning_rate")
        choices = {name: getattr(self, name) for name in names}
        planned = {name: choice.value for name, choice in choices.items() if choice is not None}
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
    rows = len(train.distinct()) if kind == IMAGES else n
    size, size_reason = _batch_size(n), f"about a hundredth of {n:,} instances, from 32 to 1,024"
    if preset == STRONG and (fitting := steps_fitting(rows)) < known["batch_size"]:
        known["batch_size"], size = None, fitting
        size_reason = f"for {rows:,} rows; the preset {preset!r} has {PRESETS[STRONG].batch_size}"
    if kind == SPARSE and size > (most := rows_at_once(train.parts[0], size)):
        columns = count(train.parts[0].shape[1], "column")
        size, size_reason = max(32, most), f"of {columns}, which are dense a batch at a time"
    own_net = f"the instances are {'rows of a table' if kind == TABLE else kind}"
    epochs, epochs_reason = _epochs(n)
    if preset == STRONG and (enough := epochs_after_pretraining(rows)) < known["epochs"]:
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
    if preset == STRONG and unit == "bags" and "learning_rate" not in given:
        why = f"losses of whole bags learn nothing at the {known['learning_rate']:g} of {preset!r}"
        plan = replace(plan, learning_rate=Choice(RATE_OF_BAGS, why))
    config = plan.config(options or {})
    if preset == STRONG and plan.net.value == NET_OF_KIND[IMAGES] and not is_own_net:
        plan = replace(plan, **options_of_resnet(train, config, net_options or {}))
    if kind == IMAGES or pretrain:
        planned = planned_pretraining(kind, rows, preset, pretrain, is_own_net=is_own_net)
        plan = replace(plan, pretraining=planned)
    if "threads" in given:
        return plan
    return replace(plan, threads=threads_of_steps(train, unit, config))


def _batch_size(n_instances: int) -> int:
    """Return about a hundredth of the instances: a power of two from 32 to 1024."""
    return int(2 ** np.clip(np.round(np.log2(n_instances / 100)), 5, 10))


def _epochs(n_instances: int) -> tuple[int, str]:
    epochs = int(np.clip(round(MOST_SEEN / n_instances), 20, 100))
    if epochs == 100:
        return epochs, "the default"
    return epochs, f"{n_instances:,} instances: fewer epochs show the net enough of them"
