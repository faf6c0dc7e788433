"""Bags: what is built, what is refused, and proportions that become counts."""

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from apportion.bags.bags import Bags, Overlap, Split
from apportion.bags.counts import counts_from_proportions
from apportion.errors import BagError

X = np.arange(12.0).reshape(6, 2)
BAG = ["b", "a", "b", "a", "b", "b"]
TABLE = {"a": [0.5, 0.5, 0.0], "b": [0.25, 0.25, 0.5]}
FRAME = pd.DataFrame.from_dict(TABLE, orient="index", columns=["none", "mild", "severe"])


def largest_remainder(weights: list[int], size: int) -> list[int]:
    """The definition, in exact arithmetic."""
    quotas = [Fraction(size * weight, sum(weights)) for weight in weights]
    counts = [int(quota) for quota in quotas]
    order = sorted(range(len(quotas)), key=lambda c: (counts[c] - quotas[c], c))
    for c in order[: size - sum(counts)]:
        counts[c] += 1
    return counts


# ------------------------------------------------------------------------ proportions → counts


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(any),
    st.integers(0, 1000) | st.integers(0, 10**9),
)
@settings(max_examples=400)
def test_counts_are_those_of_exact_arithmetic(weights, size):
    proportions = np.array(weights) / sum(weights)
    assert counts_from_proportions(proportions, size).tolist() == largest_remainder(weights, size)


@given(
    st.integers(1, 12).flatmap(
        lambda c: arrays(np.float64, c, elements=st.floats(0, 1)).filter(lambda w: w.sum() > 1e-3)
    ),
    st.integers(0, 10**12) | st.sampled_from([10**9, 2**40, 2**53]),
    st.floats(-9e-7, 9e-7),
)
@settings(max_examples=400)
def test_counts_keep_the_quota(weights, size, error):
    proportions = weights / weights.sum() * (1 + error)
    counts = counts_from_proportions(proportions, size).tolist()
    assert sum(counts) == size
    assert min(counts) >= 0
    exact = [Fraction(p) for p in proportions.tolist()]
    for count, p in zip(counts, exact, strict=True):
        assert abs(count - size * p / sum(exact)) < 1
        assert count == 0 or p > 0


@pytest.mark.parametrize(
    ("proportions", "size", "counts"),
    [
        ([0.1, 0.9], 30, [3, 27]),
        ([0.29, 0.71], 100, [29, 71]),
        ([0.93, 0.07], 50, [47, 3]),  # 46.5 and 3.5000000000000004: a tie
        ([5 / 6, 1 / 6], 3, [3, 0]),
        ([1 / 3] * 3, 10, [4, 3, 3]),
        ([1 / 3] * 3, 11, [4, 4, 3]),
        ([0.0, 0.5, 0.5], 1, [0, 1, 0]),
        ([1.0], 5, [5]),
        ([0.5, 0.5], 0, [0, 0]),
        ([0.5 - 2e-7, 0.5 - 2e-7], 10**7, [5 * 10**6, 5 * 10**6]),
        ([0.25, 0.75], 2**53, [2**51, 3 * 2**51]),
    ],
)
def test_counts_of_one_bag(proportions, size, counts):
    result = counts_from_proportions(proportions, size)
    assert result.tolist() == counts
    assert result.dtype == np.int64


def test_rounding_of_the_proportions_breaks_no_tie():
    """No class of a thousand may profit from the last bit of its 0.001."""
    thousandths = np.full(1000, 0.001)
    thousandths[500:] = np.nextafter(0.001, 1)
    counts = counts_from_proportions(thousandths, 10**9 + 7)
    assert counts.tolist() == [10**6 + 1] * 7 + [10**6] * 993


def test_rows_do_not_influence_each_other():
    rng = np.random.default_rng(0)
    proportions, sizes = rng.dirichlet(np.ones(5), 50), rng.integers(0, 10**6, 50)
    together = counts_from_proportions(proportions, sizes)
    alone = [counts_from_proportions(*pair) for pair in zip(proportions, sizes, strict=True)]
    assert np.array_equal(together, alone)
    assert together.shape == (50, 5)


