"""From a matplotlib figure to SVG that belongs to the page: its font, its colours, its theme.

A figure is drawn in stand-in colours, each of which becomes a variable of the page's style sheet,
so that one drawing serves a light and a dark page. Texts stay texts. Names of parts are made
unique, since all drawings share one page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "GRID",
    "HALO",
    "INK",
    "MUTED",
    "SERIES",
    "SQUARE",
    "Chart",
    "Key",
    "as_svg",
    "canvas",
    "key",
    "look",
    "pixels",
    "settle",
    "shares",
]

INK, MUTED, GRID, HALO = "#010203", "#010204", "#010205", "#010206"
SERIES = tuple(f"#0102f{number}" for number in range(1, 9))
_DASHES: tuple[tuple[float, ...], ...] = ((), (6, 3), (2, 2.4), (9, 3, 2, 3))
WIDTH, HEIGHT, SQUARE = 340, 220, 330  # of a chart, in pixels at its natural size: that of a phone

_HALO = (
    "var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 3px; "
    "stroke-linejoin: round"
)
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    HALO: _HALO,
    **{stand_in: f"var(--s{number})" for number, stand_in in enumerate(SERIES, start=1)},
}

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "apportion",
    "text.parse_math": False,  # names of bags and classes may have dollars in them
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
    "axes.labelsize": 11,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.linewidth": 1,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 1,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "xtick.major.size": 4,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "lines.scale_dashes": False,
    "lines.solid_capstyle": "round",
}


@dataclass(frozen=True)
class Key:
    """A line of a legend."""

    label: str
    colour: str  # a variable of the style sheet
    dashes: str = ""
    mark: str = "line"  # or "round", "square"


@dataclass(frozen=True)
class Chart:
    """A drawing with what is written around it."""

    title: str
    svg: Markup
    caption: str = ""
    keys: Sequence[Key] = field(default=())


def key(label: str, series: int, mark: str = "line") -> Key:
    """Make the line of a legend for a series."""
    dashes = " ".join(f"{length:g}" for length in _dashes(series)) if mark == "line" else ""
    return Key(label, f"var(--s{series % len(SERIES) + 1})", dashes, mark)


def look(series: int) -> dict[str, Any]:
    """Give the colour and the dashes of a series: no two of the first 32 look the same."""
    dashes = _dashes(series)
    return {"color": SERIES[series % len(SERIES)], "linestyle": (0, dashes) if dashes else "-"}


def _dashes(series: int) -> tuple[float, ...]:
    return _DASHES[(series + series // len(SERIES)) % len(_DASHES)]


@contextmanager
def canvas(width: float = WIDTH, height: float = HEIGHT) -> Iterator[tuple[Figure, Axes]]:
    """Give a figure and its axes, in the style of the page, whatever the user's own style is."""
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    # Room at the right for the second half of the last tick's label.
    layout = ConstrainedLayoutEngine(w_pad=6 / 72, h_pad=4 / 72)
    with style.context(["default", _STYLE]), warnings.catch_warnings():
        # The page has fonts for letters that the one measured with here lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout=layout)
        yield figure, figure.add_subplot()


def as_svg(figure: Figure, name: str, description: str, parts: dict[str, str] | None = None) -> str:
    """Turn a figure into an SVG element of the page.

    Parameters
    ----------
    name : str
        Unique on the page.
    description : str
        What the chart shows, for those who cannot see it.
    parts : dict, optional
        What to draw in the place of artists, by their gid.
    """
    drawn = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(drawn, format="svg", transparent=True, metadata=nothing)
    text = drawn.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", lambda tag: _of_page(tag.group(), name), text)  # not what is written
    for gid, part in (parts or {}).items():
        text = re.sub(
            rf'(<g id="{name}-{gid}">).*?</g>',
            lambda found, part=part: f"{found[1]}{part}</g>",  # type: ignore[misc]
            text,
            flags=re.DOTALL,
        )
    text = re.sub(r">\s+<", "><", text)
    box = re.search(r'viewBox="[^"]*"', text)
    opening = f'<svg class="chart" {box.group() if box else ""} role="img" aria-label="'
    return opening + escape(description) + '">' + text[text.index(">") + 1 :]


def _of_page(tag: str, name: str) -> str:
    """Rewrite a tag: unique names, the page's colours and font, and no more digits than show."""
    tag = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", tag)  # of matplotlib before 3.10
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    tag = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", tag)
    tag = re.sub(r"(\d\.\d\d)\d+", r"\1", tag)
    tag = re.sub(r"#0102[0-9a-f]{2}", lambda found: _VARIABLES[found.group()], tag)
    tag = tag.replace("xlink:href", "href")
    return re.sub(r"\s*\n\s*", " ", tag)


def shares(axes: Axes) -> None:
    """Let both axes have few ticks, in few digits."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def settle(figure: Figure) -> None:
    """Lay the figure out, and leave it so: what is placed by hand is placed in its pixels."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def pixels(axes: Axes, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the places of points on the page, as SVG counts them."""
    figure: Any = axes.figure
    at = axes.transData.transform(points)
    at[:, 1] = figure.bbox.height - at[:, 1]
    placed: NDArray[np.float64] = at
    return placed
