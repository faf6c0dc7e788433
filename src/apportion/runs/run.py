"""A run: one training, as a folder of plain files.

    config.toml              the options of the training
    log.jsonl                one JSON record per epoch, or per net of an average, and when it ended
    checkpoint.safetensors   everything that is needed to continue
    model.safetensors        the selected model
    last.safetensors         that of the last epoch, of a single net
    pretrained.safetensors   the weights but the last layer, of pre-training without labels
    evaluation.safetensors   evaluation of the selected model on each set of bags
    report.html              the report, if one was written
    tensorboard              a folder of event files, if they were asked for
    pretraining              a folder like this one: what the net has learned before, without labels
    lock                     held by the process that trains

A file is replaced in one step or not at all (`apportion.files`). Only the log is appended to; the
checkpoint says how many of its records count. The format version in config.toml is also that of
the log; safetensors files carry their own (`apportion.runs.header`).
"""

from __future__ import annotations

import logging
import math
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from apportion.config import MOST_NETS, TrainConfig
from apportion.errors import ConfigError, RunError, count, must_be
from apportion.files import (
    BY_SAFETENSORS,
    UNFINISHED,
    append_line,
    as_toml,
    opened_itself,
    parse_toml,
    read_lines,
    read_toml,
    remove_unfinished,
    replacing,
    writing,
)

try:
    import fcntl
except ImportError:  # pragma: no cover - on Windows, where a file that is locked cannot be deleted
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "FORMAT_VERSION",
    "WITHOUT_LABELS",
    "Run",
    "check_classifies",
    "check_records",
    "planned",
]

log = logging.getLogger("apportion")

FORMAT_VERSION = 4  # of every file in a run's folder
AT = "at"  # in a line of the log: when it was written, in seconds since 1970
LATEST = 253_402_300_799  # the end of the year 9999
WITHOUT_LABELS = "SimCLR"  # the method of pre-training
MAKE_ROOM = "Make room on the disk and run again: training continues from the last checkpoint."


