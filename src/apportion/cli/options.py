"""Flags of verbs, made from options that are declared once as fields of dataclasses."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from apportion.config import help_texts
from apportion.errors import must_be

__all__ = ["RUN", "BegunFolder", "NewFolder", "Replaces", "folder_named", "image_size", "listed",
           "options_of", "takes"]  # fmt: skip

RUN = "The run"  # a panel of the help


def options_of(
    cls: Any, panel: str, names: Iterable[str], defaults: Mapping[str, str] | None = None
) -> list[inspect.Parameter]:
    """Return flags for some fields of a dataclass, with the help texts of its docstring.

    Parameters
    ----------
    defaults : mapping, optional
        What to show instead of the defaults of the dataclass, which a verb may replace.
    """
    texts, own = help_texts(cls), {option.name: option for option in fields(cls)}
    shown = {name: own[name].default for name in names} | dict(defaults or {})
    return [_flag(own[name], texts.get(name, ""), shown[name], panel) for name in names]


def _flag(option: Field[Any], text: str, shown: Any, panel: str) -> inspect.Parameter:
    kinds: Any = {"int": int, "float": float, "bool": bool}
    kind: Any = kinds.get(str(option.type).partition(" ")[0], str)
    default: Any = None
    name = option.name.replace("_", "-")
    if option.type == "bool":
        default = False
    about = typer.Option(
        f"--{name}/--no-{name}" if kind is bool and default is None else f"--{name}",
        help=text,
        show_default=False if shown is False or shown in (None, ()) else str(shown),
        rich_help_panel=panel,
    )
    annotation: Any = Annotated[kind if default is False else kind | None, about]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(option.name, keyword, default=default, annotation=annotation)


def takes(*groups: list[inspect.Parameter]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a verb take declared options besides its own, which reach it as ``**options``."""

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(verb, include_extras=True)
        own = [
            parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(verb).parameters.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        first = [p for p in own if _is_argument(p)]
        rest = [p for p in own if not _is_argument(p)]
        every = [*first, *(p for group in groups for p in group), *rest]
        changed: Any = verb
        changed.__signature__ = inspect.Signature(every)
        changed.__annotations__ = {p.name: p.annotation for p in every}
        return verb

    return decorate


def _is_argument(parameter: inspect.Parameter) -> bool:
    about = getattr(parameter.annotation, "__metadata__", ())
    return any(type(entry) is type(typer.Argument()) for entry in about)


def listed(text: str | None) -> tuple[str, ...] | None:
    """Split a list at its commas; a name with a comma stands in quotes.

    Examples
    --------
    >>> listed("age, job"), listed('"income, yearly",age')
    (('age', 'job'), ('income, yearly', 'age'))
    """
    if text is None:
        return None
    rows = list(csv.reader([text], skipinitialspace=True))
    return tuple(name.strip() for name in rows[0]) if rows else ("",)


def folder_named(text: str) -> Path:
    """Read the path of a folder. An empty text, which Path takes for the current one, is none.

    Examples
    --------
    >>> folder_named("")
    Traceback (most recent call last):
    apportion.errors.ConfigError: the folder of a run must be a path; got ''.
    """
    if not text:
        raise must_be("the folder of a run", "a path", text)
    return Path(text)


# The folder of a run, in the verbs that begin or continue one.
NewFolder = Annotated[
    Path | None,
    typer.Option(
        help="The folder of the run.",
        show_default="runs/1, runs/2, …",
        rich_help_panel=RUN,
        parser=folder_named,
        metavar="<path>",
    ),
]
BegunFolder = Annotated[
    Path | None,
    typer.Option(
        help="Go on with the run in this folder.",
        rich_help_panel=RUN,
        parser=folder_named,
        metavar="<path>",
    ),
]
Replaces = Annotated[
    bool, typer.Option("--force", help="Replace the run in --out.", rich_help_panel=RUN)
]


def image_size(text: str | None) -> tuple[int, int] | None:
    """Read height x width.

    Examples
    --------
    >>> image_size("48x64")
    (48, 64)
    """
    if text is None:
        return None
    try:
        height, width = map(int, text.lower().split("x"))
    except ValueError:
        raise must_be("--size", "height x width, for example 64x64", text) from None
    return height, width
