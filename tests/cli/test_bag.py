"""The verb `bag`: it says what it made and what is next, and its examples work."""

import re

import numpy as np
import pandas as pd
import pytest

from apportion.cli.bag import bag as verb
from apportion.study.manifests import Manifest
from tests.cli.wards_on_disk import run
from tests.study.people_on_disk import bag, people_in


@pytest.fixture
def people(tmp_path, monkeypatch):
    """A table of 300 rows, in the folder that commands are run in."""
    monkeypatch.chdir(tmp_path)
    return people_in(tmp_path)


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
