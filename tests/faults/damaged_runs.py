"""Finished and interrupted runs of a net and of tables, and ways to damage the files in them."""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.ensemble import RandomForestClassifier

from apportion.bags.bags import Bags
from apportion.cli.job import TrainJob
from apportion.config import TrainConfig
from apportion.errors import ApportionError
from apportion.estimator.classifier import LLPClassifier
from apportion.model.model import Model
from apportion.nets.build import build_net
from apportion.report.read import read_run
from apportion.runs.header import seal
from apportion.runs.run import Run
from apportion.training.fit import fit
from tests.auto.tables import few_steps
from tests.cli.wards_on_disk import run as command
from tests.cli.wards_on_disk import voters, write

CONFIG = TrainConfig(epochs=3, batch_size=32, device="cpu", threads=1)


def some_bags(seed):
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=40)
    x = (truth[:, None] + 0.5 * rng.normal(size=(40, 3))).astype(np.float32)
    return Bags.from_rows(x, np.arange(40) // 8, classes=range(2), truth=truth)


TRAIN, VALID = some_bags(0), some_bags(1)


class Left(Exception):  # noqa: N818 - it stands for Ctrl-C
    """What a user does to a training in these tests."""


def resume(folder, on_epoch=None):
    net = build_net("mlp", TRAIN, hidden=[4])
    return fit(net, TRAIN, VALID, config=CONFIG, run=folder, on_epoch=on_epoch)


def make_runs(folder: Path) -> None:
    """Make a run that was left after epoch 2, one that has ended, and a classifier's file."""

    def leave(record, net):
        if record["epoch"] == 2:
            raise Left

    with contextlib.suppress(Left):
        resume(folder / "left", leave)
    resume(folder / "ended")
    rows = np.arange(40) // 8
    shares = {b: [0.5, 0.5] for b in range(5)}
    options: dict[str, Any] = {
        "epochs": 2,
        "random_state": 0,
        "device": "cpu",
        "validation_fraction": 0.2,
    }
    classifier = LLPClassifier(**options).fit(TRAIN.x, bags=rows, proportions=shares)
    classifier.save(folder / "classifier.safetensors")
    learned = LLPClassifier(model=RandomForestClassifier(2, max_depth=2), epochs=1, random_state=0)
    learned.fit(TRAIN.x, bags=rows, proportions=shares).save(folder / "learner.safetensors")
    with hasty():
        make_tables(folder)


@contextlib.contextmanager
def hasty():
    """Train the nets of an average in two steps per stage."""
    with pytest.MonkeyPatch.context() as patch:
        few_steps(2, patch.setattr)
        yield


def make_tables(folder: Path) -> None:
    """Make runs of the command line: of an average and of a linear model, left and ended."""
    files = write(folder, voters(80))
    for method, after in (("auto", 4), ("linear", 1)):
        ended, left = folder / f"{method}-ended", Run(folder / f"{method}-left")
        options = ["--exclude", "id", "--method", method, "--threads", 1, "--device", "cpu"]
        result = command("train", *files, *options, "--out", ended)
        assert result.exit_code == 0, result.output
        found = TrainJob.from_toml(ended / "config.toml", {}).prepare()
        left.about = found.about

        def leave(record, net, after=after):
            if record["epoch"] == after:
                raise Left

        with contextlib.suppress(Left):
            found.train(left, leave)
    classifier = LLPClassifier(random_state=0, device="cpu")
    classifier.fit(TRAIN.x, bags=np.arange(40) // 8, proportions=dict(enumerate(TRAIN.proportions)))
    classifier.save(folder / "average.safetensors")


def by_command(*arguments: Any) -> None:
    """Do what a command does; raise the error that it shows."""
    with hasty():
        result = command(*arguments)
    if result.exit_code == 1:
        raise ApportionError(*result.stderr.strip().split("\n  "))
    assert result.exit_code == 0, result.stderr


def predicted(folder: Path) -> None:
    rows = folder.parent / "rows.csv"
    voters(40, seed=1).drop(columns="vote").to_csv(rows, index=False)
    by_command("predict", folder, rows, "--out", folder.parent / "predicted.csv", "--force")


READERS = {
    "checkpoint": ("left", "checkpoint.safetensors", resume),
    "log": ("left", "log.jsonl", resume),
    "model": ("ended", "model.safetensors", lambda folder: Model.load(folder, device="cpu")),
    "evaluation": ("ended", "evaluation.safetensors", lambda folder: read_run(folder, "a")),
    "config": ("ended", "config.toml", lambda folder: read_run(folder, "a")),
    "log of a report": ("ended", "log.jsonl", lambda folder: read_run(folder, "a")),
    "classifier": ("", "classifier.safetensors",
                   lambda folder: LLPClassifier.load(folder / "classifier.safetensors")),
    "classifier of learners": ("", "learner.safetensors",
                               lambda folder: LLPClassifier.load(folder / "learner.safetensors")),
    "checkpoint of auto": ("auto-left", "checkpoint.safetensors",
                           lambda folder: by_command("train", "--resume", folder)),
    "log of auto": ("auto-left", "log.jsonl",
                    lambda folder: by_command("train", "--resume", folder)),
    "model of auto": ("auto-ended", "model.safetensors", predicted),
    "evaluation of auto": ("auto-ended", "evaluation.safetensors",
                           lambda folder: by_command("report", folder)),
    "log of a report of auto": ("auto-ended", "log.jsonl",
                                lambda folder: by_command("report", folder)),
    "classifier of auto": ("", "average.safetensors",
                           lambda folder: LLPClassifier.load(folder / "average.safetensors")),
    "checkpoint of linear": ("linear-left", "checkpoint.safetensors",
                             lambda folder: by_command("train", "--resume", folder)),
    "log of linear": ("linear-left", "log.jsonl",
                      lambda folder: by_command("train", "--resume", folder)),
    "model of linear": ("linear-ended", "model.safetensors", LLPClassifier.load),
    "log of a report of linear": ("linear-ended", "log.jsonl",
                                  lambda folder: by_command("report", folder)),
}  # fmt: skip


def copied(made: Path, to: Path, kind: str) -> tuple[Path, Path]:
    """Copy what a kind of file needs; return the folder to read and the file to damage."""
    where, name, _ = READERS[kind]
    if where:
        shutil.copytree(made / where, to / "run")
        return to / "run", to / "run" / name
    to.mkdir(parents=True)
    shutil.copy(made / name, to / name)
    return to, to / name


# ------------------------------------------------------------------------------- what is damaged


def read_parts(path: Path):
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["apportion"])
        return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def write_parts(path: Path, header, tensors) -> None:
    """Write a file whose checksum is right, whatever it holds."""
    text = header if isinstance(header, str) else json.dumps(header)
    save_file(tensors, path, {"apportion": text})
    if "checksum" in text:
        seal(path)


# In the place of any value of a header.
VALUES: dict[str, Any] = {
    "null": None,
    "text": "x",
    "nan": float("nan"),
    "negative": -7,
    "huge": 10**400,
    "list": [[]],
    "object": {"x": {}},
    "true": True,
}


def paths_into(value, path=()):
    """The paths of all entries of a header, into objects and the first entry of lists."""
    found = [path] if path else []
    if isinstance(value, dict):
        for name in sorted(value):
            if (*path, name)[0] not in ("checksum", "format", "kind"):
                found += paths_into(value[name], (*path, name))
    elif isinstance(value, list) and value:
        found += paths_into(value[0], (*path, 0))
    return found


def changed(header, path, value):
    """A copy of a header with another value at a path; without the entry if it is `...`."""
    header = json.loads(json.dumps(header))
    inner = header
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return header


# Each returns what is in the place of a tensor.
TENSORS = {
    "missing": lambda t: None,
    "longer": lambda t: torch.cat([t.reshape(-1), t.reshape(-1)[:1]]),
    "one element": lambda t: t.reshape(-1)[:1].clone() if t.numel() != 1 else t.reshape(1, 1, 1),
    "int8": lambda t: t.to(torch.int8) if t.dtype != torch.int8 else t.to(torch.int16),
    "complex": lambda t: t.to(torch.complex64),
    "nan": lambda t: torch.full_like(t, torch.nan) if t.is_floating_point() else t - 10**6,
    "infinite": lambda t: torch.full_like(t, -torch.inf) if t.is_floating_point() else t + 10**6,
}

# Texts in the place of a header, or of a line of the log.
JSON = {
    "deep list": "[" * 100_000,
    "deep object": '{"a":' * 100_000,
    "huge number": '{"epoch": ' + "9" * 5000 + "}",
    "nothing": "",
    "not JSON": "{epoch: 1}",
    "number": "3",
    "list": "[1, 2]",
    "text": '"x"',
}
