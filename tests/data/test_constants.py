"""Columns that are constant within bags: found, left out or warned of, and never by chance."""

import logging
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest

from apportion.bags.bags import Bags
from apportion.bags.notes import notes
from apportion.data import tables
from apportion.data.constants import check_constants, find_constants
from apportion.data.encoding import encode, learn_columns
from apportion.data.tables import read_sets, read_table
from apportion.errors import DataError
from tests.data.wards import saved

SHARES = np.array([0.1, 0.25, 1 / 3, 0.5, 0.62, 0.75, 0.8, 0.95])
N_BAGS, SIZE = len(SHARES), 12
TABLE = {bag: {"no": 1 - share, "yes": share} for bag, share in enumerate(SHARES)}


def people(**of_bags):
    """Rows of honest columns in bags, in no order, with further columns of one value per bag."""
    rng = np.random.default_rng(0)
    bag = rng.permutation(np.repeat(np.arange(N_BAGS), SIZE))
    n = len(bag)
    frame = pd.DataFrame({"bag": bag, "age": rng.normal(size=n), "sex": rng.integers(2, size=n)})
    return frame.assign(everywhere=1, **{k: np.asarray(v)[bag] for k, v in of_bags.items()})


def bags_of(frame, table=TABLE):
    rows = frame.drop(columns="bag")
    columns = learn_columns(rows)
    x = encode(columns, rows)
    return Bags.from_rows(None, frame["bag"], table).with_rows(x, columns)


def found(frame, table=TABLE):
    return {own.name: own.is_proportions for own in find_constants(bags_of(frame, table))}


def warnings(caplog):
    """The warnings but for notes, which tell that a column has one value in all rows."""
    own = [r for r in caplog.records if r.levelno == logging.WARNING and r.name != notes.name]
    return [r.getMessage() for r in own]


CONSTANTS = {
    "numbers": np.arange(8) * 7.5,
    "two numbers": np.arange(8) % 2,
    "texts": list("abcdefgh"),
    "two texts": list("aabbaabb"),
    "missing in a whole bag": [1, np.nan, 3, 4, 5, np.nan, 7, 8],
    "missing or one number": [4, np.nan] * 4,
    "texts missing in a whole bag": ["a", None] * 4,
    "times": 1.7e9 + np.arange(8),
}


@pytest.mark.parametrize("what", CONSTANTS)
def test_what_is_constant_within_every_bag_is_found(what):
    frame = people(region=CONSTANTS[what])
    assert found(frame) == {"region": False}
    other = frame["region"].dropna().iloc[0]
    for row in range(0, len(frame), 17):
        changed = frame.copy()
        different = changed["region"] != other
        changed.loc[row, "region"] = other if different[row] else changed["region"][different].max()
        if isinstance(other, str) and not different[row]:
            changed.loc[row, "region"] = "z"
        assert found(changed) == {}


def test_one_missing_value_makes_a_column_vary():
    frame = people(region=np.arange(8.0))
    frame.loc[5, "region"] = np.nan
    assert found(frame) == {}


def test_bags_of_one_row_say_nothing():
    frame = people(region=np.arange(8))
    alone = pd.DataFrame({"bag": range(8, 20), "age": 0.5, "sex": 1, "everywhere": 1, "region": 3})
    table = TABLE | {bag: {"no": 1.0, "yes": 0.0} for bag in range(8, 20)}
    assert found(pd.concat([frame, alone], ignore_index=True), table) == {"region": False}
    assert found(alone.assign(region=range(12)), {b: table[b] for b in range(8, 20)}) == {}


DISGUISES = {
    "shares": SHARES,
    "of the other class": 1 - SHARES,
    "two digits": SHARES.round(2),
    "whole percents": (100 * SHARES).round(),
    "percents": 100 * SHARES,
    "per mille": (1000 * SHARES).round(1),
    "any multiple": 37.5 * SHARES,
    "counts": (SIZE * SHARES).round(),
    "counts that are not whole": SIZE * SHARES,
    "with a gap": np.where(np.arange(8) == 3, np.nan, SHARES),
}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_the_proportions_of_the_bag_are_known_in_every_disguise(disguise):
    assert found(people(share=DISGUISES[disguise])) == {"share": True}


def test_counts_that_are_rounded_as_the_bags_round_them():
    bags = bags_of(people(share=np.arange(8)))
    assert found(people(share=bags.counts[:, 1])) == {"share": True}


@pytest.mark.parametrize(
    "values", [SHARES + 0.02, SHARES**2, np.roll(SHARES, 1), SHARES > 0.4, np.full(8, 0.5)]
)
def test_what_only_goes_with_the_proportions_is_not_taken_for_them(values):
    assert not any(found(people(share=values)).values())


