"""The command line: all verbs, and how errors are shown.

Every verb has its imports inside, so that `--help` is quick.
"""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from apportion import __version__
from apportion.cli.bag import bag
from apportion.cli.check import check
from apportion.cli.demo import demo
from apportion.cli.doctor import doctor
from apportion.cli.export import export
from apportion.cli.predict import predict
from apportion.cli.pretrain import pretrain
from apportion.cli.report import report
from apportion.cli.reproduce import reproduce
from apportion.cli.terminal import INTERRUPTED, interruptions_noted
from apportion.cli.train import train
from apportion.engine.distributed import is_first, is_one_of_many, speaks_for_all

MISTAKE = 70  # the exit code of an error in apportion itself


class Verbs(TyperGroup):
    """Turns errors into messages and exit codes; with --debug they are raised as they are."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read what comes before the verb."""
        with _refused_once():
            return super().make_context(*arguments, **options)

    def invoke(self, context: Any) -> Any:
        """Run a verb."""
        from apportion.errors import ApportionError

        interruptions: list[int] = []
        try:
            with _plain_warnings(), interruptions_noted(interruptions), _refused_once():
                return super().invoke(context)
        except KeyboardInterrupt as stop:
            if speaks_for_all(stop):
                typer.echo("\napportion: stopped.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if interruptions and not isinstance(error, ApportionError | typer.Exit):
                # Compiled code may turn Ctrl-C into another error.
                if speaks_for_all(error):
                    typer.echo("\napportion: stopped.", err=True)
                raise typer.Exit(INTERRUPTED) from None
            of_the_parser = hasattr(error, "exit_code") or isinstance(error, typer.Abort)
            # The parser also handles a pipe that is closed, for example by head.
            if of_the_parser or isinstance(error, BrokenPipeError) or context.params.get("debug"):
                raise
            if not speaks_for_all(error):
                raise typer.Exit(1) from error
            if isinstance(error, ApportionError):
                message = error.worded(lambda option: option.flag)
                typer.echo(f"apportion: {message}", err=True)
                raise typer.Exit(1) from error
            typer.echo(
                f"apportion: {type(error).__name__}: {error}\n"
                "  This is an error in apportion, or in input that it failed to check.\n"
                f"  `apportion --debug {' '.join(sys.argv[1:])}` shows where it arose.",
                err=True,
            )
            raise typer.Exit(MISTAKE) from error


@contextmanager
def _refused_once() -> Iterator[None]:
    """Show in one of several processes alone which option the parser refuses."""
    try:
        yield
    except Exception as error:
        code = getattr(error, "exit_code", 0)
        if isinstance(error, typer.Exit) or not code or speaks_for_all(error):
            raise
        raise typer.Exit(code) from error


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show the message of warnings, without the line of code that they come from.

    Of several processes the first alone shows them.
    """

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if is_first():
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

    Exit codes: 0 done; 1 error in your files or options, and the message says
    what to change; 2 unknown command or option; 70 error in apportion itself;
    130 stopped by Ctrl-C.
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
    context: typer.Context,
    debug: Annotated[  # noqa: ARG001 (`Verbs.invoke` reads it)
        bool, typer.Option("--debug", help="Show where in the code an error arose.")
    ] = False,
    version: Annotated[  # noqa: ARG001 (it shows itself)
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Take the options that come before a verb."""
    verb = context.invoked_subcommand
    if verb not in (None, "train") and is_one_of_many():
        from apportion.errors import ConfigError

        raise ConfigError(
            f"{verb} works in one process, but WORLD_SIZE is {os.environ['WORLD_SIZE']}, as where "
            "torchrun has started several.",
            "Start it without torchrun, or remove that variable.",
        )


for verb in (demo, bag, check, pretrain, train, predict, report, export, reproduce, doctor):
    app.command()(verb)
