"""A job: the arguments of `fit` as a value, checked when it is made."""

import pytest

from apportion.bags.bags import Bags
from apportion.errors import BagError, ConfigError
from apportion.training.job import Job
from tests.training.small_training import TRAIN, network


def test_a_job_is_checked_when_it_is_made():
    with pytest.raises(ConfigError, match=r"net must be an nn\.Module; got 3"):
        Job(3, TRAIN)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="config must be a TrainConfig"):
        Job(network(), TRAIN, config={"epochs": 2})  # type: ignore[arg-type]
    with pytest.raises(BagError, match="valid is of type list, not Bags"):
        Job(network(), TRAIN, [1])  # type: ignore[arg-type]


def test_bags_without_rows_cannot_be_trained_on():
    known = Bags.from_rows(None, ["a", "a", "b"], {"a": [1, 1], "b": [0, 1]}, counts=True)
    for bags in ((known,), (TRAIN, known), (TRAIN, None, known)):
        with pytest.raises(BagError, match=r"x is None: only how 3 rows.*\n.*with_rows"):
            Job(network(), *bags)
