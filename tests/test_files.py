"""Files: replaced whole or not at all, JSON lines that survive a kill, TOML that comes back."""

import os
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.numpy import save_file

from apportion.errors import ConfigError, DataError, RunError
from apportion.files import append_line, as_toml, check_free, read_lines, read_toml, replacing

# ------------------------------------------------------------------------------------ replacement


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def replace(path, write):
    with replacing(path, RunError, "Make room on the disk.") as beside:
        write(beside)


@pytest.fixture
def config(tmp_path):
    return tmp_path / "config.toml"


def fails_at_once(path):
    raise OSError(28, "No space left on device")


def fails_half_way(path):
    with path.open("wb") as file:
        file.write(b"half of the new")
    raise OSError(28, "No space left on device")


def stops_half_way(path):
    path.write_bytes(b"half of the new")
    raise KeyboardInterrupt


def test_replace_puts_a_whole_file_in_place(config):
    for text in ("first", "second"):
        replace(config, lambda path, text=text: path.write_text(text))
        assert files(config.parent) == {"config.toml": text.encode()}


def test_until_it_is_written_the_old_file_stands(config):
    replace(config, lambda path: path.write_text("old"))

    def write(path):
        assert path.parent == config.parent  # so that a rename does not cross filesystems
        path.write_text("new, as yet unfinished")
        assert config.read_text() == "old"

    replace(config, write)
    assert config.read_text() == "new, as yet unfinished"


def test_what_is_put_in_place_has_reached_the_disk(config, monkeypatch):
    """Otherwise a power failure may leave the new name on no content at all."""
    order = []
    fsync, rename = os.fsync, os.replace

    def recorded_fsync(descriptor):
        name = Path(f"/proc/self/fd/{descriptor}").resolve().name
        order.append(("sync", name))
        fsync(descriptor)

    def recorded_replace(source, target):
        order.append(("rename", Path(target).name))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    replace(config, lambda path: path.write_text("new"))
    assert [what for what, _ in order] == ["sync", "rename", "sync"]
    if Path("/proc/self/fd").exists():
        assert order[0][1].startswith("config.toml")
        assert order[2][1] == config.parent.name

    order.clear()
    append_line(config.with_name("log.jsonl"), {"epoch": 1})
    assert [what for what, _ in order] == ["sync"]


@pytest.mark.parametrize("write", [fails_at_once, fails_half_way])
@pytest.mark.parametrize("before", [None, "old"])
def test_a_writer_that_fails_leaves_the_old_file_and_no_litter(config, write, before):
    if before is not None:
        config.write_text(before)
    held = files(config.parent)
    with pytest.raises(RunError) as refused:
        replace(config, write)
    assert files(config.parent) == held
    problem, remedy = str(refused.value).split("\n  ")
    assert f"{config} cannot be written: No space left on device" in problem
    assert ("The old content is intact." in problem) == (before is not None)
    assert "Make room on the disk" in remedy
    assert isinstance(refused.value.__cause__, OSError)


