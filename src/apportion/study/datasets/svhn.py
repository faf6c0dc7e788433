"""Street View House Numbers, the cropped digits, from the MATLAB files of its owners."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apportion.errors import DataError
from apportion.study.datasets._versions import Version, find_version

Ints = NDArray[np.int64]
Images = NDArray[np.uint8]

ADDRESS = "http://ufldl.stanford.edu/housenumbers/"
FILES = Version(("train_32x32.mat", "test_32x32.mat"))
IMAGE = (32, 32, 3)  # rows, columns, and red, green and blue; the last axis of X counts images


def read_svhn(folder: str | os.PathLike[str] | None) -> tuple[Images, Ints, Images, Ints]:
    """Return images and truth to train on and to test on."""
    download = f"Download {' and '.join(FILES.names)} from {ADDRESS}"
    _, place = find_version(folder, [FILES], download)
    train, test = (read_file(place / name) for name in FILES.names)
    return *train, *test


def read_file(file: Path) -> tuple[Images, Ints]:
    """Read a file: its images (M, 3, 32, 32) and their digits."""
    from scipy.io import loadmat  # it takes a while, and nothing else here needs it

    remedy = f"Download it again: {ADDRESS}{file.name}"
    try:
        content = loadmat(file, appendmat=False, variable_names=["X", "y"])
    except Exception as error:  # a damaged file makes scipy raise anything
        raise DataError(f"{file} cannot be read as a MATLAB file: {error}.", remedy) from error
    for name in ("X", "y"):
        if name not in content:
            raise DataError(f"{file} has no array {name}.", remedy)
    x, y = np.asarray(content["X"]), np.asarray(content["y"])
    if x.ndim != 4 or x.shape[:3] != IMAGE or not x.shape[3] or x.dtype != np.uint8:
        raise DataError(
            f"X of {file} is of shape {x.shape} and {x.dtype}; images are of shape (32, 32, 3, n) "
            "and uint8.",
            remedy,
        )
    n_images = x.shape[3]
    if y.shape != (n_images, 1) or y.dtype.kind not in "iuf":
        raise DataError(
            f"y of {file} is of shape {y.shape} and {y.dtype}; the labels of its {n_images:,} "
            f"images are numbers of shape ({n_images}, 1).",
            remedy,
        )
    wrong = ~np.isin(y[:, 0], np.arange(1, 11))
    if wrong.any():
        first = int(wrong.argmax())
        raise DataError(
            f"{file} has a label of {y[first, 0]} for image {first:,}; labels are 1 to 10, and 10 "
            "is the digit 0.",
            remedy,
        )
    return np.ascontiguousarray(x.transpose(3, 2, 0, 1)), y[:, 0].astype(np.int64) % 10
