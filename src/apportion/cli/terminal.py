"""The terminal: what is shown of the log, and what Ctrl-C does."""

from __future__ import annotations

import copy
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import typer

from apportion.bags.notes import notes
from apportion.errors import Option

__all__ = [
    "INTERRUPTED",
    "Interruption",
    "Kept",
    "interruptible",
    "interruptions_noted",
    "log_kept",
    "log_shown",
    "with_exclude",
]

INTERRUPTED = 130  # the exit code of what Ctrl-C has ended


def with_exclude(part: str | Option) -> str | Option:
    """Return a part of a remedy with --exclude in place of the columns or channels to learn."""
    if isinstance(part, Option) and part.name in ("columns", "channels"):
        return Option("exclude", flag_value=part.flag_value)
    return part


class _WithFlags(logging.Formatter):
    """The message of a record of the log, with options as the command line spells them."""

    def format(self, record: logging.LogRecord) -> str:
        if isinstance(record.args, tuple):
            record = copy.copy(record)  # other handlers get it as it was
            parts: Any = map(with_exclude, record.args)  # type: ignore[arg-type]
            record.args = tuple(p.flag if isinstance(p, Option) else p for p in parts)
        return super().format(record)


@contextmanager
def log_shown(*, notes_alone: bool = False) -> Iterator[None]:
    """Show the log: all of it in a file or a pipe, warnings and notes alone where there are bars.

    Notes say how files were read.
    """
    logger, handler = logging.getLogger("apportion"), logging.StreamHandler(sys.stderr)
    before = logger.level
    handler.setFormatter(_WithFlags())
    logger.addHandler(handler)
    few = notes_alone or sys.stderr.isatty()
    logger.setLevel(logging.WARNING if few else logging.INFO)
    try:
        with _notes_made():
            yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


@contextmanager
def _notes_made() -> Iterator[None]:
    before = notes.level
    notes.setLevel(logging.INFO)
    try:
        yield
    finally:
        notes.setLevel(before)


class Kept(NamedTuple):
    """Messages of the log."""

    warnings: list[str]
    notes: list[str]  # on how files were read


@contextmanager
def log_kept() -> Iterator[Kept]:
    """Yield lists that get the warnings and notes of the log, which are not shown meanwhile."""
    logger, handler, kept = logging.getLogger("apportion"), logging.Handler(), Kept([], [])

    def keep(record: logging.LogRecord) -> None:
        if record.name == notes.name:
            kept.notes.append(_WithFlags().format(record))
        elif record.levelno >= logging.WARNING:
            kept.warnings.append(_WithFlags().format(record))

    handler.emit = keep  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        with _notes_made():
            yield kept
    finally:
        logger.removeHandler(handler)


class Interruption:
    """Ctrl-C: the first ends training after the epoch, when it can be left; the second at once."""

    def __init__(self, otherwise: Callable[..., Any], *, shown: bool = True) -> None:
        self.asked = self.over = False
        self.otherwise = otherwise  # what handles it at once
        self.shown = shown

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C."""
        if self.over:  # what is left takes only a moment, and must be completed
            return
        if self.asked:
            self.otherwise(number, frame)
        self.asked = True
        if self.shown:
            typer.echo("\nStopping after this epoch or net; Ctrl-C again stops at once.", err=True)

    def after_epoch(self) -> None:
        """End the training, if that was asked for."""
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def interruptible(*, shown: bool = True) -> Iterator[Interruption]:
    """Handle Ctrl-C until the end of the block, and say so unless another process does."""
    before = signal.getsignal(signal.SIGINT)
    otherwise = before if callable(before) else signal.default_int_handler
    interruption = Interruption(otherwise, shown=shown)
    signal.signal(signal.SIGINT, interruption.ask)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interruptions_noted(interruptions: list[int]) -> Iterator[None]:
    """Note every Ctrl-C that is raised as KeyboardInterrupt: compiled code may change the error."""
    before, main = signal.getsignal(signal.SIGINT), threading.main_thread()
    # Ctrl-C may be ignored, or belong to a program that calls this one.
    if before is not signal.default_int_handler or threading.current_thread() is not main:
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        interruptions.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
