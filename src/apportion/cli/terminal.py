"""The terminal: what is shown of the log, and what Ctrl-C does."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

__all__ = ["INTERRUPTED", "Interruption", "interruptible", "log_shown", "warnings_kept"]

INTERRUPTED = 130  # the exit code of what Ctrl-C has ended


@contextmanager
def log_shown() -> Iterator[None]:
    """Show the log: all of it in a file or a pipe, warnings alone where there are bars."""
    logger, handler = logging.getLogger("apportion"), logging.StreamHandler(sys.stderr)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if sys.stderr.isatty() else logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


@contextmanager
def warnings_kept() -> Iterator[list[str]]:
    """Yield a list that gets the warnings of the log, which are not shown meanwhile."""
    logger, handler, kept = logging.getLogger("apportion"), logging.Handler(logging.WARNING), []

    def keep(record: logging.LogRecord) -> None:
        kept.append(record.getMessage())

    handler.emit = keep  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield kept
    finally:
        logger.removeHandler(handler)


class Interruption:
    """Ctrl-C: the first ends training after the epoch, when it can be left; the second at once."""

    def __init__(self) -> None:
        self.asked = self.over = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C."""
        if self.over:  # what is left takes only a moment, and must be completed
            return
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True
        typer.echo("\nStopping after this epoch; Ctrl-C again stops at once.", err=True)

    def after_epoch(self) -> None:
        """End the training, if that was asked for."""
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Handle Ctrl-C until the end of the block."""
    interruption = Interruption()
    before = signal.signal(signal.SIGINT, interruption.ask)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)
