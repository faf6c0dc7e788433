"""A store for rows that were read: in memory, or in files that are mapped into it."""

from __future__ import annotations

import errno
import logging
import math
import os
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from apportion.errors import DataError, count

log = logging.getLogger("apportion")

IN_MEMORY = 2**30  # bytes: more are mapped


def check_store(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise DataError(f"store {folder} is a file.", "Pass a folder, which need not exist yet.")
    there = sorted(path.name for path in folder.glob("*"))
    if there:
        raise DataError(
            f"store {folder} has {count(len(there), 'file')} already, such as {there[0]}.",
            "Pass a folder that is new or empty: nothing is replaced.",
        )


class RowStore:
    """Arrays of the same number of rows, by name, that are filled part by part.

    Parameters
    ----------
    wanted : mapping from name to shape and type
    folder : path, optional
        Where they become files with their names. By default they are in memory, or in a
        temporary folder if they are large.
    """

    def __init__(
        self, wanted: Mapping[str, tuple[tuple[int, ...], Any]], folder: Path | None
    ) -> None:
        self.names = list(wanted)
        n_bytes = sum(math.prod(s) * np.dtype(dtype).itemsize for s, dtype in wanted.values())
        self.temporary = folder is None and n_bytes > IN_MEMORY
        self.arrays: dict[str, NDArray[Any]] = {}
        self.files: dict[str, Path] = {}
        self.own_folder = self.temporary or (folder is not None and not folder.exists())
        try:
            if self.temporary:
                folder = Path(tempfile.mkdtemp(prefix="apportion-"))
                size = f"{n_bytes:,} bytes of rows"
                log.info("%s are stored in %s as long as they are used.", size, folder)
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            for name, (shape, dtype) in wanted.items():
                if folder is None or 0 in shape:  # a file without columns cannot be mapped
                    self.arrays[name] = np.empty(shape, dtype)
                else:
                    self.files[name] = folder / f"{name}.npy"
                    open_memmap(self.files[name], "w+", dtype, shape)
                    _reserve(self.files[name])
        except OSError as error:
            self.remove()
            raise DataError(
                f"store {folder} cannot be used: {error.strerror or error}.",
                f"Pass a folder that you may write to, with {n_bytes:,} bytes free.",
            ) from error

    def part(self, first: int, end: int) -> tuple[NDArray[Any], ...]:
        """Return some rows to write to. Once they are dropped, they take no memory."""
        return tuple(
            self.arrays[name][first:end]
            if name in self.arrays
            else open_memmap(self.files[name], "r+")[first:end]
            for name in self.names
        )

    def finish(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays; those that are files can only be read."""
        for name, file in self.files.items():
            self.arrays[name] = open_memmap(file, "r")
            if self.temporary:
                weakref.finalize(self.arrays[name], _remove, file)
        return tuple(self.arrays[name] for name in self.names)

    def remove(self) -> None:
        """Remove the files, and the folder if it was made for them."""
        for file in self.files.values():
            _remove(file, folder=self.own_folder)


def _reserve(file: Path) -> None:
    """Reserve the space now: a process that writes to a mapped file on a full disk is killed."""
    if not hasattr(os, "posix_fallocate"):
        return
    with file.open("r+b") as opened:
        try:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        except OSError as error:
            # Not every disk supports it.
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise


def _remove(file: Path, *, folder: bool = True) -> None:
    """Remove a file, and the folder with its last one."""
    with suppress(OSError):
        file.unlink(missing_ok=True)
        if folder:
            file.parent.rmdir()
