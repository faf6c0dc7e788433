"""The command line: one function a verb, each with its imports inside, so that `--help` is quick.

Verbs with more to them are in modules of their own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from apportion import __version__
from apportion._doctor import doctor
from apportion.reproduce.command import reproduce

app = typer.Typer(
    help="Learning from Label Proportions: instance classifiers from the proportions of bags.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"apportion {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Take the options that come before a verb."""


@contextmanager
def _messages() -> Iterator[None]:
    """Turn an error of the library into its message and an exit code: the user can mend it."""
    from apportion.errors import ApportionError

    try:
        yield
    except ApportionError as error:
        typer.echo(f"apportion: {error}", err=True)
        raise typer.Exit(1) from error


def _with_messages(verb: Callable[..., None]) -> Callable[..., None]:
    @wraps(verb)
    def told(**options: Any) -> None:
        with _messages():
            verb(**options)

    return told


# -------------------------------------------------------------------------------------------- demo


@app.command()
def demo(
    seeds: Annotated[int, typer.Option(min=1, help="Draws of test digits, bags and network.")] = 3,
) -> None:
    """Train on bags of handwritten digits, and compare methods. Takes about a minute."""
    import logging

    from rich.console import Console

    from apportion.demo import show

    logging.getLogger("apportion").setLevel(logging.ERROR)
    console = Console(highlight=False)
    console.print("Training on the CPU. The first time, the label solver is compiled as well.")
    show(console, seeds)


# --------------------------------------------------------------------------------------------- bag


@app.command()
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
    """
    from apportion.data.bagging import Recipe, bag_table

    with _messages():
        recipe = Recipe(protocol, size, n_bags, alpha, valid, seed)
        typer.echo(bag_table(table, label, out, recipe, force=force))


# ------------------------------------------------------------------- verbs of modules of their own

app.command()(doctor)
app.command()(_with_messages(reproduce))
