"""A small table of rows in wards, for the tests of tables, and ways to save and compare."""

import numpy as np
import pandas as pd

N = 60
CLASSES = ("mild", "none", "severe")


def wards():
    """60 rows of five wards, and the proportions that are those of their labels."""
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(
        {
            "ward": rng.permutation([f"w{k % 5}" for k in range(N)]),
            "age": rng.integers(20, 90, N).astype(float),
            "job": rng.choice(["cook", "nurse", "smith"], N),
            "sick": rng.choice(CLASSES, N),
            "dose": rng.normal(size=N).round(3),
        }
    )
    rows.loc[[3, 40], "age"] = np.nan
    rows.loc[7, "job"] = None
    table = pd.crosstab(rows["ward"], rows["sick"], normalize="index")
    table = table.loc[["w3", "w0", "w4", "w1", "w2"]].reset_index()
    table.columns.name = None
    return rows, table


def saved(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
    return path


def same(one, other):
    """Check that two tables are the same, cell by cell."""
    assert one.columns == other.columns
    for a, b in zip(parts(one.x), parts(other.x), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    for field in ("index", "offsets", "proportions", "counts", "truth"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
    assert one.ids == other.ids
    assert one.classes == other.classes


def parts(x):
    return x if isinstance(x, tuple) else (x,)
