"""Every error class of the library, and how errors are worded.

An error names the thing, the number and the remedy. Where the remedy is an option, it is an
`Option`, because each interface spells options in its own way: ``normalize=True`` in Python,
``--normalize`` at the command line.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

__all__ = [
    "ApportionError",
    "AssignmentError",
    "BagError",
    "ConfigError",
    "DataError",
    "Option",
    "RunError",
    "and_more",
    "comma_list",
    "count",
    "listing",
    "must_be",
    "suggestion",
]


@dataclass(frozen=True)
class Option:
    """An option that a remedy names.

    Examples
    --------
    >>> force, size = Option("force"), Option("size", "(64, 48)", "64x48")
    >>> print(force, force.flag, size, size.flag)
    force=True --force size=(64, 48) --size 64x48
    >>> print(Option("exclude", flag_value="id,asked on").flag)
    --exclude 'id,asked on'
    """

    name: str
    value: str = "True"  # in Python
    flag_value: str = ""  # at the command line

    @property
    def flag(self) -> str:
        """The option at the command line, in quotes where the shell needs them."""
        value = self.flag_value
        if re.search(r"[\s$&|<>()*?\\`!#\"~;]", value) and not value.startswith("'"):
            value = shlex.quote(value)
        return f"--{self.name.replace('_', '-')} {value}".rstrip()

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


Words = str | tuple[str | Option, ...]


class ApportionError(Exception):
    """The base of all errors of this library, so that one `except` catches them all.

    The first line names the thing and the number, the last one the remedy.

    Examples
    --------
    >>> raise ApportionError("model.onnx exists.", ("Pass ", Option("force"), " to replace it."))
    Traceback (most recent call last):
    apportion.errors.ApportionError: model.onnx exists.
      Pass force=True to replace it.
    """

    def __init__(self, problem: Words, *details: Words) -> None:
        super().__init__(problem, *details)

    def worded(self, spell: Callable[[Option], str] = str) -> str:
        """Return the message with options as an interface spells them."""
        lines = ((line,) if isinstance(line, str) else line for line in self.args)
        return "\n  ".join(
            "".join(part if isinstance(part, str) else spell(part) for part in line)
            for line in lines
        )

    def names(self, option: str) -> bool:
        """Tell whether the remedy is an option of this name."""
        words = (part for line in self.args if not isinstance(line, str) for part in line)
        return any(isinstance(part, Option) and part.name == option for part in words)

    def remedied(self, remedy: Words) -> ApportionError:
        """Return the same error with another remedy, for an interface without such an option."""
        return type(self)(*self.args[:-1], remedy)

    def rename_options(self, names: Mapping[str, str]) -> None:
        """Name other options in the message, where one stands for another."""
        lines = ((line,) if isinstance(line, str) else line for line in self.args)
        self.args = tuple(
            tuple(
                replace(part, name=names.get(part.name, part.name))
                if isinstance(part, Option)
                else part
                for part in line
            )
            for line in lines
        )

    def about(self, source: str) -> None:
        """Begin the message with the name of the table or file that it is about."""
        problem, *details = self.args
        before = (problem,) if isinstance(problem, str) else problem
        self.args = ((f"{source}: ", *before), *details)

    def __str__(self) -> str:
        return self.worded()


class BagError(ApportionError, ValueError):
    """Bags that contradict themselves."""


class AssignmentError(ApportionError, ValueError):
    """Costs and counts that no labels fit."""


class ConfigError(ApportionError, ValueError):
    """An option or an argument that makes no sense."""


class DataError(ApportionError, ValueError):
    """Data, or a file of them, that are not what they should be."""


class RunError(ApportionError, RuntimeError):
    """A run or a model that cannot be read, written or continued."""


def must_be(name: str, rule: str, value: object) -> ConfigError:
    """Return the error of an option whose value breaks a rule.

    Examples
    --------
    >>> print(must_be("epochs", "an integer ≥ 1", 0))
    epochs must be an integer ≥ 1; got 0.
    """
    return ConfigError(f"{name} must be {rule}; got {value!r}.")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return which known name may have been meant, and the known names.

    Examples
    --------
    >>> suggestion("flop", ["crop", "flip"])
    "Did you mean 'flip'? Known: crop, flip."
    """
    known = list(known)
    close = difflib.get_close_matches(name, known[:1000], n=1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    return f"{meant}Known: {listing(known, most=24)}."


def count(n: int, noun: str) -> str:
    """Return a number of things in words.

    Examples
    --------
    >>> count(1, "bag"), count(1600, "bag"), count(2, "class")
    ('1 bag', '1,600 bags', '2 classes')
    """
    return f"{n:,} {noun}" + ("" if n == 1 else "es" if noun.endswith("s") else "s")


def listing(names: Iterable[object], separator: str = ", ", most: int = 8) -> str:
    """Join names; of many names only the first ones.

    Examples
    --------
    >>> listing("abcde", most=3)
    'a, b, c, … (2 more)'
    """
    texts = [str(name) for name in names]
    more = [f"… ({len(texts) - most:,} more)"] if len(texts) > most else []
    return separator.join(texts[:most] + more)


def comma_list(names: Iterable[str]) -> str:
    """Join names by commas, as options at the command line take them.

    Examples
    --------
    >>> comma_list(["id", "income, yearly"])
    'id,"income, yearly"'
    """
    return ",".join(f'"{name}"' if "," in name else name for name in names)


def and_more(n: int) -> str:
    """Return how many further things have the same problem as the first, out of n in all.

    Examples
    --------
    >>> and_more(1), and_more(3)
    ('', ' (and 2 more like it)')
    """
    return f" (and {n - 1:,} more like it)" if n > 1 else ""
