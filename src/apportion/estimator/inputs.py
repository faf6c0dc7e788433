"""The instances that an estimator is given, as arrays that training takes.

They come as arrays of any shape, as data frames, as tuples of arrays, as Datasets, or in `Bags`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import get_tags
from sklearn.utils.validation import validate_data

from apportion.bags.bags import Bags
from apportion.bags.checks import check_unmasked
from apportion.bags.columns import Columns
from apportion.bags.items import Items, is_dataset
from apportion.bags.read import as_pandas
from apportion.bags.sparse import is_sparse
from apportion.data.constants import check_constants
from apportion.data.encoding import encode, learn_columns
from apportion.data.pieces import distinct_names
from apportion.errors import DataError

__all__ = ["encode_rows", "has_items", "n_rows_of", "read_rows"]

log = logging.getLogger("apportion")

LEAVE_OUT = "Leave such columns out of X."


def n_rows_of(x: Any) -> int:
    """Return the number of rows of a frame, an array, a tuple of arrays, or of items."""
    first = x[0] if isinstance(x, tuple) else x
    return first.shape[0] if is_sparse(first) else len(first)


def has_items(X: Any) -> bool:
    """Tell whether X is a Dataset, or what torch has in the place of one."""
    of_torch = any(kind.__module__.startswith("torch.utils.data") for kind in type(X).__mro__)
    return of_torch or is_dataset(X)


def read_rows(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Check instances as scikit-learn does, and return them: frames, arrays, tuples or items.

    Parameters
    ----------
    reset : bool
        Whether these are the rows to learn from, as in `fit`. Tables are then returned as frames.
    """
    if reset:
        for name in ("n_features_in_", "feature_names_in_"):
            vars(estimator).pop(name, None)
    if isinstance(X, Bags):
        if reset and X.columns is not None:
            estimator.n_features_in_ = len(X.columns.names)
            estimator.feature_names_in_ = np.array(X.columns.names, dtype=object)
        return X.x
    if has_items(X):
        items = Items(X)  # which checks it; nothing is read yet
        return items if reset else X  # the model knows which entries it takes
    for part in X if isinstance(X, tuple) else (X,):
        check_unmasked("X", part)
    if isinstance(X, tuple):
        return tuple(map(_as_array, X))
    X = as_pandas(X)
    frame = isinstance(X, pd.DataFrame)
    if not reset:
        columns = estimator.model_.columns
        if columns is None if frame else columns is not None and columns.categorical:
            return X  # the model raises the error
    if frame:
        _check_frame(X)
    if frame and len(X) and X.shape[1]:
        names = getattr(estimator, "feature_names_in_", None)
        if not reset and names is not None and names.tolist() == X.columns.tolist():
            return X  # scikit-learn would only compare the names once more, which takes a while
        X = X if reset else _filled(estimator, X)
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        return X
    try:
        X = np.asarray(X) if isinstance(X, list) else X
        if len(getattr(X, "shape", ())) == 4:
            X = _channels_first(estimator, X, reset=reset)
        given = validate_data(
            estimator,
            X.to_numpy() if frame else X,
            reset=reset,
            accept_sparse="csr" if get_tags(estimator).input_tags.sparse else False,
            allow_nd=True,
            ensure_all_finite="allow-nan",
            dtype="numeric",
        )
    except ValueError as error:
        _check_even(X, error)
        raise
    if is_sparse(given):
        return given
    learned = None if reset else estimator.model_.columns
    if reset and given.dtype.kind in "iu":
        from apportion.estimator.options import is_own_net

        if is_own_net(estimator.model):
            return given  # as ids must stay
    if given.ndim != 2 or (not reset and (learned is None or len(learned.names) == given.shape[1])):
        return given  # by position
    names = map(str, getattr(estimator, "feature_names_in_", range(given.shape[1])))
    return pd.DataFrame(given, columns=list(names), copy=False)


def encode_rows(rows: Any, train: Bags, keep: Collection[str]) -> tuple[Any, Columns | None]:
    """Return rows as training takes them; columns of a table are learned from the training bags.

    Columns that are empty, constant or the bag's own proportions are left out, except those to
    keep.
    """
    if not isinstance(rows, pd.DataFrame):
        return rows, None
    columns = learn_columns(rows.iloc[np.unique(train.index)], keep)
    x = encode(columns, rows, warn=False)
    left_out = check_constants(train.with_rows(x, columns), keep, remedy=LEAVE_OUT)
    if left_out:
        columns = columns.without(left_out)
        x = encode(columns, rows, warn=False)
    return x, columns


def _as_array(part: Any) -> Any:
    try:
        array = np.asarray(part)
        if array.dtype == object:
            np.stack(array.tolist())  # which says what is uneven
    except ValueError as error:
        _check_even(part, error)
        raise
    return array


def _check_even(X: Any, error: ValueError) -> None:
    """Say what becomes of signals of unequal length, of which numpy makes no array."""
    if not isinstance(X, list | np.ndarray):
        return
    shapes: list[tuple[int, ...]] = []
    with suppress(ValueError):  # what is uneven within a row is no signal
        shapes = list(dict.fromkeys(np.shape(row) for row in X))
    if len(shapes) > 1 and all(0 < len(shape) < 3 for shape in shapes):
        raise DataError(
            f"X has rows of the shapes {shapes[0]} and {shapes[1]}, of which no array can be made.",
            "Signals of unequal length are padded first, each of shape (frames, channels): "
            "X = apportion.data.signals.pad(X).",
        ) from error


def _channels_first(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return images as the nets of this library take them, and say if any were moved to learn."""
    from apportion.nets.measure import channels_first, has_channels_last  # which wait for torch

    if not reset:
        return channels_first(X, estimator.model_.parts[0]["shape"])
    model, shape = estimator.model, tuple(map(int, X.shape))
    if not ((model is None or isinstance(model, str)) and has_channels_last(shape)):
        return X
    moved = channels_first(X, (shape[3], *shape[1:3]))
    log.warning(
        "X, of shape %s, has the channels of its images last; they are moved, to %s.",
        shape,
        tuple(moved.shape),
    )
    return moved


def _filled(estimator: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with empty columns for those that were left out: rows need not have them."""
    learned = estimator.model_.columns.names
    frame = frame.copy(deep=False)
    for place, name in enumerate(getattr(estimator, "feature_names_in_", ())):
        if name not in learned and name not in frame.columns and place <= frame.shape[1]:
            frame.insert(place, name, np.nan)
    return frame


def _check_frame(frame: pd.DataFrame) -> None:
    if any(isinstance(dtype, pd.SparseDtype) for dtype in frame.dtypes):
        raise TypeError("Sparse columns were passed, but dense data is required.")
    distinct_names(frame.columns, "X")
