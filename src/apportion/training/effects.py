r"""Which columns of a table matter, told without labels.

Let e be the proportion error of a model on some bags, and e' that on the same bags after the values
of one column were shuffled over all of their rows, so that the column tells nothing any more. The
effect of the column is :math:`e' - e`: how much worse proportions are predicted without it. It is
the mean over `REPEATS` shuffles, with an interval over the bags.

Columns that tell the same share their effect: each makes up for the other. And the effect is one on
bags: a column that matters only for who is who within a bag has none.

The cost is :math:`R m n` confidences, for R shuffles, m columns and n rows, so that of large data
some bags, or some rows of each, are drawn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apportion.bags.bags import Bags
from apportion.errors import DataError
from apportion.metrics import FEWEST_BAGS, bag_means, bootstrap, total_variation
from apportion.randomness import Purpose, generator
from apportion.runs.evaluation import MOST_COLUMNS, Effects, Evaluation, Floats, Ints

__all__ = ["columns_of_parts", "measure_effects", "with_effects"]

log = logging.getLogger("apportion")

REPEATS = 3
MOST_CONFIDENCES = 1_000_000  # that are computed in all: seconds for an average of small nets
ALWAYS = 100_000  # confidences that are computed however short the training was
FEWEST_ROWS = 200  # that are taken however many columns there are
ENOUGH_BAGS = 30  # held out, to tell columns apart on them rather than on the training bags
DRAWN_BAGS = 30  # whole bags are drawn if so many are within the limit

Parts = tuple[NDArray[Any], ...]
Places = dict[str, list[tuple[int, int]]]  # of each column of a table: part, and column of it


def with_effects(
    evaluations: Mapping[str, Evaluation],
    sets: Mapping[str, Bags],
    confidence: Callable[[Parts], NDArray[Any]],
    seed: int,
    *,
    seen: int | None = None,
) -> dict[str, Evaluation]:
    """Add the effects of columns to the evaluation of the set that they are measured on.

    That is the test or the validation bags, if there are at least 30 of them, else the training
    bags. What is not a table is left as it is.

    Parameters
    ----------
    confidence, seed
        As of `measure_effects`.
    seen : int, optional
        How many instances the training of a net, which may be a large one, was shown: no more
        confidences are computed than that, or than 100,000.
    """
    found, places = dict(evaluations), columns_of_parts(sets["train"])
    if len(places) > MOST_COLUMNS:
        log.info("Effects of columns are not measured: there are %d.", len(places))
    enough = [of for of in ("test", "valid") if of in sets and sets[of].n_bags >= ENOUGH_BAGS]
    of = [*enough, "train"][0]
    if not 1 <= len(places) <= MOST_COLUMNS or sets[of].n_bags < FEWEST_BAGS:
        return found
    try:
        most = MOST_CONFIDENCES if seen is None else min(MOST_CONFIDENCES, max(seen, ALWAYS))
        effects = measure_effects(sets[of], places, confidence, seed, most)
    except (DataError, RuntimeError) as error:  # of no use to the run, which is trained
        log.warning("Effects of columns are not measured: %s", str(error).partition("\n")[0])
        return found
    return found | {of: replace(found[of], effects=effects)}


def columns_of_parts(bags: Bags) -> Places:
    """Return the places of each column in the parts of `x`: none if that is no table of numbers.

    Examples
    --------
    >>> columns_of_parts(Bags.from_rows(np.zeros((2, 2)), [0, 1], truth=[0, 1]))
    {'x1': [(0, 0)], 'x2': [(0, 1)]}
    """
    parts, columns = () if bags.x is None else bags.parts, bags.columns
    if not all(isinstance(part, np.ndarray | Tensor) and len(part.shape) == 2 for part in parts):
        return {}
    widths = [int(part.shape[1]) for part in parts]
    if columns is None:
        is_table = len(parts) == 1 and _is_float(parts[0])  # not the ids of words
        return {f"x{n + 1}": [(0, n)] for n in range(widths[0])} if is_table else {}
    if widths != [columns.n_numbers, *([len(columns.codes)] if columns.codes else [])]:
        return {}
    found = {name: [(0, n)] for n, name in enumerate(columns.numeric)}
    for n, name in enumerate(columns.gaps):
        found[name].append((0, len(columns.means) + n))
    found |= {name: [(1, n)] for n, name in enumerate(columns.categorical)}
    return {name: found[name] for name in columns.names}


def _is_float(part: Any) -> bool:
    return part.is_floating_point() if isinstance(part, Tensor) else part.dtype.kind == "f"


def measure_effects(
    bags: Bags,
    places: Places,
    confidence: Callable[[Parts], NDArray[Any]],
    seed: int,
    most: int = MOST_CONFIDENCES,
) -> Effects:
    """Measure how much the proportion error grows without each column.

    Parameters
    ----------
    confidence : callable
        Maps parts of `x` to confidences (n, C).
    seed : int
        Of the bags that are drawn and of the shuffles, which nothing else uses.
    most : int
        How many confidences are computed at most, but at least those of 200 rows.

    Examples
    --------
    >>> x = np.random.default_rng(0).random((600, 2))
    >>> said = lambda parts: np.stack([1 - parts[0][:, 0], parts[0][:, 0]], axis=1)
    >>> order = np.argsort(x[:, 0])
    >>> bags = Bags.from_rows(x[order], np.arange(600) // 20, said((x[order],)).reshape(
    ...     30, 20, 2).mean(axis=1))
    >>> effects = measure_effects(bags, columns_of_parts(bags), said, 0)
    >>> effects.names, effects.increase[:, 0] > 0.1
    (['x1', 'x2'], array([ True, False]))
    """
    rows = max(most // (REPEATS * len(places)), FEWEST_ROWS)
    which, at, offsets = _drawn(bags, rows, seed)
    given, parts = bags.proportions[which], _rows(bags, bags.index[at])

    def variation() -> Floats:
        found: Floats = total_variation(given, bag_means(confidence(parts), offsets))
        return found

    before, increase = variation(), np.empty((len(places), 3))
    for number, own in enumerate(places.values()):
        kept = [parts[part][:, n].copy() for part, n in own]
        grown = np.zeros(len(which))
        for repeat in range(REPEATS):
            order = generator(seed, Purpose.EFFECTS, number + 1, block=repeat).permutation(len(at))
            for (part, n), values in zip(own, kept, strict=True):
                parts[part][:, n] = values[order]
            grown += (variation() - before) / REPEATS
        for (part, n), values in zip(own, kept, strict=True):
            parts[part][:, n] = values
        mean = float(grown.mean())
        low, high = bootstrap(grown) or (mean, mean)
        increase[number] = mean, min(low, mean), max(high, mean)
    return Effects(list(places), increase, np.array([len(which), len(at)]))


def _drawn(bags: Bags, most: int, seed: int) -> tuple[Ints, Ints, Ints]:
    """Draw bags and instances of them; return both, and the offsets of the bags."""
    order = generator(seed, Purpose.EFFECTS, 0).permutation(bags.n_bags)
    fitting = int(np.searchsorted(np.cumsum(bags.sizes[order]), most, side="right"))
    which = np.sort(order[: max(fitting, min(DRAWN_BAGS, bags.n_bags))])
    taken = np.minimum(bags.sizes[which], max(most // len(which), 1))
    if bags.sizes[which].sum() <= most:
        taken = bags.sizes[which]
    draw = generator(seed, Purpose.EFFECTS, 0, block=1)
    some = [
        bags.offsets[bag] + np.sort(draw.permutation(int(bags.sizes[bag]))[:n])
        for bag, n in zip(which.tolist(), taken.tolist(), strict=True)
    ]
    return which, np.concatenate(some), np.concatenate([[0], np.cumsum(taken)])


def _rows(bags: Bags, rows: Ints) -> Parts:
    """Return copies of rows, as numpy has them."""
    return tuple(_copied(part, rows) for part in bags.parts)


def _copied(part: Any, rows: Ints) -> NDArray[Any]:
    if not isinstance(part, Tensor):
        return np.array(part[rows])
    some = part[torch.from_numpy(rows).to(part.device)].cpu()
    return (some.float() if some.dtype == torch.bfloat16 else some.clone()).numpy()
