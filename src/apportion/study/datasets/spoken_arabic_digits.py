"""Spoken Arabic Digits, from the text files of UCI or from those of the UEA archive."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apportion.errors import DataError
from apportion.study.datasets._versions import Version, find_version

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

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
    train, truth, test, truth_test = read([place / name for name in version.names])
    length = max(len(frames) for frames in (*train, *test))
    return _pad(train, length), truth, _pad(test, length), truth_test


def _pad(utterances: Sequence[Floats], length: int) -> Floats:
    """Return utterances (frames, 13) as one array (M, 13, length), with zeros after their ends."""
    x = np.zeros((len(utterances), N_COEFFICIENTS, length), np.float32)
    for row, frames in zip(x, utterances, strict=True):
        row[:, : len(frames)] = frames.T
    return x


def _numbers(tokens: Sequence[str], where: str, remedy: str) -> list[float]:
    """Read numbers that float32 can hold."""
    try:
        numbers = [float(token) for token in tokens]
        if all(-LARGEST <= number <= LARGEST for number in numbers):  # false for NaN as well
            return numbers
    except ValueError:
        pass
    wrong = next(token for token in tokens if not _is_number(token))
    shown = wrong if len(wrong) <= 20 else wrong[:19] + "…"
    raise DataError(f"{where} has {shown!r} where a number should be.", remedy)


def _is_number(token: str) -> bool:
    try:
        return -LARGEST <= float(token) <= LARGEST
    except ValueError:
        return False


# --------------------------------------------------------------------------------------------- UCI


def _read_uci(files: Sequence[Path]) -> tuple[list[Floats], Ints, list[Floats], Ints]:
    """Read both text files, in which the place of an utterance tells its digit."""
    remedy = f"Download it again: {UCI_ADDRESS}"
    parts = [list(_uci_utterances(file, remedy)) for file in files]
    counts = [len(part) for part in parts]
    # Beside an official file, the other one is official too or was cut off. Of the latter, what is
    # left would get wrong digits.
    some_official = any(n == m for n, m in zip(counts, UCI_UTTERANCES, strict=True))
    for file, n, official in zip(files, counts, UCI_UTTERANCES, strict=True):
        if not n or n % N_DIGITS or (n != official and some_official):
            raise DataError(
                f"{file} has {n:,} utterances (an official file has {official:,}: first those of "
                "the digit 0, and as many of each other digit).",
                remedy,
            )
    truth, truth_test = (np.repeat(np.arange(N_DIGITS), n // N_DIGITS) for n in counts)
    return parts[0], truth, parts[1], truth_test


def _uci_utterances(file: Path, remedy: str) -> Iterator[Floats]:
    """Yield the frames of each utterance: one per line, after a blank line."""
    frames: list[list[float]] = []
    # Whatever is no text becomes a sign that is no number, and is refused with its line.
    with file.open(encoding="utf-8", errors="replace") as lines:
        for n, line in enumerate(lines, 1):
            tokens = line.split()
            if tokens and len(tokens) != N_COEFFICIENTS:
                raise DataError(
                    f"line {n:,} of {file} has {len(tokens)} numbers; a frame has "
                    f"{N_COEFFICIENTS}.",
                    remedy,
                )
            if tokens:
                frames.append(_numbers(tokens, f"line {n:,} of {file}", remedy))
            elif frames:
                yield np.array(frames, np.float32)
                frames = []
    if frames:
        yield np.array(frames, np.float32)


# --------------------------------------------------------------------------------------------- UEA


def _read_uea(files: Sequence[Path]) -> tuple[list[Floats], Ints, list[Floats], Ints]:
    """Read both .ts files, in which every utterance has its label."""
    remedy = f"Download it again: {UEA_ADDRESS}"
    parts = [list(_uea_utterances(file, remedy)) for file in files]
    for file, part in zip(files, parts, strict=True):
        if not part:
            raise DataError(f"{file} has no utterances after a line @data.", remedy)
    # Digits may be written 0 to 9 or 1 to 10: either way their order is that of the numbers.
    written = sorted({label for part in parts for _, label in part})
    if len(written) != N_DIGITS:
        raise DataError(
            f"{' and '.join(map(str, files))} have {len(written)} labels "
            f"({', '.join(f'{label:g}' for label in written)}); there are {N_DIGITS} digits.",
            remedy,
        )
    truth, truth_test = (
        np.searchsorted(written, [label for _, label in part]).astype(np.int64) for part in parts
    )
    return [x for x, _ in parts[0]], truth, [x for x, _ in parts[1]], truth_test


def _uea_utterances(file: Path, remedy: str) -> Iterator[tuple[Floats, float]]:
    """Yield the frames and the label of each utterance: one per line, after the line @data."""
    in_data = False
    with file.open(encoding="utf-8", errors="replace") as lines:
        for n, line in enumerate(lines, 1):
            if in_data and line.strip():
                yield _uea_utterance(line, f"line {n:,} of {file}", remedy)
            in_data = in_data or line.strip().lower() == "@data"


def _uea_utterance(line: str, where: str, remedy: str) -> tuple[Floats, float]:
    """Read coefficients, each over all frames, and the label behind the last of them."""
    *series, label = line.split(":")
    if len(series) != N_COEFFICIENTS:
        raise DataError(
            f"{where} has {len(series)} series and a label; an utterance has {N_COEFFICIENTS}.",
            remedy,
        )
    coefficients = [_numbers(one.split(","), where, remedy) for one in series]
    lengths = [len(one) for one in coefficients]
    if len(set(lengths)) > 1:
        raise DataError(
            f"{where} has series of {min(lengths)} to {max(lengths)} frames; those of an utterance "
            "have one length.",
            remedy,
        )
    (digit,) = _numbers([label.strip()], f"the label of {where}", remedy)
    return np.array(coefficients, np.float32).T, digit