def test_a_writer_that_is_interrupted_leaves_the_old_file_and_no_litter(config):
    config.write_text("old")
    held = files(config.parent)
    with pytest.raises(KeyboardInterrupt):
        replace(config, stops_half_way)
    assert files(config.parent) == held


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_late_leaves_the_old_file_and_no_litter(config, call, monkeypatch):
    config.write_text("old")
    held = files(config.parent)

    def fail(*arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(RunError, match=r"Input/output error\. The old content is intact"):
        replace(config, lambda path: path.write_text("new"))
    monkeypatch.undo()
    assert files(config.parent) == held


def test_litter_of_a_killed_process_is_in_nobodys_way(config):
    """It is killed while it writes: the unfinished file stays, until the next one is written."""
    found = []

    def write(path):
        found.append(path)
        path.write_text("old")

    replace(config, write)
    found[0].write_text("a longer text that was never finished")
    replace(config, lambda path: path.write_text("new"))
    assert files(config.parent) == {"config.toml": b"new"}


def test_a_link_is_replaced_and_never_written_through(config, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("precious")
    config.symlink_to(outside)
    config.with_name(f"config.toml.{os.getpid()}.new").symlink_to(outside)
    replace(config, lambda path: path.write_text("new"))
    assert outside.read_text() == "precious"
    assert not config.is_symlink()
    assert config.read_text() == "new"


def test_files_are_as_readable_as_their_folder(config):
    config.parent.chmod(0o755)

    def hidden(path):
        path.write_text("new")
        path.chmod(0o600)

    replace(config, hidden)
    assert config.stat().st_mode & 0o777 == 0o644


def test_a_file_that_exists_is_replaced_by_force_alone(config):
    check_free(config, force=False)
    config.write_text("old")
    check_free(config, force=True)
    with pytest.raises(DataError, match="already exists") as refused:
        check_free(config, force=False)
    assert "force=True" in str(refused.value)
    assert "--force" in refused.value.worded(lambda option: option.flag)
    with pytest.raises(RunError, match="is a folder"):
        check_free(config.parent, force=True, error=RunError)


# -------------------------------------------------------------------------------------- JSON lines


@pytest.mark.parametrize("rest", [b"", b'{"a": 1', b'{"a": "\xff', b"nonsense"])
def test_a_line_cut_short_is_not_read_and_gives_way_to_the_next(tmp_path, rest):
    path = tmp_path / "log.jsonl"
    append_line(path, {"first": "é"})
    with path.open("ab") as file:
        file.write(rest)
    if b"\xff" not in rest:
        assert read_lines(path, RunError, "") == [{"first": "é"}]
    append_line(path, {"second": 2})
    assert read_lines(path, RunError, "") == [{"first": "é"}, {"second": 2}]


def test_a_whole_line_without_its_end_is_kept(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"first": 1}\n{"second": 2}')
    append_line(path, {"third": 3})
    assert [*map(str, read_lines(path, RunError, ""))] == [
        "{'first': 1}",
        "{'second': 2}",
        "{'third': 3}",
    ]


@pytest.mark.parametrize("text", [b"{\n{}\n", b"\xff\n"])
def test_a_damaged_line_is_named(tmp_path, text):
    path = tmp_path / "log.jsonl"
    path.write_bytes(text)
    with pytest.raises(RunError, match=r"log\.jsonl is damaged") as refused:
        read_lines(path, RunError, "Restore it.")
    assert "Restore it." in str(refused.value)


def test_lines_are_not_appended_through_a_link(tmp_path):
    outside, path = tmp_path / "outside", tmp_path / "log.jsonl"
    outside.write_text("")
    path.symlink_to(outside)
    with pytest.raises(DataError, match=r"log\.jsonl is a link, and nothing is written through"):
        append_line(path, {"a": 1})
    assert outside.read_text() == ""


def test_lines_are_not_appended_to_a_file_of_two_names(tmp_path):
    outside, path = tmp_path / "outside", tmp_path / "log.jsonl"
    outside.write_text('{"a": 1}\n')
    path.hardlink_to(outside)
    append_line(path, {"a": 2})
    assert outside.read_text() == '{"a": 1}\n'
    assert path.read_text() == '{"a": 1}\n{"a": 2}\n'


# -------------------------------------------------------------------------------------------- TOML

plain = st.one_of(
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)


@given(
    st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.one_of(plain, st.lists(plain)))
)
def test_toml_comes_back(values):
    assert tomllib.loads(as_toml(values)) == values


@pytest.mark.parametrize("content", [b"[train", b"\xff = 1", b"a=" + b"[" * 10**5, None])
def test_a_file_that_is_no_toml_is_named(tmp_path, content):
    path = tmp_path / "a.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.toml"):
        read_toml(path)


def test_what_safetensors_could_not_write_is_named(tmp_path):
    told = r"a cannot be written: .*No such file or directory"
    with pytest.raises(DataError, match=told) as refused, replacing(tmp_path / "a"):
        save_file({"a": np.zeros(1)}, tmp_path / "missing" / "b")
    assert isinstance(refused.value.__cause__, SafetensorError)
    assert not [*tmp_path.iterdir()]
