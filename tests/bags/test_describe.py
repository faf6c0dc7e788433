"""The summary of bags: what rounding moved, and which classes their proportions tell apart."""

import numpy as np
import pytest

from apportion.bags.bags import Bags
from apportion.bags.describe import separability_warning
from tests.bags.small_bags import many_bags


def bags_of(proportions, size=100):
    proportions = np.asarray(proportions, dtype=float)
    members = np.arange(len(proportions) * size).reshape(-1, size)
    return Bags.from_members(np.arange(members.size), members, proportions, classes=None)


def test_describe_says_what_rounding_moved():
    summary = bags_of([[0.5, 0.5], [0.3, 0.7], [0.99, 0.01]], size=5).describe()
    assert summary.sizes == (5, 5.0, 5)
    assert summary.rounding_most == pytest.approx(0.5)
    assert summary.rounding_bag == 0
    assert summary.rounding_total == pytest.approx(0.5 * 2 + 0.5 * 2 + 0.05 * 2)
    assert summary.totals == {0: 3 + 2 + 5, 1: 2 + 3 + 0}
    assert "at most (bag 0)" in str(summary)


def test_spreads_are_one_for_pure_bags_and_one_over_root_size_for_random_ones():
    pure = bags_of(np.eye(4)[np.arange(40) % 4]).describe()
    assert pure.spreads == pytest.approx([1, 1, 1])
    rng = np.random.default_rng(0)
    share = [0.6, 0.3, 0.1]
    random = bags_of(rng.multinomial(25, share, 4000) / 25, size=25).describe()
    assert random.spreads == pytest.approx([0.2, 0.2], rel=0.05)
    assert random.random_spread == pytest.approx(0.2)
    assert random.separability.startswith("Warning: the classes can barely be told apart")
    assert "(spread 0.2; bags filled at random: 0.2)" in random.separability
    apart = bags_of(rng.multinomial(25, [0.5, 0.5], 100) / 25 @ [[1, 0], [0.1, 0.9]], size=25)
    wide = bags_of([[p, 1 - p] for p in np.linspace(0.1, 0.9, 20)], size=25).describe()
    assert "along 1 of 1 direction" in wide.separability
    assert "barely" in apart.describe().separability
    of_one = bags_of(np.eye(2)[np.arange(20) % 2], size=1).describe()
    assert "Warning" not in of_one.separability


def test_spreads_are_singular_values():
    proportions = np.random.default_rng(1).dirichlet([3, 2, 1, 1], 9)
    mean = proportions.mean(axis=0)
    summary = bags_of(proportions).describe()
    plain = np.linalg.svd(proportions - mean, compute_uv=False)
    assert summary.singular_values == pytest.approx(plain)
    scaled = np.linalg.svd((proportions - mean) / np.sqrt(mean), compute_uv=False)
    assert summary.spreads == pytest.approx(scaled[:3] / 3)


def test_singular_values_are_as_many_as_bags_or_classes():
    assert len(bags_of([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]).describe().singular_values) == 2
    assert bags_of([[1.0, 0.0], [0.0, 1.0]]).describe().singular_values == pytest.approx([1, 0])
    assert bags_of([[0.5, 0.5]] * 3).describe().singular_values == (0, 0)


def test_describe_warns_of_what_cannot_be_learned():
    same = bags_of([[0.2, 0.3, 0.5]] * 9).describe()
    assert same.spreads == (0, 0)
    assert "nearly identical (spread 0)" in same.separability
    assert same.weakest == (0, 1, 2)

    nearly = bags_of([[0.5 + e, 0.5 - e] for e in (-4e-4, 0, 4e-4)]).describe()
    assert "Warning: the bags' proportions are nearly identical" in str(nearly)

    # Classes 1 and 2 come in equal parts everywhere.
    tied = bags_of([[1 - 2 * p, p, p] for p in (0.1, 0.2, 0.4, 0.3)]).describe()
    assert tied.weakest == (1, 2)
    assert "differ along 1 of 2 directions only (spread 0)" in tied.separability
    assert "Hardest to tell apart: 1, 2." in tied.separability

    # So do 1 and 2 here, at 50 to 1: the common class is named beside the rare one.
    tied = bags_of([[1 - 1.02 * p, p, 0.02 * p] for p in (0.1, 0.6, 0.9, 0.3)]).describe()
    assert tied.weakest == (1, 2)

    one = bags_of([[0.5, 0.5]]).describe()
    assert "Warning: 1 bag cannot tell 2 classes apart" in one.separability
    few = bags_of([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]).describe()
    assert "2 bags cannot tell 3 classes apart" in few.separability
    assert "Make at least 3 bags" in few.separability

    alone = bags_of([[1.0, 0.0], [1.0, 0.0]]).describe()
    assert alone.spreads == ()
    assert "only one class occurs" in alone.separability


def test_describe_sets_aside_classes_that_never_occur_and_accepts_rare_ones():
    absent = bags_of([[0.9, 0.1, 0], [0.1, 0.9, 0]]).describe()
    assert len(absent.spreads) == 1
    assert absent.totals[2] == 0
    assert "Warning" not in absent.separability
    rare = bags_of([[1 - p, p] for p in (0, 0.02, 0.04, 0.02)], size=1000).describe()
    assert "Warning" not in rare.separability


def test_describe_reads_well():
    text = str(many_bags(shared=1).describe())
    assert text.startswith("40 bags, 200 instances, 200 rows\n")
    assert "1 in several bags, 39 in none" in text
    assert "known; it differs from the counts of 0 bags" in text


def test_the_warning_alone_is_that_of_the_summary():
    for proportions, size in (
        ([[0.2, 0.3, 0.5]] * 9, 100),
        (np.random.default_rng(0).multinomial(25, [0.4, 0.6], 400) / 25, 25),
        ([[0.5, 0.5]], 100),
        ([[1.0, 0.0], [1.0, 0.0]], 100),
    ):
        bags = bags_of(proportions, size)
        said = bags.describe().separability.removeprefix("Warning: ").replace("\n", " ")
        assert (separability_warning(bags) or "").lower() == said.lower()
    assert separability_warning(bags_of([[p, 1 - p] for p in np.linspace(0.1, 0.9, 20)])) is None
