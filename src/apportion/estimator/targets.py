"""The targets that an estimator is given, as bags.

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

from apportion.bags.bags import Bags
from apportion.bags.names import Register, sorted_names
from apportion.errors import BagError
from apportion.estimator.inputs import rows_of

__all__ = ["class_array", "has_rows_of_proportions", "in_order", "read_bags"]


def read_bags(
    x: Any,
    y: Any = None,
    bags: Any = None,
    proportions: Any = None,
    *,
    classes: Sequence[Hashable] | None = None,
) -> Bags:
    """Put instances into bags, whichever way their classes are told.

    Parameters
    ----------
    classes : sequence, optional
        The classes that are known from before, in their order.
    """
    n_rows = rows_of(x)
    if bags is None and proportions is not None:
        raise BagError("there are proportions, but no bags.", "Pass bags= as well: an id a row.")
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
        return _from_labels(x, np.arange(n_rows), y, classes)
    ids = _bag_ids(bags, n_rows)
    if proportions is not None:
        labels = None if y is None else column_or_1d(y, warn=True)
        return _from_table(x, ids, _cut(proportions, ids), classes, labels)
    if y is None:
        raise BagError(
            "there are bags, but neither proportions nor y.",
            "Pass proportions=: a DataFrame indexed by bag id with a column a class, or a dict.",
        )
    if in_rows:
        return _from_table(x, ids, _shared_rows(y, ids), classes, None)
    return _from_labels(x, ids, y, classes)


def has_rows_of_proportions(y: Any) -> bool:
    """Tell whether y has proportions, in a row an instance, rather than labels."""
    shape = () if y is None else np.asarray(y).shape
    return len(shape) == 2 and shape[1] > 1


def in_order(bags: Bags, classes: Sequence[Hashable]) -> Bags:
    """Give bags with their classes in the order that is known from before."""
    if set(bags.classes) != set(classes):
        raise BagError(
            f"the bags have the classes {bags.classes}, but those learned are {tuple(classes)}.",
            "Pass classes= to Bags or read_bags, so that both have the same.",
        )
    order = [bags.classes.index(name) for name in classes]
    return replace(
        bags,
        proportions=bags.proportions[:, order],
        counts=bags.counts[:, order],
        classes=tuple(classes),
        truth=None,
    )


def class_array(names: Sequence[Any]) -> NDArray[Any]:
    """Give class names as an array that keeps what they are.

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


def _bag_ids(bags: Any, n_rows: int) -> NDArray[Any]:
    """Bag ids as they are: numpy would make text of mixed ones, and floats of pandas' integers."""
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
    return ids


def _from_labels(x: Any, ids: Any, y: Any, classes: Sequence[Hashable] | None) -> Bags:
    labels = column_or_1d(y, warn=True)
    check_consistent_length(x[0] if isinstance(x, tuple) else x, labels)
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    names = np.unique(labels).tolist() if classes is None else list(classes)
    return Bags.from_rows(x, ids, truth=labels, classes=names)


def _from_table(
    x: Any, ids: Any, table: Any, classes: Sequence[Hashable] | None, labels: Any
) -> Bags:
    """Build bags from a table of theirs: counts, if each of its rows sums to the bag's size."""
    if classes is None:
        classes = _sorted_classes(table)
    sizes = pd.Series(ids).value_counts()
    keys = list(table.index) if isinstance(table, pd.DataFrame) else list(table)
    rows = table.to_numpy() if isinstance(table, pd.DataFrame) else list(table.values())
    try:
        values = [sum(row.values()) if isinstance(row, Mapping) else np.sum(row) for row in rows]
        sums = np.array(values, np.float64)
    except (TypeError, ValueError):  # which is for Bags to say
        sums = np.full(len(keys), np.nan)
    own = np.array([sizes.get(key, -1) for key in keys])
    counts = bool(len(keys)) and np.array_equal(sums, own) and bool((own > 1).any())
    try:
        return Bags.from_rows(x, ids, table, counts=counts, classes=classes, truth=labels)
    except BagError as error:
        if "counts=True" in str(error):
            error.add_note(
                "LLPClassifier has no such options: it takes a table as counts where all rows sum "
                "to the sizes of their bags. P.div(P.sum(axis=1), axis=0) rescales a frame."
            )
        raise


def _sorted_classes(table: Any) -> list[Any] | None:
    """The classes that a table names, in the order in which scikit-learn has classes."""
    if isinstance(table, pd.DataFrame):
        return sorted_names(table.columns)
    first = next(iter(table.values()), None)
    return sorted_names(first.keys()) if first is not None and hasattr(first, "keys") else None


def _cut(proportions: Any, ids: NDArray[Any]) -> Any:
    """Leave out the bags of a table that have no row here."""
    present = dict.fromkeys(ids.tolist())
    known = Register(present)
    if isinstance(proportions, pd.DataFrame):
        here = [known.place(bag) is not None for bag in proportions.index]
        table: Any = proportions[here]
    elif isinstance(proportions, Mapping):
        table = {bag: row for bag, row in proportions.items() if known.place(bag) is not None}
    else:
        return _cut_array(proportions, ids, present)
    if not len(table):
        there = list(proportions.index if isinstance(proportions, pd.DataFrame) else proportions)
        first, other = next(iter(present)), there[0] if there else None
        raise BagError(
            f"none of the bags is in the table: the first of them is {first!r} "
            f"({type(first).__name__}), and the first in the table {other!r} "
            f"({type(other).__name__}).",
            "Let the table be indexed by bag id, P.set_index('ward') say, with ids of the same "
            "type.",
        )
    return table


def _cut_array(proportions: Any, ids: NDArray[Any], present: dict[Any, None]) -> Any:
    if isinstance(proportions, list):
        raise BagError(
            "proportions are a list.",
            "Pass a DataFrame indexed by bag id or a dict. (scikit-learn makes a list of a dict "
            "that has as many bags as X has rows: leave out the bags that have none.)",
        )
    table = np.asarray(proportions)
    if table.ndim != 2 or not all(isinstance(bag, int) for bag in present):
        raise BagError(
            f"proportions are an array of shape {table.shape}, and bags of type "
            f"{type(next(iter(present))).__name__}.",
            "Pass a DataFrame indexed by bag id or a dict; or an array with a row a bag, and "
            "bags that are the numbers of its rows.",
        )
    outside = (ids < 0) | (ids >= len(table))
    if outside.any():
        raise BagError(
            f"row {outside.argmax()} of X is in bag {ids[outside.argmax()]}, but proportions are "
            f"an array of {len(table):,} rows, numbered from 0.",
            "Pass a DataFrame indexed by bag id or a dict, or number the bags by the array's rows.",
        )
    return {bag: table[bag] for bag in present}


def _shared_rows(y: Any, ids: NDArray[Any]) -> Any:
    """The proportions of every bag, of which each of its instances has a copy."""
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
            "Give all rows of a bag the same proportions.",
        )
    if isinstance(y, pd.DataFrame):
        return y.iloc[first].set_axis(list(names), axis=0)
    return dict(zip(names.tolist(), values[first], strict=True))
