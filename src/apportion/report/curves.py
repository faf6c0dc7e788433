r"""Charts of one value per epoch: learning curves, regret and time.

The bound beside the regret is :math:`E[R_T] = O(|B| \sqrt{T \ln |Y|})` for a bag B, with Y the
labelings that meet its counts. Per instance and epoch, and never above 1, that is
min(1, √(ln|Y| / t)). The constant is not known, η is not tuned to T, and the losses depend on the
labels played: only its shape means something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.bags.counts import counts_from_proportions
from apportion.report.drawing import (
    BOUND,
    INK,
    SERIES,
    Chart,
    Key,
    as_svg,
    canvas,
    key,
    look,
    ring,
)
from apportion.report.read import RunRead
from apportion.report.words import PHASES, duration, listed, percent
from apportion.runs.evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

CURVES = {  # names in the log, and what they are called
    "Loss": {"loss": ""},
    "Proportion error": {"valid_error": "validation", "test_error": "test"},
    "Accuracy": {
        "valid_accuracy": "validation",
        "test_accuracy": "test",
        "label_accuracy": "pseudo labels",
    },
    "Labels changed": {"changed": ""},
}
CAPTIONS = {
    "Loss": "What training makes small, averaged over an epoch. Losses of different methods cannot "
    "be compared.",
    "Proportion error": "By how much predicted and known shares of classes differ, averaged over "
    "the bags: 0 where all are met, at most 1. Which single instances are right it cannot tell.",
    "Accuracy": "The true classes of instances are used for evaluation only, never for training.",
    "Labels changed": "The share of pseudo labels that changed at the end of an epoch.",
}


def learning_curves(runs: Sequence[RunRead]) -> list[Chart]:
    """Draw what there is: loss, proportion error, accuracy, label changes, and regret.

    A chart of one run has one line per set of bags; of several, one line per run.
    """
    charts = []
    for title, curves in CURVES.items():
        groups = {title: curves}
        if len(runs) > 1 and len(curves) > 1:
            groups = {f"{title}, {label}": {name: label} for name, label in curves.items()}
        charts += [_curves(runs, own, CAPTIONS[title], chosen) for own, chosen in groups.items()]
    return [chart for chart in (*charts, _regret(runs)) if chart is not None]


class Line(NamedTuple):
    """One value per epoch, NaN where there is none."""

    label: str  # in the legend, if any
    series: int
    values: Floats

    def told(self, write: Callable[[float], str] = "{:.4f}".format) -> str:
        """Describe the line in words."""
        known = self.values[np.isfinite(self.values)]
        ends = f"{write(known[0])} in the first epoch, {write(known[-1])} in the last"
        return f"{self.label}: {ends}" if self.label else ends


def _lines(runs: Sequence[RunRead], curves: Mapping[str, str]) -> list[Line]:
    """Return the curves that there are: of several runs the lines of a run look the same."""
    several = len(runs) > 1
    lines = [
        Line(run.name if several else label, r if several else c, run.curve(name))
        for r, run in enumerate(runs)
        for c, (name, label) in enumerate(curves.items())
    ]
    return [line for line in lines if len(line.values)]


def _curves(
    runs: Sequence[RunRead], title: str, caption: str, curves: Mapping[str, str]
) -> Chart | None:
    lines = _lines(runs, curves)
    if not lines:
        return None
    shares = not curves.keys() & {"loss", "valid_error", "test_error"}
    told = [line.told(percent) if shares else line.told() for line in lines]
    with canvas() as (figure, axes):
        keys = _draw(axes, lines, shares=shares)
        if "loss" in curves:
            caption += _why_it_rises(runs)
        if "valid_error" in curves:
            caption += _mark_selected(axes, runs)
        if "accuracy" in title.lower():
            axes.set_ylim(0, 1)
        svg = as_svg(figure, title, f"{title} by epoch. {'; '.join(told)}.")
    return Chart(title, svg, caption, keys)


def _why_it_rises(runs: Sequence[RunRead]) -> str:
    """Say which losses grow by design: their weight, or what is measured, changes in training."""
    ramped = [run for run in runs if run.config["method"].get("ramp") and len(run.curve("loss"))]
    if not ramped:
        return ""
    passing = [run for run in ramped if run.config["method"]["name"] == "count-likelihood"]
    adding = [run for run in ramped if run not in passing]
    told = [
        ("it" if len(runs) == 1 else f"that of {listed(run.name for run in own)}") + how
        for own, how in ((passing, " passes to a stricter one"), (adding, " takes in a second one"))
        if own
    ]
    return (
        f" A rise is not by itself a failure: in the first part of training {listed(told)}, step "
        "by step. Judge by the proportion error."
    )


def _draw(axes: Axes, lines: Sequence[Line], *, shares: bool = False) -> list[Key]:
    """Draw lines with few and round ticks, upwards from 0 or below; return their legend."""
    for line in lines:
        marker = "o" if len(line.values) == 1 else ""
        epochs = range(1, len(line.values) + 1)
        axes.plot(epochs, line.values, marker=marker, **look(line.series))
    axes.set_xlabel("epoch")
    axes.locator_params("x", integer=True, nbins=6, min_n_ticks=1)
    axes.locator_params("y", nbins=5)
    last = axes.dataLim.x1
    axes.set_xlim(1 - 0.015 * last, last * 1.015)
    low, high = axes.get_ylim()
    axes.set_ylim(low if axes.dataLim.y0 < 0 else 0, max(high, 1e-9))
    if shares:
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    return [key(line.label, line.series) for line in lines if line.label]


def _mark_selected(axes: Axes, runs: Sequence[RunRead]) -> str:
    """Draw a ring around each selected epoch; return what a caption says of them."""
    selected = [run for run in runs if run.is_validated]
    for run in selected:
        colour = INK if len(runs) == 1 else SERIES[(run.number - 1) % len(SERIES)]
        ring(axes, run.selected["epoch"], float(run.selected["valid_error"]), colour)
    if not selected:
        return ""
    if len(runs) > 1:
        epochs = ", ".join(f"{run.name} {run.selected['epoch']:,}" for run in selected)
        return f" Rings: the selected epochs ({epochs})."
    epoch, error = run.selected["epoch"], float(run.selected["valid_error"])
    share = (epoch - 1) / max(run.done - 1, 1)
    low = error < 0.25 * axes.get_ylim()[1]
    axes.annotate(
        f"epoch {epoch:,} · {error:.4f}",
        (epoch, error),
        xytext=(0, 11 if low else -11),
        textcoords="offset points",
        ha="right" if share > 0.7 else "left" if share < 0.3 else "center",
        va="bottom" if low else "top",
    )
    which = "selected epoch" if run.is_settled else "epoch of lowest validation error"
    return f" The ring marks the {which}, {epoch:,}."


def time_chart(runs: Sequence[RunRead]) -> Chart | None:
    """Draw the seconds of each epoch: by phase for one run, in all for several."""
    drawn = [(n, run) for n, run in enumerate(runs) if run.unit == "epoch"]
    if len(runs) == 1:
        each = [(n, PHASES.get(name, name), of_phase) for _, run in drawn
                for n, (name, of_phase) in enumerate(run.seconds().items())]  # fmt: skip
    else:
        each = [(n, run.name, np.sum([*run.seconds().values()], axis=0)) for n, run in drawn]
    lines = [Line(name, n, np.array(seconds)) for n, name, seconds in each]
    lines = [line for line in lines if line.values.sum() > 0]
    if not lines:
        return None
    usual = max(float(np.quantile(line.values, 0.95)) for line in lines)
    slowest = max(float(line.values.max()) for line in lines)
    caption = "Seconds of each epoch."
    with canvas() as (figure, axes):
        keys = _draw(axes, lines)
        if slowest > 2.5 * usual > 0:
            axes.set_ylim(0, 1.5 * usual)
            caption += f" The slowest took {duration(slowest)}, which is beyond the chart."
        middle = (f"{line.label}: median {duration(np.median(line.values))}" for line in lines)
        svg = as_svg(figure, "time", f"Seconds of each epoch. {'; '.join(middle)}.")
    return Chart("Seconds per epoch", svg, caption, keys)


# -------------------------------------------------------------------------------------- regret


def log_labelings(evaluation: Evaluation) -> Floats:
    """Return ln|Y| of each bag: the logarithm of how many labelings have the bag's counts.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> bags = SimpleNamespace(given=np.array([[0.5, 0.5], [1.0, 0.0]]), sizes=np.array([4, 3]))
    >>> np.exp(log_labelings(bags)).round(6)
    array([6., 1.])
    """
    counts = counts_from_proportions(evaluation.given, evaluation.sizes)
    factorials = np.cumsum(np.log(np.maximum(np.arange(evaluation.sizes.max() + 1), 1)))
    logarithms: Floats = factorials[evaluation.sizes] - factorials[counts].sum(axis=1)
    return logarithms


def bound_shape(evaluation: Evaluation, epochs: Floats) -> Floats:
    """Average min(1, √(ln|Y| / t)) over the instances of all bags, for some epochs t."""
    kinds, which = np.unique(np.maximum(log_labelings(evaluation), 0), return_inverse=True)
    weights = np.bincount(which, evaluation.sizes)
    averaged: Floats = weights @ np.minimum(1, np.sqrt(kinds[:, None] / epochs)) / weights.sum()
    return averaged


def _regret(runs: Sequence[RunRead]) -> Chart | None:
    from matplotlib.ticker import LogLocator

    lines = _lines(runs, {"regret": "realised"})
    if not lines:
        return None
    known = np.concatenate([line.values[np.isfinite(line.values)] for line in lines])
    logarithmic = bool((known > 0).all()) and len(known) > len(lines)
    own = [runs[line.series] for line in lines]
    bounded = [run for run in own if "train" in run.evaluations and logarithmic]
    with canvas() as (figure, axes):
        for run in bounded:
            some = np.unique(np.geomspace(1, run.done, 60).round())
            bound = bound_shape(run.evaluations["train"], some)
            axes.plot(some, bound, color=BOUND, linewidth=1)
        keys = _draw(axes, lines)
        if logarithmic:
            axes.set(xscale="log", yscale="log")
            axes.autoscale()
            axes.minorticks_off()
            for axis in (axes.xaxis, axes.yaxis):
                low, high = axis.get_view_interval()
                decades = np.log10(high / low)
                subs = (1,) if decades > 3 else (1, 2, 5) if decades > 0.8 else (1, 2, 3, 4, 6, 8)
                axis.set_major_locator(LogLocator(subs=subs))
                axis.set_major_formatter("{x:g}")
        told = "; ".join(line.told() for line in lines)
        svg = as_svg(figure, "regret", f"Regret per instance and epoch. {told}.")
    caption = (
        "How much worse the pseudo labels of all epochs so far were than the best labels that "
        "could have been kept from the start, per instance and epoch"
        + (", on logarithmic axes" if logarithmic else "")
        + ". A falling line is a good sign."
    )
    if bounded:
        keys.append(Key("shape of the bound", "var(--bound)"))
        caption += (
            " The bound is what theory promises, up to a factor that is not known (compare slopes, "
            "not heights): min(1, √(ln|Y| / t)), where |Y| is the number of labelings that meet "
            "the counts of a bag, averaged over instances."
        )
    return Chart("Regret", svg, caption, keys if len(keys) > 1 else ())
