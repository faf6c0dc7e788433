"""Run folders: one process at a time, a log that only grows, files replaced whole or not at all."""

import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from apportion import Bags, TrainConfig, fit
from apportion.errors import ConfigError, RunError
from apportion.nets.build import build_net
from apportion.report.build import write_report
from apportion.runs.run import FORMAT_VERSION, Run, check_classifies

FORMAT = f"format = {FORMAT_VERSION}\n"
SOURCE = Path(__file__).parents[2] / "src"

HOLD = """
import sys
from apportion.runs.run import Run
with Run(sys.argv[1]).locked():
    print("held", flush=True)
    sys.stdin.readline()
print("free", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run")


@pytest.fixture
def opened(run):
    with run.locked():
        yield run


@pytest.fixture
def holder(run):
    """Another process that holds the lock of the run until it reads a line."""
    command = [sys.executable, "-c", HOLD, str(run.folder)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        if process.poll() is None:
            process.kill()


# --------------------------------------------------------------------------------------- the lock


def test_a_folder_in_which_another_process_trains_is_refused(run, holder):
    with pytest.raises(RunError) as refused, run.locked():
        pytest.fail("two processes hold one folder")
    problem, remedy = str(refused.value).split("\n  ")
    assert problem == f"{run.folder} is in use: another process is training in it."
    assert remedy == "Wait for it to end, or train in another folder."
    assert holder.poll() is None


def test_the_folder_is_free_once_the_other_process_lets_go(run, holder):
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "free\n"
    assert holder.poll() is None  # it lives, and no longer holds the lock
    with run.locked():
        pass


def test_the_folder_is_free_once_the_other_process_is_killed(run, holder):
    holder.send_signal(signal.SIGKILL)
    assert holder.wait() == -signal.SIGKILL
    with run.locked():
        pass


def test_a_second_training_in_the_same_process_is_refused(run):
    with run.locked(), pytest.raises(RunError, match="is in use"), Run(run.folder).locked():
        pytest.fail("two trainings hold one folder")
    with run.locked():
        pass


def test_the_lock_is_given_back_after_an_error(run):
    with pytest.raises(ZeroDivisionError), run.locked():
        _ = 1 / 0
    with run.locked():
        pass


def test_a_refused_training_leaves_the_folder_alone(run, holder):
    before = sorted(run.folder.iterdir())
    with pytest.raises(RunError), run.locked():
        pass
    assert sorted(run.folder.iterdir()) == before
    with pytest.raises(RunError, match="is in use"), run.locked():  # still: nothing was unlocked
        pass


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a file in use cannot be deleted")
def test_the_folder_stays_locked_if_the_lock_file_is_deleted(run, holder):
    run.lock.unlink()
    with pytest.raises(RunError, match="is in use"), run.locked():
        pytest.fail("two processes hold one folder")


def test_no_name_is_not_the_current_folder():
    with pytest.raises(ConfigError, match="run must be the path of a folder; got ''"):
        Run("")


def test_only_a_lock_and_unfinished_files_are_nothing(run):
    assert run.is_empty()
    with run.locked():
        (run.folder / "config.toml.77.new").touch()
        assert run.is_empty()
        run.append({"epoch": 1})
        run.config.touch()
        run.tensorboard.mkdir()
        assert not run.is_empty()
        run.clear()
        assert [path.name for path in run.folder.iterdir()] == ["lock"]


def test_folders_above_are_made(tmp_path):
    with Run(tmp_path / "a" / "b" / "c").locked():
        assert (tmp_path / "a" / "b" / "c").is_dir()


@pytest.mark.parametrize("below", ["", "inside"])
def test_a_path_that_is_a_file_is_refused(tmp_path, below):
    (tmp_path / "notes.txt").write_text("mine")
    path = tmp_path / "notes.txt" / below
    with pytest.raises(RunError) as refused, Run(path).locked():
        pass
    problem, remedy = str(refused.value).split("\n  ")
    assert problem.startswith(f"{path} cannot be a run folder: ")
    assert "exists" in problem or "Not a directory" in problem
    assert "Pass a folder" in remedy
    assert (tmp_path / "notes.txt").read_text() == "mine"


# ---------------------------------------------------------------------------------------- the log


def test_log_grows_by_a_line_a_record(opened):
    records = [{"epoch": t, "loss": 1 / t, "seconds": {"train": 0.1}} for t in (1, 2, 3)]
    assert opened.records() == []
    for t, record in enumerate(records, start=1):
        opened.append(record)
        assert opened.records() == records[:t]
    assert len(opened.log.read_bytes().splitlines()) == 3


def test_log_keeps_floats_to_the_bit(opened):
    values = dict(zip(map(str, range(100)), np.random.default_rng(0).random(100), strict=True))
    opened.append({"epoch": 1, **values})
    assert opened.records() == [{"epoch": 1, **values}]


@pytest.mark.parametrize(
    "text", ["Zürich 😀", "two\nlines", "\r", "\v \f", "\x1c", "\x85", "\u2028 \u2029", '"\\']
)
def test_log_gives_back_any_text(opened, text):
    """Some characters end lines for Python's str.splitlines that end none in JSON."""
    records = [{"epoch": 1, text: 0.5}, {"epoch": 2, text: 0.25}]
    for record in records:
        opened.append(record)
    assert opened.records() == records


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"epoch": 1}, "is of epoch 1"),
        ({"epoch": True}, "is of epoch True"),
        ({"epoch": 2.0}, "is of epoch 2.0"),
        ({"loss": 1.0}, "is of epoch None"),
        ({"epoch": 2, "loss": math.nan}, "has loss nan"),
        ({"epoch": 2, "loss": "low"}, "has loss 'low'"),
        ({"epoch": 2, "changed": 10**400}, "has changed 1000"),
        ({"epoch": 2, "changed": False}, "has changed False"),
        ({"epoch": 2, "valid_error": -0.1}, "has valid_error -0.1"),
        ({"epoch": 2, "test_accuracy": 7}, "has test_accuracy 7"),
        ({"epoch": 2, "seconds": 3}, "has no seconds"),
        ({"epoch": 2, "seconds": {"train": -1}}, "has train -1"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused_by_its_line(opened, record, words):
    opened.append({"epoch": 1, "loss": 1})
    opened.append(record)
    with pytest.raises(RunError) as refused:
        opened.records()
    assert f"{opened.log} is damaged: line 2 {words}" in str(refused.value)


@pytest.mark.parametrize("rest", [b"", b"\0" * 9, b'{"epoch": 2}\n{"epoch": 3, "lo'])
def test_rewind_cuts_away_whatever_a_crash_has_left_behind(opened, rest):
    opened.append({"epoch": 1})
    kept = opened.log.read_bytes()
    opened.log.write_bytes(kept + rest)
    opened.rewind(1)
    assert opened.log.read_bytes() == kept


def test_rewind_accepts_a_last_line_without_its_end(opened):
    """An editor may have taken it."""
    opened.log.write_text('{"epoch": 1}\n{"epoch": 2}')
    opened.rewind(2)
    assert [record["epoch"] for record in opened.records()] == [1, 2]


def test_rewind_cuts_back_to_the_byte(opened):
    opened.append({"epoch": 1, "Zürich": 2})
    before = opened.log.read_bytes()
    opened.append({"epoch": 2})
    with opened.log.open("a") as log:
        log.write('{"epoch": 3, "lo')  # as a process that is killed may leave it
    opened.rewind(1)
    assert opened.log.read_bytes() == before
    opened.append({"epoch": 2, "again": 1})
    assert [record["epoch"] for record in opened.records()] == [1, 2]


def test_rewind_to_nothing_empties_the_log_or_leaves_none(opened):
    opened.rewind(0)
    assert opened.records() == []
    opened.append({"epoch": 1})
    opened.rewind(0)
    assert opened.records() == []


def test_rewind_cannot_make_up_what_is_missing(opened):
    opened.append({"epoch": 1})
    held = opened.log.read_bytes()
    with pytest.raises(RunError) as refused:
        opened.rewind(12_345)
    problem, remedy = str(refused.value).split("\n  ")
    assert problem == (
        f"{opened.log} has 1 line, but the checkpoint was saved after 12,345 records."
    )
    assert "Restore the log" in remedy
    assert opened.log.read_bytes() == held


def left_by_safetensors(folder):
    """What safetensors calls the file that it writes, by a process that dies while it does."""
    code = (
        "import resource, sys, os, signal, numpy, safetensors.numpy\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"  # dies while writing
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "safetensors.numpy.save_file({'x': numpy.zeros(1000)}, sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-c", code, str(folder / "x")], check=False)
    (left,) = (path for path in folder.iterdir() if path.name not in ("lock", "log.jsonl"))
    left.unlink()
    return left.name


