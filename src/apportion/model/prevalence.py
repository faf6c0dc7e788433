r"""Probabilities for a population in which the classes are not as frequent as in training.

A model learns :math:`p(c \mid x)` among rows in which class c has the share :math:`\pi_c`. If x is
distributed within each class as before, and only the shares are others, :math:`\pi'_c`, Bayes' rule
has

.. math:: p'(c \mid x) \propto p(c \mid x)\, \frac{\pi'_c}{\pi_c}.

Reference: M. Saerens, P. Latinne, C. Decaestecker, "Adjusting the Outputs of a Classifier to New a
Priori Probabilities: A Simple Procedure", Neural Computation 14, 2002.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.bags.names import Register
from apportion.errors import ConfigError, suggestion

__all__ = ["read_prevalence", "shifted"]

TOLERANCE = 1e-6
EXAMPLE = "Pass the share of every class in that population, for example {example}."

Floats = NDArray[np.float64]


def read_prevalence(given: Any, classes: Sequence[Any]) -> Floats:
    """Read the share of every class, in the order of the classes.

    Parameters
    ----------
    given : mapping, Series or sequence
        By class, or in the order of the classes. One class may be left out of a mapping: it has
        the rest.

    Examples
    --------
    >>> read_prevalence({"yes": 0.2}, ["no", "yes"])
    array([0.8, 0.2])
    """
    share = round(1 / len(classes), 2)
    example = dict.fromkeys(classes[:-1], share) or dict.fromkeys(classes, 1.0)
    remedy = EXAMPLE.format(example=example)
    if hasattr(given, "to_dict") and not isinstance(given, Mapping):  # a Series
        given = given.to_dict()
    try:
        values = (
            _by_name(given, classes) if isinstance(given, Mapping) else np.asarray(given, float)
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"prevalence is {given!r:.100}: {error}.", remedy) from error
    if values.shape != (len(classes),):
        raise ConfigError(
            f"prevalence is of shape {values.shape}, but there are {len(classes)} classes: "
            f"{', '.join(map(str, classes))}.",
            remedy,
        )
    if not (values >= 0).all() or abs(values.sum() - 1) > TOLERANCE:  # not a number is neither
        shares = ", ".join(f"{name} {v:g}" for name, v in zip(classes, values, strict=True))
        raise ConfigError(
            f"prevalence is {shares}; shares must be 0 or more, and sum to 1, not "
            f"{values.sum():g}.",
            remedy,
        )
    shares_of_all: Floats = values / values.sum()
    return shares_of_all


def _by_name(given: Mapping[Any, Any], classes: Sequence[Any]) -> Floats:
    register = Register(classes)
    places = register.places(list(given))
    if (places < 0).any():
        name = list(given)[int((places < 0).argmax())]
        raise ConfigError(
            f"prevalence has {name!r}, which is none of the classes.",
            suggestion(str(name), map(str, classes)),
        )
    values = np.full(len(classes), np.nan)
    values[places] = np.array([float(value) for value in given.values()])
    left_out = np.isnan(values) & ~np.isin(np.arange(len(classes)), places)
    if left_out.sum() > 1:
        names = ", ".join(str(classes[i]) for i in np.flatnonzero(left_out).tolist())
        raise ConfigError(
            f"prevalence says nothing of {names}.",
            "Leave out at most one class, which has the rest.",
        )
    values[left_out] = 1 - values[~left_out].sum()
    return values


def shifted(confidence: Floats, before: Any, after: Floats, classes: Sequence[Any]) -> Floats:
    """Return class probabilities (n, C) for other shares of the classes than those of training.

    Examples
    --------
    >>> shifted(np.array([[0.5, 0.5]]), np.array([0.5, 0.5]), np.array([0.9, 0.1]), ["no", "yes"])
    array([[0.9, 0.1]])
    """
    if before is None:
        raise ConfigError(
            "the model does not say how frequent the classes were in training, so that its "
            "probabilities cannot be adjusted to another prevalence.",
            "Train again with this version of apportion, or pass Model(…, prevalence=…).",
        )
    before = np.asarray(before, np.float64)
    unseen = (before <= 0) & (after > 0)
    if unseen.any():
        place = int(unseen.argmax())
        raise ConfigError(
            f"class {classes[place]!r} was not in the training bags, but is to have a share of "
            f"{after[place]:g}.",
            "Leave it at 0, or train on bags that have some of it.",
        )
    found = confidence * np.divide(after, before, out=np.zeros_like(after), where=before > 0)
    total = found.sum(axis=1, keepdims=True)
    # A row that is surely of classes that do not occur says nothing about the others.
    adjusted: Floats = np.where(total > 0, found / np.where(total > 0, total, 1), after)
    return adjusted
