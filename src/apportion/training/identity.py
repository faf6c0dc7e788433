"""What must be the same for a run to go on: its bags, its method, and how it is trained."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from apportion.errors import RunError, listing
from apportion.methods.registry import describe
from apportion.runs.header import RESTORE
from apportion.runs.run import Run
from apportion.training import checkpoint
from apportion.training.optimizer_state import named
from apportion.training.session import Session

__all__ = ["check_identity", "difference", "identity_of", "with_epochs_added"]

# Options that may change from start to start; the precision they lead to may not.
FREE = ("device", "precision", "step_mode", "device_memory_gib", "threads", "workers",
        "checkpoint_every")  # fmt: skip


def identity_of(session: Session) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    config, own = asdict(session.config), session.augment
    return {
        "training set": checkpoint.fingerprint(session.train),
        "validation set": checkpoint.fingerprint(session.valid),
        "method": describe(session.method),
        **session.optimization.describe(),
        "augmentation": {"function": None if own is None else named(own)},
        "configuration": {name: value for name, value in config.items() if name not in FREE},
        "arithmetic": {"precision": str(session.precision).removeprefix("torch.")},
    }


def check_identity(run: Run, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Check that a checkpoint is of the same bags, method and configuration."""
    ours = json.loads(json.dumps(ours))
    same_method = theirs.get("method", ours["method"]) == ours["method"]  # others have other keys
    if same_method and theirs.keys() != ours.keys():
        found = f"the identity of the run has {listing(theirs) or 'nothing'}, not {listing(ours)}"
        raise RunError(f"{run.checkpoint} is damaged: {found}.", RESTORE)
    for name in sorted(ours, key=lambda name: name != "method"):  # on which all else depends
        if _told(ours[name]) != _told(theirs[name]):
            differs = difference(theirs[name], ours[name])
            raise RunError(
                f"{run.folder} holds a run of another {name}{differs}.",
                "Pass what it was started with, or train in another folder: what was learned so "
                "far depends on it.",
            )


def _told(value: Any) -> Any:
    """Return a value in which true is not 1."""
    if isinstance(value, dict):
        return {name: _told(own) for name, own in value.items()}
    if isinstance(value, list):
        return [_told(own) for own in value]
    return str(value) if isinstance(value, bool) else value


def with_epochs_added(
    run: Run, header: dict[str, Any], ours: dict[str, Any], *, by_config: bool
) -> dict[str, Any]:
    """Return what a run began with, but with more epochs, if that is all that differs.

    The result must be what that many epochs from the start had led to, at the same η. A scheduler
    of the caller's that depends on how many there are has other settings, and is refused as such.
    """
    theirs: dict[str, Any] = header["identity"]
    before, now = theirs.get("configuration"), ours["configuration"]
    if theirs.get("method") != json.loads(json.dumps(ours["method"])):
        return theirs
    planned = before.get("epochs") if isinstance(before, dict) else None
    if type(planned) is not int or planned < header["epoch"]:
        found = f"it was saved after epoch {header['epoch']} of {planned!r:.60}"
        raise RunError(f"{run.checkpoint} is damaged: {found}.", RESTORE)
    now = json.loads(json.dumps(now))
    if now["epochs"] <= planned or {**theirs["configuration"], "epochs": now["epochs"]} != now:
        return theirs
    if by_config and (now["schedule"] != "constant" or now["warmup"]):
        found = "which falls to 0 at the last" if now["schedule"] != "constant" else "by warmup"
        raise RunError(
            f"{run.folder} was trained for {planned} epochs, and its learning rate "
            f"depends on how many there are ({now['schedule']}, {found}): none can be added.",
            f"Train {now['epochs']} epochs in another folder.",
        )
    return {**theirs, "configuration": now}


def difference(theirs: Any, ours: Any) -> str:
    """Which options differ, where there are names."""
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        return ""
    names = sorted(n for n in theirs.keys() | ours.keys() if theirs.get(n) != ours.get(n))
    names = ["class"] if "class" in names else names  # of an optimiser: nothing else compares
    return ": " + ", ".join(f"{n} {theirs.get(n)!r}, not {ours.get(n)!r}" for n in names)
