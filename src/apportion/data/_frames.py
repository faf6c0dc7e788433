"""Frames of signals in a table: their order, and what is no measurement among the channels."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.bags.bags import Bags
from apportion.bags.columns import Columns
from apportion.bags.notation import date_orders, is_ordered
from apportion.data._cells import read_dates
from apportion.data.constants import find_constants
from apportion.data.giveaways import check_for_truth
from apportion.data.pieces import naming
from apportion.errors import DataError, Option, Words, and_more, comma_list, listing

log = logging.getLogger("apportion")

Ints = NDArray[np.int64]

MOST_PADDED = 0.05  # of the longest signal: a mean length below it wastes nearly all of the work


def ranks_in_time(source: str, order: str, cells: pd.Series[Any]) -> Ints:
    """Return the rank of each cell among the distinct ones, by which frames are sorted."""
    if isinstance(cells.dtype, pd.CategoricalDtype) and cells.dtype.ordered:
        codes: Ints = np.asarray(cells.cat.codes, np.int64)
        return codes
    has_texts = any(isinstance(cell, str) for cell in cells.unique().tolist())
    times = _times(source, order, cells) if has_texts else None
    try:
        return np.unique(cells.to_numpy() if times is None else times, return_inverse=True)[1]
    except TypeError as error:
        raise DataError(
            f"{source}: column {order!r} cannot be sorted: {error}.",
            "All of its cells must be numbers, or all of them dates or text.",
        ) from error


def _times(source: str, order: str, cells: pd.Series[Any]) -> Any:
    """Return the numbers or days that texts are; None if as texts they sort as they should."""
    texts = [str(text) for text in cells.unique()]
    with suppress(ValueError):
        numbers = cells.astype("str").astype(float)
        if np.isfinite(numbers).all():
            return numbers
    orders = date_orders(texts)
    if len(orders) == 1 or (orders and not any(map(is_ordered, texts))):
        return read_dates(cells.astype("str"), min(orders))
    how = "Write numbers, or dates as 2024-12-31 23:59:59.5; or sort the rows, and name no order."
    if orders:
        either = next(filter(is_ordered, texts))
        raise DataError(
            f"{source}: column {order!r} has dates such as {either!r}, of which the day or the "
            "month may come first.",
            how,
        )
    for text, following in pairwise(sorted(texts)):
        if _by_numbers(text) > _by_numbers(following):
            raise DataError(
                f"{source}: column {order!r} holds text, and as text {text!r} comes before "
                f"{following!r}.",
                how,
            )
    return None


def _by_numbers(text: str) -> list[Any]:
    """Return what sorts texts by the numbers in them: x2 before x10."""
    parts = re.split(r"(\d+)", text)
    return [int(part) if k % 2 else part for k, part in enumerate(parts)]


def tell_ties(source: str, order: str, keys: Ints, number: Ints, names: list[Any]) -> None:
    ties = (keys[1:] == keys[:-1]) & (number[1:] == number[:-1])
    if ties.any():
        name = names[number[int(ties.argmax())]]
        log.warning(
            "%s: column %r has a value several times in signal %r%s; such frames stay in the order "
            "of their rows.",
            source,
            order,
            name,
            and_more(int(ties.sum())),
        )


def tell_padding(source: str, lengths: Ints, names: Sequence[Any]) -> None:
    longest, mean = int(lengths.argmax()), float(lengths.mean())
    if mean < MOST_PADDED * lengths[longest]:
        log.warning(
            "%ssignal %r has %s frames, and the mean signal %.1f: all are padded to the longest, "
            "so that %.1f%% of the frames that are kept and computed are padding. Cut such "
            "signals, or leave them out.",
            source,
            names[longest],
            f"{lengths[longest]:,}",
            mean,
            100 * (1 - mean / lengths[longest]),
        )


def check_channels(
    source: str, bags: Bags, values: NDArray[np.float32], number: Ints, channels: Sequence[str]
) -> None:
    """Look for what is no measurement among the channels: the truth, and what stands for bags.

    They are looked for where a channel has one value throughout each signal, as a column of a table
    of signals. All columns that nobody names are channels, so they may be among them.
    """
    _, first = np.unique(number, return_index=True)
    constant = np.flatnonzero((values == values[first][number]).all(axis=0))
    names = tuple(channels[j] for j in constant.tolist())
    if not names or bags.n_classes < 2:
        return
    columns = Columns(names, dict.fromkeys(names, 0.0), (), (), {}, {})
    table = bags.with_rows(values[first][:, constant], columns)
    with naming(source):
        check_for_truth(table, remedy=_without)
    if found := [column.name for column in find_constants(table)]:
        log.warning(
            "%s: %s %s one value throughout each bag: this tells bags apart and not signals within "
            "a bag, and can stand for the bag itself, so that less is learned from other channels. "
            "Learn without: %s.",
            source,
            listing(map(repr, found)),
            "has" if len(found) == 1 else "have",
            Option("channels", "[…]", comma_list(found)),
        )


def _without(name: str) -> Words:
    return (
        "Pass ",
        Option("label", repr(name), name),
        " if it is the truth, which is then used for accuracies alone; or learn without it: ",
        Option("channels", "[…]", comma_list([name])),
        ".",
    )
