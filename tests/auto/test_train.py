"""Training of a table: which nets are trained, what they are together, and what is said of them."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from apportion.auto.members import folds_of, members_of
from apportion.auto.train import train_table
from apportion.bags.bags import Bags
from apportion.errors import ConfigError
from tests.auto.tables import bags_of, ring, ring_in_bags


def weights_of(learned):
    return dict(learned.model.net.state_dict())


def test_one_bag_is_learned_from_without_any_to_judge_by(steps):
    steps(4)
    one = Bags.from_rows(np.eye(4), [0] * 4, truth=[0, 1, 0, 1])
    learned = train_table(one, device="cpu")
    assert learned.expectation is None
    assert np.isfinite(learned.model.predict_proba(np.eye(4))).all()


@pytest.mark.parametrize("differing", [False, True])
def test_it_learns_what_no_linear_model_can(differing, steps):
    steps(60)
    x, y = ring(1000, 0)
    bags = bags_of(x, y, 10, differing=differing)
    learned = train_table(bags, device="cpu", threads=1)
    new, truth = ring(2000, 1)
    assert (learned.model.predict(new) == truth).mean() > 0.9  # the larger class has half
    assert learned.expectation is not None
    assert learned.expectation.learned
    assert learned.expectation.skill > 0.3
    assert "less squared error" in str(learned.expectation)


@pytest.mark.slow
def test_it_says_when_nothing_can_be_learned(steps):
    """By chance a bag or two are predicted well, so that one of three may look learned."""
    steps(60)
    x, y = ring(400, 0)
    bags = bags_of(x, y, 20, differing=True)
    said = []
    for seed in range(3):
        shuffled = bags.proportions[np.random.default_rng(seed).permutation(bags.n_bags)]
        silent = Bags.from_rows(x, _ids(bags), dict(zip(bags.ids, shuffled, strict=True)))
        found = train_table(silent, device="cpu", threads=1).expectation
        assert found is not None
        assert found.skill < 0.2
        said.append("perhaps nothing can be learned" in str(found))
    assert sum(said) >= 2


def _ids(bags):
    ids = np.empty(bags.n_instances, int)
    ids[bags.index] = np.repeat(bags.ids, bags.sizes)
    return ids


def test_equal_bags_and_seeds_give_equal_bits_and_the_truth_gives_nothing(steps):
    steps(4)
    x, y = ring(120, 0)
    bags = bags_of(x, y, 12, differing=False)
    first, again = (train_table(own, seed=3, device="cpu") for own in (bags, bags.without_truth()))
    other = train_table(bags, seed=4, device="cpu")
    a, b, c = map(weights_of, (first, again, other))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)
    assert first.expectation == again.expectation


def test_images_are_refused():
    bags = Bags.from_rows(np.zeros((4, 1, 8, 8)), [0, 0, 1, 1], [[0.5, 0.5]] * 2)
    with pytest.raises(ConfigError, match="auto is for tables, but the instances are images"):
        train_table(bags)


@pytest.mark.parametrize("differing", [False, True])
def test_a_net_sees_all_bags_but_those_of_its_fold(differing, monkeypatch, steps):
    """And takes the steps of all bags, whichever it sees."""
    module: Any = import_module("apportion.auto.train")
    steps(1)
    bags = ring_in_bags(160, 0, 8, differing=differing)
    seen, real = [], module.train_net

    def watched(kind, own, **options):
        seen.append((set(own.ids), options["step"]))
        return real(kind, own, **options)

    monkeypatch.setattr(module, "train_net", watched)
    train_table(bags, seed=5, device="cpu")
    folds = folds_of(bags, 5)
    for member, (ids, step) in zip(members_of(bags), seen, strict=True):
        left_out = {name for name, fold in zip(bags.ids, folds, strict=True) if fold == member.fold}
        assert ids == set(bags.ids) - left_out
        assert bool(left_out) == (member.fold is not None)
        assert step == 160


@pytest.mark.parametrize("method", ["auto", "ridge"])
def test_held_out_bags_teach_nothing(method, steps):
    steps(2)
    bags, valid = ring_in_bags(80, 0, 8, differing=True), ring_in_bags(80, 1, 8, differing=True)
    other = valid.with_rows(valid.x + 100, None)
    options: Any = {"method": method, "device": "cpu"}
    a, b = (weights_of(train_table(bags, own, **options)) for own in (valid, other))
    assert all(torch.equal(a[name], b[name]) for name in a)
