"""How well single instances are told apart: calibration and confusion, where the truth is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apportion.report.canvas import (
    GRID,
    MUTED,
    SERIES,
    SQUARE,
    Chart,
    as_svg,
    canvas,
    pixels,
    settle,
    shares,
)
from apportion.report.words import SETS, percent, shortened

__all__ = ["calibration_chart", "calibration_error", "heat_map"]

Floats = NDArray[np.float64]


def calibration_error(calibration: Floats) -> float:
    """Average over the instances how far confidence and accuracy of their bin are apart (ECE).

    Examples
    --------
    >>> round(calibration_error(np.array([[10, 6.0, 6.0], [30, 27.0, 21.0]])), 6)
    0.15
    """
    total = calibration[:, 0].sum()
    return float(np.abs(calibration[:, 1] - calibration[:, 2]).sum() / total) if total else 0.0


def calibration_chart(name: str, of: str, calibration: Floats) -> Chart:
    """Draw how often predictions of some confidence are right, and how many there are."""
    bins, filled = len(calibration), calibration[:, 0] > 0
    instances, confidence, right = calibration[filled].T
    error = calibration_error(calibration)
    total = int(instances.sum())
    with canvas(SQUARE, SQUARE) as (figure, axes):
        axes.remove()
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.4, 1))
        upper.grid(True, axis="both")
        upper.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        x, y = confidence / instances, right / instances
        upper.vlines(x, x, y, color=MUTED, linewidth=1)
        area = 14 + 86 * np.sqrt(instances / instances.max())
        upper.scatter(x, y, area, color=SERIES[0], zorder=3, clip_on=False)
        upper.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        upper.set_ylabel("right", loc="top", labelpad=2)
        upper.tick_params(bottom=False, labelbottom=False)
        upper.spines["bottom"].set_visible(False)
        middles = (np.arange(bins)[filled] + 0.5) / bins
        lower.bar(middles, instances, width=0.85 / bins, color=SERIES[0])
        lower.set_xlabel("confidence", loc="right", labelpad=1)
        lower.set_yticks([0, int(instances.max())], labels=["0", f"{int(instances.max()):,}"])
        shares(upper)
        text = (
            f"Reliability of confidences on {total:,} instances of {SETS[of]} bags: expected "
            f"calibration error {error:.4f}, mean confidence {percent(confidence.sum() / total)}, "
            f"accuracy {percent(right.sum() / total)}."
        )
        svg = Markup(as_svg(figure, name, text))
    sure = confidence.sum() / total - right.sum() / total
    lean = "too sure of itself" if sure > 0 else "too careful"
    caption = (
        f"Above, how often predictions of some confidence are right; on the dashed line confidence "
        "means what it says. Larger points, and the bars below: more instances. Expected "
        f"calibration error {error:.4f}; on average the model is {lean} by {percent(abs(sure))}."
    )
    return Chart("Calibration", svg, caption)


def heat_map(name: str, of: str, confusion: NDArray[np.int64], classes: Sequence[str]) -> Chart:
    """Draw a confusion of many classes, too many for numbers."""
    n = len(confusion)
    parts = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    levels = np.ceil(parts * 8).astype(int)
    with canvas(SQUARE, SQUARE) as (figure, axes):
        axes.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5), aspect="equal")
        axes.grid(False)
        (cells,) = axes.plot([0, n], [0, n], color=GRID)
        cells.set_gid("cells")
        axes.set_xlabel("predicted class", loc="right", labelpad=1)
        axes.set_ylabel("true class", loc="top", labelpad=2)
        settle(figure)
        corners = pixels(axes, np.array([[-0.5, -0.5], [0.5, 0.5]]))
        (x0, y0), (side, _) = corners[0], corners[1] - corners[0]
        drawn = []
        for level in range(1, 9):
            rows, cols = np.nonzero(levels == level)
            path = "".join(
                f"M{x0 + c * side:.1f} {y0 + r * side:.1f}h{side:.1f}v{side:.1f}h-{side:.1f}z"
                for r, c in zip(rows.tolist(), cols.tolist(), strict=True)
            )
            if path:
                drawn.append(
                    f'<path style="fill: var(--s1); fill-opacity: {level / 8}" d="{path}"/>'
                )
        right = float(np.trace(confusion) / max(confusion.sum(), 1))
        text = f"Confusion of {n} classes on the {SETS[of]} bags: {percent(right)} are right."
        svg = Markup(as_svg(figure, name, text, {"cells": "".join(drawn)}))
    caption = (
        "The truth by row, what was predicted by column, classes by their position: the stronger "
        "the colour, the larger the share of the row. Perfect predictions lie on the diagonal."
    )
    wrong = confusion * (1 - np.eye(n, dtype=np.int64))
    most = [np.unravel_index(k, wrong.shape) for k in np.argsort(-wrong, axis=None)[:3]]
    told = [
        f"{shortened(classes[r], 24)} for {shortened(classes[c], 24)} ({wrong[r, c]:,})"
        for r, c in most
        if wrong[r, c]
    ]
    if told:
        caption += f" Most often taken for another: {', '.join(told)}."
    return Chart("Confusion", svg, caption)
