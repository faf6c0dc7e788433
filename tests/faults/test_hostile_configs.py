"""Configurations that make no sense: each is refused, in the config.toml of a run by its name."""

import pytest

from apportion.config import TrainConfig
from apportion.errors import ConfigError, RunError
from apportion.runs.run import FORMAT_VERSION, Run

FORMAT = f"format = {FORMAT_VERSION}\n"
HEAD = f"{FORMAT}\n[train]\nepochs = 3\n"
TAIL = '\n[method]\nname = "fpl"\n'
COUNTS = ("epochs", "batch_size", "bags_per_step", "instances_per_pass", "patience", "threads",
          "checkpoint_every")  # fmt: skip
NUMBERS = ("learning_rate", "weight_decay", "warmup", "device_memory_gib")
TEXTS = ("schedule", "precision", "step_mode")
OF_TYPES = ('"5"', '"false"', "[1]", "{a = 1}", "1979-05-27", "nan", "-1")

LINES = [
    *[f"{name} = {value}" for name in COUNTS for value in (*OF_TYPES, "0", "2.5", "true", "inf",
                                                          "9223372036854775808")],
    *[f"{name} = {value}" for name in NUMBERS for value in (*OF_TYPES, "inf", "true")],
    *[f"{name} = {value}" for name in TEXTS for value in (*OF_TYPES, '"no"', '""')],
    *[f"augment = {value}" for value in ("3", '"flip"', "[1]", "true", "[[]]", "{a = 1}")],
    *[f"seed = {value}" for value in (*OF_TYPES, "2.0", "true", "9223372036854775808")],
    *[f"device = {value}" for value in ("3", "true", "[1]", "{a = 1}")],
    "threads = 100000",
    "learning_rate = 0",
    "epoch = 3",
    '"" = 3',
    "[train.epochs]",
]  # fmt: skip

# Whole files.
FILES = {
    "deep": "a = " + "[" * 50_000,
    "empty": "",
    "no TOML": "{",
    "keys twice": HEAD + "epochs = 4\n" + TAIL,
    "no method": HEAD,
    "no train": FORMAT + TAIL,
    "no epochs": f"{FORMAT}[train]\nseed = 3\n" + TAIL,
    "no format": HEAD.partition("\n")[2] + TAIL,
    "format of a text": HEAD.replace(FORMAT, f'format = "{FORMAT_VERSION}"\n') + TAIL,
    "format true": HEAD.replace(FORMAT, "format = true\n") + TAIL,
    "format of a fraction": HEAD.replace(FORMAT, f"format = {FORMAT_VERSION}.0\n") + TAIL,
    "format 99": HEAD.replace(FORMAT, "format = 99\n") + TAIL,
    "train is a number": f"{FORMAT}train = 3\n" + TAIL,
    "train is a list": f"{FORMAT}train = [1]\n" + TAIL,
    "method is a text": f"{FORMAT}method = 'fpl'\n[train]\nepochs = 3\n",
    "name is a number": HEAD + "[method]\nname = 3\n",
    "no name": HEAD + "[method]\neta = 3\n",
    "data is a number": "data = 3\n" + HEAD + TAIL,
    "model is a list": "model = []\n" + HEAD + TAIL,
    "huge number": HEAD + "patience = " + "9" * 5000 + "\n" + TAIL,
}


def as_file(line):
    own = line.partition(" ")[0]
    return (HEAD.replace("epochs = 3\n", "") if own == "epochs" else HEAD) + line + "\n" + TAIL


def test_there_are_enough():
    assert len(LINES) + len(FILES) >= 100
    assert len(set(LINES)) == len(LINES)


def refusal(tmp_path, content):
    run = Run(tmp_path)
    run.config.write_text(content, encoding="utf-8")
    with pytest.raises(RunError) as refused:
        run.settings()
    problem, remedy = str(refused.value).split("\n  ")
    assert str(run.config) in problem
    assert remedy
    assert len(problem) < 1000


@pytest.mark.parametrize("line", LINES)
def test_an_option_that_makes_no_sense_is_refused(tmp_path, line):
    refusal(tmp_path, as_file(line))
    with pytest.raises(ConfigError):
        TrainConfig.from_toml(line if line.startswith("[train") else f"[train]\n{line}\n")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_configuration_is_refused(tmp_path, name):
    refusal(tmp_path, FILES[name])


@pytest.mark.parametrize("content", [b"\xff\xfe", b"\0" * 99, b'a = "\xc3\x28"', b"\xef\xbb\xbf"])
def test_bytes_that_are_no_text_are_refused(tmp_path, content):
    run = Run(tmp_path)
    run.config.write_bytes(content)
    with pytest.raises(RunError, match=r"config\.toml"):
        run.settings()


def test_what_a_run_writes_is_accepted(tmp_path):
    Run(tmp_path).config.write_text(HEAD + TAIL, encoding="utf-8")
    assert Run(tmp_path).settings()["train"] == {"epochs": 3}
