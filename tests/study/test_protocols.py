"""Protocols: bags as they are defined, rows that stay in their pool, and what is refused."""

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apportion.bags.bags import Bags
from apportion.bags.counts import counts_from_proportions
from apportion.errors import BagError
from apportion.study import protocols
from apportion.study.protocols import Drawn, pools, rand, shuffle

LABELS = np.random.default_rng(9).permutation(np.repeat(np.arange(10), 50))
SCARCE = np.repeat([0, 1], [3, 30])


def class_counts(labels, members):
    classes = np.unique(labels)
    return (labels[members][:, :, None] == classes).sum(axis=1)


def share_of_two(p):
    """The distribution function of r / (r + s) for uniform r and s, by hand."""
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return np.where(p < 0.5, p / (2 * (1 - p)), 1 - (1 - p) / (2 * p))


# -------------------------------------------------------------------------------- rand: the bags


def test_rand_gives_rows_for_from_members():
    names = np.array(["no", "yes", "maybe"])[np.arange(60) % 3]
    drawn = rand(names, 8, seed=3)
    assert isinstance(drawn, Drawn)
    assert drawn.members.dtype == np.int64
    assert drawn.members.shape == (8, 8)  # ⌈60 / 8⌉ bags
    assert repr(drawn) == "Drawn(8 × 8 rows, 0 redrawn)"
    bags = Bags.from_members(np.arange(60.0), drawn.members, truth=names)
    assert bags.classes == ("maybe", "no", "yes")
    assert np.array_equal(bags.counts, class_counts(names, drawn.members))


@pytest.mark.parametrize(
    ("n_rows", "size", "n_bags"), [(60, 10, 6), (61, 10, 7), (59, 10, 6), (10, 10, 1), (3, 1, 3)]
)
def test_rand_holds_as_many_instances_as_there_are_rows(n_rows, size, n_bags):
    assert rand(np.zeros(n_rows, int), size, seed=0).members.shape == (n_bags, size)
    pool = np.arange(n_rows) * 2
    assert rand(np.zeros(200, int), size, rows=pool, seed=0).members.shape == (n_bags, size)


def test_rand_draws_no_row_twice_into_a_bag_but_again_into_others():
    drawn = rand(LABELS, 60, 200, seed=0)
    members = np.sort(drawn.members, axis=1)
    assert (np.diff(members, axis=1) > 0).all()
    assert members[0, 0] >= 0
    assert members.max() < len(LABELS)
    assert len(np.unique(members)) == len(LABELS)


def test_rand_counts_are_the_largest_remainder_of_the_proportions(monkeypatch):
    asked = []

    def spy(proportions, size):
        asked.append(proportions)
        return counts_from_proportions(proportions, size)

    monkeypatch.setattr(protocols, "counts_from_proportions", spy)
    drawn = rand(LABELS, 23, 100, seed=0)
    assert drawn.redrawn == 0
    assert len(asked) == 100
    for proportions, counts in zip(asked, class_counts(LABELS, drawn.members), strict=True):
        quotas = [23 * Fraction(p) / sum(map(Fraction, proportions)) for p in proportions]
        whole = [int(quota) for quota in quotas]
        order = sorted(range(10), key=lambda c: whole[c] - quotas[c])
        for c in order[: 23 - sum(whole)]:
            whole[c] += 1
        assert counts.tolist() == whole


def test_rand_proportions_of_two_classes_have_their_distribution():
    """Uniform numbers by their sum: Var p = 3/4 − ln 2. A flat Dirichlet would have 1/12."""
    labels = np.repeat([0, 1], 1000)
    p = labels[rand(labels, 1000, 3000, seed=5).members].mean(axis=1)
    assert p.mean() == pytest.approx(0.5, abs=0.02)
    assert p.var() == pytest.approx(0.75 - np.log(2), rel=0.09)
    assert stats.kstest(p, share_of_two).pvalue > 1e-4


def test_rand_proportions_of_ten_classes_have_their_spread():
    p = class_counts(LABELS, rand(LABELS, 100, 2000, seed=2).members) / 100
    uniform = np.random.default_rng(77).random((200_000, 10))
    expected = uniform / uniform.sum(axis=1, keepdims=True)
    assert p.mean(axis=0) == pytest.approx(0.1, abs=0.006)
    assert p.std(axis=0) == pytest.approx(expected.std(), rel=0.06)
    assert np.quantile(p, 0.9) == pytest.approx(np.quantile(expected, 0.9), abs=0.01)


def test_rand_favours_no_class_in_small_bags():
    """Rounding down, with the remainder to the last class, would give that one 17 % of 64."""
    counts = class_counts(LABELS, rand(LABELS, 8, 2500, seed=4).members)
    assert counts.mean(axis=0) / 8 == pytest.approx(0.1, abs=0.008)
    # Bags of three rows of two classes: 0, 1, 2 or 3 of one where p passes 1/6, 1/2 and 5/6.
    ones = (np.repeat([0, 1], 9)[rand(np.repeat([0, 1], 9), 3, 4000, seed=0).members]).sum(axis=1)
    assert np.bincount(ones) / 4000 == pytest.approx([0.1, 0.4, 0.4, 0.1], abs=0.03)


