"""Learning from Label Proportions: an instance classifier from the class proportions of bags.

The public names are imported when they are first used, so that `import apportion` costs next to
nothing and loads neither numpy nor torch.

>>> import apportion
>>> apportion.assign([[0.1, 0.9], [0.2, 0.8], [0.4, 0.6]], [2, 1]).labels
array([0, 0, 1])
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apportion.assign import Assignment, AssignmentError, assign
    from apportion.bags import BagError, Bags, counts_from_proportions
    from apportion.config import ConfigError, TrainConfig
    from apportion.errors import ApportionError
    from apportion.estimator import LLPClassifier
    from apportion.many import fit_many
    from apportion.methods import (
        METHODS,
        Method,
        OnlinePseudoLabels,
        PiModel,
        ProportionLoss,
        Supervision,
        VirtualAdversarial,
    )
    from apportion.run import Run, RunError
    from apportion.train import History, TrainingError, fit

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "ApportionError",
    "Assignment",
    "AssignmentError",
    "BagError",
    "Bags",
    "ConfigError",
    "History",
    "LLPClassifier",
    "Method",
    "OnlinePseudoLabels",
    "PiModel",
    "ProportionLoss",
    "Run",
    "RunError",
    "Supervision",
    "TrainConfig",
    "TrainingError",
    "VirtualAdversarial",
    "__version__",
    "assign",
    "counts_from_proportions",
    "fit",
    "fit_many",
]

# Where each public name lives.
_HOME = {
    "Bags": "apportion.bags",
    "BagError": "apportion.bags",
    "counts_from_proportions": "apportion.bags",
    "assign": "apportion.assign",
    "Assignment": "apportion.assign",
    "AssignmentError": "apportion.assign",
    "ApportionError": "apportion.errors",
    "LLPClassifier": "apportion.estimator",
    "TrainConfig": "apportion.config",
    "ConfigError": "apportion.config",
    "METHODS": "apportion.methods",
    "Method": "apportion.methods",
    "Supervision": "apportion.methods",
    "OnlinePseudoLabels": "apportion.methods",
    "ProportionLoss": "apportion.methods",
    "PiModel": "apportion.methods",
    "VirtualAdversarial": "apportion.methods",
    "Run": "apportion.run",
    "RunError": "apportion.run",
    "fit": "apportion.train",
    "fit_many": "apportion.many",
    "History": "apportion.train",
    "TrainingError": "apportion.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """A package whose public names are not overwritten by submodules of the same name.

    Importing the submodule `apportion.assign` makes Python bind it to the attribute `assign` of the
    package. That attribute is the function, always, so the binding is left out. Statements such as
    `from apportion.assign import Assignment` do not need it: they look in `sys.modules`.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
