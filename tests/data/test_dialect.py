"""Separators, decimal signs and encodings, and what contradicts them later in a file."""

import io
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from apportion.data import dialect, pieces
from apportion.data.dialect import Dialect, TableFormat, formats, recognise
from apportion.data.pieces import open_pieces
from apportion.data.tables import read_table
from apportion.errors import ConfigError, DataError


def found(text, saved_as="utf-8", names=(), **given):
    file = io.BytesIO(text if isinstance(text, bytes) else text.encode(saved_as))
    made = recognise(file, Path("rows.csv"), TableFormat(**given), list(names))
    assert file.tell() == 0
    return made


@pytest.mark.parametrize(
    ("text", "sep", "decimal"),
    [
        ("a,b\n1.5,2\n", ",", "."),
        ("a,b\n1,2\n", ",", "."),
        ('a,b\n"1,5",2\n', ",", ","),
        ('a,b\n"1,234",2.5\n', ",", "."),
        ("a;b\n1,5;2\n", ";", ","),
        ("a;b\n1.5;2\n", ";", "."),
        ("a;b\n1;2\n", ";", ""),
        ("a;b\n1.234,5;2\n", ";", ","),
        ("a;b\n1,234.5;2\n", ";", "."),
        ("a;b\n1.234;0,5\n", ";", ","),
        ("a;b\n45,2 %;x\n", ";", ","),
        ("a;b\n31.12.2024;0,5\n", ";", ","),
        ("Name, Ort;b;c\nx, y;1,5;2\nz;2,5;3\n", ";", ","),
        ("a\tb\n1,5\t2\n", "\t", ","),
        ("a|b\n1.5|2\n", "|", "."),
        ("a\n1\n2\n", ",", "."),
        ('a;b\n"x;y";1\n"z\nu";2\n', ";", ""),
        ("", ",", "."),
    ],
)
def test_separators_and_decimal_signs(text, sep, decimal):
    assert (found(text).sep, found(text).decimal) == (sep, decimal)


def test_a_quoted_number_that_may_be_either_is_asked_for():
    text = 'a,b,c\nx,"52,100",42\ny,"48,350",43\n'
    with pytest.raises(DataError, match=r"'52,100', which may be 52100 or 52\.100") as error:
        found(text)
    assert "Pass decimal=','" in str(error.value)
    assert found(text, decimal=".").decimal == "."
    assert found(text + 'z,"52,1",44\n').decimal == ","
    assert found(text + 'z,"1,152,100",44\n').decimal == "."
    assert found('a,b\n"x, y",52.100\n').decimal == "."  # as in any file with commas


def test_what_most_columns_have_decides():
    assert found("a;b;c\n1,5;2,5;1.5\n").decimal == ","
    assert found("a;b;c\n1,5;2.5;1.5\n").decimal == "."


