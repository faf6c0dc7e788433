"""The verb `apportion bag`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.cli.options import listed, options_of, takes
from apportion.cli.source import Source
from apportion.cli.terminal import log_shown
from apportion.data.dialect import FORMAT, TableFormat

__all__ = ["bag"]


@takes(options_of(Source, "Format", FORMAT))
def bag(
    table: Annotated[
        Path,
        typer.Argument(help="A .csv, .tsv, .txt, .xlsx or .parquet file: one row per instance."),
    ],
    label: Annotated[str, typer.Option(help="The column of the classes.")],
    out: Annotated[Path, typer.Option(help="The folder to write the files into.")] = Path("bags"),
    protocol: Annotated[
        str, typer.Option(help="How: rand, dirichlet, shuffle or clusters.")
    ] = "rand",
    size: Annotated[
        int | None, typer.Option(min=1, help="Rows of a bag; of clusters, their mean.")
    ] = None,
    n_bags: Annotated[
        int | None, typer.Option(min=1, help="Bags in all; by default all rows fit in once.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="For dirichlet: the smaller, the more the bags differ.")
    ] = None,
    valid: Annotated[
        float | None, typer.Option(help="Share of the rows to make validation bags from.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides every draw.")] = 0,
    names: Annotated[
        str | None,
        typer.Option(help="Column names, for a file without a header row, e.g. age,job,income."),
    ] = None,
    keep_label: Annotated[
        bool,
        typer.Option("--keep-label", help="Also write the label, to measure accuracies."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the bags in --out.")] = False,
    **form: Any,
) -> None:
    """Make bags from a labelled table, to study what their proportions teach.

    Bags of 64 rows with random proportions:

      apportion bag rows.csv --label income --size 64 --out bags/

    With 30 % of the rows kept for validation bags, so that no row is in both:

      apportion bag rows.csv --label income --size 64 --valid 0.3

    Bags that differ more (--alpha 0.1) or less (--alpha 10):

      apportion bag rows.csv --label income --size 64 --protocol dirichlet --alpha 1

    Every row in one bag, at random or by 100 clusters:

      apportion bag rows.csv --label income --protocol shuffle --size 64

      apportion bag rows.csv --label income --protocol clusters --n-bags 100

    The folder --out receives the rows with their bag, without their label
    (rows.csv), the proportions (proportions.csv), and manifests, by whose
    checksums the bags can be cited (train.safetensors).

    A file without a header row, and the label kept for apportion train --label:

      apportion bag iris.data --names a,b,c,d,kind --label kind --size 10 --keep-label
    """
    from apportion.study.bagging import BagRecipe, bag_table

    recipe = BagRecipe(protocol, size, n_bags, alpha, valid, seed)
    options: dict[str, Any] = {"names": listed(names) or (), "form": TableFormat(**form)}
    with log_shown(notes_alone=True):
        made = bag_table(table, label, out, recipe, keep_label=keep_label, force=force, **options)
    typer.echo(made)
