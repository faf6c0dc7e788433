"""What Bags are read from: rows with ids, rows by bag, and tables of every kind."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.bags import read
from apportion.bags.bags import Bags
from apportion.errors import BagError
from tests.bags.small_bags import BAG, FRAME, TABLE, X

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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"proportions": {"a": TABLE["a"]}}, r"(?s)bag 'b' \(4 rows\) is unknown.*'a'.*Add it to"),
        ({"proportions": {"c": [1, 0, 0]}, "skip_unplaced": True}, "none of 6 rows is in a known"),
        ({"proportions": pd.concat([FRAME, FRAME[:1]])}, "bag 'a' occurs 2 times"),
        ({"proportions": {**TABLE, "b": [0.5, 0.5]}}, r"bag 'b' has values for 2 classes"),
        ({"proportions": {"a": {0: 0.5, 1: 0.5}, "b": {0: 1}}}, r"bag 'b' .* 1 class \(0\), but"),
        ({"proportions": {"a": {0: 0.5, 1: 0.5}, "b": [0, 1, 0]}}, "bag 'b' has values for 3 cl"),
        ({"proportions": FRAME.assign(x="y")}, "other than numbers.*\n.*set_index"),
        ({"proportions": {"a": 0.5, "b": 101}}, "bag 'b' has the share 101"),
        ({"proportions": {"a": 0.5, "b": -0.1}}, r"bag 'b' has the share -0\.1"),
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
        (
            {"truth": [0, 1, 2, None, 0, 0], "proportions": None},
            r"label of 1 row is missing, the first of them in bag 'a'",
        ),
        ({"bag": BAG[:5]}, r"6 rows, but the bag ids are of shape \(5,\)"),
        ({"bag": np.zeros((6, 1))}, r"of shape \(6, 1\)"),
        ({"bag": [*BAG[:4], None, np.nan]}, r"(?s)of 2 rows is missing; row 4.*skip_unplaced"),
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


@pytest.mark.parametrize("members", [[], {}, np.zeros((0, 3), int)], ids=str)
@pytest.mark.parametrize("known", [{"truth": list("yynnyn")}, {"proportions": np.ones((1, 2))}])
def test_from_members_takes_one_bag_at_least(members, known):
    with pytest.raises(BagError, match="members holds 0 bags"):
        Bags.from_members(X, members, **known)


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
        ({}, "members holds 0 bags"),
    ],
)
@pytest.mark.parametrize("labels", [None, [0] * 6])
def test_from_members_refuses(members, message, labels):
    with pytest.raises(BagError, match=message):
        Bags.from_members(X, members, TABLE, truth=labels)


# ----------------------------------------------------------------------- few rows and many rows


@given(st.lists(st.integers(0, 6), max_size=60), st.booleans())
def test_instances_are_sorted_by_bag_and_keep_their_order(bag, many):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "FEW", 0 if many else 10**9)
        order = read.by_bag(np.array(bag, np.int64), 7).tolist()
    assert order == sorted(range(len(bag)), key=lambda j: bag[j])


@pytest.mark.parametrize("few", [0, 10**9])
@pytest.mark.parametrize(
    "values", [[*"cabac"], [3, 1, 3], [("a", 1), ("b", 2), ("a", 1)], np.array([2.5, -1.0, 2.5])]
)
def test_names_are_numbered_as_they_appear(values, few, monkeypatch):
    monkeypatch.setattr(read, "FEW", few)
    names, codes = read.factorize(values, "bag id", len(values))
    assert list(names) == list(dict.fromkeys(list(values)))
    assert [names[code] for code in codes] == list(values)
    with pytest.raises(BagError, match="the bag id of 2 rows is missing; row 1 is the first"):
        read.factorize(["a", None, np.nan], "bag id", 3)


# ------------------------------------------------------------- tables in the forms that there are


NUMBERS = pd.DataFrame({"no": [0.25, 0.5, 1.0], "yes": [0.75, 0.5, 0.0]})
ROWS = [2, 0, 1, 1, 0, 2, 2]


@pytest.mark.parametrize("ids", [["a", "b", "c"], [7, 8, 9], [0, 1, 2], ["0", "1", "2"], [2, 0, 1]])
@pytest.mark.parametrize("scale", [1, 100])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_bags_may_be_a_column(ids, scale, place):
    """Of frames without an index always, of those of pandas unless they are in it."""
    frame = NUMBERS * scale
    frame.insert(place, "ward", ids)
    bag = [ids[k] for k in ROWS]
    expected = Bags.from_rows(None, bag, (NUMBERS * scale).set_axis(ids))
    for table in (
        frame,
        frame.set_index("ward"),
        pl.from_pandas(frame),
        pl.from_pandas(frame).lazy(),
        pa.Table.from_pandas(frame),
    ):
        found = Bags.from_rows(None, bag, table)
        assert (found.ids, found.classes) == (expected.ids, ("no", "yes"))
        np.testing.assert_array_equal(found.proportions, expected.proportions)
        ordered = read.Table.read(table, ["yes", "no"], bag[:1])
        assert list(ordered.ids) == ids
        np.testing.assert_array_equal(ordered.values, NUMBERS[["yes", "no"]] * scale)


def test_counts_by_position_are_not_taken_for_bags():
    counts = pd.DataFrame({"no": [0, 1, 2], "yes": [2, 1, 0]})
    found = Bags.from_rows(None, [0, 0, 1, 1, 2, 2], counts, counts=True)
    assert (found.ids, found.counts.tolist()) == ((0, 1, 2), counts.to_numpy().tolist())
    percents = pd.DataFrame({"a": [0, 1], "b": [40, 49], "c": [60, 50]})
    assert Bags.from_rows(None, [0, 1], percents).classes == ("a", "b", "c")


def test_a_frame_without_a_column_of_bags_is_refused():
    for table in (pl.from_pandas(NUMBERS), pa.Table.from_pandas(NUMBERS)):
        with pytest.raises(BagError, match="no column of the table of proportions has the bag 'x'"):
            Bags.from_rows(None, ["x", "x"], table)


def test_single_shares_are_those_of_the_second_of_two_classes():
    shares = {"b": 0.25, "a": 1}
    for table in (shares, pd.Series(shares), {k: 100 * v for k, v in shares.items()}):
        bags = Bags.from_rows(None, [*"aabbbb"], table)
        assert (bags.ids, bags.classes) == (("b", "a"), (0, 1))
        assert bags.counts.tolist() == [[3, 1], [0, 2]]
        assert Bags.from_rows(None, [*"ab"], table, classes=["no", "yes"]).classes == ("no", "yes")


def test_texts_of_numbers_are_numbers():
    written = pd.DataFrame({"no": ["45,2 %", "0,0%"], "yes": ["54,8 %", "100 %"]}, index=[*"ab"])
    bags = Bags.from_rows(None, [*"ab"], written)
    np.testing.assert_allclose(bags.proportions, np.array([[0.452, 0.548], [0.0, 1.0]]))
    with pytest.raises(BagError, match="other than numbers"):
        Bags.from_rows(None, [*"ab"], written.replace("0,0%", "0.5%"))


def test_bags_without_rows_are_left_out(caplog):
    caplog.set_level("INFO", "apportion.reading")
    more = {"x": [0.5, 0.5, 0], **TABLE, "y": [0.1, 0.1, 0.8]}
    bags, expected = Bags.from_rows(X, BAG, more), Bags.from_rows(X, BAG, TABLE)
    for name in ("ids", "index", "offsets", "proportions", "counts"):
        np.testing.assert_array_equal(getattr(bags, name), getattr(expected, name))
    assert caplog.messages == ["2 bags of the table without rows: left out ('x', 'y')."]
    assert Bags.from_members(X, {"b": [1, 2, 3, 4]}, TABLE).ids == ("b",)


def test_rows_in_no_known_bag_are_left_out_if_asked(caplog):
    caplog.set_level("INFO", "apportion.reading")
    x, bag = np.arange(9), [None, *BAG, "elsewhere", np.nan]
    bags = Bags.from_rows(x, bag, TABLE, skip_unplaced=True)
    expected = Bags.from_rows(X, BAG, TABLE)
    assert bags.n_rows == 9
    np.testing.assert_array_equal(bags.index, expected.index + 1)
    assert caplog.messages == ["3 rows in no known bag: left out."]
    with pytest.raises(BagError, match=r"bag 'elsewhere' \(1 row\) is unknown") as error:
        Bags.from_rows(x, [*BAG, "elsewhere", "a", "b"], TABLE)
    assert error.value.names("skip_unplaced")


def test_the_truth_may_be_unknown_for_some_rows(caplog):
    caplog.set_level("INFO", "apportion.reading")
    for missing in (None, np.nan, pd.NA):
        caplog.clear()
        bags = Bags.from_rows(X, BAG, TABLE, truth=[0, missing, 2, 1, missing, missing])
        assert bags.truth is not None
        assert dict(zip(bags.index, bags.truth, strict=True)) == {
            0: 0,
            1: -1,
            2: 2,
            3: 1,
            4: -1,
            5: -1,
        }
        assert caplog.messages == [
            "The truth is known for 3 of 6 instances: accuracies are over these alone."
        ]
    assert bags[[0]].truth is not None
    nothing = Bags.from_rows(X, BAG, TABLE, truth=[missing] * 6)
    assert nothing.truth is None
    only_b = Bags.from_rows(X, BAG, TABLE, truth=[0 if b == "b" else None for b in BAG])
    assert only_b[[0]].truth is None
    assert only_b[[1]].truth is not None
