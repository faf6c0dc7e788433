"""The source of bags, as in the flags of a verb and in the section [data] of a configuration.

A table has one row per instance. With `images` it has one row per file instead, and with `signal`
one row per frame. All three are read by `apportion.data`, when they are read.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from apportion.cli.options import image_size, listed, options_of
from apportion.cli.terminal import with_exclude
from apportion.data.dialect import FORMAT, TableFormat
from apportion.errors import ConfigError, DataError, Option, must_be, suggestion

if TYPE_CHECKING:
    from apportion.bags.bags import Bags
    from apportion.bags.columns import Columns
    from apportion.data.pieces import Pieces
    from apportion.data.proportions import BagTable
    from apportion.plan.choices import Choice

__all__ = ["Source"]

PATHS = ("rows", "proportions", "images")
NEEDS = {"size": "images", "follow_links": "images", "order": "signal", "channels": "signal"}
PROPORTIONS_FORMAT = tuple(f"proportions_{name}" for name in FORMAT)
LISTS = ("channels", "classes", "exclude", "keep", "names", "size")


class Read(NamedTuple):
    """The bags that were read, and how."""

    sets: dict[str, Bags]  # by "train", "valid" and "test"
    source: Source  # with the channels that were found
    validation: Choice  # which share of the bags was held out, and why


@dataclass(frozen=True)
class Source:
    """Files, and what their columns mean.

    Parameters
    ----------
    rows : str
        A .csv, .tsv, .txt, .xlsx or .parquet file, or a folder of Parquet files: one row per
        instance.
    bag : str
        The column that names each row's bag, in both tables.
    proportions : str, optional
        A table of the bags: a column of their names, and one column of numbers per class: shares,
        percentages or counts. A column 'split' says train, valid or test. Bags without rows are
        left out, and so are totals.
    classes : tuple of str
        The columns of classes in --proportions, if it has others as well, for example yes,no.
    counts : bool
        The table holds counts.
    normalize : bool
        The numbers sum to another constant than 1 or 100, or are counts of other rows: rescale
        them. Percentages, and sums that are off by no more than the rounding of their digits, need
        no option.
    label : str, optional
        The column of the true classes, if known: for accuracies alone. Without --proportions they
        are counted in every bag. With it, some cells may be empty.
    skip_unplaced : bool
        Leave out rows without a bag, or of a bag that --proportions does not have.
    exclude : tuple of str
        Columns not to learn from, for example id,name.
    keep : tuple of str
        Columns to learn from even if they give the truth away or are the bag's own proportions.
    names : tuple of str
        The names of the columns, for a file without a header row, e.g. age,job,income.
    images : str, optional
        The folder of image files; the table then has one row per file.
    file : str
        The column of their names in the folder.
    size : (height, width), optional
        Resize images to height x width, for example 64x64.
    follow_links : bool
        Read images outside the folder as well, by links or by '..' in their names.
    signal : str, optional
        The column that names each row's signal; the table then has one row per frame.
    order : str, optional
        The column of times that frames are sorted by; by default they are in order.
    channels : tuple of str
        The columns of signals that are learned from; by default all that are not named above.
    sep : str, optional
        The separator of cells in a text file of rows: ',', ';', '|' or tab; by default as
        recognised.
    decimal : str, optional
        The decimal sign in a text file of rows, and of texts in an Excel file: '.' or ','; by
        default as recognised.
    encoding : str, optional
        The encoding of a text file of rows, for example cp1252; by default as recognised.
    sheet : str, optional
        The sheet of an Excel file of rows; by default the first.
    proportions_sep : str, optional
        The separator of cells in --proportions.
    proportions_decimal : str, optional
        The decimal sign in --proportions.
    proportions_encoding : str, optional
        The encoding of --proportions.
    proportions_sheet : str, optional
        The sheet of --proportions.

    Examples
    --------
    >>> Source("rows.csv", bag="ward", proportions="wards.csv").to_dict()
    {'kind': 'table', 'rows': 'rows.csv', 'bag': 'ward', 'proportions': 'wards.csv'}
    """

    rows: str
    bag: str = "bag"
    proportions: str | None = None
    classes: tuple[str, ...] = ()
    counts: bool = False
    normalize: bool = False
    label: str | None = None
    skip_unplaced: bool = False
    exclude: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    images: str | None = None
    file: str = "file"
    size: tuple[int, int] | None = None
    follow_links: bool = False
    signal: str | None = None
    order: str | None = None
    channels: tuple[str, ...] = ()
    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    proportions_sep: str | None = None
    proportions_decimal: str | None = None
    proportions_encoding: str | None = None
    proportions_sheet: str | None = None

    def __post_init__(self) -> None:
        """Check that the options go together."""
        _ = self.form, self.proportions_form
        if self.images is not None and self.signal is not None:
            raise ConfigError(
                "rows are image files (images) and frames of signals (signal) at once.",
                "Pass one of the two.",
            )
        for name, needs in NEEDS.items():
            if getattr(self, name) and getattr(self, needs) is None:
                also = ("Pass ", Option(needs, "…", needs.upper()), " as well.")
                raise ConfigError(f"{name} is given, but no {needs}.", also)
        if self.keep and self.kind != "table":
            raise ConfigError(
                f"keep is given, but the rows are {self.kind}.",
                "Leave it out: it is for columns of a table.",
            )
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

    @property
    def form(self) -> TableFormat:
        """What is known of the format of the rows."""
        return TableFormat(self.sep, self.decimal, self.encoding, self.sheet)

    @property
    def proportions_form(self) -> TableFormat:
        """What is known of the format of the table of proportions."""
        own = {name: getattr(self, f"proportions_{name}") for name in FORMAT}
        return TableFormat(**own, of="proportions_")

    @property
    def format_flags(self) -> str:
        """The options that a file like this one needs again, as flags."""
        given = {name: getattr(self, name) for name in FORMAT}
        given["names"] = ",".join(self.names)
        return "".join(f" --{name} {shlex.quote(value)}" for name, value in given.items() if value)

    # ------------------------------------------------------------------ as flags and as TOML

    @classmethod
    def flags(cls) -> list[inspect.Parameter]:
        """Return the options that are flags of a verb."""
        names = [o.name for o in fields(cls) if o.name not in ("rows", "channels")]
        form = (*FORMAT, *PROPORTIONS_FORMAT)
        own = [name for name in names if name not in form]
        return [*options_of(cls, "Data", own), *options_of(cls, "Format", form)]

    @staticmethod
    def given(flags: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of [data] among flags, in the types that it has."""
        known = {option.name for option in fields(Source)}
        found = {name: value for name, value in flags.items() if name in known}
        for name in LISTS:
            read = image_size if name == "size" else listed
            found[name] = read(found.get(name))
        return {name: value for name, value in found.items() if value not in (None, False)}

    @classmethod
    def from_dict(cls, options: Mapping[str, Any], folder: Path | None = None) -> Source:
        """Read the section [data]; relative paths begin at the folder, by default the current."""
        known = [option.name for option in fields(cls)]
        given = dict(options)
        kind = given.pop("kind", None)
        for name in given:
            if name not in known:
                raise ConfigError(f"[data] has {name!r}.", suggestion(name, known))
        if "rows" not in given:
            raise ConfigError(
                "[data] has no rows.",
                'Name the table, for example rows = "rows.csv". The configuration of a run that '
                "was started in Python names none.",
            )
        for option in fields(cls):
            if option.name in given:
                _check_type(option.name, str(option.type), given[option.name])
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
        """Return all that differs from the default, in types that TOML has."""
        defaults = {option.name: option.default for option in fields(self)}
        given = {name: value for name, value in asdict(self).items() if value != defaults[name]}
        return {"kind": self.kind, **given}

    def resolved(self) -> Source:
        """Return the same with absolute paths."""
        paths = {name: getattr(self, name) for name in PATHS}
        whole: dict[str, Any] = {
            name: str(Path(path).expanduser().resolve())
            for name, path in paths.items()
            if path is not None
        }
        return replace(self, **whole)

    # ---------------------------------------------------------------------------------- reading

    def open(self) -> Pieces:
        """Open the table of the rows."""
        from apportion.data.pieces import open_pieces

        return open_pieces(self.rows, names=self.names, form=self.form)

    def table(self, proportions: str | Path) -> BagTable:
        """Read a table of proportions."""
        from apportion.data.proportions import read_proportions

        classes = self.classes or None
        return read_proportions(proportions, self.bag, classes, self.proportions_form)

    def read(self, columns: Columns | None, validation: float | None, seed: int) -> Read:
        """Read the bags to train on, to select by and to test on; of several processes, one does.

        Parameters
        ----------
        columns : Columns, optional
            Those that were learned before.
        validation, seed
            As in `apportion.data.tables.read_sets`.
        """
        from apportion.data.pieces import named
        from apportion.engine.shared import read_once

        rows = self.open()
        rows.check_columns([self.bag], "Name the column of the bags with --bag.")
        rows.check_columns(self.exclude)
        if self.proportions is None and self.label is None:
            raise DataError(
                f"neither proportions nor labels are given for {self.rows}.",
                "Pass --proportions, a table with one row per bag and one column per class; or "
                "--label, the column of the classes, to count them in every bag.",
            )
        table = None if self.proportions is None else self.table(self.proportions)
        options: dict[str, Any] = {
            "bag": self.bag,
            "proportions": table,
            "counts": self.counts,
            "normalize": self.normalize,
            "label": self.label,
            "skip_unplaced": self.skip_unplaced,
        }
        held_out = validation, seed
        if self.images is not None:
            from apportion.data.images import read_image_sets

            options |= {"file": self.file, "size": self.size, "follow_links": self.follow_links}
            images = self.images
            sets = read_once(lambda _: read_image_sets(images, rows, *held_out, **options))
            return self._read(sets, table, validation)
        if self.signal is not None:
            from apportion.data.signals import read_signal_sets

            own = (self.bag, self.label, self.signal, self.order, *self.exclude)
            others = (name for name in named(rows.names, rows.source) if name not in own)
            channels = self.channels or tuple(others)
            options |= {"signal": self.signal, "order": self.order, "channels": channels}
            with _with_exclude("channels"):
                sets = read_once(lambda _: read_signal_sets(rows, *held_out, **options))
            # Predictions find them by name, in any order.
            return replace(self, channels=channels)._read(sets, table, validation)
        from apportion.data.tables import read_sets

        chosen: Any = columns
        if columns is None:
            left_out = (self.bag, self.label, *self.exclude)
            chosen = [n for n in named(rows.names, rows.source) if n not in left_out]
        options |= {"columns": chosen, "keep": self.keep}
        options |= {"validation": validation, "seed": seed}
        with _with_exclude("columns"):
            sets = read_once(lambda store: read_sets(rows, store=store, **options))
        return self._read(sets, table, validation)

    def _read(
        self, sets: dict[str, Bags], table: BagTable | None, validation: float | None
    ) -> Read:
        from apportion.plan.choices import Choice
        from apportion.plan.held_out import held_out_share

        if table is not None and table.split is not None:
            said = Choice(None, "the column 'split' of the proportions says which bags")
            return Read(sets, self, said)
        n_bags = sum(bags.n_bags for bags in sets.values())
        return Read(sets, self, held_out_share(n_bags, validation))


def _check_type(name: str, declared: str, value: Any) -> None:
    """Check that a value of [data] is of the type that its option has."""
    if declared.startswith("tuple"):
        kind: type = int if "int" in declared else str
        rule = f"a list of {'two whole numbers' if kind is int else 'texts'}"
        right = isinstance(value, list | tuple) and all(type(item) is kind for item in value)
        right = right and (kind is str or (len(value) == 2 and min(value) > 0))
    elif declared == "bool":
        rule, right = "true or false", isinstance(value, bool)
    else:
        rule, right = "a text", isinstance(value, str)
    if not right:
        raise must_be(f"{name} in [data]", rule, value)


@contextmanager
def _with_exclude(option: str) -> Iterator[None]:
    """Name --exclude in a remedy that names an option that is none here."""
    try:
        yield
    except DataError as error:
        if not error.names(option):
            raise
        raise error.remedied(tuple(map(with_exclude, error.args[-1]))) from error
