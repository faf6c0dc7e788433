"""What a person sees of a training: one line per epoch in the log, and a bar on a terminal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from rich.progress import TaskID

log = logging.getLogger("apportion")

__all__ = ["Stopwatch", "announce", "brief", "progress_bars", "readable"]

ROOM_FOR_BARS = 56  # columns of a terminal: the bar, the epochs, the time left

SHOWN = {
    "loss": ("loss", "{:.4f}"),
    "valid_error": ("validation error", "{:.4f}"),
    "proportion_error": ("proportion error", "{:.4f}"),
    "changed": ("labels changed", "{:.1%}"),
    "regret": ("regret", "{:.4f}"),
    "label_accuracy": ("label accuracy", "{:.1%}"),
    "valid_accuracy": ("validation accuracy", "{:.1%}"),
    "test_accuracy": ("test accuracy", "{:.1%}"),
}


def brief(record: Mapping[str, Any]) -> str:
    """Put what matters most in the record of an epoch into a few words.

    Examples
    --------
    >>> brief({"epoch": 7, "loss": 0.5, "changed": 0.125, "regret": 0.1, "seconds": {"train": 1.5}})
    'loss 0.5000 · labels changed 12.5%'
    """
    shown = _shown(record, ("loss", "valid_error", "proportion_error", "changed"))
    return " · ".join([*([record["member"]] if "member" in record else []), *shown])


def readable(record: Mapping[str, Any], epochs: int, unit: str = "epoch") -> str:
    """Put the record of an epoch, or of another unit of training, into one line.

    Examples
    --------
    >>> readable({"epoch": 7, "loss": 0.5, "changed": 0.125, "seconds": {"train": 1.5}}, 100)
    'epoch   7/100 · loss 0.5000 · labels changed 12.5% · 1.50 s'
    """
    done = [f"{unit} {record['epoch']:{len(str(epochs))}}/{epochs}"]
    done += [record["member"]] if "member" in record else []
    return " · ".join([*done, *_shown(record, SHOWN), f"{sum(record['seconds'].values()):.2f} s"])


def _shown(record: Mapping[str, Any], keys: Iterable[str]) -> Iterator[str]:
    for key in keys:
        if key in record:
            name, form = SHOWN[key]
            yield f"{name} {form.format(record[key])}"


def announce(text: str, wanted: bool | None) -> None:
    """Tell what is about to happen, in the log and above the bars where these are shown."""
    from rich.console import Console

    log.info("%s", text)
    console = Console(stderr=True)
    if wanted or (wanted is None and console.is_terminal):
        console.print(text, highlight=False)


@contextmanager
def progress_bars(
    epochs: Sequence[int], wanted: bool | None, unit: str = "epoch"
) -> Iterator[list[Callable[[int, str], None]]]:
    """Show a bar for every training, with the time left: by default on a terminal."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True, force_terminal=wanted or None)
    shown = console.is_terminal if wanted is None else wanted
    done, left = progress.MofNCompleteColumn(), progress.TimeRemainingColumn()
    columns = (progress.BarColumn(20), unit, done, left, "left · {task.description}")
    room = max(console.width - ROOM_FOR_BARS, 0)  # more text would make the bar shorter
    with progress.Progress(*columns, console=console, disable=not shown, transient=True) as bars:

        def shows(task: TaskID) -> Callable[[int, str], None]:
            return lambda epoch, text: bars.update(task, completed=epoch, description=text[:room])

        yield [shows(bars.add_task("", total=n)) for n in epochs]


class Stopwatch:
    """Measures the phases of an epoch, each until the device is done with it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Measure a phase."""
        began = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()  # other runs go on
        self.seconds[phase] = round(time.perf_counter() - began, 4)
