"""What a trained model makes of its bags, against sums written out by hand, and as a file."""

import numpy as np
import pytest
import torch

from apportion import Bags, TrainConfig, fit
from apportion.engine.device import own_threads
from apportion.nets.build import build
from apportion.runs.run import Run
from apportion.training.evaluate import BINS, MOST_UNSURE, measure, read_outcomes, save_outcomes


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
    return torch.from_numpy(logits).softmax(dim=1)[bags.index]


def known(array):
    assert array is not None
    return array


def test_every_number_is_what_its_name_says(bags, confidence):
    outcome, scores = measure(bags, confidence), confidence.numpy()
    assert outcome.ids == list(bags.ids)
    assert outcome.given is bags.proportions
    for i in range(6):
        own = scores[bags.offsets[i] : bags.offsets[i + 1]]
        np.testing.assert_allclose(outcome.predicted[i], own.mean(axis=0))
    confusion, calibration = np.zeros((3, 3), int), np.zeros((BINS, 3))
    for score, truth in zip(scores, bags.truth, strict=True):
        confusion[truth, score.argmax()] += 1
        right = score.argmax() == truth
        calibration[int(score.max() * BINS)] += (1, score.max(), right)
    np.testing.assert_array_equal(outcome.confusion, confusion)
    np.testing.assert_allclose(known(outcome.calibration), calibration)


def test_the_least_sure_rows_come_first_and_once(bags, confidence):
    unsure, scores = measure(bags, confidence).unsure, confidence.numpy()
    ranked = np.sort(scores, axis=1)
    margin = dict(zip(bags.index, ranked[:, -1] - ranked[:, -2], strict=True))  # of each row
    expected = sorted(margin, key=margin.__getitem__)[:MOST_UNSURE]
    assert unsure.rows.tolist() == expected
    for k, row in enumerate(unsure.rows):
        first, last = bags.offsets[unsure.bags[k] : unsure.bags[k] + 2]
        assert row in bags.index[first:last]
        at = int(np.flatnonzero(bags.index == row)[0])
        np.testing.assert_array_equal(unsure.confidence[k], scores[at])
        assert known(unsure.truth)[k] == bags.truth[at]
        np.testing.assert_array_equal(unsure.x[0][k], bags.x[row])


def test_certainty_falls_into_the_last_bin_and_one_class_has_no_margin():
    bags = Bags.from_rows(np.zeros((4, 1)), list("aabb"), truth=["only"] * 4)
    outcome = measure(bags, torch.ones(4, 1))
    assert known(outcome.calibration)[-1].tolist() == [4, 4, 4]
    assert outcome.unsure.rows.tolist() == [0, 1, 2, 3]


def test_without_truth_nothing_is_said_of_it(bags, confidence):
    outcome = measure(bags.without_truth(), confidence)
    assert outcome.confusion is None
    assert outcome.calibration is None
    assert outcome.unsure.truth is None


def test_a_file_gives_back_what_went_in(tmp_path, bags, confidence):
    run = Run(tmp_path)
    assert read_outcomes(run) == ([], {})
    parts = (bags.x, np.arange(90, dtype=np.int16))
    both = Bags.from_members(parts, {7: [1, 2], "é": [3]}, {7: [0.5, 0.5], "é": [1, 0]})
    saved = {"train": measure(bags, confidence), "valid": measure(both, torch.eye(3)[:, :2])}
    save_outcomes(run, bags.classes, saved)
    classes, read = read_outcomes(run)
    assert classes == ["a", "b", "c"]
    assert list(read) == ["train", "valid"]
    assert read["valid"].ids == [7, "é"]
    assert read["valid"].confusion is None
    assert read["valid"].calibration is None
    assert [part.dtype for part in read["valid"].unsure.x] == [np.float32, np.int16]
    for name in ("sizes", "given", "predicted", "confusion", "calibration"):
        np.testing.assert_array_equal(getattr(read["train"], name), getattr(saved["train"], name))
    for name in ("rows", "bags", "confidence", "truth", "x"):
        ours, theirs = (getattr(o["train"].unsure, name) for o in (read, saved))
        np.testing.assert_array_equal(ours, theirs)


def test_training_leaves_the_outcome_of_the_selected_model(tmp_path, bags):
    train, valid, _ = bags.split(0.4, seed=0)
    model = build("mlp", bags, seed=0)
    with own_threads(1):
        config = TrainConfig(epochs=9, learning_rate=0.01, device="cpu")
        history = fit(model, train, valid, test=bags, config=config, run=tmp_path)
        assert history.best_epoch != 9  # otherwise the last model would do as well
        expected = model(torch.from_numpy(bags.x)).softmax(dim=1).detach()
    _, outcomes = read_outcomes(Run(tmp_path))
    assert list(outcomes) == ["train", "valid", "test"]
    for name, own in (("train", train), ("valid", valid), ("test", bags)):
        direct = measure(own, expected[torch.from_numpy(own.index)])
        np.testing.assert_allclose(outcomes[name].predicted, direct.predicted, atol=1e-6)
        np.testing.assert_array_equal(outcomes[name].confusion, direct.confusion)
