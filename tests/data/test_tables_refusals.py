"""Tables that are refused: every message names the file, the row or bag, and the remedy."""

import numpy as np
import pandas as pd
import pytest

from apportion.bags.columns import Columns
from apportion.data import pieces
from apportion.data.encoding import learn_columns
from apportion.data.tables import read_table
from apportion.errors import BagError, DataError
from tests.data.wards import saved, wards


@pytest.fixture
def small_pieces(monkeypatch):
    """Read pieces of three rows, of five columns each."""
    monkeypatch.setattr(pieces, "CELLS", 15)


def refused(error, rows, table, tmp_path, form=".csv", **options):
    """Return the message of the error that two files raise."""
    rows_file, table_file = tmp_path / f"rows{form}", tmp_path / f"wards{form}"
    saved(rows, rows_file)
    saved(table, table_file)
    with pytest.raises(error) as caught:
        read_table(rows_file, **{"bag": "ward", "proportions": table_file} | options)
    message = str(caught.value)
    assert str(rows_file) in message or str(table_file) in message
    return message


@pytest.mark.parametrize("form", [".csv", ".parquet"])
def test_refusals_name_file_row_bag_and_remedy(tmp_path, small_pieces, form):
    rows, table = wards()

    def message(rows=rows, table=table, error=DataError, **options):
        return refused(error, rows, table, tmp_path, form, **options)

    rows_file, table_file = tmp_path / f"rows{form}", tmp_path / f"wards{form}"
    no_bag = message(rows.assign(ward=rows["ward"].where(~rows.index.isin([20, 30]))))
    assert f"{rows_file}: row 20 (counted from 0) has no bag" in no_bag
    assert "'ward'" in no_bag
    other = message(rows.assign(ward=rows["ward"].where(~rows.index.isin([20, 30]), "w33")))
    assert f"{rows_file}: row 20 (counted from 0) is in bag 'w33'" in other
    assert f"not in {table_file}" in other
    assert "Did you mean 'w3'?" in other
    assert "skip_unplaced=True" in no_bag
    assert "skip_unplaced=True" in other
    no_label = rows.assign(sick=rows["sick"].where(rows.index != 9))
    counted = message(no_label, error=BagError, label="sick", proportions=None)
    assert "the label of 1 row is missing" in counted
    label = message(rows.assign(sick=rows["sick"].where(rows.index != 9, "mild?")), label="sick")
    assert "row 9 (counted from 0) has label 'mild?'" in label
    assert "Did you mean 'mild'?" in label
    assert "has no column 'wrd'" in message(bag="wrd")
    assert "Did you mean 'ward'?" in message(bag="wrd")
    assert f"{rows_file} has no column 'sik'" in message(label="sik")
    assert f"{rows_file} has no column 'aeg'" in message(columns=["aeg"])
    learned = learn_columns(rows.assign(height=rows.index)[["age", "height"]])
    assert f"{rows_file} has no column 'height'" in message(columns=learned)
    assert "0 columns to learn from beside 'ward'" in message(rows[["ward"]])
    assert f"{rows_file} has 0 rows" in message(rows[:0])
    infinite = message(rows.assign(dose=rows["dose"].where(rows.index != 44, np.inf)))
    assert f"{rows_file}: column 'dose' is inf in row 44 " in infinite
    as_text = message(
        rows.assign(age=rows["job"]), columns=learn_columns(rows[["age"]]), label="sick"
    )
    assert f"{rows_file}: column 'age' held numbers when it was learned" in as_text
    # What Bags refuses.
    changed = table.copy()
    changed.loc[2, "mild"] = np.nan
    nan = message(table=changed, error=BagError)
    assert f"{table_file}: bag 'w4' has 12 instances" in nan
    assert "class 'mild' is nan" in nan
    changed.loc[2, "mild"] = -0.25
    assert "class 'mild' is -0.25" in message(table=changed, error=BagError)
    changed.loc[2, "mild"] = 0.75
    assert "sum to" in message(table=changed, error=BagError)
    assert "correct the values" in message(table=changed, error=BagError)
    assert "count of class" in message(error=BagError, counts=True)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("missing.csv", None, "missing.csv does not exist"),
        ("rows.xlsx", b"x", "is not an Excel file"),
        ("rows.xls", b"x", "is none of .csv, "),
        ("empty.csv", b"", "cannot be read"),
        ("empty.parquet", b"", "cannot be read"),
        ("no.parquet", b"ward,x\na,1\n", "cannot be read"),
        ("no.csv", b"PAR1\x00\x01\x02\xff\xfe", "has bytes that are not utf-16"),
        ("no.txt", b"ward,x\na\x81,1\n", "has bytes that are not utf-8 nor cp1252"),
        ("no.csv.gz", b"ward,x\na,1\n", "cannot be read"),
        ("long.csv", b"ward,x\na,1,2\nb,1,3\n", "cannot be read"),
        ("ragged.csv", b"ward,x\na,1\nb,1,3\n", "cannot be read"),
        ("twice.csv", b"ward,x,x\na,1,2\n", "twice.csv: column 'x' occurs more than once"),
        ("names.csv", b"ward,x\n", "0 rows"),
        ("date.parquet", None, "date.parquet does not exist"),
    ],
)
def test_files_that_are_not_what_they_should_be_are_refused(tmp_path, name, content, named):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        read_table(tmp_path / name, bag="ward", proportions={"a": [1.0]})
    assert named in str(error.value)
    assert name in str(error.value)
    assert len(str(error.value).splitlines()) > 1
    if "0 rows" not in named:
        rows = pd.DataFrame({"ward": ["a"], "y": [1.0]})
        with pytest.raises(DataError, match=name):
            read_table(rows, bag="ward", proportions=tmp_path / name)


