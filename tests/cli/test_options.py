"""Flags from fields of dataclasses: named, typed and explained as they are declared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from apportion.cli.options import image_size, listed, options_of, takes
from apportion.errors import ConfigError


@dataclass(frozen=True)
class Oven:
    """How to bake.

    Parameters
    ----------
    degrees : float
        How hot it is.
    n_loaves : int, optional
        How many go in.
    shape : str
        What they look like.
    steam : bool
        Whether there is water.
    """

    degrees: float = 220.0
    n_loaves: int | None = None
    shape: str = "round"
    steam: bool = False


def baker(*names, **shown):
    """Return a command that takes these fields of `Oven` as flags, and what it was called with."""
    app, calls = typer.Typer(), list[dict[str, Any]]()

    @takes(options_of(Oven, "Baking", names, shown))
    def bake(
        recipe: Annotated[Path, typer.Argument(help="A file.")],
        quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing.")] = False,
        **options: Any,
    ) -> None:
        """Bake."""
        calls.append({"recipe": recipe, "quiet": quiet, **options})

    app.command()(bake)
    return lambda *arguments: CliRunner().invoke(app, list(arguments)), calls


def test_flags_reach_the_verb_in_the_types_of_their_fields():
    run, calls = baker("degrees", "n_loaves", "shape", "steam")
    result = run("rye.txt", "--n-loaves", "3", "--degrees", "180", "--steam", "--quiet")
    assert result.exit_code == 0, result.output
    assert calls == [
        {
            "recipe": Path("rye.txt"),
            "quiet": True,
            "degrees": 180.0,
            "n_loaves": 3,
            "shape": None,  # not given: the dataclass has its own default
            "steam": True,
        }
    ]
    assert type(calls[0]["n_loaves"]) is int


def test_only_the_fields_that_are_named_are_flags():
    run, calls = baker("shape")
    assert run("rye.txt", "--shape", "long").exit_code == 0
    assert calls[0].keys() == {"recipe", "quiet", "shape"}
    assert run("rye.txt", "--steam").exit_code == 2


@pytest.mark.parametrize("arguments", [["--n-loaves", "many"], ["--degrees", "hot"], []])
def test_values_of_another_type_are_refused(arguments):
    run, calls = baker("degrees", "n_loaves")
    assert run(*(["rye.txt", *arguments] if arguments else [])).exit_code == 2
    assert calls == []


def test_help_has_the_texts_and_the_defaults_of_the_dataclass():
    run, _ = baker("degrees", "n_loaves", "shape", "steam", shape="as the recipe says")
    text = " ".join(run("--help").output.split())
    assert "Baking" in text
    for words in ("How hot it is.", "How many go in.", "What they look like.", "is water."):
        assert words in text
    assert "220.0" in text
    assert "as the recipe says" in text
    assert "round" not in text
    assert text.count("default:") == 2  # no default to show of what is off or not given


@pytest.mark.parametrize(
    ("text", "names"),
    [(None, None), ("age", ("age",)), (" age ,job", ("age", "job")), ("a b,c", ("a b", "c"))],
)
def test_lists_are_split_at_their_commas(text, names):
    assert listed(text) == names


@pytest.mark.parametrize(("text", "size"), [(None, None), ("48x64", (48, 64)), ("8X9", (8, 9))])
def test_sizes_are_height_by_width(text, size):
    assert image_size(text) == size


@pytest.mark.parametrize("text", ["64", "64x", "8x8x3", "wide", ""])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ConfigError, match=f"--size must be height x width.*got '{text}'"):
        image_size(text)
