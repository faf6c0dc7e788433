"""Recorded results: lines that are whole, and say where their numbers come from."""

import subprocess

import numpy as np
import pytest
import torch

from apportion.errors import DataError
from apportion.files import append_line
from apportion.study import results
from apportion.study.results import add_result, provenance, read_results

LINE = {"method": "fpl", "seed": 3, "hardware": "a", "versions": {}, "commit": "b", "auc": 0.5}


def test_lines_are_read_as_they_were_added(tmp_path):
    path = tmp_path / "results.jsonl"
    assert read_results(path) == []
    lines = [{**LINE, "method": name} for name in ("fpl", "naïve")]
    for line in lines:
        add_result(path, line)
    assert read_results(path, ["method", "auc"]) == lines


def test_a_line_that_was_cut_short_is_gone_with_the_next(tmp_path):
    path = tmp_path / "results.jsonl"
    add_result(path, LINE)
    with path.open("a") as file:
        file.write('{"method": "f')
    assert read_results(path) == [LINE]
    add_result(path, LINE)
    assert read_results(path) == [LINE, LINE]


@pytest.mark.parametrize("name", ["seed", "hardware", "versions", "commit"])
def test_a_line_without_its_provenance_is_neither_written_nor_read(tmp_path, name):
    path = tmp_path / "results.jsonl"
    without = {key: value for key, value in LINE.items() if key != name}
    with pytest.raises(DataError, match=rf"results\.jsonl lacks '{name}'"):
        add_result(path, without)
    assert not path.exists()
    add_result(path, LINE)
    append_line(path, without)
    with pytest.raises(DataError, match=rf"line 2 of .*results\.jsonl lacks '{name}'"):
        read_results(path)


def test_a_line_of_something_else_is_refused(tmp_path):
    add_result(tmp_path / "a", LINE)
    with pytest.raises(DataError, match=r"line 1 of .*a lacks 'bag_size'"):
        read_results(tmp_path / "a", ["method", "bag_size"])


def test_the_provenance_names_the_machine_and_the_libraries(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    found = provenance("cpu", "abc")
    assert found["hardware"].startswith("CPU (")
    assert found["hardware"].endswith(", 1 thread)")
    assert found["versions"]["torch"] == torch.__version__
    assert found["versions"]["numpy"] == np.__version__
    assert found["commit"] == "abc"


def test_the_commit_is_that_of_the_code_and_tells_changes(tmp_path, monkeypatch):
    package = tmp_path / "src" / "apportion"
    (package / "study").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    file = package / "study" / "results.py"
    file.write_text("")
    monkeypatch.setattr(results, "__file__", str(file))
    assert results._commit() == "unknown"  # no git, or another's

    def git(*command):
        options = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", *options, *command], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "empty")
    assert results._commit() == "unknown"  # it is in a folder of git's, but not git's
    git("add", ".")
    git("commit", "-q", "-m", "all")
    assert results._commit() == git("rev-parse", "HEAD")
    (package / "train.py").write_text("changed")
    assert results._commit() == git("rev-parse", "HEAD") + " with changes"
