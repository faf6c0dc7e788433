"""How columns become numbers: what is learned, in pieces or at once, what is encoded, refusals."""

import json
import logging
import pickle
import re
import time
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.bags.columns import Columns
from apportion.data import _statistics as column_statistics
from apportion.data.encoding import FEW, encode, encode_array, learn_columns
from apportion.errors import DataError


def only_numbers(encoded):
    assert isinstance(encoded, np.ndarray)
    return encoded


def both(encoded):
    """Return numbers and codes, whether or not there are codes."""
    return encoded if isinstance(encoded, tuple) else (encoded, None)


# ----------------------------------------------------------------------------------------- numbers


NUMERIC = {
    "int": pd.Series([1, 2, 6]),
    "small": pd.Series([1, 2, 6], dtype=np.uint8),
    "float": pd.Series([1.0, 2.0, 6.0]),
    "half": pd.Series([1.0, 2.0, 6.0], dtype=np.float16),
    "nullable": pd.Series([1, 2, 6], dtype="Int64"),
    "nullable float": pd.Series([1, 2, 6], dtype="Float32"),
    "arrow": pd.Series([1, 2, 6], dtype=pd.ArrowDtype(pa.int16())),
    "sparse": pd.Series([1, 2, 6], dtype="Sparse[int]"),
    "object": pd.Series([1, 2.0, 6], dtype=object),
}


@pytest.mark.parametrize("kind", NUMERIC)
def test_every_type_of_number_is_numeric(kind):
    frame = pd.DataFrame({"x": NUMERIC[kind]})
    columns = learn_columns(frame)
    assert columns.means == {"x": 3.0}
    assert (columns.gaps, columns.codes, columns.n_numbers) == ((), (), 1)
    encoded = only_numbers(encode(columns, frame))
    assert encoded.dtype == np.float32
    assert encoded.tolist() == [[1], [2], [6]]


@pytest.mark.parametrize("dtype", ["bool", "boolean", "object", pd.ArrowDtype(pa.bool_())])
def test_booleans_are_numbers(dtype):
    frame = pd.DataFrame({"x": pd.Series([True, False, True, True], dtype=dtype)})
    columns = learn_columns(frame)
    assert columns.means == {"x": 0.75}
    assert only_numbers(encode(columns, frame)).tolist() == [[1], [0], [1], [1]]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([4, None, 1]),
        pd.Series([4, None, 1], dtype="Int8"),
        pd.Series([4, None, 1], dtype=object),
        pd.Series([4, pd.NA, 1], dtype="Float64"),
        pd.Series([4, None, 1], dtype=pd.ArrowDtype(pa.float32())),
    ],
)
def test_gaps_are_filled_by_the_mean_and_marked_after_all_numbers(column):
    frame = pd.DataFrame({"a": column, "b": [7, 8, 9], "c": [None, None, -1.0]})
    columns = learn_columns(frame)
    assert columns.gaps == ("a", "c")
    assert only_numbers(encode(columns, frame)).tolist() == [
        [4, 7, -1, 0, 1],
        [2.5, 8, -1, 1, 1],
        [1, 9, -1, 0, 0],
    ]


def test_a_gap_that_comes_later_is_filled_but_not_marked():
    columns = learn_columns(pd.DataFrame({"a": [1, 2, 6]}))
    assert only_numbers(encode(columns, pd.DataFrame({"a": [None, 5.0]}))).tolist() == [[3], [5]]


def test_a_column_without_values_is_left_out():
    frame = pd.DataFrame(
        {"a": [1.0, 2.0], "none": [None, None], "text": pd.array([None] * 2, "string")}
    )
    columns = learn_columns(frame)
    assert columns.names == ("a",)
    assert only_numbers(encode(columns, frame)).tolist() == [[1], [2]]


def test_means_are_summed_in_double_precision():
    values = np.full(400_000, 16_777_217.0)  # 2**24 + 1, at which float32 stops counting
    frame = pd.DataFrame({"x": np.append(values, np.nan)})
    assert learn_columns(frame).means["x"] == np.float32(16_777_217.0)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39, -3.5e38])
def test_what_float32_cannot_hold_is_refused_with_its_row(value):
    good, bad = pd.DataFrame({"x": [1.0, 2.0, 3.0]}), pd.DataFrame({"x": [1.0, value, value]})
    with pytest.raises(DataError, match=r"column 'x' is .* in row 4 "):
        learn_columns([good, bad])
    with pytest.raises(DataError, match=r"column 'x' is .* in row 1 .*2 of 3 in all"):
        encode(learn_columns(good), bad)


