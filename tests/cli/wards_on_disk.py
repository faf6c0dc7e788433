"""Small files for the command line: 400 voters in 20 wards, whose votes follow age and job."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from apportion.cli import app as cli

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def process(*arguments, **options):
    """The same in a process of its own."""
    command = [sys.executable, "-m", "apportion", *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, text=True, **options)


def voters(n=400, seed=0):
    rng = np.random.default_rng(seed)
    ward = np.repeat(np.arange(n // 20), 20)
    vote = rng.random(n) < np.linspace(0.05, 0.95, n // 20)[ward]
    return pd.DataFrame(
        {
            "ward": ward,
            "id": [f"voter {i}" for i in range(n)],
            "age": np.where(
                rng.random(n) < 0.1, np.nan, np.round(40 + 20 * vote + rng.normal(size=n))
            ),
            "job": np.where(rng.random(n) < 0.8, np.where(vote, "cook", "nurse"), "clerk"),
            "vote": np.where(vote, "yes", "no"),
        }
    )


def proportions_of(frame):
    counts = pd.crosstab(frame["ward"], frame["vote"])
    return counts.div(counts.sum(axis=1), axis=0).reset_index()


def write(folder, frame=None, *, split=None):
    """Write rows.csv and wards.csv; give the arguments that name them."""
    frame = voters() if frame is None else frame
    table = proportions_of(frame)
    if split is not None:
        table.insert(1, "split", [split(ward) for ward in table["ward"]])
    frame.drop(columns="vote").to_csv(folder / "rows.csv", index=False)
    frame.to_csv(folder / "labelled.csv", index=False)
    table.to_csv(folder / "wards.csv", index=False)
    return [folder / "rows.csv", "--bag", "ward", "--proportions", folder / "wards.csv"]


QUICK = ["--exclude", "id", "--epochs", "3", "--threads", "1", "--device", "cpu"]


def train_in(folder, *options):
    """Write the files, and train a run of them in a."""
    result = run("train", *write(folder), *QUICK, *options, "--out", folder / "a")
    assert result.exit_code == 0, result.output
    return folder


def records(folder):
    return [json.loads(line) for line in (Path(folder) / "log.jsonl").read_text().splitlines()]


def config_of(folder):
    return tomllib.loads((Path(folder) / "config.toml").read_text())


def without_times(lines):
    return [
        {name: value for name, value in line.items() if name not in ("at", "seconds")}
        for line in lines
    ]
