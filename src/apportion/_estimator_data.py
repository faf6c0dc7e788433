"""What an estimator is given, as what training takes: instances as arrays, targets as bags.

Instances come as arrays of any shape, as data frames, or as tuples of arrays. Targets come in one
of four ways:

- labels alone: every instance is a bag of one, which is supervised learning;
- bags and labels: of the labels only their counts in every bag are used;
- bags and rows of proportions, each instance having those of its bag;
- bags and a table of proportions or counts, which may hold further bags.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from apportion.bags import BagError, Bags
from apportion.data.columns import Columns
from apportion.data.tables import Table

__all__ = ["class_array", "read_bags", "read_instances", "rows_of"]


def rows_of(x: Any) -> int:
    """Give the number of instances."""
    return len(x[0] if isinstance(x, tuple) else x)


def read_instances(estimator: Any, X: Any, *, reset: bool) -> tuple[Any, Columns | None]:
    """Give instances as training takes them, and how the columns of a table became numbers.

    Parameters
    ----------
    reset : bool
        Whether to learn what the columns are, as in `fit`, or to take them as they were learned.
    """
    if isinstance(X, Table):
        X, learned = X.bags, X.columns
    else:
        learned = None
    if isinstance(X, Bags):
        return X.x, learned
    if isinstance(X, tuple):
        return tuple(map(np.asarray, X)), None
    if hasattr(X, "to_pandas"):  # the frames of other libraries
        X = X.to_pandas()
    frame = isinstance(X, pd.DataFrame)
    if frame and any(isinstance(dtype, pd.SparseDtype) for dtype in X.dtypes):
        raise TypeError("Sparse columns were passed, but dense data is required.")
    if frame and len(X) and X.shape[1]:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    else:
        X = validate_data(
            estimator,
            X.to_numpy() if frame else X,
            reset=reset,
            allow_nd=True,
            ensure_all_finite="allow-nan",
            dtype="numeric",
        )
        if X.ndim != 2:
            return X, None
    columns = None if reset else estimator.columns_
    if not frame:
        names = map(str, range(X.shape[1])) if columns is None else columns.names
        X = pd.DataFrame(X, columns=list(names), copy=False)
    columns = Columns.learn(X) if columns is None else columns
    return columns.encode(X), columns


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
    if bags is None:
        return _from_labels(x, np.arange(n_rows), y, classes)
    ids = _column(bags, "bags", n_rows)
    if proportions is not None:
        labels = None if y is None else _column(y, "y", n_rows)
        return _from_table(x, ids, _cut(proportions, ids), classes, labels)
    if y is None:
        raise BagError(
            "there are bags, but neither proportions nor y.",
            "Pass proportions=: a DataFrame indexed by bag id with a column a class, or a dict.",
        )
    if np.ndim(y) == 2 and np.shape(y)[1] > 1:
        return _from_table(x, ids, _shared_rows(y, ids), classes, None)
    return _from_labels(x, ids, y, classes)


def class_array(names: Sequence[Any]) -> NDArray[Any]:
    """Give class names as an array that keeps what they are.

    Examples
    --------
    >>> class_array(["no", "yes"]), class_array([1, "one"])
    (array(['no', 'yes'], dtype='<U3'), array([1, 'one'], dtype=object))
    """
    kinds = {type(name) for name in names}
    return np.array(names, dtype=None if len(kinds) == 1 else object)


def _column(values: Any, what: str, n_rows: int) -> NDArray[Any]:
    column: NDArray[Any] = column_or_1d(values, warn=True)
    if len(column) != n_rows:
        raise BagError(
            f"X has {n_rows:,} rows, but {what} {len(column):,}.",
            f"Pass one of {what} for each row, in the order of the rows.",
        )
    return column


def _from_labels(x: Any, ids: Any, y: Any, classes: Sequence[Hashable] | None) -> Bags:
    labels = column_or_1d(y, warn=True)
    check_consistent_length(x[0] if isinstance(x, tuple) else x, labels)
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    names = np.unique(labels).tolist() if classes is None else list(classes)
    return Bags.from_rows(x, ids, labels=labels, classes=names)


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
        return Bags.from_rows(x, ids, table, counts=counts, classes=classes, labels=labels)
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
        names = list(table.columns)
    else:
        first = next(iter(table.values()), None)
        if not isinstance(first, Mapping):
            return None
        names = list(first)
    try:
        return sorted(names)
    except TypeError:  # names of several kinds
        return names


def _cut(proportions: Any, ids: NDArray[Any]) -> Any:
    """Leave out the bags of a table that have no row here."""
    if isinstance(proportions, pd.DataFrame):
        return proportions[proportions.index.isin(pd.unique(pd.Series(ids)))]
    present = dict.fromkeys(ids.tolist())
    if isinstance(proportions, Mapping):
        return {bag: row for bag, row in proportions.items() if bag in present}
    table = np.asarray(proportions)
    if table.ndim != 2 or ids.dtype.kind not in "iu":
        raise BagError(
            f"proportions are an array of shape {table.shape}, and bags of type {ids.dtype}.",
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
    codes, names = pd.factorize(pd.Series(ids))
    first = np.unique(codes, return_index=True)[1]
    other = (values != values[first][codes]).any(axis=1)
    if other.any():
        row = int(other.argmax())
        raise BagError(
            f"row {row} of y differs from row {first[codes[row]]}, of the same bag {ids[row]!r}.",
            "Give all rows of a bag the same proportions.",
        )
    if isinstance(y, pd.DataFrame):
        return y.iloc[first].set_axis(list(names), axis=0)
    return dict(zip(names, values[first], strict=True))
