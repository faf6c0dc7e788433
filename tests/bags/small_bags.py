"""Six rows in two bags, their tables, and many bags of a few rows."""

import numpy as np
import pandas as pd

from apportion.bags.bags import Bags

X = np.arange(12.0).reshape(6, 2)
BAG = ["b", "a", "b", "a", "b", "b"]
TABLE = {"a": [0.5, 0.5, 0.0], "b": [0.25, 0.25, 0.5]}
FRAME = pd.DataFrame.from_dict(TABLE, orient="index", columns=["none", "mild", "severe"])


def many_bags(n=40, size=5, *, shared=0, seed=0):
    """Bags of `size` rows, of which the first `shared` are the same in all of them."""
    members = [[*range(shared), *range(i * size + shared, (i + 1) * size)] for i in range(n)]
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n * size)
    return Bags.from_members(
        np.arange(n * size), np.array(members), truth=labels, classes=[0, 1, 2]
    )
