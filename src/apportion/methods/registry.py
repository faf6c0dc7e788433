"""The methods: ways of learning from proportions, one file each."""

from __future__ import annotations

from typing import get_args

from apportion.engine.batches import Unit
from apportion.errors import ConfigError, suggestion
from apportion.methods.base import Method
from apportion.methods.pi_model import PiModel
from apportion.methods.proportion_loss import ProportionLoss
from apportion.methods.pseudo_labels import OnlinePseudoLabels
from apportion.methods.vat import VirtualAdversarial

__all__ = ["METHODS", "method_named"]

METHODS: dict[str, Method] = {
    "fpl": OnlinePseudoLabels(),
    "fpl-plain": OnlinePseudoLabels(unlikelihood="plain"),
    "greedy": OnlinePseudoLabels(eta=0),
    "naive": OnlinePseudoLabels(eta=0, accumulate=False),
    "proportion-loss": ProportionLoss(),
    "pi-model": PiModel(),
    "llp-vat": VirtualAdversarial(),
}


def method_named(method: str | Method) -> Method:
    """Look a method up by its name; one that is given is given back."""
    if isinstance(method, type) or not (isinstance(method, str) or hasattr(method, "start")):
        raise ConfigError(
            f"the method is {method!r}.",
            f"Pass one of {', '.join(METHODS)}, or settings such as OnlinePseudoLabels(eta=1).",
        )
    if not isinstance(method, str):
        if method.unit not in get_args(Unit):
            raise ConfigError(
                f"the unit of {type(method).__name__} is {method.unit!r}.",
                f"Let it be {' or '.join(map(repr, get_args(Unit)))}.",
            )
        return method
    if method not in METHODS:
        raise ConfigError(f"there is no method {method!r}.", suggestion(method, METHODS))
    return METHODS[method]
