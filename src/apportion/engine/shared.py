"""Bags that the processes of a machine share: one of them reads, and all map what it has read.

Their arrays become files in a temporary folder, which is removed as soon as all have mapped them:
the system keeps what is mapped, without a name, until the last process has ended, however it ends.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from apportion.bags.bags import Bags
from apportion.bags.columns import Columns
from apportion.engine.distributed import connected, lost
from apportion.errors import DataError

__all__ = ["read_once"]

Sets = dict[str, Bags]

OF_INSTANCES = ("index", "truth")  # arrays of Bags, beside those of x
OF_BAGS = ("offsets", "proportions", "counts")
ABOUT = "about.json"


def read_once(read: Callable[[Path | None], Sets]) -> Sets:
    """Return sets of bags, which one process of each machine reads for all that are connected.

    All of them must call it. What numpy and JSON cannot write, such as a Dataset, or bags that are
    named by dates, is read by every process.

    Parameters
    ----------
    read : callable
        Reads sets of bags, as `apportion.read_sets` does. It is called with a folder to store rows
        in, which need not exist yet; or with None, if nothing is shared.

    Examples
    --------
    >>> read_once(lambda store: {"train": Bags.from_rows(None, ["a", "a"], truth=[0, 1])})
    {'train': Bags(1 bag of 2–2–2 instances, 2 in all, from 2 rows; 2 classes: 0, 1; truth known)}
    """
    ranks = connected()
    if not ranks.are_several:
        return read(None)
    reads = ranks.rank == ranks.first_here
    name = ranks.told(f"apportion-{token_hex(8)}")
    # Machines may have one file system, and each needs a folder of its own there.
    folder = Path(tempfile.gettempdir()).resolve() / f"{name}-{ranks.first_here}"
    try:
        with ranks.patient() as wait:
            if reads:
                _store(folder, read)
            wait()
        sets = _mapped(folder)
        ranks.wait()
    except (DataError, OSError) as error:
        if reads and not folder.exists():  # another process has ended, and has removed it
            raise lost(ranks.world) from error
        raise
    finally:  # by all of them, as the one that reads may have been killed
        shutil.rmtree(folder, ignore_errors=True)
    return read(None) if sets is None else sets


def _store(folder: Path, read: Callable[[Path | None], Sets]) -> None:
    """Read bags, and write them into a new folder, if they can be written."""
    try:
        folder.mkdir(mode=0o700)
        sets = read(folder / "rows")
        plain = all(map(_is_plain, sets.values()))
        about = _written(folder, sets) if plain else None
        (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"{folder}, which processes share, cannot be written: {error.strerror or error}.",
            "Set the environment variable TMPDIR to a folder with room for all rows as numbers.",
        ) from error


def _is_plain(bags: Bags) -> bool:
    """Tell whether all that bags consist of can be written and read again as it is."""
    names = bags.ids, bags.classes
    try:
        same = repr(tuple(tuple(own) for own in json.loads(json.dumps(names)))) == repr(names)
    except (TypeError, ValueError):
        return False
    parts = bags.x if isinstance(bags.x, tuple) else (bags.x,)
    return same and all(isinstance(p, np.ndarray) and p.dtype.kind in "fiub" for p in parts)


def _written(folder: Path, sets: Sets) -> dict[str, Any]:
    """Write the arrays of bags into a folder, and return all else."""
    parts = {id(part): part for bags in sets.values() for part in bags.parts}  # sets share rows
    files = {key: f"{number}.npy" for number, key in enumerate(parts)}
    for key, part in parts.items():
        whole = isinstance(part, np.memmap) and isinstance(part.base, mmap)
        stored = Path(str(part.filename)) if whole else None
        if stored is not None and stored.is_relative_to(folder):  # by reading
            files[key] = str(stored.relative_to(folder))
        else:
            np.save(folder / files[key], part)
    for name, bags in sets.items():
        for field in (*OF_INSTANCES, *OF_BAGS):
            if (array := getattr(bags, field)) is not None:
                np.save(folder / f"{name}.{field}.npy", array)
    return {
        name: {
            "x": [files[id(part)] for part in bags.parts],
            "has_parts": isinstance(bags.x, tuple),
            "classes": bags.classes,
            "ids": bags.ids,
            "columns": None if bags.columns is None else bags.columns.to_dict(),
        }
        for name, bags in sets.items()
    }


def _mapped(folder: Path) -> Sets | None:
    """Map the bags that are in a folder; None if they could not be written."""
    about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    if about is None:
        return None
    x = {file: _array(folder / file) for own in about.values() for file in own["x"]}
    sets = {}
    for name, own in about.items():
        parts = tuple(x[file] for file in own["x"])
        columns = None if own["columns"] is None else Columns.from_dict(own["columns"])
        files = {field: folder / f"{name}.{field}.npy" for field in (*OF_INSTANCES, *OF_BAGS)}
        sets[name] = Bags(
            parts if own["has_parts"] else parts[0],
            classes=tuple(own["classes"]),
            ids=tuple(own["ids"]),
            columns=columns,
            **{field: _array(files[field]) for field in OF_INSTANCES if files[field].exists()},
            **{field: np.load(files[field]) for field in OF_BAGS},
        )
    return sets


def _array(file: Path) -> NDArray[Any]:
    """Map an array, which can only be read."""
    try:
        return open_memmap(file, "r")
    except ValueError:  # it has no numbers, and cannot be mapped
        return np.load(file)  # type: ignore[no-any-return]
