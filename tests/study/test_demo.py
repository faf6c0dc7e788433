"""The demo: the same bags for every method, and a verdict that follows from the numbers."""

import pytest

from apportion.cli.demo import SHOWN
from apportion.study import demo
from apportion.study.demo import SUPERVISED, Trial, trial, verdict


def test_true_labels_beat_chance_and_the_seed_decides():
    first = trial(SUPERVISED, seed=1, n_bags=4, epochs=5, threads=1)
    assert first.accuracy > 0.7  # ten classes
    assert trial(SUPERVISED, seed=1, n_bags=4, epochs=5, threads=1).accuracy == first.accuracy


def test_every_method_gets_the_same_instances_and_network(monkeypatch):
    seen = []

    def fit(model, train, *, test, method, config, run):
        weights = [p.detach().clone() for p in model.parameters()]
        seen.append((train, test, weights, config, method))
        return {"test_accuracy": [0.5]}

    monkeypatch.setattr(demo, "fit", fit)
    for method in SHOWN:
        trial(method, seed=3)
    first = seen[0]
    for train, test, weights, config, _ in seen[1:]:
        assert (train.index == first[0].index).all()
        assert (test.x == first[1].x).all()
        assert all((own == other).all() for own, other in zip(weights, first[2], strict=True))
        assert config == first[3]
    sizes = {method: set(train.sizes) for method, (train, *_) in zip(SHOWN, seen, strict=True)}
    assert sizes.pop(SUPERVISED) == {1}
    assert set.union(*sizes.values()) == {128}


def test_training_and_test_share_no_digit(monkeypatch):
    taken = []

    def fit(model, train, *, test, **rest):
        taken.append((train, test))
        return {"test_accuracy": [0.0]}

    monkeypatch.setattr(demo, "fit", fit)
    trial("fpl", seed=0)
    ((train, test),) = taken
    assert train.n_rows + test.n_rows == 1797
    assert test.n_rows == pytest.approx(0.3 * 1797, abs=1)


def test_the_verdict_is_that_of_the_numbers():
    found = {
        "a": [Trial(0.5, 1), Trial(0.7, 1)],
        "b": [Trial(0.8, 1), Trial(0.9, 1)],
        SUPERVISED: [Trial(1.0, 1), Trial(1.0, 1)],
    }
    assert verdict(found).startswith("Here b is ahead of a by 25.0 points")
    assert verdict(found).endswith("do not overlap.")
