"""Assignments: a checker of its own proves every one optimal, and the peers find none better."""

import itertools
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from apportion.errors import AssignmentError
from apportion.labels import assign as solving
from apportion.labels import kernel
from apportion.labels.assign import Assignment, assign
from tests.labels.problems import (
    COUNTS,
    INF,
    KINDS,
    LARGE,
    MEDIUM,
    NAN,
    SMALL,
    SMALL_WHOLE,
    TYPES,
    Array,
    certify,
    exact_gap,
    instance,
    matched,
    run_python,
    spent,
)

# ----------------------------------------------------------------------------------- the instances


STARTS = st.sampled_from(["own", "neighbour", "1", "100", "1e6", "1e15", "1e300"])


def first_prices(start: str, seed: int, cost: Array, counts: Array, own: Array) -> Array:
    """Prices to start from: the best, those of similar costs, or any."""
    rng = np.random.default_rng(seed)
    if start == "own":
        return own
    if start == "neighbour":
        similar = cost * rng.uniform(0.9, 1.1, cost.shape)
        return np.asarray(assign(similar, counts).prices)
    return rng.normal(size=len(counts)) * float(start)


# -------------------------------------------------------------------------------------- optimality


@given(SMALL)
@settings(max_examples=100, deadline=None)
def test_the_checker_computes_the_gap_exactly(drawn):
    cost, counts = instance(*drawn)
    rng = np.random.default_rng(drawn[0])
    prices = rng.normal(size=len(counts)) * 10.0 ** rng.integers(-3, 20)
    labels = matched(cost, counts)
    fractions = [Fraction(u) for u in prices]
    primal = sum((Fraction(cost[j, c]) for j, c in enumerate(labels)), Fraction())
    dual = sum((int(k) * u for k, u in zip(counts, fractions, strict=True)), Fraction())
    for row in cost:
        dual += min(Fraction(v) - u for v, u in zip(row, fractions, strict=True) if v < INF)
    assert exact_gap(cost, labels, prices) == float(primal - dual)


@given(st.one_of(SMALL, SMALL, MEDIUM, LARGE), TYPES, STARTS)
@settings(max_examples=2000, deadline=None)
def test_labels_are_optimal_from_any_start(drawn, dtype, start):
    cost, counts = instance(*drawn)
    cost = cost.astype(dtype)
    cold = assign(cost, counts)
    certify(cost, counts, cold)
    if len(cost) <= 700:  # scipy takes seconds for more
        theirs, ours = spent(cost, matched(cost, counts)), spent(cost, cold.labels)
        assert ours <= theirs + cold.tolerance
        assert ours == theirs or cold.tolerance > 0
    prices = first_prices(start, drawn[0], cost, counts, cold.prices)
    warm = assign(cost, counts, prices=prices)
    certify(cost, counts, warm)
    assert warm.objective == cold.objective or cold.tolerance > 0


def test_prices_that_prove_the_labels_already_are_kept():
    cost = [[0, 10, 10], [10, 0, 10], [10, 10, 0]]
    result = assign(cost, [1, 1, 1], prices=[0, 3, 5])
    assert result.labels.tolist() == [0, 1, 2]
    assert (result.prices - result.prices[0]).tolist() == [0, 3, 5]


@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans())
@settings(max_examples=300, deadline=None)
def test_two_classes_are_split_in_the_order_of_rows_from_any_start(seed, n, forbidden):
    """The stable order of the differences decides, so that neither prices nor threads do."""
    rng = np.random.default_rng(seed)
    second = int(rng.integers(0, n + 1))
    cost = rng.integers(0, 3, (n, 2)).astype(float)
    if forbidden:
        hidden = rng.permutation(np.arange(n) < second).astype(int)
        cost = np.where((rng.random((n, 2)) < 0.3) & (np.arange(2) != hidden[:, None]), INF, cost)
    order = np.argsort(cost[:, 1] - cost[:, 0], kind="stable")
    expected = np.zeros(n, int)
    expected[order[:second]] = 1
    for prices in (None, rng.normal(size=2) * 10, [1e300, -1e300]):
        result = assign(cost, [n - second, second], prices=prices)
        certify(cost, [n - second, second], result)
        assert result.labels.tolist() == expected.tolist()


