"""Make bags from a labelled table, as files: what `apportion bag` does.

One folder receives

    rows.csv, or rows.parquet   the rows of the bags, bag after bag: a column `bag`, and all columns
                                of the table but the label, unless it is to be kept
    proportions.csv             one row per bag: a column `bag`, one column per class, and a column
                                `split` (train or valid) if rows were held out
    train.safetensors           the manifest of the training bags, whose rows are those of the table
    valid.safetensors           that of the validation bags, if rows were held out

Bags are numbered through: the first for validation has the number that follows the last for
training. In their manifests both begin with 0.

The same bags come from Python: ``pools(n, (1 - valid, valid), seed=seed)`` cuts the rows, the
protocol makes bags from the first pool with `seed`, and from the second with ``seed + 1``.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apportion.bags.counts import counts_from_proportions
from apportion.data.dialect import PLAIN, TableFormat
from apportion.errors import BagError, ConfigError, DataError, Option, count, listing, suggestion
from apportion.study import protocols
from apportion.study._pool import Ints, rows_by_class
from apportion.study._table_files import LabelledTable, check_folder, read_labelled, write_tables
from apportion.study.clusters import clusters
from apportion.study.manifests import Manifest

__all__ = ["PROTOCOLS", "BagRecipe", "BaggedTable", "bag_table"]

PROTOCOLS = ("rand", "dirichlet", "shuffle", "clusters")


@dataclass(frozen=True)
class BagRecipe:
    """How bags are to be made: a protocol of `apportion.study.protocols`, and its options.

    Examples
    --------
    >>> BagRecipe("dirichlet", size=64)
    Traceback (most recent call last):
    apportion.errors.ConfigError: the protocol dirichlet needs alpha.
      Pass alpha=1 for a start, less for bags that differ more.
    """

    protocol: str = "rand"
    size: int | None = None
    n_bags: int | None = None  # of both splits together
    alpha: float | None = None
    valid: float | None = None  # the share of the rows that is held out before bags are made
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that the options go together."""
        chosen = f"the protocol {self.protocol}"
        problem: Any
        remedy: Any
        if self.protocol not in PROTOCOLS:
            problem = f"there is no protocol {self.protocol!r}."
            remedy = suggestion(self.protocol, PROTOCOLS)
        elif self.protocol == "dirichlet" and self.alpha is None:
            problem = f"{chosen} needs alpha."
            remedy = "Pass ", _option("alpha", 1), " for a start, less for bags that differ more."
        elif self.protocol != "dirichlet" and self.alpha is not None:
            problem = f"{chosen} takes no ", _option("alpha", self.alpha), "."
            remedy = "Leave it out, or pass ", _option("protocol", "dirichlet"), "."
        elif self.protocol == "clusters" and (self.size is None) == (self.n_bags is None):
            given = "neither" if self.size is None else "both"
            problem = f"{chosen} takes a size or a number of bags; got {given}."
            remedy = "Pass ", _option("size", 64), " on average, or ", _option("n_bags", 100), "."
        elif self.protocol != "clusters" and self.size is None:
            problem = f"{chosen} needs a size."
            remedy = "Pass the number of rows of each bag, for example ", _option("size", 64), "."
        elif self.protocol == "shuffle" and self.n_bags is not None:
            problem = f"{chosen} takes no ", _option("n_bags", self.n_bags), "."
            remedy = "It puts every row into one bag: the size alone decides how many there are."
        elif self.valid is not None and not 0 < self.valid < 1:
            problem = f"valid must be between 0 and 1; got {self.valid:g}."
            remedy = "Pass a share of the rows."
        elif self.valid is not None and self.n_bags == 1:
            problem = _option("valid", self.valid), " needs a bag of its own; there is 1 in all."
            remedy = "Pass at least ", _option("n_bags", 2), ", or leave valid out."
        else:
            return
        raise ConfigError(problem, remedy)

    @property
    def splits(self) -> dict[str, float]:
        """The share of the rows of each split."""
        held = {} if self.valid is None else {"valid": self.valid}
        return {"train": 1 - sum(held.values()), **held}


def _option(name: str, value: object) -> Option:
    return Option(name, repr(value), str(value))


@dataclass(frozen=True)
class BaggedTable:
    """What `bag_table` made; printed, it is a summary."""

    table: LabelledTable
    folder: Path
    manifests: dict[str, Manifest]

    def __str__(self) -> str:
        table, made = self.table, self.manifests.values()
        n_rows, n_classes = count(len(table.truth), "row"), len(next(iter(made)).classes)
        lines = [f"{table.path}: {n_rows}, {n_classes:,} classes in column {table.label!r}.", ""]
        start = 0
        for split, manifest in self.manifests.items():
            lines += [*_describe(split, manifest, start), ""]
            start += manifest.n_bags
        kept, held = table.label in table.written, sum(len(manifest.index) for manifest in made)
        names = {
            table.rows_file: f"{count(held, 'row')} with their bag, "
            f"{'and' if kept else 'without'} {table.label!r}",
            "proportions.csv": f"{start:,} bags, one column per class",
        } | {
            f"{split}.safetensors": f"manifest of {manifest.n_bags:,} bags, SHA-256 "
            f"{manifest.sha256[:16]}…"
            for split, manifest in self.manifests.items()
        }
        width = max(map(len, names)) + 2
        lines += [f"{self.folder}:", *(f"  {name:<{width}}{what}" for name, what in names.items())]
        given = f"{self.folder / table.rows_file} --proportions {self.folder / 'proportions.csv'}"
        given += f" --label {shlex.quote(table.label)}" if kept else ""
        lines += ["", "Next, look at the bags, and learn from them:"]
        lines += [f"  apportion check {given}", f"  apportion train {given} --out runs/a"]
        return "\n".join(lines)


