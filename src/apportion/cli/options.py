"""Flags of verbs, made from options that are declared once as fields of dataclasses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import Field, fields
from typing import Annotated, Any, get_type_hints

import typer

from apportion.errors import must_be

__all__ = ["image_size", "listed", "options_of", "takes"]


def options_of(cls: Any, panel: str, names: Iterable[str] | None = None) -> list[inspect.Parameter]:
    """Return the flags of the declared fields of a dataclass, all of them or some."""
    chosen = [option for option in fields(cls) if option.metadata.get("flag")]
    if names is not None:
        chosen = [option for option in chosen if option.name in names]
    return [_flag(option, panel) for option in chosen]


def _flag(option: Field[Any], panel: str) -> inspect.Parameter:
    kind: Any = {"int": int, "float": float}.get(str(option.type).partition(" ")[0], str)
    default: Any = None
    if option.type == "bool":
        kind, default = bool, False
    shown = option.metadata.get("default", option.default)
    name = f"--{option.name.replace('_', '-')}"
    about = typer.Option(
        name,
        help=option.metadata["help"],
        show_default=False if shown in (None, False, ()) else str(shown),
        rich_help_panel=panel,
    )
    kind = kind if default is False else kind | None
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, about],
    )


def takes(*groups: list[inspect.Parameter]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a verb take declared options besides its own, which reach it as ``**options``."""

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
    """Split a list at its commas.

    Examples
    --------
    >>> listed("age, job")
    ('age', 'job')
    """
    return None if text is None else tuple(name.strip() for name in text.split(","))


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
