"""Raking: the minimiser by other solvers, soft labels, counts that contradict each other."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.bags.bags import Bags
from apportion.labels import raking as module
from apportion.labels.assign import assign
from apportion.labels.raking import Raking
from apportion.labels.soft import soft_labels

FLOOR = -12.0  # logarithms of what is surer decide no more


def of_members(members: Any, counts: Any) -> Bags:
    """Bags of rows and counts; the rows are the first ones, without holes."""
    counts = np.array(counts)
    return Bags.from_members(None, members, counts, counts=True, classes=range(counts.shape[1]))


def drawn(seed: int, sizes: Any, n_rows: int, n_classes: int = 3, *, concentration: float = 0):
    """Bags of random rows, and the true class of every row, which the counts are of.

    With a concentration the classes are drawn in proportions that differ from bag to bag.
    """
    rng = np.random.default_rng(seed)
    truth, members = rng.integers(n_classes, size=n_rows), []
    for size in sizes:
        chances = np.ones(n_rows)
        if concentration:
            chances = rng.dirichlet(np.full(n_classes, concentration))[truth] + 1e-3
        members.append(rng.choice(n_rows, size, replace=False, p=chances / chances.sum()))
    bags = Bags.from_members(None, members, truth=truth, classes=range(n_classes))
    return bags, truth[np.unique(bags.index)]


def logits_of(bags: Bags, seed: int, concentration: float = 1.0) -> Any:
    """Logarithms of random confidences of the distinct rows, at least −12."""
    n, c = len(np.unique(bags.index)), bags.n_classes
    p = np.random.default_rng([seed, 1]).dirichlet(np.full(c, concentration), n)
    return np.maximum(np.log(np.maximum(p, 1e-300)), FLOOR)


def told(truth: Any, seed: int, n_classes: int, *, apart: float = 1.0) -> Any:
    """Logarithms of confidences that are right more often than not."""
    logits = np.random.default_rng([seed, 2]).normal(size=(len(truth), n_classes))
    logits[np.arange(len(truth)), truth] += apart
    return np.log(shares_of(logits))


def shares_of(logits: Any) -> Any:
    q = np.exp(logits - logits.max(axis=1, keepdims=True))
    return q / q.sum(axis=1, keepdims=True)


def places_of(bags: Bags) -> list[list[int]]:
    """The places of each bag's rows among the distinct ones, by lookup."""
    rows = sorted(set(bags.index.tolist()))
    index = [rows.index(row) for row in bags.index.tolist()]
    return [index[first:last] for first, last in pairwise(bags.offsets.tolist())]


def sums_of(q: Any, bags: Bags) -> Any:
    return np.stack([q[own].sum(axis=0) for own in places_of(bags)])


def missed(q: Any, bags: Bags) -> float:
    """The share of labels by which expected counts miss the counts."""
    return float(np.abs(sums_of(q, bags) - bags.counts).sum() / 2 / bags.n_instances)


def has_none(bags: Bags) -> Any:
    """Whether a bag of a row has none of a class."""
    none = np.zeros((len(np.unique(bags.index)), bags.n_classes), bool)
    for own, counts in zip(places_of(bags), bags.counts, strict=True):
        none[own] |= counts == 0
    return none


# ----------------------------------------------------------------------------------- the minimiser


def scaled(logits: Any, bags: Bags) -> Any:
    """The minimiser by proportional fitting: scale each bag, then its rows, until nothing moves."""
    q = shares_of(logits)
    for _ in range(20_000):
        worst = 0.0
        for own, counts in zip(places_of(bags), bags.counts, strict=True):
            sums = q[own].sum(axis=0)
            worst = max(worst, np.abs(sums - counts).max())
            q[own] *= counts / np.maximum(sums, 1e-300)
            q[own] /= q[own].sum(axis=1, keepdims=True)
        if worst < 1e-9:
            return q
    raise AssertionError("it did not converge")