class Run:
    """The folder of one training, which continues from where it stopped.

    Parameters
    ----------
    folder : path
        It need not exist yet.
    about : mapping of mappings, optional
        Further sections for the config.toml of a new run: where its data are, for example.

    Attributes
    ----------
    files : tuple of paths
        Everything that the folder of a run may hold: nothing else is ever removed.

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
        if not os.fspath(folder):  # which Path would take for the current folder
            raise must_be("run", "the path of a folder", folder)
        self.folder = Path(folder)
        self.about: Mapping[str, Mapping[str, Any]] = about or {}
        self.config = self.folder / "config.toml"
        self.log = self.folder / "log.jsonl"
        self.checkpoint = self.folder / "checkpoint.safetensors"
        self.model = self.folder / "model.safetensors"
        self.last = self.folder / "last.safetensors"
        self.pretrained = self.folder / "pretrained.safetensors"
        self.evaluation = self.folder / "evaluation.safetensors"
        self.report = self.folder / "report.html"
        self.tensorboard = self.folder / "tensorboard"
        self.pretraining = self.folder / "pretraining"
        self.lock = self.folder / "lock"
        trained = (self.config, self.log, self.checkpoint, self.model, self.last, self.pretrained)
        folders = (self.tensorboard, self.pretraining)
        self.files = (*trained, self.evaluation, self.report, *folders, self.lock)
        self._lock = FileLock(self.lock, timeout=0)

    def is_empty(self) -> bool:
        """Tell whether the folder holds at most a lock and unfinished files: no run has begun."""
        kept = {*self.files} - {self.lock}
        return not self.foreign() and not any(map(os.path.lexists, kept))

    def is_finished(self) -> bool:
        """Tell whether training has ended, or pre-training if that is all of the run."""
        return self.evaluation.exists() or self.pretrained.exists()

    def has_begun(self) -> bool:
        """Tell whether anything was learned, in pre-training or after it."""
        return bool(self.records() or Run(self.pretraining).records())

    def clear(self) -> None:
        """Remove everything of the run but its lock, which the caller holds.

        The configuration is removed last: until then the run can still be continued.
        """
        for path in (*(p for p in self.files if p not in (self.config, self.lock)), self.config):
            remove_unfinished(path)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def foreign(self) -> list[Path]:
        """List what is in the folder but not of a run; unfinished files of a run are its own."""
        unfinished = tuple(f"{path.name}." for path in self.files)
        inside = Run(self.pretraining).foreign() if self.pretraining.is_dir() else []
        return inside + sorted(
            path
            for path in self.folder.glob("*")
            if path not in self.files
            and not (path.name.startswith(unfinished) and path.name.endswith(UNFINISHED))
            and not fnmatchcase(path.name, BY_SAFETENSORS)
        )

    def settings(
        self, remedy: str = "Pass the folder of a run, which apportion train or fit has created."
    ) -> dict[str, Any]:
        """Read config.toml, and check that it has the sections [train] and [method] of a run.

        Raises
        ------
        RunError
            If it is missing, is not that of a run, or is of another format.
        """
        if not self.config.is_file():
            there = "is not a run folder: it has no config.toml"
            found = there if self.folder.is_dir() else "does not exist"
            found = "is a file, not a folder" if self.folder.is_file() else found
            raise RunError(f"{self.folder} {found}.", remedy)
        read = read_toml(self.config, RunError, remedy)
        version = read.get("format")
        if type(version) is int and version != FORMAT_VERSION:
            raise RunError(
                f"{self.config} is of format version {version}; this apportion reads "
                f"{FORMAT_VERSION}.",
                "Use the version of apportion that wrote it.",
            )
        sections = [name for name in ("train", "method") if name not in read]
        sections += [n for n, v in read.items() if n != "format" and not isinstance(v, dict)]
        if sections or type(version) is not int:
            raise RunError(f"{self.config} is not the configuration of a run.", remedy)
        try:
            TrainConfig.from_dict(read["train"])
            planned(read)
            if not isinstance(name := read["method"].get("name"), str):
                raise must_be("the name of the method", "a text", name)
        except ConfigError as error:
            problem = str(error).partition("\n")[0]
            raise RunError(
                f"{self.config} is not the configuration of a run: {problem}", remedy
            ) from error
        return read

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process out. The lock of a process that dies is released.

        The holder may take it again through the same `Run`.
        """
        with ExitStack() as held:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                if not self._lock.is_locked:
                    held.enter_context(_held(self.folder))
                    if self.lock.is_symlink():
                        self.lock.unlink()
                held.enter_context(self._lock)
                for path in self.files:
                    if path != self.report:  # which may be on its way into the folder
                        remove_unfinished(path)
            except (BlockingIOError, Timeout):
                raise RunError(
                    f"{self.folder} is in use: another process is training in it.",
                    "Wait for it to end, or train in another folder.",
                ) from None
            except OSError as error:
                raise RunError(
                    f"{self.folder} cannot be a run folder: {error.strerror}.",
                    "Pass a folder that you may write to, or one that does not exist yet.",
                ) from error
            yield

    def append(self, record: dict[str, Any]) -> None:
        """Append a record to the log with the time, and force it to the disk."""
        with writing(self.log, RunError, MAKE_ROOM):
            append_line(self.log, {**record, AT: int(time.time())}, RunError)

    def set_epochs(self, epochs: int) -> None:
        """Change the number of epochs in config.toml and what its plan says of it, nothing else.

        The run is then not finished: its evaluation is removed. The models stay until others take
        their place.
        """
        if not self.config.exists() or self.settings()["train"]["epochs"] == epochs:
            return
        wanted, text = self.settings(), self.config.read_text(encoding="utf-8")
        wanted["train"]["epochs"] = epochs
        found = re.search(r"^epochs *= *(\d+)( *#.*)?$", text, re.MULTILINE)
        if found is not None:
            note = found[2] or f"  # {found[1]} when it began, which eta in [resolved] follows"
            text = f"{text[: found.start()]}epochs = {epochs}{note}{text[found.end() :]}"
            if "epochs" in wanted.get("plan", {}):
                began = re.search(r"(\d+) when it began", note)
                said = f"{epochs:,} (given{f'; {int(began[1]):,} when it began' if began else ''})"
                wanted["plan"]["epochs"] = said
                line = re.compile(r"(^\[plan\].*?^)epochs *=[^\n]*$", re.MULTILINE | re.DOTALL)
                as_line = as_toml({"epochs": said}).rstrip()
                text = line.sub(lambda at: f"{at[1]}{as_line}", text, count=1)
        if parse_toml(text, str(self.config)) != wanted:
            raise RunError(
                f"{self.config} was edited: its number of epochs cannot be changed to {epochs}.",
                "Write it on a line of its own under [train], which comes first.",
            )
        with writing(self.evaluation, RunError, MAKE_ROOM):  # first: a kill leaves it unfinished
            self.evaluation.unlink(missing_ok=True)
        with self.replacing(self.config) as beside:
            beside.write_text(text, encoding="utf-8")

    def records(self) -> list[dict[str, Any]]:
        """Read the log, except a last line that is not finished, and the times of its lines.

        Raises
        ------
        RunError
            If a line is not the record of its epoch: its numbers, and the seconds that it took.
        """
        return [{k: v for k, v in line.items() if k != AT} for line in self._lines()]

    def times(self) -> list[int | None]:
        """Read when each record was written, in seconds since 1970, where the log says so."""
        return [line.get(AT) for line in self._lines()]

    def _lines(self) -> list[dict[str, Any]]:
        remedy = "Restore it from a copy, or train in another folder."
        try:
            records = read_lines(self.log, RunError, remedy)
        except (OSError, RecursionError) as error:
            raise RunError(f"{self.log} cannot be read: {error}.", remedy) from error
        check_records(self.log, records, remedy)
        return records

    def rewind(self, n_records: int) -> None:
        """Cut the log back to its first records, those that a checkpoint knows of."""
        *lines, rest = self.log.read_bytes().split(b"\n") if self.log.exists() else [b""]
        lines += [rest] if rest else []
        if len(lines) < n_records:
            raise RunError(
                f"{self.log} has {count(len(lines), 'line')}, but the checkpoint was saved after "
                f"{count(n_records, 'record')}.",
                "Restore the log as it was, or train in another folder.",
            )
        if len(lines) > n_records:
            with writing(self.log, RunError, MAKE_ROOM), opened_itself(self.log, RunError) as log:
                os.truncate(log.fileno(), sum(len(line) + 1 for line in lines[:n_records]))

    def replacing(self, path: Path) -> AbstractContextManager[Path]:
        """Yield a path to write to, and put what was written in the place of a file in one step."""
        return replacing(path, RunError, MAKE_ROOM)


