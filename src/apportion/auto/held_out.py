"""What bags tell of models that did not see them: what to expect, and how steep the odds are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.bags.bags import Bags
from apportion.metrics import bag_means

__all__ = ["Expectation", "expectation", "slope"]

STEEPNESS = 0.5  # the spread of the logarithm of the slope, before the bags are seen
NO_SKILL = 1.0  # standard errors

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Expectation:
    """How well bags are predicted by models that did not see them."""

    skill: float  # the share of the loss of the overall proportions that is saved
    standard_errors: float  # by which that is above 0, over the bags

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Expectation | None:
        """Return what a record of the log says, if it says all of it."""
        found: list[Any] = [record.get(field.name) for field in fields(cls)]
        return None if None in found else cls(*map(float, found))

    @property
    def learned(self) -> bool:
        """Whether held-out bags are predicted better than by the proportions of the others."""
        return self.standard_errors >= NO_SKILL

    def __str__(self) -> str:
        unseen, others = "bags that a net did not see", "than by the proportions of all other bags"
        if self.learned:
            return f"{unseen} are predicted with {self.skill:.0%} less squared error {others}"
        return (
            f"{unseen} are not predicted clearly better {others} "
            f"({self.standard_errors:.1f} standard errors): perhaps nothing can be learned"
        )


def expectation(bags: Bags, held_out: Floats, folds: Any) -> Expectation:
    """Compare held-out bags with what the proportions of all others would have predicted."""
    sizes, p = bags.sizes, bags.proportions
    others = np.empty_like(p)
    for fold in np.unique(folds):
        rest = folds != fold
        others[~rest] = (sizes[rest, None] * p[rest]).sum(axis=0) / sizes[rest].sum()
    ours, theirs = (_divergence(sizes, p, q) for q in (bag_means(held_out, bags.offsets), others))
    saved = theirs - ours
    error = saved.std(ddof=1) / math.sqrt(len(saved))
    return Expectation(
        float(saved.sum() / max(theirs.sum(), 1e-12)),
        float(saved.mean() / max(error, 1e-12)),
    )


def _divergence(sizes: Any, given: Floats, predicted: Floats) -> Floats:
    """Return n KL(given ‖ predicted) of each bag."""
    q = np.clip(predicted, 1e-4, None)
    q = q / q.sum(axis=1, keepdims=True)
    terms = given * (np.log(np.clip(given, 1e-12, None)) - np.log(q))
    found: Floats = sizes * terms.sum(axis=1)
    return found


def slope(bags: Bags, held_out: Floats) -> tuple[float, float]:
    """Return slope and intercept of the log-odds, by the likelihood of the counts of all bags."""
    from scipy.optimize import minimize  # which a report, that reads the words above, never needs

    p = np.clip(held_out, 1e-4, 1)
    odds, first = np.log(p[:, 1] / p[:, 0]), bags.offsets[:-1]
    counts = bags.sizes * bags.proportions[:, 1]

    def loss(w: Floats) -> float:
        q = 1 / (1 + np.exp(-np.clip(np.exp(w[0]) * odds + w[1], -30, 30)))
        mean, variance = np.add.reduceat(q, first), np.add.reduceat(q * (1 - q), first) + 0.25
        likelihood = ((counts - mean) ** 2 / (2 * variance) + 0.5 * np.log(variance)).sum()
        return float(likelihood + 0.5 * (w[0] / STEEPNESS) ** 2)

    steepness, intercept = minimize(loss, np.zeros(2), method="Nelder-Mead").x
    return float(np.exp(steepness)), float(intercept)
