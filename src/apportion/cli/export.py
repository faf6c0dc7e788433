"""The verb `apportion export`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["export"]


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    out: Annotated[Path, typer.Argument(help="The file: model.onnx, say.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Write a trained model as ONNX, with its normalisation.

      apportion export runs/a model.onnx

    It takes instances as they were stored, images as bytes say, and gives the
    probabilities of the classes. The names of the classes are in the file's
    metadata, and so is what becomes of a table's columns: 'columns' in JSON,
    and 'encoding', which says in words how to read it.

    The packages onnx and onnxscript are needed.
    """
    from apportion.errors import RunError
    from apportion.model.onnx import to_onnx
    from apportion.model.trained import read_trained

    if out.suffix.lower() != ".onnx":
        raise RunError(f"{out} is no .onnx by its name.", "Let it end in .onnx.")
    trained = read_trained(run)
    to_onnx(
        trained.model,
        out,
        parts=trained.parts,
        classes=trained.classes,
        columns=trained.columns,
        force=force,
    )
    size = out.stat().st_size
    typer.echo(f"Wrote {out}, {size / 2**20:.1f} MiB: {len(trained.classes)} classes.")
