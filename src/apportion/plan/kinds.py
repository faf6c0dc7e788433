"""What the instances are, as far as plans depend on it."""

from __future__ import annotations

from typing import Any

from apportion.bags.bags import Bags
from apportion.bags.items import Items
from apportion.bags.sparse import is_sparse

__all__ = [
    "IMAGES",
    "ITEMS",
    "SIGNALS",
    "SPARSE",
    "TABLE",
    "called",
    "kind_of_instances",
    "kind_of_rows",
]

TABLE, IMAGES, SIGNALS = "table", "images", "signals"
SPARSE, ITEMS = "sparse rows", "items of a Dataset"


def kind_of_instances(bags: Bags) -> str:
    """Return what the instances are, by their shape: "table", "signals" or "images".

    Rows of numbers that are no table in memory are "sparse rows" or "items of a Dataset".
    """
    return TABLE if bags.x is None else kind_of_rows(bags.x)


def kind_of_rows(x: Any) -> str:
    """Return what the rows of an array, a frame, a Dataset, or the first of a tuple of them are."""
    first = x.parts[0] if isinstance(x, Items) else x[0] if isinstance(x, tuple) else x
    flat = ITEMS if isinstance(x, Items) else SPARSE if is_sparse(first) else TABLE
    return {3: SIGNALS, 4: IMAGES}.get(len(first.shape), flat)


def called(kind: str) -> str:
    """Return what instances of a kind are called in messages."""
    return {TABLE: "rows of a table", ITEMS: "rows of a Dataset"}.get(kind, kind)
