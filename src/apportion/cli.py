"""The command line: one function a verb, each with its imports inside, so that `--help` is quick.

Verbs with more to them are in modules of their own.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from apportion import __version__
from apportion._doctor import doctor
from apportion.commands.check import check
from apportion.commands.export import export
from apportion.commands.options import listed
from apportion.commands.predict import predict
from apportion.commands.train import train
from apportion.report.command import report
from apportion.reproduce.command import reproduce

MISTAKE, INTERRUPTED = 70, 130  # exit codes


class Verbs(TyperGroup):
    """Turns errors into messages and exit codes; with --debug they pass as they are."""

    def invoke(self, context: Any) -> Any:
        """Do what a verb does."""
        from apportion.errors import ApportionError

        try:
            with _plain_warnings():
                return super().invoke(context)
        except KeyboardInterrupt:
            typer.echo("\napportion: stopped.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            of_the_parser = hasattr(error, "exit_code") or isinstance(error, typer.Abort)
            # A pipe that is closed, as by head, is the parser's to deal with as well.
            if of_the_parser or isinstance(error, BrokenPipeError) or context.params.get("debug"):
                raise
            if isinstance(error, ApportionError):
                typer.echo(f"apportion: {_with_flags(str(error))}", err=True)
                raise typer.Exit(1) from error
            typer.echo(
                f"apportion: {type(error).__name__}: {error}\n"
                "  This is a mistake in apportion, or in what it was given and did not notice.\n"
                f"  `apportion --debug {' '.join(sys.argv[1:])}` shows where it arose.",
                err=True,
            )
            raise typer.Exit(MISTAKE) from error


# What errors of the library advise, as it is said here.
FLAGS = {
    "force=True (--force)": "--force",
    "force=True": "--force",
    "counts=True": "--counts",
    "normalize=True": "--normalize",
    "size=(height, width)": "--size",
}


def _with_flags(message: str) -> str:
    for argument, flag in FLAGS.items():
        message = message.replace(argument, flag)
    return message


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show warnings as what they say, without the line of code that they come from."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        typer.echo(f"apportion: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


app = typer.Typer(
    cls=Verbs,
    help="""Learning from Label Proportions: instance classifiers from the proportions of bags.

    From files to a model, predictions and a report:

      apportion check   rows.csv --bag ward --proportions wards.csv

      apportion train   rows.csv --bag ward --proportions wards.csv --out runs/a

      apportion predict runs/a rows.csv --out predictions.csv

      apportion report  runs/a

    Exit codes: 0 done; 1 something in files or options is to be mended, and
    the message says what; 2 a command that is not understood; 70 a mistake in
    apportion; 130 stopped by Ctrl-C.
    """,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"apportion {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where in the code an error arose.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Take the options that come before a verb."""


# -------------------------------------------------------------------------------------------- demo


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="The folder for the runs of the first draw and the report.")
    ] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Draws of test digits, bags and network.")] = 3,
    force: Annotated[bool, typer.Option("--force", help="Replace what is in --out.")] = False,
) -> None:
    """Train on bags of handwritten digits, compare methods, and write a report.

    It takes about a minute on a CPU. The table compares four methods over three
    draws; the report, an HTML file, shows two of them side by side.
    """
    import logging

    from rich.console import Console

    from apportion.demo import clear, show

    clear(out, force=force)
    logging.getLogger("apportion").setLevel(logging.ERROR)
    console = Console(highlight=False)
    console.print("Training on the CPU. The first time, the label solver is compiled as well.")
    show(console, out, seeds)


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
    from apportion.data.bagging import Recipe, bag_table

    recipe = Recipe(protocol, size, n_bags, alpha, valid, seed)
    own_names = listed(names) or ()
    made = bag_table(table, label, out, recipe, names=own_names, keep_label=keep_label, force=force)
    typer.echo(made)


# ------------------------------------------------------------------- verbs of modules of their own

for verb in (check, train, predict, report, export, reproduce, doctor):
    app.command()(verb)
