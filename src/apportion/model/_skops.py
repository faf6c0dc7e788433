"""Learners as bytes and back, without pickle.

The format is that of skops: a zip of arrays, and a JSON tree that names the type of every object.
Loading builds objects of these types, so the tree is read first, and refused if it names anything
but the types below: HistGradientBoosting, forests, logistic regression, and their parts. Trees are
followed by compiled code that trusts them, so their nodes are checked before a learner is returned.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from apportion.errors import RunError

__all__ = ["dump", "load", "within"]

MOST_BYTES = 2**32  # of all arrays together, unpacked

# Every type that a file may name, under the loader of skops that builds it.
TYPES = {
    "DictNode": ("builtins.dict",),
    "ListNode": ("builtins.list",),
    "TupleNode": ("builtins.tuple",),
    "SliceNode": ("builtins.slice",),
    "JsonNode": ("builtins.str",),  # and None, numbers and booleans, as JSON
    "TypeNode": ("builtins.int", "builtins.str", "numpy.float32", "numpy.float64"),
    "NdArrayNode": (
        "numpy.ndarray",
        *(f"numpy.{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
        *("numpy.float32", "numpy.float64", "numpy.bool"),
    ),
    "DTypeNode": ("numpy.dtype",),
    "RandomGeneratorNode": ("numpy.random._generator.Generator",),
    "PartialNode": ("functools.partial",),  # of this function alone
    "FunctionNode": ("sklearn.utils.validation.check_array",),
    "LossNode": tuple(
        f"sklearn._loss._loss.Cy{loss}"
        for loss in ("HalfBinomialLoss", "HalfMultinomialLoss", "HalfSquaredError")
    ),
    "TreeNode": ("sklearn.tree._tree.Tree",),
    "ObjectNode": (
        "sklearn._loss.link.IdentityLink",
        "sklearn._loss.link.Interval",
        "sklearn._loss.link.LogitLink",
        "sklearn._loss.link.MultinomialLogit",
        "sklearn._loss.loss.HalfBinomialLoss",
        "sklearn._loss.loss.HalfMultinomialLoss",
        "sklearn._loss.loss.HalfSquaredError",
        "sklearn.compose._column_transformer.ColumnTransformer",
        "sklearn.dummy.DummyClassifier",
        "sklearn.ensemble._forest.ExtraTreesClassifier",
        "sklearn.ensemble._forest.ExtraTreesRegressor",
        "sklearn.ensemble._forest.RandomForestClassifier",
        "sklearn.ensemble._forest.RandomForestRegressor",
        "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingClassifier",
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingRegressor",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.linear_model._logistic.LogisticRegression",
        "sklearn.multioutput.MultiOutputRegressor",
        "sklearn.preprocessing._encoders.OrdinalEncoder",
        "sklearn.preprocessing._function_transformer.FunctionTransformer",
        "sklearn.preprocessing._label.LabelEncoder",
        "sklearn.tree._classes.DecisionTreeClassifier",
        "sklearn.tree._classes.DecisionTreeRegressor",
        "sklearn.tree._classes.ExtraTreeClassifier",
        "sklearn.tree._classes.ExtraTreeRegressor",
    ),
}


def dump(learner: Any, name: str | None = None) -> bytes:
    """Return a fitted learner, or a list of them, as bytes that `load` reads.

    Parameters
    ----------
    name : str, optional
        What to call it in the error, if not by its type.

    Raises
    ------
    RunError
        If it is, or holds, an object of a type that is not saved here.
    """
    what = type(learner).__name__ if name is None else name
    try:
        data: bytes = _skops().dumps(learner, compression=zipfile.ZIP_DEFLATED)
        foreign = _foreign(data)
    except RunError:
        raise
    except Exception as error:  # skops fails in its own ways on what it cannot save
        raise _not_saved(what, f"{type(error).__name__}: {error}") from error
    if foreign is not None:
        raise _not_saved(what, f"it holds a {foreign}")
    return data


def load(data: bytes) -> Any:
    """Return the learner, or the list of them, that `dump` made bytes of.

    Raises
    ------
    RunError
        If they name a type that is not loaded here, or if they are damaged.
    """
    skops = _skops()
    foreign = _foreign(data)
    if foreign is not None:
        raise RunError(
            f"a saved learner names the type {foreign:.150}.",
            "It is not among those that are loaded here: it could run any code. Load only files "
            "that this library wrote.",
        )
    try:
        learner = skops.loads(data, trusted=[name for names in TYPES.values() for name in names])
        for one in within(learner):
            _check_trees(one)
    except RunError:
        raise
    except Exception as error:  # whatever a damaged file makes skops or numpy raise
        raise _damaged(f"{type(error).__name__}: {error}") from error
    return learner


def _skops() -> Any:
    try:
        import skops.io
    except ImportError as error:
        raise RunError(
            "learners are saved and loaded by skops, which is not installed.",
            'Install it: pip install "apportion[learners]".',
        ) from error
    return skops.io


def _damaged(why: str) -> RunError:
    return RunError(f"these bytes are no saved learner: {why:.200}.", "Save the learner again.")


def _not_saved(what: str, why: str) -> RunError:
    return RunError(
        f"a learner of type {what} cannot be saved here: {why:.200}.",
        "HistGradientBoosting, forests and logistic regression of scikit-learn can. Keep others "
        "yourself: LightGBM and XGBoost by their own save_model, any by joblib.",
    )


def _foreign(data: bytes) -> str | None:
    """Return the first type that a file names but may not name, before anything of it is built."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > MOST_BYTES:
                raise _damaged(f"its arrays have {size:,} bytes, more than {MOST_BYTES:,}")
            nodes = list(_nodes(json.loads(archive.read("schema.json"))))
    except (zipfile.BadZipFile, KeyError, ValueError, RecursionError) as error:
        raise _damaged(f"{type(error).__name__}: {error}") from error
    foreign = (name for loader, name in nodes if name not in TYPES.get(loader, ()))
    return next(foreign, None)


