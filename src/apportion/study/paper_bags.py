"""Bags that were published with a paper, as row numbers."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from apportion.errors import DataError
from apportion.study._pool import Ints


def paper(file: str | os.PathLike[str], size: int) -> tuple[Ints, Ints]:
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
        For `Bags.from_members`, or `Manifest.from_members` to cite them by a checksum. Both check
        them against the data.

    Raises
    ------
    DataError
        If the file is missing, or has no bags of this size.
    """
    remedy = "Pass the .npz that has the arrays train_S and val_S."
    if not Path(file).is_file():
        raise DataError(f"{file} does not exist.", remedy)
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
        problem = f"{file} cannot be read as an .npz of numbers: {error}."
        raise DataError(problem, remedy) from error
    if len(parts) < 2:
        both = (n[6:] for n in there if n.startswith("train_") and f"val_{n[6:]}" in there)
        sizes = sorted(int(size) for size in both if size.isdecimal())
        raise DataError(
            f"{file} has no bags of size {size}.",
            f"Pass one of its sizes: {', '.join(map(str, sizes)) or 'it has none'}.",
        )
    for name, part in parts.items():
        if part.ndim != 2 or part.shape[1] != size or part.dtype.kind not in "iu":
            raise DataError(
                f"{name} of {file} is of shape {part.shape} and {part.dtype}.",
                f"It must be integers of shape (bags, {size}).",
            )
    train, valid = (part.astype(np.int64) for part in parts.values())
    return train, valid
