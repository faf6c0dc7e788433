"""`apportion reproduce`, end to end, on a small set in CIFAR-10's format."""

import re

import pytest
from typer.testing import CliRunner

from apportion.cli.app import app
from tests.study.reproduce.small import line_of, small_data, small_paper


def reproduce(folder, *options):
    result = CliRunner().invoke(app, ["reproduce", str(folder), "--device", "cpu", *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_from_files_to_tables(tmp_path):
    paper, data = small_paper(tmp_path / "p"), small_data(tmp_path / "data")
    told = reproduce(paper.folder)
    assert "0 of 6 cells have a result" in told
    assert told.count("bags of") == 6
    told = reproduce(paper.folder, "--only", "bag_size=8,seed=0", "--data", str(data))
    assert "2 cells were run, 0 are left" in told
    before = paper.results()
    assert len(before) == 2
    told = reproduce(paper.folder, "--only", "bag_size=8,seed=0", "--data", str(data))
    assert "2 of 2 cells have a result" in told
    assert "0 cells were run, 0 are left" in told
    told = reproduce(paper.folder, "--next", "--data", str(data), "--render")
    assert "4 cells were run, 0 are left" in told
    assert told.count(" selected, ") == 4
    assert {cell: line for cell, line in paper.results().items() if cell in before} == before
    text = (paper.folder / "README.md").read_text()
    ours = [line for line in text.splitlines() if "`, ours |" in line]
    assert len(ours) == 2
    assert all(
        re.fullmatch(r"\|[^|]*(\| \d+\.\d\d( ± \d+\.\d\d)? \([+−].*?\) ){2}\|", line)
        for line in ours
    )
    assert sum(line.count("±") for line in ours) == 2  # two seeds of fpl


def test_a_dry_run_tells_the_time_and_runs_nothing(tmp_path):
    paper = small_paper(tmp_path / "p")
    told = reproduce(paper.folder, "--next", "--dry-run", "--epochs", "5", "--seeds", "3,4")
    assert "cifar10 · proportion-loss · bags of 8 · seed 3: 50 min" in told
    assert "in all on CPU" in told
    assert paper.results() == {}


def test_nothing_is_started_that_would_not_end_in_time(tmp_path):
    paper = small_paper(tmp_path / "p")
    options = ["--next", "--time-limit", "10", "--data", str(tmp_path), "--device", "cpu"]
    result = CliRunner().invoke(app, ["reproduce", str(paper.folder), *options])
    assert result.exit_code == 1
    assert "0 cells were run, 6 are left" in result.output
    assert "None ends within the time limit" in result.output


def test_a_dry_run_renders_nothing(tmp_path):
    paper = small_paper(tmp_path / "p")
    before = (paper.folder / "README.md").read_text()
    assert "cells have a result" in reproduce(paper.folder, "--dry-run", "--render")
    assert (paper.folder / "README.md").read_text() == before


def test_rendering_needs_neither_data_nor_training(tmp_path):
    paper = small_paper(tmp_path / "p")
    paper.add(line_of("fpl", 4), {})
    told = reproduce(paper.folder, "--render")
    assert "README.md" in told
    assert "cells have a result" not in told
    assert "41.50 (−8.50)" in (paper.folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--seeds", "1,a"], "seeds must be integers, e.g. 0,1,2; got '1,a'"),
        (["--only", "methd=fpl"], "cells have no 'methd'"),
        (["--next", "--data", "nowhere"], "data_batch_1.bin is missing"),
    ],
)
def test_what_makes_no_sense_is_a_message_and_no_traceback(tmp_path, options, problem):
    folder = small_paper(tmp_path / "p").folder
    result = CliRunner().invoke(app, ["reproduce", str(folder), "--device", "cpu", *options])
    assert result.exit_code == 1
    assert problem in result.output
    assert "Traceback" not in result.output
