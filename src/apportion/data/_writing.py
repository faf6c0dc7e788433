"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from apportion.data.benchmarks import DataError


def write_file(path: Path, write: Callable[[Path], object], *, force: bool) -> None:
    """Let `write` make a file beside its place, force it to the disk, and rename it."""
    if not force and os.path.lexists(path):
        raise DataError(
            f"{path} is there already.", "Choose another name, or pass force=True to replace it."
        )
    # Of two processes that write the same file at once, neither may write into the other's.
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        write(beside)
        with beside.open("r+b") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror or error}.",
            "Name a folder that exists, that you may write to and that has room.",
        ) from error
    finally:
        beside.unlink(missing_ok=True)
