"""How much numbers say: what is off, what is shown, and what a few bags change."""

from dataclasses import replace

import numpy as np
import pytest

from apportion.report.advice import next_steps
from apportion.report.read import read_run
from apportion.report.weigh import (
    evidence,
    off_bags,
    times_chance,
    told_class,
    usual_chance,
    without_off,
)
from tests.report.made_runs import logged, made_evaluation, made_run, wrong_bag

VALID, TRAIN = made_evaluation(20, 2, seed=1), made_evaluation(40, 2)


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


def test_a_bag_is_off_by_times_what_its_own_size_explains():
    bags = replace(
        made_evaluation(2, 2),
        given=np.array([[0.2, 0.8], [0.2, 0.8]]),
        predicted=np.array([[0.5, 0.5], [0.3, 0.7]]),
        sizes=np.array([10, 1000]),
    )
    by_chance = [np.sqrt(2 / np.pi * p * (1 - p) / n) for p, n in ((0.5, 10), (0.3, 1000))]
    whole = [1 / 30, 1 / 3000]
    expected = [0.3 / (by_chance[0] + whole[0]), 0.1 / (by_chance[1] + whole[1])]
    assert times_chance(bags) == pytest.approx(expected)
    assert expected[0] < 3 < expected[1]  # the smaller gap, of the larger bag


def test_off_bags_come_the_most_times_chance_first(tmp_path):
    far = replace(VALID, predicted=VALID.given.copy(), sizes=np.full(20, 200))
    for bag, by in ((3, 0.3), (5, 0.45)):
        side = 1 if far.given[bag, 0] < 0.5 else -1
        far.predicted[bag] += np.array([by, -by]) * side
    run = read_run(made_run(tmp_path / "a", {"train": TRAIN, "valid": far}), "a")
    times = times_chance(far)
    assert off_bags(run, "valid") == sorted((3, 5), key=lambda bag: -times[bag])


def test_chance_is_the_same_for_all_runs_of_the_same_bags(tmp_path):
    far = replace(VALID, predicted=np.full_like(VALID.predicted, 0.5))
    runs = [read_run(made_run(tmp_path / name, {"train": TRAIN, "valid": own}), name)
            for name, own in (("a", VALID), ("b", far))]  # fmt: skip
    one, other = (usual_chance(run, "valid") for run in runs)
    assert one == other
    p, n = VALID.given[:, 0], VALID.sizes
    assert one == pytest.approx(np.sqrt(2 / np.pi * p * (1 - p) / n).mean(), rel=0.15)


def test_of_two_classes_the_rarer_one_is_told_of(tmp_path):
    for name, order in (("a", [0, 1]), ("b", [1, 0])):
        sets = {of: replace(own, given=own.given[:, order], predicted=own.predicted[:, order])
                for of, own in wrong_bag().items()}  # fmt: skip
        assert told_class(read_run(made_run(tmp_path / name, sets), name)) == order[0]
    three = made_run(tmp_path / "c", {"train": made_evaluation(5, 3)})
    assert told_class(read_run(three, "c")) is None


def test_errors_without_a_bag_are_told_where_they_matter(tmp_path):
    sets = wrong_bag()
    found = without_off(read_run(made_run(tmp_path / "a", sets), "a"), "valid")
    assert found is not None
    left = [bag for bag in range(12) if bag != 3]
    given = sets["valid"].given[left, 0]
    assert found.bags == [3]
    assert found.error == pytest.approx(6 * 0.1 / 11)
    assert found.of_overall == pytest.approx(np.abs(given - 0.3).mean())
    assert found.saved == pytest.approx(1 - 6 * 0.1 / 11 / 0.06)
    small = wrong_bag()
    small["valid"].given[3] -= [0.25, -0.25]  # off, but of little weight among many
    many = {"train": small["train"], "valid": replace(
        made_evaluation(80, 2, truth=False), sizes=np.full(80, 100),
        given=np.concatenate([small["valid"].given] + [small["train"].given[:34]] * 2),
        predicted=np.concatenate([small["valid"].predicted] + [small["train"].predicted[:34]] * 2),
    )}  # fmt: skip
    run = read_run(made_run(tmp_path / "b", many), "b")
    assert off_bags(run, "valid") == [3]
    assert without_off(run, "valid") is None
