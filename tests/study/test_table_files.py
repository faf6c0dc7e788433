"""Labelled tables: read as they are, written as rows and proportions, and never overwritten."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from apportion.errors import DataError
from apportion.study._table_files import check_folder, read_labelled, write_tables
from apportion.study.manifests import Manifest
from tests.study.people_on_disk import CLUSTERS, assert_refused, bag, people_in


@pytest.fixture
def people(tmp_path, monkeypatch):
    """A table of 300 rows, in the folder that commands are run in."""
    monkeypatch.chdir(tmp_path)
    return people_in(tmp_path)


@pytest.fixture
def voters(tmp_path):
    """Four rows whose cells lose something if they are taken for numbers."""
    path = tmp_path / "voters.csv"
    path.write_text("zip,vote,age,member\n007,1,3,True\n010,0,,False\n0,1,5,True\n9,0,7,True\n")
    return path


@pytest.mark.parametrize("keep", [False, True])
def test_cells_are_written_as_they_were_read(voters, keep):
    table = read_labelled(voters, "vote", keep_label=keep)
    assert table.truth.tolist() == [1, 0, 1, 0]
    assert table.rows_file == "rows.csv"
    assert list(table.written) == ["zip", "age", "member", *["vote"] * keep]
    assert table.written["zip"].tolist() == ["007", "010", "0", "9"]
    assert table.written["age"].tolist() == ["3", "", "5", "7"]


def test_distances_are_between_numbers_and_the_label_is_none_of_them(voters):
    with pytest.raises(DataError, match=r"column 'age' of .* lacks 1 values"):
        read_labelled(voters, "vote").numbers()
    voters.write_text(voters.read_text().replace("010,0,,", "010,0,4,"))
    names, values = read_labelled(voters, "vote").numbers()
    assert names == ["zip", "age", "member"]
    assert values.tolist() == [[7, 3, 1], [10, 4, 0], [0, 5, 1], [9, 7, 1]]


def test_rows_and_proportions_are_those_of_the_manifests(voters, tmp_path):
    """The second manifest's bags are numbered on, and its rows follow."""
    table = read_labelled(voters, "vote")
    rows = {"train": np.array([[3, 0]]), "valid": np.array([[1, 2], [1, 3]])}
    manifests = {
        name: Manifest.from_members(own, table.truth, protocol="mine", settings={}, seed=0)
        for name, own in rows.items()
    }
    write_tables(tmp_path / "bags", table, manifests)
    assert (tmp_path / "bags" / "rows.csv").read_text().splitlines() == [
        "bag,zip,age,member",
        "0,9,7,True",
        "0,007,3,True",
        "1,010,,False",
        "1,0,5,True",
        "2,010,,False",
        "2,9,7,True",
    ]
    assert (tmp_path / "bags" / "proportions.csv").read_text().splitlines() == [
        "bag,split,0,1",
        "0,train,0.5,0.5",
        "1,valid,0.5,0.5",
        "2,valid,1.0,0.0",
    ]


def test_a_folder_must_be_free_or_forced(tmp_path):
    table, folder = tmp_path / "voters.csv", tmp_path / "bags"
    check_folder(folder, table, force=False)
    folder.mkdir()
    check_folder(folder, table, force=False)
    (folder / "thesis.txt").touch()
    with pytest.raises(DataError, match=r"already has 1 file, for example thesis\.txt"):
        check_folder(folder, table, force=False)
    check_folder(folder, table, force=True)
    with pytest.raises(DataError, match="would replace the table itself"):
        check_folder(folder, folder / "rows.csv", force=True)
    with pytest.raises(DataError, match="is a file"):
        check_folder(folder / "thesis.txt", table, force=True)


def test_bag_reads_labels_as_pandas_does(people):
    people.assign(income=np.arange(300) % 11).to_csv("people.csv", index=False)
    bag("--size", 30)
    assert Manifest.load("bags/train.safetensors").classes == tuple(range(11))
    assert list(pd.read_csv("bags/proportions.csv")) == ["bag", *map(str, range(11))]