@pytest.mark.parametrize(
    ("proportions", "sizes", "message"),
    [
        ([0.5, 0.6], 10, r"bag 0 has 10 instances, but its proportions sum to 1.1 "),
        ([[0.5, 0.5], [1.5, -0.5]], [1, 2], "bag 1 has 2 instances, but its proportion of class 1"),
        ([0.5, 0.5], -1, "bag 0 has a size of -1"),
        ([0.5, 0.5], 1.5, "bag 0 has a size of 1.5"),
        ([0.5, 0.5], 2**54, "from 0 to 2"),
        ([[0.5, 0.5]], [1, 2], r"shape \(1, 2\) do not go with sizes of shape \(2,\)"),
        (0.5, 1, "do not go with"),
    ],
)
def test_counts_refuse(proportions, sizes, message):
    with pytest.raises(BagError, match=message):
        counts_from_proportions(proportions, sizes)


# ---------------------------------------------------------------------------------- from_rows


def test_from_rows_of_every_kind_of_table():
    counts = {"a": [1, 1, 0], "b": [1, 1, 2]}
    names: dict[str, Any] = {"classes": ["none", "mild", "severe"]}
    records = {bag: dict(reversed(row.items())) for bag, row in FRAME.T.to_dict().items()}
    tables: list[tuple[Any, dict[str, Any]]] = [
        (FRAME, {}),
        (FRAME[["severe", "none", "mild"]], names),
        (TABLE, names),
        (records, names),
        ({bag: FRAME.loc[bag] for bag in "ab"}, {}),
        (counts, {"counts": True, **names}),
        (FRAME * 7, {"normalize": True}),
        (FRAME * 100, {"normalize": True, "counts": True}),
    ]
    for table, options in tables:
        bags = Bags.from_rows(X, BAG, table, **options)
        assert bags.x is X
        assert bags.ids == ("a", "b")
        assert bags.classes == ("none", "mild", "severe")
        assert bags.index.tolist() == [1, 3, 0, 2, 4, 5]
        assert bags.offsets.tolist() == [0, 2, 6]
        assert bags.sizes.tolist() == [2, 4]
        assert bags.counts.tolist() == list(counts.values())
        assert bags.proportions == pytest.approx(FRAME.to_numpy())
        assert bags.rows(-1).tolist() == [0, 2, 4, 5]
        assert bags.truth is None
    assert Bags.from_rows(X, BAG, TABLE).classes == (0, 1, 2)
    assert (bags.n_bags, bags.n_instances, bags.n_rows, bags.n_classes) == (2, 6, 6, 3)


@pytest.mark.parametrize(
    "ids",
    [
        [1, "1", 1, "1", 1, 1],
        [(0, 1), (0,), (0, 1), (0,), (0, 1), (0, 1)],
        [True, "x", True, "x", True, True],
        np.array([2.5, -1, 2.5, -1, 2.5, 2.5]),
        np.array([7, 0, 7, 0, 7, 7], dtype=np.uint8),
        np.array(BAG),
        np.array(BAG, dtype=object),
        np.array(["2020", "2021", "2020", "2021", "2020", "2020"], dtype="M8[ns]"),
        pd.Series(BAG, index=range(10, 16)),
        pd.Series(pd.to_datetime(["2020", "2021", "2020", "2021", "2020", "2020"])),
        pd.Categorical(BAG),
        pd.Index(BAG),
        pd.array([7, 0, 7, 0, 7, 7], dtype="Int64"),
        torch.tensor([7, 0, 7, 0, 7, 7]),
        iter(BAG),
    ],
    ids=lambda ids: type(ids).__name__,
)
def test_from_rows_takes_any_hashable_ids(ids):
    keep = list(ids) if not isinstance(ids, torch.Tensor) else ids.tolist()
    ids = iter(keep) if hasattr(ids, "__next__") else ids
    bags = Bags.from_rows(X, ids, {keep[1]: [0.5, 0.5], keep[0]: [0.25, 0.75]})
    assert bags.ids == (keep[1], keep[0])
    assert [bags.rows(i).tolist() for i in range(2)] == [[1, 3], [0, 2, 4, 5]]


def test_from_rows_finds_bags_of_a_frame_by_what_its_index_holds():
    days = pd.to_datetime(["2021-01-01", "2020-01-01"])
    frame = pd.DataFrame([[1, 1], [2, 2]], index=days)
    assert Bags.from_rows(X, days[[1, 0, 1, 0, 1, 1]], frame, counts=True).sizes.tolist() == [2, 4]
    pairs = pd.MultiIndex.from_tuples([("a", 1), ("b", 1)])
    frame = pd.DataFrame([[1, 1], [2, 2]], index=pairs)
    assert Bags.from_rows(X, [(b, 1) for b in BAG], frame, counts=True).ids == (("a", 1), ("b", 1))


