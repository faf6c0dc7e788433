"""Instances that are passed to a report: those of the run, or an error that says what differs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from apportion.errors import RunError
from apportion.report.build import write_report
from apportion.report.instances import Instances, with_instances
from apportion.report.read import read_run
from tests.report.made_runs import made_bags, made_evaluation, made_run

X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
VALID = made_evaluation(8, 3, seed=2)
BAGS = made_bags(VALID, (X,))


@pytest.fixture
def run(tmp_path):
    return made_run(tmp_path / "a", {"train": made_evaluation(9, 3), "valid": VALID})


@pytest.mark.parametrize("as_stored", [np.asarray, torch.from_numpy, list])
def test_the_rows_are_those_of_the_numbers(run, as_stored):
    """Of arrays, of tensors, and of whatever is read row by row."""
    bags = BAGS._changed(x=(as_stored(BAGS.parts[0]),))
    found = with_instances(read_run(run, "a"), {"valid": bags})
    np.testing.assert_array_equal(found.instances["valid"].parts[0], X)
    assert found.instances["valid"].names is None
    names = [str(row) for row in range(10_000)]
    named = with_instances(read_run(run, "a"), Instances({"valid": BAGS}, names))
    assert named.instances["valid"].names == [str(row) for row in VALID.unsure.rows]


def test_a_row_of_a_type_that_numpy_lacks_is_shown(run):
    bags = BAGS._changed(x=(torch.from_numpy(BAGS.parts[0]).bfloat16(),))
    found = with_instances(read_run(run, "a"), {"valid": bags})
    np.testing.assert_allclose(found.instances["valid"].parts[0], X, rtol=0.01)


def other_sizes(bags):
    sizes = bags.sizes.copy()
    sizes[3] -= 1
    kept = np.ones(bags.n_instances, bool)
    kept[bags.offsets[4] - 1] = False
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return bags._changed(index=bags.index[kept], offsets=offsets)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda bags: bags[np.arange(7)], "7 bags instead of 8"),
        (lambda bags: bags._changed(ids=tuple("abcdefgh")), "other names"),
        (lambda bags: bags._changed(proportions=bags.proportions[:, ::-1]), "other proportions"),
        (other_sizes, "in bag 'ward-3' instead of"),
        (lambda bags: bags._changed(index=bags.index[::-1]), "in another bag"),
    ],
)
def test_other_bags_are_refused_and_no_page_is_written(run, change, problem):
    with pytest.raises(RunError, match=problem) as refused:
        write_report([run], instances={"valid": change(BAGS)})
    assert "the validation bags are not those that a was evaluated on" in str(refused.value)
    assert "as they were when it was trained" in str(refused.value)
    assert not (run / "report.html").exists()


def test_what_is_missing_is_named(run):
    with pytest.raises(RunError, match=r"only 'train' are given.\n.*instances=\{'valid': bags\}"):
        write_report([run], instances={"train": BAGS})
    with pytest.raises(RunError, match="have no x"):
        write_report([run], instances={"valid": BAGS._changed(x=None)})
    with pytest.raises(RunError, match="instances of 1 run are given for 2"):
        write_report([run, run], instances=[{"valid": BAGS}])


def test_a_run_that_has_not_ended_shows_none(tmp_path):
    run = read_run(made_run(tmp_path / "a", epochs_wanted=99), "a")
    assert with_instances(run, {"valid": BAGS}) is run


def test_one_mapping_is_for_all_runs(run, tmp_path):
    other = made_run(tmp_path / "b", {"train": made_evaluation(9, 3), "valid": replace(VALID)})
    text = write_report([run, other], tmp_path / "c.html", instances={"valid": BAGS}).read_text()
    assert "not part of this page" not in text
