"""CIFAR-10 from the files of its owners: the binary version, or the one for Python."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import DataError
from apportion.study.datasets._unpickle import PickledArray, unpickle_plain
from apportion.study.datasets._versions import Version, find_version, with_remedy

Ints = NDArray[np.int64]
Images = NDArray[np.uint8]

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
BINARY_ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
PYTHON_ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
BINARY_SHA1 = {
    "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
}
PYTHON_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
BINARY = Version(tuple(BINARY_SHA1), "cifar-10-batches-bin")
PYTHON = Version(tuple(PYTHON_MD5), "cifar-10-batches-py")

IMAGE = (3, 32, 32)
PIXELS = 3 * 32 * 32  # bytes of an image: red, green and blue, each row by row
RECORD = 1 + PIXELS  # bytes of a binary record: its label comes first
OFFICIAL = 10_000  # records of an official file


def read_cifar10(folder: str | os.PathLike[str] | None) -> tuple[Images, Ints, Images, Ints]:
    """Return images and truth to train on and to test on, from the version that is there."""
    download = (
        f"Download the binary version from {BINARY_ADDRESS} or the Python version from "
        f"{PYTHON_ADDRESS}, unpack it"
    )
    version, place = find_version(folder, (BINARY, PYTHON), download)
    read = read_binary if version is BINARY else read_python
    *train, test = (read(place / name) for name in version.names)
    return *_join(train), *_join([test])


@with_remedy(f"Download it again, in its binary version: {BINARY_ADDRESS}")
def read_binary(file: Path) -> tuple[Images, Ints]:
    """Read a binary file: its images, one row of bytes each, and its labels."""
    content = np.fromfile(file, np.uint8)
    n_records, rest = divmod(content.size, RECORD)
    if rest or not n_records:
        raise DataError(
            f"{file} has {content.size:,} bytes, which is no whole number of records of "
            f"{RECORD:,} bytes (an official file has {OFFICIAL:,} records)."
        )
    records = content.reshape(n_records, RECORD)
    digest = hashlib.sha1(content.data, usedforsecurity=False).hexdigest()
    labels = _checked(file, records[:, 0].tolist(), "SHA-1", digest, BINARY_SHA1)
    return records[:, 1:], labels


@with_remedy(f"Download it again, in its Python version: {PYTHON_ADDRESS}")
def read_python(file: Path) -> tuple[Images, Ints]:
    """Read a pickled file: its images, one row of bytes each, and its labels."""
    content = file.read_bytes()
    try:
        batch = unpickle_plain(content)
    except Exception as error:  # a damaged pickle raises anything
        raise DataError(
            f"{file} cannot be read as a pickle of images and labels: {error}."
        ) from error
    # Whichever Python wrote it.
    batch = batch if isinstance(batch, dict) else {}
    images, labels = (batch.get(name.encode(), batch.get(name)) for name in ("data", "labels"))
    if not isinstance(images, PickledArray) or not isinstance(labels, list):
        raise DataError(
            f"{file} is a pickle without an array 'data' and a list 'labels' (an official file "
            "has a dictionary of both)."
        )
    rows = images.content
    if rows.ndim != 2 or rows.shape[1] != PIXELS or len(rows) != len(labels) or not labels:
        raise DataError(
            f"{file} has data of shape {rows.shape} and {len(labels):,} labels (an official file "
            f"has data of shape ({OFFICIAL}, {PIXELS}) and {OFFICIAL:,} labels)."
        )
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return rows, _checked(file, labels, "MD5", digest, PYTHON_MD5)


def _checked(
    file: Path, labels: list[Any], kind: str, digest: str, official: Mapping[str, str]
) -> Ints:
    """Return labels that are classes, of a file that is the official one if it has its size."""
    for record, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < len(CIFAR10_CLASSES):
            raise DataError(
                f"{file} has a label of {label!r} in record {record:,}; labels are 0 to 9."
            )
    if len(labels) == OFFICIAL and digest != official[file.name]:
        raise DataError(
            f"{file} has the {kind} {digest}; that of the official file is {official[file.name]}."
        )
    return np.array(labels, np.int64)


def _join(parts: Sequence[tuple[Images, Ints]]) -> tuple[Images, Ints]:
    """Return the images and the labels of several files, one after the other."""
    images, labels = zip(*parts, strict=True)
    return np.concatenate(images).reshape(-1, *IMAGE), np.concatenate(labels)