def _nodes(tree: Any) -> Iterator[tuple[str, str]]:
    if isinstance(tree, dict):
        if "__loader__" in tree:
            kind = str(tree["__loader__"])
            if kind != "JsonNode":
                yield kind, f"{tree.get('__module__')}.{tree.get('__class__')}"
        for value in tree.values():
            yield from _nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nodes(value)


def within(learner: Any) -> Iterator[Any]:
    """Yield a learner, or those of a list, and those that they hold."""
    if isinstance(learner, list | tuple):
        for one in learner:
            yield from within(one)
    else:
        yield learner
        if hasattr(learner, "estimators_"):
            yield from within(list(learner.estimators_))


def _check_trees(learner: Any) -> None:
    """Check that no node of a tree leads out of it, or to a feature that rows do not have."""
    if not (hasattr(learner, "predict_proba") or hasattr(learner, "predict")):
        raise _damaged(f"a {type(learner).__name__} predicts nothing")
    if hasattr(learner, "tree_"):
        tree, n = learner.tree_, learner.n_features_in_
        inner = tree.children_left >= 0
        _check_nodes(inner, tree.children_left, tree.children_right, tree.feature, n)
        if tree.n_features != n:
            raise _damaged(f"a tree has {tree.n_features} features, and its learner {n}")
    for predictors in getattr(learner, "_predictors", ()):
        for one in predictors:
            nodes, bits = one.nodes, one.raw_left_cat_bitsets
            inner = nodes["is_leaf"] == 0
            n = learner.n_features_in_
            _check_nodes(inner, nodes["left"], nodes["right"], nodes["feature_idx"], n)
            sets = inner & (nodes["is_categorical"] != 0)
            categorical = np.asarray(learner._bin_mapper.is_categorical_)
            if (
                categorical.shape != (n,)
                or not categorical[nodes["feature_idx"][sets]].all()
                or (sets.any() and nodes["bitset_idx"][sets].max() >= len(bits))
                or (bits.dtype, bits.shape[1:]) != (np.uint32, (8,))
            ):
                raise _damaged("a tree splits by categories that there are not")


def _check_nodes(inner: Any, left: Any, right: Any, feature: Any, n_features: int) -> None:
    places, n = np.flatnonzero(inner), len(inner)
    for child in (left[places], right[places]):
        if not ((child > places) & (child < n)).all():
            raise _damaged("a node of a tree leads back or out of it")
    if not n or not ((feature[places] >= 0) & (feature[places] < n_features)).all():
        raise _damaged("a node of a tree asks for a feature that there is not")
