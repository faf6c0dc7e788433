"""Clusters: every row in one bag, in standardised columns, whatever holds the rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.bags.bags import Bags
from apportion.errors import BagError
from apportion.study import clusters as module
from apportion.study.clusters import clusters
from apportion.study.protocols import pools

RNG = np.random.default_rng(3)
LABELS = RNG.permutation(np.repeat(np.arange(4), 100))
CENTRES = np.array([[0, 0, 0], [0, 90, 0.01], [1, 0, 0.01], [1, 90, 0]])
POINTS = CENTRES[LABELS] + RNG.normal(size=(400, 3)) * [0.01, 0.9, 0.0001]


def as_sets(members):
    return [set(rows.tolist()) for rows in members.values()]


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
            patch.setattr(module, "MOST_AT_ONCE", 0)
            patch.setattr(module, "BATCH", 7)
        members = clusters(x, n_bags=n_bags, seed=seed)
    assert list(members) == list(range(len(members)))
    assert 1 <= len(members) <= n_bags
    assert np.sort(np.concatenate(list(members.values()))).tolist() == list(range(n_rows))
    assert all(len(rows) and rows.dtype == np.int64 for rows in members.values())


@pytest.mark.parametrize("batches", [False, True])
def test_clusters_find_groups_in_standardised_columns(monkeypatch, batches):
    """In raw columns the second would decide alone, and the third not at all."""
    if batches:
        monkeypatch.setattr(module, "MOST_AT_ONCE", 100)
        monkeypatch.setattr(module, "BATCH", 64)
    found = [clusters(POINTS, n_bags=4, seed=seed) for seed in range(4)]
    groups = [sorted(np.unique(LABELS[rows]).tolist() for rows in f.values()) for f in found]
    assert [[0], [1], [2], [3]] in groups  # a start may be unlucky, but not each of them


def test_clusters_do_not_depend_on_units_or_a_constant():
    other = np.column_stack([POINTS * [1e3, 1, 1e6] + 1e6, np.full(400, 1 / 3)])
    one, two = (clusters(x, 100, seed=0) for x in (POINTS, other))
    assert len(one) == 4
    assert as_sets(one) == as_sets(two)


def test_clusters_tell_dates_apart_that_lie_close_together():
    """Two instants of one second of 2023, counted from 1970: a relative spread of 1e-14."""
    late = LABELS < 2
    x = np.column_stack([1.7e9 + 2e-5 * late, RNG.normal(size=400)])
    found = [clusters(x, n_bags=2, seed=seed) for seed in range(4)]
    groups = [[np.unique(late[rows]).tolist() for rows in f.values()] for f in found]
    assert any(sorted(group) == [[False], [True]] for group in groups)


def test_clusters_are_the_same_in_single_precision():
    assert as_sets(clusters(POINTS.astype(np.float32), 100, seed=0)) == as_sets(
        clusters(POINTS, 100, seed=0)
    )


def test_clusters_shuffle_rows_inside_a_bag():
    (rows,) = clusters(POINTS, n_bags=1, seed=0).values()
    assert (np.diff(rows) > 0).mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("most", [10_000, 100])
def test_clusters_are_decided_by_the_seed_and_the_pool(monkeypatch, most):
    monkeypatch.setattr(module, "MOST_AT_ONCE", most)
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
    monkeypatch.setattr(module, "PART", 30)
    most = 0
    read = module._read

    def watched(parts, rows):
        nonlocal most
        most = max(most, len(rows))
        return read(parts, rows)

    monkeypatch.setattr(module, "_read", watched)
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
