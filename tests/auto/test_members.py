"""The members of an average: which nets are trained for which bags, and what is said of them."""

import numpy as np
import pytest

from apportion.auto.members import (
    Member,
    check_is_table,
    folds_of,
    members_of,
    overdispersion,
    plan_table,
)
from apportion.bags.bags import Bags
from apportion.errors import ConfigError
from apportion.plan.choices import Choice
from apportion.plan.held_out import share_reported
from tests.auto.tables import bags_of, ring


def in_words(bags):
    return str(plan_table(bags, Choice("auto", "given"), Choice(0.0, "given")))


def in_order_of_seeds(bags):
    """The members by their numbers, which they are then without."""
    members = sorted(members_of(bags), key=lambda member: member.number)
    assert [member.number for member in members] == [*range(len(members))]
    return [member._replace(number=0) for member in members]


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
    kinds = ["likelihood", "linear start", "linear"]
    assert in_order_of_seeds(alike) == [
        *(Member(kind) for kind in kinds),
        *(Member(kind, fold, False) for fold in (0, 1) for kind in kinds),
        Member("small steps"),
    ]
    kinds = ["likelihood", "proportions", "linear start"]
    assert in_order_of_seeds(differing) == [
        Member(kind, fold, True) for fold in range(4) for kind in kinds
    ]
    said = "one net of each kind, on all bags (likelihood, linear start, linear); and one in small"
    assert said in in_words(alike)
    assert "4 nets of each kind" in in_words(differing)


def test_several_classes_have_a_linear_member_and_one_bag_has_no_folds():
    three = Bags.from_rows(np.eye(6), [0, 0, 1, 1, 2, 2], truth=[0, 1, 2, 0, 1, 2])
    kinds = ["likelihood", "linear start", "linear"]
    assert [m.kind for m in in_order_of_seeds(three)][:3] == kinds
    assert in_order_of_seeds(three)[-1] == Member("small steps")
    assert sum(m.kind == "small steps" for m in members_of(three)) == 1
    one = Bags.from_rows(np.eye(4), [0] * 4, truth=[0, 1, 0, 1])
    assert [m.fold for m in members_of(one)] == [None] * 4
    assert members_of(three, "ridge") == [Member("ridge")]


def test_neighbours_take_about_as_long():
    """Else ranks that train one each would wait for each other."""
    x, y = ring(400, 0)
    alike, differing = (members_of(bags_of(x, y, 20, differing=own)) for own in (False, True))
    assert [str(m) for m in alike[:3]] == ["small steps", "likelihood", "linear start"]
    assert [m.fold for m in alike] == [None] * 4 + [0, 1] * 3
    assert [m.kind for m in differing] == [
        *["likelihood"] * 4,
        *["proportions"] * 4,
        *["linear start"] * 4,
    ]


@pytest.mark.parametrize("differing", [False, True])
def test_folds_are_of_equal_size_and_are_those_of_the_members(differing):
    x, y = ring(420, 0)
    bags = bags_of(x, y, 20, differing=differing)
    folds, again, other = (folds_of(bags, seed) for seed in (0, 0, 1))
    sizes = np.bincount(folds)
    assert set(folds) == {m.fold for m in members_of(bags)} - {None}
    assert sizes.sum() == bags.n_bags
    assert sizes.max() - sizes.min() <= 1
    assert (folds == again).all()
    assert (folds != other).any()


def test_no_more_folds_than_bags():
    pure = Bags.from_rows(np.eye(40), np.arange(40) // 20, [[1, 0], [0, 1]])
    assert overdispersion(pure) > 2
    assert sorted(folds_of(pure, 0)) == [0, 1]
    assert {m.fold for m in members_of(pure)} == {0, 1}


def test_members_are_named_by_what_they_see():
    said = [str(m) for m in (Member("a"), Member("a", 1), Member("a", 0, kept=False))]
    assert said == ["a", "a, without fold 2", "a, to judge, without fold 1"]


def test_the_plan_says_how_many_nets_are_averaged_with_which_threads():
    x, y = ring(400, 0)
    bags = bags_of(x, y, 20, differing=False)
    assert "average of 4 nets" in in_words(bags)
    assert "average of 12 nets" in in_words(bags_of(x, y, 20, differing=True))
    plan = plan_table(bags, Choice("ridge", "given"), Choice(0.0, "given"), threads=3)
    assert "without hidden layers" in str(plan)
    assert plan.threads == Choice(3, "given")
    assert share_reported(None).value == 0
    assert share_reported(0.25) == Choice(0.25, "given; it selects nothing, and is only reported")


def test_signals_are_told_of_the_linear_layer_that_they_have():
    for method in ("auto", "linear", "ridge"):
        with pytest.raises(ConfigError, match=r"(?s)are signals\..*or mean-map, a linear layer on"):
            check_is_table(method, "signals")
    check_is_table("mean-map", "signals")
    with pytest.raises(ConfigError, match=r"or pass a trained network as model=\."):
        check_is_table("mean-map", "images")
