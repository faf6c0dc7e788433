"""Bags from tables: the same from every form, and in pieces of any size."""

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apportion.bags.bags import Bags
from apportion.bags.columns import Columns
from apportion.data import pieces
from apportion.data.encoding import encode, learn_columns
from apportion.data.tables import read_sets, read_table
from apportion.errors import ConfigError, DataError
from tests.data.wards import CLASSES, N, parts, same, saved, wards


@pytest.fixture
def small_pieces(monkeypatch):
    """Read pieces of three rows, of five columns each."""
    monkeypatch.setattr(pieces, "CELLS", 15)


def columns_of(bags: Bags) -> Columns:
    assert bags.columns is not None
    return bags.columns


# ----------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("form", ["frame", ".csv", ".csv.gz", ".parquet"])
@pytest.mark.parametrize("table_form", ["frame", "index", "dict", "long", ".csv", ".parquet"])
def test_every_form_gives_the_same_bags(tmp_path, small_pieces, form, table_form):
    rows, table = wards()
    by_ward = table.set_index("ward")
    given_table = {
        "frame": table,
        "index": by_ward,
        "dict": by_ward.to_dict("index"),
        "long": table.melt("ward", var_name="class"),
    }.get(table_form, tmp_path / f"wards{table_form}")
    if isinstance(given_table, Path):
        saved(table, given_table)
    source = rows if form == "frame" else saved(rows, tmp_path / f"rows{form}")
    read = read_table(source, bag="ward", proportions=given_table, label="sick")
    # What it should be, by plain pandas and one call of Bags.
    features = rows[["age", "job", "dose"]]
    columns = learn_columns(features)
    assert read.columns == columns
    expected = Bags.from_rows(
        encode(columns, features), rows["ward"], by_ward, truth=rows["sick"].tolist()
    )
    assert expected.describe().bags_off_truth == 0
    for a, b in zip(read.x, expected.x, strict=True):
        np.testing.assert_array_equal(a, b)
    for field in ("index", "offsets", "counts", "truth"):
        np.testing.assert_array_equal(getattr(read, field), getattr(expected, field))
    np.testing.assert_allclose(read.proportions, expected.proportions, rtol=1e-15)
    assert (read.ids, read.classes) == (expected.ids, expected.classes)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cells=st.integers(1, 400), form=st.sampled_from(["frame", ".csv", ".parquet"]))
def test_the_size_of_pieces_does_not_matter(tmp_path, cells, form):
    rows, table = wards()
    source = rows if form == "frame" else saved(rows, tmp_path / f"rows{form}")
    options = {"bag": "ward", "proportions": table, "label": "sick"}
    whole = read_table(source, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "CELLS", cells)
        same(read_table(source, **options), whole)


def test_without_a_table_labels_are_counted(tmp_path, small_pieces):
    rows, _ = wards()
    read = read_table(saved(rows, tmp_path / "rows.csv"), bag="ward", label="sick")
    assert read.ids == tuple(rows["ward"].unique())
    assert read.classes == CLASSES
    assert read.truth is not None
    for k, ward in enumerate(read.ids):
        own = rows.index[rows["ward"] == ward]
        assert read.rows(k).tolist() == own.tolist()
        counts = rows["sick"][own].value_counts().reindex(CLASSES, fill_value=0)
        assert read.counts[k].tolist() == counts.tolist()
    assert [CLASSES[c] for c in read.truth] == rows["sick"][read.index].tolist()
    assert columns_of(read).names == ("age", "job", "dose")


def test_classes_may_be_ordered_and_more_than_there_are():
    rows, table = wards()
    order = ["severe", "dead", "none", "mild"]
    read = read_table(rows, bag="ward", label="sick", classes=order)
    assert read.classes == tuple(order)
    assert read.counts[:, 1].tolist() == [0] * 5
    long = table.melt("ward", var_name="class")
    again = read_table(rows, bag="ward", proportions=long, classes=order, label="sick")
    assert again.classes == tuple(order)
    for k, ward in enumerate(again.ids):
        assert again.counts[k].tolist() == read.counts[read.ids.index(ward)].tolist()
    with pytest.raises(DataError, match=r"rows: row \d+ .* has label 'mild', which is none of"):
        read_table(rows, bag="ward", label="sick", classes=["none", "severe"])


