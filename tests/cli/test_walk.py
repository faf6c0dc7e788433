"""The commands of docs/command-line.md, one after the other, as they stand there."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.cli.wards_on_disk import run, voters, write

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    for line in re.findall(r"^\$ apportion (.*)$", block, re.MULTILINE)
]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """All files that the page speaks of, small."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    write(tmp_path)
    people = voters(600)
    names = next(c for c in COMMANDS if c[0] == "bag")[3].split(",")
    for name in names[1:-1]:
        people[name] = rng.integers(5, size=600)
    people["income"] = np.where(people["vote"] == "yes", ">50K", "<=50K")
    people["age"] = people["age"].fillna(30)
    text = people[names].to_csv(index=False, header=False).replace(",", ", ")
    Path("adult.data").write_text(text)
    patients = np.repeat(list("abc"), 4)
    Path("slides").mkdir()
    for i in range(12):
        pixels = rng.integers(0, 255, (9, 9, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(f"slides/{i}.png")
    table = pd.DataFrame({"file": [f"{i}.png" for i in range(12)], "patient": patients})
    table.to_csv("files.csv", index=False)
    shares = pd.DataFrame({"no": [0.25, 0.5, 0.75], "yes": [0.75, 0.5, 0.25]}, list("abc"))
    shares.rename_axis("patient").to_csv("patients.csv")
    shares.rename_axis("speaker").to_csv("speakers.csv")
    frames = pd.DataFrame({"word": np.repeat(np.arange(12), 5), "time": np.arange(60) % 5})
    frames["speaker"] = patients[frames["word"]]
    frames["pitch"] = rng.normal(size=60)
    frames.to_csv("frames.csv", index=False)


def test_every_command_of_the_page_works(files, steps, quick):
    steps(2)
    assert {command[0] for command in COMMANDS} == {
        *("bag", "check", "train", "pretrain", "predict", "report", "export")
    }
    for command in COMMANDS:
        few = ["--threads", "1"] if command[0] in ("train", "pretrain") else []
        few += ["--epochs", "2"] if {"fpl", "--images", "--signal"} & {*command} else []
        leave = ["--exclude", "id"] if "rows.csv" in command[1:2] and command[0] == "train" else []
        result = run(*command, *few, *leave)
        assert result.exit_code == 0, (command, result.output)
        assert "--out" not in command or Path(command[command.index("--out") + 1]).exists()
    assert Path("runs/a/report.html").exists()
    assert Path("model.onnx").exists()
