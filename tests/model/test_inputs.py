"""What learners get: frames with gaps and categories, or matrices."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression

from apportion.bags.bags import Bags
from apportion.data.encoding import encode, learn_columns
from apportion.errors import ConfigError
from apportion.model.inputs import LearnerInputs
from tests.labels.tables import table_bags

FRAME = pd.DataFrame(
    {"job": ["cook", "nurse", None, "cook"], "age": [30.0, None, 50.0, 40.0], "n": [1, 2, 3, 4]}
)


def wards():
    columns = learn_columns(FRAME)
    bags = Bags.from_rows(encode(columns, FRAME), list("aabb"), {"a": [1, 1], "b": [1, 1]},
                          counts=True)  # fmt: skip
    return bags.with_rows(bags.x, columns)


@pytest.mark.parametrize("kind", [HistGradientBoostingClassifier, HistGradientBoostingRegressor])
def test_boosting_gets_the_frame_back(kind):
    bags = wards()
    inputs = LearnerInputs.learn(bags, kind())
    table = inputs.table(bags.x)
    assert list(table) == ["age", "n", "job"]
    np.testing.assert_array_equal(table["age"], FRAME["age"])
    np.testing.assert_array_equal(table["n"], FRAME["n"])
    assert table["job"].cat.codes.tolist() == [0, 1, -1, 0]
    assert inputs.table(bags.x, np.array([2, 0]))["n"].tolist() == [3, 1]


def test_others_get_a_matrix():
    bags = wards()
    table = LearnerInputs.learn(bags, LogisticRegression()).table(bags.x)
    assert table.shape == (4, 3 + 2)  # age, n, whether age is missing; cook, nurse
    assert np.isfinite(table).all()
    assert list(LearnerInputs.learn(bags, LogisticRegression(), "frame").table(bags.x)) == [
        "age",
        "n",
        "job",
    ]


def test_columns_of_too_many_categories_are_numbers_to_boosting():
    codes = np.arange(300)[:, None]
    bags = Bags.from_rows((np.zeros((300, 1)), codes), np.arange(300) // 2, np.full((150, 2), 0.5))
    table = LearnerInputs.learn(bags, HistGradientBoostingClassifier()).table(bags.x)
    assert table["c0"].dtype == np.float32
    assert np.isnan(table["c0"].iloc[0])
    HistGradientBoostingClassifier(max_iter=2).fit(table, codes[:, 0] % 2)
    several = LearnerInputs.learn(bags, HistGradientBoostingClassifier(), "matrix").table(bags.x)
    assert several.shape == (300, 300)


def test_unknown_codes_are_missing():
    bags = table_bags(60)
    inputs = LearnerInputs.learn(bags, HistGradientBoostingClassifier())
    table = inputs.table((bags.x[0][:2], np.array([[99, 1], [0, 2]])))
    assert table["c0"].isna().all()


def test_other_inputs_are_refused():
    with pytest.raises(ConfigError, match="inputs must be 'auto', 'frame' or 'matrix'"):
        LearnerInputs.learn(table_bags(20), LogisticRegression(), "table")  # type: ignore[arg-type]
