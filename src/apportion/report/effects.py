"""A chart of the columns of a table: how much worse proportions are predicted with it shuffled."""

from __future__ import annotations

import numpy as np

from apportion.errors import count
from apportion.report.drawing import (
    BOTTOM,
    INK,
    MUTED,
    SERIES,
    WIDTH,
    Chart,
    as_svg,
    canvas,
)
from apportion.report.read import SET_NAMES, RunRead
from apportion.report.words import listed, points, shortened
from apportion.runs.evaluation import MOST_COLUMNS, Effects

__all__ = ["column_effects", "effects_missing"]

MOST_BARS = 20
PER_BAR = 34  # pixels: a name above a bar


def column_effects(run: RunRead) -> tuple[Chart, str] | None:
    """Draw the effects of columns; return the chart and what it tells, if they were measured."""
    found = [(of, run.evaluations[of].effects) for of in SET_NAMES if of in run.evaluations]
    of, effects = next(((of, own) for of, own in found if own is not None), (None, None))
    if of is None or effects is None or not effects.names:
        return None
    order = np.argsort(-effects.increase[:, 0], kind="stable")
    shown = order[:MOST_BARS].tolist()
    height = PER_BAR * len(shown) + BOTTOM + 4
    with canvas(WIDTH, height, top=4) as (figure, axes):
        mean, low, high = 100 * effects.increase[shown].T
        at = -np.arange(len(shown), dtype=float)
        colour = SERIES[(run.number - 1) % len(SERIES)]
        axes.barh(at - 0.2, mean, height=0.34, color=colour, alpha=0.5)  # lines are seen on it
        axes.vlines(np.zeros(len(at)), at - 0.44, at + 0.04, color=MUTED, linewidth=1)
        axes.hlines(at - 0.2, low, high, color=INK, linewidth=1.5)
        for ends in (low, high):
            axes.vlines(ends, at - 0.3, at - 0.1, color=INK, linewidth=1.5)
        for y, column in zip(at, shown, strict=True):
            axes.annotate(
                shortened(effects.names[column], 34),
                (0, y + 0.22),
                xycoords=("axes fraction", "data"),
                va="center",
            )
        axes.set_ylim(-len(shown) + 0.5, 0.5)
        axes.set_yticks([])
        axes.grid(True, axis="x")
        axes.grid(False, axis="y")
        axes.locator_params("x", nbins=5)
        axes.set_xlabel("percentage points")
        svg = as_svg(figure, f"columns-{run.number}", _described(effects, shown))
    return Chart("Effects of columns", svg, _caption(effects, of, len(order))), _told(effects)


def _described(effects: Effects, shown: list[int]) -> str:
    told = (f"{effects.names[n]} {points(effects.increase[n, 0])}" for n in shown)
    return f"By how much the proportion error grows when a column is shuffled: {'; '.join(told)}."


def _caption(effects: Effects, of: str, n_columns: int) -> str:
    bags, rows = effects.measured.tolist()
    drawn = f"The {MOST_BARS} largest of {n_columns:,} columns. " if n_columns > MOST_BARS else ""
    which = count(bags, f"{SET_NAMES[of]} bag")
    which += ", which it learned from," if of == "train" else ""
    return (
        f"{drawn}Bars: by how much more predicted and known shares of {which} differ when the "
        f"values of the column are shuffled among their {rows:,} rows. Lines with ends: 95% "
        "intervals over the bags."
    )


def _told(effects: Effects) -> str:
    """Name the columns that matter beyond uncertainty."""
    order = np.argsort(-effects.increase[:, 0], kind="stable")
    clear = [effects.names[n] for n in order if effects.increase[n, 1] > 0]
    if not clear:
        return "No column matters beyond the uncertainty of the bags."
    names = listed((shortened(name, 24) for name in clear), 6)
    rest = len(order) - len(clear)
    others = " No other effect is beyond uncertainty." if rest else ""
    return f"What the predicted shares depend on, the most first: {names}.{others}"


def effects_missing(run: RunRead) -> str:
    """Say why there are no effects of columns."""
    if not run.evaluations:
        return "Available after the end of training."
    columns = 0 if run.columns is None else len(run.columns.names)
    if columns > MOST_COLUMNS:
        return f"Not measured: the table has {columns:,} columns, more than {MOST_COLUMNS}."
    return "Not measured: this is for tables, and needs at least 5 bags."
