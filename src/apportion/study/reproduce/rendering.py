"""Tables and figures of a paper, from its recorded lines alone.

What is rendered depends on nothing else, so that it comes out the same byte for byte: tables go
between their marks in the paper's README.md, figures to ``figures/`` as SVG.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from apportion.errors import DataError
from apportion.files import replacing
from apportion.study.reproduce.paper import Cell, Paper, PaperTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["as_markdown", "render"]

Results = dict[Cell, dict[str, Any]]

LABELS = {"changed": "labels changed", "label_accuracy": "accuracy of pseudo labels"}


def render(paper: Paper) -> list[str]:
    """Write all tables and figures; return the names of the files."""
    readme = paper.folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    results = paper.results()
    for name, table in paper.tables.items():
        text = _between_marks(text, name, as_markdown(table, results), str(readme))
    for name, figure in paper.figures.items():
        _draw(paper, name, figure, results)
    _replace(readme, text)
    return [readme.name, *(f"figures/{name}.svg" for name in paper.figures)]


def _replace(file: Path, text: str) -> None:
    """Write a file in one step, with the same bytes on every system."""
    with replacing(file) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")


def _between_marks(text: str, name: str, content: str, file: str) -> str:
    """Put content between the marks of a name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise DataError(f"{file} has no marks of {name}.", f"Write {begin} and {end} into it.")
    return pattern.sub(lambda _: f"{begin}\n{content}\n{end}", text, count=1)


def as_markdown(table: PaperTable, results: Results) -> str:
    """Return a table: for each method the paper's row, ours with the difference, the last epoch.

    A method that the paper does not have has no row of it.
    Several seeds are a mean and a standard deviation. What was not run is left empty.
    """
    lines = [_row("method", map(str, table.sizes)), "|---" * (1 + len(table.sizes)) + "|"]
    for method in table.methods:
        found = [_of(results, table, method, size) for size in table.sizes]
        numbers: Sequence[float] | None = table.paper.get(method)
        theirs = [None] * len(found) if numbers is None else numbers
        ours = [
            _with_spread([line["selected"] for line in own], number)
            for own, number in zip(found, theirs, strict=True)
        ]
        last = [_with_spread([line["last"] for line in own]) for own in found]
        if numbers is not None:
            lines.append(_row(f"`{method}`, paper", (f"{number:.2f}" for number in numbers)))
        lines.append(_row(f"`{method}`, ours", ours))
        lines.append(_row(f"`{method}`, ours, last epoch", last))
    return "\n".join(lines)


def _of(results: Results, table: PaperTable, method: str, size: int) -> list[dict[str, Any]]:
    """Return the lines of one place in a table, of all seeds."""
    wanted = Cell(table.dataset, method, size, 0, table.epochs)
    return [line for cell, line in results.items() if replace(cell, seed=0) == wanted]


def _with_spread(values: list[float], paper: float | None = None) -> str:
    if not values:
        return ""
    text = f"{mean(values):.2f}"
    if len(values) > 1:
        text += f" ± {stdev(values):.2f}"
    if paper is not None:
        text += f" ({mean(values) - paper:+.2f})".replace("-", "−")
    return text


def _row(name: str, values: Iterable[str]) -> str:
    return " | ".join([f"| {name}", *values]) + " |"


def _draw(paper: Paper, name: str, figure: dict[str, Any], results: Results) -> None:
    from matplotlib import style
    from matplotlib.figure import Figure

    panels = figure["tables"] if figure["kind"] == "accuracy" else figure["curves"]
    # The user's own style must not matter, and ids in an SVG are random unless they are salted.
    with style.context(["default", {"svg.hashsalt": "apportion", "svg.fonttype": "none"}]):
        canvas = Figure(figsize=(4.2 * len(panels), 3.4), layout="constrained")
        for number, panel in enumerate(panels, start=1):
            axes = canvas.add_subplot(1, len(panels), number)
            if figure["kind"] == "accuracy":
                _accuracy(axes, paper.tables[panel], results)
            else:
                _curves(axes, figure, panel, paper.curves())
            if axes.get_legend_handles_labels()[0]:  # matplotlib warns of empty ones
                axes.legend(fontsize=7)
        canvas.suptitle(figure["title"])
        folder = paper.folder / "figures"
        folder.mkdir(exist_ok=True)
        drawn = io.StringIO()
        canvas.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
        _replace(folder / f"{name}.svg", drawn.getvalue())


def _accuracy(axes: Axes, table: PaperTable, results: Results) -> None:
    """Draw ours as lines with points, the paper's dashed."""
    for number, method in enumerate(table.methods):
        color = f"C{number}"
        if theirs := table.paper.get(method):
            axes.plot(table.sizes, theirs, "--", color=color, alpha=0.5, label=f"{method}, paper")
        found = {size: _of(results, table, method, size) for size in table.sizes}
        points = {s: mean(line["selected"] for line in own) for s, own in found.items() if own}
        if points:
            axes.plot(list(points), list(points.values()), "o-", color=color, label=method)
    axes.set(xscale="log", xlabel="bag size", ylabel="accuracy (%)", title=table.title)
    axes.set_xticks(table.sizes, labels=[str(size) for size in table.sizes])
    axes.minorticks_off()


def _curves(
    axes: Axes, figure: dict[str, Any], curve: str, curves: dict[Cell, dict[str, list[float]]]
) -> None:
    for number, method in enumerate(figure["methods"]):
        cell = Cell(figure["dataset"], method, figure["bag_size"], 0, figure["epochs"])
        if values := curves.get(cell, {}).get(curve):
            axes.plot(range(1, len(values) + 1), values, color=f"C{number}", label=method)
    axes.set(xlabel="epoch", ylabel=LABELS.get(curve, curve), ylim=(0, 1))
