"""Sums of rounded proportions: one rule for all interfaces."""

import logging

import numpy as np
import pandas as pd
import pytest

from apportion.bags.bags import Bags
from apportion.bags.counts import counts_from_proportions
from apportion.bags.rounding import digits_of
from apportion.data.tables import read_table
from apportion.errors import BagError
from apportion.estimator.targets import read_targets


def shares(n_bags, n_classes, digits, seed=0):
    exact = np.random.default_rng(seed).dirichlet(np.ones(n_classes), n_bags)
    return exact, exact.round(digits)


def bags_of(table, **options):
    """Bags of ten rows each, through every interface; all must agree."""
    ids = np.repeat(np.arange(len(table)), 10)
    frame = pd.DataFrame(table, columns=list("abcdefghij")[: table.shape[1]])
    made = Bags.from_rows(None, ids, frame, **options)
    rows = pd.DataFrame({"bag": ids, "x": np.arange(len(ids)) * 0.37})
    read = read_table(rows, bag="bag", proportions=frame.rename_axis("bag"), **options)
    np.testing.assert_array_equal(made.proportions, read.proportions)
    if not options:
        targets = read_targets(len(ids), bags=ids, proportions=frame)
        np.testing.assert_array_equal(made.proportions, targets.proportions)
    return made


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("digits", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("n_classes", [2, 3, 7, 10])
@pytest.mark.parametrize("n_bags", [1, 3, 50])
def test_rounded_proportions_need_no_option(n_bags, n_classes, digits, seed, caplog):
    exact, rounded = shares(n_bags, n_classes, digits, seed)
    with caplog.at_level(logging.INFO, "apportion"):
        bags = bags_of(rounded)
    np.testing.assert_allclose(bags.proportions.sum(axis=1), 1, atol=1e-6)
    assert np.abs(bags.proportions - exact).max() < (n_classes + 1) * 10.0**-digits
    off = int((np.abs(rounded.sum(axis=1) - 1) > 1e-6).sum())
    said = [r.getMessage() for r in caplog.records if "but for rounding" in r.getMessage()]
    assert len(said) == (3 if off else 0)
    assert all(f" {off} bag" in line for line in said)


@pytest.mark.parametrize(
    ("size", "n_classes", "digits"),
    [(27, 6, 3), (8, 5, 1), (166, 15, 3), (146, 16, 2), (112, 16, 2)],
)
def test_shares_of_few_counts_may_be_rounded_alike(size, n_classes, digits):
    rng = np.random.default_rng(0)
    exact = rng.dirichlet(np.full(n_classes, 10), 300)
    table = (rng.multinomial(size, exact) / size).round(digits)
    bags = Bags.from_rows(None, np.repeat(np.arange(300), size), table)
    np.testing.assert_allclose(bags.proportions.sum(axis=1), 1)


def test_equal_bags_may_be_rounded_alike():
    bags = bags_of(np.full((100, 3), 0.33))
    np.testing.assert_allclose(bags.proportions, 1 / 3)


def test_the_bounds_themselves_are_accepted():
    assert bags_of(np.array([[0.7, 0.2], [0.6, 0.5]])).n_bags == 2
    with pytest.raises(BagError, match=r"bag 1 .* sum to 1.2"):
        bags_of(np.array([[0.7, 0.2], [0.6, 0.6]]))


def test_the_worst_bag_is_named_with_the_number_of_others():
    _, table = shares(20, 3, 2)
    table[4, 0] += 0.03
    table[11, 1] += 0.21
    with pytest.raises(BagError, match=r"bag 11 .* \(and 1 more like it\)"):
        bags_of(table)


@pytest.mark.parametrize("digits", [1, 2, 3, 6])
@pytest.mark.parametrize("n_classes", [3, 5])
def test_a_missing_class_is_not_rescaled_away(n_classes, digits):
    """The missing class is so rare that no single sum would tell."""
    rng = np.random.default_rng(0)
    rare = rng.uniform(0.2, 0.49, 60) * 10.0**-digits * n_classes
    table = (rng.dirichlet(np.ones(n_classes) * 20, 60) * (1 - rare)[:, None]).round(digits)
    assert np.abs(table.sum(axis=1) - 1).max() <= n_classes * 10.0**-digits
    with pytest.raises(BagError, match=r"missing class"):
        bags_of(table)
    if digits > 1:  # tens of percents could be counts
        with pytest.raises(BagError, match=r"missing class"):
            bags_of(100 * table, normalize=True)


@pytest.mark.parametrize("total", [100, 1000, 12])
def test_normalize_is_for_another_constant(total):
    exact, _ = shares(30, 3, 4)
    rounded = (total * exact).round(2)
    bags = bags_of(rounded, normalize=True)
    np.testing.assert_allclose(bags.proportions, exact, atol=0.03 / total)
    if total == 100:
        np.testing.assert_array_equal(bags_of(rounded).proportions, bags.proportions)
    else:
        with pytest.raises(BagError, match="they must sum to 1"):
            bags_of(rounded)
    rounded[7, 2] = rounded[7, 0] = 0.01
    with pytest.raises(BagError, match=rf"bag 7 .*they must sum to {total}"):
        bags_of(rounded, normalize=True)


def test_whole_percents_and_counts_of_other_rows():
    percents = np.array([[33, 33, 33], [50, 25, 25], [17, 17, 67]])
    np.testing.assert_allclose(bags_of(percents, normalize=True).proportions.sum(axis=1), 1)
    percents[0] = [33, 33, 20]
    with pytest.raises(BagError, match=r"bag 0 .* sum to 86 \(they must sum to 100"):
        bags_of(percents, normalize=True)
    assert bags_of(percents, normalize=True, counts=True).n_bags == 3
    polled = np.array([[3, 4, 5], [7, 1, 0], [20, 2, 1]])
    expected = polled / polled.sum(axis=1, keepdims=True)
    for options in ({}, {"counts": True}):
        found = bags_of(polled, normalize=True, **options).proportions
        np.testing.assert_allclose(found, expected)


def test_whole_numbers_were_not_rounded():
    with pytest.raises(BagError, match=r"bag 2 .* sum to 2"):
        bags_of(np.array([[1, 0], [0, 1], [1, 1]]))
    with pytest.raises(BagError, match=r"bag 2 .* sum to 0"):
        bags_of(np.array([[1, 0], [0, 1], [0, 0]]))


@pytest.mark.parametrize(
    ("cells", "message"),
    [("0.3,0.3,0.3", None), ("0.30,0.30,0.30", "sum to 0.9"), ("1.0,1.0,0.0", "sum to 2")],
)
def test_in_a_csv_file_the_digits_are_those_written(tmp_path, cells, message):
    path = tmp_path / "wards.csv"
    path.write_text(f"bag,a,b,c\n0,{cells}\n")
    rows = pd.DataFrame({"bag": [0, 0, 0], "x": [1, 2, 3]})
    if message is None:
        assert read_table(rows, bag="bag", proportions=path).counts.tolist() == [[1, 1, 1]]
        return
    with pytest.raises(BagError, match=message):
        read_table(rows, bag="bag", proportions=path)


def test_digits_are_those_of_the_shortest_decimal():
    for k in range(6):
        values = np.random.default_rng(k).random(200).round(k)
        shortest = max(len(repr(float(v)).partition(".")[2]) for v in values if v % 1) if k else 0
        assert digits_of(values) == shortest == k
    assert digits_of(np.array([1 / 3, 0.5])) == 6


def test_counts_and_fields_of_bags_follow_the_same_rule():
    table = np.full((2, 3), 0.33)
    assert counts_from_proportions(table, [6, 9]).tolist() == [[2, 2, 2], [3, 3, 3]]
    made = Bags.from_rows(None, [0] * 6 + [1] * 9, np.full((2, 3), 1 / 3))
    by_hand = Bags(None, made.index, made.offsets, table, made.counts, made.classes, made.ids)
    np.testing.assert_allclose(by_hand.proportions, 1 / 3)
    for wrong in (np.full((2, 3), 0.2), np.full((2, 3), 33.0)):
        with pytest.raises(BagError, match="sum to"):
            counts_from_proportions(wrong, [6, 9])
        with pytest.raises(BagError, match="sum to"):
            Bags(None, made.index, made.offsets, wrong, made.counts, made.classes, made.ids)


def test_single_precision_hides_no_digits():
    _, table = shares(30, 5, 2)
    bags = Bags.from_rows(None, np.repeat(np.arange(30), 10), table.astype(np.float32))
    np.testing.assert_allclose(bags.proportions.sum(axis=1), 1)
    assert digits_of(np.array([0.33, 0.5], np.float32).astype(np.float64)) == 2


@pytest.mark.filterwarnings("error")
def test_a_bag_without_any_share_is_an_error_however_coarse_the_digits():
    table = np.full((2, 30), 0.1)
    table[:, :20] = 0
    table[1] = 0
    with pytest.raises(BagError, match=r"bag 1 .* sum to 0 "):
        Bags.from_rows(None, [0] * 10 + [1] * 10, table)


def test_only_remedies_that_help_are_named():
    ids = np.repeat(np.arange(3), 10)
    short = np.array([[0.5, 0.44], [0.25, 0.75], [0.4, 0.6]])
    for normalize in (False, True):
        with pytest.raises(BagError, match=r"0\.94") as caught:
            Bags.from_rows(None, ids, short, normalize=normalize)
        assert not caught.value.names("normalize")
    with pytest.raises(BagError, match="sum to") as caught:
        Bags.from_rows(None, ids, np.array([[4.2, 5.8], [2, 8], [3, 7]]))
    assert caught.value.names("normalize")
