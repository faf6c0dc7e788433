"""Bags of a labelled table: files that agree, what the protocols make, and options refused."""

from pathlib import Path

import pandas as pd
import pytest

from apportion import Bags
from apportion.study import protocols
from apportion.study.manifests import Manifest
from tests.study.people_on_disk import assert_refused, bag, people_in


@pytest.fixture
def people(tmp_path, monkeypatch):
    """A table of 300 rows, in the folder that commands are run in."""
    monkeypatch.chdir(tmp_path)
    return people_in(tmp_path)


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


@pytest.mark.parametrize(
    ("options", "facts"),
    [
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
    ],
)
def test_bag_refuses_with_a_message(people, options, facts):
    assert_refused(people, options, facts)