@pytest.mark.parametrize(("seed", "n", "C"), [(16845, 1707, 5), (55, 1055, 8), (1007, 2007, 8)])
def test_classes_that_hardly_meet(seed, n, C):
    """Nothing but a few rows ties their prices together, which drift far apart on the way."""
    cost, counts = instance(seed, "chain", n, C)
    certify(cost, counts, assign(cost, counts))


def test_far_prices_with_forbidden_classes():
    cost = np.full((7, 4), INF)
    cost[:3, :3], cost[3:, 3] = [[7, 2, 0], [2, 3, 7], [4, 0, 3]], 0
    assert assign(cost, [1, 1, 1, 4], prices=[1e18, 1e18, 1e18, 0]).objective == 2


def test_far_prices_with_a_class_that_is_absent():
    cost, counts = [[0, INF, 5], [INF, 0, -7]], [1, 1, 0]
    certify(cost, counts, assign(cost, counts, prices=[1e100, -1e100, 0]))


def test_prices_near_the_largest_number():
    assert assign([[-1, 1], [1, -1], [1, -3]], [2, 1], prices=[1e308, -1e308]).objective == -3


@pytest.mark.parametrize("order", ["shuffled", "sorted", "in step"])
@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_in_any_order(kind, order):
    cost, counts = instance(5, kind, 20_000, 5)
    if order != "shuffled":
        cost = cost[np.argsort(cost[:, 0])]  # so that a sample could miss what most rows are like
    if order == "in step":
        cost = np.concatenate([cost[i::8] for i in range(8)])
    certify(cost, counts, assign(cost, counts))


@given(SMALL_WHOLE)
@settings(max_examples=400, deadline=None)
def test_whole_numbers_are_exact_in_any_order_and_whatever_is_added_to_a_row(drawn):
    cost, counts = instance(*drawn)
    rng = np.random.default_rng(drawn[0])
    moved = cost + rng.integers(-(2**52), 2**52, (len(cost), 1))
    plain, other = assign(cost, counts), assign(moved, counts)
    assert plain.objective == sum(int(cost[j, c]) for j, c in enumerate(plain.labels))
    for result in (plain, other):
        assert (result.gap, result.tolerance) == (0, 0)
        certify(cost, counts, Assignment(result.labels, result.prices, plain.objective, 0.0, 0.0))
    rows, classes = rng.permutation(len(cost)), rng.permutation(len(counts))
    assert assign(cost[rows][:, classes], counts[classes]).objective == plain.objective


@given(st.one_of(SMALL, LARGE), st.integers(-60, 60))
@settings(max_examples=300, deadline=None)
def test_scaling_by_a_power_of_two_changes_no_label(drawn, exponent):
    cost, counts = instance(drawn[0], "gaussian", *drawn[2:])
    plain, scaled = assign(cost, counts), assign(np.ldexp(cost, exponent), counts)
    assert np.array_equal(scaled.labels, plain.labels)
    assert np.array_equal(scaled.prices, np.ldexp(plain.prices, exponent))


# --------------------------------------------------------------------------------------- many bags


def bags(seed: int, sizes: Any, C: int) -> tuple[Array, Array, Array]:
    """Bags of these sizes, each of another kind."""
    rng = np.random.default_rng(seed)
    kinds, given = rng.choice([*KINDS], len(sizes)), rng.choice([*COUNTS], len(sizes))
    parts = [instance(seed + i, kinds[i], sizes[i], C, given[i]) for i in range(len(sizes))]
    cost, counts = zip(*parts, strict=True)
    return np.concatenate(cost), np.array(counts), np.cumsum([0, *sizes])


def many_bags(seed: int) -> tuple[Array, Array, Array]:
    """Enough for threads to start, with bags of none and of one at the ends and between."""
    return bags(seed, [0, 1, 0, 900, 1, 0, 0, 3000, 2, *[120] * 40, 0, 0], 7)


