"""Rows of a file to predict, piece by piece: tables of any size, images and signals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apportion.cli.source import Source
from apportion.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from apportion.bags.columns import Columns
    from apportion.model.model import Model

__all__ = ["Piece", "Wanted", "pieces_of"]

ALL = "all of them, in one bag"  # a column for readers that want bags where none are needed


@dataclass(frozen=True)
class Wanted:
    """What is to be predicted, and what is to be written beside it."""

    rows: str
    copy: tuple[str, ...]  # columns
    label: str | None
    proportions: Path | None
    normalize: bool


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows."""

    frame: pd.DataFrame  # their columns
    kept: pd.DataFrame  # those to be written again, as they were
    instances: Any


def pieces_of(model: Model, source: Source, wanted: Wanted) -> Iterator[Piece]:
    """Yield the rows of a file piece by piece, as the model takes them."""
    table, columns = source.open(), model.columns
    # The name of an instance that is not a row, and the columns that are asked for.
    key = {"table": None, "images": source.file, "signals": source.signal}[source.kind]
    copy = list(dict.fromkeys([*([] if key is None else [key]), *wanted.copy]))
    texts = [] if wanted.label is None else [wanted.label]
    texts += [] if wanted.proportions is None else [source.bag]
    learned = source.channels if columns is None else columns.names
    table.check_columns(learned, "The model learned from it.")
    table.check_columns([*copy, *texts, *filter(None, [source.order])])
    if source.kind == "signals" and source.bag in table.names:
        texts.append(source.bag)  # a signal that is named in several bags is not one signal
    texts += copy[:1] if columns is None else columns.categorical  # names of files or signals
    wanted_names = {*learned, *copy, *texts, *filter(None, [source.order])}
    pieces = zip(
        (frame for _, frame in table.read(wanted_names, set(texts))),
        table.read_as_written(copy) if copy else repeat(None),
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
            yield Piece(frame, kept, _encoded(columns, frame[list(learned)], table.decimal))
        else:
            yield _not_a_table(frame, kept, source, table.decimal)


def _encoded(columns: Columns | None, rows: pd.DataFrame, decimal: str | None) -> Any:
    """Return rows as the model stores them, with numbers as their file writes them."""
    from apportion.data.encoding import encode

    if columns is None:
        return rows  # the model raises the error
    parts = encode(columns, rows, decimal=decimal)
    return parts if isinstance(parts, tuple) else (parts,)


def _joined(pairs: list[tuple[pd.DataFrame, pd.DataFrame]]) -> Iterator[Any]:
    import pandas as pd

    if pairs:
        yield tuple(pd.concat(each, ignore_index=True) for each in zip(*pairs, strict=True))


def _not_a_table(
    frame: pd.DataFrame, kept: pd.DataFrame, source: Source, decimal: str | None
) -> Piece:
    """Read images or signals, none of which needs a bag to be predicted."""
    import pandas as pd

    from apportion.data.images import read_images
    from apportion.data.pieces import Pieces
    from apportion.data.signals import read_signals

    one_bag: dict[str, Any] = {"bag": ALL, "proportions": {0: [1.0]}}
    if source.images is not None:
        place, files = pd.factorize(frame[source.file])  # a file may stand in several bags
        table = pd.DataFrame({source.file: files, ALL: 0})
        one_bag |= {"file": source.file, "size": source.size, "follow_links": source.follow_links}
        bags = read_images(source.images, table, **one_bag)
        return Piece(frame, kept, (bags.x[place],))
    key, bag = str(source.signal), source.bag if source.bag in frame else ALL
    named = frame.get(bag, pd.Series(ALL, frame.index)).astype(object)
    for missing in (named.groupby(frame[key]).transform("first"), ALL):
        named = named.where(named.notna(), missing)
    rows = frame.assign(**{bag: named})
    one_bag = {"bag": bag, "proportions": {name: [1.0] for name in rows[bag].unique()}}
    one_bag |= {"signal": key, "order": source.order, "channels": source.channels}
    names = list(map(str, rows.columns))
    pieces = Pieces(source.rows, names, frame=rows, in_sheet=decimal)
    try:
        bags = read_signals(pieces, **one_bag)
    except DataError as error:
        if not error.names("channels"):  # which are those of the model
            raise
        raise error.remedied("Fill them in, or leave these rows out.") from error
    first = ~frame.duplicated(key).to_numpy()
    return Piece(frame[first], kept[first], bags.x)