KEYS = st.one_of(st.integers(-5, 5), st.text(max_size=2), st.tuples(st.integers(0, 2), st.text()))


@given(st.lists(KEYS, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_from_rows_recovers_the_membership_in_any_order(ids, random):
    table: dict[Any, list[int]] = {}
    for key in random.sample(ids, len(ids)):
        table.setdefault(key, [random.randint(0, 9), random.randint(1, 9)])
    x = np.arange(len(ids))
    bags = Bags.from_rows(x, ids, table, normalize=True)
    assert bags.ids == tuple(table)
    assert sorted(bags.index.tolist()) == x.tolist()
    for i, key in enumerate(bags.ids):
        assert bags.rows(i).tolist() == [row for row in x if ids[row] == key]
    assert np.array_equal(bags.counts.sum(axis=1), bags.sizes)

    order = random.sample(range(len(ids)), len(ids))
    shuffled = Bags.from_rows(x[order], [ids[i] for i in order], table, normalize=True)
    assert np.array_equal(shuffled.counts, bags.counts)
    for i in range(bags.n_bags):
        assert set(shuffled.x[shuffled.rows(i)]) == set(bags.rows(i))


def test_an_array_of_proportions_goes_by_bag_number():
    table = np.array([[1.0, 0.0], [0.0, 1.0]])
    bags = Bags.from_rows(X, [1, 0, 1, 0, 1, 1], table)
    assert bags.counts.tolist() == [[2, 0], [0, 4]]
    assert table.tolist() == [[1, 0], [0, 1]]
    with pytest.raises(BagError, match=r"(?s)bag 'b' cannot be found in an array.*dict or a Data"):
        Bags.from_rows(X, BAG, table)
    with pytest.raises(BagError, match=r"bag 2 \(4 rows\)"):
        Bags.from_rows(X, [2, 0, 2, 0, 2, 2], table)


def test_normalize_leaves_the_table_of_the_caller_alone():
    table = np.array([[2.0, 2.0], [1.0, 3.0]])
    Bags.from_rows(X, [1, 0, 1, 0, 1, 1], table, normalize=True)
    assert table.tolist() == [[2, 2], [1, 3]]


def test_proportions_are_kept_as_given():
    bags = Bags.from_rows(X, ["a"] * 6, {"a": [0.3, 0.7 + 5e-7]})
    assert bags.proportions.tolist() == [[0.3, 0.7 + 5e-7]]
    assert bags.counts.tolist() == [[2, 4]]


def test_labels_alone_give_the_counts():
    labels = ["y", "n", "n", "n", "y", "n"]
    bags: Any = Bags.from_rows(X, BAG, truth=labels)
    assert bags.ids == ("b", "a")
    assert bags.classes == ("n", "y")
    assert bags.counts.tolist() == [[2, 2], [2, 0]]
    assert bags.proportions.tolist() == [[0.5, 0.5], [1, 0]]
    assert [bags.classes[code] for code in bags.truth] == [labels[row] for row in bags.index]
    assert Bags.from_rows(X, BAG, truth=labels, classes="yzn").counts.tolist() == [
        [2, 0, 2],
        [0, 0, 2],
    ]
    assert Bags.from_rows(X, BAG, truth=[0, "n", 0, 0, 0, 0]).classes == (0, "n")


def test_labels_may_contradict_the_counts():
    bags: Any = Bags.from_rows(X, BAG, FRAME, truth=["mild"] * 6)
    assert bags.truth.tolist() == [1] * 6
    assert bags.counts.tolist() == [[1, 1, 0], [1, 1, 2]]
    assert bags.describe().bags_off_truth == 2
    assert bags.without_truth().truth is None
    assert bags.without_truth().x is X


def test_x_is_never_copied(tmp_path):
    np.save(tmp_path / "x.npy", X)
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    tensor = torch.from_numpy(X)
    parts = (X, torch.arange(6))
    for x in (on_disk, tensor, parts):
        bags = Bags.from_rows(x, BAG, TABLE)
        split = bags.split(0.5, seed=0)
        for derived in (bags, bags[[0]], bags.without_truth(), split.train, split.held_out):
            assert derived.x is x
    listed = Bags.from_rows((X, X.tolist()), BAG, TABLE).x
    assert listed[0] is X
    assert listed[1].tolist() == X.tolist()
    assert isinstance(Bags.from_rows(X.tolist(), BAG, TABLE).x, np.ndarray)


def test_an_error_names_the_bag_the_number_and_the_remedy():
    frame = FRAME.set_axis(["ward-3", "ward-17"]).assign(none=[0.5, 0.0], severe=[0.0, 0.69])
    with pytest.raises(BagError) as error:
        Bags.from_rows(X, ["ward-3" if bag == "a" else "ward-17" for bag in BAG], frame)
    assert str(error.value) == (
        "bag 'ward-17' has 4 instances, but its proportions sum to 0.94 "
        "(they must sum to 1 ± 1e-6).\n"
        "  none 0.00 · mild 0.25 · severe 0.69\n"
        "  Add the column of the missing class, pass counts=True if these are counts, "
        "or normalize=True to rescale."
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"proportions": {**TABLE, "a": [0.5, 0.5, 2e-6]}}, "sum to 1.000002 "),
        ({"proportions": FRAME * 2}, r"bag 'a' .* sum to 2 .* \(and 1 more like it\)"),
        ({"proportions": {**TABLE, "a": [1.5, -0.5, 0]}}, "2 instances.*class 1 is -0.5"),
        ({"proportions": {**TABLE, "a": [1, np.nan, 0]}}, "bag 'a'.*class 1 is nan"),
        ({"proportions": {**TABLE, "a": [1, np.inf, 0]}}, "bag 'a'.*class 1 is inf"),
        ({"proportions": {**TABLE, "a": [2, -1, 0]}, "normalize": True}, "class 1 is -1"),
        ({"proportions": {**TABLE, "a": [0, 0, 0]}, "normalize": True}, "'a'.*sum to 0 "),
        ({"proportions": {**TABLE, "a": [np.inf, 0, 0]}, "normalize": True}, "class 0 is inf"),
        (
            {"proportions": {"a": [1, 1, 0], "b": [1, 1, 1]}, "counts": True},
            r"bag 'b' has 4 instances, but its counts sum to 3\.\n  0 1 · 1 1 · 2 1\n.*normalize",
        ),
        ({"proportions": {"a": [3, -1, 0], "b": [2, 2, 0]}, "counts": True}, "class 1 is -1"),
        ({"proportions": {"a": [1, 1, 0], "b": [2.5, 1.5, 0]}, "counts": True}, "class 0 is 2.5"),
        ({"proportions": {"a": [1, np.nan, 1], "b": [2, 2, 0]}, "counts": True}, "class 1 is nan"),
        ({"proportions": {"a": TABLE["a"]}}, r"(?s)bag 'b' \(4 rows\) is unknown.*'a'.*Add it to"),
        ({"proportions": {**TABLE, "c": [1, 0, 0]}}, "bag 'c' has 0 instances"),
        ({"proportions": pd.concat([FRAME, FRAME[:1]])}, "bag 'a' occurs 2 times"),
        ({"proportions": {**TABLE, "b": [0.5, 0.5]}}, r"bag 'b' has values for 2 classes"),
        ({"proportions": {"a": {0: 0.5, 1: 0.5}, "b": {0: 1}}}, r"bag 'b' .* 1 class \(0\), but"),
        ({"proportions": {"a": {0: 0.5, 1: 0.5}, "b": [0, 1, 0]}}, "bag 'b' has values for 3 cl"),
        ({"proportions": FRAME.reset_index()}, "other than numbers.*\n.*set_index"),
        ({"proportions": {"a": 0.5, "b": 0.5}}, r"the table is of shape \(2,\)"),
        ({"proportions": FRAME[[]]}, r"the table is of shape \(2, 0\)"),
        ({"proportions": {}}, r"the table is of shape \(0,\)"),
        ({"proportions": None}, "neither proportions nor truth"),
        ({"proportions": FRAME, "classes": ["none", "mild", "dire", "severe"]}, "'dire' is not a"),
        ({"proportions": FRAME, "classes": ["none", "mild"]}, "'severe' is in the table, but not"),
        ({"classes": ["none", "mild"]}, "class 'none' is not a column"),
        ({"classes": ["none", "mild", "mild"]}, "class 'mild' occurs 2 times"),
        ({"proportions": FRAME, "classes": ["none", "mild", "severe", "none"]}, "'none' occurs"),
        ({"proportions": FRAME.set_axis(["p", "q", "p"], axis=1)}, "class 'p' occurs 2 times"),
        ({"truth": [0, 1, 2, 0, 7, 7]}, r"label 7 \(2 rows\) is unknown\.\n  known: 0, 1, 2"),
        ({"truth": [0, 1, 2]}, r"6 rows, but the labels are of shape \(3,\)"),
        ({"truth": [0, 1, 2, None, 0, 0]}, "label of 1 row is missing; row 3"),
        ({"bag": BAG[:5]}, r"6 rows, but the bag ids are of shape \(5,\)"),
        ({"bag": np.zeros((6, 1))}, r"of shape \(6, 1\)"),
        ({"bag": [*BAG[:4], None, np.nan]}, r"(?s)bag id of 2 rows is missing; row 4.*leave these"),
        ({"bag": np.array([0, 1, np.nan, 0, 1, np.nan])}, "of 2 rows is missing; row 2"),
        ({"bag": pd.array([0, 1, None, 0, 1, 1], dtype="Int64")}, "of 1 row is missing; row 2"),
        ({"bag": [*BAG[:5], pd.NA]}, "of 1 row is missing; row 5"),
        ({"bag": pd.Categorical([*BAG[:5], None])}, "of 1 row is missing; row 5"),
        ({"bag": pd.DatetimeIndex(["2020", pd.NaT] * 3)}, "of 3 rows is missing; row 1"),
        ({"x": X[:0], "bag": []}, "x has 0 rows"),
        ({"x": np.float64(3)}, "x has 0 rows"),
        ({"x": ()}, "x has no rows"),
        ({"x": (X, X[:5])}, "x has 6 and 5 rows"),
        ({"x": pd.DataFrame(X)}, r"x is a DataFrame.*\n.*to_numpy\(\)"),
        ({"x": (X, pd.Series(range(6)))}, "x is a Series"),
    ],
)
def test_from_rows_refuses(change, message):
    with pytest.raises(BagError, match=message):
        Bags.from_rows(**{"x": X, "bag": BAG, "proportions": TABLE, **change})


