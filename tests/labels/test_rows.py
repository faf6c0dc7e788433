"""Rows as linear models see them, against plain dense matrices."""

import numpy as np
import pytest

from apportion.bags.bags import Bags
from apportion.errors import ConfigError, DataError
from apportion.labels.rows import RowEncoding
from tests.labels.tables import table_bags


def dense_matrix(bags):
    """Standardise and one-hot encode with plain loops."""
    numbers, codes = (part[bags.index].astype(np.float64) for part in bags.x)
    rows = np.unique(bags.index)
    mean, std = bags.x[0][rows].mean(0, np.float64), bags.x[0][rows].std(0, np.float64)
    columns = [(numbers[:, j] - mean[j]) / std[j] for j in range(numbers.shape[1])]
    for j in range(codes.shape[1]):
        columns += [codes[:, j] == k for k in range(1, codes[:, j].max().astype(int) + 1)]
    return np.stack(columns, axis=1)


def test_design_is_the_dense_matrix():
    bags = table_bags(90)
    design = RowEncoding.learn(bags).design(bags.x, bags.index)
    wanted = dense_matrix(bags)
    rng = np.random.default_rng(0)
    weights, values = rng.normal(size=(wanted.shape[1], 4)), rng.normal(size=(4, 90))
    assert design.width == wanted.shape[1]
    np.testing.assert_allclose(design.times(weights), (wanted @ weights).T, atol=1e-5)
    np.testing.assert_allclose(design.sums(values), wanted.T @ values.T, atol=1e-4)
    np.testing.assert_allclose(design.matrix(), wanted, atol=1e-5)
    np.testing.assert_allclose(design.matrix(most_dense=2).toarray(), wanted, atol=1e-5)
    np.testing.assert_allclose(design[[5, 2]].matrix(), wanted[[5, 2]], atol=1e-5)
    means = np.stack([part.mean(axis=0) for part in np.split(wanted, bags.offsets[1:-1])])
    np.testing.assert_allclose(design.means(bags.offsets).matrix(), means, atol=1e-5)


def test_unknown_codes_are_no_category():
    bags = table_bags(60)
    encoding = RowEncoding.learn(bags)
    numbers = bags.x[0][:2]
    known = encoding.design((numbers, np.array([[0, 0], [0, 0]]))).matrix()
    assert known[:, 3:].sum() == 0
    assert encoding.categories == (4, 3)
    for codes in ([[99, 0], [0, 7]], [[4, 0], [0, 3]]):
        large = encoding.design((numbers, np.array(codes))).matrix()
        np.testing.assert_array_equal(large, known)


def test_only_rows_in_bags_are_measured():
    x = np.array([[1.0], [3.0], [1000.0]])
    encoding = RowEncoding.learn(Bags.from_members(x, [[0, 1], [1]], [[0.5, 0.5], [0, 1]]))
    assert (encoding.mean.tolist(), encoding.std.tolist()) == ([2.0], [1.0])


def test_constant_columns_stay_finite():
    bags = Bags.from_rows(np.full((4, 1), 0.1), ["a"] * 4, {"a": [0.5, 0.5]})
    assert RowEncoding.learn(bags).design(bags.x).numbers.tolist() == [[0.0]] * 4


@pytest.mark.parametrize("shape", [(4, 3, 8), (4, 3, 8, 8), (4,)])
def test_what_is_no_table_needs_features(shape):
    bags = Bags.from_rows(np.zeros(shape), ["a"] * 4, {"a": [0.5, 0.5]})
    with pytest.raises(ConfigError, match=r"(?s)need rows of features.*with_rows"):
        RowEncoding.learn(bags)


def test_missing_numbers_and_codes_that_are_none_are_refused():
    x = np.array([[1.0, 2.0], [0.0, np.nan]])
    with pytest.raises(DataError, match="nan in row 1, column 1"):
        RowEncoding.learn(Bags.from_rows(x, ["a"] * 2, {"a": [1, 1]}, counts=True))
    pair = np.zeros((2, 1)), np.array([[-1], [2]])
    with pytest.raises(DataError, match="from -1 on"):
        RowEncoding.learn(Bags.from_rows(pair, ["a"] * 2, {"a": [1, 1]}, counts=True))
