"""Files, written safely: the only code that replaces a file, appends JSON lines or reads TOML.

A file is replaced in one step or not at all: it is written beside its place, forced to the disk,
and renamed. Nothing is ever written through a link: a link in the place of a file is replaced.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError

from apportion.errors import ApportionError, ConfigError, DataError, Option, Words

__all__ = [
    "append_line",
    "as_toml",
    "check_free",
    "opened_itself",
    "parse_toml",
    "read_lines",
    "read_toml",
    "remove_unfinished",
    "replacing",
    "writing",
]

UNFINISHED = ".new"  # the end of the names of files that are not complete yet
BY_SAFETENSORS = ".tmp" + 6 * "[0-9A-Za-z]"  # its own, which it renames to ours: a kill leaves it
PASS_A_PATH = "Pass a path in an existing folder that you may write to and that has space left."


@contextmanager
def writing(
    path: Path, error: type[ApportionError] = DataError, remedy: Words = PASS_A_PATH
) -> Iterator[None]:
    """Turn errors of the operating system while a file is written into one that names the file."""
    try:
        yield
    except (OSError, SafetensorError) as cause:  # safetensors has what the system said in its text
        kept = " The old content is intact." if path.is_file() else ""
        problem = f"{path} cannot be written: {getattr(cause, 'strerror', None) or cause}.{kept}"
        raise error(problem, remedy) from cause


@contextmanager
def replacing(
    path: Path, error: type[ApportionError] = DataError, remedy: Words = PASS_A_PATH
) -> Iterator[Path]:
    """Yield a path to write to, and put what was written in the place of `path` in one step.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.txt")
    ...     with replacing(path) as beside:
    ...         _ = beside.write_text("whole or not at all")
    ...     path.read_text()
    'whole or not at all'
    """
    # Of two processes that write the same file at once, neither may write into the other's.
    beside = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    with writing(path, error, remedy):
        try:
            beside.unlink(missing_ok=True)
            yield beside
            beside.chmod(path.parent.stat().st_mode & 0o666)  # some writers hide their files
            with beside.open("r+b") as file:
                os.fsync(file.fileno())
            beside.replace(path)
            _sync_folder(path.parent)
        finally:
            beside.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Force a rename to the disk, where folders can be opened."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_unfinished(path: Path) -> None:
    """Remove the unfinished files that a killed process has left beside a file."""
    patterns = [f"{glob.escape(path.name)}.*{UNFINISHED}"]
    patterns += [BY_SAFETENSORS] if path.suffix == ".safetensors" else []
    for beside in (found for pattern in patterns for found in path.parent.glob(pattern)):
        if beside.is_symlink() or not beside.is_dir():  # which nothing here has written
            beside.unlink(missing_ok=True)


def check_free(path: Path, *, force: bool, error: type[ApportionError] = DataError) -> None:
    """Check that a file may be written: it does not exist, or may be replaced."""
    if path.is_dir():
        raise error(f"{path} is a folder.", "Pass the path of a file.")
    if not force and os.path.lexists(path):
        raise error(
            f"{path} already exists.",
            ("Pass another path, or ", Option("force"), " to replace it."),
        )


def append_line(
    path: Path, record: Mapping[str, Any], error: type[ApportionError] = DataError
) -> None:
    """Append one JSON line and force it to the disk.

    An unfinished line before it, which a killed process may have left, is removed.
    """
    with opened_itself(path, error) as lines:
        end = lines.seek(0, os.SEEK_END)
        if end and not _ends_with_newline(lines, end):
            lines.seek(0)
            before, newline, rest = lines.read().rpartition(b"\n")
            if _is_json(rest):  # an editor may have removed the end of the line
                lines.write(b"\n")
            else:
                lines.truncate(len(before) + len(newline))
            lines.seek(0, os.SEEK_END)
        lines.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
        lines.flush()
        os.fsync(lines.fileno())


def opened_itself(path: Path, error: type[ApportionError] = DataError) -> BinaryIO:
    """Open a file to change it, and make it if it does not exist; never what a link leads to.

    A file that has a second name elsewhere is replaced by a copy of it first.
    """
    if path.is_symlink():
        raise error(
            f"{path} is a link, and nothing is written through links.",
            "Put the file itself in its place, or remove the link.",
        )
    if path.exists() and path.stat().st_nlink > 1:
        with replacing(path) as beside:
            shutil.copyfile(path, beside)
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    return open(os.open(path, flags, 0o666), "r+b")  # noqa: PTH123 - a descriptor


def _ends_with_newline(lines: Any, end: int) -> bool:
    lines.seek(end - 1)
    return bool(lines.read(1) == b"\n")


def _is_json(text: str | bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def read_lines(path: Path, error: type[ApportionError], remedy: str) -> list[dict[str, Any]]:
    """Read JSON lines, except a last one that is not finished."""
    if not path.exists():
        return []
    try:
        *lines, rest = path.read_text(encoding="utf-8").split("\n")
        lines += [rest] if _is_json(rest) else []
        return [json.loads(line) for line in lines]
    except ValueError as cause:
        raise error(f"{path} is damaged: {cause}.", remedy) from cause


def read_toml(
    path: Path, error: type[ApportionError] = ConfigError, remedy: str = "Correct it."
) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        content = path.read_bytes()
    except OSError as cause:
        raise error(f"{path} cannot be read: {cause.strerror or cause}.", remedy) from cause
    return parse_toml(content, str(path), error, remedy)


def parse_toml(
    content: str | bytes,
    what: str,
    error: type[ApportionError] = ConfigError,
    remedy: str = "Correct it.",
) -> dict[str, Any]:
    """Read TOML that is in memory; an error calls it `what`."""
    try:
        return tomllib.loads(content if isinstance(content, str) else content.decode())
    except RecursionError as cause:
        raise error(f"{what} is nested too deeply.", remedy) from cause
    except ValueError as cause:
        raise error(f"{what} is not valid TOML: {cause}.", remedy) from cause


def as_toml(values: Mapping[str, Any]) -> str:
    """Return flat values as TOML. JSON's numbers, strings, booleans and lists are valid TOML.

    Examples
    --------
    >>> print(as_toml({"epochs": 5, "device": "auto", "threads": None}), end="")
    epochs = 5
    device = "auto"
    """
    plain = {name: value for name, value in values.items() if value is not None}
    lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in plain.items())
    return "".join(lines).replace("\x7f", "\\u007f")  # which JSON allows as it is, TOML does not
