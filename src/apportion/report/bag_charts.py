"""Predicted against given proportions of bags: the chart, and the bags that are farthest off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apportion.report.canvas import (
    HALO,
    INK,
    MUTED,
    SERIES,
    SQUARE,
    Chart,
    as_svg,
    canvas,
    key,
    pixels,
    settle,
    shares,
)
from apportion.report.reading import variations
from apportion.report.words import SETS, count, shortened
from apportion.runs.evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Worst", "proportions_chart", "worst"]

Floats = NDArray[np.float64]
MOST_COLOURS = 8  # more classes than this are drawn in one ink
NAMED = 3  # bags that the chart names
LINE = 14.0  # from the name of a bag to the next


@dataclass(frozen=True)
class Worst:
    """A bag whose predicted proportions are far from the given ones."""

    bag: str
    position: int
    size: int
    variation: float
    label: str  # the class with the largest gap
    given: float
    predicted: float


def worst(evaluation: Evaluation, classes: Sequence[str], most: int = 8) -> list[Worst]:
    """List the bags of largest total variation, the worst first."""
    far = np.nan_to_num(variations(evaluation))
    order = np.argsort(-far, kind="stable")[:most]
    found = []
    for bag in order.tolist():
        c = int(np.argmax(np.abs(evaluation.given[bag] - evaluation.predicted[bag])))
        found.append(
            Worst(
                bag=str(evaluation.ids[bag]),
                position=bag,
                size=int(evaluation.sizes[bag]),
                variation=float(far[bag]),
                label=classes[c],
                given=float(evaluation.given[bag, c]),
                predicted=float(evaluation.predicted[bag, c]),
            )
        )
    return found


def proportions_chart(name: str, of: str, evaluation: Evaluation, classes: Sequence[str]) -> Chart:
    """Draw predicted against given proportions, a point a bag and class."""
    whole = np.isfinite(evaluation.predicted).all(axis=1)
    given, predicted = evaluation.given[whole], evaluation.predicted[whole]
    n_bags, n_classes = given.shape
    coloured = n_classes <= MOST_COLOURS
    top = max(float(given.max(initial=0)), float(predicted.max(initial=0)), 0.05)
    limit = min(1.0, np.ceil(top * 10.5) / 10)
    named = [w for w in worst(evaluation, classes, NAMED) if w.variation > 0]
    with canvas(SQUARE, SQUARE) as (figure, axes):
        margin = 0.02 * limit
        axes.set(xlim=(-margin, limit + margin), ylim=(-margin, limit + margin), aspect="equal")
        axes.grid(True, axis="both")
        axes.plot([0, limit], [0, limit], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        (dots,) = axes.plot([0, limit], [0, limit], color=INK)
        dots.set_gid("dots")
        axes.set_xlabel("given", loc="right", labelpad=1)
        axes.set_ylabel("predicted", loc="top", labelpad=2)
        shares(axes)
        settle(figure)
        _name_worst(axes, named)
        groups = [(c % len(SERIES), given[:, c], predicted[:, c]) for c in range(n_classes)]
        if not coloured:
            groups = [(0, given.ravel(), predicted.ravel())]
        parts = {"dots": "".join(_dots(axes, groups))}
        error = float(variations(evaluation)[whole].mean()) if n_bags else 0.0
        text = (
            f"Predicted against given proportions of {count(n_bags, f'{SETS[of]} bag')} and "
            f"{count(n_classes, 'class')}. Mean total variation {error:.4f}."
        )
        if named:
            text += f" The worst bag is {named[0].bag}, with {named[0].variation:.4f}."
        svg = Markup(as_svg(figure, name, text, parts))
    caption = (
        f"A point a bag and class: {n_bags * n_classes:,} points of {count(n_bags, 'bag')}. On the "
        f"dashed line both agree. Mean total variation {error:.4f}."
    )
    if not whole.all():
        caption += f" Left out: {count(int((~whole).sum()), 'bag')} without finite predictions."
    marks = ("round", "square")
    keys = [key(label, c, mark=marks[c % 2]) for c, label in enumerate(classes)] if coloured else []
    return Chart(f"{SETS[of].capitalize()} bags", svg, caption, keys)


def _dots(axes: Axes, groups: Iterable[tuple[int, Floats, Floats]]) -> Iterable[str]:
    """Write points as lines without length but with round or square ends: ten bytes a point.

    Many points are written in layers, so that where they are dense it is darker.
    """
    for series, x, y in groups:
        at = np.round(pixels(axes, np.column_stack([x, y])), 1)
        at = np.unique(at, axis=0)
        many = len(at) > 1500
        layers = 4 if many else 1
        width, opacity = (2.6, 0.4) if many else (4.0, 0.6) if len(at) > 150 else (5.5, 0.8)
        square = series % 2 == 1
        style = (
            f"fill: none; stroke: var(--s{series + 1}); stroke-width: {width - 0.7 * square:g}; "
            f"stroke-opacity: {opacity}; stroke-linecap: {'square' if square else 'round'}"
        )
        for layer in range(layers):
            path = "".join(f"M{a:g} {b:g}h0" for a, b in at[layer::layers].tolist())
            if path:
                yield f'<path style="{style}" d="{path}"/>'


def _name_worst(axes: Axes, named: Sequence[Worst]) -> None:
    """Ring and name the worst bags: away from the diagonal, where names do not meet."""
    box = axes.get_window_extent()
    taken: list[tuple[float, float, float]] = []  # heights, beginnings and ends
    for bag in named:
        x, y = axes.transData.transform((bag.given, bag.predicted))
        text = shortened(bag.bag if len(bag.bag) > 4 else f"bag {bag.bag}", 16)
        width = 6.5 * len(text)
        away = 1 if bag.predicted > bag.given else -1  # from the diagonal: left and up, or back
        places = [(-away, y + away * step * LINE) for step in range(4)]
        places += [(away, y + away * step * LINE) for step in range(1, 12)]
        fitting = [
            (side, at)
            for side, at in places
            if _fits(at, *_ends(x, side, width), box.extents, taken)
        ]
        beside = (-1 if x > (box.x0 + box.x1) / 2 else 1, y)
        clear = [
            (side, at)
            for side, at in fitting
            if away * (at - box.y0 - (_ends(x, side, width)[away > 0] - box.x0)) > LINE
        ]
        side, at = (clear or fitting or [beside])[0]
        taken.append((at, *_ends(x, side, width)))
        axes.plot(
            [bag.given],
            [bag.predicted],
            "o",
            markersize=10,
            markerfacecolor="none",
            markeredgecolor=INK,
            markeredgewidth=1.4,
            zorder=5,
            clip_on=False,
        )
        axes.annotate(
            text,
            (bag.given, bag.predicted),
            xytext=(9 * side, at - y),
            textcoords="offset pixels",
            ha="left" if side > 0 else "right",
            va="center",
            color=HALO,
            zorder=6,
        )
        if at != y:
            ends = axes.transData.inverted().transform([(x, y + 5 * away), (x + 8 * side, at)])
            axes.plot(*ends.T, color=MUTED, linewidth=0.8, zorder=4)


def _ends(x: float, side: int, width: float) -> tuple[float, float]:
    return (x + 9, x + 9 + width) if side > 0 else (x - 9 - width, x - 9)


def _fits(
    at: float,
    begin: float,
    end: float,
    box: Sequence[float],
    taken: Sequence[tuple[float, float, float]],
) -> bool:
    left, low, right, high = box
    inside = left < begin and end < right and low + 7 < at < high - 7
    return inside and all(
        abs(at - height) >= LINE or begin > other_end or end < other_begin
        for height, other_begin, other_end in taken
    )
