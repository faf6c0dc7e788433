r"""The regret of pseudo labels, beside the shape of its bound.

The bound is :math:`E[R_T] = O(|B| \sqrt{T \ln |Y|})` for a bag B with Y the labelings that meet its
counts; per instance and epoch, and never above 1, that is min(1, √(ln|Y| / t)). The constant is not
known, η is not tuned to T, and the losses depend on the labels played: it is a shape, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from scipy.special import gammaln

from apportion.bags.counts import counts_from_proportions
from apportion.report.canvas import MUTED, Chart, Key, as_svg, canvas, key, look
from apportion.report.reading import RunRead
from apportion.runs.evaluation import Evaluation

__all__ = ["bound_shape", "log_labelings", "regret_chart"]

Floats = NDArray[np.float64]


def log_labelings(evaluation: Evaluation) -> Floats:
    """Give ln|Y| of every bag: how many labelings have the bag's counts.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> bags = SimpleNamespace(given=np.array([[0.5, 0.5], [1.0, 0.0]]), sizes=np.array([4, 3]))
    >>> np.exp(log_labelings(bags)).round(6)
    array([6., 1.])
    """
    counts = counts_from_proportions(evaluation.given, evaluation.sizes)
    logarithms: Floats = gammaln(evaluation.sizes + 1.0) - gammaln(counts + 1.0).sum(axis=1)
    return logarithms


def bound_shape(evaluation: Evaluation, epochs: Floats) -> Floats:
    """Average min(1, √(ln|Y| / t)) over the instances of all bags, for some epochs t."""
    kinds, which = np.unique(np.maximum(log_labelings(evaluation), 0), return_inverse=True)
    weights = np.bincount(which, evaluation.sizes)
    shape = np.minimum(1, np.sqrt(kinds[:, None] / epochs))
    averaged: Floats = weights @ shape / weights.sum()
    return averaged


def regret_chart(runs: Sequence[RunRead]) -> Chart | None:
    """Draw the realised regret of all runs that have one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    measured = [(n, run, run.curve("regret")) for n, run in enumerate(runs)]
    measured = [(n, run, values) for n, run, values in measured if len(values)]
    if not measured:
        return None
    several, keys, described, bounded = len(runs) > 1, [], [], False
    known = np.concatenate([values[np.isfinite(values)] for _, _, values in measured])
    logarithmic = bool((known > 0).all()) and len(known) > len(measured)
    with canvas() as (figure, axes):
        for number, run, values in measured:
            epochs = np.arange(1.0, len(values) + 1)
            style = look(number)
            axes.plot(epochs, values, **style, marker="o" if len(values) == 1 else "")
            keys.append(key(run.name if several else "realised", number))
            last = float(values[np.isfinite(values)][-1])
            described.append(f"{run.name + ': ' if several else ''}{last:.4f} at last")
            if "train" in run.evaluations and logarithmic:
                bounded = True
                shape = bound_shape(run.evaluations["train"], epochs)
                axes.plot(
                    epochs, shape, color=style["color"] if several else MUTED, linestyle=(0, (1, 3))
                )
        if bounded:
            keys.append(Key("shape of the bound", "var(--muted)", "1 3"))
        if logarithmic:
            axes.set(xscale="log", yscale="log")
            for axis, low, high in ((axes.xaxis, *axes.get_xlim()), (axes.yaxis, *axes.get_ylim())):
                decades = math.log10(high / low)
                subs = (1,) if decades > 2 else (1, 2, 5) if decades > 0.8 else (1, 2, 3, 4, 6, 8)
                axis.set_major_locator(LogLocator(subs=subs))
                axis.set_minor_locator(NullLocator())
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.set_xlabel("epoch", loc="right", labelpad=1)
        else:
            axes.set_xlabel("epoch", loc="right", labelpad=1)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
        text = f"Regret per instance and epoch. {'; '.join(described)}."
        svg = Markup(as_svg(figure, "regret", text))
    caption = (
        "What the labels played cost above the best fixed labels in hindsight, per instance and "
        "epoch" + (", on logarithmic axes." if logarithmic else ".")
    )
    if bounded:
        caption += (
            " Dotted: min(1, √(ln|Y| / t)), where |Y| counts the labelings of a bag that meet its "
            "counts, averaged over instances. It is a shape only: the bound's constant is not "
            "known, so compare slopes and not heights."
        )
    return Chart("Regret", svg, caption, keys if len(keys) > 1 else ())
