"""What a safetensors file of this library says of itself, readable without torch.

The metadata of such a file have one key, "apportion": a JSON object with the format version, the
kind of the file ("checkpoint", "model", "evaluation", …) and what else the kind needs. There is
only one key because safetensors writes several in an order that differs from process to process.
The object has sorted keys. Together that means: equal content, equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from apportion.bags.columns import Columns
from apportion.errors import RunError
from apportion.runs.run import FORMAT_VERSION

__all__ = ["RESTORE", "columns_of", "metadata", "opened", "read_header"]

KEY = "apportion"
RESTORE = "Restore the file from a copy, or train again in another folder."


def metadata(kind: str, content: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata to save with the tensors of a file.

    Examples
    --------
    >>> metadata("model", {"epoch": 3, "classes": ["no", "yes"]})
    {'apportion': '{"classes": ["no", "yes"], "epoch": 3, "format": 2, "kind": "model"}'}
    """
    header = {**content, "format": FORMAT_VERSION, "kind": kind}
    return {KEY: json.dumps(header, sort_keys=True)}


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
            yield file, _checked(path, file.metadata() or {}, kind, remedy)
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
    ...     read_header(path, "model")
    {'epoch': 3, 'format': 2, 'kind': 'model'}
    """
    with opened(path, kind) as (_, header):
        return header


def columns_of(header: Mapping[str, Any]) -> Columns | None:
    """Return the columns of the table that a file was made from; None if it was not a table."""
    columns = header.get("columns")
    return None if columns is None else Columns.from_dict(columns)


def _checked(path: Path, found: Mapping[str, str], kind: str, remedy: str) -> dict[str, Any]:
    if KEY not in found:
        raise RunError(f"{path} was not saved by apportion.", remedy)
    try:
        header: Any = json.loads(found[KEY])
        version = header["format"] if isinstance(header, dict) else header
        if version != FORMAT_VERSION:
            raise RunError(
                f"{path} is of format version {version}; this apportion reads {FORMAT_VERSION}.",
                "Use the version of apportion that saved it, or train again in another folder.",
            )
        if header["kind"] != kind:
            raise RunError(f"{path} holds another kind: {header['kind']}, not {kind}.", remedy)
        columns_of(header)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        problem = str(error).partition("\n")[0].rstrip(".")
        raise RunError(f"{path} has a damaged header: {problem}.", remedy) from error
    return dict(header)
