"""The targets that an estimator is given, as bags without rows.

They come in one of four ways:

- labels alone: every instance is a bag of one, which is supervised learning;
- bags and labels: of the labels only their counts in every bag are used;
- bags and rows of proportions, each instance having those of its bag;
- bags and a table of proportions or counts, which may hold further bags.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from apportion.bags.bags import UNKNOWN, Bags, put_in_bags
from apportion.bags.names import Register, sorted_names
from apportion.bags.read import SKIP, Placed, Table, collected, factorize
from apportion.bags.totals import without_totals
from apportion.errors import BagError, ConfigError, Option, Words, count

__all__ = ["has_rows_of_proportions", "in_known_bags", "in_order", "known_bags", "read_targets",
           "read_truth"]  # fmt: skip


def known_bags(
    X: Any,
    n_rows: int,
    y: Any,
    bags: Any,
    proportions: Any,
    classes: list[Any] | None = None,
    *,
    normalize: bool = False,
) -> Bags:
    """Return X if it is bags, and else the bags of its rows, as `read_targets` does.

    Their classes are in the order that is known from before, if any.
    """
    if not isinstance(X, Bags):
        how: dict[str, Any] = {"classes": classes, "normalize": normalize}
        return read_targets(n_rows, y, bags, proportions, **how)
    if y is not None or bags is not None or proportions is not None:
        raise ConfigError(
            "X is Bags, which have their proportions.",
            "Pass neither y nor bags nor proportions with them.",
        )
    return X if classes is None else in_order(X, classes)


def read_targets(
    n_rows: int,
    y: Any = None,
    bags: Any = None,
    proportions: Any = None,
    *,
    classes: Sequence[Hashable] | None = None,
    normalize: bool = False,
) -> Bags:
    """Put rows into bags, whichever way their classes are given; the bags have no `x` yet.

    Parameters
    ----------
    classes : sequence, optional
        The classes of an earlier fit, in their order.
    normalize : bool
        Whether to rescale proportions, so that those of every bag sum to 1.
    """
    if bags is None and proportions is not None:
        raise BagError("there are proportions, but no bags.", "Pass bags= too: one id per row.")
    if bags is None and y is None:
        raise BagError(
            "This LLPClassifier requires y to be passed, but the target y is None.",
            "Pass bags= and proportions= to learn from bags, or labels y to learn from these.",
        )
    in_rows = has_rows_of_proportions(y)
    if bags is None and in_rows:
        raise BagError(
            f"y should be a 1d array of labels, but is of shape {np.asarray(y).shape}, and there "
            "are no bags.",
            "Pass bags= as well, if these are the proportions of each row's bag.",
        )
    if bags is None:
        return _from_labels(np.arange(n_rows), y, classes)
    ids = _bag_ids(bags, n_rows)
    if proportions is not None:
        return _from_table(ids, proportions, classes, y, normalize)
    if y is None:
        raise BagError(
            "there are bags, but neither proportions nor y.",
            "Pass proportions=: a DataFrame indexed by bag id with one column per class, or a "
            "dict.",
        )
    if in_rows:
        return _from_table(ids, _shared_rows(y, ids), classes, None, normalize)
    return _from_labels(ids, y, classes)


def has_rows_of_proportions(y: Any) -> bool:
    """Tell whether y has proportions, one row per instance, rather than labels."""
    shape = () if y is None else np.asarray(y).shape
    return len(shape) == 2 and shape[1] > 1


def read_truth(y: Any, classes: Sequence[Hashable]) -> NDArray[Any]:
    """Return labels to evaluate by, and None where y has None, NaN, or −1 that is no class.

    Examples
    --------
    >>> read_truth([1, -1, None, 0], [0, 1]), read_truth([1, -1], [-1, 1])
    (array([1, None, None, 0], dtype=object), array([1, -1], dtype=object))
    """
    if np.ndim(y) != 1:
        y = column_or_1d(y, warn=True)
    # Of a list numpy would make text where it has both text and NaN.
    plain = isinstance(y, list | tuple) or hasattr(y, "iloc")
    labels = pd.Series(y if plain else np.asarray(y), dtype=object).to_numpy(copy=True)
    labels[pd.isna(labels)] = None
    if Register(classes).place(UNKNOWN) is None:
        labels[labels == UNKNOWN] = None
    return labels


def in_order(bags: Bags, classes: Sequence[Hashable]) -> Bags:
    """Return bags with their classes in the order of an earlier fit."""
    order = Register(bags.classes).places(classes)
    if len(order) != bags.n_classes or (order < 0).any():
        raise BagError(
            f"the bags have the classes {bags.classes}, but those learned are {tuple(classes)}.",
            "Pass classes= to Bags or read_table, so that both have the same.",
        )
    return replace(
        bags,
        proportions=bags.proportions[:, order],
        counts=bags.counts[:, order],
        classes=tuple(classes),
        truth=None,
    )


def in_known_bags(
    ids: Any,
    table: Table,
    *,
    truth: Any = None,
    normalize: bool = False,
    skip_unplaced: bool | None = None,
    rescale: tuple[str | Option, ...] = ("pass ", Option("normalize"), " to rescale"),
) -> Bags:
    """Put rows into those bags of a table that have any; counts are recognised by their sums.

    Parameters
    ----------
    ids : sequence
        The bag of every row.
    truth : sequence, optional
        The true class of every row, or None or NaN if it is unknown.
    skip_unplaced : bool, optional
        Whether rows without a bag, or of a bag that is not in the table, are left out; None if the
        caller has no such option.
    rescale : words
        How the caller can rescale the table, for errors.
    """
    missing: Words | None = None if skip_unplaced else ""
    if skip_unplaced is False:
        missing = ("Fill in the bags of these rows, or pass ", SKIP, " to leave them out.")
    placed = Placed(*factorize(ids, "bag id", len(ids), missing=missing))
    present = Register(placed.keys)
    kept = [i for i, name in enumerate(table.ids) if present.place(name) is not None]
    if not kept:
        first, other = placed.keys[0], next(iter(table.ids), None)
        raise BagError(
            f"none of the bags is in the table: the first of them is {first!r} "
            f"({type(first).__name__}), and the first in the table {other!r} "
            f"({type(other).__name__}).",
            "The table must be indexed by bag id, for example P.set_index('ward'), and ids must be "
            "written alike: '007' is not 7.",
        )
    known_ids = [table.ids[i] for i in kept]
    if skip_unplaced:
        placed = placed.among(known_ids)
    remedy: Words = (
        "Add it to the table, or leave such rows out: X[keep] and bags[keep], where keep tells "
        "which bags are in the table."
    )
    if skip_unplaced is False:
        remedy = ("Add it to the table, or pass ", SKIP, " to leave its rows out.")
    sizes = np.bincount(placed.at(known_ids, remedy), minlength=len(kept))
    own = Table(known_ids, table.classes, table.values[kept], table.digits)
    own = without_totals(own, sizes)
    counts = np.array_equal(own.values.sum(axis=1), sizes) and bool((sizes > 1).any())
    known = None if truth is None else factorize(truth, "label", len(ids), missing=None)
    try:
        return put_in_bags(None, placed, own, counts=counts, normalize=normalize, truth=known)
    except BagError as error:
        if not error.names("normalize"):
            raise
        counted = ". A table is taken as counts if all of its rows sum to the sizes of their bags."
        raise error.remedied(("Add the missing class, or ", *rescale, counted)) from None


def _bag_ids(bags: Any, n_rows: int) -> NDArray[Any]:
    """Return bag ids unchanged: numpy would turn mixed ids into text, some integers into floats."""
    if isinstance(bags, str) or not hasattr(bags, "__len__"):
        raise BagError(
            f"bags are {bags!r}.", "Pass the bag id of every row: X['ward'] rather than 'ward'."
        )
    if isinstance(bags, np.ndarray):
        ids = column_or_1d(bags) if bags.ndim == 2 and bags.shape[1] == 1 else bags
    else:
        items = bags.tolist() if hasattr(bags, "tolist") else list(bags)
        ids = np.empty(len(items), dtype=object)
        ids[:] = items
    if ids.shape != (n_rows,):
        raise BagError(
            f"X has {n_rows:,} rows, but bags are of shape {ids.shape}.",
            "Pass one bag id for each row, in the order of the rows.",
        )
    if (missing := pd.isna(ids)).any():
        raise BagError(
            f"the bag id of {count(int(missing.sum()), 'row')} is missing; row {missing.argmax()} "
            "is the first.",
            "Fill them in, or leave these rows out: X[keep] and bags[keep], with "
            "keep = pandas.notna(bags).",
        )
    return ids


def _from_labels(ids: Any, y: Any, classes: Sequence[Hashable] | None) -> Bags:
    labels = column_or_1d(y, warn=True)
    check_consistent_length(ids, labels)
    if (missing := pd.isna(labels)).any():
        raise BagError(
            f"Input y contains NaN: the label of {count(int(missing.sum()), 'row')} is missing; "
            f"row {missing.argmax()} is the first.",
            "Leave these rows out of X; or pass bags= and proportions=, with which labels are only "
            "for evaluation, and may be missing.",
        )
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    names = np.unique(labels).tolist() if classes is None else list(classes)
    return Bags.from_rows(None, ids, truth=labels, classes=names)


def _from_table(
    ids: NDArray[Any],
    proportions: Any,
    classes: Sequence[Hashable] | None,
    y: Any,
    normalize: bool,
) -> Bags:
    proportions = collected(proportions)
    if not isinstance(proportions, pd.Series | Mapping) and not hasattr(proportions, "columns"):
        _check_array(proportions, ids)
    table = _in_order(proportions, classes, list(dict.fromkeys(ids.tolist())))
    truth = None if y is None else read_truth(y, table.classes)
    rescale = ("pass LLPClassifier(", Option("normalize"), ") to rescale")
    bags = in_known_bags(ids, table, truth=truth, normalize=normalize, rescale=rescale)
    if classes is not None and len(bags.classes) != len(classes):
        Table.read(proportions, classes, ids[:1].tolist())  # which says what is wrong
    return bags


def _in_order(proportions: Any, classes: Sequence[Hashable] | None, keys: list[Any]) -> Table:
    """Read a table, with its classes sorted as scikit-learn has them, or in a known order.

    Columns that are none of known classes, as totals are not, come last.
    """
    table = Table.read(proportions, None, keys)
    first = sorted_names(table.classes) if classes is None else list(classes)
    places = Register(table.classes).places(first).tolist()
    if min(places, default=0) < 0:  # a table without names
        return Table.read(proportions, classes, keys)
    others = [place for place in range(len(table.classes)) if place not in places]
    names = [*first, *(table.classes[place] for place in others)]
    return replace(table, classes=names, values=table.values[:, places + others])


def _check_array(proportions: Any, ids: NDArray[Any]) -> None:
    if isinstance(proportions, list):
        raise BagError(
            "proportions are a list.",
            "Pass a DataFrame indexed by bag id or a dict. (scikit-learn makes a list of a dict "
            "that has as many bags as X has rows: leave out the bags that have none.)",
        )
    table, distinct = np.asarray(proportions), dict.fromkeys(ids.tolist())
    if table.ndim != 2 or not all(isinstance(bag, int) for bag in distinct):
        raise BagError(
            f"proportions are an array of shape {table.shape}, and bags of type "
            f"{type(next(iter(distinct))).__name__}.",
            "Pass a DataFrame indexed by bag id or a dict; or an array with one row per bag, and "
            "bags that are the numbers of its rows.",
        )
    outside = (ids < 0) | (ids >= len(table))
    if outside.any():
        raise BagError(
            f"row {outside.argmax()} of X is in bag {ids[outside.argmax()]}, but proportions are "
            f"an array of {len(table):,} rows, numbered from 0.",
            "Pass a DataFrame indexed by bag id or a dict, or number the bags by the array's rows.",
        )


def _shared_rows(y: Any, ids: NDArray[Any]) -> Any:
    """Return the proportions of every bag, of which each of its instances has a copy."""
    values = np.asarray(y)
    if len(values) != len(ids):
        raise BagError(
            f"y has {len(values):,} rows, but there are {len(ids):,} bag ids.",
            "Pass one row of proportions for each instance.",
        )
    codes, names = pd.factorize(pd.Series(ids), use_na_sentinel=False)
    first = np.unique(codes, return_index=True)[1]
    own = values[first][codes]
    other = ((values != own) & ~(pd.isna(values) & pd.isna(own))).any(axis=1)
    if other.any():
        row = int(other.argmax())
        raise BagError(
            f"row {row} of y differs from row {first[codes[row]]}, of the same bag "
            f"{ids.tolist()[row]!r}.",
            "All rows of a bag must have the same proportions.",
        )
    if isinstance(y, pd.DataFrame):
        return y.iloc[first].set_axis(list(names), axis=0)
    return dict(zip(names.tolist(), values[first], strict=True))
