"""Charts of what happened epoch by epoch: learning curves, regret, and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apportion.report.canvas import HALO, INK, SERIES, Chart, as_svg, canvas, key, look
from apportion.report.reading import RunRead
from apportion.report.regret import regret_chart
from apportion.report.words import duration, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["learning_curves", "time_chart"]

Floats = NDArray[np.float64]

ERRORS = {"valid_error": "validation", "test_error": "test"}
ACCURACIES = {
    "valid_accuracy": "validation",
    "test_accuracy": "test",
    "label_accuracy": "pseudo labels",
}
PHASES = {
    "train": "training",
    "confidence": "confidences",
    "labels": "label decisions",
    "evaluation": "evaluation",
}


def learning_curves(runs: Sequence[RunRead]) -> list[Chart]:
    """Draw what there is: loss, proportion error, accuracy, label changes, and regret."""
    charts = [
        _curves(runs, "loss", "Loss", {"loss": "loss"}, "{:.4f}".format),
        *_by_set(runs, "error", "Proportion error", ERRORS, "{:.4f}".format),
        *_by_set(runs, "accuracy", "Accuracy", ACCURACIES, percent),
        _curves(runs, "changed", "Labels changed", {"changed": "changed"}, percent),
        regret_chart(runs),
    ]
    return [chart for chart in charts if chart is not None]


def _by_set(
    runs: Sequence[RunRead],
    name: str,
    title: str,
    curves: dict[str, str],
    write: Callable[[float], str],
) -> list[Chart | None]:
    """Draw the curves of all sets of bags together, but of several runs those of each set apart."""
    if len(runs) == 1:
        return [_curves(runs, name, title, curves, write)]
    return [
        _curves(runs, curve, f"{title}, {label}", {curve: label}, write)
        for curve, label in curves.items()
    ]


CAPTIONS = {
    "error": "The share of a bag that is given to the wrong class: the total variation of given "
    "and predicted proportions, averaged over the bags.",
    "loss": "The mean over an epoch of what the method minimises. Losses of different methods are "
    "not comparable.",
    "accuracy": "The classes of single instances were used to draw this, and for nothing else.",
    "changed": "The share of pseudo labels that an epoch's end decided otherwise than the last.",
}


def _curves(
    runs: Sequence[RunRead],
    name: str,
    title: str,
    curves: dict[str, str],
    write: Callable[[float], str],
) -> Chart | None:
    """Draw some numbers of every epoch: one run by a colour a curve, several by a colour a run."""
    found = [
        (r, c, run, label, run.curve(curve))
        for r, run in enumerate(runs)
        for c, (curve, label) in enumerate(curves.items())
        if len(run.curve(curve))
    ]
    if not found:
        return None
    several = len(runs) > 1
    described, keys = [], []
    with canvas() as (figure, axes):
        for r, c, run, label, values in found:
            series = r if several else c
            axes.plot(
                np.arange(1, len(values) + 1),
                values,
                **look(series),
                marker="o" if len(values) == 1 else "",
            )
            who = [run.name] if several else []
            what = [label] if len(curves) > 1 else []
            words = ", ".join([*who, *what])
            if words:
                keys.append(key(words, series))
            known = values[np.isfinite(values)]
            line = f"{write(float(known[0]))} at first, {write(float(known[-1]))} at last"
            described.append(f"{words}: {line}" if words else line)
        if "valid_error" in curves:
            _mark_selected(axes, runs)
        _finish(axes, write if write is percent else None)
        if name.endswith("accuracy"):
            axes.set_ylim(0, 1)
        text = f"{title} by epoch. {'; '.join(described)}."
        svg = Markup(as_svg(figure, name, text))
    caption = CAPTIONS[name.split("_")[-1]]
    if "valid_error" in curves:
        caption += _of_selected(runs)
    return Chart(title, svg, caption, keys)


def _finish(axes: Axes, write: Callable[[float], str] | None) -> None:
    """Let axes begin at 0, with few and whole ticks, and name the lower one."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlabel("epoch", loc="right", labelpad=1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    last = axes.dataLim.x1
    axes.set_xlim(1 - 0.015 * last, last * 1.015)
    axes.set_ylim(0, max(axes.get_ylim()[1], 1e-9))
    if write is not None:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))


def _mark_selected(axes: Axes, runs: Sequence[RunRead]) -> None:
    """Ring the selected epochs; of a single run, write down which it is."""
    for number, run in enumerate(runs):
        if not run.is_validated:
            continue
        epoch, error = int(run.selected["epoch"]), float(run.selected["valid_error"])
        axes.plot(
            [epoch],
            [error],
            "o",
            markersize=9,
            markerfacecolor="none",
            markeredgewidth=1.8,
            markeredgecolor=INK if len(runs) == 1 else SERIES[number % len(SERIES)],
            zorder=5,
            clip_on=False,
        )
        if len(runs) == 1:
            share = (epoch - 1) / max(run.epochs - 1, 1)
            low = error < 0.25 * axes.get_ylim()[1]
            axes.annotate(
                f"epoch {epoch:,} · {error:.4f}",
                (epoch, error),
                xytext=(0, 11 if low else -11),
                textcoords="offset points",
                ha="right" if share > 0.7 else "left" if share < 0.3 else "center",
                va="bottom" if low else "top",
                color=HALO,
                zorder=6,
            )


def _of_selected(runs: Sequence[RunRead]) -> str:
    selected = [run for run in runs if run.is_validated]
    if not selected:
        return ""
    if len(runs) == 1:
        return (
            f" The ring is the epoch of least validation error, {selected[0].selected['epoch']:,}."
        )
    where = [f"{run.name} {run.selected['epoch']:,}" for run in selected]
    return f" Rings are the selected epochs: {', '.join(where)}."


# -------------------------------------------------------------------------------------------- time


def time_chart(runs: Sequence[RunRead]) -> Chart | None:
    """Draw the seconds of every epoch: by phase for one run, in all for several."""
    if len(runs) == 1:
        phases = {PHASES.get(name, name): each for name, each in runs[0].seconds().items()}
        lines = {name: each for name, each in phases.items() if sum(each) > 0}
    else:
        lines = {
            run.name: [sum(e) for e in zip(*run.seconds().values(), strict=True)] for run in runs
        }
        lines = {name: each for name, each in lines.items() if each}
    if not lines:
        return None
    usual = max(float(np.quantile(each, 0.95)) for each in lines.values())
    slowest = max(max(each) for each in lines.values())
    keys, caption = [], "Seconds of every epoch."
    with canvas() as (figure, axes):
        for number, (name, each) in enumerate(lines.items()):
            marker = "o" if len(each) == 1 else ""
            axes.plot(range(1, len(each) + 1), each, **look(number), marker=marker)
            keys.append(key(name, number))
        _finish(axes, None)
        if slowest > 2.5 * usual > 0:
            axes.set_ylim(0, 1.5 * usual)
            caption += f" The slowest took {duration(slowest)} and goes beyond the chart."
        middle = "; ".join(f"{name}: median {duration(median(e))}" for name, e in lines.items())
        svg = Markup(as_svg(figure, "time", f"Seconds of every epoch. {middle}."))
    return Chart("Seconds an epoch", svg, caption, keys)