def test_a_broken_file_is_refused_wherever_it_breaks(tmp_path, small_pieces):
    rows, table = wards()
    saved(rows, tmp_path / "rows.csv.gz")
    whole = (tmp_path / "rows.csv.gz").read_bytes()
    (tmp_path / "rows.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"rows.csv.gz cannot be read"):
        read_table(tmp_path / "rows.csv.gz", bag="ward", proportions=table)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"proportions": None}, "neither proportions nor a label"),
        ({"columns": ["age", "sick"], "label": "sick"}, "'sick' is the label"),
        ({"columns": ["ward"]}, "'ward' is the bag"),
        ({"columns": []}, "0 columns"),
        ({"proportions": 3}, "proportions are a int"),
    ],
)
def test_options_that_contradict_one_another_are_refused(options, named):
    rows, table = wards()
    with pytest.raises(DataError, match=named):
        read_table(rows, **{"bag": "ward", "proportions": table} | options)


def test_a_column_of_another_type_is_answered_with_the_option_that_leaves_it_out():
    rows, table = wards()
    with pytest.raises(DataError, match="column 'z' is of type complex128") as error:
        read_table(rows.assign(z=1j), bag="ward", proportions=table)
    assert error.value.names("columns")


def test_rows_that_are_no_table_are_refused():
    with pytest.raises(DataError, match="rows are a ndarray"):
        read_table(np.eye(2), bag="ward")


def test_a_file_that_changes_meanwhile_is_refused(tmp_path, monkeypatch, small_pieces):
    rows, table = wards()
    path = saved(rows, tmp_path / "rows.csv")
    learn = Columns.__init__

    def learn_and_change(self, **fields):
        learn(self, **fields)
        saved(pd.concat([rows, rows]), path)

    monkeypatch.setattr(Columns, "__init__", learn_and_change)
    with pytest.raises(DataError, match=r"rows.csv had 60 rows, but their number has changed"):
        read_table(path, bag="ward", proportions=table)


# -------------------------------------------------------------------- files that people made


@pytest.mark.parametrize(
    "title",
    ["Ergebnisse der Wahl 2024,,,,\n,,,,\n", "Ergebnisse der Wahl 2024\n\n", ",Person,,,\n"],
)
def test_a_title_above_the_names_is_recognised(tmp_path, title):
    rows, table = wards()
    path = tmp_path / "rows.csv"
    path.write_text(title + rows.to_csv(index=False))
    with pytest.raises(DataError, match="no column 'ward': its first row has '") as error:
        read_table(path, bag="ward", proportions=table)
    assert "seems to be a title" in str(error.value)
    assert "delete the rows above them" in str(error.value)
    assert "Unnamed" not in str(error.value)
    rows.to_excel(tmp_path / "rows.xlsx", index=False, startrow=2)
    with pytest.raises(DataError, match="seems to be a title"):
        read_table(tmp_path / "rows.xlsx", bag="ward", proportions=table)


def test_the_sheet_of_rows_is_not_one_of_proportions(tmp_path):
    rows, table = wards()
    with pd.ExcelWriter(tmp_path / "both.xlsx") as book:
        rows.to_excel(book, sheet_name="people", index=False)
        table.to_excel(book, sheet_name="wards", index=False)
    with pytest.raises(DataError, match="12 rows of bag") as error:
        read_table(tmp_path / "both.xlsx", bag="ward", proportions=tmp_path / "both.xlsx")
    last = str(error.value).splitlines()[-1]
    assert "This is sheet 'people', the first of 'people', 'wards'" in last
    assert "pass proportions_sheet='wards'" in last


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_sheet_of_another_file_is_refused(tmp_path, suffix):
    rows, table = (saved(frame, tmp_path / f"{k}{suffix}") for k, frame in enumerate(wards()))
    with pytest.raises(DataError, match="not an Excel file") as error:
        read_table(rows, bag="ward", proportions=table, sheet="people")
    assert "Leave out sheet='people'." in str(error.value)
    with pytest.raises(DataError, match="not an Excel file") as error:
        read_table(rows, bag="ward", proportions=table, proportions_sheet="wards")
    assert "Leave out proportions_sheet='wards'." in str(error.value)


def test_an_empty_proportion_is_called_so(tmp_path):
    rows, table = wards()
    table.loc[1, "mild"] = np.nan
    with pytest.raises(BagError, match="class 'mild' is nan, as that of an empty cell") as error:
        read_table(rows, bag="ward", proportions=saved(table, tmp_path / "wards.csv"))
    assert "Fill it in, with 0 if there are none" in str(error.value)


def test_a_column_that_occurs_twice_is_mended_in_the_table(tmp_path):
    (tmp_path / "rows.csv").write_text("ward,x,x\na,1,2\n")
    with pytest.raises(DataError, match="rename or remove one in the table"):
        read_table(tmp_path / "rows.csv", bag="ward", proportions={"a": 0.5})
