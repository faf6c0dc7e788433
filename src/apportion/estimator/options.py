"""The options of an estimator that are for training: what they must be, and where they apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import nn

from apportion.auto.members import TABLE_METHODS
from apportion.config import TrainConfig
from apportion.errors import ConfigError, listing, must_be, suggestion
from apportion.methods.registry import method_named
from apportion.model.learner import is_learner
from apportion.nets.augment import check_augmentations
from apportion.nets.build import NETS
from apportion.nets.recipe import check_name, check_options, options_of
from apportion.plan.methods import OF_EVERY_METHOD
from apportion.training.checks import is_end

__all__ = ["NAMED", "callback_of", "check_net_options", "functions_of", "has_eta", "ignored",
           "is_own_net", "options_given", "said_to_be_ignored", "train_options"]  # fmt: skip

# Options of `TrainConfig` that are parameters of an estimator. The others are in `train_options`.
NAMED = (
    "epochs",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "schedule",
    "patience",
    "augment",
)
AS = {"seed": "random_state", **dict.fromkeys(("device", *NAMED))}  # parameters of another name


def train_options(estimator: Any) -> dict[str, Any]:
    """Return the options of `TrainConfig` that are given, after a check of every one."""
    found = {name: getattr(estimator, name) for name in NAMED}
    if callable(found["augment"]):
        found["augment"] = None  # one of `functions_of`
    elif isinstance(found["augment"], str):
        found["augment"] = (found["augment"],)
    further = estimator.train_options
    if not (further is None or isinstance(further, Mapping)):
        raise must_be("train_options", "a dict, for example {'warmup': 0.1}", further)
    known = [field.name for field in fields(TrainConfig) if field.name not in AS]
    for name in further or {}:
        if name in AS:
            raise ConfigError(
                f"train_options has {name!r}, which is a parameter.",
                f"Pass LLPClassifier({AS[name] or name}=…).",
            )
        if name not in known:
            raise ConfigError(f"there is no train option {name!r}.", suggestion(str(name), known))
    given = {n: v for n, v in {**found, **(further or {})}.items() if v is not None}
    check_augmentations(TrainConfig.from_dict(given).augment)
    return given


def functions_of(estimator: Any) -> dict[str, Callable[..., Any]]:
    """Return the functions that `apportion.fit` takes besides its options, those that are given."""
    found = {name: getattr(estimator, name) for name in ("optimizer", "scheduler", "augment")}
    for name in ("optimizer", "scheduler"):
        if not (found[name] is None or callable(found[name])):
            raise must_be(name, "a function, as apportion.fit takes it", found[name])
    return {name: value for name, value in found.items() if callable(value)}


def check_net_options(options: Any, model: Any) -> None:
    """Check the options of a net that is built by its name, or by the data, which are not known."""
    if options is None or is_own_net(model) or is_learner(model):
        return
    if not isinstance(options, Mapping):
        raise must_be("net_options", "a dict, for example {'hidden': (128, 64)}", options)
    if isinstance(model, str):
        check_name(model, NETS)
        check_options(model, NETS, options)
        return
    known = {option: name for name in NETS for option in options_of(name, NETS)}
    for option, value in options.items():
        if option not in known:
            raise ConfigError(
                f"no net has the option {option!r:.60}.", suggestion(str(option), known)
            )
        check_options(known[option], NETS, {option: value})


def options_given(estimator: Any) -> list[str]:
    """Return the names of all options that are given and that some methods have no use for."""
    found = [*train_options(estimator), *functions_of(estimator)]
    further = ("preset", "pretrain", "model", "net_options", "eta")
    return found + [name for name in further if getattr(estimator, name) is not None]


def is_own_net(model: Any) -> bool:
    """Tell whether a net is the user's own: a module, or a function that makes one."""
    made = isinstance(model, nn.Module) or callable(model)
    return made and not isinstance(model, type) and not is_learner(model)


def has_eta(method: Any) -> bool:
    """Tell whether a method of `fit` has η."""
    named = method_named(method)
    return is_dataclass(named) and hasattr(named, "eta")


def ignored(estimator: Any, method: Any) -> list[str]:
    """Return the names of given options that have no meaning for a method."""
    given = [name for name in options_given(estimator) if name != "model"]
    if is_learner(estimator.model):
        used = {"epochs", *(["eta"] if method == "fpl" else [])}
    elif isinstance(method, str) and method in TABLE_METHODS:
        used = {*OF_EVERY_METHOD}
    else:
        used = {*given} - {"net_options", "eta"}
        used |= {"eta"} if has_eta(method) else set()
        used |= set() if is_own_net(estimator.model) else {"net_options"}
    return [name for name in given if name not in used]


def said_to_be_ignored(names: list[str]) -> str:
    """Return that options are ignored.

    Examples
    --------
    >>> said_to_be_ignored(["eta"]), said_to_be_ignored(["epochs", "eta"])
    ('eta is ignored', 'epochs, eta are ignored')
    """
    return f"{listing(names)} {'is' if len(names) == 1 else 'are'} ignored"


def callback_of(callbacks: Any) -> Callable[[dict[str, Any], Any], bool] | None:
    """Return one function that calls all callbacks, and tells whether any of them returned True."""
    if callbacks is None:
        return None
    several = [callbacks] if callable(callbacks) else callbacks
    if not (isinstance(several, list | tuple) and all(map(callable, several))):
        raise must_be("callbacks", "functions of a record and a net", callbacks)

    def call_all(record: dict[str, Any], net: Any) -> bool:
        # All are called, and their answers checked, whatever one returns.
        ends = [is_end(each(record, net), "a callback") for each in several]
        return any(ends)

    return call_all
