"""The chart of columns: which come first, which are named, and what is said without any."""

import re

from apportion.bags.columns import Columns
from apportion.report.build import write_report
from apportion.report.effects import column_effects, effects_missing
from apportion.report.read import read_run, read_runs
from tests.report.made_runs import made_effects, made_evaluation, made_run
from tests.report.reading_pages import read_page, section


def test_columns_are_drawn_the_largest_effect_first(tmp_path):
    names = [f"column {n}" for n in range(25)]
    evaluation = made_evaluation(40, 3, columns=names)
    run = made_run(tmp_path / "a", {"train": made_evaluation(40, 3), "valid": evaluation})
    shown = section(read_page(write_report([run])), "columns")
    texts = [text.text for text in shown.one("svg", class_="chart").all("text")]
    assert [text for text in texts if text.startswith("column")] == names[:20]
    assert "The 20 largest of 25 columns" in shown.text
    assert "40 validation bags differ" in shown.text
    assert "1,234 rows" in shown.text
    # Every other effect is within its uncertainty.
    assert "the most first: column 0, column 2, column 4" in shown.text
    assert "No other effect is beyond uncertainty" in shown.text
    label = shown.one(role="img").attributes["aria-label"]
    assert "column 0 5.0 percentage points" in label


def test_bars_are_as_long_as_effects_are_large(tmp_path):
    run = made_run(tmp_path / "a", {"train": made_evaluation(40, 3, columns=["a", "b", "c"])})
    found = column_effects(read_run(run, "a"))
    assert found is not None
    paths = re.findall(r'<path d="M ([^"]*?)z" [^>]*?fill: var\(--s1\)', str(found[0].svg))
    widths = []
    for path in paths:
        x = [float(pair.split()[0]) for pair in re.split("L|C", path)]
        widths.append(max(x) - min(x))
    effects = made_effects(["a", "b", "c"]).increase[:, 0]
    assert len(widths) == 3
    for width, effect in zip(widths, effects, strict=True):
        assert abs(width / widths[0] - effect / effects[0]) < 0.01
    assert "which it learned from" in found[0].caption


def test_bars_have_the_colour_of_their_run_and_the_zero_line_leaves_room_for_names(tmp_path):
    sets = {"train": made_evaluation(40, 3, columns=["a", "b", "c"])}
    runs = read_runs([made_run(tmp_path / name, sets) for name in "ab"])
    for run in runs:
        found = column_effects(run)
        assert found is not None
        svg = str(found[0].svg)
        assert len(re.findall(rf"fill: var\(--s{run.number}\)", svg)) == 3
        assert "shuffled" in found[0].caption
        assert "without" not in found[0].caption
        # Lines down the chart: none as high as two of its rows, but for the grid's.
        lines = re.findall(r'd="M ([\d.]+) ([\d.]+)\s*L ([\d.]+) ([\d.]+)\s*" [^>]*muted', svg)
        heights = [abs(float(y2) - float(y1)) for x1, y1, x2, y2 in lines if x1 == x2]
        assert len(heights) >= 3
        assert max(heights) < 34


def test_without_effects_there_is_no_section_and_a_reason_beside_others(tmp_path):
    none = made_run(tmp_path / "a", {"train": made_evaluation(9, 3)})
    page = read_page(write_report([none]))
    assert not list(page.all("section", **{"aria-labelledby": "columns"}))
    many = tuple(f"c{n}" for n in range(201))
    columns = Columns(many, dict.fromkeys(many, 0.0), (), (), {}, {})
    wide = made_run(tmp_path / "b", {"train": made_evaluation(9, 3)},
                    model={"columns": columns.to_dict()})  # fmt: skip
    assert "201 columns, more than 200" in effects_missing(read_run(wide, "b"))
    assert "needs at least 5 bags" in effects_missing(read_run(none, "a"))
    unfinished = made_run(tmp_path / "c")
    assert "after the end" in effects_missing(read_run(unfinished, "c"))
    has = made_run(tmp_path / "d", {"train": made_evaluation(9, 3, columns=["age"])})
    both = section(read_page(write_report([none, has], tmp_path / "both.html")), "columns")
    assert "Not measured" in both.text
    assert len(list(both.all("svg", class_="chart"))) == 1
