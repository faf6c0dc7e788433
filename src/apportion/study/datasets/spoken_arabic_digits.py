"""Spoken Arabic Digits, from the text files of UCI or from those of the UEA archive."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apportion.errors import DataError
from apportion.study.datasets._versions import Version, find_version, with_remedy

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Part = tuple[list[Floats], Ints]  # the utterances of a file, and their digits

UCI_ADDRESS = "https://archive.ics.uci.edu/dataset/195/spoken+arabic+digit"
UEA_ADDRESS = "https://timeseriesclassification.com"
UCI = Version(("Train_Arabic_Digit.txt", "Test_Arabic_Digit.txt"), "spoken+arabic+digit")
UEA = Version(("SpokenArabicDigits_TRAIN.ts", "SpokenArabicDigits_TEST.ts"), "SpokenArabicDigits")
UCI_UTTERANCES = (6_600, 2_200)  # of the official files

N_COEFFICIENTS = 13  # of a frame: mel-frequency cepstral coefficients
N_DIGITS = 10
LARGEST = float(np.finfo(np.float32).max)


def read_spoken_arabic_digits(
    folder: str | os.PathLike[str] | None,
) -> tuple[Floats, Ints, Floats, Ints]:
    """Return utterances and digits to train on and to test on, from the version that is there."""
    download = (
        f"Download {' and '.join(UCI.names)} from {UCI_ADDRESS} or {' and '.join(UEA.names)} from "
        f"{UEA_ADDRESS}, unpack them"
    )
    version, place = find_version(folder, (UCI, UEA), download)
    read = _read_uci if version is UCI else _read_uea
    (train, truth), (test, truth_test) = read([place / name for name in version.names])
    length = max(len(frames) for frames in (*train, *test))
    return _pad(train, length), truth, _pad(test, length), truth_test


def _pad(utterances: Sequence[Floats], length: int) -> Floats:
    """Return utterances (frames, 13) as one array (M, 13, length), with zeros after their ends."""
    x = np.zeros((len(utterances), N_COEFFICIENTS, length), np.float32)
    for row, frames in zip(x, utterances, strict=True):
        row[:, : len(frames)] = frames.T
    return x


def _numbers(tokens: Sequence[str], where: str) -> list[float]:
    """Read numbers that float32 can hold."""
    numbers = []
    for token in tokens:
        try:
            number = float(token)
        except ValueError:
            number = np.nan
        if not -LARGEST <= number <= LARGEST:  # true for NaN as well
            shown = token if len(token) <= 20 else token[:19] + "…"
            raise DataError(f"{where} has {shown!r} where a number should be.")
        numbers.append(number)
    return numbers


# --------------------------------------------------------------------------------------------- UCI


@with_remedy(f"Download it again: {UCI_ADDRESS}")
def _read_uci(files: Sequence[Path]) -> list[Part]:
    """Read both text files, in which the place of an utterance tells its digit."""
    parts = [list(_uci_utterances(file)) for file in files]
    counts = [len(part) for part in parts]
    # Beside an official file, the other one is official too or was cut off. Of the latter, what is
    # left would get wrong digits.
    some_official = any(n == m for n, m in zip(counts, UCI_UTTERANCES, strict=True))
    for file, n, official in zip(files, counts, UCI_UTTERANCES, strict=True):
        if not n or n % N_DIGITS or (n != official and some_official):
            raise DataError(
                f"{file} has {n:,} utterances (an official file has {official:,}: first those of "
                "the digit 0, and as many of each other digit)."
            )
    return [(part, np.repeat(np.arange(N_DIGITS), len(part) // N_DIGITS)) for part in parts]


def _uci_utterances(file: Path) -> Iterator[Floats]:
    """Yield the frames of each utterance: one per line, after a blank line."""
    frames: list[list[float]] = []
    # Whatever is no text becomes a sign that is no number, and is refused with its line.
    with file.open(encoding="utf-8", errors="replace") as lines:
        for n, line in enumerate(chain(lines, [""]), 1):
            tokens, where = line.split(), f"line {n:,} of {file}"
            if tokens and len(tokens) != N_COEFFICIENTS:
                raise DataError(f"{where} has {len(tokens)} numbers; a frame has {N_COEFFICIENTS}.")
            if tokens:
                frames.append(_numbers(tokens, where))
            elif frames:
                yield np.array(frames, np.float32)
                frames = []


# --------------------------------------------------------------------------------------------- UEA


@with_remedy(f"Download it again: {UEA_ADDRESS}")
def _read_uea(files: Sequence[Path]) -> list[Part]:
    """Read both .ts files, in which every utterance has its label."""
    parts = [list(_uea_utterances(file)) for file in files]
    for file, part in zip(files, parts, strict=True):
        if not part:
            raise DataError(f"{file} has no utterances after a line @data.")
    # Digits may be written 0 to 9 or 1 to 10: either way their order is that of the numbers.
    written = sorted({label for part in parts for _, label in part})
    if len(written) != N_DIGITS:
        raise DataError(
            f"{' and '.join(map(str, files))} have {len(written)} labels "
            f"({', '.join(f'{label:g}' for label in written)}); there are {N_DIGITS} digits."
        )
    return [
        ([frames for frames, _ in part], np.array([written.index(label) for _, label in part]))
        for part in parts
    ]


def _uea_utterances(file: Path) -> Iterator[tuple[Floats, float]]:
    """Yield the frames and the label of each utterance: one per line, after the line @data."""
    in_data = False
    with file.open(encoding="utf-8", errors="replace") as lines:
        for n, line in enumerate(lines, 1):
            if in_data and line.strip():
                yield _uea_utterance(line, f"line {n:,} of {file}")
            in_data = in_data or line.strip().lower() == "@data"


def _uea_utterance(line: str, where: str) -> tuple[Floats, float]:
    """Read coefficients, each over all frames, and the label behind the last of them."""
    *series, label = line.split(":")
    if len(series) != N_COEFFICIENTS:
        raise DataError(
            f"{where} has {len(series)} series and a label; an utterance has {N_COEFFICIENTS}."
        )
    coefficients = [_numbers(one.split(","), where) for one in series]
    lengths = [len(one) for one in coefficients]
    if len(set(lengths)) > 1:
        raise DataError(
            f"{where} has series of {min(lengths)} to {max(lengths)} frames; those of an utterance "
            "have one length."
        )
    (digit,) = _numbers([label.strip()], f"the label of {where}")
    return np.array(coefficients, np.float32).T, digit
