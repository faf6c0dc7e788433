"""Protocols: proportions from a Dirichlet distribution, and bags that are clusters."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apportion.bags.bags import Bags
from apportion.errors import BagError
from apportion.study import clusters as _clustering
from apportion.study import protocols
from apportion.study.clusters import clusters
from apportion.study.protocols import Drawn, dirichlet, pools, rand

RNG = np.random.default_rng(3)
LABELS = RNG.permutation(np.repeat(np.arange(4), 100))
CENTRES = np.array([[0, 0, 0], [0, 90, 0.01], [1, 0, 0.01], [1, 90, 0]])
POINTS = CENTRES[LABELS] + RNG.normal(size=(400, 3)) * [0.01, 0.9, 0.0001]


def shares(members):
    return (LABELS[members][:, :, None] == np.arange(4)).mean(axis=1)


# -------------------------------------------------------------------------------------- dirichlet


@pytest.mark.parametrize("alpha", [0.2, 1, 5])
def test_dirichlet_proportions_have_their_distribution(alpha):
    """The share of one of four classes follows Beta(α, 3α), rounded to hundredths."""
    members = dirichlet(LABELS, 100, 1500, alpha=alpha, seed=0).members
    p = shares(members)
    assert p.mean(axis=0) == pytest.approx(0.25, abs=0.03)
    assert p.var(axis=0) == pytest.approx(3 / 16 / (4 * alpha + 1), rel=0.12)
    steps = np.arange(100) / 100
    reached = (p[:, :1] <= steps + 1e-9).mean(axis=0)
    assert reached == pytest.approx(stats.beta(alpha, 3 * alpha).cdf(steps + 0.005), abs=0.05)


def test_dirichlet_gives_what_rand_gives():
    drawn = dirichlet(LABELS, 30, alpha=1, seed=0)
    assert isinstance(drawn, Drawn)
    assert drawn.members.shape == rand(LABELS, 30, seed=0).members.shape == (14, 30)
    assert (np.diff(np.sort(drawn.members, axis=1), axis=1) > 0).all()
    few, many = (dirichlet(LABELS, 30, n, alpha=1, seed=0).members for n in (5, 9))
    assert np.array_equal(few, many[:5])
    assert not np.array_equal(few, dirichlet(LABELS, 30, 5, alpha=1, seed=1).members)
    part = pools(400, (0.5, 0.5), seed=0)[0]
    assert np.isin(dirichlet(LABELS, 30, rows=part, alpha=1, seed=0).members, part).all()


def test_dirichlet_does_not_sort_rows_inside_a_bag():
    members = dirichlet(LABELS, 20, 2000, alpha=1, seed=0).members
    assert LABELS[members].mean(axis=0) == pytest.approx(1.5, abs=0.12)
    assert (np.diff(members, axis=1) > 0).mean() == pytest.approx(0.5, abs=0.02)


def test_dirichlet_counts_what_it_draws_again():
    """Near 0 a bag is of one class; that of the scarce one cannot be drawn: one redraw a bag."""
    labels = np.repeat([0, 1], [3, 30])
    drawn = dirichlet(labels, 10, 1000, alpha=1e-6, seed=0)
    assert (labels[drawn.members] == 1).all()
    assert drawn.redrawn / 1000 == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("alpha", [0, -1, float("nan"), float("inf"), 1e10])
def test_dirichlet_refuses_an_alpha(alpha):
    with pytest.raises(BagError, match=r"alpha must be more than 0 and at most 1e\+09; got"):
        dirichlet(LABELS, 10, alpha=alpha, seed=0)


def test_dirichlet_says_that_a_larger_alpha_helps(monkeypatch):
    monkeypatch.setattr(protocols, "MOST_TRIES", 50)
    with pytest.raises(BagError, match=r"class 0 has 5 rows(.|\n)*larger alpha"):
        dirichlet(np.repeat([0, 1], 5), 9, alpha=1e-6, seed=0)
    with pytest.raises(BagError, match="a bag of 11 rows") as caught:
        dirichlet(np.repeat([0, 1], 5), 11, alpha=1, seed=0)
    assert "10 at most" in str(caught.value)


# --------------------------------------------------------------------------------------- clusters


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.booleans(),
    st.integers(1, 4),
    st.integers(0, 2**40),
)
@settings(max_examples=40, deadline=None)
def test_clusters_put_every_row_into_one_bag(n_rows, n_bags, batches, distinct, seed):
    n_bags = min(n_bags, n_rows)
    x = np.random.default_rng(seed).integers(distinct, size=(n_rows, 2, 2), dtype=np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        if batches:
            patch.setattr(_clustering, "MOST_AT_ONCE", 0)
            patch.setattr(_clustering, "BATCH", 7)
        members = clusters(x, n_bags=n_bags, seed=seed)
    assert list(members) == list(range(len(members)))
    assert 1 <= len(members) <= n_bags
    assert np.sort(np.concatenate(list(members.values()))).tolist() == list(range(n_rows))
    assert all(len(rows) and rows.dtype == np.int64 for rows in members.values())


@pytest.mark.parametrize("batches", [False, True])
def test_clusters_find_groups_in_standardised_columns(monkeypatch, batches):
    """In raw columns the second would decide alone, and the third not at all."""
    if batches:
        monkeypatch.setattr(_clustering, "MOST_AT_ONCE", 100)
        monkeypatch.setattr(_clustering, "BATCH", 64)
    found = [clusters(POINTS, n_bags=4, seed=seed) for seed in range(4)]
    groups = [sorted(np.unique(LABELS[rows]).tolist() for rows in f.values()) for f in found]
    assert [[0], [1], [2], [3]] in groups  # a start may be unlucky, but not each of them


def test_clusters_do_not_depend_on_units_or_a_constant():
    other = np.column_stack([POINTS * [1e3, 1, 1e6] + 1e6, np.full(400, 1 / 3)])
    one, two = (clusters(x, 100, seed=0) for x in (POINTS, other))
    assert len(one) == 4
    assert [set(rows.tolist()) for rows in one.values()] == [
        set(rows.tolist()) for rows in two.values()
    ]


def test_clusters_shuffle_rows_inside_a_bag():
    (rows,) = clusters(POINTS, n_bags=1, seed=0).values()
    assert (np.diff(rows) > 0).mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("most", [10_000, 100])
def test_clusters_are_decided_by_the_seed_and_the_pool(monkeypatch, most):
    monkeypatch.setattr(_clustering, "MOST_AT_ONCE", most)
    pool = pools(400, (0.5, 0.5), seed=0)[0]

    def make(rows, seed=0):
        return [rows.tolist() for rows in clusters(POINTS, 20, rows=rows, seed=seed).values()]

    assert make(pool) == make(pool[::-1]) == make(pool)
    assert make(pool) != make(pool, seed=1)
    assert sorted(row for rows in make(pool) for row in rows) == pool.tolist()


def test_clusters_read_a_file_in_parts(monkeypatch, tmp_path):
    np.save(tmp_path / "x.npy", POINTS.reshape(400, 3, 1))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = clusters(POINTS, 20, seed=0)
    monkeypatch.setattr(_clustering, "PART", 30)
    most = 0
    read = _clustering._Instances.read

    def watched(self, rows):
        nonlocal most
        most = max(most, len(rows))
        return read(self, rows)

    monkeypatch.setattr(_clustering._Instances, "read", watched)
    found = clusters(x, 20, seed=0)
    assert most == 10
    assert all(np.array_equal(found[bag], rows) for bag, rows in expected.items())
    parts = clusters((POINTS[:, :1], POINTS[:, 1:]), 20, seed=0)
    assert all(np.array_equal(parts[bag], rows) for bag, rows in expected.items())
    assert Bags.from_members(x, found, truth=LABELS).n_instances == 400


@pytest.mark.parametrize(
    ("x", "options", "facts"),
    [
        (POINTS, {}, ["neither size nor n_bags is given", "mean size"]),
        (POINTS, {"size": 2, "n_bags": 2}, ["both size and n_bags are given"]),
        (POINTS, {"size": 0}, ["size must be", "got 0"]),
        (POINTS, {"n_bags": 2.5}, ["n_bags must be", "got 2.5"]),
        (POINTS[:5], {"n_bags": 6}, ["6 bags", "5 rows", "5 bags at most"]),
        (POINTS[:5], {"n_bags": 4, "rows": [0, 1]}, ["4 bags", "2 rows"]),
        (POINTS[:5], {"n_bags": 1, "rows": [7]}, ["rows run from 7"]),
        ([["a"], ["b"]], {"size": 1}, ["<U1", "encode text"]),
        ([1.0, np.nan, 2.0], {"size": 1}, ["row 1 of x holds nan in column 0", "Fill in"]),
        (np.empty((3, 0)), {"size": 1}, ["shape (0,)"]),
        (np.empty((0, 2)), {"size": 1}, ["x has 0 rows"]),
        ((POINTS[:5], POINTS[:4]), {"size": 1}, ["x has 5 and 4 rows"]),
        (pd.DataFrame(POINTS), {"size": 1}, ["x is a DataFrame", "to_numpy"]),
    ],
)
def test_clusters_refuse(x, options, facts):
    with pytest.raises(BagError) as caught:
        clusters(x, **options, seed=0)
    for fact in facts:
        assert fact in str(caught.value)
