"""The verb `apportion check`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.cli.options import takes
from apportion.cli.source import Source
from apportion.cli.terminal import log_kept

__all__ = ["check"]

MOST_SHOWN = 5  # bags


@takes(Source.flags())
def check(
    rows: Annotated[
        Path,
        typer.Argument(help="A .csv, .tsv, .txt, .xlsx or .parquet file: one row per instance."),
    ],
    **options: Any,
) -> None:
    """Look at bags before any training: what is in them, and what is wrong.

    Rows with a column 'ward', and a table with one row per ward and one column per class:

      apportion check rows.csv --bag ward --proportions wards.csv

    Image files, and signals with one row per frame:

      apportion check files.csv --images slides/ --proportions patients.csv

      apportion check frames.csv --signal word --proportions speakers.csv

    Separators, decimal commas, encodings, percentages and dates are recognised.
    It says how files were read, how large the bags are, what rounding their proportions to whole
    counts moves, which columns will be learned from, whether the classes can
    be told apart at all, and what apportion train will use by default and why.
    Errors are reported, with the exit code 1.

    The table of proportions may also have one row per bag and class: columns of
    the bag, the class and the number; a class without a row is 0.
    """
    from apportion.bags.describe import WARNING
    from apportion.plan.held_out import held_out_share, share_reported
    from apportion.plan.methods import AUTO, default_method
    from apportion.plan.plan import make_plan

    source = Source(str(rows), **Source.given(options))
    with log_kept() as kept:
        sets, source, held_out = source.read(None, 0.0, 0)  # all bags, but for a column 'split'
    doubts = kept.warnings
    typer.echo(f"{rows}: {_kind(source.kind, sets)}\n")
    if kept.notes:
        typer.echo("\n".join(f"- {note}" for note in kept.notes) + "\n")
    warned = False
    for name, bags in sets.items():
        if len(sets) > 1:
            typer.echo(f"-- {name}")
        summary = bags.describe()
        warned |= summary.separability.startswith(WARNING)
        typer.echo(f"{summary}\nrounding most  {_moved(bags)}\n")
    train = sets["train"]
    if train.columns is not None:
        typer.echo(f"learned from   {_columns(train.columns)}\n")
    if source.channels:
        typer.echo(f"learned from   {', '.join(source.channels)}\n")
    method = default_method(source.kind, [])
    whole = held_out.value is not None  # no column says what is held out
    if method.value == AUTO:
        from apportion.auto.members import plan_table

        plan: Any = plan_table(train, method, share_reported(None) if whole else held_out)
    else:
        held_out = held_out_share(train.n_bags) if whole else held_out
        plan = make_plan(train, validation=held_out, method=method)
    typer.echo(f"By default apportion train uses\n{plan}")
    doubts += _doubts(train)
    for doubt in doubts:
        typer.echo(f"\nWarning: {doubt}")
    verdict = "Apart from these warnings, nothing" if doubts or warned else "Nothing"
    if doubts:
        verdict = f"--exclude leaves columns out. {verdict}"
    typer.echo(f"\n{verdict} is wrong with the files. Next: apportion train, with these options.")


def _doubts(bags: Any) -> Iterator[str]:
    """Yield warnings of classes that are probably none."""
    import numpy as np

    if bags.n_classes > 2 and bags.n_bags > 2:
        half = np.abs(bags.proportions - 0.5).max(axis=0) < 1e-6
        for name, always in zip(bags.classes, half, strict=True):
            if always:
                yield (
                    f"class {name!r} is half of every bag, as a column of totals would be.\n"
                    "If it is one, name the others with --classes."
                )


def _kind(kind: str, sets: dict[str, Any]) -> str:
    first = sets["train"].parts[0]
    bags = ", ".join(f"{b.n_bags:,} {name}" for name, b in sets.items())
    if kind == "table":
        return f"{len(first):,} rows of a table; bags: {bags}"
    if kind == "images":
        channels, height, width = first.shape[1:]
        return f"{len(first):,} images of {height} × {width}, {channels} channels; bags: {bags}"
    most = max(bags.parts[1].max() for bags in sets.values())  # a set has frames of its own length
    return (
        f"{len(first):,} signals of {sets['train'].parts[1].min():,} to {most:,} frames, "
        f"{first.shape[1]} channels; bags: {bags}"
    )


def _moved(bags: Any) -> str:
    """Return the bags whose counts differ most from what was given, and by how many instances."""
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
