"""A paper as a folder: the cells of its tables, their order, and their results.

- ``*.toml``: one file per table or figure (`kind` says which), with the paper's own numbers;
- ``order.toml``: in which order cells are run;
- ``bags/``: the rows of the paper's bags, one ``.npz`` per dataset;
- ``results/DATASET.jsonl``: one line per cell (`apportion.study.results`);
  ``results/curves.jsonl``: its numbers epoch by epoch;
- ``runs/``: the run folders of cells that are not finished, if no other place is chosen.

The curves of a cell are added before its result, so that a process that is killed at any moment
leaves whole cells only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any

from filelock import FileLock

from apportion.errors import DataError, suggestion
from apportion.files import append_line, read_lines, read_toml
from apportion.study.results import add_result, read_results

__all__ = ["Cell", "Paper", "PaperTable", "select"]


@dataclass(frozen=True)
class Cell:
    """One training of a table."""

    dataset: str
    method: str
    bag_size: int
    seed: int
    epochs: int

    @property
    def name(self) -> str:
        """A name for the folder of its run."""
        return f"{self.dataset}-{self.method}-{self.bag_size}-seed-{self.seed}-epochs-{self.epochs}"

    def __str__(self) -> str:
        return f"{self.dataset} · {self.method} · bags of {self.bag_size} · seed {self.seed}"


FIELDS = tuple(own.name for own in fields(Cell))


@dataclass(frozen=True)
class PaperTable:
    """Accuracies of methods at some bag sizes, with those of the paper."""

    title: str
    dataset: str
    sizes: Sequence[int]
    epochs: int
    paper: Mapping[str, Sequence[float]]  # in percent, by method
    own: Sequence[str] = ()  # methods that the paper does not have
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of other names

    @property
    def methods(self) -> Sequence[str]:
        """The paper's methods, then those of our own."""
        return [*self.paper, *self.own]

    def settings_of(self, method: str) -> Mapping[str, Any]:
        """Return the name and the settings of a method, as `method_from` takes them."""
        return self.settings.get(method, {"name": method})

    def cells(self, seed: int) -> Iterator[Cell]:
        """Yield its cells of one seed, method after method."""
        for method in self.methods:
            for size in self.sizes:
                yield Cell(self.dataset, method, size, seed, self.epochs)


class Paper:
    """A paper's folder."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self.results_folder = self.folder / "results"
        self._curves = self.results_folder / "curves.jsonl"
        self.tables: dict[str, PaperTable] = {}
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

    def cells(self, seeds: Sequence[int] | None = None) -> list[Cell]:
        """Return all cells, or those of some seeds, in the order in which they are run."""
        file = self.folder / "order.toml"
        order = read_toml(file, DataError).get("cells", [{}]) if file.exists() else [{}]
        found: dict[Cell, None] = {}
        for entry in order:
            for seed in seeds or entry.get("seeds", [0]):
                cells = (cell for table in self.tables.values() for cell in table.cells(seed))
                found |= dict.fromkeys(_chosen(entry, cells))
        return list(found)

    def settings_of(self, cell: Cell) -> Mapping[str, Any]:
        """Return the name and the settings of a cell's method: those of the first table with it."""
        with_it = (
            table
            for table in self.tables.values()
            if table.dataset == cell.dataset and cell.method in table.methods
        )
        return next((table.settings_of(cell.method) for table in with_it), {"name": cell.method})

    def results(self) -> dict[Cell, dict[str, Any]]:
        """Return the lines of all cells that were run."""
        files = (f for f in sorted(self.results_folder.glob("*.jsonl")) if f.stem != "curves")
        return {_cell(line): line for file in files for line in read_results(file, FIELDS)}

    def curves(self) -> dict[Cell, dict[str, list[float]]]:
        """Return the numbers of every epoch of all cells that were run."""
        lines = read_lines(self._curves, DataError, "Restore it from the repository.")
        return {_cell(line): line["curves"] for line in lines}

    def add(self, line: Mapping[str, Any], curves: Mapping[str, list[float]]) -> None:
        """Record a cell that was run."""
        cell = _cell(line)
        self.results_folder.mkdir(exist_ok=True)
        with FileLock(self.results_folder / "lock"):
            if cell in self.results():  # another process was quicker
                return
            append_line(self._curves, {**asdict(cell), "curves": dict(curves)})
            add_result(self.results_folder / f"{cell.dataset}.jsonl", line)


def select(cells: Iterable[Cell], only: str) -> list[Cell]:
    """Return the cells that a text such as "method=fpl,bag_size=64" names; "64/128" means either.

    Examples
    --------
    >>> cells = [Cell("cifar10", "fpl", size, 0, 400) for size in (64, 128, 256)]
    >>> [cell.bag_size for cell in select(cells, "method=fpl,bag_size=64/256")]
    [64, 256]
    """
    chosen = list(cells)
    for condition in filter(None, only.split(",")):
        name, _, values = (part.strip() for part in condition.partition("="))
        if name not in FIELDS:
            raise DataError(f"cells have no {name!r}.", suggestion(name, FIELDS))
        wanted = {value.strip() for value in values.split("/")}
        there = dict.fromkeys(str(getattr(cell, name)) for cell in chosen)
        chosen = [cell for cell in chosen if str(getattr(cell, name)) in wanted]
        if not chosen:
            raise DataError(f"no cell has {condition.strip()}.", f"There are {', '.join(there)}.")
    return chosen


def _chosen(entry: Mapping[str, Any], cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells that an entry of the order names, method after method if it names any."""
    chosen = [
        cell
        for cell in cells
        if entry.get("dataset", cell.dataset) == cell.dataset
        and cell.method in entry.get("methods", [cell.method])
        and cell.bag_size in entry.get("sizes", [cell.bag_size])
    ]
    return sorted(chosen, key=lambda cell: entry.get("methods", [cell.method]).index(cell.method))


def _cell(line: Mapping[str, Any]) -> Cell:
    return Cell(**{name: line[name] for name in FIELDS})


def _table(file: Path, content: Mapping[str, Any]) -> PaperTable:
    try:
        given = {"own": (), "settings": {}, **content}
        table = PaperTable(**{own.name: given[own.name] for own in fields(PaperTable)})
        lengths = {method: len(numbers) for method, numbers in table.paper.items()}
    except (KeyError, AttributeError) as error:
        raise DataError(f"{file} lacks {error}.", "See the other tables.") from error
    for method, length in lengths.items():
        if length != len(table.sizes):
            raise DataError(
                f"{file} has {length} numbers of {method} for {len(table.sizes)} sizes.",
                "Write one per size.",
            )
    return table
