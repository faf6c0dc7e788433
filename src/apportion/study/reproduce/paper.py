"""A paper as a folder: what its tables ask for, in which order, and what was found.

- ``*.toml``: one file a table or figure (`kind` says which), with the paper's own numbers;
- ``order.toml``: in which order cells are run;
- ``bags/``: the rows of the paper's bags, an ``.npz`` a dataset;
- ``results/DATASET.jsonl``: a line a cell; ``results/curves.jsonl``: its numbers epoch by epoch.

A line is added in one write that is forced to the disk, the curves before the result, so that a
process that is killed at any moment leaves whole cells only: a last line that was cut short is not
read, and removed before the next is added.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

from filelock import FileLock

from apportion.errors import ApportionError, suggestion

__all__ = ["Cell", "Paper", "PaperError", "Table", "select"]


class PaperError(ApportionError, ValueError):
    """A paper's folder, or a choice of its cells, that makes no sense."""


@dataclass(frozen=True)
class Cell:
    """One training of a table."""

    dataset: str
    method: str
    bag_size: int
    seed: int
    epochs: int

    def __str__(self) -> str:
        return f"{self.dataset} · {self.method} · bags of {self.bag_size} · seed {self.seed}"


@dataclass(frozen=True)
class Table:
    """Accuracies of methods at some bag sizes, with those of the paper."""

    name: str
    title: str
    dataset: str
    sizes: tuple[int, ...]
    epochs: int
    paper: Mapping[str, tuple[float, ...]]  # in per cent, by method

    def cells(self, seed: int) -> Iterator[Cell]:
        """Give its cells of one seed, method after method."""
        for method in self.paper:
            for size in self.sizes:
                yield Cell(self.dataset, method, size, seed, self.epochs)


class Paper:
    """A paper's folder."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self.tables: dict[str, Table] = {}
        self.figures: dict[str, dict[str, Any]] = {}
        for file in sorted(self.folder.glob("*.toml")):
            content = _read_toml(file)
            if content.get("kind") == "table":
                self.tables[file.stem] = _table(file, content)
            elif "kind" in content:
                self.figures[file.stem] = content
        if not self.tables:
            raise PaperError(
                f"{self.folder} is not the folder of a paper: it has no table.",
                "Pass one such as papers/matsuo2023, from the folder of the clone.",
            )

    @property
    def results_folder(self) -> Path:
        """Where lines are."""
        return self.folder / "results"

    def cells(self, seeds: Sequence[int] | None = None) -> list[Cell]:
        """Give all cells, in the order in which they are run; those of some seeds, if asked."""
        file = self.folder / "order.toml"
        order = _read_toml(file).get("cells", [{}]) if file.exists() else [{}]
        found: dict[Cell, None] = {}
        for entry in order:
            for seed in seeds or entry.get("seeds", [0]):
                cells = (cell for table in self.tables.values() for cell in table.cells(seed))
                found |= dict.fromkeys(_chosen(entry, cells))
        return list(found)

    def results(self) -> dict[Cell, dict[str, Any]]:
        """Give the lines of all cells that were run."""
        files = (f for f in sorted(self.results_folder.glob("*.jsonl")) if f.stem != "curves")
        return {_cell(line): line for file in files for line in _read_lines(file)}

    def curves(self) -> dict[Cell, dict[str, list[float]]]:
        """Give the numbers of every epoch of all cells that were run."""
        return {_cell(line): line["curves"] for line in _read_lines(self._curves)}

    def add(self, line: Mapping[str, Any], curves: Mapping[str, list[float]]) -> None:
        """Record a cell that was run."""
        cell = _cell(line)
        self.results_folder.mkdir(exist_ok=True)
        with FileLock(self.results_folder / "lock"):
            if cell in self.results():  # another process was quicker
                return
            _append(self._curves, {**asdict(cell), "curves": dict(curves)})
            _append(self.results_folder / f"{cell.dataset}.jsonl", line)

    @property
    def _curves(self) -> Path:
        return self.results_folder / "curves.jsonl"


def select(cells: Iterable[Cell], only: str) -> list[Cell]:
    """Give the cells that a text such as "method=fpl,bag_size=64" names; "64/128" means either.

    Examples
    --------
    >>> cells = [Cell("cifar10", "fpl", size, 0, 400) for size in (64, 128, 256)]
    >>> [cell.bag_size for cell in select(cells, "method=fpl,bag_size=64/256")]
    [64, 256]
    """
    known = [field.name for field in fields(Cell)]
    chosen = list(cells)
    for condition in filter(None, only.split(",")):
        name, _, values = condition.partition("=")
        if name.strip() not in known:
            raise PaperError(f"cells have no {name.strip()!r}.", suggestion(name.strip(), known))
        wanted = {value.strip() for value in values.split("/")}
        there = dict.fromkeys(str(getattr(cell, name.strip())) for cell in chosen)
        chosen = [cell for cell in chosen if str(getattr(cell, name.strip())) in wanted]
        if not chosen:
            raise PaperError(f"no cell has {condition.strip()}.", f"There are {', '.join(there)}.")
    return chosen


def _chosen(entry: Mapping[str, Any], cells: Iterable[Cell]) -> list[Cell]:
    """The cells that an entry of the order names, by its methods if it names any."""
    chosen = [
        cell
        for cell in cells
        if entry.get("dataset", cell.dataset) == cell.dataset
        and cell.method in entry.get("methods", [cell.method])
        and cell.bag_size in entry.get("sizes", [cell.bag_size])
    ]
    return sorted(chosen, key=lambda cell: entry.get("methods", [cell.method]).index(cell.method))


def _cell(line: Mapping[str, Any]) -> Cell:
    return Cell(**{field.name: line[field.name] for field in fields(Cell)})


def _table(file: Path, content: Mapping[str, Any]) -> Table:
    try:
        paper = {method: tuple(numbers) for method, numbers in content["paper"].items()}
        table = Table(
            file.stem,
            content["title"],
            content["dataset"],
            tuple(content["sizes"]),
            content["epochs"],
            paper,
        )
    except (KeyError, AttributeError) as error:
        raise PaperError(f"{file} lacks {error}.", "See the other tables.") from error
    for method, numbers in paper.items():
        if len(numbers) != len(table.sizes):
            raise PaperError(
                f"{file} has {len(numbers)} numbers of {method} for {len(table.sizes)} sizes.",
                "Write one for each size.",
            )
    return table


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise PaperError(f"{file} is no TOML: {error}.", "Correct it.") from error


def _read_lines(file: Path) -> list[dict[str, Any]]:
    """Read JSON lines, but for a last one that is not finished."""
    if not file.exists():
        return []
    *lines, rest = file.read_text(encoding="utf-8").split("\n")
    lines += [rest] if _is_json(rest) else []  # an editor may have taken the end of the line
    try:
        return [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        raise PaperError(
            f"{file} is damaged: {error}.", "Restore it from the repository."
        ) from error


def _is_json(text: str | bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _append(file: Path, line: Mapping[str, Any]) -> None:
    """Add a line for good, after whatever a killed process may have left of one."""
    with file.open("ab+") as lines:
        lines.seek(0)
        before, end, rest = lines.read().rpartition(b"\n")
        if rest and _is_json(rest):
            lines.write(b"\n")
        else:
            lines.truncate(len(before) + len(end))
        lines.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
        lines.flush()
        os.fsync(lines.fileno())