def test_unfinished_files_of_a_killed_process_are_removed(run):
    """Those of the run alone: a report may be on its way into the folder meanwhile."""
    with run.locked():
        run.append({"epoch": 1})
    ours = ("config.toml.77.new", "checkpoint.safetensors.77.new", "report.html.77.new")
    for name in (*ours, left_by_safetensors(run.folder)):
        (run.folder / name).write_text("half")
    assert run.foreign() == []
    with run.locked():
        there = {path.name for path in run.folder.iterdir()}
    assert there == {"lock", "log.jsonl", "report.html.77.new"}


def test_a_line_that_is_no_record_is_named(opened):
    opened.log.write_text('{"epoch": 1}\n5\n')
    with pytest.raises(RunError, match=r"log\.jsonl is damaged: line 2 is not a record"):
        opened.records()


# ------------------------------------------------------------------------------------- the files


def test_what_a_training_leaves_behind_is_its_own_and_nothing_else_is(tmp_path):
    rng = np.random.default_rng(0)
    bags = Bags.from_rows(rng.normal(size=(8, 2)), np.repeat([0, 1], 4), truth=[0, 1] * 4)
    run = Run(tmp_path / "run")
    fit(build_net("mlp", bags), bags, config=TrainConfig(epochs=1, device="cpu"), run=run)
    write_report([run.folder])
    run.tensorboard.mkdir()
    run.pretraining.mkdir()
    run.pretrained.touch()  # of pre-training alone
    (run.folder / "report.html.77.new").touch()  # of a process that was killed
    there = set(run.folder.iterdir())
    assert set(run.files) <= there
    assert run.foreign() == []
    for name in ("notes.txt", "report.html.new.txt", "model.safetensors~"):
        (run.folder / name).touch()
    assert [path.name for path in run.foreign()] == [
        "model.safetensors~", "notes.txt", "report.html.new.txt"
    ]  # fmt: skip
    assert Run(tmp_path / "nowhere").foreign() == []


