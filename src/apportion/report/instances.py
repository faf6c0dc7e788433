"""Instances for a report, which a run does not keep: taken from the bags that it learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.bags.bags import Bags
from apportion.errors import RunError, count
from apportion.report.read import SET_NAMES, Rows, RunRead
from apportion.runs.evaluation import plain_names

__all__ = ["Instances", "with_instances"]


@dataclass(frozen=True, eq=False)
class Instances:
    """The bags of a run, and the names of their rows if these have any."""

    sets: Mapping[str, Bags]  # by "train", "valid" and "test"
    names: Sequence[str] | None = None  # of the rows of x: files or signals


def with_instances(run: RunRead, found: Instances | Mapping[str, Bags]) -> RunRead:
    """Return a run with the rows that it is least sure of, after a check that they are the same.

    Raises
    ------
    RunError
        If the bags are not those of the run, as far as it knows them: their names, their sizes,
        their proportions, and the numbers of rows in them.
    """
    own = found if isinstance(found, Instances) else Instances(found)
    of = run.held_out
    if of is None:  # nothing is shown before the end of training
        return run
    if of not in own.sets:
        raise RunError(
            f"{run.name} shows instances of its {SET_NAMES[of]} bags, but only "
            f"{', '.join(map(repr, own.sets)) or 'none'} are given.",
            f"Pass instances={{{of!r}: bags}}.",
        )
    bags, unsure = own.sets[of], run.evaluations[of].unsure
    _check(run, of, bags)
    if bags.x is None:
        raise RunError(
            f"the {SET_NAMES[of]} bags that are given for {run.name} have no x.",
            "Pass bags with their rows.",
        )
    parts = tuple(_taken(part, unsure.rows.tolist()) for part in bags.parts)
    names = None if own.names is None else [str(own.names[row]) for row in unsure.rows.tolist()]
    return replace(run, instances={of: Rows(parts, names)})


def _check(run: RunRead, of: str, bags: Bags) -> None:
    known = run.evaluations[of]
    different = None
    if plain_names(bags.ids) != known.ids:
        n, before = count(bags.n_bags, "bag"), f"{len(known.ids):,}"
        different = f"{n} instead of {before}" if bags.n_bags != len(known.ids) else "other names"
    elif not np.array_equal(bags.sizes, known.sizes):
        at = int(np.flatnonzero(bags.sizes != known.sizes)[0])
        different = (
            f"{count(int(bags.sizes[at]), 'instance')} in bag {known.ids[at]!r} instead of "
            f"{known.sizes[at]:,}"
        )
    elif not np.array_equal(bags.proportions, known.given):
        different = "other proportions"
    else:
        pairs = zip(known.unsure.rows.tolist(), known.unsure.bags.tolist(), strict=True)
        moved = next((row for row, bag in pairs if row not in bags.rows(bag)), None)
        different = None if moved is None else f"row {moved:,} in another bag"
    if different is not None:
        raise RunError(
            f"the {SET_NAMES[of]} bags are not those that {run.name} was evaluated on: they have "
            f"{different}.",
            "Pass the data as they were when it was trained, or leave instances out.",
        )


def _taken(part: Any, rows: Sequence[int]) -> NDArray[Any]:
    """Return rows of an array, a tensor, or whatever is read row by row."""
    return np.stack([_as_array(part[row]) for row in rows])


def _as_array(row: Any) -> NDArray[Any]:
    if hasattr(row, "cpu"):  # a tensor, whose type numpy may not have
        row = row.detach().cpu()
        row = row.float() if "bfloat16" in str(row.dtype) else row
    return np.asarray(row)
