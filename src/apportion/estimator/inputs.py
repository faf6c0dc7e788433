"""The instances that an estimator is given, as arrays that training takes.

They come as arrays of any shape, as data frames, as tuples of arrays, or in `Bags`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import validate_data

from apportion.bags.bags import Bags
from apportion.bags.columns import Columns
from apportion.data.encoding import encode, learn_columns
from apportion.data.tables import Table
from apportion.errors import DataError

__all__ = ["layout_of", "read_instances", "rows_of"]

Layout = tuple[tuple[int, int], ...]


def rows_of(x: Any) -> int:
    """Give the number of instances."""
    return len(x[0] if isinstance(x, tuple) else x)


def layout_of(x: Any) -> Layout:
    """Give what instances must have in common: the axes of every part, and how long the first is.

    Examples
    --------
    >>> layout_of((np.zeros((7, 13, 93)), np.zeros(7)))  # the frames of signals, and their lengths
    ((3, 13), (1, 1))
    """
    parts = x if isinstance(x, tuple) else (x,)
    return tuple((part.ndim, part.shape[1] if part.ndim > 1 else 1) for part in parts)


def read_instances(estimator: Any, X: Any, *, reset: bool) -> tuple[Any, Columns | None]:
    """Give instances as training takes them, and how the columns of a table became numbers.

    Parameters
    ----------
    reset : bool
        Whether to learn what the columns are, as in `fit`, or to take them as they were learned.
    """
    if reset:
        for name in ("n_features_in_", "feature_names_in_"):
            vars(estimator).pop(name, None)
    columns = None if reset else estimator.columns_
    if isinstance(X, Table):
        x, columns = _of_table(estimator, X, columns, reset=reset)
    elif isinstance(X, Bags):
        x = X.x
    elif isinstance(X, tuple):
        x = tuple(map(np.asarray, X))
    else:
        x, columns = _of_rows(estimator, X, columns, reset=reset)
    if not reset and layout_of(x) != estimator.layout_:
        raise DataError(
            f"instances have parts of (axes, features) {layout_of(x)}, but those learned from had "
            f"{estimator.layout_}.",
            "Pass instances of the same kind as in fit.",
        )
    return x, columns


def _of_table(estimator: Any, table: Table, columns: Columns | None, *, reset: bool) -> Any:
    if reset:
        estimator.n_features_in_ = len(table.columns.names)
        estimator.feature_names_in_ = np.array(table.columns.names, dtype=object)
    elif table.columns != columns:
        raise DataError(
            f"the table was encoded by other columns than those learned from: {table.columns}.",
            "Read it with read_bags(…, columns=classifier.columns_).",
        )
    return table.bags.x, table.columns


def _of_rows(
    estimator: Any, X: Any, columns: Columns | None, *, reset: bool
) -> tuple[Any, Columns | None]:
    """Read an array or a frame. Arrays of more than two axes have no columns."""
    if hasattr(X, "to_pandas"):  # the frames of other libraries
        X = X.to_pandas()
    frame = isinstance(X, pd.DataFrame)
    encoded = not reset and columns is None  # what was learned from were arrays as they are
    if frame:
        _check_frame(X, encoded=encoded)
    elif columns is not None and columns.categorical:
        raise DataError(
            f"X is an array, but column {columns.categorical[0]!r} is one of categories.",
            f"Pass a DataFrame with the columns {', '.join(columns.names)}.",
        )
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
        if X.ndim != 2 or encoded:
            return X, None
    if not frame:
        names = map(str, range(X.shape[1])) if columns is None else columns.names
        X = pd.DataFrame(X, columns=list(names), copy=False)
    columns = learn_columns(X) if columns is None else columns
    return encode(columns, X), columns


def _check_frame(frame: pd.DataFrame, *, encoded: bool) -> None:
    if encoded:
        raise DataError(
            "X is a DataFrame, but the classifier was fitted on arrays, Bags or tuples.",
            "Pass what encode(columns, frame) gives, by the columns that encoded those.",
        )
    if any(isinstance(dtype, pd.SparseDtype) for dtype in frame.dtypes):
        raise TypeError("Sparse columns were passed, but dense data is required.")
    twice = frame.columns.duplicated()
    if twice.any():
        raise DataError(
            f"column {next(iter(frame.columns[twice]))!r} is there more than once.",
            "Rename or leave out all but one of them.",
        )
