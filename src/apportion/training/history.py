"""The history of a training: the record of every epoch, and which was selected."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import count

__all__ = ["BY_CALLER", "BY_EPOCHS", "BY_PATIENCE", "History"]

BY_EPOCHS, BY_PATIENCE, BY_CALLER = "epochs", "patience", "on_epoch"  # how a training ended


@dataclass(eq=False)
class History:
    """The record of every epoch, and the results of the training.

    Examples
    --------
    >>> history = History([{"epoch": 1, "loss": 0.7}, {"epoch": 2, "loss": 0.5}], best_epoch=2)
    >>> history, history["loss"]
    (History(2 epochs, epoch 2 selected), [0.7, 0.5])
    >>> "loss" in history, "regret" in history
    (True, False)
    >>> history.selected
    {'epoch': 2, 'loss': 0.5}
    """

    records: list[dict[str, Any]] = field(default_factory=list)  # as in log.jsonl
    best_epoch: int | None = None  # the selected one; None if there was no validation
    best_error: float = math.inf  # its validation proportion error
    labels: NDArray[np.int64] | None = None  # (N,) the last pseudo labels, by `Bags.classes`
    ended: str | None = None  # by what: "epochs", "patience" or "on_epoch"; None if not by `fit`

    @property
    def n_epochs(self) -> int:
        """The number of epochs that are done."""
        return len(self.records)

    @property
    def selected(self) -> dict[str, Any]:
        """The record of the selected epoch; without validation, of the last one."""
        return self.records[(self.best_epoch or 0) - 1]

    def __getitem__(self, name: str) -> list[Any]:
        """Return one number per epoch: ``history["loss"]``; None for an epoch without it."""
        if name not in self:
            known = ", ".join(self.records[-1]) if self.records else "nothing"
            raise KeyError(f"{name!r} is not in the records, which have {known}")
        return [record.get(name) for record in self.records]

    def __contains__(self, name: object) -> bool:
        """Tell whether any record has a number: ``"skill" in history``."""
        return any(name in record for record in self.records)

    def __repr__(self) -> str:
        if self.records and "member" in self.records[0]:
            return f"History({count(self.n_epochs, 'net')})"
        chosen = "no selection" if self.best_epoch is None else f"epoch {self.best_epoch} selected"
        return f"History({count(self.n_epochs, 'epoch')}, {chosen})"
