"""Predictions as a file: piece by piece, so that tables may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import repeat
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from apportion.cli.source import Source
from apportion.data._named_bags import name_bags
from apportion.data._pieces import Pieces
from apportion.data.images import read_images
from apportion.data.signals import read_signals
from apportion.errors import DataError, RunError, suggestion
from apportion.estimator.classifier import LLPClassifier
from apportion.files import check_free, replacing
from apportion.runs.run import Run

__all__ = ["Wanted", "write_predictions"]

FORMATS = (".csv", ".parquet")
ALL = "all of them, in one bag"  # a column for readers that want bags where none are needed


@dataclass(frozen=True)
class Wanted:
    """What is to be predicted, and what is to be written beside it."""

    rows: str
    keep: tuple[str, ...] = ()  # columns
    label: str | None = None
    proportions: str | None = None
    bag: str | None = None
    names: tuple[str, ...] = ()
    images: str | None = None
    size: tuple[int, int] | None = None
    normalize: bool = False  # the proportions


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows."""

    frame: pd.DataFrame  # their columns
    kept: pd.DataFrame  # those to be written again, as they were
    instances: Any


def write_predictions(
    run: str | PathLike[str], wanted: Wanted, out: Path, *, device: str, force: bool
) -> str:
    """Write the label and the probabilities of every row, and give a sentence about them."""
    _check_out(out, wanted, force=force)
    classifier = LLPClassifier.load(run, device=device)
    source = _source_of(Run(run), wanted)
    correct = n_rows = 0
    with _written(out) as write:
        for piece in _pieces(classifier, source, wanted):
            likely = classifier.predict_proba(piece.instances)
            labels = classifier.classes_[likely.argmax(axis=1)]
            if wanted.proportions is not None:
                labels = _under_counts(classifier, source, wanted, piece)
            if wanted.label is not None:
                correct += _count_right(classifier, labels, piece.frame[wanted.label], wanted)
            n_rows += len(labels)
            names = [f"probability_{name}" for name in classifier.classes_.tolist()]
            found = pd.DataFrame(likely.astype(np.float32), columns=names)
            found.insert(0, "label", labels)
            write(pd.concat([piece.kept.reset_index(drop=True), found], axis=1))
        if not n_rows:
            raise DataError(f"{wanted.rows} has 0 rows below its names.", "Pass a table with rows.")
    told = f"Wrote {n_rows:,} predictions to {out}."
    return told if wanted.label is None else f"{told} Accuracy: {correct / n_rows:.2%}."


def _source_of(run: Run, wanted: Wanted) -> Source:
    """The files that are given, with columns that mean what they meant in training."""
    data = run.settings().get("data")
    if data is None:
        raise DataError(
            f"{run.folder} was started in Python, from arrays, so that its config.toml does not "
            "say how files become what it learned from.",
            "Predict in Python: LLPClassifier.load takes the folder.",
        )
    alike = ("bag", "images", "file", "size", "signal", "order", "channels", "classes")
    own = {name: data[name] for name in alike if name in data}
    given = {"bag": wanted.bag, "images": wanted.images, "size": wanted.size}
    own |= {name: value for name, value in given.items() if value is not None}
    return Source.from_dict({**own, "rows": wanted.rows, "names": wanted.names})


def _kept(source: Source, wanted: Wanted) -> list[str]:
    """The columns to write: what an instance is called if it is no row, and what is asked for."""
    key = {"table": None, "images": source.file, "signals": source.signal}[source.kind]
    return list(dict.fromkeys([*([] if key is None else [key]), *wanted.keep]))


# ----------------------------------------------------------------------------------- the rows


def _pieces(classifier: LLPClassifier, source: Source, wanted: Wanted) -> Iterator[Piece]:
    table, columns = source.table(), classifier.columns_
    if source.kind == "table" and columns is None:
        raise RunError(
            f"the run has no columns.json, which says how {source.rows} is to be read.",
            "Put the file back into its folder.",
        )
    keep = _kept(source, wanted)
    texts = [] if wanted.label is None else [wanted.label]
    texts += [] if wanted.proportions is None else [source.bag]
    learned = source.channels if columns is None else columns.names
    _check_there(table, learned, "which was learned from")
    _check_there(table, [*keep, *texts])
    texts += keep[:1] if columns is None else columns.categorical  # names of files or signals
    pieces = zip(
        (frame for _, frame in table.read(table.names, set(texts))),
        table.read_as_written(keep) if keep else repeat(None),
        strict=False,  # an endless one
    )
    frames: Iterator[Any]
    frames = ((frame, frame[[]] if kept is None else kept) for frame, kept in pieces)
    if wanted.proportions is not None or source.kind != "table":
        # Counts are met by all rows of a bag together, and signals by all of their frames.
        frames = _joined(list(frames))
    for frame, kept in frames:
        if not len(frame):
            continue
        if source.kind == "table":
            yield Piece(frame, kept, frame[list(learned)])
        else:
            yield _not_a_table(frame, kept, source)


