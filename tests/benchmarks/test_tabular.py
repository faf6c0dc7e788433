import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from apportion.study.results import add_result
from benchmarks import tabular
from benchmarks._cells import Cell

ROOT = Path(__file__).parents[2]


def options(path, **changes):
    given = {"data": None, "seeds": [0, 1], "only": [], "results": path, "commit": "abc"}
    return Namespace(**{**given, **changes})


def test_a_training_gives_a_line_and_is_not_repeated(tmp_path):
    asked = options(tmp_path / "lines.jsonl", only=["^wine rand-8 exact", "true-lr$"])
    first, second = tabular.missing(asked)
    assert first == (Cell("wine", "rand-8"), 0, "true-lr", None, "abc")
    line = tabular.run(first)
    add_result(asked.results, line)
    assert (line["n_bags"], line["n_instances"], line["commit"]) == (16, 128, "abc")
    assert line["accuracy"] > 0.9
    assert line["auc_within"] is None
    assert tabular.missing(asked) == [second]


def test_seeds_come_one_after_the_other_and_files_only_with_a_folder(tmp_path):
    path = tmp_path / "none.jsonl"
    without, data = tabular.missing(options(path)), tabular.missing(options(path, data=tmp_path))
    assert [seed for _, seed, *_ in without] == sorted(seed for _, seed, *_ in without)
    assert {cell.table for cell, *_ in without} == {"breast_cancer", "digits2", "digits10", "wine"}
    assert {cell.table for cell, *_ in data} >= {"adult", "bank", "magic"}


def test_a_failure_is_told_and_has_no_result(tmp_path):
    line = tabular.run((Cell("bank", "rand-32"), 0, "fpl", tmp_path, None))
    assert line["error"].startswith("FileNotFoundError")
    assert "auc" not in line


def test_a_page_without_marks_is_left_alone(tmp_path, monkeypatch):
    page = tmp_path / "tables.md"
    page.write_text("a <!-- tabular -->\nold\n<!-- end of tabular --> b", "utf-8")
    monkeypatch.setattr(tabular, "PAGE", page)
    tabular.write("new")
    assert page.read_text("utf-8") == "a <!-- tabular -->\nnew\n<!-- end of tabular --> b"
    page.write_text("nothing", "utf-8")
    with pytest.raises(SystemExit, match="lacks its marks"):
        tabular.write("new")


@pytest.mark.slow
def test_as_a_script_from_a_plain_source_tree(tmp_path):
    path, environment = tmp_path / "lines.jsonl", {**os.environ, "PYTHONPATH": "src"}
    command = [sys.executable, "benchmarks/tabular.py", "--jobs", "1", "--seeds", "0"]
    command += ["--results", str(path), "--only", "^wine rand-8 exact (soft|true)-lr$"]
    for told in ("2/2 wine", ""):
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert told in done.stdout if told else not done.stdout
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert sorted(line["method"] for line in lines) == ["soft-lr", "true-lr"]
    stopped = subprocess.run(
        [*command, "--time-limit", "0", "--results", str(tmp_path / "others.jsonl")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "2 of 2 trainings are left" in stopped.stdout
