"""Charts of the selected model: proportions of bags, calibration and confusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.errors import count
from apportion.metrics import proportion_error, total_variation
from apportion.report.drawing import (
    BOTTOM,
    MUTED,
    SERIES,
    SQUARE,
    TITLE,
    Chart,
    add_axes,
    as_svg,
    canvas,
    key,
    ring,
)
from apportion.report.read import SET_NAMES
from apportion.report.weigh import OFF, times_chance
from apportion.report.words import percent, shortened
from apportion.runs.evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

MOST_COLOURS = 8  # more classes than this are drawn in one colour
NAMED = 3  # bags that the chart names
HEAT = (0.18, 0.5, 0.72)  # a blue that stands out on light and dark paper


class Worst(NamedTuple):
    """A bag whose predicted proportions are far from the given ones."""

    bag: str
    size: int
    variation: float
    times: float  # what chance explains in a bag of its size
    label: str  # the class with the largest gap, or the one that tells of both
    given: float
    predicted: float

    @property
    def is_off(self) -> bool:
        """Whether chance does not explain it."""
        return self.times > OFF


def worst(
    evaluation: Evaluation, classes: Sequence[str], most: int = 8, only: int | None = None
) -> list[Worst]:
    """List the bags that are off the most times what chance explains, each with one class."""
    far = np.nan_to_num(total_variation(evaluation.given, evaluation.predicted))
    times, found = times_chance(evaluation), []
    for bag in np.argsort(-times, kind="stable")[:most].tolist():
        given, predicted = evaluation.given[bag].tolist(), evaluation.predicted[bag].tolist()
        gaps = np.abs(evaluation.given[bag] - evaluation.predicted[bag])
        c = int(np.argmax(gaps)) if only is None else only
        name, size = str(evaluation.ids[bag]), int(evaluation.sizes[bag])
        by = float(far[bag]), float(times[bag])
        found.append(Worst(name, size, *by, classes[c], given[c], predicted[c]))
    return found


def bag_chart(
    name: str, of: str, evaluation: Evaluation, classes: Sequence[str], only: int | None = None
) -> Chart:
    """Draw predicted against given proportions, one point per bag and class.

    The bags that are off are ringed and named, or the farthest if none is.
    """
    whole = np.isfinite(evaluation.predicted).all(axis=1)
    given, predicted = evaluation.given[whole], evaluation.predicted[whole]
    n_bags, n_classes = given.shape
    coloured = n_classes <= MOST_COLOURS
    top = max(float(given.max(initial=0)), float(predicted.max(initial=0)), 0.05)
    limit = min(1.0, np.ceil(top * 10.5) / 10)
    far = [bag for bag in worst(evaluation, classes, NAMED, only) if bag.variation > 0]
    named = [bag for bag in far if bag.is_off] or far[:1]
    with canvas(SQUARE, SQUARE, top=TITLE) as (figure, axes):
        _square(axes, limit)
        axes.set_title("predicted")
        axes.set_xlabel("known")
        for c in range(n_classes if coloured else 1):
            _dots(axes, c, *((given[:, c], predicted[:, c]) if coloured else (given, predicted)))
        _name(axes, named)
        error = proportion_error(given, predicted) if n_bags else 0.0
        text = (
            f"Predicted against known proportions of {count(n_bags, f'{SET_NAMES[of]} bag')} and "
            f"{count(n_classes, 'class')}. Mean total variation {error:.4f}."
        )
        if named:
            text += f" Farthest off is {named[0].bag}, by {named[0].times:.1f} times chance."
        svg = as_svg(figure, name, text)
    caption = (
        f"One point per bag and class: {n_bags * n_classes:,} points of {count(n_bags, 'bag')}. On "
        f"the dashed line both agree. Mean total variation {error:.4f}."
    )
    if named:
        off = "each bag that is off" if len(named) > 1 else "the bag that is off"
        which = off if named[0].is_off else "the farthest bag, which is not off"
        at = "the class of its largest gap"
        at = at if only is None else f"its share of {shortened(classes[only], 24)}"
        caption += f" Ringed: {which}, at {at}."
    if not whole.all():
        caption += f" Left out: {count(int((~whole).sum()), 'bag')} without finite predictions."
    marks = ("round", "square")
    keys = [key(label, c, marks[c % 2]) for c, label in enumerate(classes)] if coloured else ()
    return Chart(f"{SET_NAMES[of].capitalize()} bags", svg, caption, keys)


def _square(axes: Axes, limit: float = 1.0) -> None:
    """Draw both axes to the same scale, with few ticks and a diagonal."""
    margin = 0.02 * limit
    axes.set(xlim=(-margin, limit + margin), ylim=(-margin, limit + margin))
    axes.grid(True, axis="both")
    axes.plot([0, limit], [0, limit], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.locator_params(nbins=5, steps=[1, 2, 5, 10])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")


def _dots(axes: Axes, series: int, x: Floats, y: Floats) -> None:
    """Draw points as one path: lines without length, but with round or square ends.

    Many points are drawn in four layers, so that it is darker where they are dense.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    at, square = np.column_stack([x.ravel(), y.ravel()]), series % 2 == 1
    many = len(at) > 1500
    if many:  # those within half a pixel of each other are one
        half = axes.get_xlim()[1] / SQUARE / 2
        at = np.unique((at / half).round(), axis=0) * half
    width, opacity = (2.6, 0.4) if many else (4.0, 0.6) if len(at) > 150 else (5.5, 0.8)
    for layer in range(4 if many else 1):
        ends = np.repeat(at[layer :: 4 if many else 1], 2, axis=0)
        codes = np.tile([Path.MOVETO, Path.LINETO], len(ends) // 2)
        path = Path(ends, codes)
        path.should_simplify = False  # which would drop lines without length
        patch = PathPatch(path, fill=False, edgecolor=SERIES[series], alpha=opacity)
        patch.set(linewidth=width - 0.7 * square, capstyle="projecting" if square else "round")
        axes.add_artist(patch)  # add_patch would measure every point in Python


def _name(axes: Axes, bags: Sequence[Worst]) -> None:
    """Ring bags and name them, on their side of the diagonal and away from it."""
    line = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.8, "shrinkB": 5}
    for above in (True, False):
        own = [bag for bag in bags if (bag.predicted > bag.given) == above]
        own.sort(key=lambda bag: bag.predicted, reverse=above)  # so that no lines cross
        x, side, towards = (0.02, "left", 1) if above else (0.98, "right", 0)
        for n, bag in enumerate(own):
            height, away = own[0].predicted / axes.get_ylim()[1], 0.15 + 0.055 * len(own)
            y = min(height + away, 0.97) if above else max(height - away, 0.03)
            ring(axes, bag.given, bag.predicted)
            axes.annotate(
                shortened(bag.bag if len(bag.bag) > 4 else f"bag {bag.bag}", 16),
                (bag.given, bag.predicted),
                xytext=(x, y - 0.055 * n if above else y + 0.055 * n),
                textcoords="axes fraction",
                ha=side,
                va="center",
                arrowprops={**line, "relpos": (towards, 0.5)},
                zorder=6,
            )


