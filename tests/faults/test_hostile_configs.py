"""Configurations that make no sense: each is refused, in the config.toml of a run by its name."""

import shutil

import pytest

from apportion.config import TrainConfig
from apportion.errors import ConfigError, RunError
from apportion.runs.run import FORMAT_VERSION, Run, planned
from tests.cli.wards_on_disk import run as command
from tests.faults.damaged_runs import hasty, make_tables
from tests.faults.killing import left_behind

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

# Of an average or a linear model, whose nets are counted in [resolved].
AVERAGE = f'{FORMAT}[train]\nseed = 3\n\n[method]\nname = "auto"\n\n[resolved]\nnets = 9\n'
NETS = ("0", "-1", '"x"', str(10**9), "65", "true", "[9]", "9.0", "{a = 1}", "nan", "1979-05-27")

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
    **{f"nets {own}": AVERAGE.replace("nets = 9", f"nets = {own}") for own in NETS},
    "no nets": AVERAGE.replace("nets = 9", ""),
    "nets and epochs": AVERAGE.replace("seed = 3", "epochs = 5"),
    "no name of an average": AVERAGE.replace('name = "auto"', ""),
    "seed of an average": AVERAGE.replace("seed = 3", 'seed = "x"'),
    "threads of an average": AVERAGE.replace("seed = 3", "threads = 0"),
    "resolved is a list": "resolved = [9]\n" + AVERAGE.partition("[resolved]")[0],
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
    Run(tmp_path).config.write_text(AVERAGE, encoding="utf-8")
    assert planned(Run(tmp_path).settings()) == (9, "net")


@pytest.fixture(scope="module")
def average(tmp_path_factory):
    folder = tmp_path_factory.mktemp("average")
    with hasty():
        make_tables(folder)
    return folder


# In the config.toml of a run of an average: what stands there, and what is put in its place.
EDITS = {
    **{f"nets {own}": ("nets = 12", f"nets = {own}") for own in NETS},
    "epochs too": ("seed = 0", "seed = 0\nepochs = 5"),
    "a seed of letters": ("seed = 0", 'seed = "x"'),
    "no name": ('name = "auto"\n', ""),
    "a name of no method": ('name = "auto"', 'name = "x"'),
    "another method": ('name = "auto"', 'name = "linear"'),
    "a method of fit": ('name = "auto"', 'name = "fpl"'),
    "another seed": ("seed = 0", "seed = 1"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_run_of_an_average_whose_configuration_was_edited_is_refused_at_the_command_line(
    average, tmp_path, edit
):
    shutil.copytree(average / "auto-left", tmp_path / "a")
    config, (before, after) = tmp_path / "a" / "config.toml", EDITS[edit]
    text = config.read_text()
    assert before in text
    config.write_text(text.replace(before, after))
    wanted = left_behind(tmp_path / "a")
    verbs = [["train", "--resume", tmp_path / "a"]]
    if edit not in ("a name of no method", "another method", "a method of fit", "another seed"):
        rows = average / "rows.csv"
        verbs += [["report", tmp_path / "a"], ["predict", tmp_path / "a", rows]]
    for verb in verbs:
        result = command(*verb)
        assert result.exit_code == 1, (verb, result.output)
        assert "Traceback" not in result.output
        assert left_behind(tmp_path / "a") == wanted
