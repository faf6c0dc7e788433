r"""Labels by Follow the Perturbed Leader: Algorithm 1, lines 6–10, for any learner.

After every epoch t the learner says how confident it is of each class of each instance, and so how
unlikely each label is, :math:`L_{jc}[t]` (Eq. 2: `apportion.labels.unlikelihood`); and each bag's
next labels are those of least *perturbed* total that meet its counts (Eqs. 5–6),

.. math:: Y[t + 1] = \arg\min_{Y} \sum_j \Big( \sum_{\tau \le t} L_j[\tau] + \eta Z_j \Big)_{Y_j},
          \qquad Z_{jc} \sim N(0, 1) \text{ anew in every epoch.}

The ablations are settings: ``unlikelihood="plain"`` is Eq. 8, :math:`1 - \mathrm{conf}(x_j, c)` for
all c; ``eta=0`` is the paper's Greedy; ``eta=0, memory=0`` is its Naive, which decides by
:math:`L[t]` alone. A memory m in between forgets: about the last :math:`m t` epochs count, by

.. math:: S[t] = \frac{\max(m t - 1, 0)}{\max(m t - m, 1)}\, S[t - 1] + L[t],

which is the paper's sum at m = 1. Labels that depend on a few epochs follow the learner soon while
it learns fast; later they must not, or what it learns from them drifts away with them.
``unlikelihood="log"`` is :math:`-\log \mathrm{conf}(x_j, c)`: for learners whose first labels are
good. Then ``joint=True`` lets the counts of all bags that a row stands in tell of its class: what
decides in each of them is the mean of the logarithms over epochs, raked to the counts of all bags
(`apportion.labels.raking`).

The state is one matrix (N, C) of float32, the labels and 2 C prices per bag. A decision costs a few
passes over that matrix and one more matrix of its size; threads share both.

Reference: S. Matsuo, R. Bise, S. Uchida, D. Suehiro, "Learning From Label Proportion with Online
Pseudo-Label Decision by Regret Minimization", ICASSP 2023.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.bags.bags import Bags
from apportion.bags.shards import shard_cuts
from apportion.config import MOST_THREADS
from apportion.errors import ConfigError, DataError, RunError, must_be
from apportion.labels.assign import Assignment, assign, compile_ahead, likeliest_labels
from apportion.labels.linear import LINEAR_FITS
from apportion.labels.raking import Raking
from apportion.labels.start import checked_labels, first_labels, linear_confidence
from apportion.labels.unlikelihood import (
    GREATEST,
    LARGEST,
    UNLIKELIHOODS,
    Unlikelihood,
    log_unlikelihood,
    places,
    regret,
)
from apportion.metrics import accuracy
from apportion.randomness import Purpose, generator
from apportion.threads import available_cores

__all__ = [
    "Decided",
    "Leader",
    "check_settings",
    "perturbation",
]

BLOCK = 16_384  # instances whose perturbation is drawn at a time; it defines the numbers
WORTH_A_THREAD = 100_000  # numbers; with fewer, starting threads takes longer than computing
PIECE = 131_072  # numbers that a thread computes at a time: they stay in its cache

Floats = NDArray[Any]
Ints = NDArray[np.int64]
First = Literal["random", "decide", "linear", "mean-map", "ridge"] | ArrayLike | Callable[..., Any]


def share_left(memory: float, epoch: float) -> float:
    """Return how much of the sum over earlier epochs is left when an epoch is added to it.

    Examples
    --------
    >>> [round(share_left(0.25, epoch), 3) for epoch in (1, 4, 10, 100)]
    [0.0, 0.0, 0.667, 0.97]
    >>> share_left(1, 7), share_left(0, 7)
    (1.0, 0.0)
    """
    if memory == 1:
        return 1.0
    return max(0.0, memory * epoch - 1) / max(1.0, memory * (epoch - 1)) if memory else 0.0


def perturbation(seed: int, epoch: int, first: int, last: int, n_classes: int) -> Floats:
    """Draw Z for the instances at positions first to last - 1, all of one block.

    It is a pure function of seed, epoch and position, on any machine and in any shard.
    """
    block, start = divmod(first, BLOCK)
    numbers = generator(seed, Purpose.PERTURBATION, epoch, block=block)
    drawn = numbers.standard_normal((start + last - first, n_classes), dtype=np.float32)
    return drawn[start:]


# -------------------------------------------------------------------------------------- the leader


class Decided(NamedTuple):
    """The labels after a decision, and its numbers for the log."""

    labels: Ints  # (N,) those of the leader, which its next decision changes
    changed: float  # the share of them that is new
    regret: float  # per instance and epoch, of all labels played so far


class Leader:
    """The labels of one training, decided anew after every epoch.

    Train on `labels`, call `decide` with the confidences of what was trained, and so on.

    Parameters
    ----------
    bags : Bags
        Their counts, sizes and classes are used; `x` by linear first labels alone, and may be None
        otherwise.
    eta : float
        The rate η of the perturbation. Unlikelihoods add up over the epochs while the perturbation
        does not, so it should grow with them: 5 · epochs / 400 is the paper's 5 at 400.
    unlikelihood : "relative", "plain" or "log"
        Eq. 2, Eq. 8, or −log conf.
    memory : float
        The share of the epochs so far that counts: 1 is the paper's sum over all of them, 0 the
        last epoch alone.
    first : "random", "decide", "linear", "mean-map", "ridge", labels (N,), or confidences (N, C)
        The labels before the first decision. "random" is a random permutation of each bag's counts;
        "decide" is the same, to be replaced before any training by a decision from the untrained
        learner's confidences, which then counts as epoch 0; the linear models are the most
        likely labels by the linear model of that name (`apportion.labels.linear`), fitted to the
        rows of `bags`, which must be those of a table; labels of the caller are positions in
        `Bags.classes`, in the order of `Bags.index`, and meet the counts; of the caller's
        confidences (floats, one row per instance) the most likely labels under the counts are
        taken.
    first_weight : float
        How many epochs the first labels count as, as if a learner had been sure of them in each, or
        had had those confidences; with a memory m below 1 they count as m times as many, and are
        forgotten like others. By default none: Eq. 2 holds against a label that a learner is
        not sure of yet, and so the first decision gives up labels that were good.
    joint : bool
        Whether labels of rows that stand in several bags follow from the counts of all of these.
        It takes ``unlikelihood="log"``, and changes nothing where each row stands in one bag. How
        far counts are to be trusted is learned at decisions 1, 2, 4, 8, and so on, as confidences
        that are poor at first tell little of it. The perturbation of a row is then the mean of that
        of its instances; and there are no shards.
    seed : int
        The first labels and the perturbation follow from it.
    first_position : int
        Where the instances begin among all, if these are only some of the bags: leaders of
        consecutive shards then decide what one leader of all bags decides. Linear first labels
        follow from the bags of the shard alone: fit them to all bags, and pass each its own.
    threads : int, optional
        How many threads to use: by default one per available core. The labels do not depend on it.

    Attributes
    ----------
    labels : array of shape (N,)
        The labels now, one per instance in the order of `Bags.index`. It is changed in place.

    Examples
    --------
    A learner that is more and more confident that the last two instances are of class 1:

    >>> bags = Bags.from_rows(None, ["a"] * 4, {"a": [2, 2]}, counts=True)
    >>> leader = Leader(bags, eta=0.1)
    >>> leader.labels
    array([1, 0, 0, 1])
    >>> for sure in (0.6, 0.8, 0.9):
    ...     confidence = np.array([[sure, 1 - sure]] * 2 + [[1 - sure, sure]] * 2)
    ...     decided = leader.decide(confidence)
    >>> leader.labels, decided.changed
    (array([0, 0, 1, 1]), 0.0)
    """

    def __init__(
        self,
        bags: Bags,
        *,
        eta: float,
        unlikelihood: Unlikelihood = "relative",
        memory: float = 1.0,
        first: First = "random",
        first_weight: float = 0.0,
        joint: bool = False,
        seed: int = 0,
        first_position: int = 0,
        threads: int | None = None,
    ) -> None:
        check_settings(eta, unlikelihood, first, first_weight, memory, joint)
        if threads is not None and not 1 <= threads <= MOST_THREADS:
            rule = f"an integer from 1 to {MOST_THREADS:,}, or None for every core"
            raise must_be("threads", rule, threads)
        if first_position < 0:
            raise must_be("first_position", "an integer ≥ 0", first_position)
        compile_ahead(bags.n_classes)  # while the first epoch trains
        self.bags, self.eta, self.memory = bags, float(eta), float(memory)
        self.unlikelihood: Callable[[Floats, Ints], Floats] = UNLIKELIHOODS[unlikelihood]
        self.seed, self.first_position, self.threads = seed, first_position, threads
        self.decides_first = isinstance(first, str) and first == "decide"
        self.first_weight, self.greatest = float(first_weight), GREATEST[unlikelihood]
        self.raking = Raking(bags) if joint and Raking.concerns(bags) else None
        sure = confidences(first, bags)
        if self.raking is not None and isinstance(first, str) and first in LINEAR_FITS:
            sure = linear_confidence(first, bags, seed).astype(np.float32)
        self.labels: Ints  # Y[1]
        if sure is None:
            self.labels = first_labels(first, bags, seed, first_position)
        elif self.raking is None:
            self.labels = likeliest_labels(sure, bags)
        else:
            self.labels = self._decided(log_unlikelihood(sure), None).labels
        self.total = np.zeros((bags.n_instances, bags.n_classes), np.float32)  # Σ L[1..t], and
        if self.first_weight:  # that before
            if sure is None:
                self.total.reshape(-1)[places(self.labels, self.total)] = 1
            self.total[:] = self.unlikelihood(self.total if sure is None else sure, self.labels)
            self.total *= np.float32(self.first_weight)
        self.remembered = None  # what decides, unless it is the total or the last epoch
        if 0 < self.memory < 1:
            kept = max(1.0, self.memory * self.first_weight) / max(1.0, self.first_weight)
            self.remembered = self.total * np.float32(kept)
        self.played = 0.0  # Σ of the unlikelihood of the labels played
        self.decisions = 0
        self.prices: NDArray[np.float64] | None = None  # where the next decision starts
        self.best_prices: NDArray[np.float64] | None = None  # and the best labels in hindsight

    @property
    def epoch(self) -> int:
        """The epoch that the next decision ends."""
        return self.decisions + (not self.decides_first)

    def decide(self, confidence: Floats) -> Decided:
        """Decide the next labels: lines 6–10, over all bags at once.

        Parameters
        ----------
        confidence : array of floats of shape (N, C)
            How confident the learner is of each class, for each instance in the order of
            `Bags.index`.
        """
        confidence = np.asarray(confidence)
        if confidence.shape != self.total.shape or confidence.dtype.kind != "f":
            given = f"{confidence.dtype} of shape {confidence.shape}"
            raise must_be("confidence", f"floats of shape {self.total.shape}", given)
        if not len(self.labels):  # of a shard
            self.decisions += 1
            self.prices = self.best_prices = np.zeros(self.bags.counts.shape)
            return Decided(self.labels, 0.0, 0.0)
        if not (confidence.min() >= 0 and confidence.max() <= LARGEST):  # nor are both of NaN
            bad = np.argmax(~((confidence >= 0) & (confidence <= LARGEST)).all(axis=1))
            raise DataError(
                f"the confidences of instance {bad:,} are {confidence[bad].tolist()}, but "
                "probabilities are from 0 to 1.",
                "Pass probabilities, not logits. A net that has diverged returns NaN: lower its "
                "learning rate.",
            )
        if self.raking is not None and not self.decisions & (self.decisions + 1):
            self.raking.error = None  # decisions 1, 2, 4, 8, … learn anew what a learner now tells
        epochs = 1.0 if not self.memory else self.decisions + 1 + self.first_weight
        costs = self._perturbed_totals(confidence)
        decided = self._decided(costs, self.prices, max(1.0, (self.memory or 1) * epochs))
        del costs
        changed = 1 - accuracy(decided.labels, self.labels)
        self.labels[:] = decided.labels
        self.decisions += 1
        so_far = regret(
            self.played,
            self.total,
            self.bags.counts,
            self.bags.offsets,
            epochs=self.decisions + self.first_weight,
            prices=self.best_prices,
            threads=self.threads,
        )
        self.prices, self.best_prices = decided.prices, so_far.prices
        return Decided(self.labels, changed, so_far.value)

    def shard(self, rank: int, world: int) -> Leader:
        """Return a leader of `Bags.shard` alone, which decides what this one would decide there.

        It goes on from where this one is, which is not to be used any more.
        """
        if self.raking is not None:
            raise ConfigError(
                "joint decisions take the counts of all bags of a row: other shards may hold some.",
                "Decide in one process, or pass joint=False.",
            )
        own, offsets = copy.copy(self), self.bags.offsets
        bags = slice(*shard_cuts(offsets, world)[rank : rank + 2].tolist())
        rows = slice(offsets[bags.start], offsets[bags.stop])
        own.bags = self.bags.shard(rank, world)
        own.first_position = self.first_position + int(rows.start)
        own.labels, own.total = self.labels[rows].copy(), self.total[rows].copy()
        own.remembered = None if self.remembered is None else self.remembered[rows].copy()
        own.played = self.played if rank == 0 else 0.0  # it is a sum
        own.prices = None if self.prices is None else self.prices[bags]
        own.best_prices = None if self.best_prices is None else self.best_prices[bags]
        return own

    def _decided(
        self, costs: Floats, prices: NDArray[np.float64] | None, epochs: float = 1.0
    ) -> Assignment:
        """Return the labels of least cost (line 9: Eq. 6), of costs over so many epochs."""
        if self.raking is not None:
            rows = self.raking.logits(self.raking.means(costs) / -epochs)
            np.negative(rows, out=rows)
            costs = rows[self.raking.place]
        where = self.bags.counts, self.bags.offsets
        return assign(costs, *where, prices=prices, threads=self.threads)

    def _perturbed_totals(self, confidence: Floats) -> Floats:
        """Add an epoch's unlikelihood to the totals, and return what decides the next labels."""
        (n, n_classes), begin = self.total.shape, self.first_position
        left = share_left(self.memory, self.decisions + 1 + self.first_weight)
        perturbed = np.empty_like(self.total)
        added: list[Future[float]] = []  # what threads have to do first

        def add(start: int, stop: int) -> float:  # line 7; returns what the labels played cost
            rows = slice(start, stop)
            labels, total = self.labels[rows], self.total[rows]
            latest = self.unlikelihood(confidence[rows].astype(np.float32, copy=False), labels)
            total += latest
            if self.remembered is None:
                perturbed[rows] = total if self.memory else latest
            else:
                remembered = self.remembered[rows]
                remembered *= np.float32(left)
                remembered += latest
                perturbed[rows] = remembered
            return float(latest.take(places(labels, latest)).sum(dtype=np.float64))

        def perturb(start: int, stop: int) -> None:  # line 8
            z = perturbation(self.seed, self.epoch, begin + start, begin + stop, n_classes)
            z *= np.float32(self.eta)
            wait(added)  # they are ahead in the queue, so that none of them waits for this
            perturbed[start:stop] += z

        size = max(PIECE // n_classes, 1)
        pieces = list(_cut(n, size, size))
        blocks = list(_cut(n, BLOCK - begin % BLOCK, BLOCK)) if self.eta else []
        if self.threads == 1 or self.total.size < WORTH_A_THREAD:
            self.played += sum([add(*ends) for ends in pieces])
            for ends in blocks:
                perturb(*ends)
            return perturbed
        with ThreadPoolExecutor(self.threads or available_cores()) as pool:
            added += [pool.submit(add, *ends) for ends in pieces]
            done = [pool.submit(perturb, *ends) for ends in blocks]
        self.played += sum([piece.result() for piece in added])
        for block in done:
            block.result()
        return perturbed

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that is needed to go on; later decisions change these very arrays."""
        state: dict[str, NDArray[Any]] = {
            "labels": self.labels,
            "total": self.total,
            "played": np.array(self.played),
            "eta": np.array(self.eta),
            "decisions": np.array(self.decisions),
        }
        if self.remembered is not None:
            state["remembered"] = self.remembered
        if self.raking is not None:
            state["count_error"] = np.array(self.raking.error or 0.0)  # 0 as long as it is unknown
        if self.prices is not None and self.best_prices is not None:
            state |= {"prices": self.prices, "best_prices": self.best_prices}
        return state

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned, of a leader of the same bags.

        Raises
        ------
        RunError
            If it is not the state of such a leader.
        """
        prices = np.zeros(self.bags.counts.shape)
        wanted = {**self.state(), "prices": prices, "best_prices": prices}
        if not np.any(state.get("decisions", 1)):
            del wanted["prices"], wanted["best_prices"]
        remedy = "Go on with the bags that it was saved with, or start again elsewhere."
        for name, like in wanted.items():
            value = state.get(name)
            least = 0 if name in ("eta", "decisions", "count_error") else -np.inf
            if (
                value is None
                or (value.shape, value.dtype) != (like.shape, like.dtype)
                or not (np.isfinite(value) & (value >= least)).all()
            ):
                raise RunError(
                    f"{name} in the state of the labels must be finite {like.dtype} of shape "
                    f"{like.shape}{' and ≥ 0' if least == 0 else ''}.",
                    remedy,
                )
        if unknown := state.keys() - wanted.keys():
            raise RunError(f"the state of the labels has {min(unknown)}, as no state has.", remedy)
        # Of each of the totals:
        most = self.greatest * (float(state["decisions"]) + self.first_weight)
        shares = {"total": 1, "remembered": 1, "played": len(self.labels)}
        for name, share in shares.items():
            if (
                name in state and np.abs(state[name]).max(initial=0) > most * share * 1.001
            ):  # rounding
                raise RunError(
                    f"{name} in the state of the labels must be at most {most * share:g} after "
                    f"{state['decisions']} decisions.",
                    remedy,
                )
        self.labels[:] = checked_labels(state["labels"], self.bags, "the labels of the state")
        self.total[:] = state["total"]
        if self.remembered is not None:
            self.remembered[:] = state["remembered"]
        self.played, self.eta = float(state["played"]), float(state["eta"])
        self.decisions = int(state["decisions"])
        if self.raking is not None:
            self.raking.error = float(state["count_error"]) or None
        self.prices = state["prices"].copy() if self.decisions else None
        self.best_prices = state["best_prices"].copy() if self.decisions else None


def check_settings(
    eta: float,
    unlikelihood: str,
    first: First,
    first_weight: float = 0.0,
    memory: float = 1.0,
    joint: bool = False,
) -> None:
    """Check the settings of a leader."""
    for name, value in (("eta", eta), ("first_weight", first_weight)):
        if not (isinstance(value, Real) and 0 <= float(value) < np.inf):
            raise must_be(name, "a number ≥ 0", value)
    is_number = isinstance(memory, Real) and not isinstance(memory, bool | np.bool_)
    if not (is_number and 0 <= float(memory) <= 1):
        raise must_be("memory", "a number from 0 to 1", memory)
    if unlikelihood not in [*UNLIKELIHOODS]:
        *others, last = map(repr, UNLIKELIHOODS)
        raise must_be("unlikelihood", f"{', '.join(others)} or {last}", unlikelihood)
    if not isinstance(joint, bool):
        raise must_be("joint", "true or false", joint)
    if joint and unlikelihood != "log":
        raise must_be("unlikelihood", "'log' with joint decisions", unlikelihood)
    if isinstance(first, str) and first not in (names := ("random", "decide", *LINEAR_FITS)):
        raise must_be("first", f"{', '.join(map(repr, names))} or an array of labels", first)


def confidences(first: First, bags: Bags) -> Floats | None:
    """Return first labels that are given as confidences (N, C), after a check; else None."""
    if isinstance(first, str) or callable(first) or np.asarray(first).dtype.kind != "f":
        return None
    given = np.asarray(first, np.float32)
    if given.shape != (wanted := (bags.n_instances, bags.n_classes)):
        found = f"{np.asarray(first).dtype} of shape {given.shape}"
        raise must_be("first", f"integers (N,), or confidences of shape {wanted}", found)
    if not (given.min() >= 0 and given.max() <= LARGEST):
        bad = int(np.argmax(~((given >= 0) & (given <= LARGEST)).all(axis=1)))
        raise DataError(
            f"the first confidences of instance {bad:,} are {given[bad].tolist()}, but "
            "probabilities are from 0 to 1.",
            "Pass probabilities, not logits.",
        )
    return given


def _cut(n: int, first: int, size: int) -> Iterator[tuple[int, int]]:
    """Return where pieces of n rows start and stop; the first may be of another size."""
    return pairwise([0, *range(first, n, size), n])
