"""The demo: the same bags for every method, and a table that says what came out."""

import io
import re

import pytest
from rich.console import Console

from apportion import Run, RunError
from apportion.cli.demo import REPORTED, SHOWN, clear, show
from apportion.report import build
from apportion.runs.evaluation import read_evaluations
from apportion.study import demo
from apportion.study.demo import SUPERVISED, Trial, trial, verdict


def test_true_labels_beat_chance_and_the_seed_decides():
    first = trial(SUPERVISED, seed=1, n_bags=4, epochs=5, threads=1)
    assert first.accuracy > 0.7  # ten classes
    assert trial(SUPERVISED, seed=1, n_bags=4, epochs=5, threads=1).accuracy == first.accuracy


def test_every_method_gets_the_same_instances_and_network(monkeypatch):
    seen = []

    def fit(model, train, *, test, method, config, run):
        weights = [p.detach().clone() for p in model.parameters()]
        seen.append((train, test, weights, config, method))
        return {"test_accuracy": [0.5]}

    monkeypatch.setattr(demo, "fit", fit)
    for method in SHOWN:
        trial(method, seed=3)
    first = seen[0]
    for train, test, weights, config, _ in seen[1:]:
        assert (train.index == first[0].index).all()
        assert (test.x == first[1].x).all()
        assert all((own == other).all() for own, other in zip(weights, first[2], strict=True))
        assert config == first[3]
    sizes = {method: set(train.sizes) for method, (train, *_) in zip(SHOWN, seen, strict=True)}
    assert sizes.pop(SUPERVISED) == {1}
    assert set.union(*sizes.values()) == {128}


def test_training_and_test_share_no_digit(monkeypatch):
    taken = []

    def fit(model, train, *, test, **rest):
        taken.append((train, test))
        return {"test_accuracy": [0.0]}

    monkeypatch.setattr(demo, "fit", fit)
    trial("fpl", seed=0)
    ((train, test),) = taken
    assert train.n_rows + test.n_rows == 1797
    assert test.n_rows == pytest.approx(0.3 * 1797, abs=1)


def test_table_shows_means_and_ranges(monkeypatch, tmp_path):
    accuracies = {"fpl": [0.9, 0.8], "greedy": [0.5, 0.7]}

    def fake(method, seed, **options):
        return Trial(accuracies.get(method, [0.25, 0.25])[seed], seconds=1.5)

    monkeypatch.setattr(demo, "trial", fake)
    monkeypatch.setattr(build, "write_report", lambda runs, out: out)
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


def test_the_verdict_is_that_of_the_numbers():
    found = {
        "a": [Trial(0.5, 1), Trial(0.7, 1)],
        "b": [Trial(0.8, 1), Trial(0.9, 1)],
        SUPERVISED: [Trial(1.0, 1), Trial(1.0, 1)],
    }
    assert verdict(found).startswith("Here b is ahead of a by 25.0 points")
    assert verdict(found).endswith("do not overlap.")


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