# ------------------------------------------------------------------------------- from_members


def test_from_members_shares_rows_and_keeps_their_order():
    members: Any = {"left": [3, 0, 1], "right": np.array([3, 5], dtype=np.uint8)}
    table = {"right": {"y": 0, "n": 2}, "left": {"y": 2, "n": 1}}
    bags: Any = Bags.from_members(X, members, table, counts=True, truth=list("yynnyn"))
    assert bags.x is X
    assert bags.ids == ("right", "left")
    assert bags.index.tolist() == [3, 5, 3, 0, 1]
    assert bags.truth.tolist() == [1, 1, 1, 0, 0]
    assert bags.counts.tolist() == [[0, 2], [2, 1]]
    summary = bags.describe()
    assert (summary.repeated_rows, summary.unused_rows, summary.bags_off_truth) == (1, 2, 0)


def test_from_members_takes_bags_of_any_sizes_by_position():
    bags = Bags.from_members(X, [[3, 0], [0, 1, 2]], np.full((2, 2), 0.5))
    assert (bags.ids, bags.sizes.tolist()) == ((0, 1), [2, 3])
    assert bags.index.tolist() == [3, 0, 0, 1, 2]


def test_from_members_takes_an_array_of_equal_bags():
    bags = Bags.from_members(X, np.array([[0, 1], [1, 2], [4, 5]]), np.full((3, 2), 0.5))
    assert bags.ids == (0, 1, 2)
    assert bags.index.tolist() == [0, 1, 1, 2, 4, 5]
    assert Bags.from_members(X, np.array([[0, 1], [2, 3]]), truth=[1] * 6).classes == (1,)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a": [0, 6], "b": [1]}, "bag 'a' holds row 6, but x has 6 rows"),
        ({"a": [0], "b": [1, -1]}, "bag 'b' holds row -1"),
        ({"a": [0], "b": [-1, 1]}, "bag 'b' holds row -1"),
        ({"a": [0, 1], "b": [1, 2, 1]}, "bag 'b' holds row 1 twice"),
        ({"a": [], "b": [1, 2]}, "bag 'a' has 0 instances"),
        ({"a": [0, 1], "b": [True, False]}, r"rows of bag 'b' are of shape \(2,\) and bool"),
        ({"a": [0.5], "b": [1]}, "rows of bag 'a' .* float64"),
        ({"a": [[0]], "b": [1]}, r"rows of bag 'a' are of shape \(1, 1\)"),
        ({"a": [0], "b": [1], "c": [2, 3]}, r"bag 'c' \(2 rows\) is unknown"),
        ({"a": [0]}, "bag 'b' has 0 instances"),
        ({}, "bag 'a' has 0 instances"),
    ],
)
@pytest.mark.parametrize("labels", [None, [0] * 6])
def test_from_members_refuses(members, message, labels):
    with pytest.raises(BagError, match=message):
        Bags.from_members(X, members, TABLE, truth=labels)


