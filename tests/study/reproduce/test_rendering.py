"""Rendering: every number is that of a line, and what has no line is empty."""

import re
import shutil
import xml.etree.ElementTree as ET

import matplotlib
import pytest

from apportion.errors import DataError
from apportion.study.reproduce.paper import Paper
from apportion.study.reproduce.rendering import as_markdown, render
from tests.study.reproduce.small import line_of, small_paper


def rows(paper):
    text = as_markdown(paper.tables["table"], paper.results())
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {line[0].replace("`", ""): line[1:] for line in lines}


def test_a_table_has_the_papers_numbers_ours_and_the_difference(tmp_path):
    paper = small_paper(tmp_path / "p")
    paper.add(line_of("fpl", 8, selected=41.5, last=39.0), {})
    assert rows(paper) == {
        "method": ["4", "8"],
        "---": ["---", "---"],
        "fpl, paper": ["50.00", "40.00"],
        "fpl, ours": ["", "41.50 (+1.50)"],
        "fpl, ours, last epoch": ["", "39.00"],
        "proportion-loss, paper": ["30.00", "20.00"],
        "proportion-loss, ours": ["", ""],
        "proportion-loss, ours, last epoch": ["", ""],
    }


def test_a_method_that_the_paper_does_not_have_has_a_row_of_its_own(tmp_path):
    file = small_paper(tmp_path / "p").folder / "table.toml"
    text = file.read_text()
    file.write_text(text.replace("\n[paper]", '\nown = ["greedy"]\n[paper]'))
    paper = Paper(tmp_path / "p")
    assert [cell.method for cell in paper.cells()].count("greedy") == 2
    paper.add(line_of("greedy", 4, selected=12.5, last=11.0), {})
    found = rows(paper)
    assert found["greedy, ours"] == ["12.50", ""]
    assert found["greedy, ours, last epoch"] == ["11.00", ""]
    assert "greedy, paper" not in found


def test_several_seeds_are_a_mean_and_a_spread(tmp_path):
    paper = small_paper(tmp_path / "p")
    for seed, selected in enumerate((30.0, 36.0, 33.0)):
        paper.add(line_of("fpl", 8, seed, selected=selected), {})
    assert rows(paper)["fpl, ours"] == ["", "33.00 ± 3.00 (−7.00)"]


def test_lines_of_other_epochs_are_of_another_table(tmp_path):
    paper = small_paper(tmp_path / "p")
    paper.add(line_of("fpl", 8, epochs=3), {})
    assert rows(paper)["fpl, ours"] == ["", ""]


def test_rendering_changes_what_is_between_the_marks_and_nothing_else(tmp_path):
    paper = small_paper(tmp_path / "p")
    paper.add(line_of("fpl", 8), {"changed": [0.9, 0.5], "label_accuracy": [0.1, 0.2]})
    written = render(paper)
    assert written == ["README.md", "figures/figure-accuracy.svg", "figures/figure-labels.svg"]
    text = (paper.folder / "README.md").read_text()
    assert text.startswith("# Small\n\n<!-- table -->\n| method | 4 | 8 |\n")
    assert text.endswith("|\n<!-- end of table -->\n\nThe end.\n")
    assert "41.50 (+1.50)" in text


def test_the_same_lines_give_the_same_bytes(tmp_path):
    paper = small_paper(tmp_path / "p")
    paper.add(line_of("fpl", 8), {"changed": [0.9, 0.5], "label_accuracy": [0.1, 0.2]})
    once = {name: (paper.folder / name).read_bytes() for name in render(paper)}
    for name in once:
        if name != "README.md":
            (paper.folder / name).unlink()
    again = {name: (paper.folder / name).read_bytes() for name in render(Paper(paper.folder))}
    assert once == again
    paper.add(line_of("fpl", 4), {})
    other = {name: (paper.folder / name).read_bytes() for name in render(paper)}
    assert other["README.md"] != once["README.md"]
    assert other["figures/figure-accuracy.svg"] != once["figures/figure-accuracy.svg"]


def test_figures_are_pictures_with_their_words(tmp_path):
    paper = small_paper(tmp_path / "p")
    for name in render(paper)[1:]:  # without any line
        ET.parse(paper.folder / name)
    paper.add(line_of("fpl", 8), {"changed": [0.9, 0.5], "label_accuracy": [0.1, 0.2]})
    render(paper)
    texts = {
        name: re.sub(r"<[^>]*>", " ", (paper.folder / "figures" / f"{name}.svg").read_text())
        for name in paper.figures
    }
    assert "proportion-loss, paper" in texts["figure-accuracy"]
    assert "labels changed" in texts["figure-labels"]
    assert "fpl" in texts["figure-labels"]


def test_a_readme_without_marks_is_refused_and_left_alone(tmp_path):
    paper = small_paper(tmp_path / "p")
    (paper.folder / "README.md").write_text("nothing")
    with pytest.raises(DataError, match=r"README\.md has no marks of table"):
        render(paper)
    assert (paper.folder / "README.md").read_text() == "nothing"


def test_what_the_repository_shows_is_what_its_lines_give(tmp_path, request):
    """The paper's own folder, byte for byte; figures if matplotlib is that which drew them."""
    root = request.config.rootpath
    shown = root / "papers" / "matsuo2023"
    folder = tmp_path / "matsuo2023"
    shutil.copytree(shown, folder, ignore=shutil.ignore_patterns("figures", "bags"))
    paper = Paper(folder)
    drawn_by = re.findall(r"^matplotlib==(.*)$", (root / "constraints.txt").read_text(), re.M)
    for name in render(paper):
        if name == "README.md" or drawn_by == [matplotlib.__version__]:
            assert (folder / name).read_bytes() == (shown / name).read_bytes(), name
    assert set(paper.results()) <= set(paper.curves())