def test_rand_draws_rows_of_a_class_alike():
    labels = np.repeat([0, 1], 20)
    seen = np.bincount(rand(labels, 10, 4000, seed=6).members.ravel(), minlength=40)
    for own in (seen[:20], seen[20:]):
        # Without replacement the spread is below that of a multinomial: a high p value is right.
        assert stats.chisquare(own).pvalue > 1e-4


def test_rand_does_not_sort_rows_inside_a_bag():
    labels = np.repeat([0, 1], 500)
    members = rand(labels, 20, 3000, seed=8).members
    by_place = labels[members].mean(axis=0)
    assert by_place == pytest.approx(0.5, abs=0.05)
    assert abs(stats.linregress(np.arange(20), by_place).slope) < 0.002
    steps = np.diff(members, axis=1)
    assert (steps > 0).mean() == pytest.approx(0.5, abs=0.02)


# ----------------------------------------------------------------------- rand: the pool, the seed


def test_rand_stays_in_its_pool():
    train, valid = pools(len(LABELS), (0.7, 0.3), seed=0)
    for pool in (train, valid):
        members = rand(LABELS, 20, 200, rows=pool, seed=0).members
        assert np.isin(members, pool).all()
        assert len(np.unique(members)) > 0.99 * len(pool)
        assert (np.diff(np.sort(members, axis=1), axis=1) > 0).all()


def test_rand_on_a_pool_draws_from_the_classes_it_holds():
    some = np.flatnonzero((LABELS == 2) | (LABELS == 7))
    members = rand(LABELS, 10, 50, rows=some, seed=0).members
    assert set(LABELS[members].ravel().tolist()) == {2, 7}


def test_rand_draws_again_what_the_pool_cannot_serve(monkeypatch):
    calls = []

    def spy(proportions, size):
        calls.append(proportions)
        return counts_from_proportions(proportions, size)

    monkeypatch.setattr(protocols, "counts_from_proportions", spy)
    drawn = rand(SCARCE, 10, 1000, seed=0)
    counts = class_counts(SCARCE, drawn.members)
    assert counts[:, 0].max() == 3
    assert drawn.redrawn == len(calls) - 1000
    served = share_of_two(np.array(0.35))  # three of ten, or less
    assert drawn.redrawn / 1000 == pytest.approx((1 - served) / served, rel=0.15)
    # What is kept has the distribution of the draws that could be served.
    none = share_of_two(np.array(0.05)) / served
    assert (counts[:, 0] == 0).mean() == pytest.approx(none, abs=0.04)


def test_rand_takes_all_rows_where_a_bag_needs_them():
    drawn = rand([0, 0, 1], 3, 20, seed=0)
    assert np.sort(drawn.members, axis=1).tolist() == [[0, 1, 2]] * 20
    assert drawn.redrawn > 0


def test_everything_is_decided_by_the_seed():
    def everything(seed):
        drawn = rand(SCARCE, 10, seed=seed)
        dealt = [rows.tolist() for rows in shuffle(33, 10, seed=seed).values()]
        cut = [rows.tolist() for rows in pools(33, (0.5, 0.5), seed=seed)]
        return drawn.members.tolist(), dealt, cut, drawn.redrawn

    np.random.seed(1)  # noqa: NPY002 the global state must neither matter nor change
    first = everything(0)
    after = np.random.random()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    assert np.random.random() == after  # noqa: NPY002
    assert everything(0) == first
    assert all(one != other for one, other in zip(first[:3], everything(1)[:3], strict=True))


def test_rand_keeps_the_first_bags_when_there_are_more():
    few, many = (rand(LABELS, 10, n_bags, seed=0).members for n_bags in (5, 9))
    assert np.array_equal(few, many[:5])


