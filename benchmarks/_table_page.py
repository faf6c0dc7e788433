"""The tables of docs/tables.md, from recorded lines alone.

A run is a cell with a seed. A table compares methods on the runs that all of its methods have, so
that each mean is over the same runs, whose number stands in brackets; methods without any line are
named below it. The best in
hindsight is, for each run, the best of all that learn from proportions, baselines included, and the
regret of a method is how far it stays behind.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import reduce
from typing import Any

import pandas as pd

from benchmarks._cells import EXACT, FILES, KINDS, NOISY, SEVERAL_CLASSES, TWO_CLASSES, Cell
from benchmarks._contenders import BOUNDS, CONTENDERS

METHODS = (*CONTENDERS, *BOUNDS)
RUN = ["table", "regime", "noise", "seed"]
NOTHING = "*No line is recorded yet.*"


def render(lines: list[dict]) -> str:
    """Make all tables."""
    if not lines:
        return NOTHING
    frame = pd.DataFrame(lines).set_index([*RUN, "method"])
    tables = {
        "Two classes, exact proportions: test AUC by regime": _regimes(frame, TWO_CLASSES, "auc"),
        "Bags that follow from the rows: AUC within and across bags": _pairs(frame),
        "Two classes, without `rand`: accuracy, log loss; with `rand`: times": _costs(frame),
        "Several classes (digits, wine): test accuracy by regime": _regimes(
            frame, SEVERAL_CLASSES, "accuracy"
        ),
        "Noisy proportions in bags of 32: test AUC": _noise(frame),
    }
    return "\n\n".join(f"**{title}**\n\n{table}" for title, table in tables.items())


def _runs(frame: pd.DataFrame, cells: Iterable[Cell], measure: str) -> pd.DataFrame:
    """Return a measure of the runs that all methods have: one row per run, one column each."""
    wide = frame[measure].unstack("method")
    wanted = set(cells)
    here = wide[[Cell(*key[:3]) in wanted for key in wide.index]]
    known = [method for method in METHODS if method in here and here[method].notna().any()]
    return here[known].dropna()


def _regimes(frame: pd.DataFrame, cells: list[Cell], measure: str) -> str:
    runs = _runs(frame, cells, measure)
    kinds = _of_cell(runs, lambda cell: cell.kind)
    columns = dict(_mean(kind, runs[kinds == kind]) for kind in KINDS)
    columns |= [_mean("all", runs)]
    contenders = runs[[method for method in runs if method in CONTENDERS]]
    regret = contenders.rsub(contenders.max(axis=1), axis=0)
    regrets = {"mean regret": regret.mean(), "90 %": regret.quantile(0.9), "worst": regret.max()}
    return _table(columns | regrets, least=regrets)


def _pairs(frame: pd.DataFrame) -> str:
    columns: dict[str, pd.Series] = {}
    for kind in ("kmeans", "column"):
        cells = [cell for cell in TWO_CLASSES if cell.kind == kind]
        for part in ("within", "across"):
            columns |= [_mean(f"{kind}, {part}", _runs(frame, cells, f"auc_{part}"))]
    return _table(columns)


def _costs(frame: pd.DataFrame) -> str:
    natural = [cell for cell in TWO_CLASSES if not cell.kind.startswith("rand")]
    seconds = _runs(frame, TWO_CLASSES, "cpu_seconds")
    large = _of_cell(seconds, lambda cell: cell.table in FILES).astype(bool)
    times = [_median("10,000 rows: CPU seconds", seconds[large])]
    times += [_median("fewer rows", seconds[~large])]
    losses = [_mean("log loss", _runs(frame, natural, "log_loss"))]
    columns = [_mean("accuracy", _runs(frame, natural, "accuracy")), *losses, *times]
    least = [name for name, _ in (*losses, *times)]
    return _table(dict(columns), least=least, short=[name for name, _ in times])


def _noise(frame: pd.DataFrame) -> str:
    """Compare noise on the same cells and seeds."""
    columns: dict[str, pd.Series] = {}
    for protocol in ("rand", "shuffle"):
        own = [cell for cell in NOISY if cell.kind.startswith(protocol)]
        parts = {}
        for noise in (EXACT, *dict.fromkeys(cell.noise for cell in own)):
            cells = {cell._replace(noise=noise) for cell in own}
            parts[noise] = _runs(frame, cells, "auc").droplevel("noise")
        common = reduce(pd.Index.intersection, [part.index for part in parts.values()])
        columns |= [_mean(f"{protocol}, {noise}", parts[noise].loc[common]) for noise in parts]
    return _table(columns)


def _mean(name: str, runs: pd.DataFrame) -> tuple[str, pd.Series]:
    return f"{name} ({len(runs)})", runs.mean()


def _median(name: str, runs: pd.DataFrame) -> tuple[str, pd.Series]:
    return f"{name} ({len(runs)})", runs.median()


def _of_cell(runs: pd.DataFrame, what: Callable[[Cell], Any]) -> pd.Series:
    return pd.Series([what(Cell(*key[:3])) for key in runs.index], runs.index, dtype=object)


def _table(
    columns: dict[str, pd.Series], *, least: Container[Any] = (), short: Container[Any] = ()
) -> str:
    """Lay out columns by method; the best contender of each, the least of `least`, is bold."""
    values = pd.DataFrame(columns).dropna(axis=1, how="all")
    shown = [method for method in METHODS if method in values.index]
    if not shown:
        return NOTHING
    texts = {}
    for name in values:
        digits = 1 if name in short else 3
        rounded = values[name].round(digits)
        contenders = rounded[[method for method in shown if method in CONTENDERS]]
        best = contenders.min() if name in least else contenders.max()
        for method in shown:
            text = "" if pd.isna(rounded[method]) else f"{rounded[method]:.{digits}f}"
            bold = method in contenders and rounded[method] == best
            texts[method, name] = f"**{text}**" if bold else text
    rows = [["method", *values], ["---"] * (len(values.columns) + 1)]
    rows += [[f"`{method}`", *(texts[method, name] for name in values)] for method in shown]
    without = [f"`{method}`" for method in METHODS if method not in shown]
    note = f"\n\n*Not measured yet: {', '.join(without)}.*" if without else ""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + note
