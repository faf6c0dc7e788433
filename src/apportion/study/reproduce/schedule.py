"""How long cells take, and which of them are started together.

The *share* of a cell is the time it takes of a computer that it has to itself or shares: of every
epoch after the first, its length divided by the number of cells that were running. So the shares of
cells that run together add up to the time they take, whatever their lengths. Fewer than four
cannot fill a GPU, so that the same cell has a larger share there; predictions are of what it has
among four or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from apportion.study.reproduce.paper import Cell

__all__ = ["SETTING_UP", "next_group", "predicted", "time_together"]

SETTING_UP = 60.0  # seconds: reading, compiling, recording
FEWER = {1: 1.7, 2: 1.3, 3: 1.1}  # how much larger the shares of so many cells are

# Seconds per epoch of what was never run: a guess, on the safe side.
UNKNOWN = {"cuda": 0.6, "cpu": 600.0}
PASSES = {"pi-model": 2, "llp-vat": 4}


def predicted(cell: Cell, lines: Iterable[Mapping[str, Any]], hardware: str, device: str) -> float:
    """Return the share of a cell among four in seconds, by what similar cells took, or a guess."""
    here = [line for line in lines if line["hardware"] == hardware]
    for alike, choose in (
        (("method", "dataset", "bag_size"), median),
        (("method", "dataset"), max),
        (("method",), max),
    ):
        like = [line for line in here if all(line[n] == getattr(cell, n) for n in alike)]
        if like:
            return choose(map(_of_an_epoch, like)) * cell.epochs
    return UNKNOWN[device] * PASSES.get(cell.method, 1) * cell.epochs


def _of_an_epoch(line: Mapping[str, Any]) -> float:
    """Return the share of one epoch of a recorded cell, had it been one of four."""
    return float(line["share"] / line["epochs"]) / FEWER.get(line["together"], 1.0)


def time_together(shares: Sequence[float]) -> float:
    """Return the seconds that cells take together."""
    return SETTING_UP + FEWER.get(len(shares), 1.0) * sum(shares)


def next_group(
    cells: Sequence[Cell],
    shares: Mapping[Cell, float],
    at_once: int,
    remaining: float | None,
    known: Iterable[tuple[str, str]],
) -> list[Cell]:
    """Return the first cells that end in time together; those that would not are passed over.

    If time is limited, the first cell of a method and a dataset that were never timed is run alone:
    it tells the time of the others.
    """
    known, group = set(known), list[Cell]()
    for cell in cells:
        new = remaining is not None and (cell.method, cell.dataset) not in known
        if len(group) == at_once or (new and group):
            break
        total = time_together([*(shares[other] for other in group), shares[cell]])
        if remaining is None or total <= remaining:
            group.append(cell)
            if new:
                break
    return group
