r"""The members of an average: what `method="auto"` trains for which bags, and why.

No method is the best for every kind of bags, and bags without labels cannot tell which one is: held
out or not, they choose badly between good methods. What holds everywhere is to average few models
that err differently. Most are perceptrons of 64 units, trained in full steps (or in steps of 8,192
instances, where there are more than 16,384):

* ``likelihood``: the likelihood of the counts (`apportion.methods.count_likelihood`);
* ``proportions``: Eq. 7, each bag by its size, then soft labels;
* ``linear start``: the perceptron beside a linear model, which it starts as, the likelihood of the
  counts, then soft labels;
* ``linear``: that linear model itself;
* ``small steps``: a single net of 256 units as it is by default, in small steps, by Eq. 7, or by
  the likelihood of the counts where there are several classes; always on all bags.

What the bags decide: by how much more their proportions differ than those of bags filled at random,
the overdispersion

.. math:: \phi = \frac{1}{(n - 1) C} \sum_i \sum_c \frac{|B^i| (p^i_c - q_c)^2}{q_c (1 - q_c)}

with q the proportions of all instances. Bags that differ (φ > 2) teach much, and the danger is to
fit them too closely: each model is then the mean of four, each trained without a quarter of the
bags. Bags that are alike cannot spare a quarter: each model is trained once, on all of them. They
teach so little that a linear model is often as good as any, and soft labels confirm their own
mistakes. So ``likelihood``, ``proportions`` and ``linear start`` are for two classes in bags that
differ, and in all other cases it is ``likelihood``, ``linear start``, ``linear`` and ``small
steps``.

The models that did not see a bag also tell how well its proportions are predicted, against the
proportions of all other bags. That is what to expect, and whether anything was learned at all.
Models on halves of the bags serve for it where bags are alike; with two classes they also set the
slope of the log-odds, which such bags leave too steep or too flat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion import metrics
from apportion.bags.bags import Bags
from apportion.errors import ConfigError, count
from apportion.labels.linear import LINEAR_FITS
from apportion.plan.choices import Choice, Choices
from apportion.plan.kinds import SIGNALS, SPARSE, kind_of_instances
from apportion.plan.methods import AUTO
from apportion.plan.threads import threads_for
from apportion.randomness import Purpose, generator

__all__ = [
    "SMALL_STEPS",
    "TABLE_METHODS",
    "Member",
    "TablePlan",
    "check_is_table",
    "folds_of",
    "members_of",
    "overdispersion",
    "per_step",
    "plan_table",
]

TABLE_METHODS = (AUTO, *LINEAR_FITS)  # which `fit`, that trains one net, does not know
SMALL_STEPS = "small steps"
LONGEST_FIRST = (SMALL_STEPS, "likelihood", "proportions", "linear start", "linear")
MOST_AT_ONCE, PER_STEP = 16_384, 8_192  # instances
DIFFERING = 2.0  # φ
FOLDS = 4


class Member(NamedTuple):
    """One net of the average, or one that only judges bags."""

    kind: str
    fold: int | None = None  # of the bags, that it does not see; None if it sees all
    kept: bool = True  # in the average
    number: int = 0  # its place in the average; it is added to the seed

    def __str__(self) -> str:
        if self.fold is None:
            return self.kind
        return f"{self.kind}, {'' if self.kept else 'to judge, '}without fold {self.fold + 1}"


@dataclass(frozen=True)
class TablePlan(Choices):
    """What the training of an average or of a linear model uses, and why."""

    net: Choice
    method: Choice
    validation: Choice
    threads: Choice


def overdispersion(bags: Bags) -> float:
    """Return by how much more proportions differ than those of bags filled at random.

    Examples
    --------
    >>> alike = Bags.from_rows(None, np.arange(40) // 10, [[0.5, 0.5]] * 4)
    >>> pure = Bags.from_rows(None, np.arange(40) // 10, [[1, 0], [0, 1]] * 2)
    >>> overdispersion(alike), round(overdispersion(pure), 2)
    (0.0, 13.33)
    """
    return metrics.overdispersion(bags.sizes, bags.proportions)


def members_of(bags: Bags, method: str = AUTO) -> list[Member]:
    """List the nets to train, in this order: the longest first, for ranks to be done together."""
    if method != AUTO:
        return [Member(method)]
    n_folds, shared_out = _n_folds(bags), _are_shared_out(bags)
    telling = shared_out and bags.n_classes == 2
    kinds = ["likelihood", "linear start", "linear"]
    kinds = ["likelihood", "proportions", "linear start"] if telling else kinds
    whole = [] if shared_out else [Member(kind) for kind in kinds]
    judges = [Member(kind, fold, shared_out) for fold in range(n_folds) for kind in kinds]
    members = whole + (judges if n_folds > 1 else [])
    members += [] if telling else [Member(SMALL_STEPS)]
    numbered = [member._replace(number=number) for number, member in enumerate(members)]
    return sorted(numbered, key=lambda m: (m.fold is not None, LONGEST_FIRST.index(m.kind)))


def _are_shared_out(bags: Bags) -> bool:
    """Tell whether nets are trained without a part of the bags, since these differ."""
    return bags.n_bags > 1 and overdispersion(bags) > DIFFERING


def _n_folds(bags: Bags) -> int:
    return min(FOLDS if overdispersion(bags) > DIFFERING else 2, bags.n_bags)


def per_step(bags: Bags) -> int:
    """Return how many instances a step takes."""
    return bags.n_instances if bags.n_instances <= MOST_AT_ONCE else PER_STEP


def folds_of(bags: Bags, seed: int) -> NDArray[np.int64]:
    """Return the fold of each bag."""
    return generator(seed, Purpose.FOLDS, 0).permutation(bags.n_bags) % _n_folds(bags)


def plan_table(
    bags: Bags, method: Choice, validation: Choice, threads: int | None = None
) -> TablePlan:
    """Say what is trained on these bags, and why."""
    net = Choice("mlp", "without hidden layers: a linear model")
    if kind_of_instances(bags) == SIGNALS:
        net = Choice("summary", "a linear layer on what each signal is like")
    if method.value == AUTO:
        kept = sum(member.kept for member in members_of(bags))
        net = Choice(f"average of {count(kept, 'net')}", _reason(bags))
    given = None if threads is None else Choice(threads, "given")
    chosen = given or threads_for(bags, per_step(bags))
    return TablePlan(net, method, validation, chosen)


def check_is_table(method: str, kind: str) -> None:
    """Check that the instances to learn by a method of tables are rows of one."""
    others = {SPARSE: LINEAR_FITS, SIGNALS: ("mean-map",)}  # what else is learned of
    if kind != "table" and method not in others.get(kind, ()):
        raise ConfigError(
            f"{method} is for tables, but the instances are {kind}.",
            "Leave it out, or choose a method of nets, for example fpl"
            + ("; or pass a trained network as model=" if method == "mean-map" else "")
            + ("; or mean-map, a linear layer on summaries of them" if kind == SIGNALS else "")
            + ".",
        )


def _reason(bags: Bags) -> str:
    members = members_of(bags)
    kinds = ", ".join(dict.fromkeys(m.kind for m in members if m.kind != SMALL_STEPS))
    more = "; and one in small steps" if members[0].kind == SMALL_STEPS else ""
    if judges := sum(not member.kept for member in members):
        more += f"; {judges} others, each on half of the bags, only judge"
    each = "one net of each kind, on all bags"
    if _are_shared_out(bags):
        each = f"{_n_folds(bags)} nets of each kind, each without a part of the bags"
    return (
        f"proportions differ {overdispersion(bags):.2g} times as much as by chance, in "
        f"{count(bags.n_bags, 'bag')}: {each} ({kinds}){more}"
    )