# -------------------------------------------------------------------------------------- categories


@pytest.mark.parametrize(
    "dtype",
    [object, "string", "str", "category", "string[pyarrow]", pd.ArrowDtype(pa.string()),
     pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))],
)  # fmt: skip
def test_every_type_of_text_is_categorical(dtype):
    frame = pd.DataFrame({"t": pd.Series(["b", "a", None, "b", "c"], dtype=dtype)})
    columns = learn_columns(frame)
    # The most frequent first, then by their text.
    assert columns.categories == {"t": ("b", "a", "c")}
    assert columns.codes == (4,)
    numbers, codes = encode(columns, frame)
    assert numbers.shape == (5, 0)
    assert codes.dtype == np.int16
    assert codes.ravel().tolist() == [1, 2, 0, 1, 3]


def test_categories_are_matched_by_their_text_whatever_their_type():
    learned = learn_columns(pd.DataFrame({"t": pd.Categorical([3, 1, 3, 2, 2, 3])}))
    assert learned.categories == {"t": ("3", "2", "1")}
    for values in (["1", "2", "3"], [1, 2, 3], pd.Categorical([1, 2, 3], categories=[3, 2, 1, 9])):
        assert encode(learned, pd.DataFrame({"t": values}))[1].ravel().tolist() == [3, 2, 1]


def test_missing_is_not_a_category_but_the_empty_text_is():
    frame = pd.DataFrame({"t": pd.Series(["", None, np.nan, ""], dtype=object)})
    columns = learn_columns(frame)
    assert columns.categories == {"t": ("",)}
    assert encode(columns, frame)[1].ravel().tolist() == [1, 0, 0, 1]


def test_the_255_most_frequent_categories_have_codes_and_the_rest_none():
    # 300 categories; number k is there 1 + (k >= 100) times, so that ties are cut by text.
    names = [f"c{k:03d}" for k in range(300)] + [f"c{k:03d}" for k in range(100, 300)]
    frame = pd.DataFrame({"t": np.random.default_rng(0).permutation(names)})
    columns = learn_columns(frame)
    expected = [f"c{k:03d}" for k in [*range(100, 300), *range(55)]]
    assert list(columns.categories["t"]) == expected
    assert columns.codes == (256,)
    assert columns.left_out == {"t": 45}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what was left out on purpose is no news
        codes = encode(columns, pd.DataFrame({"t": ["c100", "c054", "c055", "new"]}))[1]
    assert codes.ravel().tolist() == [1, 255, 0, 0]
    assert "255 of 300" in repr(columns)


def test_unseen_categories_are_coded_0_with_one_warning():
    frame = pd.DataFrame({"a": ["x", "y"], "b": ["u", "v"], "n": [1, 2]})
    columns = learn_columns(frame)
    new = pd.DataFrame({"a": ["z", "x", "w", "z"], "b": ["u", "v", None, "u"], "n": 0})
    with pytest.warns(UserWarning, match="do not occur in the rows") as caught:
        codes = encode(columns, new)[1]
    assert codes.tolist() == [[0, 1], [1, 2], [0, 0], [0, 1]]
    (message,) = [str(warning.message) for warning in caught]
    assert "'a' in 3 rows (such as 'z')" in message
    assert "'b'" not in message  # which lacks a value, but has no new one
    assert caught[0].filename == __file__


def test_a_column_of_too_many_texts_is_refused(monkeypatch):
    monkeypatch.setattr(column_statistics, "MOST_TEXTS", 5)
    pieces = [pd.DataFrame({"id": [f"{k}", f"{k + 1}"], "n": 1}) for k in range(6)]
    learn_columns(pieces[:4])
    with pytest.raises(DataError, match=r"column 'id' has more than 5 distinct texts in 10 rows"):
        learn_columns(pieces)


def test_a_few_words_among_numbers_are_reported(caplog):
    cells = [*map(str, range(40)), "12x", "abc"]
    with caplog.at_level(logging.WARNING, "apportion"):
        learn_columns(pd.DataFrame({"age": cells, "code": "7", "name": "a"}))
    left_out, message = caplog.messages
    assert "Columns 'code', 'name' have one value in all rows" in left_out
    assert "'age'" in message
    assert "2 of its 42 values are not numbers, such as '12x'" in message


