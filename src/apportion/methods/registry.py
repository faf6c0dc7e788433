"""Every method by its name, and methods to and from plain settings."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args

import numpy as np

from apportion.engine.batches import Unit
from apportion.errors import ConfigError, must_be, suggestion
from apportion.labels.linear import LINEAR_FITS
from apportion.methods.base import Method
from apportion.methods.count_likelihood import CountLikelihood
from apportion.methods.pi_model import PiModel
from apportion.methods.proportion_loss import ProportionLoss
from apportion.methods.pseudo_labels import FPL
from apportion.methods.vat import LLPVAT
from apportion.plan.methods import AUTO, FROM_FEATURES, METHOD

__all__ = ["METHODS", "describe", "method_from", "method_named"]

METHODS: dict[str, Method] = {
    "fpl": FPL(),
    FROM_FEATURES: FPL(first="mean-map"),
    "fpl-plain": FPL(unlikelihood="plain"),
    "greedy": FPL(eta=0),
    "naive": FPL(eta=0, memory=0),
    "strong": FPL(
        eta=0,
        unlikelihood="log",
        memory=0.1,
        joint=True,
        first="mean-map",
        first_weight=30,
        rows=True,
        smoothing=0.1,
        mixup=True,
    ),
    "proportion-loss": ProportionLoss(),
    "pi-model": PiModel(),
    "llp-vat": LLPVAT(),
    "count-likelihood": CountLikelihood(),
}


def method_named(method: str | Method) -> Method:
    """Return the method of a name; a method is returned as it is."""
    if isinstance(method, type) or not (isinstance(method, str) or hasattr(method, "start")):
        raise ConfigError(
            f"the method is {method!r}.",
            f"Pass one of {', '.join(METHODS)}, or settings such as FPL(eta=1).",
        )
    if not isinstance(method, str):
        unit = getattr(method, "unit", None)
        if unit not in get_args(Unit):
            *others, last = map(repr, get_args(Unit))
            units = f"{', '.join(others)} or {last}"
            raise must_be(f"the unit of {type(method).__name__}", units, unit)
        return method
    if method in (*LINEAR_FITS, AUTO):
        what = "it averages several nets" if method == AUTO else "it fits a linear model"
        raise ConfigError(
            f"{method} is no method of fit, which trains one net: {what}.",
            f"Use LLPClassifier(method={method!r}), or apportion train --method {method}.",
        )
    if method not in METHODS:
        raise ConfigError(f"there is no method {method!r}.", suggestion(method, METHODS))
    return METHODS[method]


def describe(method: Method) -> dict[str, Any]:
    """Return a method's name and settings as plain values: arrays by hash, functions by name.

    The name is the first in `METHODS` of the method's class, or for a method of one's own the
    name of its class.

    Examples
    --------
    >>> describe(METHODS["proportion-loss"])
    {'name': 'proportion-loss', 'form': 'cross-entropy', 'by_size': False}
    """
    own = type(method)
    names = (name for name, known in METHODS.items() if type(known) is own)
    found: dict[str, Any] = {"name": next(names, own.__name__)}
    for name in _settings_of(method):
        value = getattr(method, name)
        if not isinstance(value, bool | int | float | str | None):
            value = getattr(value, "__qualname__", None) or _digest(value)
        found[name] = value
    return found


def method_from(settings: Mapping[str, Any]) -> Method:
    """Build a method from a name and settings, such as `describe` returns.

    Settings that are left out are those of the method of that name, which is "fpl" by default.

    Examples
    --------
    >>> describe(method_from({"name": "greedy", "first": "decide"}))["eta"]
    0
    >>> method_from({"name": "pi-model", "st": 0.1})
    Traceback (most recent call last):
    apportion.errors.ConfigError: the method 'pi-model' has no setting 'st'.
      Did you mean 'std'? Known: std, weight, ramp.
    """
    options = {"name": METHOD, **settings}
    name = str(options.pop("name"))
    method: Any = method_named(name)
    known = _settings_of(method)
    for option, value in options.items():
        if option not in known:
            raise ConfigError(
                f"the method {name!r} has no setting {option!r}.",
                suggestion(option, known) if known else "Leave it out.",
            )
        if isinstance(getattr(method, option), bool) and not isinstance(value, bool):
            raise must_be(option, "true or false", value)
    changed: Method = replace(method, **options)
    return changed


def _settings_of(method: Any) -> list[str]:
    return [field.name for field in fields(method)] if is_dataclass(method) else []


def _digest(value: Any) -> str:
    data = np.asarray(value)
    if data.dtype.kind not in "fiub":
        return repr(value)
    digest = hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()
    return f"{data.dtype} {data.shape} {digest}"
