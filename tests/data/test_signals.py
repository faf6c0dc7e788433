"""Signals: padding, and tables that have a row a frame."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from apportion.data.signals import pad, read_signal_sets, read_signals
from apportion.errors import BagError, DataError
from apportion.nets.build import build_net

# ------------------------------------------------------------------------------------- padding


def test_signals_are_padded_with_time_last():
    generator = np.random.default_rng(0)
    signals = [generator.normal(size=(n, 3)) for n in (4, 1, 6)]
    frames, lengths = pad(signals)
    assert frames.dtype == np.float32
    assert lengths.dtype == np.int64
    assert frames.shape == (3, 3, 6)
    assert lengths.tolist() == [4, 1, 6]
    for own, signal in zip(frames, signals, strict=True):
        np.testing.assert_array_equal(own[:, : len(signal)], signal.T.astype(np.float32))
        assert (own[:, len(signal) :] == 0).all()
    longer, same = pad(signals, length=9)
    assert longer.shape == (3, 3, 9)
    np.testing.assert_array_equal(longer[:, :, :6], frames)
    assert (longer[:, :, 6:] == 0).all()
    assert same.tolist() == lengths.tolist()
    assert pad(signals, length=6)[0].shape == (3, 3, 6)


def test_flat_signals_have_one_channel():
    frames, lengths = pad([[1, 2, 3], np.array([4], np.uint8), [[5], [6]]])
    assert frames.tolist() == [[[1, 2, 3]], [[4, 0, 0]], [[5, 6, 0]]]
    assert lengths.tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("signals", "options", "message"),
    [
        ([], {}, "^there are 0 signals"),
        ([[1.0], []], {}, "^signal 1 has 0 frames"),
        ([np.ones((2, 3)), np.ones((0, 3))], {}, r"^signal 1 has 0 frames .* \(0, 3\)"),
        ([np.ones((2, 3)), np.ones((3, 2))], {}, "^signal 1 has 2 channels, but signal 0 has 3"),
        ([np.ones((2, 3)), [1.0, 2.0]], {}, "^signal 1 has 1 channels, but signal 0 has 3"),
        ([[[1, 2]], [[3, 4], [5, np.nan]]], {}, "^signal 1 is nan in frame 1, channel 1"),
        ([[1, 2], [3, np.inf, np.nan]], {}, "^signal 1 is inf in frame 1, .* 2 of 3 places"),
        ([[1, 1e39]], {}, r"^signal 0 is 1e\+39 in frame 1, channel 0"),
        (
            [[1, 2], [1, 2, 3]],
            {"length": 2},
            "^signal 1 has 3 frames, and length is 2.\n  .* at least 3",
        ),
        ([np.ones((2, 3, 4))], {}, r"^signal 0 is of shape \(2, 3, 4\)"),
        ([["a", "b"]], {}, r"^signal 0 is of shape \(2,\) and type <U1"),
        ([[1.0], [[1, 2], [3]]], {}, "^signal 1 is no array"),
    ],
)
def test_what_cannot_be_padded_is_refused(signals, options, message):
    with pytest.raises(DataError, match=message):
        pad(signals, **options)


# -------------------------------------------------------------------------------------- tables


def words(**changes) -> pd.DataFrame:
    """Five words of two speakers, whose frames are mixed up."""
    rows = pd.DataFrame(
        {
            "word": [3, 3, 1, 3, 2, 1, 4, 5, 5],
            "time": [20, 10, 5, 30, 0, 4, 1, 2, 1],
            "speaker": ["b", "b", "a", "b", "a", "a", "b", "a", "a"],
            "pitch": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5],
            "digit": ["one", "one", "two", "one", "two", "two", "two", "one", "one"],
            "loud": [10, 11, 12, 13, 14, 15, 16, 17, 18],
        }
    )
    return rows.assign(**changes)


def as_given(rows: pd.DataFrame, kind: str, folder):
    if kind == "frame":
        return rows.set_axis(range(10, 10 + len(rows)), axis=0)
    path = folder / f"rows.{kind}"
    if kind == "csv":
        rows.to_csv(path, index=False)
    else:
        rows.to_parquet(path)
    return path


SHARES = {"a": {"one": 1 / 3, "two": 2 / 3}, "b": {"one": 0.5, "two": 0.5}}
NAMES: Any = {"signal": "word", "bag": "speaker", "label": "digit"}


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_rows_become_signals(kind, tmp_path):
    rows = as_given(words().drop(columns="time"), kind, tmp_path)
    bags = read_signals(rows, proportions=SHARES, **NAMES)
    frames, lengths = bags.x
    assert lengths.tolist() == [3, 2, 1, 1, 2]  # words 3, 1, 2, 4 and 5: as they begin
    assert lengths.dtype == np.int64
    assert frames.dtype == np.float32
    assert frames.tolist() == [
        [[0.5, 1.5, 3.5], [10, 11, 13]],
        [[2.5, 5.5, 0], [12, 15, 0]],
        [[4.5, 0, 0], [14, 0, 0]],
        [[6.5, 0, 0], [16, 0, 0]],
        [[7.5, 8.5, 0], [17, 18, 0]],
    ]
    assert bags.ids == ("a", "b")
    assert bags.classes == ("one", "two")
    assert [bags.rows(i).tolist() for i in range(2)] == [[1, 2, 4], [0, 3]]
    assert bags.counts.tolist() == [[1, 2], [1, 1]]
    assert bags.truth is not None
    assert bags.truth.tolist() == [1, 1, 0, 0, 1]


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_frames_are_sorted_as_numbers(kind, tmp_path):
    rows = as_given(words(time=[20, 9, 5, 100, 0, 5, 1, 2, -1]), kind, tmp_path)
    frames, lengths = read_signals(rows, order="time", **NAMES).x
    assert lengths.tolist() == [3, 2, 1, 1, 2]
    assert frames[0].tolist() == [[1.5, 0.5, 3.5], [11, 10, 13]]  # 9, 20, 100
    assert frames[1, 0].tolist() == [2.5, 5.5, 0]  # a tie: as in the rows
    assert frames[4, 0].tolist() == [8.5, 7.5, 0]


def test_bags_and_classes_that_are_numbers_match_in_files(tmp_path):
    numbers = words(speaker=[2, 2, 10, 2, 10, 10, 2, 10, 10], digit=[1, 1, 0, 1, 0, 0, 0, 1, 1])
    path, shares = as_given(numbers.drop(columns="time"), "csv", tmp_path), tmp_path / "shares.csv"
    shares.write_text("speaker,0,1\n10,0.67,0.33\n2,0.5,0.5\n")
    for rows in (path, numbers):
        bags = read_signals(rows, proportions=shares, **NAMES)
        assert bags.ids == (10, 2)
        assert bags.counts.tolist() == [[2, 1], [1, 1]]
        assert bags.truth is not None
        assert bags.truth.tolist() == [0, 0, 1, 1, 0]
        counted = read_signals(rows, **NAMES)
        assert (counted.ids, counted.classes) == ((2, 10), (0, 1))
        by_dict = read_signals(rows, proportions={2: [1, 1], 10: [2, 1]}, counts=True, **NAMES)
        assert by_dict.truth is not None
        assert by_dict.truth.tolist() == [1, 0, 0, 0, 1]


def test_names_of_other_kinds_stay_text(tmp_path):
    rows = words(word=["03", "03", "3", "03", "1", "3", "4", "5", "5"])
    rows["speaker"] = ["07", "07", "7", "07", "7", "7", "07", "7", "7"]
    bags = read_signals(as_given(rows, "csv", tmp_path), **NAMES)
    assert bags.x[1].tolist() == [3, 2, 1, 1, 2]  # "03" and "3" are two signals
    assert bags.ids == ("07", "7")


def test_the_index_of_a_saved_frame_is_no_channel(tmp_path):
    words().to_csv(tmp_path / "rows.csv")
    frames, _ = read_signals(tmp_path / "rows.csv", order="time", **NAMES).x
    assert frames.shape == (5, 2, 3)


@pytest.mark.parametrize("named", [True, False], ids=["a column split", "a share"])
def test_a_longer_signal_that_is_held_out_changes_nothing_for_the_others(named):
    rows = pd.DataFrame({"word": np.repeat(range(8), 3), "bag": np.repeat(list("abcd"), 6)})
    rows["pitch"] = np.arange(24.0)
    rows = rows.drop(index=[4, 5, 8, 23])  # words 1, 2 and 7 are shorter
    table = pd.DataFrame({"bag": list("abcd"), "split": ["train", "train", "valid", "test"]})
    table = table.assign(yes=0.5, no=0.5) if named else table.drop(columns="split").assign(yes=1.0)
    options: Any = {"signal": "word", "bag": "bag", "proportions": table}
    held_out = (None if named else 0.25), 1
    before = read_signal_sets(rows, *held_out, **options)
    *others, last = before
    (out, *_) = before[last].ids
    word = rows.loc[rows["bag"] == out, "word"].iloc[0]
    longer = pd.DataFrame({"word": word, "bag": out, "pitch": np.arange(50.0)})
    after = read_signal_sets(pd.concat([rows, longer]), *held_out, **options)
    assert list(after) == list(before)
    for name in others:
        for part, same in zip(after[name].parts, before[name].parts, strict=True):
            assert part.shape == same.shape
            np.testing.assert_array_equal(part[after[name].index], same[before[name].index])
        np.testing.assert_array_equal(after[name].index, before[name].index)
    frames, lengths = after[last].parts
    at = after[last].index[0]
    assert (frames.shape[2], lengths[at]) == (53, 53)
    np.testing.assert_array_equal(frames[at, 0, 3:], np.arange(50.0))


def test_a_bag_that_is_not_in_the_proportions_is_named_with_both_tables(tmp_path):
    path = as_given(words(), "csv", tmp_path)
    (tmp_path / "shares.csv").write_text("speaker,one,two\na,0.5,0.5\n")
    said = r"rows\.csv and .*shares\.csv: bag 'b' \(2 rows\) is unknown"
    with pytest.raises(BagError, match=said):
        read_signals(path, proportions=tmp_path / "shares.csv", order="time", **NAMES)


def test_a_net_takes_what_is_read():
    bags = read_signals(words(), order="time", **NAMES)
    model = build_net("conv1d", bags).eval()
    np.testing.assert_allclose(model.mean[:, 0], [4.5, 14])  # of all nine frames, and no padding
    assert model(*map(torch.from_numpy, bags.x)).shape == (5, 2)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (
            words(speaker=["b", "b", "a", "a", "a", "a", "b", "a", "a"]),
            {},
            r"^rows: signal 3 has the bag 'b', but in row 3 \(counted from 0\) 'a'",
        ),
        (
            words(digit=["one"] * 7 + ["one", "two"]),
            {},
            "^rows: signal 5 has the label 'one', but in row 8 .* 'two'",
        ),
        (words(), {"signal": "wrd"}, "^rows has no column 'wrd'.\n  Did you mean 'word'"),
        (words(), {"order": "tme"}, "^rows has no column 'tme'.\n  Did you mean 'time'"),
        (words().iloc[:0], {}, "^rows has 0 rows"),
        (
            words()[["word", "speaker", "digit"]],
            {},
            "^rows has 0 columns beside 'word', 'speaker', 'digit'",
        ),
        (
            words(pitch=[1, 2, np.nan, 4, 5, 6, 7, 8, np.inf]),
            {},
            "^rows: signal 1 has nan in row 2 .* column 'pitch', where 2 of 9",
        ),
        (words(pitch=list("123456x89")), {}, "^rows: signal 4 has 'x' in row 6"),
        (words(pitch=[1e39] * 9), {}, r"^rows: signal 3 has 1e\+39 in row 0 .* 9 of 9"),
        (words(pitch=pd.Timestamp("2026-01-01")), {}, "^rows: signal 3 has Timestamp"),
        (words(speaker=["b", None, *"abaabaa"]), {}, "^rows: row 1 .* has no 'speaker'; 1 of 9"),
        (
            words(time=[1, 2, 3, 4, np.nan, 6, 7, 8, 9]),
            {"order": "time"},
            "^rows: row 4 .* no 'time'",
        ),
        (
            words(time=[1, 2, 3, "x", 5, 6, 7, 8, 9]),
            {"order": "time"},
            "^rows: column 'time' cannot be sorted",
        ),
    ],
)
def test_what_is_wrong_with_rows_is_named(rows, options, message):
    with pytest.raises(DataError, match=message):
        read_signals(rows, **{**NAMES, **options})


def test_the_table_of_proportions_has_a_format_of_its_own(tmp_path):
    rows = "word;speaker;pitch\n" + "".join(f"{i};{'ab'[i % 2]};1.{i}00\n" for i in range(4))
    (tmp_path / "rows.csv").write_text(rows)
    (tmp_path / "shares.csv").write_text("speaker,no,yes\na,0.5,0.5\nb,0.5,0.5\n")
    files: dict[str, Any] = {"rows": tmp_path / "rows.csv", "proportions": tmp_path / "shares.csv"}
    named: dict[str, Any] = {"signal": "word", "bag": "speaker"}
    bags: Any = read_signals(**files, **named, decimal=".")
    assert bags.proportions.tolist() == [[0.5, 0.5]] * 2
    assert bags.x[0].ravel().tolist() == pytest.approx([1.0, 1.1, 1.2, 1.3])
    with pytest.raises(DataError, match=r"Pass proportions_decimal='\.'"):
        read_signals(**files, **named, decimal=".", proportions_decimal=",")
    held_out: Any = {"validation": 0.5, "seed": 0}
    sets: Any = read_signal_sets(**files, **named, **held_out, decimal=".")
    assert [*sets] == ["train", "valid"]
    with pytest.raises(DataError, match=r"Pass proportions_decimal='\.'"):
        read_signal_sets(**files, **named, **held_out, proportions_decimal=",")


def test_channels_with_percent_signs_are_refused(tmp_path):
    """Nothing keeps that a channel has them, so that 45 could be predicted as 45 %."""
    path = tmp_path / "frames.csv"
    path.write_text("word;who;x\n1;a;1.234,5\n2;a;45 %\n")
    options: dict[str, Any] = {"signal": "word", "bag": "who", "proportions": {"a": [0.5, 0.5]}}
    with pytest.raises(DataError, match=r"signal '2' has '45 %' in row 1"):
        read_signals(path, **options)
    path.write_text("word;who;x\n1;a;1.234,5\n2;a;45\n")
    bags: Any = read_signals(path, **options)
    assert bags.x[0][:, 0, 0].tolist() == [1234.5, 45]
