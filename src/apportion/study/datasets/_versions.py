"""Find the files of a benchmark, and say what to do about one that is damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from apportion.errors import DataError


@dataclass(frozen=True)
class Version:
    """One of the forms in which a data set is published."""

    names: tuple[str, ...]  # its files
    folder: str = ""  # where they are once their archive is unpacked, if in a folder of it


def find_version(
    folder: str | os.PathLike[str] | None, versions: Sequence[Version], download: str
) -> tuple[Version, Path]:
    """Return the first version that is there with all its files, and their folder.

    Parameters
    ----------
    folder : path, optional
        Where to look. By default the environment variable APPORTION_DATA names it.
    versions : sequence of Version
        The preferred one first.
    download : str
        The beginning of a remedy, such as "Download it from …": the rest of the sentence says how
        to name the folder.

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
        problem = "is missing: no folder is given, and APPORTION_DATA is not set."
        raise DataError(f"{versions[0].names[0]} {problem}", remedy)
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


@contextmanager
def with_remedy(remedy: str) -> Iterator[None]:
    """End whatever error is raised about a file with the same remedy."""
    try:
        yield
    except DataError as error:
        error.args += (remedy,)
        raise
