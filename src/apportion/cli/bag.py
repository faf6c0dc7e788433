"""The verb `apportion bag`."""

from pathlib import Path
from typing import Annotated

import typer

from apportion.cli.options import listed

__all__ = ["bag"]


def bag(
    table: Annotated[Path, typer.Argument(help="A .csv or .parquet file: one row an instance.")],
    label: Annotated[str, typer.Option(help="The column of the classes.")],
    out: Annotated[Path, typer.Option(help="The folder that the files go into.")] = Path("bags"),
    protocol: Annotated[
        str, typer.Option(help="How: rand, dirichlet, random or clusters.")
    ] = "rand",
    size: Annotated[
        int | None, typer.Option(min=1, help="Rows of a bag; of clusters, their mean.")
    ] = None,
    n_bags: Annotated[
        int | None, typer.Option(min=1, help="Bags in all; by default all rows fit in once.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="For dirichlet: the smaller, the more bags differ.")
    ] = None,
    valid: Annotated[
        float | None, typer.Option(help="Share of the rows, of which validation bags are made.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides every draw.")] = 0,
    names: Annotated[
        str | None,
        typer.Option(help="The columns' names, if the file has no line of them: age,job,… say."),
    ] = None,
    keep_label: Annotated[
        bool,
        typer.Option("--keep-label", help="Write the label as well, to measure accuracies with."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the bags in --out.")] = False,
) -> None:
    """Make bags of a labelled table, to study what their proportions teach.

    Bags of 64 rows, whose proportions are random:

      apportion bag rows.csv --label income --size 64 --out bags/

    Three rows of ten kept for validation bags, so that no row is in both:

      apportion bag rows.csv --label income --size 64 --valid 0.3

    Bags that differ more (say --alpha 0.1) or less (say --alpha 10):

      apportion bag rows.csv --label income --size 64 --protocol dirichlet --alpha 1

    All rows dealt out at random, or a bag for each of 100 clusters:

      apportion bag rows.csv --label income --protocol random --size 64

      apportion bag rows.csv --label income --protocol clusters --n-bags 100

    Into --out go the rows with their bag, without their label (rows.csv), the
    proportions (proportions.csv), and manifests to cite the bags by (train.npz).

    A file without a line of names, and the label kept for apportion train --label:

      apportion bag iris.data --names a,b,c,d,kind --label kind --size 10 --keep-label
    """
    from apportion.study.bagging import Recipe, bag_table

    recipe = Recipe(protocol, size, n_bags, alpha, valid, seed)
    own_names = listed(names) or ()
    made = bag_table(table, label, out, recipe, names=own_names, keep_label=keep_label, force=force)
    typer.echo(made)
