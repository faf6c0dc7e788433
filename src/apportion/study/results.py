"""Recorded results: one JSON line per training, with its provenance.

A line holds what was trained, what was measured, and what it takes to measure it again: the `seed`,
the `hardware`, the `versions` of the libraries and the `commit` of the code. It is added in one
write that is forced to the disk, so that a process that is killed leaves whole lines only: a last
line that was cut short is not read, and it is removed before the next is added.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from apportion import __version__
from apportion.errors import DataError, count
from apportion.files import append_line, read_lines

__all__ = ["add_result", "hardware_of", "provenance", "read_results"]

PROVENANCE = ("seed", "hardware", "versions", "commit")


def add_result(path: Path, line: Mapping[str, Any]) -> None:
    """Append a line: what was trained and measured, the seed, and the rest of its `provenance`."""
    _check(line, str(path), PROVENANCE)
    append_line(path, line)


def read_results(path: Path, names: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Read all lines, and check that each has its provenance and the fields `names`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "results.jsonl")
    ...     add_result(path, {"method": "fpl", "seed": 0, "accuracy": 0.9, **provenance()})
    ...     [line["accuracy"] for line in read_results(path, ["method"])]
    [0.9]
    """
    lines = read_lines(path, DataError, "Restore it from the repository.")
    for number, line in enumerate(lines, 1):
        _check(line, f"line {number} of {path}", (*names, *PROVENANCE))
    return lines


def _check(line: Mapping[str, Any], where: str, names: Iterable[str]) -> None:
    for name in names:
        if name not in line:
            raise DataError(
                f"{where} lacks {name!r}.", "A result needs what was trained, and its provenance."
            )


def provenance(device: str = "cpu", commit: str | None = None) -> dict[str, Any]:
    """Return what a line says of its making beside the seed.

    Parameters
    ----------
    device : str
        As in `TrainConfig`.
    commit : str, optional
        Which version of the code this is; by default what git says.
    """
    import numpy as np
    import torch

    versions = {
        "apportion": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }
    return {"hardware": hardware_of(device), "versions": versions, "commit": commit or _commit()}


def hardware_of(device: str) -> str:
    """Return the name of what computes."""
    import torch

    from apportion.engine.device import device_for

    found = device_for(device)
    if found.type == "cuda":
        return str(torch.cuda.get_device_name(found))
    return f"CPU ({platform.machine()}, {count(torch.get_num_threads(), 'thread')})"


def _commit() -> str:
    """Return what git calls this version of the code, if the code is in git."""
    package = Path(__file__).parents[1]

    def git(*command: str) -> str:
        return subprocess.run(
            ["git", *command], cwd=package, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        name, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name} with changes" if changes else name
