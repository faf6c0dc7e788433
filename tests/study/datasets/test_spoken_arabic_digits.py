"""Spoken Arabic Digits: utterances as the files of either source have them, and what is refused."""

import numpy as np
import pytest

from apportion.errors import DataError
from apportion.study.datasets import spoken_arabic_digits as reader
from apportion.study.datasets.benchmarks import spoken_arabic_digits

UCI_ADDRESS = "https://archive.ics.uci.edu/dataset/195/spoken+arabic+digit"
UEA_ADDRESS = "https://timeseriesclassification.com"
UCI_TRAIN, UCI_TEST = "Train_Arabic_Digit.txt", "Test_Arabic_Digit.txt"
UEA_TRAIN, UEA_TEST = "SpokenArabicDigits_TRAIN.ts", "SpokenArabicDigits_TEST.ts"
HEAD = """#The data are from somewhere: 1,2,3:4
@problemName SpokenArabicDigits
@timeStamps false
@univariate false
@dimensions 13
@classLabel true {}
@data
"""


def utterances(n, longest, seed):
    """Utterances of 13 numbers per frame, one of them of the longest length."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest, n)
    lengths[n // 2] = longest
    return [rng.normal(size=(length, 13)).astype(np.float32) for length in lengths]


def uci_text(parts, separator="\n"):
    """Text as UCI has it: one frame per line, and a blank line before each utterance."""
    text = ""
    for frames in parts:
        text += separator
        for frame in frames:
            text += " ".join(f"{value:.9g}" for value in frame) + "\n"
    return text


def uea_text(parts, labels, head=None):
    """Text as the UEA archive has it: one utterance per line, coefficient by coefficient."""
    text = HEAD.format(" ".join(dict.fromkeys(labels))) if head is None else head
    for frames, label in zip(parts, labels, strict=True):
        for coefficient in range(13):
            text += ",".join(f"{value:.9g}" for value in frames[:, coefficient]) + ":"
        text += f"{label}\n"
    return text


def refused(folder=None):
    with pytest.raises(DataError) as caught:
        spoken_arabic_digits(folder)
    return str(caught.value)


def check(data, parts, length):
    for x, labels, own in (
        (data.x, data.truth, parts[0]),
        (data.x_test, data.truth_test, parts[1]),
    ):
        assert x.dtype == np.float32
        assert labels.dtype == np.int64
        assert x.shape == (len(own), 13, length)
        assert x.flags.c_contiguous
        for row, frames in zip(x, own, strict=True):
            assert np.array_equal(row[:, : len(frames)], frames.T)
            assert not row[:, len(frames) :].any()
    assert data.classes == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")


PARTS = utterances(30, 7, 0), utterances(10, 5, 1)


@pytest.fixture
def uci(tmp_path):
    for name, part in zip((UCI_TRAIN, UCI_TEST), PARTS, strict=True):
        (tmp_path / name).write_text(uci_text(part))
    return tmp_path


@pytest.fixture
def uea(tmp_path):
    for name, part in zip((UEA_TRAIN, UEA_TEST), PARTS, strict=True):
        (tmp_path / name).write_text(uea_text(part, [str(i % 10) for i in range(len(part))]))
    return tmp_path


# --------------------------------------------------------------------------------------------- UCI


@pytest.mark.parametrize("longest", [(7, 5), (4, 9)])
@pytest.mark.parametrize("separator", ["\n", "            \n", "\r\n", "\n\n"])
@pytest.mark.parametrize("unpacked", [False, True])
def test_the_text_of_uci_is_read_number_by_number(tmp_path, longest, separator, unpacked):
    parts = utterances(30, longest[0], 0), utterances(10, longest[1], 1)
    place = tmp_path / "spoken+arabic+digit" if unpacked else tmp_path
    place.mkdir(exist_ok=True)
    for name, part in zip((UCI_TRAIN, UCI_TEST), parts, strict=True):
        (place / name).write_bytes(uci_text(part, separator).encode())
    data = spoken_arabic_digits(tmp_path)
    check(data, parts, max(longest))
    assert data.truth.tolist() == [digit for digit in range(10) for _ in range(3)]
    assert data.truth_test.tolist() == list(range(10))


def test_blank_lines_at_the_ends_are_of_no_account(uci):
    text = (uci / UCI_TRAIN).read_text()
    (uci / UCI_TRAIN).write_text(text.strip())
    check(spoken_arabic_digits(uci), PARTS, 7)
    (uci / UCI_TRAIN).write_text(text + "\n \n")
    check(spoken_arabic_digits(uci), PARTS, 7)


def test_the_variable_names_the_folder(uci, monkeypatch):
    monkeypatch.setenv("APPORTION_DATA", str(uci))
    check(spoken_arabic_digits(), PARTS, 7)


@pytest.mark.parametrize("n_numbers", [1, 12, 14])
def test_a_line_of_another_number_of_numbers_is_refused(uci, n_numbers):
    lines = (uci / UCI_TEST).read_text().split("\n")
    at = max(i for i, line in enumerate(lines) if line)
    lines[at] = " ".join(["0.5"] * n_numbers)
    (uci / UCI_TEST).write_text("\n".join(lines))
    message = refused(uci)
    expected = f"line {at + 1} of {uci / UCI_TEST} has {n_numbers} numbers; a frame has 13."
    assert message.startswith(expected)
    assert message.endswith(f"Download it again: {UCI_ADDRESS}")


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("x", "'x'"), ("0,5", "'0,5'"), ("nan", "'nan'"), ("-inf", "'-inf'"), ("1e39", "'1e39'"),
        ("?", "'?'"), ("word" * 9, "'wordwordwordwordwor…'"), ("\ufffd", "'\ufffd'"),
    ],
)  # fmt: skip
def test_what_is_no_number_is_refused(uci, token, shown):
    lines = (uci / UCI_TRAIN).read_text().split("\n")
    lines[1] = " ".join(["1e38"] * 12 + [token])
    content = "\n".join(lines).encode()
    (uci / UCI_TRAIN).write_bytes(content.replace("\ufffd".encode(), b"\xff"))
    message = refused(uci)
    assert message.startswith(f"line 2 of {uci / UCI_TRAIN} has {shown} where a number should be.")
    assert message.endswith(f"Download it again: {UCI_ADDRESS}")


@pytest.mark.parametrize("n", [0, 1, 9, 11, 29])
def test_utterances_that_are_no_ten_equal_parts_are_refused(uci, n):
    (uci / UCI_TRAIN).write_text(uci_text(PARTS[0][:n]))
    message = refused(uci)
    assert message.startswith(f"{uci / UCI_TRAIN} has {n} utterances (an official file has 6,600:")
    assert message.endswith(f"Download it again: {UCI_ADDRESS}")


@pytest.mark.parametrize(
    ("official", "wrong"),
    [((30, 20), UCI_TEST), ((40, 10), UCI_TRAIN), ((30, 10), ""), ((9, 9), "")],
)
def test_beside_an_official_file_the_other_one_must_be_whole(uci, monkeypatch, official, wrong):
    monkeypatch.setattr(reader, "UCI_UTTERANCES", official)
    if wrong:
        assert refused(uci).startswith(f"{uci / wrong} has {10 if wrong == UCI_TEST else 30} utter")
    else:
        check(spoken_arabic_digits(uci), PARTS, 7)


def test_official_files_have_the_numbers_that_uci_tells():
    assert reader.UCI_UTTERANCES == (6_600, 2_200)


# --------------------------------------------------------------------------------------------- UEA


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("unpacked", [False, True])
def test_the_text_of_uea_is_read_number_by_number(tmp_path, first, unpacked):
    parts = utterances(25, 6, 0), utterances(8, 9, 1)
    place = tmp_path / "SpokenArabicDigits" if unpacked else tmp_path
    place.mkdir(exist_ok=True)
    digits = np.random.default_rng(3).permutation(np.arange(33) % 10).tolist()
    written = [str(digit + first) for digit in digits]
    (place / UEA_TRAIN).write_text(uea_text(parts[0], written[:25]))
    (place / UEA_TEST).write_text(uea_text(parts[1], written[25:]).replace("@data", "@DATA "))
    data = spoken_arabic_digits(tmp_path)
    check(data, parts, 9)
    assert data.truth.tolist() == digits[:25]
    assert data.truth_test.tolist() == digits[25:]


def test_the_files_of_uci_are_preferred(uci, uea):
    (uea / UEA_TRAIN).write_text("something else")
    check(spoken_arabic_digits(uci), PARTS, 7)


def test_labels_that_are_not_ten_are_refused(uea):
    labels = ["1.0", "2", "10"] * 10
    (uea / UEA_TRAIN).write_text(uea_text(PARTS[0], labels))
    (uea / UEA_TEST).write_text(uea_text(PARTS[1], labels[:10]))
    message = refused(uea)
    files = f"{uea / UEA_TRAIN} and {uea / UEA_TEST}"
    assert message.startswith(f"{files} have 3 labels (1, 2, 10); there are 10 digits.")
    assert message.endswith(f"Download it again: {UEA_ADDRESS}")


@pytest.mark.parametrize("text", ["", HEAD, "@data\n\n", "1,2:3\n"])
def test_a_file_without_utterances_is_refused(uea, text):
    (uea / UEA_TEST).write_text(text)
    message = refused(uea)
    assert message.startswith(f"{uea / UEA_TEST} has no utterances after a line @data.")
    assert message.endswith(f"Download it again: {UEA_ADDRESS}")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1:" * 12 + "3", "has 12 series and a label; an utterance has 13."),
        ("1:" * 14 + "3", "has 14 series and a label; an utterance has 13."),
        ("cut off", "has 0 series and a label; an utterance has 13."),
        (
            "1,2:" * 12 + "1:3",
            "has series of 1 to 2 frames; those of an utterance have one length.",
        ),
        ("1,2:" * 12 + "1,?:3", "has '?' where a number should be."),
        ("1,2:" * 12 + "1,NaN:3", "has 'NaN' where a number should be."),
        ("1,2:" * 12 + ":3", "has '' where a number should be."),
    ],
)
def test_a_damaged_utterance_is_refused(uea, line, problem):
    (uea / UEA_TRAIN).write_text("@data\n" + "1:" * 13 + f"3\n{line}\n")
    message = refused(uea)
    assert message.startswith(f"line 3 of {uea / UEA_TRAIN} {problem}")
    assert message.endswith(f"Download it again: {UEA_ADDRESS}")


@pytest.mark.parametrize("label", ["", "zero", "nan"])
def test_a_label_that_is_no_number_is_refused(uea, label):
    (uea / UEA_TRAIN).write_text("@data\n" + "1:" * 13 + f"{label}\n")
    expected = f"the label of line 2 of {uea / UEA_TRAIN} has {label!r} where a number should be."
    assert refused(uea).startswith(expected)


def test_a_file_that_was_cut_off_within_an_utterance_is_refused(uea):
    text = (uea / UEA_TRAIN).read_text().rstrip("\n")
    last = text.rindex("\n") + 1
    for end in range(last + 1, len(text)):
        (uea / UEA_TRAIN).write_text(text[:end])
        assert refused(uea).startswith((f"line 37 of {uea / UEA_TRAIN}", "the label of line 37"))


# ------------------------------------------------------------------------------- what is missing


@pytest.mark.parametrize("name", [UCI_TRAIN, UCI_TEST])
def test_the_file_that_is_missing_is_named(uci, name):
    (uci / name).unlink()
    message = refused(uci)
    assert message.startswith(f"{name} is missing (1 of 2 files are).")
    for part in (
        f"{UCI_TRAIN} and {UCI_TEST} from {UCI_ADDRESS}",
        f"{UEA_TRAIN} and {UEA_TEST} from {UEA_ADDRESS}",
        "pass the folder or set the environment variable APPORTION_DATA to it.",
        str(uci / "SpokenArabicDigits"),
    ):
        assert part in message


def test_without_a_folder_the_message_says_how_to_name_one(monkeypatch):
    monkeypatch.delenv("APPORTION_DATA", raising=False)
    assert refused().startswith(f"{UCI_TRAIN} is missing: no folder is given")