def test_proportions_that_hardly_differ_are_not_recognised_by_chance():
    shares = 0.5 + 0.01 * np.array([-2, -1, 0, 1, 2, 1, 0, -1])
    table = {bag: [1 - share, share] for bag, share in enumerate(shares)}
    near = shares + 0.004 * np.array([1, 1, -1, -1, 1, -1, 1, -1])  # less than half a percent off
    assert found(people(share=near), table) == {"share": False}
    assert found(people(share=shares), table) == {"share": True}


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(("n_bags", "size"), [(2, 2), (4, 3), (8, 2), (300, 2), (40, 10)])
def test_random_columns_are_never_found(n_bags, size, seed):
    rng = np.random.default_rng(seed)
    n = n_bags * size
    frame = pd.DataFrame(
        {
            "bag": np.repeat(np.arange(n_bags), size),
            "normal": rng.normal(size=n),
            "coin": rng.integers(2, size=n),
            "rare": rng.random(n) < 0.01,
            "once": np.arange(n) == n // 2,
            "few": np.arange(n) < 2,  # by chance in one bag
            "texts": rng.choice(["a", "b"], n),
            "gaps": np.where(rng.random(n) < 0.5, np.nan, 3.0),
        }
    )
    shares = rng.random(n_bags)
    assert found(frame, {b: [1 - s, s] for b, s in enumerate(shares)}) == {}


def test_only_training_bags_decide(caplog):
    frame = people(region=np.arange(8))
    frame.loc[frame["bag"] == 0, "region"] = np.arange(SIZE)
    table = pd.DataFrame.from_dict(TABLE, "index").rename_axis("bag").reset_index()
    read_sets(frame, bag="bag", proportions=table, validation=0)
    assert warnings(caplog) == []
    split = np.where(table["bag"] == 0, "valid", "train")
    read_sets(frame, bag="bag", proportions=table.assign(split=split))
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("form", [".csv", ".parquet", "frame"])
def test_tables_leave_out_proportions_and_warn_of_the_others_once(tmp_path, caplog, form):
    frame = people(share=SHARES.round(4), region=list("abcdefgh"), tax=np.arange(8))
    given = frame if form == "frame" else saved(frame, tmp_path / f"rows{form}")
    options: dict[str, Any] = {"bag": "bag", "proportions": TABLE}
    for name in ("read_table", "read_sets"):
        caplog.clear()
        store = tmp_path / name
        read: Any = getattr(tables, name)
        bags = read(given, **options, store=store)
        bags = bags if name == "read_table" else bags["train"]
        assert bags.columns.names == ("age", "sex", "region", "tax")
        assert np.array_equal(np.load(store / "numbers.npy"), bags.parts[0])
        plain = read_table(frame.drop(columns="share"), **options, keep=["region", "tax"])
        for part, own in zip(bags.parts, plain.parts, strict=True):
            assert np.array_equal(part, own)
        constant, left_out = warnings(caplog)
        assert "Columns 'tax', 'region' are constant within every bag" in constant
        assert "columns=[…]" in constant
        assert "Column 'share' is the bag's own proportions, and left out" in left_out
        assert "keep=['share']" in left_out
    caplog.clear()
    kept: Any = read_table(given, **options, keep=["share", "region", "tax"])
    assert "share" in kept.columns.names
    read_table(given, **options, columns=kept.columns)  # learned before: nothing is decided again
    assert warnings(caplog) == []


def test_a_table_of_nothing_but_proportions_is_refused(tmp_path):
    rows = people(share=SHARES)[["bag", "share"]]
    with pytest.raises(DataError, match=r"share.* 0 other columns") as caught:
        read_table(rows, bag="bag", proportions=TABLE, store=tmp_path / "s")
    assert caught.value.names("keep")
    assert not (tmp_path / "s").exists()


def test_arrays_that_were_no_table_are_warned_of_by_position(caplog):
    frame = people(share=SHARES, region=np.arange(8))
    bags = Bags.from_rows(frame.drop(columns="bag").to_numpy(), frame["bag"], TABLE)
    assert check_constants(bags, remedy="Leave such columns out of x.", leave_out=False) == []
    (said,) = warnings(caplog)
    assert said.startswith("Columns '3', '4' are")
    assert said.endswith("Leave such columns out of x.")
    images = Bags.from_rows(np.zeros((len(frame), 1, 2, 2)), frame["bag"], TABLE)
    assert find_constants(images) == []


def test_the_search_takes_a_fraction_of_encoding():
    rng = np.random.default_rng(0)
    bag = rng.permutation(np.repeat(np.arange(50_000), 4))
    frame = pd.DataFrame(rng.normal(size=(len(bag), 30)), columns=[f"x{j}" for j in range(30)])
    for j in range(5):
        frame[f"b{j}"] = (bag % (j + 2)).astype(np.float64)
    columns = learn_columns(frame)
    began = time.perf_counter()
    x = encode(columns, frame)
    encoded = time.perf_counter() - began
    share = rng.random(50_000)
    bags = Bags.from_rows(x, bag, np.stack([1 - share, share], axis=1)).with_rows(x, columns)
    began = time.perf_counter()
    assert len(find_constants(bags)) == 5
    assert time.perf_counter() - began < 3 * encoded
