"""A value and why it was chosen, and several of them under their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Choice", "Choices"]


@dataclass(frozen=True)
class Choice:
    """A value, and why it was chosen."""

    value: Any
    reason: str

    def __str__(self) -> str:
        whole = isinstance(self.value, int) and not isinstance(self.value, bool)
        value = f"{self.value:,}" if whole else self.value
        return self.reason if value is None else f"{value} ({self.reason})"


@dataclass(frozen=True)
class Choices:
    """Choices under their names, as fields. Printed, it has one line per choice."""

    def reasons(self) -> dict[str, str]:
        """Return every choice with its reason, as text."""
        return {name: str(choice) for name, choice in self._choices()}

    def _choices(self) -> Iterator[tuple[str, Choice]]:
        found = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ((name, choice) for name, choice in found if choice is not None)

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self._choices()) + 2
        return "\n".join(f"{name:<{width}}{choice}" for name, choice in self._choices())
