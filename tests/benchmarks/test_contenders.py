from itertools import product

import numpy as np
import pytest

from apportion.errors import ConfigError
from benchmarks._cells import Cell, bagged
from benchmarks._contenders import confidence, scores, within_and_across


def test_pairs_within_and_across_bags():
    rng = np.random.default_rng(0)
    truth, score, bags = (rng.integers(high, size=60) for high in (2, 9, 5))
    right: dict = {True: [], False: []}
    for a, b in product(np.flatnonzero(truth == 1), np.flatnonzero(truth == 0)):
        won = 0.5 if score[a] == score[b] else float(score[a] > score[b])
        right[bool(bags[a] == bags[b])].append(won)
    assert within_and_across(truth, score, bags) == pytest.approx(
        (np.mean(right[True]), np.mean(right[False]))
    )


def test_a_model_that_only_knows_bags_is_at_chance_within():
    truth, bags = np.array([0, 1, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 1, 2])
    within, across = within_and_across(truth, bags.astype(float), bags)
    assert within == 0.5
    assert across is not None
    assert across > 0.5
    assert within_and_across(truth, bags, np.zeros(6)) == (5.5 / 8, None)
    assert within_and_across(truth, bags, truth)[0] is None


def test_scores():
    cell = bagged(Cell("breast_cancer", "kmeans-12"), 0)
    sure = np.eye(2)[cell.test_truth]
    found = scores(sure, cell)
    assert found == {
        "auc": 1, "auc_within": 1, "auc_across": 1, "accuracy": 1, "log_loss": 0
    }  # fmt: skip
    wrong = scores(1 - sure, cell)
    assert wrong["auc"] == wrong["accuracy"] == 0
    assert wrong["log_loss"] == pytest.approx(-np.log(1e-6), abs=1e-4)


@pytest.mark.parametrize("method", ["linear", "soft-hgb", "soft-lr", "true-hgb", "true-lr"])
def test_confidences_are_of_the_test_rows_and_better_than_chance(method):
    cell = bagged(Cell("wine", "rand-8"), 0)
    found = confidence(method, cell, 0)
    assert found.shape == (len(cell.test), 3)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)
    auc = scores(found, cell)["auc"]
    assert auc is not None
    assert auc > (0.95 if method.startswith("true") else 0.8)


def test_bounds_see_the_truth_and_baselines_do_not():
    cell = bagged(Cell("wine", "shuffle-32"), 0)
    accuracy = {m: scores(confidence(m, cell, 0), cell)["accuracy"] for m in ("true-lr", "soft-lr")}
    assert accuracy["true-lr"] is not None
    assert accuracy["soft-lr"] is not None
    assert accuracy["true-lr"] > accuracy["soft-lr"] + 0.1


def test_a_name_that_nobody_knows_is_refused():
    with pytest.raises(ConfigError, match="no method 'fppl'"):
        confidence("fppl", bagged(Cell("wine", "rand-8"), 0), 0)
