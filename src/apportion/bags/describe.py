"""A summary of bags, and how well their proportions tell classes apart."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.bags.checks import SUM_TOLERANCE, Floats, Ints
from apportion.bags.counts import count_labels
from apportion.errors import count, listing

NEARLY_IDENTICAL = 0.01  # a spread of proportions; they are seldom known to more than a hundredth
BY_CHANCE = 1.5  # times the spread of bags filled at random: less is hardly more than chance
SMALL_BAGS = 0.5  # a spread of random bags from which on even they tell classes apart
WARNING = "Warning: "  # what a sentence of warning begins with


@dataclass(frozen=True)
class BagsSummary:
    """A summary of bags; print it to read it.

    Spreads are the singular values of the centred proportions, each class divided by the root of
    its mean proportion, over √n: the standard deviation between bags along the directions in which
    proportions can differ (one less than classes occur), the strongest first. A spread of 1 is that
    of bags of one class each, 1/√s that of bags of s instances drawn at random, and 0 that of bags
    that are all alike, from which nothing can be learned along that direction.
    """

    n_bags: int
    n_instances: int
    n_rows: int
    repeated_rows: int  # rows of x in several bags
    unused_rows: int  # rows of x in none
    sizes: tuple[int, float, int]  # least, median, most
    totals: dict[Hashable, int]  # class: its count in all bags
    rounding_total: float  # Σ |counts − size · proportions|
    rounding_most: float  # the largest term
    rounding_bag: Hashable  # and the bag it is in
    n_known: int  # instances whose truth is known
    bags_off_truth: int | None  # bags whose true counts cannot be the given ones
    singular_values: tuple[float, ...]  # of the centred proportions, neither scaled nor over √n
    spreads: tuple[float, ...]
    random_spread: float  # of bags of these sizes, filled at random
    weakest: tuple[Hashable, ...]  # the classes that are hardest to tell apart

    @property
    def separability(self) -> str:
        """A sentence on how well the proportions tell classes apart; a warning if badly."""
        return _separability(self.n_bags, self.spreads, self.random_spread, self.weakest)

    def __str__(self) -> str:
        n, (least, median, most) = self.n_instances, self.sizes
        truth = "unknown"
        if self.bags_off_truth is not None:
            known = "known" if self.n_known == n else f"known for {self.n_known:,} of {n:,}"
            truth = f"{known}; it differs from the counts of {count(self.bags_off_truth, 'bag')}"
        classes = listing((f"{c} {k:,} ({k / n:.1%})" for c, k in self.totals.items()), " · ", 20)
        return f"""\
{count(self.n_bags, "bag")}, {count(n, "instance")}, {count(self.n_rows, "row")}
sizes     {least:,} – {median:,g} – {most:,} (least – median – most)
rows      {self.repeated_rows:,} in several bags, {self.unused_rows:,} in none
classes   {classes}
rounding  moved {self.rounding_total:.3g} in all, {self.rounding_most:.2g} at most \
(bag {self.rounding_bag!r})
truth     {truth}
{self.separability}"""


def summarize(bags: Any) -> BagsSummary:
    """Summarise `Bags`; their module imports this one, so they cannot be named as a type here."""
    sizes, proportions = bags.sizes, bags.proportions
    times_used = np.bincount(bags.index, minlength=bags.n_rows)
    moved = np.abs(bags.counts - sizes[:, None] * proportions)
    moved[moved < SUM_TOLERANCE] = 0
    off_truth, n_known = None, 0
    if bags.truth is not None:
        n_known = int((bags.truth >= 0).sum())
        true = count_labels(bags.truth, sizes, bags.n_classes)
        # What is unknown may be of any class; if all is known, both have the same sum.
        off_truth = int((true > bags.counts).any(axis=1).sum())
    centred = proportions - proportions.mean(axis=0)
    spreads, weakest = _spreads(proportions)
    return BagsSummary(
        n_bags=bags.n_bags,
        n_instances=bags.n_instances,
        n_rows=bags.n_rows,
        repeated_rows=int(np.sum(times_used > 1)),
        unused_rows=int(np.sum(times_used == 0)),
        sizes=(int(sizes.min()), float(np.median(sizes)), int(sizes.max())),
        totals=dict(zip(bags.classes, bags.counts.sum(axis=0).tolist(), strict=True)),
        rounding_total=float(moved.sum()),
        rounding_most=float(moved.max()),
        rounding_bag=bags.ids[int(moved.max(axis=1).argmax())],
        n_known=n_known,
        bags_off_truth=off_truth,
        singular_values=tuple(np.linalg.svd(centred, compute_uv=False).tolist()),
        spreads=tuple(spreads.tolist()),
        random_spread=_random_spread(sizes),
        weakest=tuple(bags.classes[c] for c in weakest),
    )


def _separability(
    n_bags: int, spreads: Sequence[float], random: float, hardest_classes: Sequence[Hashable]
) -> str:
    possible, clear = len(spreads), sum(s >= NEARLY_IDENTICAL for s in spreads)
    if not possible:
        return f"{WARNING}only one class occurs, so that there is nothing to tell apart."
    hardest = f"Hardest to tell apart: {listing(hardest_classes)}."
    extent = f"along {clear} of {count(possible, 'direction')}"
    weakest = spreads[-1]
    if clear == possible and (random >= SMALL_BAGS or weakest >= BY_CHANCE * random):
        return (
            f"The proportions differ between bags {extent}; the weakest has a spread of "
            f"{weakest:.2g}\n(bags of one class each: 1; bags filled at random: {random:.2g}). "
            f"{hardest}"
        )
    remedy = "Make bags that differ more, for example by place or time instead of at random."
    if n_bags <= possible:
        problem = f"{count(n_bags, 'bag')} cannot tell {possible + 1} classes apart"
        remedy = f"Make at least {possible + 1} bags, of different proportions."
    elif clear == possible:
        problem = (
            "the classes can barely be told apart, since the proportions differ between bags\n"
            f"hardly more than by chance (spread {weakest:.2g}; bags filled at random: "
            f"{random:.2g})"
        )
    elif clear:
        problem = f"the bags' proportions differ {extent} only (spread {weakest:.2g})"
    else:
        problem = f"the bags' proportions are nearly identical (spread {spreads[0]:.2g})"
    return f"{WARNING}{problem}.\n{hardest} {remedy}"


def separability_warning(bags: Any) -> str | None:
    """Return the warning of the summary of `Bags` on one line, if there is one, and no more."""
    spreads, weakest = _spreads(bags.proportions)
    named = [bags.classes[c] for c in weakest]
    said = _separability(bags.n_bags, spreads.tolist(), _random_spread(bags.sizes), named)
    if not said.startswith(WARNING):
        return None
    said = said.removeprefix(WARNING).replace("\n", " ")
    return said[0].upper() + said[1:]


def _random_spread(sizes: Ints) -> float:
    return float(np.sqrt(np.mean(1 / sizes)))


def _spreads(proportions: Floats) -> tuple[Floats, Ints]:
    """Find the spread along every direction, and the classes of those that are too weak."""
    mean = proportions.mean(axis=0)
    occurring = np.flatnonzero(mean > 0)
    root = np.sqrt(mean[occurring])
    scaled = (proportions - mean)[:, occurring] / root
    # All bags lie on the plane of sum 1. Its normal is no direction to differ along: it is
    # given a variance above all others (they are at most 1), sorted last, and left out.
    variances, axes = np.linalg.eigh(scaled.T @ scaled / len(scaled) + 2 * np.outer(root, root))
    spreads = np.sqrt(np.clip(variances[:-1], 0, 1))
    spreads[spreads < SUM_TOLERANCE] = 0
    weak = max(1, int(np.sum(spreads < NEARLY_IDENTICAL)))
    involved = np.sum(axes[:, :weak] ** 2, axis=1)
    ranked = np.argsort(-involved, kind="stable")
    named = max(2, int(np.sum(involved >= involved.max() / 4)))
    return spreads[::-1], np.sort(occurring[ranked[:named]])
