"""Learning from Label Proportions: an instance classifier from the class proportions of bags.

The public names are imported when they are first used, so that `import apportion` costs next to
nothing and loads neither numpy nor torch.

>>> import apportion
>>> apportion.assign([[0.1, 0.9], [0.2, 0.8], [0.4, 0.6]], [2, 1]).labels
array([0, 0, 1])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names, as type checkers read them
    from apportion.bags.bags import Bags as Bags
    from apportion.bags.counts import counts_from_proportions as counts_from_proportions
    from apportion.config import TrainConfig as TrainConfig
    from apportion.errors import ApportionError as ApportionError
    from apportion.errors import AssignmentError as AssignmentError
    from apportion.errors import BagError as BagError
    from apportion.errors import ConfigError as ConfigError
    from apportion.errors import DataError as DataError
    from apportion.errors import RunError as RunError
    from apportion.estimator.classifier import LLPClassifier as LLPClassifier
    from apportion.labels.assign import Assignment as Assignment
    from apportion.labels.assign import assign as assign
    from apportion.labels.leader import Leader as Leader
    from apportion.methods.base import Method as Method
    from apportion.methods.base import Supervision as Supervision
    from apportion.methods.pi_model import PiModel as PiModel
    from apportion.methods.proportion_loss import ProportionLoss as ProportionLoss
    from apportion.methods.pseudo_labels import FPL as FPL
    from apportion.methods.registry import METHODS as METHODS
    from apportion.methods.vat import LLPVAT as LLPVAT
    from apportion.runs.run import Run as Run
    from apportion.training.fit import fit as fit
    from apportion.training.history import History as History
    from apportion.training.many import Job as Job
    from apportion.training.many import fit_many as fit_many

__version__ = "0.1.0"

# Where each public name lives.
_HOME = {
    "ApportionError": "errors",
    "AssignmentError": "errors",
    "BagError": "errors",
    "ConfigError": "errors",
    "DataError": "errors",
    "RunError": "errors",
    "FPL": "methods.pseudo_labels",
    "LLPVAT": "methods.vat",
    "METHODS": "methods.registry",
    "Assignment": "labels.assign",
    "Bags": "bags.bags",
    "History": "training.history",
    "Job": "training.many",
    "LLPClassifier": "estimator.classifier",
    "Leader": "labels.leader",
    "Method": "methods.base",
    "PiModel": "methods.pi_model",
    "ProportionLoss": "methods.proportion_loss",
    "Run": "runs.run",
    "Supervision": "methods.base",
    "TrainConfig": "config",
    "assign": "labels.assign",
    "counts_from_proportions": "bags.counts",
    "fit": "training.fit",
    "fit_many": "training.many",
}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"apportion.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