def assert_as_alone(result: Assignment, cost: Array, counts: Any, offsets: Array, prices: Any):
    """Equal, bit by bit, to each bag in a call of its own; returns those."""
    starts = [None] * len(counts) if prices is None else prices
    each = zip(itertools.pairwise(offsets), counts, starts, strict=True)
    apart = [assign(cost[slice(*rows)], own, prices=start) for rows, own, start in each]
    assert np.array_equal(result.labels, np.concatenate([one.labels for one in apart]))
    for name in ("prices", "objective", "gap", "tolerance"):
        assert np.array_equal(getattr(result, name), [getattr(one, name) for one in apart])
    return apart


@given(
    st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 17, 64]), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(0, 2**32),
    TYPES,
)
@settings(max_examples=300, deadline=None)
def test_bags_together_are_as_alone(sizes, C, seed, dtype):
    cost, counts, offsets = bags(seed, sizes, C)
    cost = cost.astype(dtype)
    for prices in (None, np.random.default_rng(seed).normal(size=counts.shape)):
        result = assign(cost, counts, offsets, prices=prices)
        apart = assert_as_alone(result, cost, counts, offsets, prices)
        for bound, own, one in zip(itertools.pairwise(offsets), counts, apart, strict=True):
            certify(cost[slice(*bound)], own, one)


@pytest.mark.parametrize("threads", [None, 1, 2, 5, 64])
def test_threads_change_nothing(threads, monkeypatch):
    monkeypatch.setattr(solving, "WORTH_A_THREAD", 0)
    cost, counts, offsets = many_bags(1)
    for prices in (None, np.random.default_rng(1).normal(size=counts.shape)):
        result = assign(cost, counts, offsets, prices=prices, threads=threads)
        assert_as_alone(result, cost, counts, offsets, prices)


@pytest.mark.parametrize("threads", [2, 5, 64])
def test_many_bags_are_each_solved_once_in_any_thread(threads, monkeypatch):
    monkeypatch.setattr(solving, "WORTH_A_THREAD", 0)
    cost, counts, offsets = bags(3, [7] * 1500, 4)
    alone = assign(cost, counts, offsets, threads=1)
    solve, taken = kernel.solve_bags, list[range]()

    def watched(*arguments: Any) -> None:
        taken.append(range(*arguments[6:8]))
        solve(*arguments)

    monkeypatch.setattr(kernel, "solve_bags", watched)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads meet wherever they can
    try:
        result = assign(cost, counts, offsets, threads=threads)
    finally:
        sys.setswitchinterval(before)
    assert sorted(itertools.chain(*taken)) == list(range(1500))
    assert len(taken) > threads
    for name in ("labels", "prices", "objective", "gap", "tolerance"):
        assert np.array_equal(getattr(result, name), getattr(alone, name))


@pytest.mark.parametrize("broken", [0, 11, 1499])
def test_an_error_in_a_thread_comes_out(broken, monkeypatch):
    monkeypatch.setattr(solving, "WORTH_A_THREAD", 0)
    problem, solve = bags(3, [7] * 1500, 4), kernel.solve_bags

    def breaks(*arguments: Any) -> None:
        if broken in range(*arguments[6:8]):
            raise MemoryError("no room for a bag")
        solve(*arguments)

    monkeypatch.setattr(kernel, "solve_bags", breaks)
    for threads in (1, 2, 7):
        with pytest.raises(MemoryError, match="no room for a bag"):
            assign(*problem, threads=threads)


def test_calls_from_many_threads_at_once(monkeypatch):
    monkeypatch.setattr(solving, "WORTH_A_THREAD", 0)
    problems = [many_bags(seed) for seed in range(4)]
    expected = [assign(*problem, threads=1) for problem in problems]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda problem: assign(*problem, threads=3), problems * 6))
    for result, one in zip(results, expected * 6, strict=True):
        assert np.array_equal(result.labels, one.labels)
        assert np.array_equal(result.prices, one.prices)


