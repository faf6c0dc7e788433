"""The tree: a test file for every source file, and sentences that say the thing itself."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src" / "apportion", ROOT / "tests"
SOURCES = sorted(SOURCE.rglob("*.py"))
FREE = {"__init__.py", "__main__.py"}
BEGINNINGS = re.compile(r"\s*(Give|Let)s?\b")


def mirror_of(source: Path) -> Path:
    name = source.name.removeprefix("_")
    return TESTS / source.relative_to(SOURCE).with_name(f"test_{name}")


def users_of(source: Path) -> list[Path]:
    """The public files of a private file's room that import it."""
    module = ".".join(("apportion", *source.relative_to(SOURCE).with_suffix("").parts))
    room = source.parent.glob("[!_]*.py")
    return [user for user in room if f"from {module} import" in user.read_text(encoding="utf-8")]


def is_tested(source: Path) -> bool:
    """Whether it has a test file; a private file may be tested by that of a file that uses it."""
    private = source.name.startswith("_")
    return any(mirror_of(file).exists() for file in (source, *(users_of(source) * private)))


def test_every_source_file_has_a_test_file():
    assert len(SOURCES) > 100
    missing = [source for source in SOURCES if source.name not in FREE and not is_tested(source)]
    assert [str(source.relative_to(SOURCE)) for source in missing] == []


def sentences(path: Path, *, messages: bool) -> list[tuple[int, str]]:
    """Docstrings of a file with their lines, and the texts of its errors if `messages`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.append((getattr(node, "lineno", 1), ast.get_docstring(node) or ""))
        if messages and isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            found += [(text.lineno, first_words(text)) for text in node.exc.args]
    return found


def first_words(text: ast.expr) -> str:
    """The beginning of a literal, of an f-string, or of the first of several words."""
    if isinstance(text, ast.JoinedStr | ast.Tuple):
        parts = text.values if isinstance(text, ast.JoinedStr) else text.elts
        return first_words(parts[0]) if parts else ""
    return text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""


@pytest.mark.parametrize("place", [SOURCE, TESTS], ids=lambda place: place.name)
def test_no_docstring_and_no_message_begins_with_give_or_let(place):
    """Docstrings begin with Return, Compute, Read, Write; messages with the thing itself."""
    files = sorted(place.rglob("*.py"))
    bad = [
        f"{path.relative_to(ROOT)}:{line}: {text.partition(chr(10))[0]}"
        for path in files
        for line, text in sentences(path, messages=place == SOURCE)
        if BEGINNINGS.match(text)
    ]
    assert bad == []
