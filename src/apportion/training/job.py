"""A `Job`: one training, as a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from os import PathLike
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.methods.base import Method
from apportion.methods.registry import describe, method_named
from apportion.nets.augment import Augment
from apportion.runs.run import Run
from apportion.training.checks import check_functions, check_types
from apportion.training.history import History
from apportion.training.optimizer import MakeOptimizer, MakeScheduler

__all__ = ["Job", "OnEpoch"]

OnEpoch = Callable[[dict[str, Any], nn.Module], bool | None]  # True ends the training


@dataclass(frozen=True, eq=False)
class Job:
    """One training, for `fit_many`: the arguments of `fit`, and what to do at its end.

    On a GPU `on_epoch` and `on_end` are called in the job's thread, and must not wait for the whole
    device (`torch.cuda.synchronize`), which would disturb a job that is being recorded.
    """

    net: nn.Module
    train: Bags
    valid: Bags | None = None
    test: Bags | None = None
    _: KW_ONLY
    method: str | Method = "fpl"
    config: TrainConfig = field(default_factory=TrainConfig)
    run: str | PathLike[str] | Run | None = None
    on_epoch: OnEpoch | None = None
    optimizer: MakeOptimizer | None = None
    scheduler: MakeScheduler | None = None
    augment: Augment | None = None
    on_end: Callable[[History], None] | None = None  # called once the run folder is complete

    def __post_init__(self) -> None:
        """Check that everything is what `fit` takes."""
        check_types(self.net, self.config, self.train, self.valid, self.test)
        check_functions(self.optimizer, self.scheduler, self.augment, self.on_epoch)

    def told(self) -> dict[str, Any]:
        """Return what processes that train together are given alike, besides bags and folder."""
        weights = self.net.state_dict(keep_vars=True)
        functions = ("optimizer", "scheduler", "augment", "on_epoch")
        return {
            "method": describe(method_named(self.method)),
            "configuration": self.config,
            "net": [
                (name, None if is_lazy(w) else w.shape, w.dtype, w.requires_grad)
                for name, w in weights.items()
            ],
            "functions": [name for name in functions if getattr(self, name) is not None],
        }
