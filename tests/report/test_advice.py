"""What to be careful about, and what to do next, each for the runs that it is for."""

import json
from dataclasses import replace

from apportion.report.advice import commands, next_steps, notices
from apportion.report.answers import answers
from apportion.report.read import read_run
from tests.report.made_runs import logged, made_evaluation, made_run, wrong_bag

VALID, TRAIN = made_evaluation(20, 2, seed=1), made_evaluation(40, 2)


def test_a_bag_that_makes_the_error_is_to_be_checked_before_all(tmp_path):
    read = read_run(made_run(tmp_path / "a", wrong_bag()), "a")
    first, *others = (step.text for step in next_steps(read))
    assert first.startswith("Check ward-3 in the data: are the shares that were given for it right")
    assert first.endswith("If not, mend the data and train again.")
    assert not any("Check" in step for step in others)


def test_advice_says_which_bags_it_follows_from(tmp_path):
    worse = replace(VALID, predicted=1 - VALID.predicted)
    doubtful = made_run(tmp_path / "a", {"train": TRAIN, "valid": worse})
    mixed = logged(made_run(tmp_path / "b", {"train": TRAIN, "valid": worse}),
                   skill=0.4, standard_errors=3.0)  # fmt: skip
    told = [" ".join(step.text for step in next_steps(read_run(r, "r"))) for r in (doubtful, mixed)]
    assert "Do not use the predictions yet: the 20 validation bags do not show clearly" in told[0]
    assert "Predict new instances, with care: its nets did well on training bags that" in told[1]
    alone = logged(made_run(tmp_path / "c", {"train": TRAIN}, validated=False),
                   skill=0.1, standard_errors=0.3)  # fmt: skip
    told = [step.text for step in next_steps(read_run(alone, "c"))]
    assert "its nets did not clearly beat the overall shares" in told[0]


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