def priced(logits: Any, bags: Bags, ridge: float) -> Any:
    """The minimiser of the dual with its ridge, by Newton's method with a full matrix."""
    rows, c = len(logits), bags.n_classes
    stands = np.zeros((bags.n_bags, rows))
    for i, own in enumerate(places_of(bags)):
        stands[i, own] = 1

    def at(prices: Any) -> Any:
        z = logits + stands.T @ prices
        highest = z.max(axis=1)
        value = (highest + np.log(np.exp(z - highest[:, None]).sum(axis=1))).sum()
        value += ridge / 2 * (prices**2).sum() - (bags.counts * prices).sum()
        return shares_of(z), value

    prices = np.zeros(bags.counts.shape)
    for _ in range(200):
        q, value = at(prices)
        slope = stands @ q - bags.counts + ridge * prices
        if np.abs(slope).max() < 1e-7:
            return q
        spread = np.einsum("rc,cd->rcd", q, np.eye(c)) - q[:, :, None] * q[:, None, :]
        curvature = np.einsum("ir,jr,rcd->icjd", stands, stands, spread).reshape(prices.size, -1)
        step = np.linalg.solve(curvature + ridge * np.eye(prices.size), slope.ravel())
        step, length = step.reshape(prices.shape), 1.0
        while at(prices - length * step)[1] > value + 1e-12 * abs(value):
            length /= 2
        prices = prices - length * step
    raise AssertionError("it did not converge")


@pytest.mark.parametrize("seed", range(6))
def test_raked_confidences_are_those_of_proportional_fitting(seed):
    """The ridge and an early end cost up to 0.06 in bags of 12 to 30; without them it is exact."""
    bags, _ = drawn(seed, (30, 24, 18, 12), 40)
    logits = logits_of(bags, seed)
    wanted = scaled(logits, bags)
    assert np.abs(shares_of(logits) - wanted).max() > 0.3
    found = shares_of(Raking(bags).logits(logits))
    assert np.abs(found - wanted).max() < 0.06
    assert np.abs(found - wanted).mean() < 0.015
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "NEAR", 1e-9)
        patch.setattr(module, "ROUNDING", 1e-6)
        found = shares_of(Raking(bags).logits(logits))
    assert np.abs(found - wanted).max() < 1e-3


