"""A table's training on its way to its run folder and back. Without a folder nothing is kept.

The folder is that of any run (`apportion.runs.run`), with a record per net instead of one per
epoch. The checkpoint has the nets that are complete.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from os import PathLike
from typing import Any

import torch
from torch import nn

from apportion.auto.members import Member, plan_table
from apportion.auto.nets import digest
from apportion.bags.bags import Bags
from apportion.engine.device import device_for
from apportion.engine.distributed import ALONE, Ranks
from apportion.errors import RunError
from apportion.model.model import Model, describe_parts, net_for
from apportion.plan.choices import Choice
from apportion.runs.evaluation import Evaluation, plain_names, save_evaluations
from apportion.runs.header import RESTORE
from apportion.runs.run import Run
from apportion.training import checkpoint
from apportion.training.archive import Folder, begin
from apportion.training.identity import check_identity

__all__ = ["Archive"]

log = logging.getLogger("apportion")

# What checkpoints of a single net say of its epochs and of its optimiser.
NO_EPOCHS: dict[str, Any] = {
    "best_epoch": None,
    "best_error": None,
    "trained": {},
    "ended": None,
    "optimizer": None,
}


class Archive(Folder):
    """The run folder of one training of a table."""

    def __init__(
        self,
        run: str | PathLike[str] | Run | None,
        sets: Mapping[str, Bags],
        method: str,
        options: Mapping[str, Any],
        *,
        members: Sequence[Member],
        ranks: Ranks = ALONE,
    ) -> None:
        super().__init__(run, ranks)
        self.train, self.options, self.members = sets["train"], options, members
        self.method = {"name": method}
        if self.run is not None:
            prints = {name: checkpoint.fingerprint(sets.get(name)) for name in ("train", "valid")}
            self.identity = {
                "training set": prints["train"],
                "validation set": prints["valid"],
                "method": self.method,
                "configuration": {"seed": options["seed"], "nets": digest()},
                "arithmetic": {"precision": "float32"},
            }

    def resume(self) -> tuple[list[nn.Module], list[dict[str, Any]]]:
        """Return the nets that are complete, and their records; begin the run if there is none."""
        if self.run is None:
            return [], []
        if self.saved is None:
            resolved = {
                "nets": len(self.members),
                "device": str(device_for(self.options["device"])),
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
            }
            if self.ranks.leads:
                begin(self.run, self.options, self.method, resolved, self._plan())
            return [], []
        (tensors, header), self.saved = self.saved, None
        run, done = self.run, header["epoch"]
        check_identity(run, header["identity"], self.identity)
        for name, value in json.loads(json.dumps({**NO_EPOCHS, **self._about()})).items():
            if header.get(name) != value:
                raise RunError(f"{run.checkpoint} is damaged: {name} is of another run.", RESTORE)
        recipes = header.get("nets")
        recipes = recipes if isinstance(recipes, list) else []
        if len(recipes) != done or done > len(self.members):
            found = f"it was saved after net {done} of {len(self.members)}, and has {len(recipes)}"
            raise RunError(f"{run.checkpoint} is damaged: {found}.", RESTORE)
        if tensors.keys() != {str(number) for number in range(done)}:
            found = "it has tensors of no net, or no tensors of one"
            raise RunError(f"{run.checkpoint} is damaged: {found}.", RESTORE)
        nets = [
            _net(run, {**header, "recipe": recipe}, tensors[str(number)])
            for number, recipe in enumerate(recipes)
        ]
        if self.ranks.leads:
            run.rewind(done)
        records = run.records()[:done]
        _check_log(run, records, self.members[:done])
        log.info("Going on after net %d of %s.", done, run.folder)
        return [net.eval() for net in nets], records

    def save(self, nets: Sequence[nn.Module], record: Mapping[str, Any]) -> None:
        """Log the last net, and save all nets so far."""
        if self.run is None or not self.ranks.leads:
            return
        self.run.append(dict(record))
        tensors = {str(number): net.state_dict() for number, net in enumerate(nets)}
        scalars = {
            "epoch": len(nets),
            "threads": torch.get_num_threads(),
            "identity": self.identity,
            "nets": [net.recipe for net in nets],
            **NO_EPOCHS,
            **self._about(),
        }
        checkpoint.save(self.run, tensors, scalars)

    def save_model(self, model: Model, evaluations: Callable[[], Mapping[str, Evaluation]]) -> None:
        """Save the model, and its evaluation on each set of bags."""
        if self.run is None or not self.ranks.leads:
            return
        about: dict[str, Any] = {"columns": model.columns, "epoch": model.epoch}
        about["prevalence"] = model.prevalence
        kept = Model(model.net, plain_names(model.classes), model.parts, **about)
        kept.save(self.run.model)
        if not self.run.evaluation.exists():  # it is written once: a finished run learns no more
            save_evaluations(self.run, self.train.classes, evaluations())

    def _plan(self) -> dict[str, str]:
        method = Choice(self.method["name"], "given to train_table")
        held_out = Choice(None, "nothing is selected: bags that are held out are only reported")
        return plan_table(self.train, method, held_out, self.options["threads"]).reasons()

    def _about(self) -> dict[str, Any]:
        columns = self.train.columns
        return {
            "classes": plain_names(self.train.classes),
            "parts": describe_parts(self.train),
            "columns": None if columns is None else columns.to_dict(),
        }


def _net(run: Run, header: Mapping[str, Any], tensors: checkpoint.Tensors) -> nn.Module:
    recipe = header["recipe"]
    single = ("mlp", "summary")  # which an average and a learner are not
    if not isinstance(recipe, dict) or recipe.get("net") not in single:
        found = f"{recipe!r:.60} is the recipe of no net of a table, and of no summary of signals"
        raise RunError(f"{run.checkpoint} is damaged: {found}.", RESTORE)
    return net_for(run.checkpoint, header, None, tensors)


def _check_log(run: Run, records: list[dict[str, Any]], members: Sequence[Member]) -> None:
    """Check that the log and the checkpoint are of the same nets."""
    for number, (record, member) in enumerate(zip_longest(records, members), start=1):
        found = record.get("member") if record is not None else None
        if found != str(member):
            raise RunError(
                f"{run.log} has {found!r:.60} in line {number}, but the checkpoint {member}.",
                "Restore both files as they were, or start again in another folder.",
            )
