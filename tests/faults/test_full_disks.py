"""Disks that are full or cannot be written: a message each time, and nothing that is lost.

The disks are those of these tests alone: from some call on, whatever changes files fails. Whether
real ones do the same, `tests/training/test_archive_resumed.py` and the last tests here look at.
"""

import errno
import os
import shutil
import subprocess

import pytest

from tests.cli.wards_on_disk import QUICK, run, train_in, write
from tests.faults.killing import CALLS, left_behind


class Failing:
    """Calls that change files, which fail from the n-th on, or only the n-th."""

    def __init__(self, monkeypatch):
        self.heal()
        for name in CALLS:
            monkeypatch.setattr(os, name, self.watched(getattr(os, name)))

    def watched(self, original):
        def called(*arguments, **options):
            self.calls += 1
            if self.first <= self.calls <= self.last:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return original(*arguments, **options)

        return called

    def fail(self, first, last):
        self.calls, self.first, self.last = 0, first, last

    def heal(self):
        self.fail(1, 0)


def follow(result, begin, folder):
    """Do as the message says, until the run is finished."""
    for _ in range(4):
        if result.exit_code == 0 and "Put back" not in result.stderr:
            return result
        goes_on = "--resume" in result.stderr or "run again" in result.stderr
        result = run("train", "--resume", folder) if goes_on else run(*begin)
        if "Start it again" in result.stderr or "does not exist" in result.stderr:
            result = run(*begin)
    return result


def checked(every, first, last, failing, tmp_path, *, force):
    """Fail somewhere, follow the messages, and compare."""
    files = every["files"]
    folder = tmp_path / f"{first}-{last}-{force}"
    if force:
        shutil.copytree(every["other"], folder)
    begin = ["train", *files, *QUICK, "--out", folder, *(["--force"] if force else [])]
    failing.fail(first, last)
    result = run(*begin)
    failing.heal()
    if result.exit_code:
        assert result.exit_code == 1, (first, result.output)
        assert "No space left on device" in result.stderr, (first, result.output)
        assert "error in apportion" not in result.stderr, (first, result.output)
        aside = folder.with_name(f"{folder.name}.replaced")
        left = [left_behind(path) for path in (folder, aside) if path.exists()]
        assert not force or every["before"] in left or every["after"] in left, first
        result = follow(result, begin, folder)
    assert result.exit_code == 0, (first, result.output)
    if left_behind(folder) != every["after"]:  # put back: its replacement never began
        assert left_behind(folder) == every["before"]
        assert run(*begin).exit_code == 0
    assert left_behind(folder) == every["after"], first


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    """A run, and another one to be replaced by it."""
    folder = train_in(tmp_path_factory.mktemp("every"))
    files = write(folder)
    assert run("train", *files, *QUICK, "--seed", 1, "--out", folder / "b").exit_code == 0
    before, after = left_behind(folder / "b"), left_behind(folder / "a")
    return {"files": files, "before": before, "after": after, "other": folder / "b"}


def count_of(every, failing, folder, *, force):
    if force:
        shutil.copytree(every["other"], folder)
    failing.heal()
    more = ["--force"] if force else []
    assert run("train", *every["files"], *QUICK, "--out", folder, *more).exit_code == 0
    return failing.calls


@pytest.mark.parametrize("force", [False, True], ids=["new", "force"])
@pytest.mark.parametrize("share", [0, 0.1, 0.3, 0.6, 0.9, 1])
def test_a_disk_that_is_full_from_some_call_on(every, tmp_path, monkeypatch, share, force):
    failing = Failing(monkeypatch)
    n = count_of(every, failing, tmp_path / "counted", force=force)
    checked(every, 1 + round(share * (n - 1)), 10**9, failing, tmp_path, force=force)


@pytest.mark.slow
@pytest.mark.parametrize("force", [False, True], ids=["new", "force"])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
def test_a_disk_that_fails_at_every_call(every, tmp_path, monkeypatch, lasting, force):
    failing = Failing(monkeypatch)
    n = count_of(every, failing, tmp_path / "counted", force=force)
    for first in range(1, n + 1):
        checked(every, first, 10**9 if lasting else first, failing, tmp_path, force=force)
    print(f"{n} failing calls: all named, all finished equal")  # noqa: T201 - pytest -s shows it


@pytest.fixture
def disk(tmp_path):
    """A real filesystem, where the machine lets us mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.name != "posix" or shutil.which("mount") is None:
        pytest.skip("there is no mount command")
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this user may not mount a disk: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_folder_on_a_disk_that_is_read_only(disk, tmp_path):
    folder, files = train_in(disk) / "a", write(tmp_path)
    (folder / "evaluation.safetensors").unlink()
    shutil.copytree(folder, disk / "b.replaced")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for command in (
        ["train", "--resume", folder],
        ["train", "--resume", folder, "--epochs", 5],
        ["train", *files, *QUICK, "--out", folder, "--force"],
        ["train", *files, *QUICK, "--out", disk / "b"],
        ["train", *files, *QUICK, "--out", disk / "c" / "d"],
        ["predict", folder, tmp_path / "rows.csv", "--out", disk / "p.csv"],
        ["report", folder],
        ["predict", folder, tmp_path / "rows.csv", "--last", "--out", tmp_path / "p.csv"],
    ):
        result = run(*command)
        if "--last" in command:
            assert result.exit_code == 0, result.output
        else:
            assert result.exit_code == 1, result.output
            assert "Read-only file system" in result.stderr
