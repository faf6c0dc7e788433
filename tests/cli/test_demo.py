"""The verb `demo`: a table of means and ranges, a report, and a folder of its own."""

import io
import re

import pytest
from rich.console import Console

from apportion import Run, RunError
from apportion.cli.demo import REPORTED, SHOWN, clear, show
from apportion.report import build
from apportion.runs.evaluation import read_evaluations
from apportion.study import demo
from apportion.study.demo import Trial, trial
from tests.cli.wards_on_disk import run


def test_demo_prints_a_table_and_no_log(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(demo, "trial", lambda method, seed, **options: demo.Trial(0.5, 1.0))
    monkeypatch.setattr(build, "write_report", lambda runs, out, **shown: out)
    result = run("demo", "--seeds", "2", "--out", str(tmp_path / "demo"))
    assert result.exit_code == 0
    assert all(method in result.stdout for method in SHOWN)
    assert "means over 2 draws" in " ".join(result.stdout.split())
    assert run("demo", "--seeds", "0").exit_code == 2


def test_table_shows_means_and_ranges(monkeypatch, tmp_path):
    accuracies = {"fpl": [0.9, 0.8], "greedy": [0.5, 0.7]}

    def fake(method, seed, **options):
        return Trial(accuracies.get(method, [0.25, 0.25])[seed], seconds=1.5)

    monkeypatch.setattr(demo, "trial", fake)
    monkeypatch.setattr(build, "write_report", lambda runs, out, **shown: out)
    console = Console(width=100, record=True, file=io.StringIO())
    show(console, tmp_path, seeds=2)
    text = console.export_text()
    assert (tmp_path / "report.html").as_uri() in text
    assert "fpl is ahead of greedy by 25.0 points on average" in " ".join(text.split())
    (fpl,) = re.findall(r"│ fpl .*", text)
    assert re.search(r"85\.0% │ 80\.0% – 90\.0% │ +1\.5", fpl)
    (greedy,) = re.findall(r"│ greedy .*", text)
    assert "60.0%" in greedy
    assert all(method in text for method in SHOWN)


def test_the_first_draw_becomes_a_report(monkeypatch, tmp_path):
    def quick(method, seed, **options):
        return trial(method, seed, **{**options, "n_bags": 2, "epochs": 2})

    monkeypatch.setattr(demo, "trial", quick)
    show(Console(file=io.StringIO()), tmp_path / "demo", seeds=1)
    page = (tmp_path / "demo" / "report.html").read_text()
    for method in REPORTED:
        _, evaluations = read_evaluations(Run(tmp_path / "demo" / method))
        assert evaluations["test"].sizes.sum() == 539
        assert method in page
    assert "data:image/png" in page  # digits, to look at


def test_a_folder_is_cleared_of_a_demo_alone(tmp_path):
    clear(tmp_path / "new", force=False)
    (tmp_path / "fpl").mkdir()
    with pytest.raises(RunError, match="--force"):
        clear(tmp_path, force=False)
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match="more than a demo"):
        clear(tmp_path, force=True)
    (tmp_path / "thesis.txt").unlink()
    clear(tmp_path, force=True)
    assert not tmp_path.exists()
