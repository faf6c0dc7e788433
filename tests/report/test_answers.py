"""Five questions, answered from the numbers of a run: each sentence where it belongs alone."""

import re
from dataclasses import replace

import numpy as np
import pytest

from apportion.report.answers import answers, of_data
from apportion.report.read import read_run
from tests.report.made_runs import made_evaluation, made_run

QUESTIONS = ("What was learned, from what?", "How well?", "How far can it be trusted?",
             "Which bags are off?", "What to do next?")  # fmt: skip


def told(run, **options):
    found = answers(read_run(run, run.name), **options)
    return {
        own.question: " ".join([*own.sentences, *(" ".join(step) for step in own.steps)])
        for own in found
    }


def made(folder, n_train=40, n_valid=20, *, truth=False, noise=0.1, **options):
    evaluations = {
        "train": made_evaluation(n_train, 2, truth=truth),
        "valid": made_evaluation(n_valid, 2, seed=1, truth=truth, noise=noise),
    }
    return made_run(folder, evaluations, classes=["no", "yes"], **options), evaluations


def test_all_five_are_answered_in_order(tmp_path):
    assert tuple(told(made(tmp_path / "a")[0])) == QUESTIONS
    assert next(iter(told(made(tmp_path / "b")[0], shared=True))) == "How was it learned?"


def test_what_was_learned_names_what_a_bag_is_and_what_was_not_used(tmp_path):
    about = {"data": {"kind": "table", "bag": "ward", "rows": "rows.csv"}}
    run, evaluations = made(tmp_path / "a", about=about)
    found = " ".join(of_data(read_run(run, "a")))
    assert "tells 2 classes (no and yes) of single rows" in found
    assert f"{evaluations['train'].sizes.sum():,} in all" in found
    assert "A bag is a group of rows, by the column 'ward'" in found
    assert "never the class of a single row." in found
    images = made(tmp_path / "b", about={"data": {"kind": "images"}})[0]
    assert "never the class of a single image" in " ".join(of_data(read_run(images, "b")))


@pytest.mark.parametrize(
    ("options", "trust", "step"),
    [
        ({}, "holds beyond its training bags: validation bags are predicted better", "Predict new"),
        ({"noise": 1.0}, "Do not rely on it yet: on the validation bags", "Do not use the pred"),
        ({"n_valid": 4}, "Nothing here tells whether new bags", "Predict new"),
    ],
)
def test_trust_follows_from_held_out_bags(tmp_path, options, trust, step):
    found = told(made(tmp_path / "a", **options)[0])
    assert trust in found["How far can it be trusted?"]
    assert step in found["What to do next?"]
    assert ("Predict new" in found["What to do next?"]) != ("Do not" in found["What to do next?"])


def test_limits_are_named_where_they_are(tmp_path):
    few = told(made(tmp_path / "a", n_train=12, n_valid=6)[0])["How far can it be trusted?"]
    assert "It learned from 12 bags only" in few
    assert "6 validation bags are few" in few
    many = told(made(tmp_path / "b")[0])["How far can it be trusted?"]
    assert "only" not in many
    assert "are few" not in many
    assert "whether single" in many.lower()
    known = told(made(tmp_path / "c", truth=True)[0])["How far can it be trusted?"]
    assert "no true classes were given" not in known
    for found in (few, many, known):
        assert "bags like these" in found
        assert "also selected the epoch" in found


def test_bags_that_are_alike_are_called_so(tmp_path):
    train = made_evaluation(40, 2, truth=False)
    alike = replace(train, given=0.5 + 0.01 * (train.given - 0.5))
    for name, own, expected in (("a", alike, True), ("b", train, False)):
        run = made_run(tmp_path / name, {"train": own}, validated=False)
        assert ("The bags are alike" in told(run)["How far can it be trusted?"]) == expected


def test_without_held_out_bags_the_error_flatters_and_some_are_to_be_held_out(tmp_path):
    about = {"data": {"kind": "table", "rows": "rows.csv"}}
    run = made_run(tmp_path / "a", {"train": made_evaluation(40, 2)}, validated=False, about=about)
    found = told(run)
    assert "which it learned from" in found["How well?"]
    assert "flatters" in found["How far can it be trusted?"]
    step = "apportion train a/config.toml --validation 0.2 --out runs/held-out"
    assert step in found["What to do next?"]


def with_one_off(n, by):
    """Bags of one size that are met but for one."""
    bags = made_evaluation(n, 2, truth=False)
    given = np.tile([0.5, 0.5], (n, 1))
    given[::2] = [0.1, 0.9]
    predicted = given.copy()
    predicted[3] = [0.5 + by, 0.5 - by]
    return replace(bags, given=given, predicted=predicted, sizes=np.full(n, 100))


def test_bags_are_off_beyond_what_their_size_explains(tmp_path):
    # 100 instances differ by √(2/π · 0.5 · 0.5 / 100) = 4 points by chance, and one of them is 1.
    for by, expected in ((0.10, False), (0.20, True)):
        run = made_run(tmp_path / str(by), {"train": with_one_off(30, by)}, validated=False,
                       classes=["no", "yes"])  # fmt: skip
        found = told(run)
        if expected:
            assert (
                "1 is off by more than 3 times what chance explains in a bag of its size: ward-3"
                in found[QUESTIONS[3]]
            )
            assert "Check ward-3 in the data" in found[QUESTIONS[4]]
        else:
            assert "none is off by more than 3 times" in found[QUESTIONS[3]]
            assert "Check" not in found[QUESTIONS[4]]
        # Overall "no" is rarer, by 30% to 70%: it is the class that is told of, always.
        times = by / (np.sqrt(2 / np.pi * (0.25 - by**2) / 100) + 1 / 300)
        gap = f"known 50.0%, predicted {50 + 100 * by:g}.0%, too high; {times:.1f} times chance)"
        assert f"ward-3 (share of no: {gap}" in found[QUESTIONS[3]]


def test_one_bag_that_makes_all_the_doubt_is_named(tmp_path):
    sets = {}
    for of, n in (("train", 40), ("valid", 12)):
        own = with_one_off(n, 0.0)
        given = 0.5 + 0.1 * (own.given - 0.5)
        sets[of] = replace(own, given=given, predicted=given.copy())
    sets["valid"].predicted[3] = [0.99, 0.01]
    run = made_run(tmp_path / "a", sets)
    found = told(run)["How far can it be trusted?"]
    assert "Do not rely on it yet" in found
    assert re.search(
        r"Without ward-3, which is off, it would be clearly better \(\d.*better", found
    )


def test_an_unfinished_run_is_to_be_ended_first(tmp_path):
    about = {"data": {"kind": "table"}}
    run = made_run(tmp_path / "a", epochs=3, epochs_wanted=9, about=about)
    found = told(run)
    assert found["What to do next?"] == "Finish the training. apportion train --resume a"
    assert "So far epoch 3 has the lowest" in found["How well?"]
    assert "How far can it be trusted?" not in found
