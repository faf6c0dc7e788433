"""The verb `apportion predict`: predictions as a file, piece by piece, of tables of any size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.cli._rows import Piece, Wanted, pieces_of
from apportion.cli.options import listed, options_of, takes
from apportion.cli.source import PROPORTIONS_FORMAT, Source
from apportion.cli.terminal import log_shown
from apportion.data.dialect import FORMAT
from apportion.errors import ConfigError, DataError, count, suggestion
from apportion.files import check_free, replacing
from apportion.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from apportion.model.model import Model

__all__ = ["predict"]

FORMATS = (".csv", ".parquet")
SHARES = "Pass the share of each class once, as in yes=0.2,no=0.8."
# Options of the run's data that hold for what is predicted as well.
ALIKE = ("bag", "images", "file", "size", "follow_links", "signal", "order", "channels", "classes")
OWN = ("bag", "names", "images", "size", "follow_links", "normalize", "skip_unplaced")


@takes(
    options_of(Source, "Data", OWN, dict.fromkeys(("bag", "images", "size"), "the run's")),
    options_of(Source, "Format", (*FORMAT, *PROPORTIONS_FORMAT)),
)
def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or the file of a model.")],
    rows: Annotated[
        Path,
        typer.Argument(help="A table like the one that was learned from: bags are not needed."),
    ],
    out: Annotated[
        Path, typer.Option(help="A .csv or .parquet file, with one line per row.")
    ] = Path("predictions.csv"),
    copy: Annotated[
        str | None,
        typer.Option(help="Columns of the rows to write as well, for example id,name."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The column of the true classes, to tell the accuracy.")
    ] = None,
    proportions: Annotated[
        Path | None,
        typer.Option(
            help="Shares or counts of the classes by bag: labels are then the likeliest that meet "
            "them, and probabilities those given the counts."
        ),
    ] = None,
    prevalence: Annotated[
        str | None,
        typer.Option(
            help="Shares of the classes where the rows are from, if others than in training: "
            "yes=0.2,no=0.8."
        ),
    ] = None,
    last: Annotated[
        bool,
        typer.Option("--last", help="By the last checkpoint of the run, which may be unfinished."),
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace --out.")] = False,
    **options: Any,
) -> None:
    """Predict the class and the probabilities of every row by a trained model.

      apportion predict runs/a rows.csv --out predictions.parquet

    With a column of ids beside them, and the accuracy where the truth is known:

      apportion predict runs/a rows.csv --copy id --label income

    Where the proportions of bags are known, labels that meet them exactly, and
    probabilities given them:

      apportion predict runs/a rows.csv --proportions wards.csv

    The bags of a table may be more than those of the rows, and rows that are in
    none of them get their likeliest label with --skip-unplaced.

    For a population in which the classes are not as frequent as in training:

      apportion predict runs/a rows.csv --prevalence yes=0.2,no=0.8

    By the weights so far of a run that was stopped, or still goes on:

      apportion predict runs/a rows.csv --last

    The file has a column 'label' and a column 'probability_…' for every class;
    of images and signals, also their names.
    """
    from apportion.model.model import Model

    given = {"rows": str(rows), **Source.given(options)}
    normalize = given.pop("normalize", False)
    wanted = Wanted(str(rows), listed(copy) or (), label, proportions, normalize)
    _check_out(out, wanted, force=force)
    shares = _prevalence(prevalence, proportions)
    model = Model.load(run, last=last, device=device)
    source = _source_of(Run(run), given)
    with log_shown(notes_alone=True):
        told = _write_predictions(model, source, wanted, out, shares)
    typer.echo(f"{told} The weights are those after epoch {model.epoch}." if last else told)


def _prevalence(text: str | None, proportions: Path | None) -> dict[str, float] | None:
    """Read shares of classes, such as yes=0.2,no=0.8."""
    if text is None:
        return None
    if proportions is not None:
        raise ConfigError(
            "--prevalence is given as well as --proportions, which say more.",
            "Leave out one of the two.",
        )
    try:
        pairs = [pair.rpartition("=")[::2] for pair in text.split(",")]
        shares = {name.strip(): float(share) for name, share in pairs}
    except ValueError:
        raise ConfigError(f"--prevalence {text} has a share that is no number.", SHARES) from None
    if len(shares) < len(pairs):
        raise ConfigError(f"--prevalence {text} has a class more than once.", SHARES)
    return shares


def _write_predictions(
    model: Model, source: Source, wanted: Wanted, out: Path, prevalence: Any
) -> str:
    """Write the label and the probabilities of every row; return a sentence about them."""
    import numpy as np
    import pandas as pd

    from apportion.bags.names import class_array

    classes, correct, n_known, n_rows = class_array(model.classes), 0, 0, 0
    names = [f"probability_{name}" for name in model.classes]
    with _written(out) as write:
        for piece in pieces_of(model, source, wanted):
            likely = model.predict_proba(piece.instances, prevalence=prevalence)
            labels, likely = _decided(likely, model, source, wanted, piece)
            if wanted.label is not None:
                truth = piece.frame[wanted.label].reset_index(drop=True)
                known = truth.notna().to_numpy()
                n_known += int(known.sum())
                correct += _count_right(model, labels[known], truth[known], wanted)
            n_rows += len(labels)
            found = pd.DataFrame(likely.astype(np.float32), columns=names)
            found.insert(0, "label", classes[labels])
            write(pd.concat([piece.kept.reset_index(drop=True), found], axis=1))
    told = f"Wrote {n_rows:,} predictions to {out}."
    if wanted.label is None:
        return told
    if not n_known:
        return f"{told} Accuracy: unknown, since column {wanted.label!r} is empty."
    over = f" of the {count(n_known, 'row')} with a label" if n_known < n_rows else ""
    return f"{told} Accuracy: {correct / n_known:.2%}{over}."


def _source_of(run: Run, given: dict[str, Any]) -> Source:
    """Return the files that are given, with columns that mean what they meant in training."""
    data = {} if run.folder.is_file() else run.settings().get("data")  # a model has its columns
    if data is None:
        raise DataError(
            f"{run.folder} was started in Python, from arrays, so that {run.config.name} does not "
            "say how files become what it learned from.",
            "Predict in Python: Model.load takes the folder.",
        )
    own = {name: data[name] for name in ALIKE if name in data}
    return Source.from_dict({**own, **given})


def _decided(
    likely: NDArray[Any], model: Model, source: Source, wanted: Wanted, piece: Piece
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the likeliest labels and the probabilities, given the counts where they are known."""
    labels: NDArray[Any] = likely.argmax(axis=1)  # of rows in no bag
    if wanted.proportions is None:
        return labels, likely
    from apportion.bags.names import Register
    from apportion.estimator.targets import in_known_bags, in_order
    from apportion.labels.assign import likeliest_labels
    from apportion.labels.posterior import posterior

    ids, table = piece.frame[source.bag], source.table(wanted.proportions)
    bags = in_known_bags(
        ids.astype(object).where(ids.notna(), None).tolist(),
        table,
        normalize=wanted.normalize,
        skip_unplaced=source.skip_unplaced,
    )  # without columns of totals
    places = Register(bags.classes).places(model.classes)  # 0 may stand as '0'
    if (places < 0).any() or len(places) < bags.n_classes:
        raise DataError(
            f"{wanted.proportions} has the classes {', '.join(map(str, bags.classes))}, but the "
            f"model {', '.join(map(str, model.classes))}.",
            "Pass a table with one column for each class of the model, and no others but totals.",
        )
    bags, found = in_order(bags, model.classes), likely.copy()
    own = likely[bags.index]
    labels[bags.index], found[bags.index] = likeliest_labels(own, bags), posterior(own, bags)
    return labels, found


