"""Bags: what they hold, how they are cut and split, and what they say of themselves."""

from typing import Any

import numpy as np
import pytest

from apportion.bags.bags import Bags, Overlap, Split
from apportion.errors import BagError
from tests.bags.small_bags import BAG, FRAME, X, many_bags

# ---------------------------------------------------------------------------------- from_rows


def test_proportions_are_kept_as_given():
    bags = Bags.from_rows(X, ["a"] * 6, {"a": [0.3, 0.7 + 5e-7]})
    assert bags.proportions.tolist() == [[0.3, 0.7 + 5e-7]]
    assert bags.counts.tolist() == [[2, 4]]


def test_labels_alone_give_the_counts():
    labels = ["y", "n", "n", "n", "y", "n"]
    bags: Any = Bags.from_rows(X, BAG, truth=labels)
    assert bags.ids == ("b", "a")
    assert bags.classes == ("n", "y")
    assert bags.counts.tolist() == [[2, 2], [2, 0]]
    assert bags.proportions.tolist() == [[0.5, 0.5], [1, 0]]
    assert [bags.classes[code] for code in bags.truth] == [labels[row] for row in bags.index]
    assert Bags.from_rows(X, BAG, truth=labels, classes="yzn").counts.tolist() == [
        [2, 0, 2],
        [0, 0, 2],
    ]
    assert Bags.from_rows(X, BAG, truth=[0, "n", 0, 0, 0, 0]).classes == (0, "n")


def test_labels_may_contradict_the_counts():
    bags: Any = Bags.from_rows(X, BAG, FRAME, truth=["mild"] * 6)
    assert bags.truth.tolist() == [1] * 6
    assert bags.counts.tolist() == [[1, 1, 0], [1, 1, 2]]
    assert bags.describe().bags_off_truth == 2
    assert bags.without_truth().truth is None
    assert bags.without_truth().x is X


# ---------------------------------------------------------------------------- subset and split


@pytest.mark.parametrize(
    ("which", "ids"),
    [
        ([2, 0], (2, 0)),
        (slice(1, None, 2), (1, 3)),
        (np.array([True, False, False, True]), (0, 3)),
        ([-1], (3,)),
        (1, (1,)),
    ],
)
def test_subset(which, ids):
    labels = np.array([0, 1, 1, 0, 1, 1, 0, 0])
    members = {0: [7, 1], 1: [0], 2: [3, 4, 7], 3: [2, 6]}
    bags = Bags.from_members(np.arange(8), members, truth=labels)
    part: Any = bags[which]
    assert part.x is bags.x
    assert part.ids == ids
    for i, bag in enumerate(ids):
        assert part.rows(i).tolist() == members[bag]
        assert part.counts[i].tolist() == bags.counts[bag].tolist()
        assert part.proportions[i].tolist() == bags.proportions[bag].tolist()
    assert part.truth.tolist() == labels[part.index].tolist()
    with pytest.raises(BagError, match="0 of the bags"):
        bags[[]]
    with pytest.raises(BagError, match="position 1 occurs 2 times"):
        bags[[1, 1]]


def test_positions_of_instances_go_bag_after_bag():
    bags = Bags.from_rows(None, [*"cabacb"], truth=[0, 1, 0, 1, 0, 1])
    assert bags.ids == ("c", "a", "b")
    assert bags.positions(np.array([2, 0])).tolist() == [4, 5, 0, 1]
    assert bags.positions(np.array([1])).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("fraction", "held_out"), [(0.25, 10), (0.001, 1), (0.999, 39), (1 / 3, 13)]
)
def test_split_by_whole_bags(fraction, held_out):
    bags: Any = many_bags()
    split: Any = bags.split(fraction, seed=3)
    assert isinstance(split, Split)
    assert split.held_out.n_bags == held_out
    assert set(split.train.ids) | set(split.held_out.ids) == set(range(40))
    assert all(list(part.ids) == sorted(part.ids, key=bags.ids.index) for part in split[:2])
    assert split.overlap == Overlap(0, held_out * 5)
    assert "0 of" in str(split.overlap)
    assert bags.split(fraction, seed=3).train.ids == split.train.ids
    assert len({bags.split(fraction, seed=seed).train.ids for seed in range(9)}) > 1


def test_split_counts_the_rows_on_both_sides():
    split = many_bags(shared=2).split(0.5, seed=0)
    assert split.overlap == Overlap(2, 20 * 3 + 2)
    assert "2 of 62 held-out rows (3.2%) also stand in training bags: " in str(split.overlap)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 1.5, float("nan")])
def test_split_refuses(fraction):
    with pytest.raises(BagError, match="40 bags cannot be split"):
        many_bags().split(fraction, seed=0)
    with pytest.raises(BagError, match="1 bag cannot be split"):
        many_bags(1).split(0.5, seed=0)


# --------------------------------------------------------------------------------------- repr


def test_repr_is_one_line_without_the_data():
    x = np.full((1200, 3), 777.0)
    bags = Bags.from_rows(x, [0] * 1100 + [1] * 100, np.full((2, 20), 0.05))
    assert repr(bags) == (
        "Bags(2 bags of 100–600–1,100 instances, 1,200 in all, from 1,200 rows; "
        "20 classes: 0, 1, 2, 3, 4, 5, 6, 7, … (12 more); truth unknown)"
    )
    assert "truth known" in repr(many_bags())
