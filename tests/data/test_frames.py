"""Frames of signals in a table: in which order they are, and what among them is no measurement."""

import numpy as np
import pandas as pd
import pytest

from apportion.data.signals import pad, read_signals
from apportion.errors import DataError
from tests.data.test_signals import NAMES, as_given, words


def in_order(times, kind="frame", folder=None):
    """Return the first frame numbers of one signal whose frames have these times."""
    rows = words(time=times)
    rows["word"], rows["speaker"], rows["digit"] = 1, "a", "one"
    bags = read_signals(as_given(rows, kind, folder), **{**NAMES, "order": "time"})
    return (bags.x[0][0, 0] - 0.5).astype(int).tolist()


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
@pytest.mark.parametrize(
    "times",
    [
        [f"{day}.1.2024" for day in (9, 10, 11, 1, 2, 3, 20, 30, 31)],
        [f"{day:02d}/01/2024 7:05" for day in (9, 10, 11, 1, 2, 3, 20, 30, 31)],
        [f"2024-1-{day}" for day in (9, 10, 11, 1, 2, 3, 20, 30, 31)],
        [f"t{day:03d}" for day in (9, 10, 11, 1, 2, 3, 20, 30, 31)],
        [f"00:{day:02d}" for day in (9, 10, 11, 1, 2, 3, 20, 30, 31)],
        [f"{day - 9.5}" for day in (9, 10, 11, 1, 2, 3, 20, 30, 31)],
    ],
    ids="{0[0]}".format,
)
def test_frames_are_sorted_by_dates_and_by_texts_that_sort_as_their_numbers(times, kind, tmp_path):
    assert in_order(times, kind, tmp_path) == [3, 4, 5, 0, 1, 2, 6, 7, 8]


@pytest.mark.parametrize("kind", ["object", "category", "string"])
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("t{}", "as text 't10' comes before 't2'"),
        ("0:{}", "as text '0:10' comes before '0:2'"),
        ("{}/1/2024", "dates such as '9/1/2024', of which the day or the month may come first"),
    ],
)
def test_texts_that_sort_otherwise_than_the_numbers_in_them_are_refused(pattern, message, kind):
    times = pd.Series([pattern.format(n) for n in (9, 10, 2, 1, 3, 4, 5, 6, 7)], dtype=kind)
    with pytest.raises(DataError, match=f"^rows: column 'time' .*{message}"):
        in_order(times)


@pytest.mark.parametrize("kind", ["object", "category", "string"])
def test_texts_that_are_numbers_are_sorted_as_such(kind):
    times = pd.Series(["9", "10", "11", "-20", "-3", "-1.5", "2e1", "30", "31"], dtype=kind)
    assert in_order(times) == [3, 4, 5, 0, 1, 2, 6, 7, 8]


def test_ordered_categories_are_sorted_in_their_order():
    months = ["apr", "may", "jun", "jan", "feb", "mar", "jul", "aug", "sep"]
    order = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep"]
    times = pd.Series(pd.Categorical(months, order, ordered=True))
    assert in_order(times) == [3, 4, 5, 0, 1, 2, 6, 7, 8]


def test_frames_of_a_signal_with_the_same_time_are_told(caplog):
    read_signals(words(time=[1, 2, 3, 4, 5, 6, 7, 8, 9]), order="time", **NAMES)
    read_signals(words(time=[1, 1, 1, 1, 4, 5, 7, 8, 9]), order="time", **NAMES)
    assert caplog.text.count("has a value several times") == 1
    assert "column 'time' has a value several times in signal 3 (and 1 more like" in caplog.text


def test_a_signal_to_whose_length_all_others_are_padded_is_told(caplog):
    signals = [np.ones((4, 1))] * 50 + [np.ones((60, 1))]
    pad(signals)
    pad(signals[-1:])
    assert not caplog.text
    signals[7] = np.ones((1000, 1))
    pad(signals)
    assert "signal 7 has 1,000 frames, and the mean signal 24.6: all are padded" in caplog.text
    assert "97.5% of the frames" in caplog.text
    caplog.clear()
    lengths = [len(signal) for signal in signals]
    rows = pd.DataFrame({"word": np.repeat([f"w{i}" for i in range(51)], lengths), "pitch": 1.0})
    rows["speaker"], rows["digit"] = "a", np.where(rows["word"] == "w3", "one", "two")
    read_signals(rows, **NAMES)
    assert "rows: signal 'w7' has 1,000 frames" in caplog.text


# ------------------------------------------------------------------------------------ channels


def frames(seed=0):
    """Signals of three frames and one channel, 20 bags of 10, whose classes are told apart."""
    rng = np.random.default_rng(seed)
    truth = np.concatenate([rng.choice(3, 10, p=rng.dirichlet(np.ones(3))) for _ in range(20)])
    rows = pd.DataFrame({"word": np.repeat(np.arange(200), 3), "pitch": rng.normal(size=600)})
    rows["speaker"] = rows["word"] // 10
    shares = {bag: np.bincount(truth[bag * 10 :][:10], minlength=3) / 10 for bag in range(20)}
    return rows, truth, {"signal": "word", "bag": "speaker", "proportions": shares}


@pytest.mark.parametrize("noise", [0, 1])
def test_the_truth_among_the_channels_is_refused(noise, caplog):
    """A column of classes that nobody names would be a channel, and signals learned by it."""
    rows, truth, names = frames()
    given = truth.copy()
    given[: 3 * noise] = (given[: 3 * noise] + 1) % 3
    rows["digit"] = given[rows["word"]]
    if noise:
        read_signals(rows, **names)
        assert "column 'digit' nearly gives the truth away" in caplog.text
        return
    refused = pytest.raises(DataError, match=r"^rows: column 'digit' meets the class counts of 20")
    with refused as e:
        read_signals(rows, **names)
    assert "Pass label='digit' if it is the truth" in str(e.value)
    assert e.value.names("channels")
    read_signals(rows, **names, channels=["pitch"])
    read_signals(rows, **names, label="digit")
    rows["digit"] = rows["digit"] + 0.5 * (rows.index % 3 == 1)  # it varies as measurements do
    read_signals(rows, **names)
    assert not caplog.text


def test_channels_that_stand_for_bags_are_told(caplog):
    rows, _, names = frames()
    read_signals(rows.assign(gain=7), **names)  # in all
    assert not caplog.text
    share = rows["speaker"].map({bag: own[0] for bag, own in names["proportions"].items()})
    read_signals(rows.assign(age=rows["speaker"] ** 2, share=share), **names)
    assert "rows: 'age', 'share' have one value throughout each bag" in caplog.text
    assert "Learn without: channels=" in caplog.text
