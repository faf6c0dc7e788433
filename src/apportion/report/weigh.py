"""How much the numbers of a run say: which bags are off, what is shown, what a few bags change."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.auto.held_out import Expectation
from apportion.metrics import chance_variation, total_variation
from apportion.report.read import RunRead
from apportion.runs.evaluation import Evaluation

Floats = NDArray[np.float64]

OFF = 3.0  # times chance
MATERIAL = 0.25  # the share of an error, or a difference of two shares, that changes a verdict
PRIOR = 4  # instances of the overall shares, which keep a small bag from looking certain


def times_chance(own: Evaluation) -> Floats:
    """Return how many times as far each bag is off as chance explains in a bag of its size.

    A third of an instance is added to chance, since known shares are those of whole instances.
    """
    far = np.nan_to_num(total_variation(own.given, own.predicted))
    chance = np.nan_to_num(chance_variation(own.predicted, own.sizes))
    times: Floats = far / (chance + 1 / (OFF * own.sizes))
    return times


def off_bags(run: RunRead, of: str) -> list[int]:
    """Return the bags that are off by more than chance explains, the farthest first."""
    times = times_chance(run.evaluations[of])
    return [int(bag) for bag in np.argsort(-times, kind="stable") if times[bag] > OFF]


def usual_chance(run: RunRead, of: str) -> float:
    """Return by how much bags of such sizes and shares differ by chance from right probabilities.

    It is the same for all runs of the same bags, since it follows from the known shares alone.
    """
    own, overall = run.evaluations[of], run.overall
    n = own.sizes[:, None]
    shares = own.given.mean(axis=0) if overall is None else overall
    return float(chance_variation((n * own.given + PRIOR * shares) / (n + PRIOR), own.sizes).mean())


def told_class(run: RunRead) -> int | None:
    """Return the class that says all of two, always the same: the rarer one overall."""
    if len(run.classes) != 2:
        return None
    known = run.overall
    if known is None:
        known = run.evaluations[str(run.held_out)].given.mean(axis=0)
    return int(known[1] <= known[0])


def evidence(run: RunRead) -> str:
    """Return what shows that bags which were not learned from are predicted at all.

    "shown" by held-out bags; "expected", by nets that did not see a part of the training bags;
    "mixed", by those alone; "unknown", where neither was measured; or "doubtful".
    """
    of, expected = run.held_out, Expectation.of_record(run.records[-1])
    gain = None if of in (None, "train") else run.gain_interval(str(of))
    if gain is not None and gain[0] > 0:
        return "shown"
    if expected is not None and expected.learned:
        return "expected" if gain is None else "mixed"
    return "unknown" if gain is None and expected is None else "doubtful"


def closer(expected: Expectation) -> float:
    """Return by what share differences are smaller than those of the overall shares.

    Skill is measured by divergence, which is quadratic in differences: its root compares with them.

    Examples
    --------
    >>> closer(Expectation(skill=0.75, standard_errors=4.0))
    0.5
    """
    return 1 - math.sqrt(max(1 - expected.skill, 0.0))


class Without(NamedTuple):
    """Both errors without a few bags that are off."""

    bags: list[int]
    error: float
    of_overall: float

    @property
    def saved(self) -> float:
        """The share of the error of the overall shares that the model removes."""
        return 1 - self.error / self.of_overall if self.of_overall else 0.0


def without_off(run: RunRead, of: str) -> Without | None:
    """Return the errors without the bag that is farthest off, or all that are, if that matters."""
    overall, own, off = run.overall, run.evaluations[of], off_bags(run, of)
    if overall is None:
        return None
    ours, theirs = run.variations(of), total_variation(own.given, overall)
    before = Without([], float(ours.mean()), float(theirs.mean()))
    for some in (off[:1], off):
        if 0 < len(some) <= len(own.ids) / 4:
            left, guess = (float(np.delete(error, some).mean()) for error in (ours, theirs))
            found = Without(some, left, guess)
            if left < (1 - MATERIAL) * before.error or found.saved - before.saved > MATERIAL:
                return found
    return None
