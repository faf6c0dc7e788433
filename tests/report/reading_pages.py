"""Reads a page back, as a browser would: elements, texts, and the rows of tables."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Element:
    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Element | str] = []

    def all(self, tag: str | None = None, **attributes: str) -> Iterator[Element]:
        """Everything below of some tag and attributes; ``class_`` is one of the classes."""
        for child in self.children:
            if isinstance(child, Element):
                if child._is(tag, attributes):
                    yield child
                yield from child.all(tag, **attributes)

    def _is(self, tag: str | None, attributes: dict[str, str]) -> bool:
        if tag is not None and tag != self.tag:
            return False
        wanted = dict(attributes)
        own = wanted.pop("class_", None)
        if own is not None and own not in self.attributes.get("class", "").split():
            return False
        return all(self.attributes.get(name) == value for name, value in wanted.items())

    def one(self, tag: str | None = None, **attributes: str) -> Element:
        found = list(self.all(tag, **attributes))
        assert len(found) == 1, (tag, attributes, len(found))
        return found[0]

    @property
    def text(self) -> str:
        parts = [c if isinstance(c, str) else c.text for c in self.children]
        return " ".join("".join(parts).split())

    def rows(self) -> list[list[str]]:
        """The cells of a table, row by row, its header first."""
        rows = [[c for c in row.children if isinstance(c, Element)] for row in self.all("tr")]
        return [[cell.text for cell in row] for row in rows]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, (tag, [element.tag for element in self.open])
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read_page(file: Path) -> Element:
    """Read a page; an element that is closed where it is not open is an error."""
    reader = _Reader()
    reader.feed(file.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == [reader.root], [element.tag for element in reader.open]
    return reader.root


def section(page: Element, name: str) -> Element:
    """The section under a heading."""
    return page.one("section", **{"aria-labelledby": name})
