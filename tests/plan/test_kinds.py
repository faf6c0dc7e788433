"""What instances are: by the shape and the type of their rows."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from apportion.bags.bags import Bags
from apportion.plan.kinds import called, kind_of_instances, kind_of_rows


class Squares:
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return np.full(3, i * i, np.float32)


@pytest.mark.parametrize(
    ("shape", "kind"), [((4, 3), "table"), ((4, 2, 9), "signals"), ((4, 3, 8, 8), "images")]
)
def test_dimensions_tell_what_rows_are(shape, kind):
    x = np.zeros(shape, np.float32)
    assert kind_of_rows(x) == kind_of_rows((x, np.ones(4, int))) == kind
    assert kind_of_instances(Bags.from_rows(x, [0, 0, 1, 1], np.full((2, 2), 0.5))) == kind


def test_rows_that_are_no_table_in_memory_are_told():
    of = np.full((2, 2), 0.5)
    sparse = Bags.from_rows(csr_array(np.eye(4)), [0, 0, 1, 1], of)
    items = Bags.from_dataset(Squares(), [0, 0, 1, 1], of)
    assert kind_of_instances(sparse) == "sparse rows"
    assert kind_of_instances(items) == "items of a Dataset"
    assert called(kind_of_instances(items)) == "rows of a Dataset"


def test_bags_without_rows_are_planned_for_as_a_table():
    assert kind_of_instances(Bags.from_rows(None, ["a"], {"a": [1.0]})) == "table"
