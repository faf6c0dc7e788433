"""How well: a verdict first, then figures that say which bags they are of."""

import re
from dataclasses import replace

import numpy as np
import pytest

from apportion.report.read import read_run
from apportion.report.results import how_well
from tests.report.made_runs import logged, made_evaluation, made_run, wrong_bag


def sentences(run):
    return list(how_well(read_run(run, run.name)))


def told(run):
    return " ".join(sentences(run))


def made(folder, *, truth=False, noise=0.1):
    evaluations = {
        "train": made_evaluation(40, 2, truth=truth),
        "valid": made_evaluation(20, 2, seed=1, truth=truth, noise=noise),
    }
    return made_run(folder, evaluations, classes=["no", "yes"]), evaluations


def test_how_well_is_said_in_points_with_an_interval_and_against_the_overall_shares(tmp_path):
    run, evaluations = made(tmp_path / "a")
    train, valid = evaluations["train"], evaluations["valid"]
    error = np.abs(valid.given - valid.predicted).sum(axis=1).mean() / 2
    mean = (train.sizes[:, None] * train.given).sum(axis=0) / train.sizes.sum()
    guess = np.abs(valid.given - mean).sum(axis=1).mean() / 2
    found = told(run)
    assert "On the 20 validation bags, which it did not learn from" in found
    assert f"{100 * error:.1f} percentage points on average" in found
    assert f"; proportion error {error:.4f})" in found
    assert re.search(r"on average \(95% interval \d+\.\d to \d+\.\d; ", found)
    assert f"off by {100 * guess:.1f} percentage points" in found
    assert f"removes {1 - error / guess:.0%} of that error" in found
    assert "Epoch 12 was selected" in found


def test_an_error_as_small_as_chance_leaves_little_to_gain(tmp_path):
    near, far = made(tmp_path / "a", noise=0.02)[0], made(tmp_path / "b", noise=0.6)[0]
    assert "even from right probabilities: little is left to gain" in told(near)
    assert "little is left" not in told(far)


def test_accuracy_stands_beside_that_of_one_answer(tmp_path):
    run, evaluations = made(tmp_path / "a", truth=True)
    confusion = evaluations["valid"].confusion
    assert confusion is not None
    most = confusion.sum(axis=1).max() / confusion.sum()
    found = told(run)
    assert f"would be right for {most:.1%} of those in the validation bags" in found


@pytest.mark.parametrize(
    ("held_out", "skill", "verdict"),
    [
        (12, None, "for every bag): 10% less error on the 12 validation bags may be chance."),
        (12, 0.75, "It probably predicts new bags better than"),
        (0, 0.75, "with about 50% less error, but no bags were held out to show it."),
        (4, 0.75, "with about 50% less error, but the 4 validation bags are too few to show it."),
        (0, None, "How well it predicts new bags is not known: no bags were held out."),
        (4, None, "How well it predicts new bags is not known: 4 validation bags are too few"),
    ],
)
def test_the_first_sentence_is_the_verdict(tmp_path, held_out, skill, verdict):
    sets = wrong_bag()
    if held_out == 0:
        del sets["valid"]
    elif held_out == 4:
        sets["valid"] = made_evaluation(4, 2, truth=False)
    run = made_run(tmp_path / "a", sets, validated=held_out > 0)
    if skill is not None:
        logged(run, skill=skill, standard_errors=4.0)
    assert verdict in sentences(run)[0]
    assert "the same guess for every bag" in sentences(run)[0] or "not known" in verdict


def test_a_model_that_beats_the_overall_shares_is_called_better_at_once(tmp_path):
    assert sentences(made(tmp_path / "a")[0])[0].startswith("It clearly predicts bags that it did")


def test_two_figures_of_unseen_bags_name_their_bags_and_why_they_differ(tmp_path):
    run = logged(made_run(tmp_path / "a", wrong_bag()), skill=0.75, standard_errors=4.0)
    found = told(run)
    error, guess = 6 * 0.1 + 0.45, 11 * 0.06 + 0.51
    saved = f"{1 - error / guess:.0%}"
    assert f"{saved} less error on the 12 validation bags, about 50% on training bags" in found
    assert "there they remove about 50% of the error of the overall shares (75% of the squ" in found
    assert f"That figure is of the training bags, the {saved} above of the validation bags" in found
    assert "12 bags are few, ward-3 weighs much among them and the others lie nearer" in found
    assert "(6.0 percentage points on average, the training bags 20.0)" in found
    assert (
        "Without ward-3, whose difference is 10.8 times that by chance, it would be 5.5 percentage "
        "points against 6.0 for the overall shares (removes 9%)." in found
    )


def test_figures_that_agree_need_no_excuse(tmp_path):
    sets = wrong_bag(by=0.0)
    sets["valid"] = replace(sets["valid"], given=sets["train"].given[:12],
                            predicted=sets["train"].predicted[:12])  # fmt: skip
    run = logged(made_run(tmp_path / "a", sets), skill=1 - 0.25**2, standard_errors=4.0)
    found = told(run)
    assert "there they remove about 75%" in found
    assert "different bags" not in found
    assert "Without" not in found


def test_bags_that_were_learned_from_are_said_to_be_met_more_closely(tmp_path):
    sets = {"train": wrong_bag()["train"]}
    run = made_run(tmp_path / "a", sets, validated=False)
    found = told(logged(run, skill=0.64, standard_errors=4.0))
    assert "the model removes 75% of that error" in found
    assert "there they remove about 40% of the error" in found
    assert "Expect that of new bags: bags that were learned from are met more closely." in found
