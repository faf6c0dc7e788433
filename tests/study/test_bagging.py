"""Bags of a labelled table, by the command that makes them: files that agree, and refusals."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from apportion import Bags
from apportion.cli import app as cli
from apportion.cli.bag import bag as verb
from apportion.study import protocols
from apportion.study.manifests import Manifest


def run(*arguments):
    return CliRunner().invoke(cli.app, arguments)


@pytest.fixture
def people(tmp_path, monkeypatch):
    """A table of 300 rows, and its folder as the one that commands are run in."""
    rng = np.random.default_rng(0)
    income = np.where(rng.random(300) < 0.4, ">50K", "<=50K")
    frame = pd.DataFrame(
        {
            "row": np.arange(300),
            "postcode": [f"{k:04d}" for k in rng.integers(9999, size=300)],
            "income": income,
            "age": np.where(income == ">50K", 55, 35) + rng.normal(size=300).round(3),
        }
    )
    monkeypatch.chdir(tmp_path)
    frame.to_csv("people.csv", index=False)
    frame.to_parquet("people.parquet")
    return frame


CLUSTERS = ("--protocol", "clusters")


def bag(*arguments, table="people.csv", label="income", code=0):
    result = run("bag", table, "--label", label, *map(str, arguments))
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.stdout if code == 0 else result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--size", 16),
        ("--protocol", "rand", "--size", 16, "--n-bags", 9, "--seed", 4),
        ("--protocol", "shuffle", "--size", 16),
        ("--protocol", "dirichlet", "--alpha", 0.5, "--size", 16),
        ("--protocol", "clusters", "--n-bags", 9),
        ("--protocol", "clusters", "--size", 30),
    ],
)
@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("valid", [(), ("--valid", 0.3)])
def test_bag_writes_files_that_agree(people, options, form, valid):
    out = bag(*options, *valid, table=f"people.{form}")
    splits = ["train", "valid"] if valid else ["train"]
    names = {f"rows.{form}", "proportions.csv", *(f"{split}.safetensors" for split in splits)}
    assert {path.name for path in Path("bags").iterdir()} == names
    assert all(name in out for name in names)
    as_text = {"postcode": str}
    rows = (
        pd.read_csv("bags/rows.csv", dtype=as_text)
        if form == "csv"
        else pd.read_parquet("bags/rows.parquet")
    )
    table = pd.read_csv("bags/proportions.csv")
    assert list(rows) == ["bag", "row", "postcode", "age"]
    expected = people.iloc[rows["row"]]
    assert rows["postcode"].tolist() == expected["postcode"].tolist()
    assert rows["age"].tolist() == expected["age"].tolist()
    # The two tables alone are bags, whose proportions are those of the truth.
    split = table.pop("split") if valid else pd.Series(["train"] * len(table))
    bags = Bags.from_rows(
        rows[["age"]].to_numpy(), rows["bag"], table.set_index("bag"), truth=expected["income"]
    )
    assert bags.ids == tuple(range(len(table)))
    assert bags.describe().bags_off_truth == 0
    # So are the manifests, with the rows of the table.
    index = []
    for name in splits:
        manifest = Manifest.load(f"bags/{name}.safetensors")
        made = manifest.bags(people[["age"]].to_numpy(), people["income"])
        own = bags[(split == name).to_numpy()]
        assert made.counts.tolist() == own.counts.tolist()
        assert rows["row"].to_numpy()[own.index].tolist() == made.index.tolist()
        index.append(set(made.index.tolist()))
    if valid:
        assert index[0].isdisjoint(index[1])
        assert len(index[1]) <= 90


def test_bag_makes_what_the_protocols_make(people):
    bag("--size", 16, "--valid", 0.3, "--n-bags", 10, "--seed", 5)
    train, valid = protocols.pools(300, (0.7, 0.3), seed=5)
    for name, pool, n_bags, seed in (("train", train, 7, 5), ("valid", valid, 3, 6)):
        manifest = Manifest.load(f"bags/{name}.safetensors")
        drawn = protocols.rand(people["income"], 16, n_bags, rows=pool, seed=seed)
        assert manifest.index.tolist() == drawn.members.ravel().tolist()
        assert (manifest.protocol, manifest.seed) == ("rand", seed)
        assert manifest.settings == {
            "size": 16, "n_bags": n_bags, "table": "people.csv", "label": "income",
            "split": name, "valid": 0.3, "split_seed": 5,
        }  # fmt: skip


def test_bag_prints_what_it_made_and_what_is_next(people):
    people.iloc[np.r_[0:300, :20]].to_csv("more.csv", index=False)
    out = bag("--size", 120, "--valid", 0.4, "--seed", 1, table="more.csv")
    assert "more.csv: 320 rows, 2 classes in column 'income'." in out
    assert "bags      2 (0 to 1) of 120 rows" in out
    redrawn = Manifest.load("bags/train.safetensors").redrawn
    assert redrawn > 0
    assert f"redrawn   {redrawn} draws" in out
    shares = pd.read_csv("bags/proportions.csv").query("split == 'train'")["<=50K"]
    assert f"<=50K {shares.min():.2f} – {shares.median():.2f} – {shares.max():.2f}" in out
    assert "spread" in out
    assert "apportion train bags/rows.csv --proportions bags/proportions.csv" in out
    assert Manifest.load("bags/train.safetensors").sha256[:16] in out


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
        ({"table": "people.xlsx"}, ["people.xlsx", ".csv nor .parquet"]),
        ({"table": "broken.parquet"}, ["broken.parquet cannot be read", "Save it again"]),
        ({"table": "latin.csv"}, ["latin.csv cannot be read", "UTF-8"]),
        ({"table": "empty.csv"}, ["empty.csv cannot be read"]),
        ({"table": "names.csv"}, ["names.csv has 0 rows"]),
        ({"table": "bag.csv"}, ["bag.csv has a column 'bag'", "Rename"]),
        ({"table": "gaps.csv"}, ["'income' of gaps.csv lacks 2 of 300 labels", "row 7 ", "Fill"]),
        ({"table": "split.csv"}, ["split.csv has a class 'split'", "Rename"]),
        ({"table": "one.csv"}, ["one.csv has 1 class, 'same'", "Choose the column"]),
        ({"table": "rare.csv", "with": ("--valid", 0.3)}, ["class 'rare' of rare.csv has 1 row"]),
        ({"with": ("--size", 301)}, ["people.csv: a bag of 301 rows", "class '>50K' "]),
        ({"with": ("--protocol", "shufle")}, ["no protocol 'shufle'", "Did you mean 'shuffle'?"]),
        ({"with": ("--protocol", "dirichlet")}, ["dirichlet needs alpha", "Pass --alpha 1 "]),
        (
            {"with": ("--protocol", "dirichlet", "--alpha", 0)},
            ["people.csv: alpha must be more than 0", "got 0.0"],
        ),
        ({"with": ("--alpha", 1)}, ["rand takes no --alpha 1.0", "--protocol dirichlet"]),
        ({"with": ("--protocol", "shuffle", "--n-bags", 3)}, ["shuffle takes no --n-bags 3."]),
        (
            {"with": ("--protocol", "clusters", "--n-bags", 3)},
            ["takes a size or a number of bags; got both", "--n-bags 100"],
        ),
        ({"with": ("--valid", 1.5)}, ["valid must be between 0 and 1", "got 1.5"]),
        ({"with": ("--valid", 0.001)}, ["people.csv: 300 rows", "pool 1 empty"]),
        (
            {"with": ("--valid", 0.5, "--n-bags", 1)},
            ["--valid 0.5 needs a bag", "at least --n-bags 2"],
        ),
        ({"with": ("--out", "people.csv")}, ["people.csv is a file"]),
        ({"table": "holes.csv", "with": CLUSTERS}, ["'age' of holes.csv lacks 1 values"]),
        ({"table": "words.csv", "with": CLUSTERS}, ["words.csv has 0 columns of numbers"]),
    ],
)
def test_bag_refuses_with_a_message(people, options, facts):
    def variant(name, **columns):
        people.assign(**columns).to_csv(name, index=False)

    income = people["income"]
    variant("bag.csv", bag=1)
    variant("gaps.csv", income=income.where(~income.index.isin([7, 9])))
    variant("split.csv", income=income.where(income.index > 100, "split"))
    variant("one.csv", income="same")
    variant("rare.csv", income=income.where(income.index > 0, "rare"))
    variant("holes.csv", age=people["age"].where(people.index != 4))
    people[["income"]].assign(word="a").to_csv("words.csv", index=False)
    people.iloc[:0].to_csv("names.csv", index=False)
    Path("broken.parquet").write_bytes(b"PAR1")
    Path("latin.csv").write_bytes("income\nmünchen\n".encode("latin-1"))
    Path("empty.csv").touch()
    wanted = {"table": "people.csv", "label": "income", "with": (), **options}
    err = bag("--size", 8, *wanted["with"], table=wanted["table"], label=wanted["label"], code=1)
    for fact in facts:
        assert fact in err
    assert err.startswith("apportion: ")
    assert "Traceback" not in err
    assert not Path("bags").exists()


def test_bag_says_that_a_size_is_needed(people):
    assert "rand needs a size" in (err := bag(code=1))
    assert "--size 64" in err


def test_bag_help_teaches_by_example():
    text = run("bag", "--help").stdout
    examples = re.findall(r"apportion bag rows\.csv (.*)", text)
    assert len(examples) >= 4
    assert max(map(len, text.splitlines())) <= 80


def test_examples_of_the_help_work(people):
    lines = re.findall(r"apportion bag rows\.csv (.*)", verb.__doc__ or "")
    assert len(lines) >= 4
    for line in lines:
        bag(*line.split(), "--out", "here", "--force")