@pytest.mark.parametrize("ridge", [0.04, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_ridge_is_that_of_the_dual(seed, ridge, monkeypatch):
    """Prices are drawn to 0 by λ u: in small bags it shows, and a few rounds are near."""
    bags, _ = drawn(seed, (9, 8, 7, 6, 6), 14, 2)
    counts = bags.counts.clip(1, bags.sizes[:, None] - 1)  # of both classes in every bag
    bags = of_members([bags.rows(i) for i in range(5)], counts)
    logits = logits_of(bags, seed)
    monkeypatch.setattr(module, "ROUNDING", ridge)
    wanted = priced(logits, bags, ridge)
    np.testing.assert_allclose(shares_of(Raking(bags).logits(logits)), wanted, atol=0.02)
    monkeypatch.setattr(module, "NEAR", 1e-9)
    np.testing.assert_allclose(shares_of(Raking(bags).logits(logits)), wanted, atol=1e-3)


@pytest.mark.parametrize(("size", "tolerance"), [(5, 0.06), (40, 0.02), (400, 0.0015)])
@pytest.mark.parametrize("seed", range(3))
def test_where_bags_do_not_overlap_they_are_soft_labels(seed, size, tolerance):
    """The ridge shifts a count by a twelfth of a price: the larger a bag is, the less it shows."""
    rng = np.random.default_rng(seed)
    truth, bag = rng.integers(4, size=4 * size), rng.permutation(np.arange(4 * size) % 4)
    bags = Bags.from_rows(None, bag, truth=truth, classes=range(4))
    p = rng.dirichlet(np.ones(4), 4 * size)
    found = shares_of(Raking(bags).logits(np.log(p)))[bags.index]
    np.testing.assert_allclose(found, soft_labels(p[bags.index], bags), atol=tolerance)


def test_bags_that_agree_multiply_what_they_say():
    """Three bags, each of which has four times as many of class 0: 64 times as likely in all."""
    groups = np.arange(7 * 200).reshape(7, 200)  # 0: in all three; 1–3: in two; 4–6: in one alone
    standing = [[0, 1, 2, 4], [0, 1, 3, 5], [0, 2, 3, 6]]
    odds = np.log(4.0)
    logits = np.zeros((1400, 2))
    share = {n: 1 / (1 + np.exp(-n * odds)) for n in (1, 2, 3)}
    class_0 = 200 * (share[3] + 2 * share[2] + share[1])
    counts = [[round(class_0), 800 - round(class_0)]] * 3
    bags = of_members([np.concatenate(groups[own]) for own in standing], counts)
    q = shares_of(Raking(bags).logits(logits))
    for group, n in [(0, 3), (1, 2), (2, 2), (3, 2), (4, 1), (5, 1), (6, 1)]:
        found = np.log(q[groups[group], 0] / q[groups[group], 1])
        assert found == pytest.approx(n * odds, abs=0.03)


def test_confidences_that_meet_the_counts_stay():
    bags = of_members([[0, 1, 2], [1, 2, 3], [0, 3]], [[2, 1], [2, 1], [1, 1]])
    q = np.array([[0.5, 0.5], [0.9, 0.1], [0.6, 0.4], [0.5, 0.5]])
    np.testing.assert_allclose(sums_of(q, bags), bags.counts)
    np.testing.assert_allclose(shares_of(Raking(bags).logits(np.log(q))), q, atol=1e-9)


@pytest.mark.parametrize("bias", [0.0, 4.0])
@pytest.mark.parametrize("n_bags", [5, 50, 200])
def test_counts_are_met_nearly_in_however_many_bags_rows_stand(n_bags, bias):
    """A learner that favours a class misses all counts alike, and each of 60 bags of a row says so.

    Were the price of each to make up for it alone, they would do so 60 times.
    """
    bags, truth = drawn(0, [300] * n_bags, 1000, 4)
    logits = told(truth, 0, 4)
    logits[:, 0] += bias
    assert missed(shares_of(logits), bags) > 0.02
    assert missed(shares_of(Raking(bags).logits(logits)), bags) < 0.06


@pytest.mark.parametrize("bias", [0.0, 3.0])
def test_rounds_go_on_until_counts_are_met_where_rows_stand_in_hundreds_of_bags(bias, monkeypatch):
    """After ten rounds 0.010 and 0.023 of labels missed the counts."""
    rng = np.random.default_rng(0)
    bags, truth = drawn(0, rng.integers(10, 190, 240), 200, 3)
    assert bags.n_instances > 100 * len(truth)
    logits = told(truth, 0, 3)
    logits[:, 0] += bias
    found = Raking(bags).logits(logits)
    assert missed(shares_of(found), bags) < 0.006
    monkeypatch.setattr(module, "NEAR", 1e-6)
    monkeypatch.setattr(module, "ROUNDS", 5000)
    nearest = Raking(bags).logits(logits)
    right = [(one.argmax(axis=1) == truth).mean() for one in (found, nearest)]
    assert right[0] > right[1] - 0.02
    divergence = shares_of(nearest) * (np.log(shares_of(nearest)) - np.log(shares_of(found)))
    assert divergence.sum(axis=1).mean() < 0.01


# ------------------------------------------------------------------------ classes a bag has none of


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("against", [0.0, -FLOOR])
def test_a_class_that_a_bag_has_none_of_is_never_the_likeliest_in_it(seed, against):
    """Bags whose counts are of one truth, and a learner that may be sure of what cannot be."""
    rng = np.random.default_rng(seed)
    bags, truth = drawn(seed, rng.integers(1, 16, 40), 60, 4, concentration=0.3)
    none = has_none(bags)
    assert none.any()
    assert not none[np.arange(len(truth)), truth].any()
    logits = told(truth, seed, 4)
    logits[none & (np.cumsum(none, axis=1) == 1)] += against
    logits = np.maximum(logits - logits.max(axis=1, keepdims=True), FLOOR)
    raked = Raking(bags).logits(logits)
    assert none[np.arange(len(truth)), logits.argmax(axis=1)].any()
    assert not none[np.arange(len(truth)), raked.argmax(axis=1)].any()
    assert (shares_of(raked)[none] < 1e-6).all()


@pytest.mark.parametrize("sure", [100.0, 1e4])
def test_nothing_that_a_learner_is_sure_of_makes_such_a_class_the_likeliest(sure):
    """Logits have no bounds: costs with a perturbation, divided by one epoch, reach hundreds."""
    bags = of_members([[0, 1, 2], [1, 2, 3, 4], [0, 3, 4]], [[3, 0, 0], [2, 1, 1], [1, 1, 1]])
    logits = np.tile([0.0, sure, -sure], (5, 1))
    raked = Raking(bags).logits(logits)
    assert np.isfinite(raked).all()
    assert raked[:3].argmax(axis=1).tolist() == [0, 0, 0]


def test_a_class_that_every_bag_of_a_row_forbids_elsewhere_goes_to_no_row_of_theirs():
    """Bag 1 has one of class 1, and only row 3 may be it: rows 1 and 2 stand in bag 0 too."""
    bags = of_members([[0, 1, 2], [1, 2, 3]], [[3, 0], [2, 1]])
    logits = np.array([[-3.0, 0], [-3, 0], [-3, 0], [0, -3]])
    assert Raking(bags).logits(logits).argmax(axis=1).tolist() == [0, 0, 0, 1]


def test_bags_that_contradict_each_other_in_everything_still_make_a_row_something():
    """Row 1 is of class 0 by one bag and of class 1 by another, and class 2 is in neither."""
    bags = of_members([[0, 1], [1, 2]], [[2, 0, 0], [0, 2, 0]])
    found = Raking(bags).logits(np.log([[0.2, 0.3, 0.5]] * 3))
    assert np.isfinite(found).all()
    assert found[[0, 2]].argmax(axis=1).tolist() == [0, 1]
    assert found[1].argmax() in (0, 1)
    assert (shares_of(found)[:, 2] < 1e-6).all()


@pytest.mark.parametrize("n_bags", [3, 300])
def test_counts_of_0_that_are_wrong_leave_finite_logits(n_bags):
    """Every row stands in bags that have, by wrong counts, none of one class or another."""
    bags, truth = drawn(0, [20] * n_bags, 30, 3)
    rng = np.random.default_rng(0)
    counts = bags.counts.copy()
    for own in counts:
        wrong = rng.integers(3)
        own[(wrong + 1) % 3] += own[wrong]
        own[wrong] = 0
    bags = of_members([bags.rows(i) for i in range(n_bags)], counts)
    raking = Raking(bags)
    raking.error = module.ROUNDING
    if n_bags == 300:
        assert has_none(bags).all()
    found = raking.logits(told(truth, 0, 3))
    assert np.isfinite(found).all()
    assert (found.max(axis=1) == 0).all()


# ------------------------------------------------------------------------------------- all that is


CASES: dict[str, tuple[Any, Any]] = {
    "contradictory": ([[0, 1, 2], [0, 1, 2], [2, 3]], [[3, 0], [1, 2], [0, 2]]),
    "rounded": ([[0, 1, 2]] * 4 + [[3, 0]], [[1, 2], [2, 1], [1, 2], [2, 1], [1, 1]]),
    "of one row": ([[0], [1], [2], [0, 1, 2]], [[1, 0], [0, 1], [1, 0], [2, 1]]),
    "of one row that contradict": ([[0], [0], [0], [1]], [[1, 0], [0, 1], [0, 1], [1, 0]]),
    "of one class": ([[0, 1], [1, 2], [2, 3]], [[2, 0], [1, 1], [0, 2]]),
    "of one class of one": ([[0, 1], [1, 2]], [[2], [2]]),
    "without two classes": ([[0, 1, 2], [1, 2, 3]], [[0, 2, 0, 1], [0, 1, 0, 2]]),
    "one": ([[0, 1, 2, 3]], [[1, 1, 2]]),
}
SURE = {
    "even": lambda shape: np.zeros(shape),
    "floors": lambda shape: np.where(np.arange(shape[1]) == 0, 0, FLOOR) + np.zeros(shape),
    "huge": lambda shape: 1e4 * np.where(np.indices(shape).sum(axis=0) % 2, 1.0, -1.0),
    "equal and huge": lambda shape: np.full(shape, -1e4),
}


@pytest.mark.parametrize("sure", SURE)
@pytest.mark.parametrize("case", CASES)
def test_whatever_bags_there_are_raked_logits_are_finite_and_at_most_0(case, sure):
    bags = of_members(*CASES[case])
    logits = SURE[sure]((len(np.unique(bags.index)), bags.n_classes))
    found = Raking(bags).logits(logits)
    assert found.shape == logits.shape
    assert np.isfinite(found).all()
    assert (found.max(axis=1) == 0).all()
    decided = assign(-found[Raking(bags).place], bags.counts, bags.offsets).labels
    for own, counts in zip(np.split(decided, bags.offsets[1:-1]), bags.counts, strict=True):
        assert np.bincount(own, minlength=bags.n_classes).tolist() == counts.tolist()


def test_many_bags_of_few_rows_are_raked_in_no_time():
    bags, truth = drawn(0, [3] * 20_000, 20_000, 3)
    logits = told(truth, 0, 3)
    found = Raking(bags).logits(logits)
    assert np.isfinite(found).all()
    assert (found.argmax(axis=1) == truth).mean() > (logits.argmax(axis=1) == truth).mean() + 0.2


def test_a_row_that_a_bag_holds_twice_counts_twice_and_the_bags_stay_as_they_are():
    """Only fields that are filled by hand make such bags: rows 0 and 1 are in bag a twice each."""
    index, offsets = np.array([0, 0, 1, 1, 2, 1, 3]), np.array([0, 5, 7])
    counts = np.array([[2, 3], [1, 1]])
    bags = Bags(None, index, offsets, counts / [[5], [2]], counts, (0, 1), ("a", "b"))
    raking = Raking(bags)
    found = raking.logits(np.log([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5], [0.6, 0.4]]))
    assert bags.offsets.tolist() == [0, 5, 7]
    assert bags.index.tolist() == [0, 0, 1, 1, 2, 1, 3]
    q = shares_of(found)
    assert (2 * q[0] + 2 * q[1] + q[2]).tolist() == pytest.approx([2, 3], abs=0.15)
    assert (q[1] + q[3]).tolist() == pytest.approx([1, 1], abs=0.15)


MEMBERS = st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=1, max_size=7)
KINDS = st.sampled_from(["small", "floors", "sure", "wrong", "huge"])


