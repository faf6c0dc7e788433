"""Training of a table: which nets are trained, what they are together, and what is said of them."""

import numpy as np
import pytest
import torch

from apportion.auto.members import Member, members_of, overdispersion, plan_table
from apportion.auto.train import train_table
from apportion.bags.bags import Bags
from apportion.errors import ConfigError
from apportion.plan import Choice


def ring(n, seed):
    """Rows whose class is whether they are far from the middle: no linear model knows it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)).astype(np.float32)
    return x, ((x**2).sum(axis=1) > 1.4).astype(int)


def bags_of(x, y, size, *, differing, seed=0, **more):
    rng = np.random.default_rng(seed)
    order = np.argsort(y + (0.7 if differing else 1e9) * rng.normal(size=len(y)))
    ids = np.empty(len(y), int)
    ids[order] = np.arange(len(y)) // size
    return Bags.from_rows(x, ids, truth=y, **more)


def in_words(bags):
    return str(plan_table(bags, Choice("auto", "given"), Choice(0.0, "given")))


def weights_of(learned):
    return dict(learned.model.net.state_dict())


@pytest.mark.parametrize("seed", range(3))
def test_overdispersion_is_that_of_the_formula(seed):
    rng = np.random.default_rng(seed)
    sizes, p = rng.integers(2, 9, 6), rng.dirichlet(np.ones(3), 6)
    bags = Bags.from_rows(None, np.repeat(np.arange(6), sizes), p)
    q = sum(n * own for n, own in zip(sizes, p, strict=True)) / sizes.sum()
    total = 0.0
    for n, own in zip(sizes, p, strict=True):
        for c in range(3):
            total += n * (own[c] - q[c]) ** 2 / (q[c] * (1 - q[c]))
    assert overdispersion(bags) == pytest.approx(total / 5 / 3)


def test_overdispersion_of_one_bag_or_one_class_is_0():
    assert overdispersion(Bags.from_rows(None, [0, 0], [[0.5, 0.5]])) == 0
    assert overdispersion(Bags.from_rows(None, [0, 1], [[1.0, 0.0], [1.0, 0.0]])) == 0


def test_bags_that_differ_are_shared_out_and_others_are_not():
    x, y = ring(400, 0)
    alike, differing = (bags_of(x, y, 20, differing=own) for own in (False, True))
    kinds = ["likelihood", "proportions", "linear start"]
    assert members_of(alike) == [
        *(Member(kind) for kind in kinds),
        *(Member(kind, fold, False) for fold in (0, 1) for kind in kinds),
    ]
    assert members_of(differing) == [
        Member(kind, fold, True) for fold in range(4) for kind in kinds
    ]
    assert "one net of each kind, on all bags" in in_words(alike)
    assert "4 nets of each kind" in in_words(differing)


def test_several_classes_have_a_linear_member_and_one_bag_has_no_folds(steps):
    three = Bags.from_rows(np.eye(6), [0, 0, 1, 1, 2, 2], truth=[0, 1, 2, 0, 1, 2])
    assert [m.kind for m in members_of(three)][:3] == ["likelihood", "linear start", "linear"]
    one = Bags.from_rows(np.eye(4), [0] * 4, truth=[0, 1, 0, 1])
    assert [m.fold for m in members_of(one)] == [None] * 3
    steps(4)
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
    assert "less error" in str(learned.expectation)


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
