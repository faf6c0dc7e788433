"""The tables of docs/performance.md, and the few lines of README.md, from recorded lines alone."""

from __future__ import annotations

from typing import Any

NOTHING = "*No line is recorded yet.*"
TREES = ("before", "now")
PEER = "1,024 × 10"  # whose line README.md has
# The titles of the tables, with the figures that each holds.
TITLES = {
    "The first minute": ("first-assign", "first-fit", "import", "command-line"),
    "Prediction": ("one-row",),
    "Small fits": ("small-fit", "small-steps", "grid", "threads"),
    "Data larger than memory": ("streaming",),
    "The solver": ("solver",),
    "The solver beside its fastest exact peer": ("peers",),
}
# What README.md says: the words for a value, and its name in the lines.
SHORT = {
    "First large `assign` after an installation, compiled": "first `assign`, 100,000 × 10",
    "First epoch after an installation, imports and decision included, 1,797 rows × 64 columns": (
        "first `fit`, 1,797 × 64, 10 classes: process start to end of epoch 1"
    ),
    "`from apportion import LLPClassifier`": "`from apportion import LLPClassifier`",
    "`predict_proba` of one row by a perceptron": "one row, mlp: `Model.predict_proba`, array",
    "`fit`, 10,000 rows × 20 columns, 100 epochs": "`fit`, 10,000 × 20, 100 epochs",
}


def render(lines: list[dict[str, Any]]) -> str:
    """Make all tables, and say what measured them."""
    if not lines:
        return NOTHING
    parts = []
    for title, figures in TITLES.items():
        own = [line for figure in figures for line in lines if line["figure"] == figure]
        if own:
            table = _peers(own) if "peers" in figures else _before_and_now(own)
            parts.append(f"**{title}**\n\n{table}{_failures(own)}")
    return "\n\n".join([*parts, _provenance(lines)])


def render_short(lines: list[dict[str, Any]]) -> str:
    """Make the lines of README.md."""
    own = {line["what"]: line for line in lines if line["tree"] == "now" and "error" not in line}
    told = [f"{words}: {_median(own[what])}" for words, what in SHORT.items() if what in own]
    told += [
        f"`assign`, {what}: {_median(line)}, {line['ratio']:.3g} times as fast as {line['peer']}"
        for what, line in own.items()
        if what == PEER
    ]
    return "\n".join(f"- {text}" for text in told) or NOTHING


def _before_and_now(lines: list[dict[str, Any]]) -> str:
    """Lay out one row per value, with the ratio of the two trees unless it is a ratio itself."""
    found = {(line["what"], line["tree"]): line for line in lines if "error" not in line}
    rows = [["what", "before", "now", "before ÷ now", "turns"], ["---"] * 5]
    for what in dict.fromkeys(what for what, _ in found):
        own = [found.get((what, tree)) for tree in TREES]
        both = [line["value"] for line in own if line is not None]
        is_ratio = any(line is not None and line["unit"] == "×" for line in own)
        ratio = "" if len(both) < 2 or is_ratio else f"{both[0] / both[1]:.3g}×"
        turns = next(str(line["n"]) for line in own if line is not None)
        rows.append([what, *map(_value, own), ratio, turns])
    return _markdown(rows)


def _peers(lines: list[dict[str, Any]]) -> str:
    rows = [["bag", "`assign`, ms", "fastest exact peer, ms", "ratio"], ["---"] * 4]
    for line in lines:
        if "error" not in line:
            peer = f"{line['peer']} {_number(line['peer_ms'])}"
            rows.append([line["what"], _number(line["value"]), peer, f"**{line['ratio']:.3g}×**"])
    return _markdown(rows)


def _value(line: dict[str, Any] | None) -> str:
    """Write a median with its unit, and the least and the largest of its turns."""
    if line is None:
        return ""
    low, high = map(_number, line["spread"])
    spread = f" ({low}–{high})" if line["n"] > 1 else ""
    return f"{_median(line)}{spread}"


def _median(line: dict[str, Any]) -> str:
    unit = line["unit"] if line["unit"] in "×%" else f" {line['unit']}"
    return f"{_number(line['value'])}{unit}"


def _number(value: float) -> str:
    """Write three digits that count, and never an exponent.

    >>> [_number(value) for value in (0.001234, 9.876, 41.26, 1234.6)]
    ['0.00123', '9.88', '41.3', '1,235']
    """
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if value >= 1e-4 else f"{value:.6f}"


def _failures(lines: list[dict[str, Any]]) -> str:
    failed = [line for line in lines if "error" in line]
    if not failed:
        return ""
    told = "; ".join(f"{line['what']} ({line['tree']}): {line['error']}" for line in failed)
    return f"\n\n*Not measured: {told}.*"


def _provenance(lines: list[dict[str, Any]]) -> str:
    """Say when, on what, with which versions, and of which commits."""

    def each(name: str, of: list[dict[str, Any]]) -> str:
        return " and ".join(dict.fromkeys(str(line[name]) for line in of))

    commits = [
        f"*{tree}* is commit {each('commit', own)}"
        for tree in TREES
        if (own := [line for line in lines if line["tree"] == tree])
    ]
    versions = dict.fromkeys(
        ", ".join(f"{name} {number}" for name, number in line["versions"].items()) for line in lines
    )
    told = f"Measured on {each('date', lines)}, {each('hardware', lines)}, {'; '.join(versions)}"
    return f"{told}. {', '.join(commits)}."


def _markdown(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
