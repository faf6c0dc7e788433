"""Tables in pieces: all rows, once, in order, and only as many at a time as is said."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from apportion.data import pieces
from apportion.data.pieces import open_pieces
from apportion.errors import DataError


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": np.arange(100), "b.c": rng.normal(size=100).round(3), "t": "007"})


@pytest.mark.parametrize("form", ["frame", "csv", "csv.gz", "parquet"])
@pytest.mark.parametrize(("cells", "most"), [(30, 10), (2, 1), (10**6, 100)])
def test_pieces_are_the_table(tmp_path, monkeypatch, frame, form, cells, most):
    monkeypatch.setattr(pieces, "CELLS", cells)
    rows, path = frame, tmp_path / f"rows.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pandas(frame), path, row_group_size=33)
        rows = path
    elif form != "frame":
        frame.to_csv(path, index=False)
        rows = path
    source = open_pieces(rows)
    assert source.names == ["a", "b.c", "t"]
    for _ in range(2):  # as often as needed
        read = list(source.read(source.names, {"t"}))
        sizes = [len(piece) for _, piece in read]
        assert max(sizes) <= most
        assert [first for first, _ in read] == np.cumsum([0, *sizes[:-1]]).tolist()
        whole = pd.concat([piece for _, piece in read], ignore_index=True)
        assert whole.to_dict("list") == frame.to_dict("list")


def test_only_some_columns_of_a_parquet_file_are_read(tmp_path, frame):
    frame.assign(a_day=pd.Timestamp(0)).to_parquet(tmp_path / "rows.parquet")
    ((_, piece),) = open_pieces(tmp_path / "rows.parquet").read(["b.c"])
    assert list(piece) == ["b.c"]


def test_pieces_are_of_few_rows_where_there_are_many_columns(monkeypatch):
    monkeypatch.setattr(pieces, "CELLS", 80)
    wide = pd.DataFrame(np.zeros((3, 40)))
    assert [len(piece) for _, piece in open_pieces(wide).read([])] == [2, 1]


def test_names_in_a_csv_file_are_as_they_stand(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b'\xef\xbb\xbfbag,"a, b",NA,\n1,2,3,4\n')
    source = open_pieces(str(path))
    assert source.names == ["bag", "a, b", "NA", "Unnamed: 3"]
    ((_, piece),) = source.read(source.names)
    assert list(piece) == source.names
    path.write_text("x,x\n1,2\n")
    with pytest.raises(DataError, match=r"rows\.csv: column 'x' occurs more than once"):
        open_pieces(path)


def test_a_frame_is_left_as_it_was(frame):
    with_numbers = frame.rename(columns={"a": 0})
    assert open_pieces(with_numbers).names == ["0", "b.c", "t"]
    assert list(with_numbers) == [0, "b.c", "t"]


@pytest.mark.parametrize(
    ("lines", "line"),
    [("a,b\n1,2\n1,2,3\n", 3), ("\na,b\n1,2\n\n1,2\n1,2,3\n", 6), ("a,b\r\n1,2\r\n1,2,3\r\n", 3)],
)
def test_a_line_with_too_many_cells_is_named_as_editors_count(tmp_path, lines, line):
    path = tmp_path / "rows.csv"
    path.write_bytes(lines.encode())
    source = open_pieces(path)
    for _ in range(2):  # in the pass that goes on from the header, and in one of its own
        with pytest.raises(DataError, match=rf"fields in line {line}, saw 3"):
            list(source.read(source.names))


def test_formats_that_are_not_read_are_refused_for_python_and_the_command_line(tmp_path):
    with pytest.raises(
        DataError, match=r"rows\.ods is none of \.csv, .*\.xlsx by its name"
    ) as error:
        open_pieces(tmp_path / "rows.ods")
    assert "--" not in str(error.value)
    assert "command line" not in str(error.value)


# --------------------------------------------------------------------- files without names


def test_files_without_names_are_read_as_if_they_had_them(tmp_path):
    path = tmp_path / "iris.data"
    path.write_text("|a remark, with a comma\n1, x\n2, y\n3, z, 4\n")
    with pytest.raises(DataError, match="fields in line 4, saw 3"):
        list(open_pieces(path, names=["number", "letter"]).read(["number"]))
    path.write_text("|a remark, with a comma\n1, x\n2, y\n")
    opened = open_pieces(path, names=["number", "letter"])
    ((first, frame),) = opened.read(opened.names)
    assert first == 0
    assert frame.to_dict("list") == {"number": [1, 2], "letter": ["x", "y"]}
    ((_, frame),) = opened.read(opened.names, ["number"])
    assert frame["number"].tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "names", "problem"),
    [
        ("iris.data", ["a"], "has 2 columns, but 1 name for them: a"),
        ("iris.data", ["a", "b", "c"], "has 2 columns, but 3 names for them: a, b, c"),
        ("iris.data", ["a", "a"], "'a'"),
        ("nowhere.data", ["a", "b"], "does not exist"),
        ("table.parquet", ["a", "b"], "has names of its own"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, name, names, problem):
    (tmp_path / "iris.data").write_text("1,x\n")
    with pytest.raises(DataError, match=re.escape(problem)):
        open_pieces(tmp_path / name, names=names)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_cells_can_be_written_as_they_are(tmp_path, monkeypatch, form):
    """Large whole numbers with gaps below them, and texts that pandas takes for gaps."""
    monkeypatch.setattr(pieces, "MOST_ROWS", 2)
    large = pd.array([9007199254740993, 1, None, 3], dtype="Int64")
    frame = pd.DataFrame({"id": large, "name": ["NA", "007", "null", ""], "other": 1.5})
    path = tmp_path / f"table.{form}"
    getattr(frame, f"to_{form}")(path, index=False)
    read = list(open_pieces(path).read_as_written(["name", "id"]))
    assert [len(piece) for piece in read] == [2, 2]
    whole = pd.concat(read)
    assert list(whole) == ["name", "id"]
    whole.to_csv(tmp_path / "again.csv", index=False)
    again = pd.read_csv(tmp_path / "again.csv", dtype=str, na_filter=False)
    assert again["id"].tolist() == ["9007199254740993", "1", "", "3"]
    assert again["name"].tolist() == ["NA", "007", "null", ""]


def test_a_table_of_very_many_columns_is_refused_at_once(tmp_path):
    names = ",".join(f"c{j}" for j in range(100_000))
    path = tmp_path / "wide.csv"
    path.write_text(f"{names}\n{'0,' * 99_999}0\n")
    with pytest.raises(DataError, match=r"wide\.csv has 100,000 columns, more than 20,000"):
        open_pieces(path)
