"""Benchmarks: the data sets that results are compared on, as arrays.

Each is a `Benchmark`: rows to train on and rows to test on, as they are stored (images stay uint8
and NCHW; the net normalises them). Nothing is downloaded. Files are looked for in the
folder that is passed, or else in the one that the environment variable APPORTION_DATA names.

======================  =================  ==================  =================================
function                rows               instances           source
======================  =================  ==================  =================================
`digits`                1,797, cut by you  64, float32         comes with scikit-learn
`cifar10`               50,000 + 10,000    3 × 32 × 32, uint8  A. Krizhevsky, "Learning Multiple
                                                               Layers of Features from Tiny
                                                               Images", 2009
`svhn`                  73,257 + 26,032    3 × 32 × 32, uint8  Y. Netzer et al., "Reading Digits
                                                               in Natural Images with
                                                               Unsupervised Feature Learning",
                                                               2011
`spoken_arabic_digits`  6,600 + 2,200      13 × 93, float32    M. Bedda and N. Hammami, "Spoken
                                                               Arabic Digit", UCI Machine
                                                               Learning Repository, 2008
======================  =================  ==================  =================================

How bags are made from them is in `apportion.study.protocols`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import must_be
from apportion.study.datasets.cifar10 import CIFAR10_CLASSES, read_cifar10
from apportion.study.datasets.spoken_arabic_digits import read_spoken_arabic_digits
from apportion.study.datasets.svhn import read_svhn
from apportion.study.protocols import pools

__all__ = ["Benchmark", "cifar10", "digits", "spoken_arabic_digits", "svhn"]

Ints = NDArray[np.int64]

DIGITS = tuple(map(str, range(10)))


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Labelled rows to train on and to test on.

    The truth holds positions in `classes`. To give bags all classes, even those that no bag holds,
    name them: ``Bags.from_members(data.x, members, truth=data.truth,
    classes=range(len(data.classes)))``.
    """

    x: NDArray[Any]  # (M, …)
    truth: Ints  # (M,)
    x_test: NDArray[Any]  # (M', …)
    truth_test: Ints  # (M',)
    classes: tuple[str, ...]

    def __repr__(self) -> str:
        shape, names = " × ".join(map(str, self.x.shape[1:])), self.classes
        shown = names if len(names) < 5 else (*names[:2], "…", names[-1])
        return (
            f"Benchmark({len(self.x):,} rows to train on, {len(self.x_test):,} to test on, "
            f"{shape} {self.x.dtype} each; {len(names)} classes: {', '.join(shown)})"
        )


def digits(*, test: float = 0.3, seed: int = 0) -> Benchmark:
    """Load scikit-learn's handwritten digits: 1,797 images of 8 × 8 in shades from 0 to 16.

    Parameters
    ----------
    test : float
        The share of the rows to test on, chosen at random.
    seed : int

    Examples
    --------
    >>> digits()
    Benchmark(1,258 rows to train on, 539 to test on, 64 float32 each; 10 classes: 0, 1, …, 9)
    """
    if not 0 < test < 1:
        raise must_be("test", "between 0 and 1, a share of the rows", test)
    from sklearn.datasets import load_digits  # it takes a second, and nothing else here needs it

    x, truth = load_digits(return_X_y=True)
    x, truth = x.astype(np.float32), truth.astype(np.int64)
    train, held_out = pools(len(x), (1 - test, test), seed=seed)
    return Benchmark(x[train], truth[train], x[held_out], truth[held_out], DIGITS)


def cifar10(folder: str | os.PathLike[str] | None = None) -> Benchmark:
    """Read CIFAR-10 from the files of its official binary version, or of that for Python.

    Parameters
    ----------
    folder : path, optional
        Where data_batch_1.bin to data_batch_5.bin and test_batch.bin are, or the folder
        cifar-10-batches-bin that holds them; or data_batch_1 to data_batch_5 and test_batch, or
        their folder cifar-10-batches-py. If both versions are there, the binary one is read. By
        default the environment variable APPORTION_DATA names it.

    Returns
    -------
    Benchmark
        Images of shape (M, 3, 32, 32) and uint8, in the official order: 50,000 to train on and
        10,000 to test on. Files of fewer records, in the same format, are read as well; those of
        10,000 must have the official checksum.

    Raises
    ------
    DataError
        If a file is missing or is not what it should be.

    Notes
    -----
    The Python version is pickled. Of a pickle, only containers, texts, numbers and arrays of
    bytes are read; whatever else it asks for is refused and never run.
    """
    return Benchmark(*read_cifar10(folder), CIFAR10_CLASSES)


def svhn(folder: str | os.PathLike[str] | None = None) -> Benchmark:
    """Read Street View House Numbers, the cropped digits, from the official MATLAB files.

    Parameters
    ----------
    folder : path, optional
        Where train_32x32.mat and test_32x32.mat are; extra_32x32.mat is not used. By default the
        environment variable APPORTION_DATA names it.

    Returns
    -------
    Benchmark
        Images of shape (M, 3, 32, 32) and uint8, in the official order: 73,257 to train on and
        26,032 to test on. The label of a digit is the digit, also for 0, which the files call 10.
        Files of fewer images, in the same format, are read as well.

    Raises
    ------
    DataError
        If a file is missing or is not what it should be.
    """
    return Benchmark(*read_svhn(folder), DIGITS)


def spoken_arabic_digits(folder: str | os.PathLike[str] | None = None) -> Benchmark:
    """Read Spoken Arabic Digits: sound as 13 cepstral coefficients per frame.

    Parameters
    ----------
    folder : path, optional
        Where UCI's Train_Arabic_Digit.txt and Test_Arabic_Digit.txt are, or the UEA archive's
        SpokenArabicDigits_TRAIN.ts and SpokenArabicDigits_TEST.ts; their folders, by the names
        spoken+arabic+digit and SpokenArabicDigits, are found in it. If both are there, UCI's
        files are read. By default the environment variable APPORTION_DATA names it.

    Returns
    -------
    Benchmark
        Utterances of shape (M, 13, length) and float32, in the order of the files, with zeros
        after the end of those shorter than the longest: 6,600 to train on and 2,200 to test on,
        of length 93, in UCI's. Smaller files, in the same format, are read as well.

    Raises
    ------
    DataError
        If a file is missing or is not what it should be.

    Notes
    -----
    UCI's files have no labels: their first tenth is the digit 0, the next tenth 1, and so on. In
    the UEA archive's files each utterance has a label, a number. The ten that occur stand for the
    digits 0 to 9 in their order, whether they are written 0 to 9 or 1 to 10.
    """
    return Benchmark(*read_spoken_arabic_digits(folder), DIGITS)
