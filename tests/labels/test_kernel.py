"""The compiled half of `assign`, function by function, against numpy and exact fractions."""

import math
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.labels import kernel
from apportion.labels.assign import assign
from tests.labels.problems import INF, NAN, Array, above_least, instance, matched, run_python, spent


def drawn(seed: int, kind: str, n: int, C: int) -> tuple[Array, Array, Array]:
    """Costs, counts that they allow, and prices that have nothing to do with them."""
    cost, counts = instance(seed, kind, n, C)
    prices = np.random.default_rng(seed).normal(size=C)
    return np.ascontiguousarray(cost), counts.astype(np.int64), prices


PROBLEMS = st.builds(
    drawn,
    st.integers(0, 2**32),
    st.sampled_from(["gaussian", "small integers", "near ties", "forbidden", "chain"]),
    st.integers(1, 30),
    st.integers(2, 6) | st.just(17),
)

# ----------------------------------------------------------------------------- function by function


@given(PROBLEMS)
@settings(max_examples=60, deadline=None)
def test_a_survey_finds_the_largest_numbers_and_whether_all_are_whole(problem):
    cost, counts, _ = problem
    finite = np.isfinite(cost)
    status, _, _, magnitude, span, whole = kernel.survey(cost, counts)
    assert status == kernel.SOLVED
    assert magnitude == np.abs(cost[finite]).max()
    assert span == above_least(cost)[finite].max()
    assert whole == all(float(v).is_integer() for v in cost[finite])


def test_a_survey_names_the_first_row_and_class_that_are_bad():
    cost, counts = np.zeros((4, 3)), np.array([2, 2, 0])
    cost[2, 1] = NAN
    assert kernel.survey(cost, counts)[:3] == (kernel.BAD_NUMBER, 2, 1)
    cost[2, 1], cost[3, 0] = INF, -INF
    assert kernel.survey(cost, counts)[:3] == (kernel.BAD_NUMBER, 3, 0)
    cost[3] = [INF, INF, 0]  # of the classes that are left, this row may have none
    assert kernel.survey(cost, counts)[:2] == (kernel.NO_CLASS, 3)
    for wrong in ([2, 1, 0], [5, -1, 0], [2, 2, 1]):
        assert kernel.survey(cost, np.array(wrong))[0] == kernel.BAD_COUNTS


@given(PROBLEMS)
@settings(max_examples=60, deadline=None)
def test_a_scan_finds_each_rows_best_class_and_its_lead(problem):
    cost, counts, prices = problem
    n, C = cost.shape
    labels, gap, held = np.empty(n, np.int64), np.empty(n), np.empty(C, np.int64)
    total = kernel.scan(cost, prices, labels, gap, held)
    reduced = cost - prices
    best = np.sort(reduced, axis=1)
    assert labels.tolist() == reduced.argmin(axis=1).tolist()
    assert gap.tolist() == (best[:, 1] - best[:, 0]).tolist()
    assert held.tolist() == np.bincount(labels, minlength=C).tolist()
    assert total == pytest.approx(best[:, 0].sum())
    wrong = sum(max(0, have - want) for have, want in zip(held, counts, strict=True))
    assert kernel.surplus(held, counts) == wrong
    edges = kernel.edges_within(1.0, cost, prices, labels, gap)
    near = np.flatnonzero(gap <= 1.0)
    ranked = reduced.argsort(axis=1, kind="stable")[near]
    assert edges[:, 0].tolist() == ranked[:, 0].tolist()
    runners_up = reduced[near, edges[:, 1]]
    assert runners_up.tolist() == best[near, 1].tolist()
    assert (edges[:, 0] != edges[:, 1]).all()


def noise(cost, prices):
    """What rounding may add to a sum over the rows, at the size of their numbers."""
    largest = np.where(cost < INF, np.abs(cost) + np.abs(prices), 0).max(axis=1)
    return 8 * cost.shape[1] * np.finfo(float).eps * float(largest.sum())


@given(PROBLEMS)
@settings(max_examples=60, deadline=None)
def test_the_gap_is_what_labels_cost_above_the_best_at_these_prices(problem):
    cost, counts, prices = problem
    labels = matched(cost, counts)
    exact = Fraction()
    for j, own in enumerate(labels):
        reduced = [
            Fraction(v) - Fraction(u) for v, u in zip(cost[j], prices, strict=True) if v < INF
        ]
        exact += Fraction(cost[j, own]) - Fraction(prices[own]) - min(reduced)
    gap, rounding = kernel.duality_gap(cost, prices, labels)
    assert abs(Fraction(gap) - exact) <= Fraction(noise(cost, prices))
    assert rounding <= noise(cost, prices)


