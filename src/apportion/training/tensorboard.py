"""Epochs as scalars for TensorBoard: an `on_epoch` for `fit`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from apportion.errors import RunError

__all__ = ["scalars", "tensorboard"]

EVENTS = "events.out.tfevents."  # what the names of event files begin with, before the second

# Names in the records whose first word is a group.
GROUPS = {"valid": "validation", "test": "test", "label": "labels"}
OTHERS = {"changed": "labels/changed"}


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of an epoch by the names that TensorBoard groups them by.

    Examples
    --------
    >>> scalars({"epoch": 7, "loss": 0.5, "valid_error": 0.25, "seconds": {"train": 3.0}})
    {'loss': 0.5, 'validation/error': 0.25, 'seconds/train': 3.0}
    """
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            found |= {f"{name}/{inner}": float(number) for inner, number in value.items()}
        elif name not in ("epoch", "member"):
            group, _, rest = name.partition("_")
            grouped = f"{GROUPS[group]}/{rest}" if rest and group in GROUPS else name
            found[OTHERS.get(name, grouped)] = float(value)
    return found


@contextmanager
def tensorboard(
    folder: str | PathLike[str],
) -> Iterator[Callable[[dict[str, Any], nn.Module], None]]:
    """Log every epoch for TensorBoard.

    A training that goes on from a checkpoint goes on in the same folder: epochs that it repeats
    take the place of those logged before.

    Parameters
    ----------
    folder : path
        Where the event files go; made if it does not exist.

    Yields
    ------
    callable
        To be passed as ``on_epoch``::

            with tensorboard("runs/a/tensorboard") as on_epoch:
                fit(net, bags, run="runs/a", on_epoch=on_epoch)

    Raises
    ------
    RunError
        If tensorboard is not installed, or the folder cannot be made.
    """
    make_writer = _summary_writer()
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{folder} cannot be a folder for TensorBoard: {error.strerror}.",
            "Pass a folder that you may write to, or one that does not exist yet.",
        ) from error
    writer: Any = None

    def on_epoch(record: dict[str, Any], net: nn.Module) -> None:  # noqa: ARG001
        nonlocal writer
        if writer is None:
            _wait_for_a_later_name(folder)
            # Whoever reads the files drops what earlier ones have of this epoch and of later ones.
            writer = make_writer(str(folder), purge_step=record["epoch"])
        for name, value in scalars(record).items():
            writer.add_scalar(name, value, record["epoch"])
        writer.flush()

    try:
        yield on_epoch
    finally:
        if writer is not None:
            writer.close()


def _summary_writer() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of its own dependencies
            return import_module("torch.utils.tensorboard").SummaryWriter
    except ImportError as error:
        raise RunError(
            "epochs are logged with tensorboard, which is not installed.",
            "Install it with: pip install 'apportion[tensorboard]'",
        ) from error


def _wait_for_a_later_name(folder: Path) -> None:
    """Files are read in the order of their names, which tell seconds apart, but no less."""
    newest = max((file.name for file in folder.glob(f"{EVENTS}*")), default="")
    while newest.startswith(f"{EVENTS}{int(time.time()):010d}."):
        time.sleep(0.05)