def calibration_chart(name: str, of: str, calibration: Floats) -> Chart:
    """Draw how often predictions of some confidence are right, and how many there are."""
    bins, filled = len(calibration), calibration[:, 0] > 0
    instances, confidence, right = calibration[filled].T
    total = int(instances.sum())
    error = float(np.abs(confidence - right).sum()) / total  # known as ECE
    with canvas(SQUARE, SQUARE, bottom=BOTTOM + 70, top=TITLE) as (figure, upper):
        _square(upper)
        x, y = confidence / instances, right / instances
        upper.vlines(x, x, y, color=MUTED, linewidth=1)
        area = 14 + 86 * np.sqrt(instances / instances.max())
        upper.scatter(x, y, area, color=SERIES[0], zorder=3, clip_on=False)
        upper.set_title("share that is right")
        upper.tick_params(bottom=False, labelbottom=False)
        upper.spines["bottom"].set_visible(False)
        lower = add_axes(figure, bottom=BOTTOM, top=SQUARE - BOTTOM - 60, sharex=upper)
        middles = (np.arange(bins)[filled] + 0.5) / bins
        lower.bar(middles, instances, width=0.85 / bins, color=SERIES[0])
        lower.set_xlabel("confidence")
        lower.set_yticks([0, int(instances.max())], labels=["0", f"{int(instances.max()):,}"])
        text = (
            f"Reliability of confidences on {total:,} instances of {SET_NAMES[of]} bags: expected "
            f"calibration error {error:.4f}, mean confidence {percent(confidence.sum() / total)}, "
            f"accuracy {percent(right.sum() / total)}."
        )
        svg = as_svg(figure, name, text)
    sure = float(confidence.sum() - right.sum()) / total
    caption = (
        "Above: how often predictions of some confidence are right. On the dashed line confidence "
        "and accuracy agree; larger points stand for more instances. Below: the number of "
        f"instances. Expected calibration error {error:.4f}; on average confidence is "
        f"{percent(abs(sure))} {'above' if sure > 0 else 'below'} accuracy."
    )
    return Chart("Calibration", svg, caption)


def heat_map(name: str, of: str, confusion: NDArray[np.int64], classes: Sequence[str]) -> Chart:
    """Draw a confusion of many classes, too many for numbers."""
    n = len(confusion)
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    pixels = np.dstack([np.broadcast_to(HEAT, (n, n, 3)), np.sqrt(shares)])
    with canvas(SQUARE, SQUARE, top=TITLE) as (figure, axes):
        axes.imshow(pixels, interpolation="none")
        axes.grid(False)
        axes.set_title("true class")
        axes.set_xlabel("predicted class")
        right = float(np.trace(confusion) / max(confusion.sum(), 1))
        text = f"Confusion of {n} classes on the {SET_NAMES[of]} bags: {percent(right)} are right."
        svg = as_svg(figure, name, text)
    caption = (
        "Rows: true class. Columns: predicted class. Classes are numbered from 0. The stronger the "
        "colour, the larger the share of the row. Right predictions lie on the diagonal."
    )
    wrong = confusion * (1 - np.eye(n, dtype=np.int64))
    most = [np.unravel_index(k, wrong.shape) for k in np.argsort(-wrong, axis=None)[:3]]
    told = [
        f"{shortened(classes[r], 24)} as {shortened(classes[c], 24)} ({wrong[r, c]:,})"
        for r, c in most
        if wrong[r, c]
    ]
    return Chart("Confusion", svg, caption + (f" Most frequent: {', '.join(told)}." * bool(told)))