# --------------------------------------------------------------------------------- raw fields


FIELDS: dict[str, Any] = {
    "x": X,
    "index": np.array([1, 3, 0, 2]),
    "offsets": np.array([0, 2, 4]),
    "proportions": np.array([[0.5, 0.5], [1, 0]]),
    "counts": np.array([[1, 1], [2, 0]]),
    "classes": ("n", "y"),
    "ids": ("a", "b"),
    "truth": np.array([0, 1, 0, 0]),
}


def test_fields_that_agree_are_taken():
    assert Bags(**FIELDS).rows(1).tolist() == [0, 2]
    with pytest.raises(IndexError):
        Bags(**FIELDS).rows(2)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("index", np.array([1, 3, 0, 6]), "bag 'b' holds row 6, but x has 6 rows"),
        ("index", np.array([1, -3, 0, 5]), "bag 'a' holds row -3"),
        ("index", np.array([1.0, 3, 0, 2]), "index must be of shape .* and int64"),
        ("index", np.array([[1, 3, 0, 2]]), "index must be of shape"),
        ("offsets", np.array([0, 2, 3]), "offsets run from 0 to 3"),
        ("offsets", np.array([1, 2, 4]), "offsets run from 1 to 4"),
        ("offsets", np.array([0, 4, 4]), "bag 'b' has 0 instances"),
        ("offsets", np.array([0, 5, 4]), "bag 'b' has 0 instances"),
        ("offsets", np.array([0, 4]), r"offsets must be of shape \(3,\)"),
        ("proportions", np.array([[0.5, 0.5], [1, 1]]), "bag 'b' .* sum to 2 "),
        ("proportions", np.ones((2, 1)), r"proportions must be of shape \(2, 2\)"),
        ("counts", np.array([[1, 1], [3, 0]]), "bag 'b' has 2 instances, but its counts sum to 3"),
        ("counts", np.array([[3, -1], [2, 0]]), "bag 'a' .* class 'y' is -1"),
        ("counts", np.array([[1, 1], [2, 0]], dtype=np.int32), "counts must be .* int64"),
        ("classes", ("n", "n"), "class 'n' occurs 2 times"),
        ("classes", (), "2 bags and 0 classes"),
        ("ids", ("a", "a"), "bag 'a' occurs 2 times"),
        ("ids", (), "0 bags and 2 classes"),
        ("truth", np.array([0, 1, 0, 2]), "truth runs from 0 to 2, but there are 2 classes"),
        ("truth", np.array([0, 1, 0, -1]), "truth runs from -1 to 1"),
        ("truth", np.array([0, 1, 0]), r"truth must be of shape \(4,\)"),
    ],
)
def test_fields_that_disagree_are_refused(field, value, message):
    with pytest.raises(BagError, match=message):
        Bags(**{**FIELDS, field: value})