def bag_table(
    table: Path,
    label: str,
    folder: Path,
    recipe: BagRecipe,
    *,
    names: Sequence[str] = (),
    keep_label: bool = False,
    force: bool = False,
    form: TableFormat = PLAIN,
) -> BaggedTable:
    """Make bags from a labelled table, and write them into a folder.

    Parameters
    ----------
    table : Path
        A text, Excel or Parquet file, one row per instance.
    label : str
        The column of the classes.
    folder : Path
        Where the files go.
    recipe : BagRecipe
    names : sequence of str
        Names of the columns, for a file of comma-separated values without a header row; its name
        may have any ending.
    keep_label : bool
        Whether the label is written with the rows: the last column.
    force : bool
        Whether to replace bags that are in the folder already.
    form : TableFormat
        What is known of the format of the table.

    Raises
    ------
    DataError
        If the table cannot be read, or the folder is not free.
    BagError
        If such bags cannot be made from the table.
    """
    read = read_labelled(table, label, names=names, keep_label=keep_label, form=form)
    check_folder(folder, table, force=force)
    manifests = {}
    try:
        for number, (split, pool) in enumerate(_cut(read, recipe).items()):
            manifests[split] = _make(read, recipe, split, pool, recipe.seed + number)
    except BagError as error:
        error.about(str(table))
        raise
    write_tables(folder, read, manifests)
    for split, manifest in manifests.items():  # the folder was found to be free
        manifest.save(folder / f"{split}.safetensors", force=True)
    return BaggedTable(read, folder, manifests)


def _cut(table: LabelledTable, recipe: BagRecipe) -> dict[str, Ints]:
    """Return the rows of each split, and check that each has rows of every class."""
    held = rows_by_class(table.truth, None)
    if len(held) < 2:
        raise DataError(
            f"column {table.label!r} of {table.path} has 1 class, {next(iter(held))!r}.",
            "Choose the column of the classes: there must be at least two.",
        )
    shares = list(recipe.splits.values())
    cut = protocols.pools(len(table.truth), shares, seed=recipe.seed)
    parts = dict(zip(recipe.splits, cut, strict=True))
    for name, rows in held.items():
        for split, part in parts.items():
            if not np.isin(rows, part, assume_unique=True).any():
                raise DataError(
                    f"class {name!r} of {table.path} has {count(len(rows), 'row')}, of which the "
                    f"pool of {split}.safetensors got 0.",
                    "Merge it with another class, leave its rows out, or change the seed or the "
                    "share of validation rows.",
                )
    return parts


def _make(table: LabelledTable, recipe: BagRecipe, split: str, pool: Ints, seed: int) -> Manifest:
    n_bags = recipe.n_bags
    if n_bags is not None and recipe.valid is not None:
        # At least one for each split, and otherwise in the proportion of their rows.
        _, n_valid = counts_from_proportions(list(recipe.splits.values()), n_bags)
        n_valid = int(np.clip(n_valid, 1, n_bags - 1))
        n_bags = n_valid if split == "valid" else n_bags - n_valid
    given = {"size": recipe.size, "n_bags": n_bags, "alpha": recipe.alpha}
    options: Any = {name: value for name, value in given.items() if value is not None}
    settings = {**options, "table": table.path.name, "label": table.label}
    if recipe.valid is not None:
        settings |= {"split": split, "valid": recipe.valid, "split_seed": recipe.seed}
    if recipe.protocol == "clusters":
        columns, numbers = table.numbers()
        settings["columns"] = columns
        members: Any = clusters(numbers, **options, rows=pool, seed=seed)
    elif recipe.protocol == "shuffle":
        members = protocols.shuffle(len(table.truth), **options, rows=pool, seed=seed)
    else:
        draw: Any = getattr(protocols, recipe.protocol)
        members = draw(table.truth, **options, rows=pool, seed=seed)
    return Manifest.from_members(
        members, table.truth, protocol=recipe.protocol, settings=settings, seed=seed
    )


def _describe(split: str, manifest: Manifest, start: int) -> list[str]:
    summary = manifest.bags().describe()
    least, median, largest = summary.sizes
    size = f"{least:,}" if least == largest else f"{least:,} – {median:,g} – {largest:,}"
    shares = manifest.counts / np.diff(manifest.offsets)[:, None]
    spreads = [
        f"{name} {own.min():.2f} – {np.median(own):.2f} – {own.max():.2f}"
        for name, own in zip(manifest.classes, shares.T, strict=True)
    ]
    last = start + manifest.n_bags - 1
    unused = manifest.n_rows - len(np.unique(manifest.index))
    lines = [
        f"bags      {manifest.n_bags:,} ({start:,} to {last:,}) of {size} rows",
        f"rows      {summary.repeated_rows:,} in several of them, {unused:,} in none",
        f"redrawn   {manifest.redrawn:,} draws asked for more rows of a class than there are",
        f"shares    {listing(spreads, ' · ')} (least – median – most)",
        *summary.separability.split("\n"),
    ]
    return [split, *(f"  {line}" for line in lines)]
