r"""Learn from proportions with any learner of scikit-learn's kind, by alternation.

In every round the learner is fitted to targets that meet the counts of all bags, and its
confidences make the next targets. They come from clones that did not see the instance: bags are
dealt into folds, and those of a fold are judged by the clone that learned from the other folds. For
otherwise a learner that memorises confirms the targets that it was given. The targets are

* soft labels, the confidences closest to the learner's whose sums are the counts
  (`apportion.labels.soft`), by default; or
* hard labels that `apportion.labels.leader.Leader` decides, Algorithm 1 of the paper.

A classifier sees a row with a soft label once per class, with its share as the weight. A regressor
is fitted to the soft labels themselves, which takes a third of the time; HistGradientBoosting ranks
as well either way. What is returned averages the confidences of all clones of the last rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_regressor
from sklearn.dummy import DummyClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from apportion.bags.bags import Bags
from apportion.errors import ConfigError, Option, must_be
from apportion.labels.assign import likeliest_labels
from apportion.labels.leader import Leader
from apportion.labels.linear import LINEAR_FITS
from apportion.labels.soft import soft_labels
from apportion.labels.start import checked_labels, linear_confidence, random_labels
from apportion.metrics import bag_means, proportion_error
from apportion.model.inputs import Inputs, LearnerInputs
from apportion.model.learner import Ensemble, Member
from apportion.randomness import Purpose, generator
from apportion.training.checks import warn_of_bags

__all__ = ["Round", "alternate"]

ROUNDS = {"soft": 6, "fpl": 15}
MOST_KEPT = 3  # rounds whose clones are kept: the last half of all, but no more
LEAST_WEIGHT = 1e-4  # of a class of an instance; below it the instance is left out
MANY = 10_000  # rows, above which early_stopping="auto" of HistGradientBoosting stops early

Floats = NDArray[Any]
Ints = NDArray[np.int64]


class Round(NamedTuple):
    """What happened in one round."""

    number: int  # from 1 on
    rounds: int  # in all
    changed: float  # the share of the targets that is new
    proportion_error: float  # of the confidences, out of fold where there are folds
    seconds: float


def alternate(
    learner: Any,
    bags: Bags,
    *,
    targets: Literal["soft", "fpl"] = "soft",
    first: Any = "linear",
    rounds: int | None = None,
    folds: int = 3,
    eta: float | None = None,
    inputs: Inputs = "auto",
    seed: int = 0,
    on_round: Callable[[Round], None] | None = None,
) -> Ensemble:
    """Fit clones of a learner to bags.

    Parameters
    ----------
    learner : classifier or regressor
        Of scikit-learn's kind; a classifier has `predict_proba`. It is cloned with its parameters,
        and stays as it is. A `random_state` that is None follows from `seed`.
    bags : Bags
        Rows of a table: numbers (M, F), or a tuple of numbers and codes (M, K).
    targets : "soft" or "fpl"
        What the learner is fitted to; see the module. Soft labels need weights of rows: a
        classifier whose `fit` takes no `sample_weight` needs "fpl". A regressor needs "soft".
    first : "linear", "mean-map", "ridge", "random", confidences (N, C) or labels (N,)
        Where the first targets come from, for each instance in the order of `Bags.index`.
    rounds : int, optional
        By default 6 with soft labels and 15 with "fpl".
    folds : int
        How many folds of bags, at most one per bag. 1 fits one clone to all bags, whose
        confidences have then seen the targets.
    eta : float, optional
        The rate of the perturbation for "fpl": by default 5 · rounds / 400.
    inputs : "auto", "frame" or "matrix"
        A frame with missing values and categories, or a matrix of numbers; see
        `apportion.model.inputs`. By default a frame for HistGradientBoosting, LightGBM and
        XGBoost, and a matrix for all others.
    seed : int
        Decides the folds, the random first labels, the perturbation, and the learner's numbers.
    on_round : callable, optional
        Called after every round with a `Round`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0], [1.0], [2.0]])
    >>> bags = Bags.from_rows(x, list("aabbcc"), {"a": [1, 0], "b": [0, 1], "c": [0.5, 0.5]})
    >>> found = alternate(LogisticRegression(), bags)
    >>> found.confidence(x).argmax(axis=1), len(found.members)
    (array([0, 0, 1, 1, 0, 1]), 9)
    """
    rounds = _check(learner, targets, first, rounds, folds)
    folds = min(folds, bags.n_bags)
    warn_of_bags(bags)
    prepared = LearnerInputs.learn(bags, learner, inputs)
    table = prepared.table(bags.x, bags.index)
    confidence = _first_confidence(first, bags, seed)
    leader = None
    if targets == "fpl":
        labels = likeliest_labels(confidence, bags)
        eta = 5 * rounds / 400 if eta is None else eta
        leader = Leader(bags, eta=eta, first=labels, seed=seed)
    target: Floats = soft_labels(confidence, bags) if leader is None else leader.labels
    members: list[Member] = []
    kept_from = rounds - min(rounds - rounds // 2, MOST_KEPT)
    for number in range(1, rounds + 1):
        began = time.perf_counter()
        fitted, confidence = _fit_round(learner, table, bags, target, folds, seed, number)
        if number > kept_from:
            members += fitted
        if leader is None:
            before, target = target, soft_labels(confidence, bags)
            changed = float(np.abs(target - before).sum() / 2 / len(target))
        else:
            changed = leader.decide(confidence).changed
        error = proportion_error(bags.proportions, bag_means(confidence, bags.offsets))
        if on_round is not None:
            on_round(Round(number, rounds, changed, error, time.perf_counter() - began))
    return Ensemble(clone(learner), tuple(members), prepared, bags.n_classes)


def _check(learner: Any, targets: str, first: Any, rounds: int | None, folds: int) -> int:
    regresses = not isinstance(learner, type) and is_regressor(learner)
    if isinstance(learner, type) or not (regresses or hasattr(learner, "predict_proba")):
        what = learner.__name__ if isinstance(learner, type) else type(learner).__name__
        raise ConfigError(
            f"the learner {what} has no predict_proba"
            f"{', for it is a class' if isinstance(learner, type) else ''}.",
            "Pass an instance of a classifier that returns probabilities: "
            "HistGradientBoostingClassifier(), for example.",
        )
    if targets not in ROUNDS:
        raise must_be("targets", "'soft' or 'fpl'", targets)
    if targets == "fpl" and regresses:
        raise ConfigError(
            f"{type(learner).__name__} is a regressor, which hard labels are no targets for.",
            ("Pass ", Option("targets", "'soft'", "soft"), ", or a classifier."),
        )
    if targets == "soft" and not regresses and _weight_name(learner) is None:
        raise ConfigError(
            f"{type(learner).__name__}.fit takes no sample_weight, which soft labels need.",
            ("Pass ", Option("targets", "'fpl'", "fpl"), " for hard labels."),
        )
    if isinstance(first, str) and first not in (known := ("random", *LINEAR_FITS)):
        names = ", ".join(map(repr, known))
        raise must_be("first", f"{names}, confidences or labels", first)
    rounds = ROUNDS[targets] if rounds is None else rounds
    for name, value in (("rounds", rounds), ("folds", folds)):
        if value < 1:
            raise must_be(name, "an integer ≥ 1", value)
    return rounds


def _first_confidence(first: Any, bags: Bags, seed: int) -> Floats:
    if isinstance(first, str) and first in LINEAR_FITS:
        return linear_confidence(first, bags, seed)
    if isinstance(first, str):
        labels = random_labels(bags, seed)
    elif np.asarray(first).ndim == 2:
        return np.asarray(first)
    else:
        labels = checked_labels(first, bags, "the first labels")
    return np.eye(bags.n_classes)[labels]


def _fit_round(
    learner: Any, table: Any, bags: Bags, target: Floats, folds: int, seed: int, number: int
) -> tuple[list[Member], Floats]:
    """Fit a clone per fold to targets; return them, and the confidences of all instances."""
    numbers = generator(seed, Purpose.FOLDS, number)
    fold_of = np.repeat(numbers.permutation(bags.n_bags) % folds, bags.sizes)
    confidence = np.empty((bags.n_instances, bags.n_classes))
    members = []
    for fold in range(folds):
        judged = fold_of == fold
        seen = np.full(len(judged), folds == 1)
        if folds > 1:  # a row may stand in bags of several folds
            held_out = np.zeros(bags.n_rows, bool)
            held_out[bags.index[judged]] = True
            seen = ~held_out[bags.index]
        if not seen.any():
            raise ConfigError(
                f"of {folds} folds, fold {fold} leaves no row to learn from: all stand in its bags "
                "as well.",
                ("Pass ", Option("folds", "1", "1"), "."),
            )
        prepared = _cloned(learner, int(numbers.integers(2**31)), int(seen.sum()))
        members.append(_fit(prepared, table, np.flatnonzero(seen), target))
        confidence[judged] = members[-1].confidence(table[judged], bags.n_classes)
    return members, confidence


def _cloned(learner: Any, number: int, n_rows: int) -> Any:
    """Clone a learner; decide here what it would decide by a random number or a number of rows."""
    made = clone(learner)
    for name, value in made.get_params().items():
        own = name.rpartition("__")[2]
        if own == "random_state" and value is None:
            made.set_params(**{name: number})
        if own == "early_stopping" and value == "auto":  # rows that enter twice are no more rows
            made.set_params(**{name: n_rows > MANY})
    return made


def _fit(learner: Any, table: Any, rows: Ints, target: Floats) -> Member:
    """Fit a learner to some rows, with soft (N, C) or hard (N,) targets."""
    if is_regressor(learner):
        wide = target[rows] if target.shape[1] > 2 else target[rows, -1]
        several = MultiOutputRegressor(learner) if wide.ndim == 2 else learner
        return Member(several.fit(_taken(table, rows), wide), np.arange(target.shape[1]))
    weights = None
    if target.ndim == 1:
        labels = target[rows]
    else:
        of_class = [rows[target[rows, c] > LEAST_WEIGHT] for c in range(target.shape[1])]
        labels = np.repeat(np.arange(len(of_class)), [len(own) for own in of_class])
        rows = np.concatenate(of_class)
        weights = target[rows, labels]
    classes, places = np.unique(labels, return_inverse=True)
    given = _taken(table, rows)
    if len(classes) == 1:  # which many classifiers refuse
        return Member(DummyClassifier(strategy="prior").fit(given, places), classes)
    if "enable_categorical" in learner.get_params() and hasattr(given, "iloc"):
        learner.set_params(enable_categorical=True)  # XGBoost
    options = {} if weights is None else {str(_weight_name(learner)): weights}
    return Member(learner.fit(given, places, **options), classes)


def _weight_name(learner: Any) -> str | None:
    """Return the argument of a learner's fit that holds weights of rows, if it has one."""
    if isinstance(learner, Pipeline):
        name, last = learner.steps[-1]
        inner = _weight_name(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(learner, "sample_weight") else None


def _taken(table: Any, rows: Ints) -> Any:
    return table.iloc[rows] if hasattr(table, "iloc") else table[rows]
