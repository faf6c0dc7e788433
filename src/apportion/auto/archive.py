"""A table's training on its way to its run folder and back. Without a folder nothing is kept.

The folder is that of any run (`apportion.runs.run`), with a record per net instead of one per
epoch. The checkpoint has the nets that are complete.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.engine.device import device_for
from apportion.errors import RunError
from apportion.model._read import net_for
from apportion.model.model import Model, describe_parts
from apportion.runs.evaluation import Evaluation, plain_names, save_evaluations
from apportion.runs.header import RESTORE
from apportion.runs.run import Run
from apportion.training import checkpoint
from apportion.training.archive import begin, check_identity

__all__ = ["Archive"]

log = logging.getLogger("apportion")


class Archive:
    """The run folder of one training of a table."""

    def __init__(
        self,
        run: str | PathLike[str] | Run | None,
        sets: Mapping[str, Bags],
        method: str,
        options: Mapping[str, Any],
        *,
        n_nets: int,
    ) -> None:
        self.run = run if run is None or isinstance(run, Run) else Run(run)
        self.train, self.options, self.n_nets = sets["train"], options, n_nets
        self.method = {"name": method}
        self.saved: tuple[dict[str, checkpoint.Tensors], dict[str, Any]] | None = None
        if self.run is not None:
            prints = {name: checkpoint.fingerprint(sets.get(name)) for name in ("train", "valid")}
            self.identity = {
                "training set": prints["train"],
                "validation set": prints["valid"],
                "method": self.method,
                "configuration": {"seed": options["seed"]},
                "arithmetic": {"precision": "float32"},
            }

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Lock the folder, and read its checkpoint."""
        if self.run is None:
            yield
            return
        with self.run.locked():
            if self.run.checkpoint.exists():
                self.saved = checkpoint.load(self.run)
                checkpoint.check_header(self.run, self.saved[1])
            yield

    @property
    def threads(self) -> int | None:
        """How many threads the checkpoint was computed with: only so many give the same bits."""
        threads: int | None = None if self.saved is None else self.saved[1]["threads"]
        return threads

    def resume(self) -> tuple[list[nn.Module], list[dict[str, Any]]]:
        """Return the nets that are complete, and their records; begin the run if there is none."""
        if self.run is None:
            return [], []
        if self.saved is None:
            resolved = {
                "nets": self.n_nets,
                "device": str(device_for(self.options["device"])),
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
            }
            begin(self.run, self.options, self.method, resolved)
            return [], []
        (tensors, header), self.saved = self.saved, None
        run, done = self.run, header["epoch"]
        check_identity(run, header["identity"], self.identity)
        for name, value in json.loads(json.dumps(self._about())).items():
            if header.get(name) != value:
                raise RunError(f"{run.checkpoint} is damaged: {name} is of another run.", RESTORE)
        recipes = header.get("nets")
        names = {str(number) for number in range(done)}
        if not isinstance(recipes, list) or len(recipes) != done or done > self.n_nets:
            found = f"it was saved after net {done} of {self.n_nets}"
            raise RunError(f"{run.checkpoint} is damaged: {found}.", RESTORE)
        if tensors.keys() != names:
            raise RunError(f"{run.checkpoint} is damaged: it has tensors of no net.", RESTORE)
        nets = [
            net_for(run.checkpoint, {**header, "recipe": recipe}, None, tensors[str(number)])
            for number, recipe in enumerate(recipes)
        ]
        run.rewind(done)
        records = run.records()
        log.info("Going on after net %d of %s.", done, run.folder)
        return [net.eval() for net in nets], records

    def save(self, nets: Sequence[nn.Module], record: Mapping[str, Any]) -> None:
        """Log the last net, and save all nets so far."""
        if self.run is None:
            return
        self.run.append(dict(record))
        tensors = {str(number): net.state_dict() for number, net in enumerate(nets)}
        scalars = {
            "epoch": len(nets),
            "best_epoch": None,
            "best_error": None,
            "threads": torch.get_num_threads(),
            "trained": {},
            "identity": self.identity,
            "nets": [net.recipe for net in nets],
            **self._about(),
        }
        checkpoint.save(self.run, tensors, scalars)

    def save_model(self, model: Model, evaluations: Mapping[str, Evaluation]) -> None:
        """Save the model, and its evaluation on each set of bags."""
        if self.run is None:
            return
        model.save(self.run.model)
        if not self.run.evaluation.exists():  # it is written once: a finished run learns no more
            save_evaluations(self.run, self.train.classes, evaluations)

    def _about(self) -> dict[str, Any]:
        columns = self.train.columns
        return {
            "classes": plain_names(self.train.classes),
            "parts": describe_parts(self.train),
            "columns": None if columns is None else columns.to_dict(),
        }