# ------------------------------------------------------------------------------ pieces, in any form


CELL = st.one_of(st.none(), st.sampled_from([0.0, 1.5, -2.0, 1024.0, 7.0]))
WORD = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ä", "7"]))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(CELL, WORD, st.integers(-5, 5)), min_size=1, max_size=12),
    data=st.data(),
)
def test_pieces_teach_what_the_whole_does(rows, data):
    frame = pd.DataFrame(rows, columns=["x", "t", "n"])
    frame = frame.astype({"x": float, "t": object})
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    ends = [0, *cuts, len(rows)]
    pieces = [frame.iloc[a:b] for a, b in pairwise(ends)]
    whole, learned = learn_columns(frame), learn_columns(iter(pieces))
    varies = {name: frame[name].nunique(dropna=False) > 1 for name in frame}
    assert learned.names == tuple(n for n in frame if varies[n] or not any(varies.values()))
    if frame["t"].notna().any() and "t" in learned.names:  # otherwise nothing says it is text
        assert list(learned.categorical) == ["t"]
        counts = frame["t"].value_counts()
        assert [counts[text] for text in learned.categories["t"]] == sorted(counts, reverse=True)
    assert learned == whole
    # An independent account of the encoding, cell by cell.
    numbers, codes = both(encode(learned, frame))
    known = [row[0] for row in rows if row[0] is not None]
    mean = np.float32(sum(known) / len(known)) if known else 0
    filled = [mean if row[0] is None else row[0] for row in rows]
    expected = {"x": filled, "n": [row[2] for row in rows]}
    for name in learned.numeric:
        if name != "t":
            assert numbers[:, learned.numeric.index(name)].tolist() == expected[name]
    if len(known) < len(rows) and "x" in learned.numeric:
        at = len(learned.numeric) + learned.gaps.index("x")
        assert numbers[:, at].tolist() == [row[0] is None for row in rows]
    if codes is not None:
        back = [None, *learned.categories["t"]]
        assert [back[code] for code in codes[:, 0]] == [row[1] for row in rows]
    # By name, in any order, beside others.
    shuffled = frame.assign(more=1)[["more", "t", "n", "x"]]
    for one, other in zip(both(encode(learned, shuffled)), (numbers, codes), strict=True):
        assert np.array_equal(one, other)
    # And after a journey through a file.
    again = Columns.from_dict(json.loads(json.dumps(learned.to_dict())))
    assert again == learned
    assert again.numeric == learned.numeric


def test_pieces_may_be_of_different_types_of_one_kind():
    pieces = [
        pd.DataFrame({"x": [1, 2], "t": ["a", "b"]}),
        pd.DataFrame({"t": pd.Categorical(["b", None]), "x": [None, 6.0]}),
        pd.DataFrame({"x": [None, None], "t": [None, None]}),
        pd.DataFrame({"x": ["a"], "t": [1]})[:0],  # which has no rows to be of any kind
        pd.DataFrame({"x": [True], "t": ["b"]}),
    ]
    columns = learn_columns(pieces)
    assert columns.names == ("x", "t")
    assert columns.means == {"x": 2.5}
    assert columns.gaps == ("x",)
    assert columns.categories == {"t": ("b", "a")}


def test_pieces_that_contradict_one_another_are_refused():
    numbers = pd.DataFrame({"x": [1, 2]})
    with pytest.raises(DataError, match=r"'x' is numbers up to row 2, and text from there"):
        learn_columns([numbers, pd.DataFrame({"x": ["a"]})])
    with pytest.raises(DataError, match=r"from row 2 on lacks a column 'x'"):
        learn_columns([numbers.assign(y=1), pd.DataFrame({"y": [1]})])
    with pytest.raises(DataError, match=r"from row 2 on has a column 'y'"):
        learn_columns([numbers, numbers.assign(y=1)])


def test_floats_come_back_from_json_exactly():
    frame = pd.DataFrame({"x": [0.1, 0.2, 1e-30], "y": [1e38, 3.0, 1 / 3]})
    columns = learn_columns(frame)
    again = Columns.from_dict(json.loads(json.dumps(columns.to_dict())))
    assert again.means == columns.means
    assert pickle.loads(pickle.dumps(columns)) == columns  # noqa: S301
    assert columns != learn_columns(frame[["x"]])