def planned(settings: Mapping[str, Any]) -> tuple[int, str]:
    """Return how many records a run will have, and what each is of: an epoch or a net.

    Examples
    --------
    >>> planned({"train": {"epochs": 50}}), planned({"train": {}, "resolved": {"nets": 12}})
    ((50, 'epoch'), (12, 'net'))
    """
    nets, epochs = settings.get("resolved", {}).get("nets"), settings["train"].get("epochs")
    if nets is None and epochs is not None:
        return epochs, "epoch"
    if type(nets) is not int or not 1 <= nets <= MOST_NETS or epochs is not None:
        rule = f"a number from 1 to {MOST_NETS} where [train] has no epochs"
        raise must_be("nets in [resolved]", rule, nets)
    return nets, "net"


def check_classifies(run: Run, settings: Mapping[str, Any]) -> None:
    """Check that a run is not one of pre-training alone, which has no classes to speak of."""
    if settings["method"]["name"] != WITHOUT_LABELS:
        return
    folder, done = shlex.quote(str(run.folder)), len(run.records())
    total, _ = planned(settings)
    if not run.pretrained.exists():
        raise RunError(
            f"{run.folder} holds pre-training without labels, {done} of {count(total, 'epoch')}, "
            "and no classifier.",
            f"Go on with it: apportion pretrain --resume {folder}"
            if "data" in settings
            else "Go on as it was started: with apportion train --resume and the folder above it, "
            "or by the same call in Python.",
        )
    raise RunError(
        f"{run.folder} holds pre-training without labels, and no classifier yet.",
        f"Train one from it: apportion train … --preset strong --pretrained {folder}; or "
        f"LLPClassifier(preset='strong', pretrain={str(run.folder)!r}).",
    )


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Lock a folder itself, whose lock file might be deleted, where the file system can."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    _locked.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # some file systems of networks lock files alone
            log.debug("%s cannot be locked itself: only its lock file is.", folder)
        yield
    finally:
        if descriptor in _locked:
            _locked.remove(descriptor)
            os.close(descriptor)


_locked = set[int]()  # descriptors of the folders that this process holds


def _hold_nothing() -> None:
    """Release the folders in a process that was forked, such as one that reads data.

    It would hold them a while longer than a training that is killed.
    """
    while _locked:
        os.close(_locked.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hold_nothing)


def check_records(path: Path, records: Any, remedy: str) -> None:
    """Check that records are those of the epochs 1, 2, …, one per line."""
    for number, record in enumerate(records, start=1):
        if (problem := _problem(record, number)) is not None:
            raise RunError(f"{path} is damaged: line {number:,} {problem}.", remedy)


def _problem(record: Any, epoch: int) -> str | None:
    """Return what keeps a line of the log from being the record of an epoch, if anything does."""
    if not isinstance(record, dict):
        return "is not a record"
    if type(record.get("epoch")) is not int or record["epoch"] != epoch:
        return f"is of epoch {record.get('epoch')!r:.60}"
    seconds = record.get("seconds", {})
    if not isinstance(seconds, dict):
        return "has no seconds by phase"
    for name, value in (*record.items(), *seconds.items()):
        share = name.endswith(("_error", "_accuracy"))
        measured = share or name in ("loss", "skill", "standard_errors", *seconds)
        if name == "seconds" or (value is None and name not in ("member", *seconds)):
            continue
        if name == "member" and isinstance(value, str):  # of an average
            continue
        if name == AT and (type(value) is not int or not 0 <= value <= LATEST):
            return f"has {name} {value!r:.60}"
        if name == "member" or not _is_number(value) or (measured and not math.isfinite(value)):
            return f"has {name} {value!r:.60}"
        least = 0 if share or name in seconds else -math.inf
        most = 1.01 if share or name == "skill" else math.inf  # rounding
        if value < least or value > most:
            return f"has {name} {value}"
    return None


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)
