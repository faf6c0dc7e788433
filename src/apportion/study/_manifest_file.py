"""The file of a manifest: arrays of whole numbers and a text, as bytes that depend on nothing else.

Times, systems and methods of compression would make them differ from machine to machine, so that
the file is a zip without compression, of fixed times, whose numbers are as short as they can be.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import DataError
from apportion.files import check_free, replacing
from apportion.study._pool import Ints

FORMAT = 1
ARRAYS = ("index", "offsets", "counts")
TEXT = "manifest.json"
EARLIEST = (1980, 1, 1, 0, 0, 0)  # no file of a zip can be older
REMEDY = "Restore it from a copy, or make the bags again."
UNREADABLE = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, TypeError, ValueError,
    NotImplementedError,  # so zipfile calls a compression that it does not know
)  # fmt: skip


def checksum(arrays: Mapping[str, Ints], classes: Any) -> str:
    """Give the SHA-256 of bags, as `Manifest.sha256` defines it."""
    digest = hashlib.sha256()
    for name in ARRAYS:
        array = arrays[name]
        digest.update(f"{name} {' '.join(map(str, array.shape))}\n".encode())
        digest.update(array.astype("<i8").tobytes())
    digest.update(json.dumps(list(classes)).encode())
    return digest.hexdigest()


def write_manifest(
    path: Path, arrays: Mapping[str, Ints], about: Mapping[str, Any], *, force: bool
) -> None:
    text = {"format": FORMAT, **about, "sha256": checksum(arrays, about["classes"])}

    check_free(path, force=force)
    with replacing(path) as beside, zipfile.ZipFile(beside, "w") as pack:
        pack.writestr(_entry(TEXT), json.dumps(text, indent=2) + "\n")
        for name in ARRAYS:
            with pack.open(_entry(f"{name}.npy"), "w") as file:
                short = _shortest(arrays[name])
                np.lib.format.write_array(file, short, (1, 0), allow_pickle=False)


def read_manifest(path: str | os.PathLike[str]) -> tuple[dict[str, Ints], dict[str, Any]]:
    """Give the arrays, which are those that were saved, and what the file says of them."""
    if not Path(path).is_file():
        raise DataError(f"{path} is missing.", "Pass the file that Manifest.save wrote.")
    try:
        with zipfile.ZipFile(path) as pack:
            about = json.loads(pack.read(TEXT))
            version = about["format"]
            arrays = {} if version != FORMAT else {name: _array(pack, name) for name in ARRAYS}
    except UNREADABLE as error:
        why = str(error).strip("'\"").rstrip(".")
        raise DataError(
            f"{path} cannot be read as a manifest: {why}.",
            f"Pass the file that Manifest.save wrote. {REMEDY}",
        ) from error
    if version != FORMAT:
        raise DataError(
            f"{path} has format {version!r}, but this version of apportion reads {FORMAT}.",
            "Install the version that wrote it, or a later one.",
        )
    found, saved = checksum(arrays, about.get("classes", ())), about.get("sha256")
    if found != saved:
        raise DataError(
            f"{path} holds bags of SHA-256 {found}, but was saved with {saved}.",
            f"It was changed since. {REMEDY}",
        )
    return arrays, about


def _array(pack: zipfile.ZipFile, name: str) -> Ints:
    with pack.open(f"{name}.npy") as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} is of {array.dtype}, not of whole numbers")
    return array.astype(np.int64)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EARLIEST)
    entry.create_system = 3  # Unix, wherever this is
    entry.external_attr = 0o644 << 16
    return entry


def _shortest(array: Ints) -> NDArray[Any]:
    """Give whole numbers in as few bytes as the largest takes, its lowest byte first."""
    kind = np.min_scalar_type(int(array.max(initial=0)))
    return np.ascontiguousarray(array, kind.newbyteorder("<"))
