"""A run: one training, as a folder of plain files.

    config.toml              how it is trained
    log.jsonl                what happened, a line an epoch
    checkpoint.safetensors   all that is needed to go on
    model.safetensors        the selected model;  last.safetensors: that of the last epoch
    outcome.safetensors      what the selected model makes of the bags, for the report
    lock                     held by the process that trains

A file is replaced in one step or not at all (`apportion.files`). The log alone is appended to; a
checkpoint says how much of it counts. The format version in config.toml is that of the log, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from apportion.errors import RunError
from apportion.files import (
    append_line,
    read_lines,
    read_toml,
    remove_unfinished,
    replacing,
    writing,
)

__all__ = [
    "FORMAT_VERSION",
    "Run",
]

FORMAT_VERSION = 1  # of every file in a run's folder
MAKE_ROOM = "Make room on the disk, and run again: training goes on from the last checkpoint."


class Run:
    """The folder of one training, which goes on from where it was left.

    Parameters
    ----------
    folder : path
        It need not exist yet.
    about : mapping of mappings, optional
        Further sections for the config.toml of a new run, for example where its data are.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     run = Run(folder)
    ...     with run.locked():
    ...         run.append({"epoch": 1, "loss": 0.7})
    ...     run.records()
    [{'epoch': 1, 'loss': 0.7}]
    """

    def __init__(
        self, folder: str | os.PathLike[str], about: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self.folder = Path(folder)
        self.about: Mapping[str, Mapping[str, Any]] = about or {}
        self.config = self.folder / "config.toml"
        self.log = self.folder / "log.jsonl"
        self.checkpoint = self.folder / "checkpoint.safetensors"
        self.model = self.folder / "model.safetensors"
        self.last = self.folder / "last.safetensors"
        self.outcome = self.folder / "outcome.safetensors"
        self.files = (self.config, self.log, self.checkpoint, self.model, self.last, self.outcome)
        self._lock = FileLock(self.folder / "lock", timeout=0)

    def settings(self) -> dict[str, Any]:
        """Read config.toml, that of a run: its sections [train] and [method] are there.

        Raises
        ------
        RunError
            If there is none, or it is not that of a run, or one of another format.
        """
        remedy = "Pass the folder of a run, which apportion train or fit has made."
        if not self.config.is_file():
            there = "is not a run folder: it has no config.toml"
            raise RunError(
                f"{self.folder} {there if self.folder.is_dir() else 'is missing'}.", remedy
            )
        read = read_toml(self.config, RunError, remedy)
        try:
            is_one = read["train"]["epochs"] >= 1 and "name" in read["method"]
            version = read["format"]
        except (KeyError, TypeError):
            is_one, version = False, None
        if not is_one:
            raise RunError(f"{self.config} is not the configuration of a run.", remedy)
        if version != FORMAT_VERSION:
            raise RunError(
                f"{self.config} is of format version {version}; this apportion reads "
                f"{FORMAT_VERSION}.",
                "Use the version of apportion that wrote it.",
            )
        return read

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process out. A process that dies, however it dies, lets go.

        Whoever holds it may hold it again, by the same `Run`.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise RunError(
                f"{self.folder} is in use: another process is training in it.",
                "Wait for it to end, or train in another folder.",
            ) from None
        except OSError as error:
            raise RunError(
                f"{self.folder} cannot be a run folder: {error.strerror}.",
                "Pass a folder that you may write to, or one that does not exist yet.",
            ) from error
        try:
            for path in self.files:
                remove_unfinished(path)
            yield
        finally:
            self._lock.release()

    def append(self, record: dict[str, Any]) -> None:
        """Append a record to the log, and force it to the disk."""
        with writing(self.log, RunError, MAKE_ROOM):
            append_line(self.log, record)

    def records(self) -> list[dict[str, Any]]:
        """Read the log, except a last line that is not finished."""
        return read_lines(self.log, RunError, "Restore it from a copy, or train in another folder.")

    def log_bytes(self) -> int:
        """Return the length of the log."""
        return self.log.stat().st_size if self.log.exists() else 0

    def rewind(self, n_bytes: int) -> None:
        """Cut the log back to what a checkpoint knows of."""
        if self.log_bytes() < n_bytes:
            raise RunError(
                f"{self.log} has {self.log_bytes():,} bytes, but the checkpoint was saved when it "
                f"had {n_bytes:,}.",
                "Put the log back as it was, or start again in another folder.",
            )
        if self.log.exists():
            os.truncate(self.log, n_bytes)

    def replacing(self, path: Path) -> AbstractContextManager[Path]:
        """Yield a path to write to, and put what was written in the place of a file in one step."""
        return replacing(path, RunError, MAKE_ROOM)
