"""The verb `apportion export`."""

from pathlib import Path
from typing import Annotated

import typer

from apportion.errors import ConfigError

__all__ = ["export"]


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run, or a model file.")],
    out: Annotated[Path, typer.Argument(help="The file to write, for example model.onnx.")],
    last: Annotated[
        bool,
        typer.Option("--last", help="By the last checkpoint of the run, which may be unfinished."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Write a trained model as ONNX, with its normalisation.

      apportion export runs/a model.onnx

    It takes instances as they were stored, for example images as bytes, and
    returns the probabilities of the classes. The names of the classes are in
    the file's metadata, and so is what becomes of a table's columns: 'columns'
    in JSON, and 'encoding', which says in words how to read it.

    The packages onnx and onnxscript are needed.
    """
    from apportion.model.model import Model

    if out.suffix.lower() != ".onnx":
        raise ConfigError(f"{out} does not end in .onnx.", "Pass a file name that ends in .onnx.")
    model = Model.load(run, last=last)
    model.to_onnx(out, force=force)
    size = out.stat().st_size / 2**20
    typer.echo(f"Wrote {out}, {size:.1f} MiB: {len(model.classes)} classes.")