# ---------------------------------------------------------------------------- subset and split


def many_bags(n=40, size=5, *, shared=0, seed=0):
    """Bags of `size` rows, of which the first `shared` are the same in all of them."""
    members = [[*range(shared), *range(i * size + shared, (i + 1) * size)] for i in range(n)]
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n * size)
    return Bags.from_members(
        np.arange(n * size), np.array(members), truth=labels, classes=[0, 1, 2]
    )


@pytest.mark.parametrize(
    ("which", "ids"),
    [
        ([2, 0], (2, 0)),
        (slice(1, None, 2), (1, 3)),
        (np.array([True, False, False, True]), (0, 3)),
        ([-1], (3,)),
        (1, (1,)),
    ],
)
def test_subset(which, ids):
    labels = np.array([0, 1, 1, 0, 1, 1, 0, 0])
    members = {0: [7, 1], 1: [0], 2: [3, 4, 7], 3: [2, 6]}
    bags = Bags.from_members(np.arange(8), members, truth=labels)
    part: Any = bags[which]
    assert part.x is bags.x
    assert part.ids == ids
    for i, bag in enumerate(ids):
        assert part.rows(i).tolist() == members[bag]
        assert part.counts[i].tolist() == bags.counts[bag].tolist()
        assert part.proportions[i].tolist() == bags.proportions[bag].tolist()
    assert part.truth.tolist() == labels[part.index].tolist()
    with pytest.raises(BagError, match="0 of the bags"):
        bags[[]]
    with pytest.raises(BagError, match="position 1 occurs 2 times"):
        bags[[1, 1]]


