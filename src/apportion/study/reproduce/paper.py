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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

from filelock import FileLock

from apportion.errors import DataError, suggestion
from apportion.files import append_line, read_lines, read_toml

__all__ = ["Cell", "Paper", "Table", "select"]


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
            content = read_toml(file, DataError)
            if content.get("kind") == "table":
                self.tables[file.stem] = _table(file, content)
            elif "kind" in content:
                self.figures[file.stem] = content
        if not self.tables:
            raise DataError(
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
        order = read_toml(file, DataError).get("cells", [{}]) if file.exists() else [{}]
        found: dict[Cell, None] = {}
        for entry in order:
            for seed in seeds or entry.get("seeds", [0]):
                cells = (cell for table in self.tables.values() for cell in table.cells(seed))
                found |= dict.fromkeys(_chosen(entry, cells))
        return list(found)

    def results(self) -> dict[Cell, dict[str, Any]]:
        """Give the lines of all cells that were run."""
        files = (f for f in sorted(self.results_folder.glob("*.jsonl")) if f.stem != "curves")
        return {_cell(line): line for file in files for line in _lines(file)}

    def curves(self) -> dict[Cell, dict[str, list[float]]]:
        """Give the numbers of every epoch of all cells that were run."""
        return {_cell(line): line["curves"] for line in _lines(self._curves)}

    def add(self, line: Mapping[str, Any], curves: Mapping[str, list[float]]) -> None:
        """Record a cell that was run."""
        cell = _cell(line)
        self.results_folder.mkdir(exist_ok=True)
        with FileLock(self.results_folder / "lock"):
            if cell in self.results():  # another process was quicker
                return
            append_line(self._curves, {**asdict(cell), "curves": dict(curves)})
            append_line(self.results_folder / f"{cell.dataset}.jsonl", line)

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
            raise DataError(f"cells have no {name.strip()!r}.", suggestion(name.strip(), known))
        wanted = {value.strip() for value in values.split("/")}
        there = dict.fromkeys(str(getattr(cell, name.strip())) for cell in chosen)
        chosen = [cell for cell in chosen if str(getattr(cell, name.strip())) in wanted]
        if not chosen:
            raise DataError(f"no cell has {condition.strip()}.", f"There are {', '.join(there)}.")
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
        raise DataError(f"{file} lacks {error}.", "See the other tables.") from error
    for method, numbers in paper.items():
        if len(numbers) != len(table.sizes):
            raise DataError(
                f"{file} has {len(numbers)} numbers of {method} for {len(table.sizes)} sizes.",
                "Write one for each size.",
            )
    return table


def _lines(file: Path) -> list[dict[str, Any]]:
    return read_lines(file, DataError, "Restore it from the repository.")
