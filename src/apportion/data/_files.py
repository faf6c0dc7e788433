"""Where the files of a benchmark are, how files are written, and the error of both."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from apportion.errors import ApportionError


class DataError(ApportionError, ValueError):
    """A file that is not what it should be. The message names the file, what, and the remedy."""


@dataclass(frozen=True)
class Version:
    """One of the forms in which a data set is published."""

    names: tuple[str, ...]  # its files
    folder: str = ""  # what they lie in once their archive is unpacked; empty if in nothing


def find_version(
    folder: str | os.PathLike[str] | None, versions: Sequence[Version], download: str
) -> tuple[Version, Path]:
    """Give the first version that is there with all its files, and where these are.

    Parameters
    ----------
    folder : path, optional
        Where to look. By default the environment variable APPORTION_DATA names it.
    versions : sequence of Version
        The preferred one first.
    download : str
        What to do if no version is there, such as "Download it from …": the rest of the sentence
        says that the folder must be named.

    Raises
    ------
    DataError
        If every version lacks a file. The message is about the one that lacks fewest.
    """
    remedy = (
        f"{download}, and pass the folder or set the environment variable APPORTION_DATA to it."
    )
    root = folder or os.environ.get("APPORTION_DATA")
    if not root:
        first = versions[0].names[0]
        raise DataError(
            f"{first} is missing: no folder is given, and APPORTION_DATA is not set.", remedy
        )
    top = Path(root).expanduser()
    absent = {
        (version, place): [name for name in version.names if not (place / name).is_file()]
        for version in versions
        for place in (top, top / version.folder)
    }
    fullest = min(absent, key=lambda candidate: len(absent[candidate]))
    if missing := absent[fullest]:
        places = dict.fromkeys(str(place) for _, place in absent)
        raise DataError(
            f"{missing[0]} is missing ({len(missing)} of {len(fullest[0].names)} files are).",
            f"looked in: {', '.join(places)}",
            remedy,
        )
    return fullest


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