def test_counts_and_normalize_go_to_bags():
    rows, _ = wards()
    counted = pd.crosstab(rows["ward"], rows["sick"])
    read = read_table(rows, bag="ward", proportions=counted, counts=True, keep=["sick"])
    assert read.counts.tolist() == counted.to_numpy().tolist()
    assert read.truth is None
    doubled = read_table(rows, bag="ward", proportions=2 * counted, normalize=True, keep="sick")
    assert doubled.counts.tolist() == counted.to_numpy().tolist()
    assert "sick" in columns_of(doubled).names


@pytest.mark.parametrize("form", [".csv", ".parquet"])
def test_what_apportion_bag_writes_is_read_by_split(tmp_path, small_pieces, form):
    from typer.testing import CliRunner

    from apportion.cli import app as cli

    people, _ = wards()
    saved(people.drop(columns="ward"), tmp_path / f"people{form}")
    arguments = ["bag", f"{tmp_path}/people{form}", "--label", "sick", "--size", "6"]
    options = ["--valid", "0.4", "--out", f"{tmp_path}/bags"]
    assert CliRunner().invoke(cli.app, [*arguments, *options]).exit_code == 0
    rows_file, table_file = tmp_path / f"bags/rows{form}", tmp_path / "bags/proportions.csv"
    rows = pd.read_csv(rows_file) if form == ".csv" else pd.read_parquet(rows_file)
    table = pd.read_csv(table_file)
    assert {"train", "valid"} == set(table["split"])
    everything = read_table(rows_file, bag="bag", proportions=table_file)
    assert everything.ids == tuple(table["bag"])
    assert everything.classes == CLASSES
    sets = read_sets(rows_file, bag="bag", proportions=table_file)
    assert list(sets) == ["train", "valid"]
    # Only the rows of the training bags were learned from.
    train = rows[rows["bag"].isin(sets["train"].ids)]
    columns = learn_columns(train[["age", "job", "dose"]])
    assert columns != everything.columns
    for name, read in sets.items():
        own = table[table["split"] == name]
        assert read.ids == tuple(own["bag"])
        np.testing.assert_allclose(read.proportions, own[list(CLASSES)])
        assert read.columns == columns
        np.testing.assert_array_equal(read.x[0], encode(columns, rows)[0])
        assert rows["bag"].to_numpy()[read.rows(0)].tolist() == [own["bag"].iloc[0]] * 6


def split_wards():
    rows, table = wards()
    split = ["train", "train", "valid", "train", "test"]  # of w3, w0, w4, w1, w2
    return rows, table.assign(split=split), rows["ward"].isin(["w4", "w2"])


@pytest.mark.parametrize("form", ["frame", ".csv", ".parquet"])
@pytest.mark.parametrize("named", [True, False], ids=["a table", "labels"])
def test_held_out_rows_teach_nothing(tmp_path, small_pieces, form, named):
    """Whatever their numbers, categories and gaps are, training rows become the same."""
    rows, table, out = split_wards()
    options: dict[str, Any] = {"bag": "ward", "label": "sick"}
    options |= {"proportions": table} if named else {"validation": 0.4, "seed": 1}
    sets = read_sets(rows, **options)
    held_out = [name for bags in list(sets.values())[1:] for name in bags.ids]
    out = rows["ward"].isin(held_out)
    assert out.any()
    odd = rows.assign(
        dose=rows["dose"].where(~out, rows["dose"] * 1000),
        job=rows["job"].where(~out, "pilot"),
        age=rows["age"].where(~out),
    )
    source = odd if form == "frame" else saved(odd, tmp_path / f"rows{form}")
    again = read_sets(source, **options)
    same_rows = [np.asarray(part)[sets["train"].index] for part in parts(sets["train"].x)]
    for part, own in zip(parts(again["train"].x), same_rows, strict=True):
        np.testing.assert_array_equal(part[again["train"].index], own)
    assert all(bags.columns == sets["train"].columns for bags in again.values())
    assert {name: bags.ids for name, bags in again.items()} == {
        name: bags.ids for name, bags in sets.items()
    }


def test_text_among_numbers_of_held_out_rows_is_refused_and_not_learned(tmp_path, small_pieces):
    """It makes text of a piece of a CSV file, but no category of the column."""
    rows, table, out = split_wards()
    first = int(np.flatnonzero(out)[-1])
    odd = rows.astype({"dose": object})
    odd.loc[first, "dose"] = "much"
    path = saved(odd, tmp_path / "rows.csv")
    with pytest.raises(DataError, match=rf"held numbers when it was learned, .*row {first} .*much"):
        read_sets(path, bag="ward", proportions=table, label="sick")


