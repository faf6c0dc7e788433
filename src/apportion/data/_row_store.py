"""Where encoded rows are kept: in memory, or in files that are mapped into it."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from apportion.data._encoding import Codes, Numbers
from apportion.data._files import DataError

log = logging.getLogger("apportion")

IN_MEMORY = 2**30  # bytes: larger tables are mapped


def check_store(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise DataError(f"store {folder} is a file.", "Pass a folder, which need not exist yet.")
    there = sorted(path.name for path in folder.glob("*"))
    if there:
        raise DataError(
            f"store {folder} has {len(there):,} files already, such as {there[0]}.",
            "Pass a folder that is new or empty: nothing is replaced.",
        )


class RowStore:
    """Arrays that are filled part by part: one of numbers, and one of codes."""

    def __init__(self, n_rows: int, n_numbers: int, n_codes: int, folder: Path | None) -> None:
        shapes: dict[str, tuple[tuple[int, int], Any]] = {
            "numbers": ((n_rows, n_numbers), np.float32),
            "codes": ((n_rows, n_codes), np.int16),
        }
        n_bytes = n_rows * (4 * n_numbers + 2 * n_codes)
        self.temporary = folder is None and n_bytes > IN_MEMORY
        self.arrays: dict[str, NDArray[Any]] = {}
        self.files: dict[str, Path] = {}
        self.own_folder = self.temporary or (folder is not None and not folder.exists())
        try:
            if self.temporary:
                folder = Path(tempfile.mkdtemp(prefix="apportion-"))
                log.info(
                    "%s bytes of rows go into %s, and are removed with the last use of them.",
                    f"{n_bytes:,}",
                    folder,
                )
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            for name, (shape, dtype) in shapes.items():
                if folder is None or not shape[1]:  # a file without columns cannot be mapped
                    self.arrays[name] = np.empty(shape, dtype)
                else:
                    self.files[name] = folder / f"{name}.npy"
                    open_memmap(self.files[name], "w+", dtype, shape)
                    _reserve(self.files[name])
        except OSError as error:
            self.remove()
            raise DataError(
                f"store {folder} cannot be used: {error.strerror or error}.",
                f"Pass a folder that you may write to, with {n_bytes:,} bytes to spare.",
            ) from error

    def part(self, first: int, end: int) -> tuple[Numbers, Codes]:
        """Give some rows to write to. Once they are dropped, they take no memory."""
        numbers, codes = (
            self.arrays[name][first:end]
            if name in self.arrays
            else open_memmap(self.files[name], "r+")[first:end]
            for name in ("numbers", "codes")
        )
        return numbers, codes

    def finish(self) -> Numbers | tuple[Numbers, Codes]:
        """Give the arrays; the codes only if there are any."""
        for name, file in self.files.items():
            self.arrays[name] = open_memmap(file, "r")
            if self.temporary:
                weakref.finalize(self.arrays[name], _remove, file)
        numbers, codes = self.arrays["numbers"], self.arrays["codes"]
        return (numbers, codes) if codes.shape[1] else numbers

    def remove(self) -> None:
        """Remove the files, and the folder if it was made for them."""
        for file in self.files.values():
            _remove(file, folder=self.own_folder)


def _reserve(file: Path) -> None:
    """Take the room now: a process that writes to a mapped file on a full disk is killed."""
    if not hasattr(os, "posix_fallocate"):
        return
    with file.open("r+b") as opened:
        try:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # not every disk can do it
                raise


def _remove(file: Path, *, folder: bool = True) -> None:
    """Remove a file, and the folder with its last one."""
    with suppress(OSError):
        file.unlink(missing_ok=True)
        if folder:
            file.parent.rmdir()
