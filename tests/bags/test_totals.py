import numpy as np
import pytest

from apportion import Bags
from apportion.bags.read import Table
from apportion.bags.totals import without_totals
from apportion.errors import BagError
from apportion.estimator.targets import read_targets

RNG = np.random.default_rng(0)
COUNTS = RNG.integers(1, 40, (12, 3)).astype(float)
SIZES = COUNTS.sum(axis=1).astype(int)
SHARES = COUNTS / SIZES[:, None]


def kept(*columns, digits=None, sizes=SIZES):
    values = np.column_stack(columns)
    names = [f"c{j}" for j in range(values.shape[1])]
    table = Table(list(range(len(values))), names, values, digits)
    found = without_totals(table, sizes)
    places = np.array([names.index(str(name)) for name in found.classes])
    np.testing.assert_array_equal(found.values, values.T[places].T)
    return list(found.classes)


CLASSES = ["c0", "c1", "c2"]


@pytest.mark.parametrize(
    "columns",
    [
        (COUNTS, SIZES),
        (SHARES, np.ones(12)),
        (SHARES, SIZES),
        (100 * SHARES, np.full(12, 100.0)),
        ((100 * SHARES).round(1), np.full(12, 100.0)),
        ((100 * SHARES).round(1), RNG.integers(20, 2000, 12)),
        (SHARES, SIZES, RNG.integers(100, 200, 12)),
        (COUNTS * 7, SIZES * 7),
    ],
)
def test_totals_are_left_out(columns):
    assert kept(*columns) == CLASSES


@pytest.mark.parametrize(
    "columns",
    [
        (COUNTS,),
        (SHARES,),
        (SHARES.round(2),),
        (100 * SHARES,),
        (SHARES[:, :2] / 2, np.full(12, 0.5)),
        (SHARES / 2, np.full(12, 0.5)),  # a class that is half of every bag
        (SHARES[:, :2],),  # of which a class is missing
        (COUNTS[:, :2], COUNTS[:, 2] + 1),
    ],
)
def test_classes_are_kept(columns):
    assert len(kept(*columns)) == np.column_stack(columns).shape[1]


def test_a_rare_class_is_no_total():
    """A bag that is off, because of a typing error, must not cost a rare class."""
    values = np.array([[0.5, 0.5, 0.0], [0.3, 0.6, 0.1], [0.5, 0.5, 0.1], [0.4, 0.6, 0.4]])
    assert len(kept(values, digits=1, sizes=np.full(4, 10))) == 3


HALVES = SHARES[:, :1], 1 - SHARES[:, :1]
OTHERS = RNG.random((12, 1)).round(3)


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize(
    ("columns", "families"),
    [
        ((SHARES, OTHERS, 1 - OTHERS), ("'c0', 'c1', 'c2'", "'c3', 'c4'")),
        ((*HALVES, OTHERS, 1 - OTHERS), ("'c0', 'c1'", "'c2', 'c3'")),
        ((OTHERS, SHARES, 1 - OTHERS), ("'c1', 'c2', 'c3'", "'c0', 'c4'")),
        ((SHARES, SHARES[::-1]), ("'c0', 'c1', 'c2'", "'c3', 'c4', 'c5'")),
    ],
)
def test_two_families_of_classes_are_not_totals(columns, families, scale):
    with pytest.raises(BagError, match="classes of two questions") as error:
        kept(*(scale * column for column in columns))
    assert all(names in str(error.value) for names in families)
    assert "classes=['c" in str(error.value)


def test_every_interface_leaves_them_out():
    ids = np.repeat(np.arange(12), SIZES)
    table = {k: {"a": c[0], "b": c[1], "c": c[2], "all": c.sum()} for k, c in enumerate(COUNTS)}
    bags = Bags.from_rows(None, ids, table, counts=True)
    assert bags.classes == ("a", "b", "c")
    np.testing.assert_array_equal(bags.counts, COUNTS)
    targets = read_targets(len(ids), bags=ids, proportions=table)
    assert targets.classes == ("a", "b", "c")
    np.testing.assert_array_equal(targets.counts, COUNTS)


def test_a_class_that_is_in_no_bag_and_the_total_are_no_family():
    assert kept(*HALVES, np.zeros(12), np.ones(12)) == CLASSES
