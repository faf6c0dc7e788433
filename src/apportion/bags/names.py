"""Names of bags and classes: how one table's names are found among another's.

The one rule: a name is found if it is equal to a known one, or else if both are written alike or
are the same number. So 7 in a data frame is "7" or "7.0" in a CSV file, but never "007".
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Register", "as_written", "canonical_order", "class_array", "sorted_names"]


class Register:
    """Known names, in their order.

    Examples
    --------
    >>> wards = Register([7, "north"])
    >>> wards.place("7"), wards.place("7.0"), wards.place("north"), wards.place("007")
    (0, 0, 1, None)
    >>> Register(["7.0"]).place(7)
    0
    >>> wards.places(["north", "south", 7])
    array([ 1, -1,  0])
    """

    def __init__(self, names: Iterable[Hashable]) -> None:
        self.names = list(names)
        self._equal = {name: place for place, name in enumerate(self.names)}

    @cached_property
    def _written(self) -> dict[str, int]:
        return {str(name): place for place, name in enumerate(self.names)}

    def place(self, name: Any) -> int | None:
        """Return the position of a name; None if it is unknown."""
        place = self._equal.get(name)
        return self._alike(name) if place is None else place

    @cached_property
    def _numbered(self) -> dict[int | float, int]:
        numbers = ((_number(name), place) for place, name in enumerate(self.names))
        return {number: place for number, place in numbers if number is not None}

    def _alike(self, name: Any) -> int | None:
        place = self._written.get(str(name))
        number = _number(name) if place is None else None
        return place if number is None else self._numbered.get(number)

    def take(self, name: Any, taken: set[int]) -> int | None:
        """Return the position of a name, and add it to `taken`; None if it is there or unknown."""
        place = self.place(name)
        if place is None or place in taken:
            return None
        taken.add(place)
        return place

    def places(self, names: Sequence[Any]) -> NDArray[np.int64]:
        """Return the position of each of several distinct names; -1 for unknown ones.

        Two of them never have the same position: of 7 and "7" the one that is equal is found.
        """
        found = np.array([self._equal.get(name, -1) for name in names], dtype=np.int64)
        taken = set(found.tolist())
        for i in np.flatnonzero(found < 0).tolist():
            place = self.take(names[i], taken)
            found[i] = -1 if place is None else place
        return found


def as_written(texts: Iterable[str]) -> list[Any]:
    """Return the names that the cells of a CSV file stand for: numbers, if all of them are.

    A number is written as Python writes it, so that codes such as 007 stay texts.

    Examples
    --------
    >>> as_written(["7", "8.5"]), as_written(["7", "north"]), as_written(["07", "08"])
    ([7, 8.5], ['7', 'north'], ['07', '08'])
    """
    known = list(texts)
    distinct = dict.fromkeys(known)
    numbers = {text: number for text in distinct if (number := _number(text)) is not None}
    if len(numbers) < len(distinct) or len(set(numbers.values())) < len(distinct):
        return known
    return [numbers[text] for text in known]


def _number(name: Any) -> int | float | None:
    """Return the number that a name is, or that a text stands for if Python writes it so."""
    for kind in (int, float):
        try:
            number = kind(str(name))
        except ValueError:
            continue
        if str(number) == str(name) and (kind is int or math.isfinite(number)):
            return number
    return None


def sorted_names(names: Iterable[Any]) -> list[Any]:
    """Sort names; those of several types stay in their order."""
    known = list(names)
    try:
        return sorted(known)
    except TypeError:
        return known


def canonical_order(names: Sequence[Any]) -> NDArray[np.int64]:
    """Return the positions of names in an order that does not depend on theirs.

    Numbers come first, however they are written, and then texts.

    Examples
    --------
    >>> canonical_order(["b", 10, "9", "a"])
    array([2, 1, 3, 0])
    """

    def key(place: int) -> tuple[Any, ...]:
        name = names[place]
        number = _number(name)
        return number is None, number or 0, str(name), type(name).__name__

    return np.array(sorted(range(len(names)), key=key), dtype=np.int64)


def class_array(names: Sequence[Any]) -> NDArray[Any]:
    """Return class names as an array that keeps what they are.

    Examples
    --------
    >>> class_array(["no", "yes"]), class_array([1, "one"])
    (array(['no', 'yes'], dtype='<U3'), array([1, 'one'], dtype=object))
    """
    kinds = {type(name) for name in names}
    if len(kinds) == 1 and not isinstance(names[0], tuple):
        return np.array(names)
    found = np.empty(len(names), dtype=object)
    found[:] = names
    return found