@pytest.mark.parametrize(
    "broken",
    [
        lambda d: d.pop("means"),
        lambda d: d.update(means=[1]),
        lambda d: d.update(names=["x"]),
        lambda d: d.update(means={"x": "a", "y": 1}),
    ],
)
def test_what_is_no_saved_columns_is_refused(broken):
    fields = learn_columns(pd.DataFrame({"x": [1], "y": [2]})).to_dict()
    broken(fields)
    with pytest.raises(DataError, match="saved columns"):
        Columns.from_dict(fields)


def test_names_are_text():
    columns = learn_columns(pd.DataFrame({0: [1, 2], ("a", 1): [3, 4]}))
    assert columns.names == ("0", "('a', 1)")
    assert only_numbers(encode(columns, pd.DataFrame({"('a', 1)": [3], "0": [1]}))).tolist() == [
        [1, 3]
    ]


# ---------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([[1], [2]], "mixed"),
        ([{}, 1], "mixed"),
        (["a", 1], "mixed"),
        ([1j, 2j], "complex"),
        ([b"a", b"b"], "bytes"),
        (pd.Series([[1], [2]], dtype=pd.ArrowDtype(pa.list_(pa.int8()))), "list"),
        (pd.Series(pd.period_range("2020", periods=2)), "period"),
    ],
)
def test_other_types_are_refused_by_name(values, named):
    odd = pd.DataFrame({"fine": [1, 2], "when": values})
    with pytest.raises(DataError, match=rf"column 'when' is of type .*{named}") as error:
        learn_columns(odd)
    assert "leave it out" in str(error.value).splitlines()[-1]
    for learned in ([1, 2], ["a", "b"]):
        columns = learn_columns(pd.DataFrame({"when": learned}))
        with pytest.raises(DataError, match="column 'when' is of type"):
            encode(columns, odd)


def test_names_that_repeat_are_refused():
    twice = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])
    with pytest.raises(DataError, match="column 'a' occurs more than once"):
        learn_columns(twice)
    with pytest.raises(DataError, match="column '1' occurs more than once"):
        learn_columns(pd.DataFrame([[1, 2]], columns=[1, "1"]))
    with pytest.raises(DataError, match="column 'a' occurs 2 times"):
        encode(learn_columns(pd.DataFrame({"a": [1]})), twice)
    # Of columns that are not used, it does not matter.
    assert only_numbers(encode(learn_columns(pd.DataFrame({"b": [1]})), twice)).tolist() == [[2]]


def test_a_missing_column_is_named_with_what_may_be_meant():
    columns = learn_columns(pd.DataFrame({"income": [1], "age": [1]}))
    with pytest.raises(DataError, match=r"there is no column 'income', .*\n.*mean 'incme'"):
        encode(columns, pd.DataFrame({"incme": [1], "age": [2]}))
    with pytest.raises(DataError, match=r"no column 'income', .* \(and 1 more like it\)"):
        encode(columns, pd.DataFrame({"x": [1]}))


@pytest.mark.parametrize(
    ("cells", "row", "value"),
    [
        (["1", "2", "x3", "y"], 2, "x3"),
        ([None, "1", "2"], 1, "1"),
        (pd.Categorical([5, 6]), 0, "5"),
    ],
)
def test_text_in_place_of_numbers_is_refused_with_its_row(cells, row, value):
    columns = learn_columns(pd.DataFrame({"n": [1, 2]}))
    with pytest.raises(DataError, match=rf"'n' held numbers .* row {row} .* is '{value}'"):
        encode(columns, pd.DataFrame({"n": cells}))


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        (pd.DataFrame(index=[1, 2]), "0 columns"),
        (pd.DataFrame({"x": []}), "0 rows"),
        ([], "0 columns"),
        ([np.eye(2)], "the table is a ndarray"),
    ],
)
def test_nothing_to_learn_from_is_refused(frames, named):
    with pytest.raises(DataError, match=named):
        learn_columns(frames)


def test_encoding_is_fast():
    rng, n = np.random.default_rng(0), 500_000
    frame = pd.DataFrame({f"x{j}": rng.normal(size=n) for j in range(15)})
    for j in range(5):
        frame[f"t{j}"] = pd.Series(rng.choice(["a", "b", "c"], n))
    columns = learn_columns(frame)
    start = time.process_time()  # which does not count what others compute meanwhile
    encode(columns, frame)
    assert time.process_time() - start < 1.5  # it takes a tenth of a second