@given(MEMBERS, st.integers(1, 4), st.sampled_from([0.1, 1.0]), KINDS, st.integers(0, 2**32))
@settings(max_examples=200)
def test_every_row_has_finite_logits_of_which_the_greatest_is_0(members, c, even, kind, seed):
    """Counts are drawn at random, and so contradict each other."""
    rng = np.random.default_rng(seed)
    counts = [rng.multinomial(len(own), rng.dirichlet(np.full(c, even))) for own in members]
    bags = of_members([sorted(own) for own in members], counts)
    shape = len(np.unique(bags.index)), c
    logits = {
        "small": lambda: rng.normal(size=shape),
        "floors": lambda: rng.choice([0, FLOOR], shape),
        "sure": lambda: np.log(np.maximum(np.eye(c)[rng.integers(c, size=shape[0])], 1e-9)),
        "wrong": lambda: np.where(np.arange(c) == 0, 0.0, FLOOR) + np.zeros(shape),
        "huge": lambda: 1e4 * rng.normal(size=shape),
    }[kind]()
    before, index, offsets = logits.copy(), bags.index.copy(), bags.offsets.copy()
    raking = Raking(bags)
    found = raking.logits(logits)
    assert found.shape == shape
    assert found.dtype == np.float64
    assert np.isfinite(found).all()
    assert (found.max(axis=1) == 0).all()
    assert np.array_equal(logits, before)
    assert np.array_equal(bags.index, index)
    assert np.array_equal(bags.offsets, offsets)
    assert np.array_equal(raking.logits(logits), found)  # it remembers nothing
    assert np.array_equal(raking.rows[raking.place], index)


