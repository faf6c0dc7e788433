"""Finding files: the first version that is whole, and what is said when none is."""

import pytest

from apportion.errors import DataError
from apportion.study.datasets._versions import Version, find_version, with_remedy

NEW = Version(("a.new", "b.new"), "unpacked")
OLD = Version(("a.old", "b.old", "c.old"), "archive")
LOOSE = Version(("loose",))
DOWNLOAD = "Download it from somewhere"
REMEDY = f"{DOWNLOAD}, and pass the folder or set the environment variable APPORTION_DATA to it."


def put(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def refused(folder, *versions):
    with pytest.raises(DataError) as caught:
        find_version(folder, versions, DOWNLOAD)
    return str(caught.value).split("\n  ")


@pytest.mark.parametrize("version", [NEW, OLD], ids=["new", "old"])
@pytest.mark.parametrize("unpacked", [False, True])
def test_the_version_that_is_there_is_found(tmp_path, version, unpacked):
    place = tmp_path / version.folder if unpacked else tmp_path
    put(place, *version.names)
    assert find_version(tmp_path, (NEW, OLD), DOWNLOAD) == (version, place)
    assert find_version(str(tmp_path), (NEW, OLD), DOWNLOAD) == (version, place)


def test_the_first_version_is_preferred_wherever_it_is(tmp_path):
    put(tmp_path, *OLD.names)
    put(tmp_path / "unpacked", *NEW.names)
    assert find_version(tmp_path, (NEW, OLD), DOWNLOAD) == (NEW, tmp_path / "unpacked")
    assert find_version(tmp_path, (OLD, NEW), DOWNLOAD) == (OLD, tmp_path)


def test_a_whole_version_is_preferred_to_parts_of_others(tmp_path):
    put(tmp_path, "a.new", "a.old", "b.old")
    put(tmp_path / "archive", *OLD.names)
    assert find_version(tmp_path, (NEW, OLD), DOWNLOAD) == (OLD, tmp_path / "archive")


def test_files_of_two_folders_make_no_version(tmp_path):
    put(tmp_path, "a.new")
    put(tmp_path / "unpacked", "b.new")
    assert refused(tmp_path, NEW)[0] == "b.new is missing (1 of 2 files are)."


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "loose").mkdir()
    assert refused(tmp_path, LOOSE)[0] == "loose is missing (1 of 1 files are)."


def test_the_message_is_about_the_version_that_lacks_fewest(tmp_path):
    put(tmp_path / "archive", "a.old", "c.old")
    assert refused(tmp_path, NEW, OLD) == [
        "b.old is missing (1 of 3 files are).",
        f"looked in: {tmp_path}, {tmp_path / 'unpacked'}, {tmp_path / 'archive'}",
        REMEDY,
    ]
    assert refused(tmp_path / "nowhere", NEW, OLD)[0] == "a.new is missing (2 of 2 files are)."
    assert refused(tmp_path, LOOSE)[1] == f"looked in: {tmp_path}"


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_folder_the_message_says_how_to_name_one(monkeypatch, value):
    monkeypatch.delenv("APPORTION_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("APPORTION_DATA", value)
    problem = "a.new is missing: no folder is given, and APPORTION_DATA is not set."
    assert refused(None, NEW, OLD) == [problem, REMEDY]


def test_the_variable_serves_where_no_folder_is_passed(tmp_path, monkeypatch):
    put(tmp_path, "loose")
    monkeypatch.setenv("APPORTION_DATA", str(tmp_path))
    assert find_version(None, [LOOSE], DOWNLOAD) == (LOOSE, tmp_path)
    assert str(tmp_path / "other") in refused(tmp_path / "other", LOOSE)[1]


@pytest.mark.parametrize("passed", [False, True])
def test_the_home_folder_is_understood(tmp_path, monkeypatch, passed):
    put(tmp_path / "images", "loose")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("APPORTION_DATA", "~/images")
    found = find_version("~/images" if passed else None, [LOOSE], DOWNLOAD)
    assert found == (LOOSE, tmp_path / "images")


def test_a_damaged_file_is_refused_with_the_remedy_of_its_reader():
    @with_remedy("Download it again.")
    def read(content):
        if content == "damaged":
            raise DataError("a.new is damaged.")
        return content

    assert read("whole") == "whole"
    with pytest.raises(DataError, match=r"^a\.new is damaged\.\n  Download it again\.$"):
        read("damaged")
