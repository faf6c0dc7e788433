"""Figures of matplotlib as SVG that belongs to the page: its font, its colours, both its themes.

A figure is drawn in stand-in colours, each of which becomes a variable of the page's style sheet,
so that one drawing serves a light and a dark page. Texts stay texts.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, BOUND = "#010203", "#010204", "#010205", "#010206"
SERIES = tuple(f"#0102f{number}" for number in range(1, 9))
WIDTH, HEIGHT, SQUARE = 340, 220, 330  # of a chart, in pixels at its natural size: that of a phone
LEFT, RIGHT, TOP, BOTTOM, TITLE = 42, 12, 8, 36, 18  # margins of its axes: room for labels

_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    BOUND: "var(--bound)",  # which no series has
} | {stand_in: f"var(--s{number})" for number, stand_in in enumerate(SERIES, start=1)}
_DASHES: tuple[tuple[float, ...], ...] = ((), (6, 3), (2, 2.4), (9, 3, 2, 3))
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # names of bags and classes may have dollars in them
    "font.sans-serif": ["DejaVu Sans"],  # to measure with; the page has its own
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
    "axes.labelpad": 1,
    "axes.titlesize": 11,
    "axes.titlecolor": MUTED,
    "axes.titlelocation": "left",
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.linewidth": 1,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 1,
    "xaxis.labellocation": "right",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 4,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "lines.scale_dashes": False,
    "lines.solid_capstyle": "round",
}


@dataclass(frozen=True)
class Key:
    """One entry of a legend."""

    label: str
    colour: str  # a variable of the style sheet
    dashes: str = ""
    mark: str = "line"  # or "round", "square"


@dataclass(frozen=True)
class Chart:
    """A drawing with what is written around it."""

    title: str
    svg: Markup
    caption: str
    keys: Sequence[Key] = ()


def key(label: str, series: int, mark: str = "line") -> Key:
    """Return the entry of a legend for a series."""
    dashes = " ".join(f"{length:g}" for length in _dashes(series)) if mark == "line" else ""
    return Key(label, _VARIABLES[SERIES[series % len(SERIES)]], dashes, mark)


def look(series: int) -> dict[str, Any]:
    """Return the colour and the dashes of a series: no two of the first 32 look the same."""
    dashes = _dashes(series)
    return {"color": SERIES[series % len(SERIES)], "linestyle": (0, dashes) if dashes else "-"}


def _dashes(series: int) -> tuple[float, ...]:
    return _DASHES[(series + series // len(SERIES)) % len(_DASHES)]


@contextmanager
def canvas(
    width: float = WIDTH, height: float = HEIGHT, *, bottom: float = BOTTOM, top: float = TOP
) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure and its axes in the style of the page, whatever the user's own style is."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", _STYLE]), warnings.catch_warnings():
        # The page has fonts for letters that the one measured with here lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        yield figure, add_axes(figure, bottom=bottom, top=top)


def add_axes(figure: Figure, *, bottom: float, top: float, sharex: Axes | None = None) -> Axes:
    """Add axes with fixed margins: measuring labels would take as long as drawing them."""
    width, height = figure.bbox.width, figure.bbox.height
    share = (width - LEFT - RIGHT) / width, (height - bottom - top) / height
    return figure.add_axes((LEFT / width, bottom / height, *share), sharex=sharex)


def ring(axes: Axes, x: float, y: float, colour: str = INK) -> None:
    """Draw a ring around a point."""
    shape: dict[str, Any] = {"markersize": 9, "markerfacecolor": "none", "markeredgewidth": 1.6}
    axes.plot([x], [y], "o", markeredgecolor=colour, zorder=5, clip_on=False, **shape)


def as_svg(figure: Figure, name: str, description: str) -> Markup:
    """Turn a figure into an SVG element of the page.

    Parameters
    ----------
    name : str
        Unique on the page.
    description : str
        What the chart shows, for those who cannot see it.
    """
    from matplotlib import rc_context

    drawn = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context({"svg.hashsalt": name}):  # from which the names of clips and marks are made
        figure.savefig(drawn, format="svg", transparent=True, metadata=nothing)
    text = drawn.getvalue()
    text = text[text.index(">", text.index("<svg")) + 1 :]
    text = re.sub(r"<!--.*?-->|<defs>\s*<style.*?</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", _of_page, text)  # tags, not what is written
    text = re.sub(r">\s+<", "><", text)
    size = f"{figure.bbox.width:g} {figure.bbox.height:g}"
    opening = f'<svg class="chart" viewBox="0 0 {size}" role="img" aria-label="'
    return Markup(f'{opening}{escape(description)}">{text}')


def _of_page(found: re.Match[str]) -> str:
    """Rewrite a tag: no name that another chart has, the page's colours, no invisible digits."""
    tag = re.sub(r'^<g id="[^"]*"', "<g", found[0])
    if tag.startswith("<path"):
        tag = re.sub(r"(?<=\.\d\d)\d+|\s*\n", "", tag)
    return re.sub(r"#0102[0-9a-f]{2}", lambda colour: _VARIABLES[colour[0]], tag)