COLUMNS = {
    "whole": ["3", "-0", "12", "9007199254740993"],
    "real": ["0.1", "-2.5e-3", "1e5", "0.30000000000000004"],
    "boolean": ["True", "false", "TRUE", "False"],
    "boolean with gaps": ["True", "", "FALSE", "NA"],
    "text": ["cook", '"a, ""b"""', "cook", " x"],
    "numbers and text": ["1", "x", "2", "3.0"],
    "numbers and booleans": ["1", "True", "0", "False"],
    "codes": ["007", "07", "7", "007"],
    "dates": ["2026-01-02", "2026-01-03", "", "2026-01-02"],
    "missing": ["", "NA", "", "nan"],
}
WORDS = ["unknown", "2026-11-16", " "]
STRANGE = [*WORDS, "5", "0.5", "-1e30", "99999999999999999999", "True", "", "NA"]


@pytest.mark.parametrize("n_rows", [2, 100])
@pytest.mark.parametrize("kind", COLUMNS)
def test_a_cell_of_a_held_out_row_changes_no_bit_of_the_training_rows(
    tmp_path, monkeypatch, kind, n_rows
):
    """The training rows alone, as pandas reads them, say what a column is."""
    monkeypatch.setattr(pieces, "MOST_ROWS", n_rows)
    path, bags = tmp_path / "rows.csv", list("abab")
    table = pd.DataFrame({"bag": ["a", "b", "c"], "split": ["train", "train", "test"], "p": 1.0})
    options: dict[str, Any] = {"bag": "bag", "proportions": table}
    lines = [
        f"{bag},{cell},{k}\n" for k, (bag, cell) in enumerate(zip(bags, COLUMNS[kind], strict=True))
    ]
    path.write_text("bag,x,y\n" + "".join(lines))
    alone = pd.read_csv(path)[["x", "y"]]
    expected = learn_columns(alone)
    encoded = [part.tobytes() for part in parts(encode(expected, alone))]
    for strange in STRANGE:
        for at in (0, 2, 4):
            odd = [*lines[:at], f'c,"{strange}",9\n', *lines[at:]]
            path.write_text("bag,x,y\n" + "".join(odd))
            own = pd.DataFrame({"x": [None if strange in ("", "NA") else strange], "y": [9]})
            if kind == "dates" and strange not in ("2026-11-16", "", "NA"):
                said = "column 'x' held dates when it was learned, but row"
                with pytest.raises(DataError, match=rf"{said} {at} "):
                    read_sets(path, **options)
                with pytest.raises(DataError, match=rf"^{said} 0 "):
                    encode(expected, own)
                continue
            if "x" in expected.means and kind != "dates" and strange in WORDS:  # also predictions
                said = "column 'x' held numbers when it was learned, but holds text now: row"
                with pytest.raises(DataError, match=rf"{said} {at} .* is {strange!r}"):
                    read_sets(path, **options)
                with pytest.raises(DataError, match=rf"^{said} 0 .* is {strange!r}"):
                    encode(expected, own)
                continue
            train, test = read_sets(path, **options).values()
            assert train.columns == expected
            train_rows = np.sort(train.index)
            assert [part[train_rows].tobytes() for part in parts(train.x)] == encoded
            if "x" in expected.means and kind != "dates":  # a row becomes the same in any file
                own["x"] = [
                    np.nan if strange in ("", "NA") else float(strange.replace("True", "1"))
                ]
            rows = parts(encode(expected, own, warn=False))
            for part, row in zip(parts(test.x), rows, strict=True):
                np.testing.assert_array_equal(part[test.index], row)


def test_a_column_split_and_a_share_contradict_one_another():
    rows, table, _ = split_wards()
    with pytest.raises(ConfigError, match=r"validation is 0\.2, but the proportions have"):
        read_sets(rows, bag="ward", proportions=table, validation=0.2)


def test_files_are_opened_once_a_pass(tmp_path, monkeypatch):
    rows, table = wards()
    rows_file, table_file = saved(rows, tmp_path / "r.csv"), saved(table, tmp_path / "t.csv")
    opened: list[str] = []

    def watch(event, arguments):
        if event == "open" and watching and str(arguments[0]).endswith(("r.csv", "t.csv")):
            opened.append(Path(str(arguments[0])).name)

    watching = True
    sys.addaudithook(watch)  # which cannot be removed
    read_sets(rows_file, bag="ward", proportions=table_file, validation=0.2)
    assert sorted(opened) == ["r.csv", "r.csv", "t.csv"]
    opened.clear()
    read_sets(rows_file, bag="ward", label="sick", validation=0.2)
    assert opened == ["r.csv"] * 3
    watching = False


