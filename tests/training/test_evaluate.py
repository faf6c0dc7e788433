"""The evaluation of a model on its bags, against sums written out by hand."""

import numpy as np
import pytest
import torch

from apportion import Bags, TrainConfig, fit
from apportion.engine.device import own_threads
from apportion.nets.build import build_net
from apportion.runs.evaluation import BINS, read_evaluations
from apportion.runs.run import Run
from apportion.training.evaluate import MOST_UNSURE, _least_of_rows, evaluate


@pytest.fixture
def bags():
    rng = np.random.default_rng(0)
    x, members = (
        rng.normal(size=(90, 4)).astype(np.float32),
        [rng.permutation(90)[:20] for _ in range(6)],
    )
    names = [f"bag {i}" for i in range(6)]
    return Bags.from_members(x, dict(zip(names, members, strict=True)), truth=list("abc") * 30)


@pytest.fixture
def confidence(bags):
    """Rows of x have one confidence each, however many bags they stand in."""
    logits = np.random.default_rng(1).normal(size=(90, 3))
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return scores[bags.index]


def known(array):
    assert array is not None
    return array


def test_every_number_is_what_its_name_says(bags, confidence):
    found = evaluate(bags, confidence)
    assert found.ids == list(bags.ids)
    assert found.given is bags.proportions
    for i in range(6):
        own = confidence[bags.offsets[i] : bags.offsets[i + 1]]
        np.testing.assert_allclose(found.predicted[i], own.mean(axis=0))
    confusion, calibration = np.zeros((3, 3), int), np.zeros((BINS, 3))
    for score, truth in zip(confidence, bags.truth, strict=True):
        confusion[truth, score.argmax()] += 1
        right = score.argmax() == truth
        calibration[int(score.max() * BINS)] += (1, score.max(), right)
    np.testing.assert_array_equal(found.confusion, confusion)
    np.testing.assert_allclose(known(found.calibration), calibration)


@pytest.mark.parametrize("n_values", [1, 3, 40, 10**6])
@pytest.mark.parametrize("n_rows", [1, 20, 25, 400])
def test_the_least_of_rows_are_those_of_a_whole_sort(n_values, n_rows):
    rng = np.random.default_rng(n_values)
    values, rows = rng.integers(n_values, size=5000) / 7, rng.integers(n_rows, size=5000)
    order = np.argsort(values, kind="stable")
    first = list(dict.fromkeys(rows[order].tolist()))[:MOST_UNSURE]
    found = _least_of_rows(values, rows)
    assert rows[found].tolist() == first
    assert found.tolist() == [next(k for k in order if rows[k] == row) for row in first]


def test_the_least_sure_rows_come_first_and_once(bags, confidence):
    unsure = evaluate(bags, confidence).unsure
    ranked = np.sort(confidence, axis=1)
    margin = dict(zip(bags.index, ranked[:, -1] - ranked[:, -2], strict=True))  # of each row
    expected = sorted(margin, key=margin.__getitem__)[:MOST_UNSURE]
    assert unsure.rows.tolist() == expected
    for k, row in enumerate(unsure.rows):
        first, last = bags.offsets[unsure.bags[k] : unsure.bags[k] + 2]
        assert row in bags.index[first:last]
        at = int(np.flatnonzero(bags.index == row)[0])
        np.testing.assert_array_equal(unsure.confidence[k], confidence[at])
        assert known(unsure.truth)[k] == bags.truth[at]


def test_certainty_falls_into_the_last_bin_and_one_class_has_no_margin():
    bags = Bags.from_rows(np.zeros((4, 1)), list("aabb"), truth=["only"] * 4)
    found = evaluate(bags, np.ones((4, 1), np.float32))
    assert known(found.calibration)[-1].tolist() == [4, 4, 4]
    assert found.unsure.rows.tolist() == [0, 1, 2, 3]


def test_without_truth_nothing_is_said_of_it(bags, confidence):
    found = evaluate(bags.without_truth(), confidence)
    assert found.confusion is None
    assert found.calibration is None
    assert found.unsure.truth is None


def test_instances_are_neither_needed_nor_kept(bags, confidence):
    found = evaluate(bags._changed(x=None), confidence)
    wanted = evaluate(bags, confidence)
    np.testing.assert_array_equal(found.unsure.rows, wanted.unsure.rows)
    assert not hasattr(found.unsure, "x")


def test_instances_whose_truth_is_not_known_are_left_out(bags, confidence):
    truth = bags.truth.copy()
    truth[::3] = -1
    found = evaluate(bags._changed(truth=truth), confidence)
    told = truth >= 0
    guess = confidence.argmax(axis=1)
    assert known(found.confusion).sum() == told.sum() == known(found.calibration)[:, 0].sum()
    assert np.trace(known(found.confusion)) == (guess == truth)[told].sum()
    for i in range(6):
        own = slice(bags.offsets[i], bags.offsets[i + 1])
        assert known(found.known)[i] == told[own].sum()
        assert known(found.right)[i] == (told & (guess == truth))[own].sum()


def test_training_leaves_the_evaluation_of_the_selected_model(tmp_path, bags):
    train, valid, _ = bags.split(0.4, seed=0)
    model = build_net("mlp", bags, seed=0)
    with own_threads(1):
        config = TrainConfig(epochs=9, learning_rate=0.01, device="cpu")
        history = fit(model, train, valid, test=bags, config=config, run=tmp_path)
        assert history.best_epoch != 9  # otherwise the last model would do as well
        expected = model(torch.from_numpy(bags.x)).softmax(dim=1).detach().numpy()
    _, found = read_evaluations(Run(tmp_path))
    assert list(found) == ["train", "valid", "test"]
    for name, own in (("train", train), ("valid", valid), ("test", bags)):
        direct = evaluate(own, expected[own.index])
        np.testing.assert_allclose(found[name].predicted, direct.predicted, atol=1e-6)
        np.testing.assert_array_equal(found[name].confusion, direct.confusion)