FORK = """
import multiprocessing, numpy as np
from apportion.labels.assign import assign
cost = np.random.default_rng(0).normal(size=(40_000, 3))  # so many that threads are started
problem = cost, np.full((40, 3), [300, 300, 400]), np.arange(0, 40_001, 1000)
expected = assign(*problem, threads=4)
with multiprocessing.get_context("fork").Pool(2) as pool:
    for result in pool.starmap_async(assign, [problem] * 2).get(timeout=60):
        assert np.array_equal(result.labels, expected.labels)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_after_threads_ran():
    run_python(FORK)


# ------------------------------------------------------------------------------ what may be passed


def test_nothing_is_written_to():
    cost, counts, offsets = many_bags(2)
    prices = np.random.default_rng(0).normal(size=counts.shape)
    arrays = cost, counts, offsets, prices
    copies = [array.copy() for array in arrays]
    result = assign(cost, counts, offsets, prices=prices)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, copies, strict=True))
    assert not np.shares_memory(result.prices, prices)
    for array in arrays:
        array.flags.writeable = False
    again = assign(cost, counts, offsets, prices=prices)
    assert np.array_equal(again.labels, result.labels)
    assert np.array_equal(again.prices, result.prices)


def test_any_real_numbers_in_any_layout():
    cost = np.random.default_rng(4).integers(0, 2, (60, 4)).astype(np.float64)
    apart = np.repeat(cost, 2, axis=1)[:, ::2]
    forms: list[Any] = [cost.astype(t) for t in ("f2", "f4", "g", ">f8", "i1", "u8", "?")]
    forms += [np.asfortranarray(cost), apart, cost[::-1].copy()[::-1], cost.tolist()]
    for form in forms:
        for counts in ([10, 0, 20, 30], (10.0, 0.0, 20.0, 30.0), np.array([10, 0, 20, 30], "u1")):
            result = assign(form, counts)
            certify(cost, counts, result)
            assert np.array_equal(result.labels, assign(cost, counts).labels)


def test_one_bag_has_plain_numbers_and_several_have_arrays():
    cost, counts, offsets = bags(0, [5, 6], 3)
    one, two = assign(cost[:5], counts[0]), assign(cost, counts, offsets.astype(float))
    assert {type(v) for v in (one.objective, one.gap, one.tolerance)} == {float}
    assert repr(one).startswith("Assignment(5 labels, objective")
    assert two.prices.shape == (2, 3)
    assert two.objective.shape == two.gap.shape == two.tolerance.shape == (2,)
    assert repr(two).startswith("Assignment(11 labels in 2 bags, objective")


def test_no_bags():
    none = assign(np.empty((0, 3)), np.empty((0, 3), int), [0])
    assert none.prices.shape == (0, 3)
    assert none.labels.shape == none.objective.shape == none.gap.shape == (0,)
    assert repr(none).startswith("Assignment(0 labels in 0 bags")


NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_CUDA)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int32])
def test_tensors_in_tensors_out(device, dtype):
    cost = torch.normal(0, 9, (101, 4), generator=torch.Generator().manual_seed(0)).to(dtype)
    array = cost.double().numpy()
    cost = cost.to(device).requires_grad_(dtype.is_floating_point)
    counts, offsets = np.array([[10, 20, 0, 10], [0, 0, 0, 0], [0, 60, 1, 0]]), [0, 40, 40, 101]
    tensors = [torch.tensor(values, device=device) for values in (counts, offsets)]
    result, expected = assign(cost, *tensors), assign(array, counts, offsets)
    warm, expected_warm = (  # tensors and arrays may be mixed
        assign(c, counts, offsets, prices=r.prices) for c, r in ((cost, result), (array, expected))
    )
    for mine, other in ((result, expected), (warm, expected_warm)):
        assert mine.labels.dtype == torch.int64
        assert mine.prices.dtype == torch.float64
        for name in ("labels", "prices", "objective", "gap", "tolerance"):
            value = getattr(mine, name)
            assert (value.device, value.requires_grad) == (cost.device, False)
            assert value.tolist() == getattr(other, name).tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_a_tensor_of_one_bag(device):
    cost = torch.tensor([[0.0, 0.0, 0.0], [2.0, 1.0, 5.0]], device=device).t()  # not contiguous
    result = assign(cost, [1, 2])
    assert result.labels.tolist() == [1, 1, 0]
    assert (result.objective, result.gap, result.tolerance) == (3.0, 0.0, 0.0)
    assert type(result.objective) is float
    assert result.labels.device == result.prices.device == cost.device


# ------------------------------------------------------------------------------------------ errors


Z, TWO = np.zeros((5, 2)), [[1, 1], [2, 1]]
AT: dict[str, Any] = {"offsets": [0, 2, 5]}
HALL = [[0, 0, INF, INF]] * 3 + [[0, 0, 0, 0]]
SHAPES = r"costs of shape {} .* counts of shape {}\.\n  Pass costs of shape \(N, C\) and counts"


def but(row: int, c: int | None, value: float) -> Array:
    """Zeros, but for one cost, or one row."""
    cost = Z.copy()
    cost[row, c] = value
    return cost


ERRORS = [  # costs, counts, options; the message: bag and number, then the remedy
    (Z, [1, 1], {}, r"the bag has 5 instances, .* sum to 2\.\n  Make .* counts_from_proportions"),
    (Z, [[1, 1], [2, 3]], AT, r"bag 1 has 3 instances, .* sum to 5\.\n  Make them equal"),
    (Z[:0], [1, 0], {}, r"the bag has 0 instances, .* sum to 1\.\n  Make them equal"),
    (Z, [7, -2], {}, r"the bag has a count of -2 for class 1\.\n  Counts .* 0 or more"),
    (Z, [[1, 1], [-1, 4]], AT, r"bag 1 has a count of -1 for class 0\.\n  Counts .* 0 or more"),
    (Z, [1.5, 3.5], {}, r"counts\[0\] is 1\.5\.\n  Pass whole numbers; counts_from_proportions"),
    (Z, [[1, 1], [2, NAN]], AT, r"counts\[1, 1\] is nan\.\n  Pass whole numbers"),
    (Z, ["2", "3"], {}, r"counts\[0\] is 2\.\n  Pass whole numbers"),
    (Z, [5, INF], {}, r"counts\[1\] is inf"),
    (Z[:, [0, 0, 0]], [2**63 - 1, 2**63 - 1, 7], {}, "the bag"),
    (but(2, 1, NAN), [1, 4], {}, r"the bag has a cost of nan \(row 2, class 1\)\.\n  .* diverged"),
    (but(2, 1, NAN), [5, 0], {}, r"the bag has a cost of nan \(row 2, class 1\)\.\n  .* diverged"),
    (but(1, 0, -INF), [1, 4], {}, r"the bag has a cost of -inf \(row 1, class 0\)\.\n  .* finite"),
    (but(3, 1, NAN), TWO, AT, r"bag 1 has a cost of nan \(row 3, class 1\)\.\n  .* diverged"),
    (but(4, 0, -INF), TWO, AT, r"bag 1 has a cost of -inf \(row 4, class 0\)\.\n  .* finite"),
    ([[INF, -INF], [0, 0]], [1, 1], {}, r"a cost of -inf \(row 0, class 1\)\.\n  .* finite"),
    (but(1, 0, INF), [5, 0], {}, r"the bag cannot be labelled: .* row 1\.\n  Allow the row"),
    (but(3, None, INF), TWO, AT, r"bag 1 cannot be labelled: .* row 3\.\n  Allow the row"),
    ([[0, INF], [0, INF], [0, 0]], [1, 2], {}, r"class 1 .* of 2, .* only 1 rows .*\n  Allow more"),
    (HALL, [1] * 4, {}, r"the bag cannot .* too many for their counts\.\n  Allow more rows"),
    (HALL[2:] + HALL[:3], [[1, 0, 1, 0], [1, 0, 1, 1]], AT, r"bag 1 cannot .*\n  Allow more rows"),
    (
        but(0, 0, 1e308) - but(0, 1, 1e308),
        [2, 3],
        {},
        r"the bag .* too large for float64\.\n  Rescale them",
    ),
    (Z[0], [1, 1], {}, SHAPES.format(r"\(2,\)", r"\(2,\)")),
    (Z[None], [1, 1], {}, SHAPES.format(r"\(1, 5, 2\)", r"\(2,\)")),
    (0.0, [1], {}, SHAPES.format(".*", r"\(1,\)")),
    (Z[:, :0], [], {}, SHAPES.format(r"\(5, 0\)", r"\(0,\)")),
    (Z, [5], {}, SHAPES.format(r"\(5, 2\)", r"\(1,\)")),
    (Z, [1, 1, 3], {}, SHAPES.format(r"\(5, 2\)", r"\(3,\)")),
    (Z, [[1, 4]], {}, SHAPES.format(r"\(5, 2\)", r"\(1, 2\)")),
    (Z, [1, 4], {"offsets": [0, 5]}, SHAPES.format(r"\(5, 2\)", r"\(2,\)")),
    (Z, TWO, {"offsets": [0, 5]}, r"offsets of shape \(2,\) .*\n  Pass 3 offsets for 2 bags"),
    (Z, TWO, {"offsets": []}, r"offsets of shape \(0,\) .*\n  Pass 3 offsets for 2 bags"),
    (Z, TWO, {"offsets": [[0, 2, 5]]}, r"offsets of shape \(1, 3\) .*\n  Pass 3 offsets"),
    (Z, TWO, {"offsets": [1, 2, 5]}, r"run from 1 to 5\.\n  Pass 3 offsets .* from 0 to 5"),
    (Z, TWO, {"offsets": [0, 2, 6]}, r"run from 0 to 6\.\n  Pass 3 offsets .* from 0 to 5"),
    (Z, TWO, {"offsets": [0, 2.5, 5]}, r"offsets\[1\] is 2\.5\.\n  Pass whole numbers"),
    (Z, [[1, 1]] * 3, {"offsets": [0, 3, 2, 5]}, r"bag 1 ends at 2, .* at 3\.\n  Offsets never"),
    (Z, [1, 4], {"threads": 0}, r"threads is 0\.\n  Pass 1 to 1,024"),
    (Z, [1, 4], {"prices": [0, 0, 0]}, r"prices of shape .*\n  Pass the prices of an earlier"),
    (Z, TWO, AT | {"prices": [0, 0]}, r"prices of shape \(2,\) .* \(2, 2\)\.\n  Pass the prices"),
    (Z, [1, 4], {"prices": [0, NAN]}, r"prices .* finite .*\n  Pass the prices of an earlier"),
    (Z, [1, 4], {"prices": [INF, 0]}, r"prices .* finite .*\n  Pass the prices of an earlier"),
    (Z, [1, 4], {"prices": ["a", "b"]}, "prices"),
    (Z, [1, 4], {"prices": [0, 1j]}, "prices"),
    ([[0, None]], [1, 0], {}, r"costs are of type object\.\n  Pass real numbers"),
    ([[0, 1j]], [1, 0], {}, r"costs are of type complex128\.\n  Pass real numbers"),
    (torch.tensor([[0, 1j]]), [1, 0], {}, "costs are of type"),
]


@pytest.mark.parametrize(("cost", "counts", "options", "message"), ERRORS)
def test_errors_name_the_bag_the_number_and_the_remedy(cost, counts, options, message):
    with pytest.raises(AssignmentError, match=message):
        assign(cost, counts, **options)


def test_the_first_bag_that_fails_is_named_whatever_the_threads(monkeypatch):
    monkeypatch.setattr(solving, "WORTH_A_THREAD", 0)
    cost, counts, offsets = many_bags(4)
    row = offsets[20] + 5
    cost[offsets[30], 2] = cost[row, 1] = NAN
    for threads in (1, 2, 5):
        with pytest.raises(AssignmentError, match=rf"bag 20 .*row {row}, class 1"):
            assign(cost, counts, offsets, threads=threads)


@given(st.integers(0, 2**32), st.integers(2, 9), st.integers(2, 7))
@settings(max_examples=500, deadline=None)
def test_bags_are_refused_exactly_if_no_labels_fit(seed, n, C):
    rng = np.random.default_rng(seed)
    counts = COUNTS["dense"](rng, n, C)
    cost = np.where(rng.random((n, C)) < 0.55, INF, rng.integers(0, 5, (n, C)))
    try:
        linear_sum_assignment(cost[:, np.repeat(np.arange(C), counts)])
    except ValueError:
        with pytest.raises(AssignmentError, match="the bag cannot be labelled"):
            assign(cost, counts)
    else:
        certify(cost, counts, assign(cost, counts))


# ------------------------------------------------------------------------------------ large, slow


def solve_a_million(kind: str, dtype: str) -> None:
    """Run in a process of its own: solve, and see what memory that took beyond the costs."""

    def memory(name: str) -> int:  # getrusage would count what the parent process held before exec
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))

    rng = np.random.default_rng(0)
    for n in (2000, 1_000_000):  # the first loads the kernel
        cost = np.empty((n, 10), dtype)
        for i in range(0, n, 1000):
            cost[i : i + 1000] = KINDS[kind](rng, (1000, 10), None)
        counts = rng.multinomial(n, rng.dirichlet(np.ones(10)))
        before, peak_before = memory("VmRSS"), memory("VmHWM")
        result = assign(cost, counts)
        peak = memory("VmHWM")
    assert peak_before < before + cost.nbytes / 4  # or the peak would tell nothing
    widened = 8 * cost.size  # float32 is, a bag at a time
    assert peak - before <= 2 * widened, f"{(peak - before) / widened:.2f} times the costs"
    certify(cost, counts, result)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["gaussian", "small integers"])
def test_a_million_rows_take_twice_the_memory_of_float64_at_most(kind, dtype):
    run_python(
        f"from tests.labels import test_assign; test_assign.solve_a_million({kind!r}, {dtype!r})"
    )


# ------------------------------------------------------------------- what would be silently wrong


def test_integers_that_float64_would_round_are_refused():
    huge = np.array([[2**62 + 1, 2**62], [2**62, 2**62 + 2]])
    with pytest.raises(
        AssignmentError, match=r"cost\[0, 0\] is 4611686018427387905, which float64"
    ):
        assign(huge, [1, 1])
    assert assign(huge - huge.min(axis=1, keepdims=True), [1, 1]).labels.tolist() == [1, 0]
    largest = 2**53 - 1
    assert assign([[largest, largest - 1], [0, 1 - largest]], [1, 1]).objective == 1
    for value in (2**53, -(2**53), 2**53 + 1):
        with pytest.raises(AssignmentError, match="which float64 may round"):
            assign(np.array([[0, value]]), [0, 1])
    with pytest.raises(AssignmentError, match="which float64 may round"):
        assign(np.array([[0, 2**63 + 1]], np.uint64), [0, 1])
    if np.finfo(np.longdouble).nmant > 52:
        with pytest.raises(AssignmentError, match="which float64 may round"):
            assign(np.array([[0, 1 + np.finfo(np.longdouble).eps]], np.longdouble), [0, 1])
    assert assign(np.array([[0, np.inf]], np.longdouble), [1, 0]).labels.tolist() == [0]


def test_masks_are_refused_rather_than_ignored():
    cost, counts, offsets = np.zeros((2, 2)), np.array([[1, 1]]), np.array([0, 2])
    for place, name in enumerate(("costs", "counts", "offsets")):
        arguments = [cost, counts, offsets]
        arguments[place] = np.ma.masked_array(arguments[place], mask=False)
        with pytest.raises(AssignmentError, match=f"{name} are a masked array"):
            assign(*arguments)
    with pytest.raises(AssignmentError, match="prices are a masked array"):
        assign(cost, [1, 1], prices=np.ma.masked_array([0.0, 0.0], [True, False]))


def test_more_threads_than_a_system_has_are_refused():
    for threads in (0, -1, 1025, 100_000):
        with pytest.raises(AssignmentError, match=rf"threads is {threads}.\n.*1 to 1,024"):
            assign(np.zeros((2, 2)), [1, 1], threads=threads)
