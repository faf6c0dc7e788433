r"""First labels: those of a leader before its first decision.

They are random, or the most likely ones of a linear model of the bags' own rows, or those that
`fit_features` finds in features of the rows, such as a network's, or the caller's.

Features (M, D) say more of a row than its pixels, and are often many. `fit_features` standardises
them, and takes the first principal components, one for every 16 instances and one for every four
bags, but from 16 to 128: of few bags more would be learned by heart (12 bags of 64 spoken digits,
ten draws: on average 75 % of the labels right with 128 components, 92 with 51). Each is divided by
:math:`\sqrt{\lambda + \rho \Lambda}`: λ is its variance, Λ that of all, and ρ = 0.001 damps what
hardly varies. Of these numbers f

1. class means :math:`\mu_c` follow from bag means and proportions by regularised least squares, and
   classes from :math:`f^T \mu_c - \tfrac12 |\mu_c|^2`, the linear rule with the total covariance,
   which stays regular however large the bags are;
2. in a few rounds each bag gets the most likely labels under its counts, and a logistic regression
   learns them. Of a row that stands in several bags the counts of all of these tell (see
   `apportion.labels.raking`), and what is learned is the mean of its labels.

A round costs some 40 passes over the (M, 128) numbers, and one assignment.

Such a fit is `FIRM`: it is for features that are many. A `LOOSE` one finds classes that are not
what varies most in a few features, where the firm one does not. Of 20 features of signals, of which
two tell the classes (synthetic ones, 30 bags of 20, three draws), 99 % of fresh signals were right
in place of 75; of 131 features of spoken digits in 12 bags of 64 it was worse, 83 % in place of 89.

Where features of several kinds are known of the rows, or both fits may do, `most_telling` chooses
by proportions alone: it takes that from which half of the bags learns most of the other half.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse

from apportion.bags.bags import Bags
from apportion.bags.counts import count_labels
from apportion.bags.shards import shard_cuts
from apportion.errors import BagError, ConfigError, DataError, count, must_be
from apportion.labels._fitting import Problem, logits_of, minimise
from apportion.labels._losses import normalisers
from apportion.labels.assign import assign, likeliest_labels
from apportion.labels.linear import LINEAR_FITS, Linear, class_means
from apportion.labels.raking import Raking
from apportion.labels.rows import Design, RowEncoding
from apportion.metrics import bag_means, total_variation
from apportion.randomness import Purpose, generator

__all__ = ["DEAREST", "FIRM", "LOOSE", "Penalty", "Start", "checked_labels", "first_labels",
           "fit_features", "linear_confidence", "most_telling", "random_labels"]  # fmt: skip

AT_ONCE = 2**20  # instances whose random labels are drawn
LEAST_COMPONENTS, MOST_COMPONENTS = 16, 128
INSTANCES_EACH, BAGS_EACH = 16, 4  # that a component takes to be worth it
ROUNDS, STEPS = 12, 40  # of labels, and of L-BFGS in each of them
DEAREST = 12.0  # cost of a label: what is surer than that decides no more
TIES = 1e-7  # of costs, broken at random: the order of rows may follow the truth
MOST_EXACT = 2048  # features; of more, the components are found by subspace iteration
PASSES, EXTRA = 4, 16  # of it, and dimensions beside those wanted
NEGLIGIBLE = 1e-6  # standard deviation, relative to the mean: the rounding of float32
MOST_TO_CHOOSE, LEAST_TO_CHOOSE = 20_000, 20  # instances, and bags, that choose between fits

Floats = NDArray[Any]
Ints = NDArray[np.int64]


def first_labels(first: Any, bags: Bags, seed: int, first_position: int = 0) -> Ints:
    """Return the first labels (N,): "random", a name of `LINEAR_FITS`, or the caller's, checked.

    Examples
    --------
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0], [1.0], [2.0]])
    >>> bags = Bags.from_rows(x, list("aabbcc"), {"a": [1, 0], "b": [0, 1], "c": [0.5, 0.5]})
    >>> first_labels("linear", bags, seed=0)
    array([0, 0, 1, 1, 0, 1])
    """
    if callable(first):
        raise ConfigError(
            f"first is {first!r:.60}, which only fit calls, with batches on its device.",
            "Compute the features of the rows, and pass fit_features(bags.with_rows(features)) "
            "of apportion.labels.start: its labels.",
        )
    if not isinstance(first, str):
        return checked_labels(first, bags, "the first labels")
    if first in LINEAR_FITS:
        return likeliest_labels(linear_confidence(first, bags, seed), bags)
    return random_labels(bags, seed, first_position)


def linear_confidence(name: str, bags: Bags, seed: int) -> NDArray[Any]:
    """Return the confidences (N, C) of a linear model that is fitted to the rows of bags."""
    return LINEAR_FITS[name](bags, seed=seed).confidence(bags.x, bags.index)


def random_labels(bags: Bags, seed: int, first_position: int = 0) -> Ints:
    """Return a random permutation of each bag's counts, as labels (N,).

    They are random whatever η is: an assignment at costs of 0 would follow the order of the rows,
    and so leak the truth where rows are stored by class. Where `bags` are only some, their
    instances begin at `first_position` among all.

    Examples
    --------
    >>> bags = Bags.from_rows(None, ["a"] * 4 + ["b"] * 2, {"a": [2, 2], "b": [0, 2]}, counts=True)
    >>> random_labels(bags, seed=0)
    array([1, 0, 0, 1, 1, 1])
    """
    numbers = generator(seed, Purpose.FIRST_LABELS, 0, position=first_position)
    labels = np.empty(bags.n_instances, np.int64)
    runs = shard_cuts(bags.offsets, bags.n_instances // AT_ONCE + 1)
    for first, last in pairwise(runs.tolist()):
        some, own = slice(first, last), slice(bags.offsets[first], bags.offsets[last])
        counts, bag = bags.counts[some], np.repeat(np.arange(last - first), bags.sizes[some])
        classes = np.tile(np.arange(bags.n_classes), last - first)
        keys = numbers.random(len(bag))
        labels[own] = np.repeat(classes, counts.ravel())[np.lexsort((keys, bag))]
    return labels


class Penalty(NamedTuple):
    """How far a fit is held back."""

    l2: float  # of the logistic regression, in units of rows
    damping: float  # share of the variance that is added to that of each component: ρ


FIRM, LOOSE = Penalty(100.0, 1e-3), Penalty(1.0, 0.1)


class Start(NamedTuple):
    """What `fit_features` has found."""

    labels: Ints  # (N,) they meet the counts of every bag
    linear: Linear  # predicts classes from features


def fit_features(
    bags: Bags, *, rounds: int = ROUNDS, seed: int = 0, penalty: Penalty = FIRM
) -> Start:
    """Find labels, and a linear model, from features of the rows: see the module.

    Parameters
    ----------
    bags : Bags
        Their `x` are features (M, D), for example those of a network: ``bags.with_rows(features)``.
        Only rows that stand in bags are used.
    rounds : int
        How often labels are decided, at most: it ends where they stay as they are.
    seed : int
        Decides between labels that are equally likely.
    penalty : Penalty
        `FIRM` or `LOOSE`, or another one.

    Raises
    ------
    DataError
        If features are missing or infinite, or the same for all rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(2, size=400)
    >>> features = rng.normal(size=(400, 5)) + 4 * truth[:, None]
    >>> bag = np.arange(400) // 40
    >>> bags = Bags.from_rows(features, np.where(truth, bag, bag[::-1]), truth=truth)
    >>> found = fit_features(bags.without_truth())
    >>> bool((found.labels == bags.truth).mean() > 0.99)
    True
    >>> found.linear.confidence(np.array([[0.0] * 5, [4.0] * 5])).argmax(axis=1)
    array([0, 1])
    """
    if rounds < 1:
        raise must_be("rounds", "an integer ≥ 1", rounds)
    encoding = RowEncoding.learn(bags)
    if encoding.categories is not None:
        raise must_be("x", "one array of features", "a tuple of numbers and codes")
    rows, place = np.unique(bags.index, return_inverse=True)
    numbers = encoding.design(bags.x, rows).numbers
    numbers[:, encoding.std <= NEGLIGIBLE * np.abs(encoding.mean)] = 0
    worth = len(place) // INSTANCES_EACH + bags.n_bags // BAGS_EACH
    most = int(np.clip(worth, LEAST_COMPONENTS, MOST_COMPONENTS))
    projection = _components(numbers, most, seed, penalty.damping)
    components = numbers @ projection
    del numbers
    sums = sparse.csr_array((np.ones(len(place)), place, bags.offsets)) @ components
    mean = sums.sum(axis=0)[:, None] / bags.n_instances
    moments = sums.T @ bags.proportions
    means = class_means(moments, mean, bags.proportions, bags.sizes)
    present = np.maximum(bags.counts.sum(axis=0) / bags.n_instances, 1e-9)
    weights = np.concatenate([means, [np.log(present) - 0.5 * (means**2).sum(axis=0)]])
    ties = TIES * generator(seed, Purpose.FIRST_LABELS, 1).random((len(place), bags.n_classes))
    problem = Problem(Design(components, None), np.zeros((1, 1)), np.array([0, len(rows)]))
    raking = Raking(bags) if len(rows) < len(place) else None
    labels, start = None, problem._replace(counts=present[None]).start()
    for _ in range(rounds):
        logits = logits_of(problem.design, weights).T
        logits -= logits.max(axis=1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        logits = np.maximum(logits, -DEAREST)
        costs = ties - (logits if raking is None else raking.logits(logits))[place]
        decided = assign(costs, bags.counts, bags.offsets).labels
        if labels is not None and (decided == labels).all():
            break
        labels = decided
        cells = place * bags.n_classes + labels
        votes = np.bincount(cells, minlength=logits.size).reshape(logits.shape)
        votes = votes / votes.sum(axis=1, keepdims=True)
        sums = np.concatenate([components.T @ votes, [votes.sum(axis=0)]])
        start = weights = minimise(problem, normalisers, start, penalty.l2, STEPS, sums)
    assert labels is not None
    linear = projection @ weights[:-1], weights[-1] - weights[-1].mean()
    return Start(labels, Linear("mean-map", encoding, *linear, penalty.l2, {}))


def most_telling(
    candidates: Sequence[tuple[Bags, Penalty]], *, seed: int = 0
) -> tuple[int, list[float]]:
    """Choose the fit that tells most of bags which it was not learned from.

    Two halves of the bags, every other one, are learned from in turn by `fit_features`. The fit
    chosen is that by which the proportions of the other half are missed by least, if every row is
    of its likeliest class; and the first one, unless another is better by a standard error.

    Parameters
    ----------
    candidates : sequence of pairs
        The same bags with features of different kinds for their `x`, and the penalty of the fit.

    Returns
    -------
    int
        Which of them; the first one if there is but one bag.
    list of float
        By how much they miss proportions: the mean total variation over the bags. It is infinite
        of features that are the same for all rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth, bag = rng.integers(2, size=400), np.arange(400) // 40
    >>> bag = np.where(truth, bag, bag[::-1])
    >>> nothing, much = rng.normal(size=(400, 5)), rng.normal(size=(400, 5)) + 4 * truth[:, None]
    >>> several = [Bags.from_rows(x, bag, truth=truth).without_truth() for x in (nothing, much)]
    >>> most_telling([(bags, FIRM) for bags in several])[0]
    1
    """
    errors = [_errors_of_halves(bags, penalty, seed) for bags, penalty in candidates]
    means = [float(missed.mean()) for missed in errors]
    best = int(np.argmin(means))
    if np.isfinite(means[0]):
        saved = errors[0] - errors[best]
        best = best if saved.mean() > saved.std() / np.sqrt(len(saved)) else 0
    return best, means


def _errors_of_halves(bags: Bags, penalty: Penalty, seed: int) -> Floats:
    """Return by how much the proportions of each bag are missed, or of some where there are many.

    They are in the same order for all fits to the same bags.
    """
    if bags.n_bags < 2:
        return np.zeros(1)
    step = min(-(-bags.n_instances // MOST_TO_CHOOSE), max(1, bags.n_bags // LEAST_TO_CHOOSE))
    some = np.arange(0, bags.n_bags, step)
    halves, missed = [some[::2], some[1::2]], list[Floats]()
    for learned, judged in (halves, halves[::-1]):
        own, other = bags[learned], bags[judged]
        try:
            linear = fit_features(own, seed=seed, penalty=penalty).linear
        except DataError:  # the same for all of these rows
            return np.full(1, np.inf)
        likeliest = linear.confidence(other.x, other.index).argmax(axis=1)
        predicted = bag_means(np.eye(bags.n_classes)[likeliest], other.offsets)
        missed.append(total_variation(other.proportions, predicted))
    return np.concatenate(missed)


def _components(numbers: Floats, most: int, seed: int, damping: float) -> Floats:
    """Return what maps standardised features (M, D) to so many damped principal components."""
    (n, width), variance = numbers.shape, float(np.square(numbers).mean(axis=0).sum())
    if not variance:
        raise DataError(
            f"all {width:,} features are the same in all {count(n, 'row')}: nothing can be learned "
            "from them.",
            "Take features of a trained network; or random first labels, which need none.",
        )
    basis, within = None, numbers
    if width > MOST_EXACT:
        draws = generator(seed, Purpose.FIRST_LABELS, 2)
        basis = numbers.T @ draws.standard_normal((n, min(most + EXTRA, n)))
        for _ in range(PASSES):
            basis = numbers.T @ (numbers @ np.linalg.qr(basis)[0])
        basis = np.linalg.qr(basis)[0]
        within = numbers @ basis
    first = max(0, within.shape[1] - most)
    ends = [first, within.shape[1] - 1]
    values, vectors = linalg.eigh(within.T @ within / n, subset_by_index=ends)
    damped: Floats = vectors / np.sqrt(np.maximum(values, 0) + damping * variance)
    return damped if basis is None else basis @ damped


def checked_labels(labels: ArrayLike, bags: Bags, what: str) -> Ints:
    """Return labels (N,) as a new array of int64, if they meet every bag's counts.

    Raises
    ------
    BagError
        If they do not: it says what they are, in the words of `what`, and the first bag that
        has other counts.
    """
    given = np.asarray(labels)
    n, c = bags.n_instances, bags.n_classes
    if given.shape != (n,) or given.dtype.kind not in "iu":
        raise BagError(
            f"{what} are of shape {given.shape} and {given.dtype}.",
            f"Pass one integer for each of the {n:,} instances.",
        )
    if given.min() < 0 or given.max() >= c:
        raise BagError(
            f"{what} run from {given.min()} to {given.max()}.",
            f"They are positions in the {c} classes, and must lie between 0 and {c - 1}.",
        )
    checked = given.astype(np.int64)
    found = count_labels(checked, bags.sizes, c)
    wrong = (found != bags.counts).any(axis=1)
    if wrong.any():
        i = int(wrong.argmax())
        k = int((found[i] != bags.counts[i]).argmax())
        raise BagError(
            f"{what} give bag {bags.ids[i]!r} {found[i, k]} of class {bags.classes[k]!r}, but its "
            f"count is {bags.counts[i, k]}.",
            "They must meet the counts of every bag: `assign` returns such labels.",
        )
    return checked
