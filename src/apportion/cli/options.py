"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "BagOption",
    "ClassesOption",
    "CountsOption",
    "ExcludeOption",
    "FileOption",
    "ImagesOption",
    "LabelOption",
    "NamesOption",
    "NormalizeOption",
    "OrderOption",
    "ProportionsOption",
    "SignalOption",
    "SizeOption",
    "given_source",
    "image_size",
    "listed",
]

BAGS = "Bags"
KINDS = "Images and signals"

BagOption = Annotated[
    str | None,
    typer.Option(
        help="The column that names each row's bag, in both tables.",
        show_default="bag",
        rich_help_panel=BAGS,
    ),
]
ProportionsOption = Annotated[
    Path | None,
    typer.Option(
        help="A table of the bags: a column of their names, and a column of numbers for each "
        "class. A column 'split' says train, valid or test.",
        rich_help_panel=BAGS,
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        help="The columns of classes in --proportions, if it has others as well: yes,no say.",
        show_default="all but those of the bag and the split",
        rich_help_panel=BAGS,
    ),
]
CountsOption = Annotated[
    bool, typer.Option("--counts", help="The table holds counts.", rich_help_panel=BAGS)
]
NormalizeOption = Annotated[
    bool,
    typer.Option(
        "--normalize", help="Rescale each bag's numbers to sum to 1.", rich_help_panel=BAGS
    ),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        help="The column of the true classes, if known: for accuracies alone. Without "
        "--proportions they are counted in every bag.",
        rich_help_panel=BAGS,
    ),
]
ExcludeOption = Annotated[
    str | None,
    typer.Option(help="Columns not to learn from: id,name say.", rich_help_panel=BAGS),
]
NamesOption = Annotated[
    str | None,
    typer.Option(
        help="The columns' names, if the file has no line of them: age,job,… say.",
        rich_help_panel=BAGS,
    ),
]
ImagesOption = Annotated[
    Path | None,
    typer.Option(
        help="The folder of image files; the table then has a row a file.", rich_help_panel=KINDS
    ),
]
FileOption = Annotated[
    str | None,
    typer.Option(
        help="The column of their names in the folder.", show_default="file", rich_help_panel=KINDS
    ),
]
SizeOption = Annotated[
    str | None,
    typer.Option(help="Resize images to height x width: 64x64 say.", rich_help_panel=KINDS),
]
SignalOption = Annotated[
    str | None,
    typer.Option(
        help="The column that names each row's signal; the table then has a row a frame.",
        rich_help_panel=KINDS,
    ),
]
OrderOption = Annotated[
    str | None,
    typer.Option(
        help="The column of times that frames are sorted by; by default they are in order.",
        rich_help_panel=KINDS,
    ),
]


def listed(text: str | None) -> tuple[str, ...] | None:
    """Take a list with commas apart.

    Examples
    --------
    >>> listed("age, job")
    ('age', 'job')
    """
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(","))


def image_size(text: str | None) -> tuple[int, int] | None:
    """Read height x width.

    Examples
    --------
    >>> image_size("48x64")
    (48, 64)
    """
    from apportion.errors import ConfigError

    if text is None:
        return None
    try:
        height, width = map(int, text.lower().split("x"))
    except ValueError:
        raise ConfigError(f"--size is {text!r}.", "Pass height x width: 64x64, say.") from None
    return height, width


def given_source(
    *,
    classes: str | None,
    exclude: str | None,
    names: str | None,
    size: str | None,
    **options: Any,
) -> dict[str, Any]:
    """Give the options of [data] that were given as flags, in the types that it has."""
    lists = {"classes": classes, "exclude": exclude, "names": names}
    given = {**options, **{name: listed(text) for name, text in lists.items()}}
    given["size"] = image_size(size)
    plain = {n: str(value) if isinstance(value, Path) else value for n, value in given.items()}
    return {name: value for name, value in plain.items() if value not in (None, False)}
