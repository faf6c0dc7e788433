"""Columns that give the truth away, whatever their type."""

import logging
import time

import numpy as np
import pandas as pd
import pytest

from apportion.bags.bags import Bags
from apportion.data.encoding import encode, learn_columns
from apportion.data.giveaways import check_for_truth, find_giveaways
from apportion.data.tables import read_sets, read_table
from apportion.errors import DataError
from tests.data.wards import saved


def people(n_bags=12, size=10, n_classes=2, seed=0):
    """Rows of one honest column in bags of differing proportions, and their classes."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(n_classes), n_bags)
    truth = np.concatenate([rng.choice(n_classes, size, p=share) for share in shares])
    rows = pd.DataFrame(
        {"bag": np.repeat(np.arange(n_bags), size), "age": rng.normal(size=len(truth))}
    )
    counts = np.stack([np.bincount(t, minlength=n_classes) for t in truth.reshape(n_bags, size)])
    return rows, truth, dict(enumerate(counts.tolist()))


def spoiled(cells, share=0.01, value="?"):
    changed = pd.Series(cells, dtype=object)
    changed.iloc[:: int(1 / share)] = value
    return changed


DISGUISES = {
    "the texts": lambda t: np.where(t == 1, "yes", "no"),
    "0 and 1": lambda t: t,
    "1 and 0": lambda t: 1 - t,
    "booleans": lambda t: t == 1,
    "floats": lambda t: np.where(t == 1, 3.25, -1e6),
    "groups of texts": lambda t: np.where(t == 1, "yes", np.where(np.arange(len(t)) % 2, "n", "N")),
    "gaps": lambda t: np.where(t == 1, np.nan, np.arange(len(t)) * 1.5),
}


@pytest.mark.parametrize("form", [".csv", ".parquet", "frame"])
@pytest.mark.parametrize("disguise", DISGUISES)
def test_the_truth_is_refused_in_every_disguise(tmp_path, disguise, form):
    rows, truth, table = people()
    frame = rows.assign(flag=DISGUISES[disguise](truth))
    given = frame if form == "frame" else saved(frame, tmp_path / f"rows{form}")
    options = {"bag": "bag", "proportions": table, "counts": True}
    for read in (read_table, read_sets):
        with pytest.raises(DataError, match=r"column 'flag'.* 12 bags .*truth") as caught:
            read(given, **options)
        assert "keep=['flag']" in str(caught.value)
        read(given, **options, keep=["flag"])
        read(given, **options, columns=["age"])


def test_proportions_as_well_as_counts_and_the_store_is_removed(tmp_path):
    rows, truth, table = people()
    shares = {bag: np.array(own) / 10 for bag, own in table.items()}
    for _ in range(2):
        with pytest.raises(DataError, match="'flag'"):
            read_table(rows.assign(flag=truth), bag="bag", proportions=shares, store=tmp_path / "s")
        assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("n_classes", [3, 10])
def test_one_class_told_from_all_others_is_refused(n_classes):
    rows, truth, table = people(60, 20, n_classes)
    options = {"bag": "bag", "proportions": table, "counts": True}
    for flag in (truth == 1, truth * 7, np.array(list("abcdefghij"))[truth]):
        with pytest.raises(DataError, match="'flag'"):
            read_table(rows.assign(flag=flag), **options)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_is_nearly_the_truth_is_warned_of(caplog, n_classes):
    rows, truth, table = people(40, 20, n_classes)
    texts = np.array(["no", "yes", "perhaps"])[truth]
    frame = rows.assign(
        flag=spoiled(texts, 0.01), number=np.where(np.arange(len(truth)) % 80, truth, -1)
    )
    with caplog.at_level(logging.WARNING, "apportion"):
        read_table(frame, bag="bag", proportions=table, counts=True)
    said = [r.getMessage() for r in caplog.records if "truth away" in r.getMessage()]
    assert len(said) == 2
    assert "'number'" in said[0]
    assert "'flag'" in said[1]
    caplog.clear()
    read_table(frame, bag="bag", proportions=table, counts=True, keep=["flag", "number"])
    assert not [r for r in caplog.records if "truth away" in r.getMessage()]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("n_classes", "n_bags", "size"), [(2, 8, 6), (2, 200, 30), (4, 20, 10), (10, 10, 5)]
)
def test_honest_columns_are_never_found(n_classes, n_bags, size, seed):
    rows, truth, table = people(n_bags, size, n_classes, seed)
    rng = np.random.default_rng(seed)
    n = len(truth)
    likely = np.where(rng.random(n) < 0.8, truth, rng.integers(n_classes, size=n))
    frame = rows.assign(
        coin=rng.integers(2, size=n),
        rare=(rng.random(n) < 0.01).astype(int),
        codes=rng.integers(50, size=n),
        sex=np.arange(n) % 2,
        constant=1,
        **({"job": likely} if n_bags > 10 else {}),
    )
    assert _found(frame, table) == []


def test_rare_classes_are_not_met_by_rare_values():
    rng = np.random.default_rng(0)
    truth = (rng.random(20_000) < 0.01).astype(int)
    rows = pd.DataFrame({"bag": np.arange(20_000) // 100, "rare": rng.random(20_000) < 0.01})
    table = pd.crosstab(rows["bag"], truth).to_dict("index")
    assert _found(rows, table) == []
    assert [given.name for given in _found(rows.assign(rare=truth), table)] == ["rare"]


def test_four_bags_or_equal_proportions_are_no_evidence():
    rows, truth, table = people(4)
    assert _found(rows.assign(flag=truth), table) == []
    rows, truth = people()[0], np.arange(120) % 2
    assert _found(rows.assign(flag=truth), {bag: [5, 5] for bag in range(12)}) == []


def test_a_column_that_is_kept_must_be_there():
    rows, _, table = people()
    with pytest.raises(DataError, match="'agee'"):
        read_table(rows, bag="bag", proportions=table, counts=True, keep=["agee"])


def test_the_check_takes_a_fraction_of_encoding():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200_000, 30)), columns=[f"x{j}" for j in range(30)])
    for j in range(10):
        frame[f"b{j}"] = rng.integers(2, size=len(frame))
    columns = learn_columns(frame)
    began = time.perf_counter()
    x = encode(columns, frame)
    encoded = time.perf_counter() - began
    bag = np.arange(len(frame)) // 200
    bags = Bags.from_rows(x, bag, truth=frame["b0"].to_numpy() ^ (rng.random(len(frame)) < 0.5))
    began = time.perf_counter()
    check_for_truth(bags.with_rows(x, columns))
    assert time.perf_counter() - began < encoded


def _found(frame, table):
    bags = Bags.from_rows(None, frame["bag"], table, counts=True)
    rows = frame.drop(columns="bag")
    columns = learn_columns(rows)
    return find_giveaways(bags.with_rows(encode(columns, rows), columns))
