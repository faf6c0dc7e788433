"""What to be careful about, and what to do next, each for the runs that it is for."""

import json
from dataclasses import replace

import numpy as np
import pytest

from apportion.report.advice import commands, evidence, next_steps, notices, off_bags
from apportion.report.answers import answers
from apportion.report.read import read_run
from tests.report.made_runs import made_evaluation, made_run

VALID, TRAIN = made_evaluation(20, 2, seed=1), made_evaluation(40, 2)


def logged(run, **numbers):
    """The run with numbers in the last record of its log."""
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    records[-1] |= numbers
    (run / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return run


@pytest.mark.parametrize(
    ("valid", "judged", "expected"),
    [
        (VALID, None, "shown"),
        (replace(VALID, predicted=1 - VALID.predicted), None, "doubtful"),
        (replace(VALID, predicted=1 - VALID.predicted), 3.0, "mixed"),
        (None, 3.0, "expected"),
        (None, 0.5, "doubtful"),
        (None, None, "unknown"),
    ],
)
def test_evidence_is_weighed(tmp_path, valid, judged, expected):
    sets = {"train": TRAIN} | ({} if valid is None else {"valid": valid})
    run = made_run(tmp_path / "a", sets, validated=valid is not None)
    if judged is not None:
        logged(run, skill=0.4, standard_errors=judged)
    read = read_run(run, "a")
    assert evidence(read) == expected
    told = " ".join(step.text for step in next_steps(read))
    assert ("Do not use the predictions" in told) == (expected == "doubtful")
    assert ("Predict new" in told) == (expected != "doubtful")


def test_off_bags_come_the_worst_first(tmp_path):
    far = replace(VALID, predicted=VALID.given.copy())
    for bag, by in ((3, 0.3), (5, 0.45)):
        side = 1 if far.given[bag, 0] < 0.5 else -1
        far.predicted[bag] += np.array([by, -by]) * side
    run = read_run(made_run(tmp_path / "a", {"train": TRAIN, "valid": far}), "a")
    assert off_bags(run, "valid") == [5, 3]


def noticed(run):
    return " ".join(" ".join(notice) for notice in notices(read_run(run, run.name)))


def summed_up(run):
    return " ".join(" ".join(own.sentences) for own in answers(read_run(run, run.name)))


def steps(run):
    return " ".join(" ".join(step) for step in next_steps(read_run(run, run.name)))


def test_a_run_of_the_library_is_gone_on_with_by_the_library(tmp_path):
    found = noticed(made_run(tmp_path / "b", epochs=12, epochs_wanted=100))
    assert "12 of 100 epochs" in found
    assert "call fit again with this folder" in found
    assert "--resume" not in found


def test_an_early_stop_is_an_end(tmp_path):
    evaluations = {"train": made_evaluation(5, 2), "valid": made_evaluation(3, 2)}
    run = made_run(tmp_path / "a", evaluations, epochs=12, epochs_wanted=100, patience=3)
    assert "Not finished" not in noticed(run)
    assert "stopped early: the validation error had not improved for 3 epochs" in summed_up(run)


def test_all_epochs_without_an_evaluation_are_told(tmp_path):
    found = noticed(made_run(tmp_path / "a", epochs=12))
    assert "evaluation.safetensors" in found
    assert "Not finished" not in found


def test_a_validation_error_that_still_falls_is_told(tmp_path):
    evaluations = {"train": made_evaluation(5, 2), "valid": made_evaluation(3, 2)}
    for last, expected in ((0.01, True), (0.5, False)):
        run = made_run(tmp_path / str(last), evaluations, epochs=4)
        records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        records[-1]["valid_error"] = last
        (run / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        assert ("more epochs may lower it" in noticed(run)) == expected


def test_a_model_no_better_than_guessing_is_called_so(tmp_path):
    train, valid = made_evaluation(9, 3), made_evaluation(9, 3, seed=1, noise=1.0)
    for name, own, expected in (("a", valid, True), ("b", made_evaluation(9, 3, seed=1), False)):
        run = made_run(tmp_path / name, {"train": train, "valid": own})
        assert ("no better than the mean of the training bags" in noticed(run)) == expected


def test_without_validation_the_last_epoch_is_kept(tmp_path):
    run = made_run(tmp_path / "a", {"train": made_evaluation(5, 3)}, validated=False)
    assert "no validation bags. The last epoch was kept" in noticed(run)
    assert "on the training bags only" in summed_up(run)
    assert "was selected" not in summed_up(run)


def test_commands_are_those_of_runs_of_the_command_line(tmp_path):
    about = {"data": {"kind": "table"}}
    run = made_run(tmp_path / "a b", epochs=2, epochs_wanted=9, about=about)
    found = [command for _, command in commands(read_run(run, "a"))]
    assert found[0] == "apportion train --resume 'a b'"
    assert found[1].startswith("apportion train 'a b/config.toml' --out ")
    assert commands(read_run(made_run(tmp_path / "c"), "c")) == []