def _count_right(model: Model, labels: NDArray[Any], truth: pd.Series[Any], wanted: Wanted) -> int:
    from apportion.bags.names import Register

    register, texts = Register(model.classes), truth.astype(str).str.strip()
    places = {text: register.place(text) for text in texts.unique()}
    strange = [text for text, place in places.items() if place is None]
    if strange:
        raise DataError(
            f"column {wanted.label!r} of {wanted.rows} has {strange[0]!r}, which is none of the "
            "classes.",
            suggestion(strange[0], map(str, model.classes)),
            "Pass the column of the true classes, called as in training.",
        )
    return int((texts.map(places) == labels).sum())


# ----------------------------------------------------------------------------------- the file


def _check_out(out: Path, wanted: Wanted, *, force: bool) -> None:
    """Check what can be checked before anything is computed."""
    if out.suffix.lower() not in FORMATS:
        raise DataError(
            f"--out {out} is neither .csv nor .parquet by its name.", "It must end in one of them."
        )
    check_free(out, force=force)
    if not out.parent.is_dir():
        raise DataError(f"--out {out} is in a folder that does not exist.", "Make the folder.")
    for what, path in (("rows", wanted.rows), ("proportions", wanted.proportions)):
        if path is not None and os.path.realpath(path) == os.path.realpath(out):
            raise DataError(f"--out {out} would replace the {what} themselves.", "Pass another.")
    for name in wanted.copy:
        if name == "label" or name.startswith("probability_"):
            raise DataError(
                f"--copy {name} has the name of a column of predictions.",
                "Rename the column, or leave it out.",
            )


@contextmanager
def _written(out: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Write frames one after the other; the file is there whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None

    def to_csv(frame: pd.DataFrame) -> None:
        frame.to_csv(beside, mode="a", header=not beside.exists(), index=False)

    def to_parquet(frame: pd.DataFrame) -> None:
        nonlocal writer
        table = pa.Table.from_pandas(frame, preserve_index=False)
        if writer is None:
            writer = pq.ParquetWriter(beside, table.schema)
        writer.write_table(table)

    with replacing(out) as beside:
        yield to_csv if out.suffix.lower() == ".csv" else to_parquet
        if writer is not None:
            writer.close()
