"""The data sets that results are compared on, as arrays.

Each comes as a `Benchmark`: rows to train on and rows to test on, as they are stored (images stay
uint8 and NCHW; normalising is for the model). Nothing is downloaded. Files are looked for in the
folder that is passed, or else in the one that the environment variable APPORTION_DATA names.

==========  =================  ==================  ===========================================
function    rows               instances           source
==========  =================  ==================  ===========================================
`digits`    1,797, cut by you  64, float32         comes with scikit-learn
`cifar10`   50,000 + 10,000    3 × 32 × 32, uint8  A. Krizhevsky, "Learning Multiple Layers of
                                                   Features from Tiny Images", 2009
==========  =================  ==================  ===========================================

`paper_bags` reads bags that were published as row numbers; `apportion.data.protocols` makes new
ones.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from apportion.data.protocols import pools
from apportion.errors import ApportionError

__all__ = ["Benchmark", "DataError", "cifar10", "digits", "paper_bags"]

Ints = NDArray[np.int64]

CIFAR10_ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_FOLDER = "cifar-10-batches-bin"
CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
CIFAR10_SHA1 = {
    "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
}
CIFAR10_IMAGE = (3, 32, 32)
CIFAR10_RECORD = 1 + 3 * 32 * 32  # bytes: a label, then red, green and blue, each row by row
CIFAR10_OFFICIAL = 10_000  # records of an official file


class DataError(ApportionError, ValueError):
    """A file that is not what it should be. The message names the file, what, and the remedy."""


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Labelled rows to train on and to test on.

    Labels are positions in `classes`. Bags of them have all classes, even those that no bag
    holds, if they are told so: ``Bags.from_members(data.x, members, labels=data.labels,
    classes=range(len(data.classes)))``.
    """

    x: NDArray[Any]  # (M, …)
    labels: Ints  # (M,)
    classes: tuple[str, ...]
    x_test: NDArray[Any]  # (M', …)
    labels_test: Ints  # (M',)

    def __repr__(self) -> str:
        shape, names = " × ".join(map(str, self.x.shape[1:])), self.classes
        shown = names if len(names) < 5 else (*names[:2], "…", names[-1])
        return (
            f"Benchmark({len(self.x):,} rows to train on, {len(self.x_test):,} to test on, "
            f"{shape} {self.x.dtype} each; {len(names)} classes: {', '.join(shown)})"
        )


