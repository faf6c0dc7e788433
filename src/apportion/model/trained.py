"""The model of a finished run, ready to be used: made from the files of its folder alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from apportion.bags.columns import Columns
from apportion.errors import RunError
from apportion.nets.build import from_recipe
from apportion.nets.normalized import Normalized
from apportion.runs.run import FORMAT_VERSION, Run
from apportion.training import checkpoint

__all__ = ["Trained", "read_columns", "read_trained", "save_columns"]


@dataclass(frozen=True, eq=False)
class Trained:
    """A selected model, and what it takes and gives."""

    model: Normalized
    classes: list[Any]
    parts: list[dict[str, Any]]  # shape and dtype of every part of an instance, as stored
    columns: Columns | None  # how the columns of a table became numbers
    epoch: int
    records: list[dict[str, Any]]  # the log


def read_trained(folder: str | PathLike[str]) -> Trained:
    """Read the selected model of a run, which must have ended."""
    run = Run(folder)
    epochs = run.settings()["train"]["epochs"]
    if not run.model.is_file():
        raise RunError(
            f"{run.folder} is not finished: {len(run.records())} of {epochs} epochs are done, and "
            "no model is selected yet.",
            f"Go on with it: apportion train --resume {run.folder}",
        )
    groups, about = checkpoint.load(run.model, "model")
    recipe = about.get("recipe")
    if recipe is None or "parts" not in about:
        raise RunError(
            f"{run.model} has the weights of a network that is none of apportion's.",
            "Make the network in Python, and load_state_dict of the file into it.",
        )
    model = from_recipe(recipe)
    weights = {
        f"{group}.{name}" if name else group: tensor
        for group, members in groups.items()
        for name, tensor in members.items()
    }
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise RunError(
            f"the weights in {run.model} are those of another network: {error}",
            "Restore the file from a copy.",
        ) from error
    model.eval()
    return Trained(
        model, about["classes"], about["parts"], read_columns(run), about["epoch"], run.records()
    )


def _columns_file(run: Run) -> Path:
    return run.folder / "columns.json"


def save_columns(run: Run, columns: Columns) -> None:
    """Keep in a run's folder how the columns of its table became numbers."""
    text = json.dumps({"format": FORMAT_VERSION, "columns": columns.to_dict()}, ensure_ascii=False)
    with run.replacing(_columns_file(run)) as beside:
        beside.write_text(text, encoding="utf-8")


def read_columns(run: Run) -> Columns | None:
    """Read them again; None where the instances are no rows of a table."""
    path = _columns_file(run)
    if not path.exists():
        return None
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        if read["format"] != FORMAT_VERSION:
            raise RunError(
                f"{path} is of format version {read['format']}; this apportion reads "
                f"{FORMAT_VERSION}.",
                "Use the version of apportion that saved it.",
            )
        return Columns.from_dict(read["columns"])
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}.", "Restore it from a copy.") from error
