"""Bags of a labelled table, as files: what `apportion bag` does.

Into one folder go

    rows.csv, or rows.parquet   the rows of the bags, bag after bag: a column `bag`, and all columns
                                of the table but the label, unless it is to be kept
    proportions.csv             one row a bag: a column `bag`, a column a class, and a column
                                `split` (train or valid) if rows were held out
    train.npz, valid.npz        the manifests, whose rows are those of the table

Bags are numbered through: the first for validation has the number that follows the last for
training. In their manifests both begin with 0.

The same bags come from Python: ``pools(n, (1 - valid, valid), seed=seed)`` cuts the rows, the
protocol makes bags of the first pool with `seed`, and of the second with ``seed + 1``.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apportion.bags.counts import counts_from_proportions
from apportion.errors import BagError, DataError, count, suggestion
from apportion.study import protocols
from apportion.study._pool import Ints, rows_by_class
from apportion.study._table_files import Table, check_folder, read_table, write_tables
from apportion.study.clusters import clusters
from apportion.study.manifests import Manifest

__all__ = ["PROTOCOLS", "Made", "Recipe", "bag_table"]

PROTOCOLS = ("rand", "dirichlet", "random", "clusters")


@dataclass(frozen=True)
class Recipe:
    """How bags are to be made: a protocol of `apportion.study.protocols`, and its options."""

    protocol: str = "rand"
    size: int | None = None
    n_bags: int | None = None  # of both splits together
    alpha: float | None = None
    valid: float | None = None  # the share of the rows that is held out before bags are made
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that the options go together."""
        if self.protocol not in PROTOCOLS:
            raise DataError(
                f"there is no protocol {self.protocol!r}.", suggestion(self.protocol, PROTOCOLS)
            )
        if (self.alpha is not None) != (self.protocol == "dirichlet"):
            how = "needs --alpha" if self.alpha is None else f"takes no --alpha ({self.alpha:g})"
            raise DataError(
                f"--protocol {self.protocol} {how}.",
                "Pass --alpha with --protocol dirichlet alone: 1 for proportions that are all "
                "equally likely, less for bags that differ more.",
            )
        if self.protocol == "clusters":
            if (self.size is None) == (self.n_bags is None):
                raise DataError(
                    f"--protocol clusters got --size {self.size} and --n-bags {self.n_bags}.",
                    "Pass one of them: the mean number of rows of a bag, or the number of bags.",
                )
        elif self.size is None:
            raise DataError(
                f"--protocol {self.protocol} needs --size.",
                "Pass the number of rows of each bag, such as --size 64.",
            )
        if self.protocol == "random" and self.n_bags is not None:
            raise DataError(
                f"--protocol random takes no --n-bags ({self.n_bags}).",
                "It puts every row into one bag: --size alone says how many there are.",
            )
        if self.valid is not None and not 0 < self.valid < 1:
            raise DataError(
                f"--valid is {self.valid:g}.",
                "Pass the share of the rows to validate on, between 0 and 1, such as --valid 0.3.",
            )
        if self.valid is not None and self.n_bags == 1:
            raise DataError(
                f"--n-bags is 1, but --valid {self.valid:g} needs a bag of its own.",
                "Make two bags at least, or leave out --valid.",
            )


@dataclass(frozen=True)
class Made:
    """What `bag_table` made; print it to read it."""

    table: Path
    label: str
    folder: Path
    rows_file: str
    keep_label: bool
    manifests: dict[str, Manifest]

    def __str__(self) -> str:
        first = next(iter(self.manifests.values()))
        rows, classes = count(first.n_rows, "row"), len(first.classes)
        lines = [f"{self.table}: {rows}, {classes:,} classes in column {self.label!r}.", ""]
        start = 0
        for split, manifest in self.manifests.items():
            lines += [*_describe(split, manifest, start), ""]
            start += manifest.n_bags
        held = sum(len(manifest.index) for manifest in self.manifests.values())
        names = {
            self.rows_file: f"{count(held, 'row')} with their bag, "
            f"{'and' if self.keep_label else 'without'} {self.label!r}",
            "proportions.csv": f"{start:,} bags, a column a class",
        } | {
            f"{split}.npz": f"manifest of {manifest.n_bags:,} bags, SHA-256 {manifest.sha256[:16]}…"
            for split, manifest in self.manifests.items()
        }
        width = max(map(len, names)) + 2
        lines += [f"{self.folder}:", *(f"  {name:<{width}}{what}" for name, what in names.items())]
        given = f"{self.folder / self.rows_file} --proportions {self.folder / 'proportions.csv'}"
        if self.keep_label:
            given += f" --label {shlex.quote(self.label)}"
        return "\n".join(
            [
                *lines,
                "",
                "Next, look at the bags, and learn from them:",
                f"  apportion check {given}",
                f"  apportion train {given} --out runs/a",
            ]
        )


