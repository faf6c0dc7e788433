"""The verb `apportion predict`."""

from pathlib import Path
from typing import Annotated

import typer

from apportion.cli.options import image_size, listed

__all__ = ["predict"]


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    rows: Annotated[
        Path,
        typer.Argument(help="A table like the one that was learned from: bags are not needed."),
    ],
    out: Annotated[
        Path, typer.Option(help="A .csv or .parquet file, with a row for every row.")
    ] = Path("predictions.csv"),
    keep: Annotated[
        str | None, typer.Option(help="Columns of the rows to write as well: id,name say.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The column of the true classes, to tell the accuracy.")
    ] = None,
    proportions: Annotated[
        Path | None,
        typer.Option(
            help="Shares or counts of the classes by bag: labels are then the likeliest that meet "
            "them."
        ),
    ] = None,
    bag: Annotated[
        str | None,
        typer.Option(help="With --proportions: the column of the bags.", show_default="the run's"),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(help="The columns' names, if the file has no line of them."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="The folder of image files.", show_default="the run's"),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(help="Resize images to height x width.", show_default="the run's"),
    ] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Rescale --proportions to sum to 1 in every bag.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace --out.")] = False,
) -> None:
    """Give the class and the probabilities of every row by a trained model.

      apportion predict runs/a rows.csv --out predictions.parquet

    With a column of ids beside them, and the accuracy where the truth is known:

      apportion predict runs/a rows.csv --keep id --label income

    Where the proportions of bags are known, labels that meet them exactly:

      apportion predict runs/a rows.csv --proportions wards.csv

    The file has a column 'label' and a column 'probability_…' for every class;
    of images and signals, also their names.
    """
    from apportion.cli._predicting import Wanted, write_predictions

    wanted = Wanted(
        rows=str(rows),
        keep=listed(keep) or (),
        label=label,
        proportions=None if proportions is None else str(proportions),
        bag=bag,
        names=listed(names) or (),
        images=None if images is None else str(images),
        size=image_size(size),
        normalize=normalize,
    )
    typer.echo(write_predictions(run, wanted, out, device=device, force=force))