@pytest.mark.parametrize("shift", [-1e3, 1.0, 1e4, 1e7])
def test_a_constant_that_is_added_to_a_row_changes_nothing(shift):
    bags, truth = drawn(0, [40] * 30, 400, 4, concentration=0.7)
    logits, raking = told(truth, 0, 4), Raking(bags)
    found = raking.logits(logits)
    varied = shift * np.random.default_rng(0).random((len(logits), 1))
    for constants in (shift, varied):
        np.testing.assert_allclose(raking.logits(logits + constants), found, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_bags_and_of_rows_in_them_changes_nothing(seed):
    bags, truth = drawn(seed, [40] * 30, 400, 4, concentration=0.7)
    logits = told(truth, seed, 4)
    found = Raking(bags).logits(logits)
    rng = np.random.default_rng(seed)
    np.testing.assert_allclose(Raking(bags[rng.permutation(30)]).logits(logits), found, atol=1e-8)
    turned = of_members([rng.permutation(bags.rows(i)) for i in range(30)], bags.counts)
    np.testing.assert_allclose(Raking(turned).logits(logits), found, atol=1e-8)


def test_narrow_floats_are_computed_in_wide_ones():
    bags, truth = drawn(0, [40] * 30, 400, 4)
    narrow = told(truth, 0, 4).astype(np.float32)
    found = Raking(bags).logits(narrow)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, Raking(bags).logits(narrow.astype(np.float64)), atol=1e-4)