@given(PROBLEMS)
@settings(max_examples=60, deadline=None)
def test_prices_from_optimal_labels_prove_them_and_from_others_do_not(problem):
    cost, counts, prices = problem
    labels = matched(cost, counts)
    kernel.prices_from(labels, cost, prices)
    assert kernel.duality_gap(cost, prices, labels)[0] <= noise(cost, prices)
    swapped = labels[::-1].copy()
    if np.isfinite(cost).all() and spent(cost, swapped) > spent(cost, labels) + 1e-6:
        kernel.prices_from(swapped, cost, prices)
        assert kernel.duality_gap(cost, prices, swapped)[0] > 0


@pytest.mark.parametrize("C", [2, 5, 12])
def test_conjugate_gradients_solve_the_laplacian_to_a_few_per_cent(C):
    rng = np.random.default_rng(C)
    edges = np.array([rng.choice(C, 2, replace=False) for _ in range(9 * C)])
    laplacian = 0.5 * (np.eye(C) - 1 / C)
    for a, b in edges:
        laplacian[[a, b], [a, b]] += 1
        laplacian[[a, b], [b, a]] -= 1
    right = rng.integers(-9, 9, C)
    right[0] -= right.sum()
    found = kernel.solve_laplacian(edges, right, np.zeros(C, np.int64))
    wanted = np.linalg.lstsq(laplacian, right.astype(float), rcond=None)[0]
    error = (found - found.mean()) - (wanted - wanted.mean())
    assert np.abs(error).max() < 0.1 * np.abs(wanted).max()


@pytest.mark.parametrize("n", [1, 2, 599, 5000])
@pytest.mark.parametrize("kind", ["gaussian", "integers", "constant", "ends", "infinite", "sorted"])
def test_the_value_at_a_rank_is_that_of_sorting(n, kind):
    rng = np.random.default_rng(n)
    values = {
        "gaussian": rng.normal(size=n),
        "integers": rng.integers(0, 3, n).astype(float),
        "constant": np.ones(n),
        "ends": rng.choice([-1e300, 1e300], n),
        "infinite": rng.choice([-INF, INF, 0.5], n),
        "sorted": np.arange(n, dtype=float),
    }[kind]
    wanted, before = np.sort(values), values.copy()
    for rank in {0, n // 7, n // 2, n - 1}:
        assert kernel.threshold(values, rank) == wanted[rank]
        assert kernel.ranked(values.copy(), n, rank) == wanted[rank]
    assert np.array_equal(values, before)


@pytest.mark.parametrize("kind", ["falling", "hill", "valley", "folded"])
def test_no_order_of_the_values_makes_a_rank_slow(kind):
    n = 2**18
    i = np.arange(n, dtype=float)
    values = {
        "falling": n - i,
        "hill": np.minimum(i, n - i),
        "valley": np.maximum(i, n - i),
        "folded": np.where(i % 2, i, n - i),
    }[kind]
    wanted = np.sort(values)
    kernel.ranked(values[:9].copy(), 9, 4)  # compile
    began = time.process_time()
    for rank in (0, n // 3, n // 2, n - 1):
        assert kernel.ranked(values.copy(), n, rank) == wanted[rank]
    assert time.process_time() - began < 1  # n² steps take many


def test_the_objective_loses_nothing_to_rounding():
    """A plain sum of these would be off by many units in the last place."""
    rng = np.random.default_rng(0)
    cost = rng.normal(size=(100_000, 2)) + 1e6
    labels = rng.integers(0, 2, len(cost))
    exact = math.fsum(cost[np.arange(len(cost)), labels])
    assert abs(kernel.objective(cost, labels) - exact) <= 4 * math.ulp(exact)


# ------------------------------------------------------------------------------------- as a whole


def test_read_only_arrays_need_no_other_kernel():
    cost = np.zeros((4, 2))
    assign(cost, [2, 2])
    signatures = len(kernel.solve_bags.signatures)
    cost.flags.writeable = False
    assign(cost, [2, 2])
    assert len(kernel.solve_bags.signatures) == signatures


@pytest.mark.slow
def test_no_index_is_out_of_bounds(tmp_path):
    names = "from_any_start or any_order or as_alone or no_labels_fit"
    file = str(Path(__file__).with_name("test_assign.py"))
    options = ["-q", "-p", "no:cacheprovider", file, "-k", names]
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    run_python(f"import pytest, sys; sys.exit(pytest.main({options!r}))", **checked)
