"""What a safetensors file of this library says of itself, readable without torch.

The metadata of such a file have one key, "apportion": a JSON object with the format version, the
kind of the file ("checkpoint", "model", "evaluation", …) and what else the kind needs. There is
only one key because safetensors writes several in an order that differs from process to process.
The object has sorted keys. Together that means: equal content, equal bytes.

It also has a checksum: the SHA-256 of the file in which the checksum itself is zeros. It tells
damage, down to a single bit, from what was saved; it does not tell who saved it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from apportion.bags.columns import Columns
from apportion.errors import RunError
from apportion.runs.run import FORMAT_VERSION

__all__ = ["RESTORE", "columns_of", "metadata", "opened", "read_header", "seal"]

KEY = "apportion"
NO_CHECKSUM = "0" * 64
CHECKSUM = re.compile(rb'\\"checksum\\": \\"([0-9a-f]{64})\\"')  # JSON within JSON
RESTORE = "Restore the file from a copy, or train again in another folder."


def metadata(kind: str, content: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata to save with the tensors of a file.

    Examples
    --------
    >>> json.loads(metadata("model", {"epoch": 3})["apportion"])["epoch"]
    3
    """
    header = {**content, "checksum": NO_CHECKSUM, "format": FORMAT_VERSION, "kind": kind}
    return {KEY: json.dumps(header, sort_keys=True)}


def seal(path: Path) -> None:
    """Put the checksum into a file that was just written with `metadata`."""
    place, own, digest = _checksum(path)
    assert len(own) == len(digest)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(digest)


def _checksum(path: Path) -> tuple[int, bytes, bytes]:
    """Return the place of the checksum in a file, what it is, and what it ought to be."""
    with path.open("rb") as file:
        start = file.read(8)
        start += file.read(int.from_bytes(start, "little"))
        found = CHECKSUM.search(start)
        place, end = found.span(1) if found else (0, 0)
        digest = hashlib.sha256(start[:place] + NO_CHECKSUM.encode() + start[end:])
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return place, start[place:end], digest.hexdigest().encode()


@contextmanager
def opened(
    path: Path, kind: str, *, framework: str = "numpy", remedy: str = RESTORE
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Open a file of some kind, and yield it with its header.

    Raises
    ------
    RunError
        If the file is missing, damaged, not of this library, of another format or another kind.
    """
    if not path.is_file():
        raise RunError(f"{path} does not exist.", remedy)
    try:
        with safe_open(path, framework=framework) as file:
            header = _checked(path, file.metadata() or {}, kind, remedy)
            _, own, right = _checksum(path)
            if own != right or header.pop("checksum", None) != right.decode():
                found = "it is not as it was saved: its checksum is another"
                raise RunError(f"{path} is damaged or cut short: {found}.", remedy)
            yield file, header
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} is damaged or cut short: {error}.", remedy) from error


def read_header(path: Path, kind: str) -> dict[str, Any]:
    """Read and check the header of a file, without its tensors.

    Examples
    --------
    >>> import numpy as np
    >>> from safetensors.numpy import save_file
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "model.safetensors")
    ...     save_file({"weight": np.zeros(3)}, path, metadata("model", {"epoch": 3}))
    ...     seal(path)
    ...     read_header(path, "model")
    {'epoch': 3, 'format': 4, 'kind': 'model'}
    """
    with opened(path, kind) as (_, header):
        return header


def columns_of(header: Mapping[str, Any]) -> Columns | None:
    """Return the columns of the table that a file was made from; None if it was not a table."""
    columns = header.get("columns")
    return None if columns is None else _checked_columns(Columns.from_dict(columns), columns)


def _checked_columns(read: Columns, saved: Any) -> Columns:
    """Check that columns are what was saved, not what it could be read as, and make sense."""
    numbers = [*saved["means"].values(), *saved["left_out"].values()]
    if json.loads(json.dumps(read.to_dict())) != saved or any(type(n) is bool for n in numbers):
        raise ValueError("columns have entries of other types")
    if len(set(read.names)) < len(read.names):
        raise ValueError("a column is named twice")
    if not all(map(math.isfinite, read.means.values())):
        raise ValueError("the mean of a column must be finite")
    if not {*read.shifted, *read.gaps} <= read.means.keys():
        raise ValueError("columns are shifted or have gaps that are not numeric")
    if any(len(set(texts)) < len(texts) for texts in read.categories.values()):
        raise ValueError("a category is named twice")
    if (
        not read.left_out.keys() <= read.categories.keys()
        or min(read.left_out.values(), default=1) < 1
    ):
        raise ValueError("categories are left out of columns that have none")
    return read


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an entry is there twice")
    return found


def _checked(path: Path, found: Mapping[str, str], kind: str, remedy: str) -> dict[str, Any]:
    if KEY not in found:
        raise RunError(f"{path} was not saved by apportion.", remedy)
    try:
        header: Any = json.loads(found[KEY], object_pairs_hook=_once)
        version = header["format"] if isinstance(header, dict) else header
        if version != FORMAT_VERSION:
            raise RunError(
                f"{path} is of format version {version}; this apportion reads {FORMAT_VERSION}.",
                "Use the version of apportion that saved it, or train again in another folder.",
            )
        if header["kind"] != kind:
            raise RunError(f"{path} holds another kind: {header['kind']}, not {kind}.", remedy)
        columns_of(header)
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        problem = str(error).partition("\n")[0].rstrip(".")
        raise RunError(f"{path} has a damaged header: {problem}.", remedy) from error
    return dict(header)
