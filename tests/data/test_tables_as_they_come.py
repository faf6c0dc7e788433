"""Rows and proportions in every form: Excel, folders of Parquet files, other frames, gaps."""

import datetime
import logging
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from apportion import Bags
from apportion.bags.columns import Columns
from apportion.data import images, pieces, signals, tables
from apportion.data.encoding import encode, learn_columns
from apportion.errors import BagError, DataError
from tests.data.wards import same, saved, wards

# Whose results are looked into without asking first.
read_table: Any = tables.read_table
read_sets: Any = tables.read_sets
read_images: Any = images.read_images
read_signals: Any = signals.read_signals
DAYS: Any = pd.DatetimeIndex(["2024-01-31", "2024-02-01", pd.NaT, "1969-12-31"])


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "CELLS", 15)


@pytest.fixture
def notes(caplog):
    caplog.set_level(logging.INFO, "apportion.reading")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "apportion.reading"]


# ------------------------------------------------------------------------------------- forms


@pytest.mark.parametrize(
    "make", [pl.from_pandas, pa.Table.from_pandas, lambda f: pl.from_pandas(f).lazy()]
)
def test_frames_of_other_libraries_are_read_as_those_of_pandas(make):
    rows, table = wards()
    options: dict[str, Any] = {"bag": "ward", "label": "sick"}
    expected = read_table(rows, proportions=table, **options)
    same(read_table(make(rows), proportions=make(table), **options), expected)


def test_a_folder_of_parquet_files_is_one_table(tmp_path, small_pieces):
    rows, table = wards()
    folder = tmp_path / "rows"
    folder.mkdir()
    for k, begin in enumerate(range(0, 60, 25)):
        rows.iloc[begin : begin + 25].to_parquet(folder / f"part-{k}.parquet", index=False)
    (folder / "_SUCCESS").touch()
    options: dict[str, Any] = {"bag": "ward", "label": "sick"}
    expected = read_table(rows, proportions=table, **options)
    same(read_table(folder, proportions=table, **options), expected)
    folder_of_wards = tmp_path / "wards"
    folder_of_wards.mkdir()
    table[:2].to_parquet(folder_of_wards / "a.parquet", index=False)
    table[2:].to_parquet(folder_of_wards / "b.parquet", index=False)
    same(read_table(folder, proportions=folder_of_wards, **options), expected)


def test_folders_whose_files_disagree_are_refused(tmp_path):
    rows, table = wards()
    with pytest.raises(DataError, match=r"0 \.parquet files"):
        read_table(tmp_path, bag="ward", proportions=table)
    rows.to_parquet(tmp_path / "a.parquet", index=False)
    rows.drop(columns="age").to_parquet(tmp_path / "b.parquet", index=False)
    with pytest.raises(DataError, match=r"b\.parquet has the columns .*'age' is different"):
        read_table(tmp_path, bag="ward", proportions=table)
    rows.assign(age="x").to_parquet(tmp_path / "b.parquet", index=False)
    with pytest.raises(DataError, match=r"b\.parquet has column 'age' of type .*string"):
        read_table(tmp_path, bag="ward", proportions=table)
    (tmp_path / "year=2024").mkdir()
    rows.to_parquet(tmp_path / "year=2024" / "c.parquet", index=False)
    with pytest.raises(DataError, match=r"such as year=2024.c\.parquet"):
        read_table(tmp_path, bag="ward", proportions=table)


def test_an_excel_file_has_sheets(tmp_path, notes):
    rows, table = wards()
    path = tmp_path / "both.xlsx"
    with pd.ExcelWriter(path) as book:
        rows.to_excel(book, sheet_name="people", index=False)
        table.to_excel(book, sheet_name="wards", index=False)
    options: dict[str, Any] = {"bag": "ward", "label": "sick"}
    expected = read_table(rows, proportions=table, **options)
    found = read_table(path, proportions=path, proportions_sheet="wards", **options)
    np.testing.assert_allclose(found.x[0], expected.x[0])
    np.testing.assert_array_equal(found.x[1], expected.x[1])
    np.testing.assert_array_equal(found.counts, expected.counts)
    assert "sheet 'people' is read, the first of 'people', 'wards'" in notes()[0]
    assert "sheet='wards' chooses another" in notes()[0]
    with pytest.raises(DataError, match="no sheet 'peple'") as error:
        read_table(path, proportions=table, sheet="peple", **options)
    assert "Did you mean 'people'?" in str(error.value)