def test_digits_of_a_csv_file_are_text_where_text_was_learned(tmp_path):
    columns = learn_columns(pd.DataFrame({"code": ["1", "2", "02"]}))
    rows = pd.DataFrame({"bag": ["a"] * 4, "code": ["2", "02", None, "1"]})
    path = saved(rows, tmp_path / "rows.csv")
    read = read_table(path, bag="bag", proportions={"a": [1.0]}, columns=columns)
    texts = [None, *columns.categories["code"]]
    assert [texts[code] for code in read.x[1].ravel()] == ["2", "02", None, "1"]


def test_columns_may_be_chosen_or_learned_before(tmp_path, small_pieces):
    rows, table = wards()
    path = saved(rows, tmp_path / "rows.parquet")
    some = read_table(path, bag="ward", proportions=table, columns=["dose", "age"])
    assert columns_of(some).names == ("dose", "age")
    np.testing.assert_array_equal(some.x[:, 0], rows["dose"].astype(np.float32))
    other = rows.assign(job="pilot", age=rows["age"] + 100)
    with pytest.warns(UserWarning, match=rf"'job' in {N} rows \(such as 'pilot'\)") as caught:
        read = read_table(
            saved(other, tmp_path / "other.csv"),
            bag="ward",
            proportions=table,
            columns=learn_columns(rows[["job", "age"]]),
        )
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert read.x[0][3].tolist() == [np.float32(rows["age"].mean()), 1]
    assert read.x[1].tolist() == [[0]] * N


def test_an_index_is_a_bag_or_a_label_but_never_a_feature(tmp_path):
    rows, table = wards()
    options = {"proportions": table, "bag": "ward", "label": "sick"}
    plain = read_table(rows, **options)
    same(read_table(rows.set_index(["ward", "sick"]), **options), plain)
    same(read_table(rows.set_index(np.arange(N)[::-1]), **options), plain)
    rows.set_index("ward").to_parquet(tmp_path / "named.parquet")
    rows.iloc[::-1].iloc[::-1].to_parquet(tmp_path / "nameless.parquet", index=True)
    rows.to_csv(tmp_path / "nameless.csv")
    for name in ("named.parquet", "nameless.parquet", "nameless.csv"):
        same(read_table(tmp_path / name, **options), plain)


def test_a_nameless_column_is_reported(tmp_path, caplog):
    rows, table = wards()
    rows.to_csv(tmp_path / "rows.csv")
    with caplog.at_level(logging.WARNING, "apportion"):
        read_table(tmp_path / "rows.csv", bag="ward", proportions=table, label="sick")
    (message,) = caplog.messages
    assert "rows.csv: a column without a name is left out" in message


def test_a_column_of_a_csv_file_is_of_one_kind_in_all_of_it(tmp_path, small_pieces):
    rows, table = wards()
    codes = [*map(str, range(N - 2)), "4b", "007"]  # digits until near the end
    rows = rows.assign(code=codes, late=[None] * 50 + ["x"] * 10)
    path = saved(rows, tmp_path / "rows.csv")
    columns = columns_of(read_table(path, bag="ward", proportions=table, keep=["sick"]))
    assert set(columns.categories["code"]) == set(codes)
    assert columns.categories["late"] == ("x",)
    assert "age" in columns.means


# ------------------------------------------------------------------------------------------ bag ids


@pytest.mark.parametrize(
    ("in_rows", "in_table", "ids"),
    [
        (["7", "12"], ["12", "7"], (12, 7)),  # both as pandas would read them
        (["007", "12"], ["12", "007"], ("12", "007")),
        (["7.0", "12.0"], ["7", "12"], (7, 12)),
        (["a", "7"], ["a", "7"], ("a", "7")),
        (["7", "12"], [7, 12], (7, 12)),  # numbers stand for a frame, texts for a CSV file
        ([7, 12], ["7", "12"], (7, 12)),
    ],
)
def test_bags_are_matched_as_numbers_if_they_are_and_as_text_otherwise(
    tmp_path, in_rows, in_table, ids
):
    table = pd.DataFrame({"bag": in_table, "yes": 0.5, "no": 0.5})
    rows = pd.DataFrame({"bag": in_rows * 2, "x": range(4)})
    read = read_table(
        rows if isinstance(in_rows[0], int) else saved(rows, tmp_path / "rows.csv"),
        bag="bag",
        proportions=table if isinstance(in_table[0], int) else saved(table, tmp_path / "t.csv"),
    )
    assert read.ids == ids
    assert [type(name) for name in read.ids] == [type(name) for name in ids]
    first = list(map(float, in_rows)).index(float(ids[0])) if ids[0] != "a" else 0
    assert read.rows(0).tolist() == [first, first + 2]