def test_small_differences_of_large_numbers_are_kept():
    rng = np.random.default_rng(0)
    seconds, plain = 1.7e9 + 10 * rng.normal(size=200), 1000 + 10 * rng.normal(size=200)
    frame = pd.DataFrame({"seconds": seconds, "plain": plain})
    frame.loc[3, "seconds"] = np.nan
    columns = learn_columns([frame[:100], frame[100:]])
    numbers: Any = encode(columns, frame)
    assert columns.shifted == ("seconds",)
    known = np.arange(200) != 3
    expected = seconds - seconds[known].mean()
    assert np.allclose(numbers[known, 0], expected[known], atol=1e-5)
    assert numbers[3].tolist() == [0.0, np.float32(plain[3]), 1.0]
    assert np.array_equal(numbers[:, 1], plain.astype(np.float32))
    assert Columns.from_dict(columns.to_dict()) == columns


def test_a_constant_is_not_shifted():
    columns = learn_columns(pd.DataFrame({"k": [5.0, 5.0]}))
    numbers: Any = encode(columns, pd.DataFrame({"k": [5.0, 6.0]}))
    assert numbers.ravel().tolist() == [5.0, 6.0]


def test_categories_that_are_not_told_apart_are_said(caplog):
    frame = pd.DataFrame({"id": [f"k{i}" for i in range(300)]})
    with caplog.at_level("WARNING", "apportion"):
        learn_columns(frame)
    assert "'id' has 300 categories: only the 255 most frequent" in caplog.text


# --------------------------------------------------------------------------------- few rows at once


def of_all_types(n):
    rng = np.random.default_rng(0)
    gaps = np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))
    return pd.DataFrame(
        {
            "float": rng.normal(size=n),
            "gaps": gaps,
            "time": 1.7e9 + rng.random(n),  # stored minus its mean
            "time with gaps": 1.7e9 + gaps,
            "single": rng.normal(size=n).astype(np.float32),
            "whole": rng.integers(2**60, size=n),
            "zeros": np.where(rng.random(n) < 0.5, -0.0, 0.0),
            "flag": rng.random(n) < 0.5,
        }
    )


@pytest.mark.parametrize("extra", ["none", "text", "nullable", "order"])
def test_few_rows_are_encoded_to_the_bit_as_many(extra):
    frame = of_all_types(4 * FEW)
    if extra == "text":
        frame.insert(2, "job", np.where(frame["flag"], "cook", "nurse"))
    if extra == "nullable":
        frame["nullable"] = frame["whole"].astype("Int64").where(frame["flag"])
    columns = learn_columns(frame)
    assert columns.shifted
    assert columns.gaps
    whole = encode(columns, frame)
    rows = frame[frame.columns[::-1]].assign(more=1.0) if extra == "order" else frame
    for k in (*range(10), 3 * FEW):
        few = encode(columns, rows.iloc[k : k + 1])
        for all_rows, one in zip(
            *(x if isinstance(x, tuple) else (x,) for x in (whole, few)), strict=True
        ):
            assert one.tobytes() == all_rows[k : k + 1].tobytes()


def test_rows_of_an_array_are_encoded_as_those_of_a_frame():
    frame = of_all_types(4 * FEW).drop(columns=["whole"])
    frame = frame[list(learn_columns(frame).names)]
    columns, values = learn_columns(frame), frame.to_numpy(dtype=np.float64)
    whole = encode(columns, frame)
    for rows in (slice(0, 1), slice(5, 5 + FEW), slice(None)):
        before = values.copy()
        assert encode_array(columns, values[rows]).tobytes() == whole[rows].tobytes()
        np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39])
def test_what_is_outside_is_named_in_one_row_as_in_many(value):
    frame = of_all_types(4 * FEW).drop(columns=["flag"])
    frame = frame[list(learn_columns(frame).names)]
    columns = learn_columns(frame)
    frame.loc[0, "gaps"] = value
    message = rf"column 'gaps' is {re.escape(f'{value:g}')} in row 0 \(rows are counted from 0\)"
    for rows in (frame, frame.iloc[:1]):
        with pytest.raises(DataError, match=message):
            encode(columns, rows)
        with pytest.raises(DataError, match=message):
            encode_array(columns, rows.to_numpy())