def digits(*, test: float = 0.3, seed: int = 0) -> Benchmark:
    """Give scikit-learn's handwritten digits: 1,797 images of 8 × 8 in shades from 0 to 16.

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
        raise DataError(
            f"test is {test!r}.", "Pass the share of the rows to test on: between 0 and 1."
        )
    from sklearn.datasets import load_digits  # it takes a second, and nothing else here needs it

    x, labels = load_digits(return_X_y=True)
    x, labels = x.astype(np.float32), labels.astype(np.int64)
    train, held_out = pools(len(x), (1 - test, test), seed=seed)
    classes = tuple(map(str, range(10)))
    return Benchmark(x[train], labels[train], classes, x[held_out], labels[held_out])


def cifar10(folder: str | os.PathLike[str] | None = None) -> Benchmark:
    """Read CIFAR-10 from the files of its official binary version.

    Parameters
    ----------
    folder : path, optional
        Where data_batch_1.bin to data_batch_5.bin and test_batch.bin are, or the folder
        cifar-10-batches-bin that holds them. By default the environment variable
        APPORTION_DATA names it.

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
    """
    place = _find_cifar10(folder)
    *train, test = (_read_cifar10(place / name) for name in CIFAR10_SHA1)
    return Benchmark(*_split_records(train), CIFAR10_CLASSES, *_split_records([test]))


def paper_bags(file: str | os.PathLike[str], size: int) -> tuple[Ints, Ints]:
    """Read the bags of a paper: which rows each holds, in the official order of a training set.

    Parameters
    ----------
    file : path
        An .npz with arrays train_S and val_S for every size S, each of shape (bags, S).
    size : int
        The number of rows of each bag.

    Returns
    -------
    train, valid : ndarray of int64 of shape (bags, size)
        For `Bags.from_members`, which checks them against the data.

    Raises
    ------
    DataError
        If the file is missing, or has no bags of this size.
    """
    if not Path(file).is_file():
        raise DataError(
            f"{file} is missing.", "Pass the .npz that has the arrays train_S and val_S."
        )
    try:
        # numpy would leave a file that it cannot read open.
        with Path(file).open("rb") as opened:
            pack = np.load(opened, allow_pickle=False)
            if not isinstance(pack, Mapping):
                raise ValueError("it is a single array")
            wanted = (f"train_{size}", f"val_{size}")
            parts = {name: pack[name] for name in wanted if name in pack}
            there = set(pack)
    except (BadZipFile, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{file} cannot be read as an .npz of numbers: {error}.",
            "Pass the .npz that has the arrays train_S and val_S.",
        ) from error
    if len(parts) < 2:
        sizes = sorted(
            int(name[6:])
            for name in there
            if name.startswith("train_") and name[6:].isdecimal() and f"val_{name[6:]}" in there
        )
        raise DataError(
            f"{file} has no bags of size {size}.",
            f"Pass one of its sizes: {', '.join(map(str, sizes)) or 'it has none'}.",
        )
    for name, part in parts.items():
        if part.ndim != 2 or part.shape[1] != size or part.dtype.kind not in "iu":
            raise DataError(
                f"{name} of {file} is of shape {part.shape} and {part.dtype}.",
                f"Let it be whole numbers of shape (bags, {size}).",
            )
    train, valid = (part.astype(np.int64) for part in parts.values())
    return train, valid


def _find_cifar10(folder: str | os.PathLike[str] | None) -> Path:
    """Give the folder that holds all the files."""
    remedy = (
        f"Download the binary version from {CIFAR10_ADDRESS}, unpack it, and pass its folder "
        "or set the environment variable APPORTION_DATA to it."
    )
    root = folder or os.environ.get("APPORTION_DATA")
    if not root:
        raise DataError(
            f"{next(iter(CIFAR10_SHA1))} is missing: no folder is given, and APPORTION_DATA is "
            "not set.",
            remedy,
        )
    top = Path(root).expanduser()
    absent = {
        place: [name for name in CIFAR10_SHA1 if not (place / name).is_file()]
        for place in (top, top / CIFAR10_FOLDER)
    }
    fullest = min(absent, key=lambda place: len(absent[place]))
    if missing := absent[fullest]:
        raise DataError(
            f"{missing[0]} is missing ({len(missing)} of {len(CIFAR10_SHA1)} files are).",
            f"looked in: {', '.join(map(str, absent))}",
            remedy,
        )
    return fullest


def _read_cifar10(file: Path) -> NDArray[np.uint8]:
    """Give the records of a file, checked: one row a record, its label first."""
    remedy = f"Download it again, in its binary version: {CIFAR10_ADDRESS}"
    content = np.fromfile(file, np.uint8)
    n_records, rest = divmod(content.size, CIFAR10_RECORD)
    if rest or not n_records:
        raise DataError(
            f"{file} has {content.size:,} bytes, which is no whole number of records of "
            f"{CIFAR10_RECORD:,} bytes (an official file has {CIFAR10_OFFICIAL:,} records).",
            remedy,
        )
    records = content.reshape(n_records, CIFAR10_RECORD)
    wrong = records[:, 0] >= len(CIFAR10_CLASSES)
    if wrong.any():
        first = int(wrong.argmax())
        raise DataError(
            f"{file} has a label of {records[first, 0]} in record {first:,}; labels are 0 to 9.",
            remedy,
        )
    if n_records == CIFAR10_OFFICIAL:
        digest = hashlib.sha1(content.data, usedforsecurity=False).hexdigest()
        if digest != CIFAR10_SHA1[file.name]:
            raise DataError(
                f"{file} has the SHA-1 {digest}; that of the official file is "
                f"{CIFAR10_SHA1[file.name]}.",
                remedy,
            )
    return records


def _split_records(parts: Sequence[NDArray[np.uint8]]) -> tuple[NDArray[np.uint8], Ints]:
    """Give the images and the labels of some files, one after the other."""
    x = np.concatenate([part[:, 1:] for part in parts]).reshape(-1, *CIFAR10_IMAGE)
    return x, np.concatenate([part[:, 0] for part in parts]).astype(np.int64)