def test_positions_of_instances_go_bag_after_bag():
    bags = Bags.from_rows(None, [*"cabacb"], truth=[0, 1, 0, 1, 0, 1])
    assert bags.ids == ("c", "a", "b")
    assert bags.positions(np.array([2, 0])).tolist() == [4, 5, 0, 1]
    assert bags.positions(np.array([1])).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("fraction", "held_out"), [(0.25, 10), (0.001, 1), (0.999, 39), (1 / 3, 13)]
)
def test_split_by_whole_bags(fraction, held_out):
    bags: Any = many_bags()
    split: Any = bags.split(fraction, seed=3)
    assert isinstance(split, Split)
    assert split.held_out.n_bags == held_out
    assert set(split.train.ids) | set(split.held_out.ids) == set(range(40))
    assert all(list(part.ids) == sorted(part.ids, key=bags.ids.index) for part in split[:2])
    assert split.overlap == Overlap(0, held_out * 5)
    assert "0 of" in str(split.overlap)
    assert bags.split(fraction, seed=3).train.ids == split.train.ids
    assert len({bags.split(fraction, seed=seed).train.ids for seed in range(9)}) > 1


def test_split_counts_the_rows_on_both_sides():
    split = many_bags(shared=2).split(0.5, seed=0)
    assert split.overlap == Overlap(2, 20 * 3 + 2)
    assert "2 of 62 held-out rows (3.2%) also stand in training bags: " in str(split.overlap)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 1.5, float("nan")])
def test_split_refuses(fraction):
    with pytest.raises(BagError, match="40 bags cannot be split"):
        many_bags().split(fraction, seed=0)
    with pytest.raises(BagError, match="1 bag cannot be split"):
        many_bags(1).split(0.5, seed=0)


# ---------------------------------------------------------------------------- repr and describe


def test_repr_is_one_line_without_the_data():
    x = np.full((1200, 3), 777.0)
    bags = Bags.from_rows(x, [0] * 1100 + [1] * 100, np.full((2, 20), 0.05))
    assert repr(bags) == (
        "Bags(2 bags of 100–600–1,100 instances, 1,200 in all, from 1,200 rows; "
        "20 classes: 0, 1, 2, 3, 4, 5, 6, 7, … (12 more); truth unknown)"
    )
    assert "truth known" in repr(many_bags())


def bags_of(proportions, size=100):
    proportions = np.asarray(proportions, dtype=float)
    members = np.arange(len(proportions) * size).reshape(-1, size)
    return Bags.from_members(np.arange(members.size), members, proportions, classes=None)


def test_describe_says_what_rounding_moved():
    summary = bags_of([[0.5, 0.5], [0.3, 0.7], [0.99, 0.01]], size=5).describe()
    assert summary.sizes == (5, 5.0, 5)
    assert summary.rounding_most == pytest.approx(0.5)
    assert summary.rounding_bag == 0
    assert summary.rounding_total == pytest.approx(0.5 * 2 + 0.5 * 2 + 0.05 * 2)
    assert summary.totals == {0: 3 + 2 + 5, 1: 2 + 3 + 0}
    assert "at most (bag 0)" in str(summary)