@pytest.mark.parametrize(
    ("encoding", "known"),
    [
        ("utf-8", "utf-8-sig"),
        ("utf-8-sig", "utf-8-sig"),
        ("cp1252", "cp1252"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
    ],
)
def test_encodings(encoding, known, tmp_path):
    made = found("Größe;€\n1,5;2\n", encoding)
    assert (made.encoding, made.sep, made.decimal) == (known, ";", ",")
    path = tmp_path / "rows.txt"
    path.write_text("Größe;€\n1,5;2\n", encoding=encoding)
    opened = open_pieces(path)
    assert opened.names == ["Größe", "€"]
    assert next(iter(opened.read(opened.names)))[1].to_numpy().tolist() == [[1.5, 2]]


def test_what_is_said_overrules_what_is_recognised():
    assert found("a,b\n1;5,2\n", sep=";").sep == ";"
    assert found("a;b\n1.5;2\n", decimal=",").decimal == ","
    assert found("Größe\n1\n", "cp1252", encoding="latin-1").encoding == "latin-1"
    assert found("Größe\n1\n", "utf-8-sig", encoding="cp1252").encoding == "utf-8-sig"
    assert TableFormat(sep="tab").sep == TableFormat(sep="\\t").sep == "\t"
    with pytest.raises(DataError, match="not utf-8"):
        found("Größe\n1\n", "cp1252", encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sep": ";;"}, "sep must be one character"),
        ({"sep": "x"}, "sep must be one character"),
        ({"decimal": ";"}, "decimal must be '.' or ','"),
        ({"encoding": "klingon"}, "encoding is 'klingon', which is not known"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        TableFormat(**options)


def test_what_is_recognised_is_said_once(tmp_path, caplog):
    path = tmp_path / "rows.csv"
    path.write_text("bag;größe;x\na;1.234,5;45,2 %\na;1,5;7%\n", encoding="cp1252")
    with caplog.at_level(logging.INFO, "apportion.reading"):
        bags = read_table(path, bag="bag", proportions={"a": [0.5, 0.5]})
    np.testing.assert_allclose(bags.x, [[1234.5, 0.452], [1.5, 0.07]], rtol=1e-6)
    said = [r.getMessage() for r in caplog.records if r.name == "apportion.reading"]
    form = "encoded in cp1252, cells separated by semicolons, numbers with decimal commas."
    assert said == [
        f"{path}: {form}",
        "Column 'größe' is read as numbers with separated thousands.",
        "Column 'x' is read as percentages (45 % is 0.45).",
    ]
    assert str(Dialect()) == ""


# -------------------------------------------------------------- beyond the beginning of a file


@pytest.fixture
def short_sight(monkeypatch):
    """Look at 100 bytes, and read pieces of 20 rows."""
    for name in ("LOOKED_AT", "HEAD", "WHOLE"):
        monkeypatch.setattr(dialect, name, 100)
    monkeypatch.setattr(pieces, "MOST_ROWS", 20)


def read(path, **options):
    return read_table(path, bag="bag", proportions={"a": [0.5, 0.5]}, **options)


def write(path, cells, sep=";"):
    path.write_text(f"bag{sep}x\n" + "".join(f"a{sep}{cell}\n" for cell in cells))
    return path


def test_a_decimal_sign_that_comes_late_names_the_option(tmp_path, short_sight):
    path = tmp_path / "rows.csv"
    for late, decimal in (("1,5", ","), ("1.5", "."), ("1.234", "?"), ("1,234", "?")):
        write(path, [*range(1, 60), late])
        with pytest.raises(DataError, match=rf"column 'x' has '{late}'") as error:
            read(path)
        assert error.value.names("decimal")
        for given in ".,":
            if decimal in (given, "?"):
                last = read(path, decimal=given).x[-1, 0]
                whole = decimal == "?" and given not in late
                assert last == (1234 if whole else np.float32(late.replace(",", ".")))


def test_numbers_with_the_other_sign_are_never_categories(tmp_path, short_sight):
    path = write(tmp_path / "rows.csv", [f"{k},5" for k in range(60)] + ["1.5"])
    with pytest.raises(DataError, match=r"column 'x' has '1\.5', a number with another") as error:
        read(path)
    assert error.value.names("decimal")
    # Thousands in such a file are whole numbers, wherever they stand.
    write(path, [f"{k},5" for k in range(60)] + ["1.234"])
    assert read(path).x[-1, 0] == 1234
    write(path, [*(f'"{k}.5"' for k in range(60)), '"1,5"'], sep=",")
    with pytest.raises(DataError, match=r"column 'x' has '1,5'"):
        read(path)


def test_text_beside_numbers_of_either_sign_is_text(tmp_path, short_sight):
    path = write(tmp_path / "rows.csv", [*(f"{k % 7},5" for k in range(60)), "1.5", "large"])
    assert len(read(path).columns.categories["x"]) == 9


def test_bytes_of_another_encoding_that_come_late_name_the_option(tmp_path, short_sight):
    path = write(tmp_path / "rows.csv", [f"{k},5" for k in range(60)])
    path.write_bytes(path.read_bytes() + "b;ü\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"rows\.csv has bytes that are not utf-8") as error:
        read(path)
    assert error.value.names("encoding")
    with pytest.raises(DataError, match="in bag 'b'"):
        read(path, encoding="cp1252")


def test_a_small_file_is_looked_at_to_its_end(tmp_path):
    path = write(tmp_path / "rows.csv", [f"{k % 10},5" for k in range(100_000)])
    path.write_bytes(path.read_bytes() + "a;ü\n".encode("cp1252"))
    assert open_pieces(path).dialect.encoding == "cp1252"


def test_predictions_name_the_option_too(tmp_path):
    columns = read(write(tmp_path / "rows.csv", [f"{k},5" for k in range(9)])).columns
    other = write(tmp_path / "new.csv", ["x", "1,5"])
    with pytest.raises(DataError, match=r"row 0 .* is 'x'"):
        read(other, columns=columns)
    mixed = write(tmp_path / "mixed.csv", ["0.5", "1.5", "2,5"])
    with pytest.raises(DataError, match=r"row 2 .* is '2,5'") as error:
        read(mixed, columns=columns)
    assert error.value.names("decimal")


@pytest.mark.parametrize("ending", [".tsv", ".txt", ".csv.gz", ".tsv.gz"])
def test_text_files_may_end_otherwise(tmp_path, ending):
    frame = pd.DataFrame({"bag": ["a", "a"], "x": [1.5, 2.5]})
    path = tmp_path / f"rows{ending}"
    frame.to_csv(path, sep="\t" if ending.startswith(".tsv") else ";", decimal=",", index=False)
    np.testing.assert_array_equal(read(path).x, [[1.5], [2.5]])


def test_options_of_two_tables_are_told_apart_and_unknown_ones_named():
    rows, proportions = formats(sep="tab", proportions_sheet="B")
    assert (rows.sep, rows.sheet, rows.sheet_option) == ("\t", None, "sheet")
    assert (proportions.sep, proportions.sheet) == (None, "B")
    assert proportions.sheet_option == "proportions_sheet"
    with pytest.raises(ConfigError, match=r"(?s)no option .decimals..*Did you mean .decimal."):
        formats(decimals=",")  # type: ignore[call-arg]