def test_bag_keeps_the_label_for_those_who_measure(people):
    out = bag("--size", 16, "--keep-label")
    assert "--label income" in out
    rows = pd.read_csv("bags/rows.csv")
    assert rows.columns[-1] == "income"
    counted = pd.crosstab(rows["bag"], rows["income"], normalize="index").to_numpy()
    np.testing.assert_allclose(counted, pd.read_csv("bags/proportions.csv").iloc[:, 1:])
    bag("--size", 16, "--force")
    assert "income" not in pd.read_csv("bags/rows.csv")


def test_bag_takes_names_that_the_file_has_not(people):
    bag("--size", 16, "--seed", 3)
    lines = Path("people.csv").read_text().splitlines()[1:]
    text = "|a remark\n" + "\n".join(line.replace(",", ", ") for line in lines)
    Path("people.data").write_text(text + "\n")
    names = ",".join(people.columns)
    bag("--size", 16, "--seed", 3, "--names", names, "--out", "again", table="people.data")
    for name in ("rows.csv", "proportions.csv"):
        assert Path("again", name).read_text() == Path("bags", name).read_text()


def test_bag_reads_a_compressed_file_as_the_file_itself(people):
    bag("--size", 16)
    people.to_csv("people.csv.gz", index=False)
    bag("--size", 16, "--out", "again", table="people.csv.gz")
    for name in ("rows.csv", "proportions.csv"):
        assert Path("again", name).read_text() == Path("bags", name).read_text()


def test_bag_replaces_bags_only_if_forced(people):
    bag("--size", 16, "--valid", 0.3, table="people.parquet")
    before = {path.name: path.read_bytes() for path in Path("bags").iterdir()}
    err = bag("--size", 8, code=1)
    assert "bags already has 4 files" in err
    assert "--force" in err
    assert {path.name: path.read_bytes() for path in Path("bags").iterdir()} == before
    bag("--size", 8, "--force")
    left = {path.name for path in Path("bags").iterdir()}
    assert left == {"rows.csv", "proportions.csv", "train.safetensors"}


def test_bag_never_replaces_its_own_table(people):
    Path("people.csv").rename("rows.csv")
    before = Path("rows.csv").read_bytes()
    err = bag("--size", 8, "--out", ".", "--force", table="rows.csv", code=1)
    assert "would replace the table itself" in err
    assert Path("rows.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"label": "incme"}, ["people.csv", "no column 'incme'", "Did you mean 'income'?"]),
        ({"table": "peple.csv"}, ["peple.csv does not exist", "Did you mean 'people.csv'?"]),
        ({"table": "people.ods"}, ["people.ods", "none of .csv, "]),
        ({"table": "broken.parquet"}, ["broken.parquet cannot be read", "Save it again"]),
        ({"table": "empty.csv"}, ["empty.csv cannot be read"]),
        ({"table": "names.csv"}, ["names.csv has 0 rows"]),
        ({"table": "bag.csv"}, ["bag.csv has a column 'bag'", "Rename"]),
        ({"table": "gaps.csv"}, ["'income' of gaps.csv lacks 2 of 300 labels", "row 7 ", "Fill"]),
        ({"table": "split.csv"}, ["split.csv has a class 'split'", "Rename"]),
        ({"table": "one.csv"}, ["one.csv has 1 class, 'same'", "Choose the column"]),
        ({"with": ("--out", "people.csv")}, ["people.csv is a file"]),
        ({"table": "holes.csv", "with": CLUSTERS}, ["'age' of holes.csv lacks 1 values"]),
        ({"table": "words.csv", "with": CLUSTERS}, ["words.csv has 0 columns of numbers"]),
    ],
)
def test_bag_refuses_with_a_message(people, options, facts):
    assert_refused(people, options, facts)