def test_numbers_that_excel_stores_as_text_are_numbers(tmp_path, notes):
    frame = pd.DataFrame(
        {
            "ward": [1, 1, None, 1],
            "x": ["1,5", 2.5, None, "1.234,5"],
            "t": ["a", 1, None, 2.0],
            "d": [datetime.date(2024, 1, 31), None, None, datetime.date(2024, 2, 1)],
        }
    )
    frame.to_excel(tmp_path / "rows.xlsx", index=False)
    bags = read_table(tmp_path / "rows.xlsx", bag="ward", proportions={1: 0.5})
    assert bags.n_instances == 3  # an empty row is none
    assert bags.x[0][:, 0].tolist() == [1.5, 2.5, 1234.5]
    assert sorted(bags.columns.categories["t"]) == ["1", "2", "a"]
    assert list(bags.columns.dates) == ["d"]
    assert any("Column 'x' is read as numbers with separated thousands" in note for note in notes())


def test_without_openpyxl_the_error_says_what_to_install(tmp_path, monkeypatch):
    pd.DataFrame({"a": [1]}).to_excel(tmp_path / "rows.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DataError, match=r"pip install 'apportion\[excel\]'"):
        read_table(tmp_path / "rows.xlsx", bag="a")


# ------------------------------------------------------------------------- bags, rows and truth


@pytest.mark.parametrize("form", [".csv", ".parquet", "frame"])
def test_bags_without_rows_are_left_out_and_counted(tmp_path, form, notes, small_pieces):
    rows, table = wards()
    more = pd.concat(
        [pd.DataFrame({"ward": ["x", "y"], "mild": 1.0, "none": 0, "severe": 0}), table]
    )
    given: Any = (rows, more)
    if form != "frame":
        given = saved(rows, tmp_path / f"rows{form}"), saved(more, tmp_path / f"wards{form}")
    expected = read_sets(rows, bag="ward", proportions=table, validation=0.4, seed=3)
    found = read_sets(given[0], bag="ward", proportions=given[1], validation=0.4, seed=3)
    for name, bags in expected.items():
        same(found[name], bags)
    assert [note for note in notes() if "without rows" in note] == [
        "2 bags of the table without rows: left out ('x', 'y')."
    ]


def test_bags_without_rows_may_empty_a_set():
    rows, table = wards()
    table["split"] = ["train"] * 4 + ["test"]
    some = rows[rows["ward"] != table["ward"].iloc[-1]]
    assert list(read_sets(some, bag="ward", proportions=table)) == ["train"]
    table["split"] = ["test"] * 4 + ["train"]
    with pytest.raises(DataError, match="no bag of split 'train' has rows"):
        read_sets(some, bag="ward", proportions=table)


@pytest.mark.parametrize("form", [".csv", ".parquet", "frame"])
def test_rows_without_a_known_bag_are_left_out_if_asked(tmp_path, form, notes, small_pieces):
    """They stay rows of x, so that rows are numbered as in the file, but nothing is learned."""
    rows, table = wards()
    odd = rows.copy()
    odd.loc[[4, 30], "ward"] = [None, "elsewhere"]
    odd.loc[[4, 30], ["age", "job"]] = [[1e6, "spy"], [2e6, "king"]]
    given = odd if form == "frame" else saved(odd, tmp_path / f"rows{form}")
    shares = dict(zip(table["ward"], table.drop(columns="ward").to_numpy().tolist(), strict=True))
    options: dict[str, Any] = {"bag": "ward", "proportions": shares, "label": "sick"}
    options["classes"] = ["mild", "none", "severe"]
    with pytest.raises(DataError) as error:
        read_table(given, **options)
    assert error.value.names("skip_unplaced")
    found = read_table(given, **options, skip_unplaced=True)
    alone = read_table(rows.drop(index=[4, 30]), **options)
    assert found.columns == alone.columns
    assert found.n_instances == 58
    assert found.n_rows == 60
    for part, own in zip(found.x, alone.x, strict=True):
        np.testing.assert_array_equal(part[found.index], own[alone.index])
    np.testing.assert_array_equal(found.truth, alone.truth)
    assert notes().count("2 rows in no known bag: left out.") == 1


@pytest.mark.parametrize("form", [".csv", ".parquet", "frame"])
def test_the_truth_may_be_known_for_some_rows(tmp_path, form, notes):
    rows, table = wards()
    some = rows.assign(sick=rows["sick"].where(rows.index % 3 == 0))
    given = some if form == "frame" else saved(some, tmp_path / f"rows{form}")
    found = read_table(given, bag="ward", proportions=table, label="sick")
    full = read_table(rows, bag="ward", proportions=table, label="sick")
    known = found.index % 3 == 0
    np.testing.assert_array_equal(found.truth, np.where(known, full.truth, -1))
    assert "The truth is known for 20 of 60 instances" in notes()[-1]
    assert "truth known for 20 instances" in repr(found)
    assert "known for 20 of 60; it differs from the counts of 0 bags" in str(found.describe())
    empty = read_table(some.assign(sick=None), bag="ward", proportions=table, label="sick")
    assert empty.truth is None


def test_signals_and_images_take_the_same(tmp_path, notes):
    from PIL import Image

    frames = pd.DataFrame(
        {
            "word": [1, 1, 2, 3, 4],
            "speaker": ["ann", "ann", "ann", None, "bob"],
            "said": ["yes", "yes", None, "no", "no"],
            "pitch": ["1,5", "2", "3", "4", "5"],
        }
    )
    path = tmp_path / "frames.txt"
    frames.to_csv(path, sep=";", index=False)
    shares = {"ann": {"no": 0.5, "yes": 0.5}, "eve": {"no": 1, "yes": 0}}
    options: dict[str, Any] = {"bag": "speaker", "proportions": shares, "label": "said"}
    with pytest.raises(DataError, match="has no 'speaker'"):
        read_signals(path, signal="word", **options)
    bags = read_signals(path, signal="word", skip_unplaced=True, **options)
    assert (bags.ids, bags.truth.tolist()) == (("ann",), [1, -1])
    assert bags.x[0][bags.index[0], 0].tolist() == [1.5, 2]
    assert "2 rows in no known bag: left out." in notes()

    for name in ("1", "2", "3", "4"):
        Image.new("RGB", (2, 2), "red").save(tmp_path / f"{name}.png")
    files = frames.drop(index=1).assign(file=lambda f: f["word"].astype(str) + ".png")
    pictures = read_images(tmp_path, files, skip_unplaced=True, **options)
    assert (pictures.ids, pictures.truth.tolist()) == (("ann",), [1, -1])


# ------------------------------------------------------------------ dates, and columns left out


DATES = [day.date() if day == day else None for day in DAYS]
AS_DAYS = [19753, 19754, np.nan, -1]


def in_days(columns, frame):
    numbers = np.asarray(encode(columns, frame), np.float64)
    days = numbers[:, 0] + columns.means["d"]
    days[numbers[:, 1] > 0] = np.nan
    return days


@pytest.mark.parametrize(
    "cells",
    [
        DAYS,
        DAYS.tz_localize("UTC").tz_convert("Asia/Tokyo"),
        DATES,
        pd.array(
            pa.array(DATES),
            dtype=pd.ArrowDtype(pa.date32()),
        ),
        pd.array(
            pa.array(DATES).cast(pa.timestamp("us")),
            dtype=pd.ArrowDtype(pa.timestamp("us")),
        ),
        DAYS.strftime("%Y-%m-%d"),
        DAYS.strftime("%d.%m.%Y"),
        DAYS.strftime("%m/%d/%Y"),
        DAYS.strftime("%d/%m/%Y 00:00"),
    ],
)
def test_dates_become_days(cells, notes):
    frame = pd.DataFrame({"d": cells})
    columns = learn_columns(frame)
    assert list(columns.dates) == ["d"]
    assert "Column 'd' holds dates" in notes()[0]
    np.testing.assert_allclose(in_days(columns, frame), AS_DAYS, atol=0.01)
    again = Columns.from_dict(columns.to_dict())
    for other in (DAYS, DAYS.strftime("%Y-%m-%d"), DAYS.strftime("%d.%m.%Y")):
        np.testing.assert_allclose(in_days(again, pd.DataFrame({"d": other})), AS_DAYS, atol=0.01)
    for odd in ("soon", "31.02.2024", 5, 5.5):
        with pytest.raises(DataError, match="column 'd' held dates"):
            encode(columns, pd.DataFrame({"d": [odd]}))


def test_the_time_of_day_is_kept_to_the_minute():
    times = pd.date_range("2023-01-01", periods=1000, freq="1min").append(
        pd.date_range("2024", periods=2)
    )
    columns = learn_columns(pd.DataFrame({"d": times}))
    values = encode(columns, pd.DataFrame({"d": times}))[:, 0]
    assert len(np.unique(values)) == 1002


def test_dates_that_may_be_read_in_two_ways_stay_categories(caplog):
    frame = pd.DataFrame({"d": ["3/4/2024", "5/6/2024", "3/4/2024"]})
    assert learn_columns(frame).dates == {}
    assert "may begin with the day or with the month" in caplog.text
    first = learn_columns(pd.DataFrame({"d": ["3/4/2024", "13/6/2024"]}))
    assert first.dates == {"d": "day first"}
    with pytest.raises(DataError, match=r"held dates \(day first\) .* is '3/13/2024'"):
        encode(first, pd.DataFrame({"d": ["3/13/2024"]}))
    typed = learn_columns(pd.DataFrame({"d": DAYS}))
    with pytest.raises(DataError, match="'3/4/2024'"):
        encode(typed, pd.DataFrame({"d": ["3/4/2024"]}))


@pytest.mark.parametrize("late", ["13/2/2024", "2/13/2024", "n. a."])
def test_all_pieces_decide_how_dates_are_read(tmp_path, late, monkeypatch):
    monkeypatch.setattr(pieces, "MOST_ROWS", 3)
    path = tmp_path / "rows.csv"
    cells = [f"{k}/{k + 1}/2024" for k in range(1, 11)]
    path.write_text("bag,d\n" + "".join(f"a,{cell}\n" for cell in [*cells, late]))
    columns = read_table(path, bag="bag", proportions={"a": 0.5}).columns
    how = {"13/2/2024": {"d": "day first"}, "2/13/2024": {"d": "month first"}, "n. a.": {}}
    assert columns.dates == how[late]


def test_durations_are_numbers_of_days():
    frame = pd.DataFrame({"t": pd.to_timedelta([12, 36], "h")})
    assert encode(learn_columns(frame), frame).ravel().tolist() == [0.5, 1.5]


@pytest.mark.parametrize("form", [".csv", ".parquet", "frame"])
def test_empty_and_constant_columns_are_left_out_and_said(tmp_path, form, notes, small_pieces):
    rows, table = wards()
    odd = rows.assign(one=1, word="x", none=None, gaps=np.where(rows.index < 5, np.nan, 3.0))
    given = odd if form == "frame" else saved(odd, tmp_path / f"rows{form}")
    found = read_table(given, bag="ward", proportions=table, label="sick")
    assert found.columns.names == ("age", "job", "dose", "gaps")
    assert notes() == [
        "Column 'none' has no values, and is left out.",
        "Columns 'one', 'word' have one value in all rows, and are left out.",
    ]
    read_table(rows.assign(gaps=1.0), bag="ward", proportions=table, columns=found.columns)


def test_where_nothing_varies_all_columns_stay(caplog):
    assert learn_columns(pd.DataFrame({"a": [1, 1], "b": ["x", "x"]})).names == ("a", "b")
    assert "nothing can be learned from them" in caplog.text


# ------------------------------------------------------------------------ missing classes


@pytest.mark.parametrize("scale", [1, 100])
@pytest.mark.parametrize("digits", [None, 3, 1])
def test_a_missing_class_is_never_hidden(scale, digits):
    rows, table = wards()
    short = table.drop(columns="mild").set_index("ward") * scale
    short = short if digits is None else short.round(digits)
    for normalize in (False, True):
        with pytest.raises(BagError) as error:
            read_table(
                rows.drop(columns="sick"), bag="ward", proportions=short, normalize=normalize
            )
        assert "missing class" in str(error.value) or "correct the values" in str(error.value)
    percents = (table.drop(columns="mild").set_index("ward") * 100).round().astype(int)
    with pytest.raises(BagError, match="percentages would if a class is missing"):
        Bags.from_rows(None, rows["ward"], percents, normalize=True)


@pytest.mark.parametrize(
    "form", ["parquet", "excel", "pyarrow", "polars", "pandas", "arrow dtypes"]
)
def test_decimals_and_times_of_day_are_numbers(tmp_path, form):
    pay: list[Any] = [*(Decimal(f"{k}.25") for k in range(8)), None]
    time: list[Any] = [*(datetime.time(3 * k, 30) for k in range(8)), None]
    types = {"ward": pa.string(), "pay": pa.decimal128(9, 2), "time": pa.time32("s")}
    whole: dict[str, Any] = {"ward": list("ababababa"), "pay": pay, "time": time}
    rows: Any = pa.table(whole, pa.schema(types))
    if form == "parquet":
        pq.write_table(rows, tmp_path / "rows.parquet")
        rows = tmp_path / "rows.parquet"
    elif form == "excel":
        book = openpyxl.Workbook()
        assert book.active is not None
        for row in [[*whole], *zip(*whole.values(), strict=True)]:
            book.active.append(row)
        book.save(tmp_path / "rows.xlsx")
        rows = tmp_path / "rows.xlsx"
    elif form == "polars":
        rows = pl.from_arrow(rows)
    elif form != "pyarrow":
        rows = rows.to_pandas(types_mapper=pd.ArrowDtype if form == "arrow" else None)
    bags = read_table(rows, bag="ward", proportions={"a": 0.5, "b": 0.25})
    assert bags.columns.numeric == bags.columns.gaps == ("pay", "time")
    assert bags.x[:, 0].tolist() == [0.25, 1.25, 2.25, 3.25, 4.25, 5.25, 6.25, 7.25, 3.75]
    np.testing.assert_allclose(bags.x[:8, 1], (3 * np.arange(8) + 0.5) / 24, rtol=1e-6)