# ------------------------------------------------------------------------------- shuffle and pools


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 2**32))
@settings(max_examples=100)
def test_shuffle_puts_every_row_into_one_bag(n_rows, size, seed):
    members = shuffle(n_rows, size, seed=seed)
    assert list(members) == list(range(-(-n_rows // size)))
    *full, last = members.values()
    assert all(len(rows) == size for rows in full)
    assert 1 <= len(last) <= size
    assert np.sort(np.concatenate([*full, last])).tolist() == list(range(n_rows))
    assert all(rows.dtype == np.int64 for rows in members.values())


def test_shuffle_takes_the_rows_of_a_pool():
    members = shuffle(20, 3, rows=[1, 3, 5, 7, 11, 13, 17], seed=0)
    assert sorted(np.concatenate(list(members.values())).tolist()) == [1, 3, 5, 7, 11, 13, 17]
    assert [len(rows) for rows in members.values()] == [3, 3, 1]
    bags = Bags.from_members(np.eye(20), members, truth=["a", "b"] * 10)
    assert bags.sizes.tolist() == [3, 3, 1]


def test_shuffle_shuffles():
    first = np.array([shuffle(8, 4, seed=seed)[0] for seed in range(2000)])
    assert first.mean(axis=0) == pytest.approx(3.5, abs=0.25)  # at every place, so not sorted
    assert np.bincount(first.ravel()) / 2000 == pytest.approx(0.5, abs=0.06)


@given(
    st.integers(20, 300),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(0, 2**32),
)
@settings(max_examples=100)
def test_pools_share_no_row_and_leave_none_out(n_rows, weights, seed):
    fractions = np.array(weights) / sum(weights)
    parts = pools(n_rows, fractions, seed=seed)
    assert len(parts) == len(weights)
    assert np.sort(np.concatenate(parts)).tolist() == list(range(n_rows))
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(len(part) - n_rows * fraction) < 1
        assert (np.diff(part) > 0).all()
        assert part.dtype == np.int64


def test_pools_are_cut_at_random():
    assert [len(part) for part in pools(50_000, (0.7, 0.3), seed=0)] == [35_000, 15_000]
    seen = np.zeros(10)
    for seed in range(2000):
        seen[pools(10, (0.7, 0.3), seed=seed)[1]] += 1
    assert seen / 2000 == pytest.approx(0.3, abs=0.05)


# -------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("labels", "size", "options", "facts"),
    [
        (
            ["a", "a", "b"],
            4,
            {},
            ["a bag of 4 rows", "from 3 rows", "class 'b' 1 row · class 'a' 2 rows", "3 at most"],
        ),
        (SCARCE, 30, {"rows": range(20)}, ["a bag of 30 rows", "from 20 rows"]),
        (["a", "b"], 0, {}, ["size must be an integer ≥ 1; got 0"]),
        (["a", "b"], 1.5, {}, ["size must be an integer ≥ 1; got 1.5"]),
        (["a", "b"], 1, {"n_bags": 0}, ["n_bags must be", "got 0"]),
    ],
)
def test_rand_refuses(labels, size, options, facts):
    with pytest.raises(BagError) as caught:
        rand(labels, size, **{"seed": 0, **options})
    for fact in facts:
        assert fact in str(caught.value)


def test_rand_gives_up_on_a_bag_that_is_hardly_ever_served(monkeypatch):
    """One of 5,000 rows at most is a share under 0.0003: three draws in ten thousand."""
    assert protocols.MOST_TRIES == 10_000
    monkeypatch.setattr(protocols, "MOST_TRIES", 50)
    labels = np.repeat(["rare", "common", "plain"], [1, 5000, 5000])
    with pytest.raises(BagError) as caught:
        rand(labels, 5000, seed=0)
    for fact in (
        "a bag of 5,000 rows could not be drawn in 50 tries",
        "class 'rare' has 1 row, and 50 tries asked for more",
        "class 'rare' 1 row · class 'common' 5,000 rows",
        "Draw smaller bags",
    ):
        assert fact in str(caught.value)


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda: shuffle(0, 1, seed=0), ["n_rows must be", "got 0"]),
        (lambda: shuffle(5, -1, seed=0), ["size must be", "got -1"]),
        (lambda: shuffle(["a", "b"], 1, seed=0), ["n_rows must be", "got ['a', 'b']"]),  # type: ignore[arg-type]
        (lambda: shuffle(5, 2, rows=[0, 5], seed=0), ["rows run from 0 to 5", "5 rows"]),
        (lambda: shuffle(5, 2, rows=[3, 3], seed=0), ["row 3 is in rows twice"]),
        (lambda: pools(10, (0.7, 0.2), seed=0), ["0.7, 0.2", "sum of 0.9", "sum to 1"]),
        (lambda: pools(10, (1.5, -0.5), seed=0), ["1.5, -0.5"]),
        (lambda: pools(10, (float("nan"), 1), seed=0), ["nan, 1"]),
        (lambda: pools(10, (), seed=0), ["none"]),
        (lambda: pools(10, (0.99, 0.01), seed=0), ["10 rows", "0.99, 0.01", "pool 1 empty"]),
        (lambda: pools(2.5, (1,), seed=0), ["n_rows must be", "got 2.5"]),  # type: ignore[arg-type]
    ],
)
def test_shuffle_and_pools_refuse(call, facts):
    with pytest.raises(BagError) as caught:
        call()
    for fact in facts:
        assert fact in str(caught.value)


def test_import_costs_no_torch():
    source = Path(protocols.__file__).parents[2]
    modules = "apportion.study.protocols, apportion.study.datasets.benchmarks"
    code = f"import {modules}, sys; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    loaded = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert {"torch", "sklearn", "pandas"}.isdisjoint(loaded.split())