def _joined(pairs: list[tuple[pd.DataFrame, pd.DataFrame]]) -> Iterator[Any]:
    if pairs:
        yield tuple(pd.concat(each, ignore_index=True) for each in zip(*pairs, strict=True))


def _not_a_table(frame: pd.DataFrame, kept: pd.DataFrame, source: Source) -> Piece:
    """Read images or signals, none of which needs a bag to be predicted."""
    one_bag: dict[str, Any] = {"bag": ALL, "proportions": {0: [1.0]}}
    if source.images is not None:
        size = None if source.size is None else (source.size[0], source.size[-1])
        place, files = pd.factorize(frame[source.file])  # a file may stand in several bags
        table = pd.DataFrame({source.file: files, ALL: 0})
        bags = read_images(source.images, table, file=source.file, size=size, **one_bag)
        return Piece(frame, kept, bags.x[place])
    key = str(source.signal)
    named = [key, *([] if source.order is None else [source.order]), *source.channels]
    table = frame[named].assign(**{ALL: 0})
    bags = read_signals(table, signal=key, order=source.order, **one_bag)
    first = ~frame.duplicated(key).to_numpy()
    return Piece(frame[first], kept[first], bags.x)


def _check_there(table: Pieces, names: Sequence[str], why: str = "") -> None:
    missing = [name for name in names if name not in table.names]
    if missing:
        more = f", nor {len(missing) - 1} others" if len(missing) > 1 else ""
        raise DataError(
            f"{table.source} has no column {missing[0]!r}{more}{', ' + why if why else ''}.",
            suggestion(missing[0], table.names),
        )


def _count_right(
    classifier: LLPClassifier, labels: NDArray[Any], truth: pd.Series[Any], wanted: Wanted
) -> int:
    known = {str(name) for name in classifier.classes_.tolist()}
    texts = truth.astype(str).str.strip().to_numpy(dtype=object)
    strange = np.array([text not in known for text in texts])
    if strange.any():
        raise DataError(
            f"column {wanted.label!r} of {wanted.rows} has {texts[strange.argmax()]!r}, which is "
            "none of the classes.",
            suggestion(texts[strange.argmax()], sorted(known)),
            "Pass the column of the true classes, and let the file call them as in training.",
        )
    return int(np.sum(texts == np.array([str(label) for label in labels.tolist()], object)))


def _under_counts(
    classifier: LLPClassifier, source: Source, wanted: Wanted, piece: Piece
) -> NDArray[Any]:
    """Give the likeliest labels that meet what is known of the bags."""
    rows = piece.frame[source.bag].tolist()
    from_csv = not source.rows.lower().endswith(".parquet")
    given = replace(source, proportions=wanted.proportions).proportions_table()
    ids, table = name_bags(rows, given, source.bag, from_csv=from_csv)
    by_text = {str(name): name for name in classifier.classes_.tolist()}  # 0 may stand as '0'
    table = table.set_axis([by_text.get(str(name), name) for name in table.columns], axis=1)
    if wanted.normalize:
        table = table.div(table.sum(axis=1), axis=0)
    return classifier.predict(piece.instances, bags=ids, proportions=table)


# ----------------------------------------------------------------------------------- the file


def _check_out(out: Path, wanted: Wanted, *, force: bool) -> None:
    """See to what can be seen to before anything is computed."""
    if out.suffix.lower() not in FORMATS:
        raise DataError(
            f"--out {out} is neither .csv nor .parquet by its name.", "Let it end in one of them."
        )
    check_free(out, force=force)
    if not out.parent.is_dir():
        raise DataError(f"--out {out} is in a folder that does not exist.", "Make the folder.")
    for what, path in (("rows", wanted.rows), ("proportions", wanted.proportions)):
        if path is not None and os.path.realpath(path) == os.path.realpath(out):
            raise DataError(f"--out {out} would replace the {what} themselves.", "Pass another.")
    for name in wanted.keep:
        if name == "label" or name.startswith("probability_"):
            raise DataError(
                f"--keep {name} would stand beside a prediction of that name.",
                "Rename the column, or leave it out.",
            )


@contextmanager
def _written(out: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Write frames one after the other; the file is there whole or not at all."""
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