def test_spreads_are_one_for_pure_bags_and_one_over_root_size_for_random_ones():
    pure = bags_of(np.eye(4)[np.arange(40) % 4]).describe()
    assert pure.spreads == pytest.approx([1, 1, 1])
    rng = np.random.default_rng(0)
    share = [0.6, 0.3, 0.1]
    random = bags_of(rng.multinomial(25, share, 4000) / 25, size=25).describe()
    assert random.spreads == pytest.approx([0.2, 0.2], rel=0.05)
    assert random.random_spread == pytest.approx(0.2)
    assert random.separability.startswith("Warning: the classes can barely be told apart")
    assert "(spread 0.2; bags filled at random: 0.2)" in random.separability
    apart = bags_of(rng.multinomial(25, [0.5, 0.5], 100) / 25 @ [[1, 0], [0.1, 0.9]], size=25)
    wide = bags_of([[p, 1 - p] for p in np.linspace(0.1, 0.9, 20)], size=25).describe()
    assert "along 1 of 1 direction" in wide.separability
    assert "barely" in apart.describe().separability
    of_one = bags_of(np.eye(2)[np.arange(20) % 2], size=1).describe()
    assert "Warning" not in of_one.separability


def test_spreads_are_singular_values():
    proportions = np.random.default_rng(1).dirichlet([3, 2, 1, 1], 9)
    mean = proportions.mean(axis=0)
    summary = bags_of(proportions).describe()
    plain = np.linalg.svd(proportions - mean, compute_uv=False)
    assert summary.singular_values == pytest.approx(plain)
    scaled = np.linalg.svd((proportions - mean) / np.sqrt(mean), compute_uv=False)
    assert summary.spreads == pytest.approx(scaled[:3] / 3)


def test_singular_values_are_as_many_as_bags_or_classes():
    assert len(bags_of([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]).describe().singular_values) == 2
    assert bags_of([[1.0, 0.0], [0.0, 1.0]]).describe().singular_values == pytest.approx([1, 0])
    assert bags_of([[0.5, 0.5]] * 3).describe().singular_values == (0, 0)


def test_describe_warns_of_what_cannot_be_learned():
    same = bags_of([[0.2, 0.3, 0.5]] * 9).describe()
    assert same.spreads == (0, 0)
    assert "nearly identical (spread 0)" in same.separability
    assert same.weakest == (0, 1, 2)

    nearly = bags_of([[0.5 + e, 0.5 - e] for e in (-4e-4, 0, 4e-4)]).describe()
    assert "Warning: the bags' proportions are nearly identical" in str(nearly)

    # Classes 1 and 2 come in equal parts everywhere.
    tied = bags_of([[1 - 2 * p, p, p] for p in (0.1, 0.2, 0.4, 0.3)]).describe()
    assert tied.weakest == (1, 2)
    assert "differ along 1 of 2 directions only (spread 0)" in tied.separability
    assert "Hardest to tell apart: 1, 2." in tied.separability

    # So do 1 and 2 here, at 50 to 1: the common class is named beside the rare one.
    tied = bags_of([[1 - 1.02 * p, p, 0.02 * p] for p in (0.1, 0.6, 0.9, 0.3)]).describe()
    assert tied.weakest == (1, 2)

    one = bags_of([[0.5, 0.5]]).describe()
    assert "Warning: 1 bag cannot tell 2 classes apart" in one.separability
    few = bags_of([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]).describe()
    assert "2 bags cannot tell 3 classes apart" in few.separability
    assert "Make at least 3 bags" in few.separability

    alone = bags_of([[1.0, 0.0], [1.0, 0.0]]).describe()
    assert alone.spreads == ()
    assert "only one class occurs" in alone.separability


def test_describe_sets_aside_classes_that_never_occur_and_accepts_rare_ones():
    absent = bags_of([[0.9, 0.1, 0], [0.1, 0.9, 0]]).describe()
    assert len(absent.spreads) == 1
    assert absent.totals[2] == 0
    assert "Warning" not in absent.separability
    rare = bags_of([[1 - p, p] for p in (0, 0.02, 0.04, 0.02)], size=1000).describe()
    assert "Warning" not in rare.separability


def test_describe_reads_well():
    text = str(many_bags(shared=1).describe())
    assert text.startswith("40 bags, 200 instances, 200 rows\n")
    assert "1 in several bags, 39 in none" in text
    assert "known; it differs from the counts of 0 bags" in text
