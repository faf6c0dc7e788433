"""Processes that torchrun starts share the nets of a table, to the bits of one process."""

import json
import shutil
from pathlib import Path

import pytest

from apportion import Run
from tests.auto.ranked_tables import STEPS, TABLES, result
from tests.auto.tables import leave
from tests.faults.killing import left_behind
from tests.training.test_ranks import together

SCRIPT = Path(__file__).with_name("ranked_tables.py")


@pytest.fixture(autouse=True)
def _short(steps):
    steps(STEPS)


def without_seconds(found):
    records = [{k: v for k, v in r.items() if k != "seconds"} for r in found["records"]]
    return {**found, "records": records}


def check_equal(cases, several):
    """Check that all processes have the same, with its seconds, and that of one process."""
    first, *others = several
    for case in cases:
        assert all(other[case] == first[case] for other in others), case
        alone = json.loads(json.dumps(result(case)))
        assert without_seconds(first[case]) == without_seconds(alone), case


@pytest.mark.slow
def test_three_processes_learn_and_keep_what_one_does(tmp_path):
    """10 nets are not a multiple of 3, and a linear model is a single one."""
    cases = ["table:alike", "table:differing", "table:alike/ridge"]
    alone, new, left = (tmp_path / name for name in ("alone", "new", "left"))
    leave(left, 4)
    runs = {f"run:{new}": 1, f"run:{left}": 5}
    several = together(tmp_path / "three", 3, [*cases, *runs], script=SCRIPT)
    assert len(several) == 3
    check_equal(cases, several)
    kept = result(f"run:{alone}")
    for case, first in runs.items():
        called = [other[case].pop("called") for other in several]
        assert called == [[*range(first, 11)], [], []]
        assert without_seconds(several[0][case])["weights"] == kept["weights"]
        assert several[0][case] == several[1][case] == several[2][case]
    assert left_behind(new) == left_behind(alone) == left_behind(left)


@pytest.mark.slow
def test_two_processes_learn_what_one_does_from_any_table_by_any_method(tmp_path):
    cases = [f"table:{name}" for name in TABLES]
    cases += [f"table:alike/{method}" for method in ("linear", "mean-map", "ridge")]
    check_equal(cases, together(tmp_path / "two", 2, cases, script=SCRIPT))


@pytest.mark.slow
def test_more_processes_than_nets(tmp_path):
    cases = ["table:one bag", "table:alike/linear"]
    several = together(tmp_path / "five", 5, cases, script=SCRIPT)
    assert len(several) == 5
    check_equal(cases, several)


@pytest.mark.slow
def test_a_stop_is_one_of_all_processes_and_one_process_goes_on(tmp_path):
    left, alone = tmp_path / "left", tmp_path / "alone"
    two = together(tmp_path / "two", 2, [f"stop:{left}", "classifier:"], script=SCRIPT)
    assert [other[f"stop:{left}"] for other in two] == ["stopped"] * 2
    assert len(Run(left).records()) == 4  # the fourth was trained beside the third
    again = tmp_path / "again"
    shutil.copytree(left, again)
    assert result(f"run:{left}")["called"] == [*range(5, 11)]
    result(f"run:{alone}")
    assert left_behind(left) == left_behind(alone)
    together(tmp_path / "three", 3, [f"run:{again}"], script=SCRIPT)
    assert left_behind(again) == left_behind(alone)
    assert two[0]["classifier:"] == two[1]["classifier:"]


@pytest.mark.slow
def test_processes_that_would_learn_something_else_are_refused(tmp_path):
    said = {
        "others:": "the training bags of process 1 of 2 are not those of process 0.",
        "seeds:": "the configuration of process 1 of 2 is not that of process 0.",
    }
    first, second = together(tmp_path / "two", 2, said, script=SCRIPT)
    for case, message in said.items():
        assert second[case].startswith(f"ConfigError: {message}")
        assert first[case].startswith("RunError: another of the 2 processes")
