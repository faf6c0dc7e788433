"""The verb `apportion check`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.cli.options import (
    BagOption,
    ClassesOption,
    CountsOption,
    ExcludeOption,
    FileOption,
    ImagesOption,
    LabelOption,
    NamesOption,
    NormalizeOption,
    OrderOption,
    ProportionsOption,
    SignalOption,
    SizeOption,
    given_source,
)

__all__ = ["check"]

MOST_SHOWN = 5  # bags


def check(
    rows: Annotated[
        Path, typer.Argument(help="A .csv, .csv.gz or .parquet file: one row an instance.")
    ],
    bag: BagOption = None,
    proportions: ProportionsOption = None,
    classes: ClassesOption = None,
    counts: CountsOption = False,
    normalize: NormalizeOption = False,
    label: LabelOption = None,
    exclude: ExcludeOption = None,
    names: NamesOption = None,
    images: ImagesOption = None,
    file: FileOption = None,
    size: SizeOption = None,
    signal: SignalOption = None,
    order: OrderOption = None,
) -> None:
    """Look at bags before any training: what is in them, and what is wrong.

    Rows with a column 'ward', and a table with a row a ward and a column a class:

      apportion check rows.csv --bag ward --proportions wards.csv

    Image files, and signals with a row a frame:

      apportion check files.csv --images slides/ --proportions patients.csv

      apportion check frames.csv --signal word --proportions speakers.csv

    It says how large the bags are, what rounding their proportions to whole
    counts moves, which columns will be learned from, and whether the classes
    can be told apart at all. Mistakes are named, with the exit code 1.

    The table of proportions may also have a row a bag and class: columns of
    the bag, the class and the number, for a class with none no row.
    """
    from apportion.cli.source import Source

    source = Source(
        **given_source(
            rows=rows,
            bag=bag,
            proportions=proportions,
            classes=classes,
            counts=counts,
            normalize=normalize,
            label=label,
            exclude=exclude,
            names=names,
            images=images,
            file=file,
            size=size,
            signal=signal,
            order=order,
        )
    )
    bags, columns = source.read()
    splits = source.split(bags)
    typer.echo(f"{rows}: {_kind(source.kind, bags)}\n")
    typer.echo(str(bags.describe()))
    typer.echo(f"\nrounding most  {_moved(bags)}")
    if columns is not None:
        typer.echo(f"learned from   {_columns(columns)}")
    if source.kind == "signals":
        typer.echo(f"learned from   {', '.join(source.channels_in(source.table()))}")
    if splits:
        typer.echo("split          " + " · ".join(f"{n} {b.n_bags:,}" for n, b in splits.items()))
    doubts = list(_doubts(bags, columns))
    for doubt in doubts:
        typer.echo(f"\nWarning: {doubt}")
    verdict = "These columns aside, nothing" if doubts else "Nothing"
    typer.echo(f"\n{verdict} is wrong with the files. Next: apportion train, with these options.")


def _doubts(bags: Any, columns: Any) -> Iterator[str]:
    """What can be learned from, but hardly should be."""
    import numpy as np

    for name, left_out in ({} if columns is None else columns.left_out).items():
        n = len(columns.categories[name]) + left_out
        yield (
            f"column {name!r} has {n:,} different texts in {bags.n_rows:,} rows, of which the "
            f"{n - left_out} most frequent are kept.\nIf these are names, ids or dates: --exclude "
            f"{name}"
        )
    if bags.n_classes > 2 and bags.n_bags > 2:
        half = np.abs(bags.proportions - 0.5).max(axis=0) < 1e-6
        for name, always in zip(bags.classes, half, strict=True):
            if always:
                yield (
                    f"class {name!r} is half of every bag, as a column of totals would be.\n"
                    "If it is one, name the others with --classes."
                )


def _kind(kind: str, bags: Any) -> str:
    if kind == "table":
        return f"{bags.n_rows:,} rows of a table"
    first = bags.parts[0]
    if kind == "images":
        channels, height, width = first.shape[1:]
        return f"{len(first):,} images of {height} × {width}, {channels} channels"
    lengths = bags.x[1]
    return (
        f"{len(first):,} signals of {lengths.min():,} to {lengths.max():,} frames, "
        f"{first.shape[1]} channels"
    )


def _moved(bags: Any) -> str:
    """The bags whose counts differ most from what was given, each with how many instances."""
    import numpy as np

    moved = np.abs(bags.counts - bags.sizes[:, None] * bags.proportions).sum(axis=1) / 2
    most = np.argsort(-moved, kind="stable")[:MOST_SHOWN]
    named = [
        f"{bags.ids[i]!r} {moved[i]:.2g} of {bags.sizes[i]:,}" for i in most if moved[i] > 1e-6
    ]
    return " · ".join(named) or "none: all proportions are whole counts"


def _columns(columns: Any) -> str:
    text = repr(columns).removeprefix("Columns(").removesuffix(")")
    return text.replace("; ", "\n               ")