def test_bags_are_called_as_in_the_table_of_proportions(tmp_path):
    table = pd.DataFrame({"bag": [7, 12], "yes": 0.5, "no": 0.5})
    rows = pd.DataFrame({"bag": ["12", "7"] * 2, "x": range(4)})
    read = read_table(rows, bag="bag", proportions=saved(table, tmp_path / "table.csv"))
    assert read.ids == (7, 12)
    assert read.rows(0).tolist() == [1, 3]
    other = read_table(
        saved(rows, tmp_path / "rows.csv"), bag="bag", proportions=table.astype({"bag": str})
    )
    assert other.ids == ("7", "12")


@pytest.mark.parametrize(("in_rows", "in_table"), [(["7", "12"], [7, 12]), ([7, 12], ["7", "12"])])
def test_text_and_numbers_of_frames_meet_if_they_are_written_alike(in_rows, in_table):
    table = pd.DataFrame({"bag": in_table, "yes": 1.0})
    rows = pd.DataFrame({"bag": in_rows, "x": 1.0})
    assert list(read_table(rows, bag="bag", proportions=table).ids) == in_table
    with pytest.raises(DataError, match=r"row 0 .* not in proportions"):
        read_table(rows.assign(bag="007"), bag="bag", proportions=table)


def test_ids_and_classes_of_other_types_keep_them():
    rows = pd.DataFrame({"bag": pd.to_datetime(["2020-01-01", "2020-01-02"]), "x": [1.0, 2.0]})
    table = {day: {True: 1.0, False: 0.0} for day in rows["bag"]}
    read = read_table(rows, bag="bag", proportions=table)
    assert read.ids == tuple(rows["bag"])
    assert read.classes == (True, False)
    categories = rows.assign(bag=pd.Categorical(["b", "a"]), truth=[1, 0])
    wide = pd.DataFrame({0: [0.0, 1.0], 1: [1.0, 0.0]}, index=["b", "a"])
    read = read_table(categories, bag="bag", proportions=wide, label="truth")
    assert (read.ids, read.classes) == (("b", "a"), (0, 1))
    assert read.truth is not None
    assert read.truth.tolist() == [1, 0]


def test_labels_find_their_class_by_its_text(tmp_path):
    rows = pd.DataFrame({"bag": ["a", "a", "b"], "x": 1.0, "truth": [1, 0, 1]})
    table = pd.DataFrame({"bag": ["a", "b"], "1": [0.5, 1.0], "0": [0.5, 0.0]})
    for source in (rows, saved(rows, tmp_path / "r.csv"), saved(rows, tmp_path / "r.parquet")):
        read = read_table(source, bag="bag", proportions=table, label="truth")
        assert read.classes == ("1", "0")
        assert read.truth is not None
        assert read.truth.tolist() == [0, 1, 0]


@pytest.mark.parametrize("form", ["dict", "frame", "long", "csv", "labels"])
@pytest.mark.parametrize("ids", [range(30), [f"w{i}" for i in range(30)]])
def test_held_out_bags_do_not_depend_on_the_order_of_the_bags(tmp_path, form, ids):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"ward": np.repeat(list(ids), 4), "x": rng.normal(size=120)})
    rows["sick"] = rng.choice(["no", "yes"], 120)
    found = []
    for seed in range(3):
        shuffled = rows.sample(frac=1, random_state=seed)
        table = pd.crosstab(rows["ward"], rows["sick"]).sample(frac=1, random_state=seed)
        given = {
            "dict": lambda t: t.to_dict("index"),
            "frame": lambda t: t,
            "long": lambda t: t.reset_index().melt("ward", var_name="class", value_name="count"),
            "csv": lambda t: saved(t.reset_index(), tmp_path / "wards.csv"),
            "labels": lambda t: None,
        }[form](table)
        options = {"label": "sick"} if form == "labels" else {"columns": ["x"]}
        sets = read_sets(
            shuffled, bag="ward", proportions=given, counts=True, validation=0.2, seed=5, **options
        )
        found.append({name: set(map(str, own.ids)) for name, own in sets.items()})
    assert found[0] == found[1] == found[2]
    assert len(found[0]["valid"]) == 6
