"""Where bags come from, as flags and as the section [data] of a configuration say it.

A table has a row an instance. With `images` it has a row a file instead, and with `signal` a row a
frame. All three are read by `apportion.data`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from apportion.bags.bags import Bags
from apportion.bags.columns import Columns
from apportion.bags.names import as_written
from apportion.data._pieces import Pieces, named, open_nameless, open_pieces
from apportion.data.images import read_images
from apportion.data.proportions import read_splits
from apportion.data.signals import read_signals
from apportion.data.tables import read_bags
from apportion.errors import ConfigError, DataError, suggestion

__all__ = ["SPLITS", "Source"]

SPLITS = ("train", "valid", "test")
PATHS = ("rows", "proportions", "images")
LISTS = ("channels", "classes", "exclude", "names", "size")


@dataclass(frozen=True)
class Source:
    """Files, and what their columns mean.

    Examples
    --------
    >>> Source("rows.csv", bag="ward", proportions="wards.csv").to_dict()
    {'kind': 'table', 'rows': 'rows.csv', 'bag': 'ward', 'proportions': 'wards.csv'}
    """

    rows: str
    bag: str = "bag"
    proportions: str | None = None
    counts: bool = False
    normalize: bool = False
    label: str | None = None
    classes: tuple[str, ...] = ()  # columns of the proportions; by default all but bag and split
    exclude: tuple[str, ...] = ()  # columns of the rows that are not to be learned from
    names: tuple[str, ...] = ()  # of the columns of a file that has no line of names
    images: str | None = None  # the folder of the files, if the rows are image files
    file: str = "file"
    size: tuple[int, ...] | None = None  # (height, width)
    signal: str | None = None  # the column of the ids of signals, if the rows are their frames
    order: str | None = None
    channels: tuple[str, ...] = ()  # of signals; by default all columns that are not named above

    def __post_init__(self) -> None:
        """Check that the options go together."""
        if self.images is not None and self.signal is not None:
            raise ConfigError(
                "rows are image files (images) and frames of signals (signal) at once.",
                "Pass one of the two.",
            )
        for name, needs in (("size", "images"), ("order", "signal"), ("channels", "signal")):
            if getattr(self, name) and getattr(self, needs) is None:
                raise ConfigError(f"{name} is given, but no {needs}.", f"Pass {needs} as well.")
        if self.exclude and self.kind == "images":
            raise ConfigError(
                "exclude is given, but the rows are image files.",
                "Leave it out: other columns than those of files, bags and labels are not read.",
            )

    @property
    def kind(self) -> str:
        """What the instances are: "table", "images" or "signals"."""
        if self.images is not None:
            return "images"
        return "table" if self.signal is None else "signals"

    # ---------------------------------------------------------------------- as a section of TOML

    @classmethod
    def from_dict(cls, options: Mapping[str, Any], folder: Path | None = None) -> Source:
        """Read the section [data]; relative paths begin at the folder, by default the current."""
        known = [field.name for field in fields(cls)]
        given = dict(options)
        kind = given.pop("kind", None)
        for name in given:
            if name not in known:
                raise ConfigError(f"[data] has {name!r}.", suggestion(name, known))
        if "rows" not in given:
            raise ConfigError(
                "[data] has no rows.",
                'Name the table: rows = "rows.csv", say. The configuration of a run that was '
                "started in Python names none.",
            )
        for name in PATHS:
            if name in given and folder is not None:
                given[name] = str(folder / Path(given[name]).expanduser())
        for name in LISTS:
            if name in given:
                given[name] = tuple(given[name])
        made = cls(**given)
        if kind not in (None, made.kind):
            raise ConfigError(
                f"[data] has the kind {kind!r}, but what it names are {made.kind}.",
                "Leave the kind out: images and signal say what instances are.",
            )
        return made

    def to_dict(self) -> dict[str, Any]:
        """Give all that differs from the default, in types that TOML has."""
        defaults = {field.name: field.default for field in fields(self)}
        given = {name: value for name, value in asdict(self).items() if value != defaults[name]}
        return {"kind": self.kind, **given}

    def resolved(self) -> Source:
        """Give the same with whole paths, which hold from anywhere."""
        paths = {name: getattr(self, name) for name in PATHS}
        whole: dict[str, Any] = {
            name: str(Path(path).expanduser().resolve())
            for name, path in paths.items()
            if path is not None
        }
        return replace(self, **whole)

    # ---------------------------------------------------------------------------------- reading

    def read(self, columns: Columns | None = None) -> tuple[Bags, Columns | None]:
        """Read all bags, and how the columns of a table became numbers.

        Parameters
        ----------
        columns : Columns, optional
            Those that were learned before.
        """
        table = self.table()
        there = named(table.names, table.source)
        if self.bag not in there:
            raise DataError(
                f"{self.rows} has no column {self.bag!r}.",
                f"Name the column of the bags with --bag. {suggestion(self.bag, there)}",
            )
        for name in self.exclude:
            if name not in there:
                raise DataError(f"{self.rows} has no column {name!r}.", suggestion(name, there))
        if self.proportions is None and self.label is None:
            raise DataError(
                f"neither proportions nor labels are given for {self.rows}.",
                "Pass --proportions, a table with a row a bag and a column a class; or --label, "
                "the column of the classes, to count them in every bag.",
            )
        options: dict[str, Any] = {
            "bag": self.bag,
            "proportions": self.proportions_table(),
            "counts": self.counts,
            "normalize": self.normalize,
            "label": self.label,
        }
        if self.images is not None:
            size = None if self.size is None else (self.size[0], self.size[-1])
            return read_images(self.images, table, file=self.file, size=size, **options), None
        if self.signal is not None:
            own = [self.signal, self.bag, self.label, self.order]
            wanted = [*(name for name in own if name is not None), *self.channels_in(table)]
            frames = replace(table, names=wanted)
            return read_signals(frames, signal=self.signal, order=self.order, **options), None
        chosen: Any = columns
        if columns is None and self.exclude:
            chosen = [n for n in there if n not in (self.bag, self.label, *self.exclude)]
        found = read_bags(table, columns=chosen, **options)
        self._check_for_the_truth(found.bags, found.columns)
        return found.bags, found.columns

    def channels_in(self, table: Pieces) -> list[str]:
        """Give the columns of signals that are learned from."""
        for name in self.channels:
            if name not in table.names:
                raise DataError(
                    f"{self.rows} has no column {name!r}, a channel that was learned from.",
                    suggestion(name, table.names),
                )
        own = (self.bag, self.label, self.signal, self.order, *self.exclude)
        others = [name for name in named(table.names, table.source) if name not in own]
        return list(self.channels or others)

    def proportions_table(self) -> str | pd.DataFrame | None:
        """Give the table of proportions, less the columns that are no classes."""
        if self.proportions is None or not self.classes:
            return self.proportions
        pieces = open_pieces(self.proportions)
        for name in (self.bag, *self.classes):
            if name not in pieces.names:
                raise DataError(
                    f"{self.proportions} has no column {name!r}.", suggestion(name, pieces.names)
                )
        read = [piece for _, piece in pieces.read(pieces.names, pieces.names)]
        table = pd.concat(read, ignore_index=True)
        if pieces.is_csv:  # in which numbers are texts, and mean numbers
            table[self.bag] = pd.Series(as_written(table[self.bag].tolist()), dtype=object)
        return table[[self.bag, *self.classes]]

    def table(self) -> Pieces:
        """Open the table of the rows."""
        return open_nameless(self.rows, self.names) if self.names else open_pieces(self.rows)

    def _check_for_the_truth(self, bags: Bags, columns: Columns) -> None:
        """A column that holds the classes themselves would be learned from, and look splendid."""
        classes = {str(name) for name in bags.classes}
        for name, categories in columns.categories.items():
            if len(classes) > 1 and set(categories) == classes:
                raise DataError(
                    f"column {name!r} of {self.rows} has the classes themselves: "
                    f"{', '.join(sorted(classes))}.",
                    f"Pass --label {name} if it is the truth, which is then used to measure "
                    f"accuracies and for nothing else; or --exclude {name}.",
                )

    def split(self, bags: Bags) -> dict[str, Bags]:
        """Take bags apart as the column `split` of the proportions says; {} without one."""
        if self.proportions is None:
            return {}
        said = read_splits(self.proportions, self.bag)
        if not said:
            return {}
        for name in set(said.values()):
            if name not in SPLITS:
                raise DataError(
                    f"{self.proportions} has bags of split {name!r}.", suggestion(name, SPLITS)
                )
        parts = [said[bag] for bag in bags.ids]
        if "train" not in parts:
            raise DataError(
                f"{self.proportions} has no bag of split 'train'.",
                "Say train in the column 'split' of the bags to learn from, and valid or test of "
                "the others; or leave the column out.",
            )
        return {name: bags[_where(parts, name)] for name in SPLITS if name in parts}


def _where(parts: Iterable[str], name: str) -> list[bool]:
    return [part == name for part in parts]