# ------------------------------------------------------------------------------- rows and instances


def test_rows_are_the_distinct_ones_and_each_instance_knows_its_own():
    bags = of_members([[7, 3], [3, 12], [12, 7, 20]], [[1, 1], [1, 1], [2, 1]])
    raking = Raking(bags)
    assert raking.rows.tolist() == [3, 7, 12, 20]
    assert raking.rows[raking.place].tolist() == [7, 3, 3, 12, 12, 7, 20]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_means_are_over_the_instances_of_each_row(dtype):
    bags = of_members([[7, 3], [3, 12], [12, 7, 3]], [[1, 1], [1, 1], [2, 1]])
    values = np.random.default_rng(0).normal(size=(7, 2)).astype(dtype)
    of_rows = {row: [values[j] for j, r in enumerate(bags.index.tolist()) if r == row]
               for row in (3, 7, 12)}  # fmt: skip
    wanted = [np.mean(of_rows[row], axis=0, dtype=np.float64) for row in (3, 7, 12)]
    np.testing.assert_allclose(Raking(bags).means(values), wanted, rtol=1e-6)


def test_bags_are_of_concern_where_a_row_stands_in_several():
    assert Raking.concerns(of_members([[0, 1], [1, 2]], [[1, 1], [1, 1]]))
    assert not Raking.concerns(of_members([[0, 1], [3, 2]], [[1, 1], [1, 1]]))


# --------------------------------------------------------------------------- what it is good for


