"""Named tensors that a file holds, compared with what they must be like before any use.

Arrays of numpy and tensors of torch are compared alike, without an import of torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from apportion.errors import RunError, and_more

__all__ = ["check_tensors", "is_finite"]


def is_finite(values: Any) -> bool:
    """Tell whether all values are finite.

    Examples
    --------
    >>> is_finite(np.array([1.0, 2.0])), is_finite(np.array([1.0, np.inf])), is_finite(np.array(3))
    (True, False, True)
    """
    return bool((values.isfinite() if hasattr(values, "isfinite") else np.isfinite(values)).all())


def check_tensors(
    path: Path,
    found: Mapping[str, Any],
    like: Mapping[str, Any],
    *,
    problem: str,
    remedy: str,
    finite: Collection[str] = (),
) -> None:
    """Check that a file has exactly the tensors of these names, of their shapes and types.

    Parameters
    ----------
    path : Path
        The file, for the error.
    found, like : mapping from name to tensor
        Those of the file, and those that they must be like. Of the latter only shapes and types
        are read: they may be on torch's device "meta".
    problem, remedy : str
        What it means if they differ, such as "was saved from another net", and what to do then.
    finite : collection of str
        The names of those that must be finite.

    Raises
    ------
    RunError
        If they differ: it has the name of the first that does, and both sides.

    Examples
    --------
    >>> check_tensors(
    ...     Path("a.safetensors"),
    ...     {"bias": np.zeros(3)},
    ...     {"bias": np.zeros(2)},
    ...     problem="was saved from another net",
    ...     remedy="Pass the net that was trained.",
    ... )
    Traceback (most recent call last):
    apportion.errors.RunError: a.safetensors was saved from another net: bias is float64 of shape \
(3,) there and float64 of shape (2,) here.
      Pass the net that was trained.
    """
    names = sorted(found.keys() | like.keys())
    both = {name: (_kind(found.get(name)), _kind(like.get(name))) for name in names}
    differ = [name for name, (theirs, ours) in both.items() if theirs != ours]
    if differ:
        theirs, ours = both[differ[0]]
        raise RunError(
            f"{path} {problem}: {differ[0]} is {theirs} there and {ours} here"
            f"{and_more(len(differ))}.",
            remedy,
        )
    bad = [name for name in finite if not is_finite(found[name])]
    if bad:
        raise RunError(
            f"{path} is damaged: {bad[0]} has values that are not finite{and_more(len(bad))}.",
            "Restore the file from a copy, or train again in another folder.",
        )


def _kind(tensor: Any) -> str:
    if tensor is None:
        return "missing"
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype} of shape {tuple(tensor.shape)}"
