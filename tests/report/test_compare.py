"""Several runs side by side: what is best, and what differs."""

from dataclasses import replace

import numpy as np

from apportion.report.build import write_report
from apportion.report.compare import differences
from apportion.report.read import read_runs
from tests.report.made_runs import made_evaluation, made_run
from tests.report.reading_pages import read_page, section


def told(*runs):
    return read_page(write_report(list(runs), runs[0].with_suffix(".html"), force=True))


def error(evaluation):
    return float(np.mean(np.abs(evaluation.given - evaluation.predicted).sum(axis=1)) / 2)


def test_the_comparison_marks_the_best_where_bags_are_the_same(tmp_path):
    bags = made_evaluation(8, 3, seed=1)
    near = replace(bags, predicted=0.5 * (bags.given + bags.predicted))
    far = made_run(tmp_path / "far", {"valid": bags}, epochs=9)
    close = made_run(
        tmp_path / "close", {"valid": near}, epochs=5, method="proportion-loss", seed=3
    )
    page = told(far, close)
    table = next(iter(section(page, "comparison").all("table")))
    header, *rows = table.rows()
    at = header.index("validation error")
    assert [row[0] for row in rows] == ["far", "close"]
    assert [row[at] for row in rows] == [f"{error(bags):.4f}", f"{error(near):.4f}"]
    assert [cell.text for cell in table.all("td", class_="best")] == [f"{error(near):.4f}"]
    assert [row[header.index("length")] for row in rows] == ["9 epochs", "5 epochs"]
    differing = list(section(page, "comparison").all("table"))[1].rows()[1:]
    assert ["train.epochs", "9", "5"] in differing
    assert ["method.name", "fpl", "proportion-loss"] in differing
    assert not any(row[0] == "train.batch_size" for row in differing)


def test_runs_of_different_bags_are_not_ranked(tmp_path):
    one = made_run(tmp_path / "1", {"valid": made_evaluation(8, 3, seed=1)})
    two = made_run(tmp_path / "2", {"valid": made_evaluation(8, 5, seed=2)})
    open_one = made_run(tmp_path / "3", epochs=2, epochs_wanted=9)
    for runs in ((one, two), (one, open_one)):
        page = told(*runs)
        assert "cannot be compared directly" in section(page, "comparison").text
        assert not list(page.all("td", class_="best"))


def test_the_same_number_is_nobody_s_best(tmp_path):
    same = made_evaluation(8, 3)
    page = told(*(made_run(tmp_path / name, {"valid": same}) for name in "ab"))
    assert not list(page.all("td", class_="best"))
    assert "All runs have the same configuration." in section(page, "comparison").text


def test_reasons_of_a_plan_are_not_among_the_differences(tmp_path):
    runs = [
        made_run(tmp_path / str(n), about={"plan": {"epochs": f"{n} (chosen)"}}, epochs=n)
        for n in (2, 3)
    ]
    assert [option for option, _ in differences(read_runs(runs))] == ["train.epochs"]