def voted(costs: Any, bags: Bags, place: Any) -> Any:
    """The class that most of the labels of a row have, of least cost in each bag."""
    labels = assign(costs, bags.counts, bags.offsets).labels
    votes = np.zeros((place.max() + 1, bags.n_classes))
    np.add.at(votes, (place, labels), 1)
    np.add.at(votes, place, -1e-6 * costs)  # ties
    return votes.argmax(axis=1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n_bags", "size"), [(60, 100), (600, 10)])
def test_labels_are_right_more_often_than_those_decided_bag_by_bag_and_voted(seed, n_bags, size):
    """Rows in about three bags each, of proportions that differ, and a learner that knows little.

    Raked ones are right of 0.85 of rows in bags of 100, and 0.99 in bags of 10; voted ones of 0.68
    and 0.74, and those that the learner knows of 0.56.
    """
    bags, truth = drawn(seed, [size] * n_bags, 2000, 4, concentration=0.7)
    assert 2.5 < bags.n_instances / len(truth) < 3.5
    raking, logits = Raking(bags), told(truth, seed, 4)
    apart = (voted(-logits[raking.place], bags, raking.place) == truth).mean()
    joint = (voted(-raking.logits(logits)[raking.place], bags, raking.place) == truth).mean()
    assert (logits.argmax(axis=1) == truth).mean() + 0.05 < apart
    assert joint > apart + 0.12


# ------------------------------------------------------------------------------- errors of counts


def sampled(seed: int, n_sampled: int | None) -> tuple[Bags, Any]:
    """100 bags of 100 of 1,000 rows, whose proportions are those of so many of their members."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=1000)
    logits = 1.5 * (1.5 * np.eye(2)[truth] + rng.normal(size=(1000, 2)))
    shares = rng.random((100, 2))
    members = []
    for share in shares:
        p = share[truth] / np.bincount(truth)[truth]
        members.append(rng.choice(1000, 100, replace=False, p=p / p.sum()))
    known = [rng.choice(m, n_sampled or 100, replace=False) for m in members]
    counts = np.array([np.bincount(truth[m], minlength=2) for m in known])
    proportions = counts / counts.sum(axis=1, keepdims=True)
    bags = Bags.from_members(None, members, proportions, truth=truth, classes=range(2))
    return bags, logits


@pytest.mark.parametrize("seed", range(3))
def test_counts_that_are_exact_are_taken_so(seed):
    bags, logits = sampled(seed, None)
    raking = Raking(bags)
    assert raking.error is None
    raking.logits(logits[raking.rows])
    assert raking.error == module.ROUNDING


@pytest.mark.parametrize("seed", range(3))
def test_counts_that_are_estimates_are_trusted_as_far_as_other_bags_bear_them_out(seed):
    bags, logits = sampled(seed, 20)
    right = []
    for error in (None, module.ROUNDING):
        raking = Raking(bags)
        raking.error = error
        truth = np.empty(len(raking.rows), np.int64)
        truth[raking.place] = np.asarray(bags.truth)
        right.append((raking.logits(logits[raking.rows]).argmax(axis=1) == truth).mean())
        assert raking.error is not None
        assert raking.error >= (module.ROUNDING if error else 1)
    alone = (logits[raking.rows].argmax(axis=1) == truth).mean()
    assert right[0] > right[1] + 0.01
    assert right[0] > alone - 0.01


@pytest.mark.parametrize("sure", [0.1, 1.0])
@pytest.mark.parametrize("concentration", [0.0, 1.0])
@pytest.mark.parametrize(("n_bags", "size"), [(12, 60), (40, 60), (200, 8), (12, 500)])
def test_exact_counts_are_taken_so_whatever_rows_know(n_bags, size, concentration, sure):
    """An untrained learner, and one that knows something; bags that are alike, or differ."""
    for seed in range(3):
        rows = n_bags * size // 3
        bags, truth = drawn(seed, [size] * n_bags, rows, 4, concentration=concentration)
        raking = Raking(bags)
        raking.logits(sure * told(truth, seed, 4))
        assert raking.error == module.ROUNDING


def estimated(seed: int) -> tuple[Bags, Bags, Any]:
    """100 bags of 60 of 2,000 rows, the same with counts of six of their members, and the truth."""
    bags, truth = drawn(seed, [60] * 100, 2000, 4)
    own, rng = np.asarray(bags.truth).reshape(100, 60), np.random.default_rng([seed, 3])
    sixes = rng.permuted(own, axis=1)[:, :6]
    shares = [np.bincount(six, minlength=4) / 6 for six in sixes]
    members = [bags.rows(i) for i in range(100)]
    return bags, Bags.from_members(None, members, np.array(shares), classes=range(4)), truth


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("apart", [1.0, 2.0])
def test_counts_that_tell_nothing_more_than_noise_are_hardly_trusted(seed, apart):
    """Bags are alike but for the errors of their counts, which bags of a row would add up."""
    exact, bags, truth = estimated(seed)
    logits, raking = told(truth, seed, 4, apart=apart), Raking(bags)
    found = (raking.logits(logits).argmax(axis=1) == truth).mean()
    off = float(((bags.counts - exact.counts) ** 2).mean())
    assert raking.error is not None
    assert off / 20 < raking.error < 5 * off
    raking.error = module.ROUNDING
    trusting = (raking.logits(logits).argmax(axis=1) == truth).mean()
    assert found > trusting + 0.1


@pytest.mark.parametrize("seed", range(4))
def test_counts_that_are_noisy_on_purpose_are_trusted_as_far_as_they_can_be(seed):
    """Where bags differ, noisy counts still tell much of a row."""
    bags, truth = drawn(seed, [60] * 100, 2000, 4, concentration=1.0)
    rng = np.random.default_rng([seed, 3])
    shares = np.maximum(bags.counts + 3 * rng.normal(size=bags.counts.shape), 0)
    members = [bags.rows(i) for i in range(100)]
    shares /= shares.sum(axis=1, keepdims=True)
    noisy = Bags.from_members(None, members, shares, classes=range(4))
    logits = told(truth, seed, 4)
    right = {}
    for error in (None, module.ROUNDING, 1e4):
        raking = Raking(noisy)
        raking.error = error
        right[error] = (raking.logits(logits).argmax(axis=1) == truth).mean()
    assert right[None] > right[module.ROUNDING] - 0.01
    assert right[None] > right[1e4] + 0.1


def test_few_bags_are_taken_for_exact():
    bags, logits = sampled(0, 5)
    few = bags[:9]
    raking = Raking(few)
    raking.logits(logits[raking.rows])
    assert raking.error == module.ROUNDING


def test_a_class_that_an_estimate_says_a_bag_has_none_of_is_not_ruled_out():
    bags, logits = sampled(0, 20)
    raking = Raking(bags)
    raking.error = 10.0
    lowest = raking.logits(logits[raking.rows]).min()
    raking.error = module.ROUNDING
    assert lowest > -40
    assert raking.logits(logits[raking.rows]).min() < lowest
