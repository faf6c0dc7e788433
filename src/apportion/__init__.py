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
    from apportion.data.images import read_images as read_images
    from apportion.data.signals import read_signals as read_signals
    from apportion.data.tables import read_sets as read_sets
    from apportion.data.tables import read_table as read_table
    from apportion.errors import ApportionError as ApportionError
    from apportion.errors import AssignmentError as AssignmentError
    from apportion.errors import BagError as BagError
    from apportion.errors import ConfigError as ConfigError
    from apportion.errors import DataError as DataError
    from apportion.errors import RunError as RunError
    from apportion.estimator.classifier import LLPClassifier as LLPClassifier
    from apportion.estimator.selection import BagKFold as BagKFold
    from apportion.estimator.selection import proportion_scorer as proportion_scorer
    from apportion.labels.assign import Assignment as Assignment
    from apportion.labels.assign import assign as assign
    from apportion.labels.leader import Leader as Leader
    from apportion.methods.base import Method as Method
    from apportion.methods.base import Supervision as Supervision
    from apportion.methods.count_likelihood import CountLikelihood as CountLikelihood
    from apportion.methods.pi_model import PiModel as PiModel
    from apportion.methods.proportion_loss import ProportionLoss as ProportionLoss
    from apportion.methods.pseudo_labels import FPL as FPL
    from apportion.methods.registry import METHODS as METHODS
    from apportion.methods.vat import LLPVAT as LLPVAT
    from apportion.model.model import Model as Model
    from apportion.nets.build import build_net as build_net
    from apportion.report.build import write_report as write_report
    from apportion.runs.run import Run as Run
    from apportion.training.fit import fit as fit
    from apportion.training.history import History as History
    from apportion.training.job import Job as Job
    from apportion.training.many import fit_many as fit_many
    from apportion.training.steps import count_steps as count_steps

__version__ = "0.1.0"

# The module of each public name.
_HOME = {
    "ApportionError": "errors",
    "Assignment": "labels.assign",
    "AssignmentError": "errors",
    "BagError": "errors",
    "BagKFold": "estimator.selection",
    "Bags": "bags.bags",
    "ConfigError": "errors",
    "CountLikelihood": "methods.count_likelihood",
    "DataError": "errors",
    "FPL": "methods.pseudo_labels",
    "History": "training.history",
    "Job": "training.job",
    "LLPClassifier": "estimator.classifier",
    "LLPVAT": "methods.vat",
    "Leader": "labels.leader",
    "METHODS": "methods.registry",
    "Method": "methods.base",
    "Model": "model.model",
    "PiModel": "methods.pi_model",
    "ProportionLoss": "methods.proportion_loss",
    "Run": "runs.run",
    "RunError": "errors",
    "Supervision": "methods.base",
    "TrainConfig": "config",
    "assign": "labels.assign",
    "build_net": "nets.build",
    "count_steps": "training.steps",
    "counts_from_proportions": "bags.counts",
    "fit": "training.fit",
    "fit_many": "training.many",
    "proportion_scorer": "estimator.selection",
    "read_images": "data.images",
    "read_sets": "data.tables",
    "read_signals": "data.signals",
    "read_table": "data.tables",
    "write_report": "report.build",
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
