"""Several runs side by side: their results, and how their options differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.errors import count
from apportion.metrics import bootstrap
from apportion.report.read import SET_NAMES, Interval, RunRead, without_folders, written
from apportion.report.weigh import evidence, off_bags
from apportion.report.words import duration, listed, percent, plain, shortened, spanned

SUPPORT = {
    "shown": 0,
    "mixed": 1,
    "expected": 1,
    "unknown": 2,
    "doubtful": 3,
}  # the less the better


class Measure(NamedTuple):
    """A number of each run and set of bags, and how sure it is."""

    name: str
    value: Callable[[RunRead, str], float | None]
    interval: Callable[[RunRead, str], Interval]
    write: Callable[..., str]
    best: Callable[..., float]


class Cell(NamedTuple):
    """A number in a table of runs."""

    text: str
    interval: str = ""
    is_best: bool = False


ERROR = Measure("error", RunRead.error, RunRead.error_interval, plain, min)
ACCURACY = Measure("accuracy", RunRead.accuracy, RunRead.accuracy_interval, percent, max)


def compared(runs: Sequence[RunRead]) -> list[tuple[str, list[Cell]]]:
    """Return the columns of a table of runs: a title, and one cell per run.

    A column that no run fills is left out. The best is marked only if all runs were evaluated on
    the same bags, and it is better than each other run beyond the uncertainty of the bags.
    """
    comparable, columns = same_bags(runs), []
    for measure in (ERROR, ACCURACY):
        for of, name in SET_NAMES.items():
            values = [measure.value(run, of) for run in runs]
            if all(value is None for value in values):
                continue
            best = _best(runs, of, measure) if comparable else None
            cells = []
            for n, (run, value) in enumerate(zip(runs, values, strict=True)):
                interval = spanned(measure.interval(run, of), measure.write)
                cells.append(Cell(measure.write(value), interval, n == best))
            columns.append((f"{name} {measure.name}", cells))
    return [*columns, ("time", [Cell(duration(run.total_seconds)) for run in runs])]


def verdict(runs: Sequence[RunRead]) -> Iterator[str]:
    """Say which run has the lowest error, which to take, and what all of them find."""
    if not same_bags(runs):
        yield (
            "These runs were not all evaluated on the same bags, or have not all ended: their "
            "numbers cannot be compared directly."
        )
        return
    of = runs[0].held_out or "train"
    best, n_bags = _best(runs, of, ERROR), len(runs[0].evaluations[of].ids)
    bags = f"the {count(n_bags, f'{SET_NAMES[of]} bag')}"
    which = f"{bags}, which all runs learned from" if of == "train" else bags
    if best is not None:
        yield f"On {which}, {runs[best].name} has the lowest error, beyond what chance explains."
    else:
        names = listed(run.name for run in runs)
        yield (
            f"On {which}, no run is clearly the best of {names}: another draw of such bags could "
            "change the order of their errors."
        )
    yield _recommended(runs, best, bags)
    off = [{str(run.evaluations[of].ids[bag]): None for bag in off_bags(run, of)} for run in runs]
    if shared := [name for name in off[0] if all(name in own for own in off)]:
        names = listed((shortened(name, 24) for name in shared), 3)
        one = len(shared) == 1
        yield (
            f"{names} {'is' if one else 'are'} off in all runs, whatever the method: first check "
            f"whether {'its' if one else 'their'} known shares are right."
        )


def _recommended(runs: Sequence[RunRead], best: int | None, bags: str) -> str:
    """Say which run to take: the clearly best, else the best supported, else the quickest."""
    ranks = [SUPPORT[evidence(run)] for run in runs]
    least = min(ranks)
    if least == SUPPORT["doubtful"]:
        return "Use none of them yet: none is clearly better than the overall shares."
    if best is not None and ranks[best] == least:
        return f"Take {runs[best].name}."
    chosen = [run for run, rank in zip(runs, ranks, strict=True) if rank == least]
    take = min(chosen, key=lambda run: run.total_seconds)
    others = [run.name for run, rank in zip(runs, ranks, strict=True) if rank > least]
    if not others:
        return f"Take {take.name}: it is as good as any, and took the least time to train."
    alone = "it alone" if len(chosen) == 1 else f"as {listed(run.name for run in chosen)}, it"
    also = "" if len(chosen) == 1 else ", and it took the least time to train"
    if least == SUPPORT["shown"]:
        return (
            f"Take {take.name}: {alone} is clearly better than the overall shares on {bags}{also}."
        )
    if least == SUPPORT["unknown"]:
        return f"Take {take.name}: nothing speaks against it, and that is all that can be said."
    it, they, are = ("it", "It", "is") if len(others) == 1 else ("them", "They", "are")
    return (
        f"Take {take.name}: {alone} was also tried on bags that its nets had not seen, and did "
        f"clearly better there than the overall shares{also}. {listed(others)} may be as good, but "
        f"only {bags} speak for {it}, and do not show it: {they.lower()} {are} not to be used yet "
        "for want of evidence, not because of a larger error."
    )


def _best(runs: Sequence[RunRead], of: str, measure: Measure) -> int | None:
    """Return which run is better than each other by more than the bags leave uncertain."""
    values = [measure.value(run, of) for run in runs]
    known = [value for value in values if value is not None]
    if len(known) < len(runs) or len(runs) < 2 or any(of not in run.evaluations for run in runs):
        return None
    first = known.index(measure.best(known))
    ours, weights = _per_bag(runs[first], of, measure)
    for run in (*runs[:first], *runs[first + 1 :]):
        theirs, others = _per_bag(run, of, measure)
        interval = bootstrap(theirs - ours, weights) if np.array_equal(weights, others) else None
        if interval is None or interval[0] <= 0 <= interval[1]:
            return None
    return first


def _per_bag(run: RunRead, of: str, measure: Measure) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the values of the bags of a set, and their weights."""
    own = run.evaluations[of]
    if measure is ACCURACY and own.right is not None and own.known is not None:
        return own.right, own.known
    return run.variations(of), np.ones(len(own.ids))


def same_bags(runs: Sequence[RunRead]) -> bool:
    """Return whether all runs have ended, and were evaluated on the same sets of bags."""
    first = runs[0]
    return bool(first.evaluations) and all(
        list(run.classes) == list(first.classes)
        and run.evaluations.keys() == first.evaluations.keys()
        and all(
            own.ids == first.evaluations[of].ids
            and np.array_equal(own.given, first.evaluations[of].given)
            for of, own in run.evaluations.items()
        )
        for run in runs
    )


def differences(runs: Sequence[RunRead]) -> list[tuple[str, list[str]]]:
    """List the options that are not the same in all runs.

    Examples
    --------
    >>> from pathlib import Path
    >>> def run(**options):
    ...     return RunRead("a", Path("a"), {"train": options}, "", [], [], {}, None, {})
    >>> differences([run(epochs=5, seed=0), run(epochs=9, seed=0)])
    [('train.epochs', ['5', '9'])]
    """
    flat = [
        {
            f"{section}.{name}": value
            for section, options in run.config.items()
            if isinstance(options, dict) and section != "plan"  # the other sections have its values
            for name, value in options.items()
        }
        for run in runs
    ]
    names = dict.fromkeys(name for options in flat for name in options)
    rows = {name: [options.get(name) for options in flat] for name in names}
    differ = {name: values for name, values in rows.items() if len(set(map(written, values))) > 1}
    return [(name, [_written(value) for value in values]) for name, values in differ.items()]


def _written(value: Any) -> str:
    if value is None:
        return "–"
    shown = without_folders(value)
    return shown if isinstance(shown, str) else written(shown)