def bag_table(
    table: Path,
    label: str,
    folder: Path,
    recipe: Recipe,
    *,
    names: Sequence[str] = (),
    keep_label: bool = False,
    force: bool = False,
) -> Made:
    """Make bags of a labelled table, and write them into a folder.

    Parameters
    ----------
    table : Path
        A .csv or .parquet file, one row an instance.
    label : str
        The column of the classes.
    folder : Path
        Where the files go.
    recipe : Recipe
    names : sequence of str
        Those of the columns of a .csv file that has no line of names, whatever its own is.
    keep_label : bool
        Whether the label is written with the rows: the last column.
    force : bool
        Whether to replace bags that are in the folder already.

    Raises
    ------
    DataError
        If the table cannot be read, or such bags cannot be made of it, or the folder is not free.
    """
    read = read_table(table, label, names=names, keep_label=keep_label)
    check_folder(folder, table, force=force)
    manifests = {}
    for number, (split, pool) in enumerate(_cut(read, recipe).items()):
        try:
            manifests[split] = _make(read, recipe, split, pool, recipe.seed + number)
        except BagError as error:
            raise DataError(f"{table}: {error}") from error
    rows_file = write_tables(folder, read, manifests)
    for split, manifest in manifests.items():
        manifest.save(folder / f"{split}.npz", force=True)  # the folder was found to be free
    return Made(table, label, folder, rows_file, keep_label, manifests)


def _cut(table: Table, recipe: Recipe) -> dict[str, Ints]:
    """Give the rows of each split, all of which have rows of every class."""
    n_rows = len(table.truth)
    try:
        held = rows_by_class(table.truth, None)
        parts = {"train": np.arange(n_rows)}
        if recipe.valid is not None:
            shares = (1 - recipe.valid, recipe.valid)
            cut = protocols.pools(n_rows, shares, seed=recipe.seed)
            parts = dict(zip(("train", "valid"), cut, strict=True))
    except BagError as error:
        raise DataError(f"{table.path}: {error}") from error
    if len(held) < 2:
        raise DataError(
            f"column {table.label!r} of {table.path} has 1 class, {next(iter(held))!r}.",
            "Name the column of the classes with --label: there must be two at least.",
        )
    for name, rows in held.items():
        for split, part in parts.items():
            if not np.isin(rows, part, assume_unique=True).any():
                raise DataError(
                    f"class {name!r} of {table.path} has {count(len(rows), 'row')}, of which the "
                    f"pool for {split}.npz got 0.",
                    "Merge it with another class, leave its rows out, or pass another --seed or "
                    "--valid.",
                )
    return parts


def _make(table: Table, recipe: Recipe, split: str, pool: Ints, seed: int) -> Manifest:
    n_bags = recipe.n_bags
    if n_bags is not None and recipe.valid is not None:
        # At least one for each, and otherwise as the rows are shared out.
        shares = [1 - recipe.valid, recipe.valid]
        n_valid = int(np.clip(counts_from_proportions(shares, n_bags)[1], 1, n_bags - 1))
        n_bags = n_valid if split == "valid" else n_bags - n_valid
    options: dict[str, Any] = {"size": recipe.size, "n_bags": n_bags, "alpha": recipe.alpha}
    options = {name: value for name, value in options.items() if value is not None}
    settings = {**options, "table": table.path.name, "label": table.label}
    if recipe.valid is not None:
        settings |= {"split": split, "valid": recipe.valid, "split_seed": recipe.seed}
    if recipe.protocol == "clusters":
        columns, numbers = table.numbers()
        settings["columns"] = columns
        members: Any = clusters(numbers, **options, rows=pool, seed=seed)
    elif recipe.protocol == "random":
        members = protocols.random(len(table.truth), **options, rows=pool, seed=seed)
    else:
        draw: Any = getattr(protocols, recipe.protocol)
        members = draw(table.truth, **options, rows=pool, seed=seed)
    return Manifest.from_members(
        members, table.truth, protocol=recipe.protocol, settings=settings, seed=seed
    )


def _describe(split: str, manifest: Manifest, start: int, most: int = 8) -> list[str]:
    summary = manifest.bags().describe()
    least, median, largest = summary.sizes
    size = f"{least:,}" if least == largest else f"{least:,} – {median:,g} – {largest:,}"
    shares = manifest.counts / np.diff(manifest.offsets)[:, None]
    spreads = [
        f"{name} {low:.2f} – {middle:.2f} – {high:.2f}"
        for name, low, middle, high in zip(
            manifest.classes,
            shares.min(axis=0),
            np.median(shares, axis=0),
            shares.max(axis=0),
            strict=True,
        )
    ]
    more = [f"… ({len(spreads) - most:,} more)"] if len(spreads) > most else []
    last = start + manifest.n_bags - 1
    unused = manifest.n_rows - len(np.unique(manifest.index))
    lines = [
        f"bags      {manifest.n_bags:,} ({start:,} to {last:,}) of {size} rows",
        f"rows      {summary.repeated_rows:,} stand in several of them, {unused:,} in none",
        f"redrawn   {manifest.redrawn:,} draws asked for more rows of a class than there are",
        f"shares    {' · '.join(spreads[:most] + more)} (least – median – most)",
        *summary.separability.split("\n"),
    ]
    return [split, *(f"  {line}" for line in lines)]
