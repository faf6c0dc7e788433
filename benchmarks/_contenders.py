"""What is compared on tables, and how it is measured.

`auto` is `LLPClassifier` without an option. The names of `METHODS` and of linear models are its
method, with all else as it is by default; `hgb` is its ``model=HistGradientBoostingClassifier()``.
Trivial baselines take the proportions of its bag for the target of every row: `soft-hgb` by boosted
regression, `soft-lr` by logistic regression. Bounds are given the true labels of the same rows:
`true-hgb` and `true-lr`. The boosting machines of baselines and bounds have 60 trees of 15 leaves,
with which they overfit less than with their defaults.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from apportion import METHODS, LLPClassifier
from apportion.labels.linear import LINEAR_FITS
from benchmarks._cells import Bagged, categories

TRIVIAL, BOUNDS = ("soft-hgb", "soft-lr"), ("true-hgb", "true-lr")
OF_TABLES = [
    name for name in METHODS if name not in ("strong", "fpl-mean-map")
]  # of images, signals
CONTENDERS = ("auto", *OF_TABLES, *LINEAR_FITS, "hgb", *TRIVIAL)
LEAST = 1e-6  # of a confidence, so that one mistake cannot decide a mean log loss


def confidence(method: str, cell: Bagged, seed: int) -> Any:
    """Train a contender or a bound, and return its confidences of the test rows (M, C)."""
    kind, _, learner = method.partition("-")
    if kind not in ("soft", "true"):
        return _apportioned(method, cell, seed)
    targets = cell.proportions[cell.bags]
    if kind == "true":
        targets = np.eye(targets.shape[1])[cell.truth]
    return (_boosting if learner == "hgb" else _logistic)(cell, targets, seed)


def _apportioned(method: str, cell: Bagged, seed: int) -> Any:
    proportions = dict(enumerate(cell.proportions.tolist()))
    options: dict[str, Any] = {} if method == "auto" else {"method": method}
    if method == "hgb":
        options = {"model": HistGradientBoostingClassifier()}
    classifier = LLPClassifier(**options, random_state=seed, device="cpu", verbose=False)
    classifier.fit(cell.frame, bags=cell.bags, proportions=proportions)
    return classifier.predict_proba(cell.test)


def _boosting(cell: Bagged, targets: Any, seed: int) -> Any:
    """One regression per class, but for the first of two, as the others say what is left."""
    text = categories(cell.frame)
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    encoder = make_column_transformer((codes, text), remainder="passthrough")
    x, test = encoder.fit_transform(cell.frame), encoder.transform(cell.test)
    machine = HistGradientBoostingRegressor(
        max_iter=60,
        max_leaf_nodes=15,
        early_stopping=False,
        categorical_features=list(range(len(text))) or None,
        random_state=seed,
    )
    rest = targets[:, 1:] if targets.shape[1] == 2 else targets
    found = np.column_stack([machine.fit(x, target).predict(test) for target in rest.T])
    if targets.shape[1] == 2:
        found = np.column_stack([1 - found, found])
    found = np.clip(found, 1e-3, None)
    return found / found.sum(axis=1, keepdims=True)


def _logistic(cell: Bagged, targets: Any, seed: int) -> Any:  # noqa: ARG001
    """Every row once per class, weighted by its target."""
    text = categories(cell.frame)
    numbers = [name for name in cell.frame if name not in text]
    encoder = make_column_transformer(
        (StandardScaler(), numbers), (OneHotEncoder(handle_unknown="ignore"), text)
    )
    rows, classes = np.nonzero(targets)
    model = make_pipeline(encoder, LogisticRegression(max_iter=1000))
    weights = {"logisticregression__sample_weight": targets[rows, classes]}
    return model.fit(cell.frame.iloc[rows], classes, **weights).predict_proba(cell.test)


def scores(found: Any, cell: Bagged) -> dict[str, float | None]:
    """Measure confidences of the test rows.

    `auc` is the share of pairs of test rows, one of each class, that stand in the right order; for
    several classes the mean of each against the others. Where test rows have bags (kmeans, column)
    it has two parts. `auc_within`: only pairs from one bag, which is the mean over bags of the AUC
    inside each, weighted by its pairs; a model that only knows which bag a row is from has 0.5.
    `auc_across`: only pairs from two different bags. The log loss takes confidences of at least
    1e-6.
    """
    truth, n_classes = cell.test_truth, found.shape[1]
    held = np.clip(np.asarray(found, float), LEAST, None)
    right = (held / held.sum(axis=1, keepdims=True))[np.arange(len(truth)), truth]
    one_each = [roc_auc_score(truth == c, found[:, c]) for c in range(n_classes)]
    auc = float(np.mean(one_each)) if n_classes > 2 else float(one_each[1])
    within = across = None
    if cell.test_bags is not None and n_classes == 2:
        within, across = within_and_across(truth, found[:, 1], cell.test_bags)
    values = {
        "auc": auc,
        "auc_within": within,
        "auc_across": across,
        "accuracy": float(np.mean(found.argmax(axis=1) == truth)),
        "log_loss": float(-np.log(right).mean()),
    }
    return {name: None if value is None else round(value, 5) for name, value in values.items()}


def within_and_across(truth: Any, score: Any, bags: Any) -> tuple[float | None, float | None]:
    """Return the AUC over pairs of rows from one bag, and over pairs from different bags.

    >>> within_and_across(np.array([0, 1, 0, 1]), np.array([1, 2, 4, 3]), np.array([0, 0, 1, 1]))
    (0.5, 0.5)
    """

    def pairs(rows: Any) -> Any:  # how many there are, and how many stand in the right order
        positive = truth[rows].sum()
        n = positive * (len(truth[rows]) - positive)
        return np.array([n, n * roc_auc_score(truth[rows], score[rows]) if n else 0.0])

    inside = sum((pairs(bags == name) for name in np.unique(bags)), np.zeros(2))
    outside = pairs(slice(None)) - inside
    within, across = (float(right / n) if n else None for n, right in (inside, outside))
    return within, across