def test_what_is_foreign_in_the_folder_of_pretraining_is_foreign(tmp_path):
    run = Run(tmp_path)
    inside = Run(run.pretraining)
    with inside.locked():
        inside.append({"epoch": 1, "loss": 0.5})
    assert run.foreign() == []
    assert not run.is_empty()
    assert run.has_begun()
    (run.pretraining / "notes.txt").touch()
    assert [path.name for path in run.foreign()] == ["notes.txt"]
    (run.pretraining / "notes.txt").unlink()
    run.clear()
    assert run.is_empty()
    assert not run.has_begun()


@pytest.mark.parametrize("by_command", [True, False])
def test_a_run_of_pretraining_alone_says_what_it_is(tmp_path, by_command):
    run = Run(tmp_path)
    data = '[data]\nimages = "x"' if by_command else ""
    run.config.write_text(f'format = 4\n[train]\nepochs = 30\n[method]\nname = "SimCLR"\n{data}\n')
    run.append({"epoch": 1, "loss": 0.5})
    with pytest.raises(RunError, match="without labels, 1 of 30 epochs, and no") as refused:
        check_classifies(run, run.settings())
    assert ("apportion pretrain --resume" in str(refused.value)) == by_command
    run.pretrained.touch()
    assert run.is_finished()
    with pytest.raises(RunError, match="and no classifier yet") as refused:
        check_classifies(run, run.settings())
    assert f"--preset strong --pretrained {tmp_path}" in str(refused.value)


# --------------------------------------------------------------------------------- failing disks


def test_a_log_that_cannot_be_written_says_so(opened, monkeypatch):
    opened.append({"epoch": 1})

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunError, match=r"log\.jsonl cannot be written: No space left on device"):
        opened.append({"epoch": 2})


# -------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "is not a run folder: it has no config.toml"),
        ("[train", "is not valid TOML"),
        (FORMAT, "is not the configuration of a run"),
        (f'{FORMAT}[train]\nepochs = "3"\n[method]\nname = "x"', "is not the configuration"),
        (f'{FORMAT}[train]\nepochs = 3\n[method]\nform = "x"', "is not the configuration"),
        ('format = 1\n[train]\nepochs = 3\n[method]\nclass = "x"', "of format version 1"),
        ('format = 9\n[train]\nepochs = 3\n[method]\nname = "x"', "of format version 9"),
    ],
)
def test_settings_that_are_none_of_a_run_are_named(tmp_path, text, problem):
    run = Run(tmp_path)
    if text is not None:
        run.config.write_text(text)
    with pytest.raises(RunError, match=re.escape(problem)) as caught:
        run.settings()
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("entry", ["name"])
def test_settings_are_those_of_the_file(tmp_path, entry):
    run = Run(tmp_path)
    run.config.write_text(
        f'{FORMAT}[train]\nepochs = 3\n[method]\n{entry} = "x"\n[data]\nrows = "é"'
    )
    assert run.settings()["data"] == {"rows": "é"}


def test_the_holder_of_a_lock_may_hold_it_again(tmp_path):
    run = Run(tmp_path)
    with run.locked(), run.locked():
        pass
    with run.locked(), pytest.raises(RunError, match="is in use"), Run(tmp_path).locked():
        pass


def test_every_line_of_the_log_has_its_time_and_no_record_does(opened):
    before = int(time.time())
    for epoch in (1, 2):
        opened.append({"epoch": epoch})
    assert opened.records() == [{"epoch": 1}, {"epoch": 2}]
    times = opened.times()
    assert len(times) == 2
    assert before <= times[0] <= times[1] <= time.time()
    opened.log.write_text('{"epoch": 1}\n')
    assert opened.times() == [None]


@pytest.mark.parametrize("at", ["-1", "1e3", '"now"', "true", "253402300800", "[]"])
def test_a_time_that_is_none_is_damage(opened, at):
    opened.log.write_text(f'{{"epoch": 1, "at": {at}}}\n')
    with pytest.raises(RunError, match="line 1 has at "):
        opened.records()
