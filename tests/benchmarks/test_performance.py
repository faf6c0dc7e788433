import json
from pathlib import Path

import pytest

from benchmarks import performance
from benchmarks._figures import FIGURES, Figure
from benchmarks._performance_page import TITLES
from benchmarks._trees import FailedError, Tree

TREES = [Tree(name, Path(), Path(), name[0]) for name in ("before", "now")]


def test_every_figure_has_a_place_on_the_page():
    assert sorted(FIGURES) == sorted(name for names in TITLES.values() for name in names)


def test_the_pages_are_what_the_recorded_lines_give():
    """To write them again: python benchmarks/performance.py --render."""
    for path, make in performance.PAGES.items():
        mark, end = performance.MARKS
        assert f"{mark}{make(performance.recorded())}\n{end}" in path.read_text("utf-8"), path


def test_trees_take_turns_and_a_line_has_the_median_and_the_range():
    seen = []

    def measure(tree, quick):
        seen.append(tree.name)
        return {"a": [len(seen), "s"]}

    before, now = performance.measure("import", Figure(measure, 3), TREES, quick=False)
    assert seen == ["before", "now"] * 3
    assert (before["value"], before["spread"], before["n"]) == (3, [1, 5], 3)
    assert (now["value"], now["spread"], now["tree"], now["commit"]) == (4, [2, 6], "now", "n")


def test_a_tree_that_fails_leaves_its_error_and_the_values_of_the_other():
    def measure(tree, quick):
        if tree.name == "before":
            raise FailedError("exit code 3")
        return {"a": [1.0, "s", {"peer": "POT"}]}

    failed, line = performance.measure("import", Figure(measure, 2), TREES, quick=False)
    assert failed["error"] == "exit code 3"
    assert "value" not in failed
    assert (line["value"], line["peer"], line["n"]) == (1.0, "POT", 2)


def test_a_figure_of_one_tree_is_measured_on_no_other():
    figure = Figure(lambda tree, quick: {"a": [1.0, "s"]}, 1, trees=("now",))
    assert [line["tree"] for line in performance.measure("peers", figure, TREES, False)] == ["now"]


def test_recording_replaces_the_lines_of_a_figure_and_keeps_the_order(tmp_path):
    path = tmp_path / "lines.jsonl"
    first, second = list(FIGURES)[:2]
    for value, name in enumerate((second, first, second)):
        performance.record(path, name, [{"figure": name, "value": value}])
    assert performance.recorded(path) == [
        {"figure": first, "value": 1},
        {"figure": second, "value": 2},
    ]
    assert [json.loads(text) for text in path.read_text().splitlines()]


def test_a_page_without_its_marks_is_refused(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("<!-- performance -->\n")
    monkeypatch.setattr(performance, "PAGES", {page: str})
    with pytest.raises(SystemExit, match="lacks its marks"):
        performance.write_pages()
