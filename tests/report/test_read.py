"""Run folders, read: names, columns and the network, and what is damaged."""

import re

import pytest

from apportion.bags.columns import Columns
from apportion.errors import RunError
from apportion.report.build import write_report
from apportion.report.read import read_run
from tests.report.made_runs import made_evaluation, made_run
from tests.report.reading_pages import read_page, section


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path):
    runs = [made_run(tmp_path / parent / "a", epochs=2) for parent in ("x", "y")]
    page = read_page(write_report(runs, tmp_path / "page.html"))
    rows = next(iter(section(page, "comparison").all("table"))).rows()[1:]
    assert [row[0] for row in rows] == ["x/a", "y/a"]


def test_columns_and_the_network_are_those_of_the_model(tmp_path):
    columns = Columns(("age",), {"age": 40.0}, (), (), {}, {})
    recipe = {"net": "mlp", "hidden": [8]}
    model = {"columns": columns.to_dict(), "recipe": recipe}
    run = read_run(made_run(tmp_path / "a", model=model), "a")
    assert run.columns == columns
    assert run.recipe == recipe
    without = read_run(made_run(tmp_path / "b"), "b")
    assert without.columns is None
    assert without.recipe == {}


@pytest.mark.parametrize(
    "line",
    ["[]", "{}", '{"epoch": "2"}', '{"epoch": 2, "loss": "low"}', '{"epoch": 2, "seconds": 3}',
     '{"epoch": 2, "loss": [1]}', '{"epoch": 2, "seconds": {"train": "long"}}'],
)  # fmt: skip
def test_a_line_of_the_log_that_is_none_of_an_epoch_is_named(tmp_path, line):
    run = made_run(tmp_path / "a", epochs=1)
    with (run / "log.jsonl").open("a") as log:
        log.write(f"{line}\n")
    with pytest.raises(RunError, match=re.escape(f"{run}/log.jsonl is damaged: line 2 ")):
        read_run(run, "a")


def test_the_selected_epoch_is_the_first_of_the_lowest_error(tmp_path):
    run = made_run(tmp_path / "a", epochs=1)
    errors = [0.3, 0.1, None, 0.1]
    lines = [f'{{"epoch": {n}, "valid_error": {e}}}\n' for n, e in enumerate(errors, start=1)]
    (run / "log.jsonl").write_text("".join(lines).replace("None", "null"))
    assert read_run(run, "a").selected["epoch"] == 2


def test_a_run_without_evaluations_tells_what_its_log_does(tmp_path):
    unfinished = read_run(made_run(tmp_path / "a", epochs=3, epochs_wanted=9), "a")
    assert unfinished.error("valid") == unfinished.selected["valid_error"]
    assert unfinished.accuracy("valid") == unfinished.selected["valid_accuracy"]
    assert unfinished.error("test") is None
    finished = read_run(made_run(tmp_path / "b", {"valid": made_evaluation(3, 2)}), "b")
    assert finished.error("valid") != finished.selected["valid_error"]
    assert finished.held_out == finished.with_truth == "valid"
