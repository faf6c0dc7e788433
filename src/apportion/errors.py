"""How errors are worded: what is wrong, then what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["ApportionError", "suggestion"]


class ApportionError(Exception):
    """What every error of this library is, so that one `except` catches them all.

    The first line names the thing and the number, the last one the remedy.

    Examples
    --------
    >>> raise ApportionError("threads is 0.", "Pass 1 or more.")
    Traceback (most recent call last):
    apportion.errors.ApportionError: threads is 0.
      Pass 1 or more.
    """

    def __init__(self, problem: str, *details: str) -> None:
        super().__init__("\n  ".join((problem, *details)))


def suggestion(name: str, known: Iterable[str]) -> str:
    """Say which known name may have been meant, and which there are.

    Examples
    --------
    >>> suggestion("flop", ["crop", "flip"])
    "Did you mean 'flip'? There are crop, flip."
    """
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    return f"{meant}There are {', '.join(known)}."
