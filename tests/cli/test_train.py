"""`apportion train` at work: in folders where nothing is lost, stopped and resumed."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from apportion import Bags, Run, TrainConfig
from apportion.cli.train import PLANNED
from apportion.plan.held_out import held_out_share
from apportion.plan.plan import WEIGHT_DECAY, make_plan
from tests.cli.wards_on_disk import (
    QUICK,
    config_of,
    process,
    proportions_of,
    records,
    run,
    train_in,
    voters,
    without_times,
    write,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_in(tmp_path_factory.mktemp("trained"))


def test_log_lines_and_what_is_next(trained, tmp_path):
    files = [trained / "rows.csv", "--bag", "ward", "--proportions", trained / "wards.csv"]
    result = run("train", *files, *QUICK, "--out", tmp_path / "a")
    lines = [line for line in result.stderr.splitlines() if line.startswith("epoch ")]
    assert len(lines) == 3
    assert "\x1b" not in result.output  # no bars where nobody looks
    assert f"apportion report {tmp_path / 'a'}" in result.stdout


def test_files_are_read_once_per_pass_and_bags_checked_once(tmp_path, monkeypatch):
    files = write(tmp_path, split=lambda ward: ("train", "valid", "test")[ward % 3])
    opened, checked = [], []
    watching = True

    def watch(event, arguments):
        if event == "open" and watching and str(arguments[0]).endswith(("rows.csv", "wards.csv")):
            opened.append(Path(str(arguments[0])).name)

    check = Bags.__post_init__

    def count(bags):
        checked.append(bags.n_bags)
        check(bags)

    monkeypatch.setattr(Bags, "__post_init__", count)
    sys.addaudithook(watch)  # which cannot be removed
    result = run("train", *files, *QUICK, "--out", tmp_path / "a")
    watching = False
    assert result.exit_code == 0, result.output
    assert sorted(opened) == ["rows.csv", "rows.csv", "wards.csv"]
    assert len(checked) <= 3  # training, validation and test bags


@pytest.mark.parametrize("change", ["numbers", "categories"])
def test_held_out_rows_teach_nothing(trained, tmp_path, change):
    """Test rows times 1000, or with a category of their own: training is the same to the bit."""
    frame = voters()
    out = frame["ward"] % 4 == 3
    logs = []
    for name in ("plain", "odd"):
        folder = tmp_path / name
        folder.mkdir()
        if name == "odd" and change == "numbers":
            frame["age"] = frame["age"].where(~out, frame["age"] * 1000)
        elif name == "odd":
            frame["job"] = frame["job"].where(~out, "pilot")
        files = write(folder, frame, split=lambda ward: "test" if ward % 4 == 3 else "train")
        result = run("train", *files, *QUICK, "--out", folder / "a")
        assert result.exit_code == 0, result.output
        logs.append([record["loss"] for record in records(folder / "a")])
    assert logs[0] == logs[1]
    ours, theirs = (load_file(tmp_path / n / "a" / "model.safetensors") for n in ("plain", "odd"))
    assert all(np.array_equal(ours[weight], theirs[weight]) for weight in ours)


# --------------------------------------------------------------------------- stopped and resumed


def interrupted(folder, *, signals, wait_for):
    """Train for long in a process; send it signals once it has logged some epochs."""
    files = write(folder)
    options = ["--exclude", "id", "--threads", "1", "--device", "cpu", "--epochs", "400"]
    command = ["train", *files, *options, "--out", folder / "a"]
    with process(*command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as training:
        assert training.stderr is not None
        said = []
        for line in training.stderr:
            said.append(line)
            if line.startswith(wait_for):
                for number in signals:
                    training.send_signal(number)
                break
        said += training.stderr.readlines()
        training.wait(60)
    return training.returncode, "".join(said)


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    code, said = interrupted(tmp_path, signals=[signal.SIGINT], wait_for="epoch   2/400")
    assert code == 130
    done = len(records(tmp_path / "a"))
    assert 2 <= done < 400
    assert f"Stopped after {done} of 400 epochs" in said
    assert f"apportion train --resume {tmp_path / 'a'}" in said
    assert "Traceback" not in said
    result = run("predict", tmp_path / "a", tmp_path / "rows.csv", "--out", tmp_path / "p.csv")
    assert result.exit_code == 1
    assert f"is not finished: {done} of 400 epochs" in result.output
    assert "--resume" in result.output


def test_a_killed_run_goes_on_and_ends_as_if_nothing_had_happened(tmp_path, trained):
    write(tmp_path)
    source = (trained / "a" / "config.toml").read_text()
    (tmp_path / "config.toml").write_text(source.replace("epochs = 3", "epochs = 40"))
    command = ["train", tmp_path / "config.toml", "--out"]
    with process(*command, tmp_path / "cut", stderr=subprocess.PIPE) as training:
        for line in training.stderr:
            if line.startswith("epoch  3/40"):
                training.kill()
                break
        training.stderr.read()
    assert len(records(tmp_path / "cut")) < 40
    result = run("train", "--resume", tmp_path / "cut")
    assert result.exit_code == 0, result.output
    assert run(*command, tmp_path / "whole").exit_code == 0
    assert without_times(records(tmp_path / "cut")) == without_times(records(tmp_path / "whole"))


def test_resuming_a_finished_run_changes_nothing(trained):
    before = (trained / "a" / "model.safetensors").read_bytes()
    result = run("train", "--resume", trained / "a")
    assert result.exit_code == 0, result.output
    assert "is finished: 3 epochs" in result.stdout
    assert (trained / "a" / "model.safetensors").read_bytes() == before
    assert len(records(trained / "a")) == 3


def test_tensorboard_gets_every_epoch(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run("train", *write(tmp_path), *QUICK, "--tensorboard", "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    read = EventAccumulator(str(tmp_path / "a" / "tensorboard"))
    read.Reload()
    assert [event.step for event in read.Scalars("loss")] == [1, 2, 3]


# -------------------------------------------------------------------------------------- refusals


def test_nothing_is_overwritten_without_force(trained, tmp_path):
    files = write(tmp_path)
    for name in ("a", "b"):
        assert run("train", *files, *QUICK, "--out", tmp_path / name).exit_code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    again = ["train", *files, *QUICK, "--seed", "5", "--out", tmp_path / "a"]
    result = run(*again)
    assert result.exit_code == 1
    assert "holds a run already" in result.stderr
    assert "--force" in result.stderr
    assert "--resume" in result.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before
    (tmp_path / "b" / "thesis.txt").write_text("years of work")
    result = run(*again[:-1], tmp_path / "b", "--force")
    assert result.exit_code == 1
    assert "thesis.txt" in result.stderr
    assert run(*again, "--force").exit_code == 0
    assert config_of(tmp_path / "a")["train"]["seed"] == 5
    assert len(records(tmp_path / "a")) == 3


def test_a_mistake_after_force_leaves_the_old_run(tmp_path):
    files = write(tmp_path)
    assert run("train", *files, *QUICK, "--out", tmp_path / "a").exit_code == 0
    result = run("train", files[0], "--bag", "nope", "--out", tmp_path / "a", "--force")
    assert result.exit_code == 1
    assert (tmp_path / "a" / "model.safetensors").exists()


@pytest.mark.parametrize("option", [["--device", "cuda:99"], ["--learning-rate", "9e5"]])
def test_a_run_that_never_starts_leaves_all_as_it_was(tmp_path, option):
    """Whether it fails before the data are read, or in its first epoch."""
    files = write(tmp_path)
    assert run("train", *files, *QUICK, "--out", tmp_path / "a").exit_code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    options = [*QUICK[:-2], *option] if option[0] == "--device" else [*QUICK, *option]
    for out, force in (("a", ["--force"]), ("new", [])):
        result = run("train", *files, *options, "--out", tmp_path / out, *force)
        assert result.exit_code == 1, result.output
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "a.replaced").exists()


def test_a_run_in_use_is_not_replaced(tmp_path):
    files = write(tmp_path)
    assert run("train", *files, *QUICK, "--out", tmp_path / "a").exit_code == 0
    with Run(tmp_path / "a").locked():
        result = run("train", *files, *QUICK, "--out", tmp_path / "a", "--force")
    assert result.exit_code == 1
    assert "is in use" in result.stderr
    assert (tmp_path / "a" / "model.safetensors").exists()


def test_two_trainings_at_once_take_two_folders(tmp_path):
    files = write(tmp_path)
    command = ["train", *files, *QUICK]
    both = [process(*command, cwd=tmp_path, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [training.wait(120) for training in both] == [0, 0]
    for name in "12":
        folder = tmp_path / "runs" / name
        assert {"config.toml", "model.safetensors"} <= {path.name for path in folder.iterdir()}


def test_a_folder_where_another_is_about_to_train_is_left_alone(tmp_path):
    files = write(tmp_path)
    (tmp_path / "a").mkdir()
    with Run(tmp_path / "a").locked():
        result = run("train", *files, *QUICK, "--out", tmp_path / "a")
        assert result.exit_code == 1
        assert "is in use" in result.stderr
        assert [path.name for path in (tmp_path / "a").iterdir()] == ["lock"]


def test_what_was_set_aside_before_is_never_touched(tmp_path):
    files = write(tmp_path)
    (tmp_path / "a.replaced").mkdir()
    (tmp_path / "a.replaced" / "thesis.txt").write_text("years of work")
    assert run("train", *files, *QUICK, "--out", tmp_path / "a").exit_code == 0
    result = run("train", *files, *QUICK, "--out", tmp_path / "a", "--force")
    assert result.exit_code == 1
    assert "a.replaced is in the way" in result.stderr
    assert (tmp_path / "a" / "model.safetensors").exists()
    assert (tmp_path / "a.replaced" / "thesis.txt").exists()


# ----------------------------------------------------------------------- what a kill has left


def bytes_of(folder):
    """All files of a run but the log, whose times differ."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name not in ("lock", "log.jsonl")}


def killed_before_its_first_checkpoint(folder):
    """Leave of a run what there is when it is killed in its first epoch."""
    for path in folder.iterdir():
        if path.name != "config.toml":
            path.unlink()


def test_a_folder_without_a_run_is_as_good_as_none(trained, tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("lock", "config.toml.77.new", "checkpoint.safetensors.78.new", ".tmpfjPfWP"):
        (tmp_path / "a" / name).write_text("half")
    result = run("train", "--resume", tmp_path / "a")
    assert result.exit_code == 1
    assert "was stopped before config.toml was written" in result.stderr
    assert f"--out {tmp_path / 'a'}" in result.stderr  # the command that works
    result = run("train", *write(tmp_path), *QUICK, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output


def test_going_on_before_the_first_checkpoint_loses_nothing(tmp_path):
    folder = train_in(tmp_path) / "a"
    before = bytes_of(folder)
    killed_before_its_first_checkpoint(folder)
    result = run("train", "--resume", folder)
    assert result.exit_code == 0, result.output
    assert bytes_of(folder) == before


def test_a_run_set_aside_is_put_back_if_its_replacement_never_began(tmp_path):
    folder = train_in(tmp_path) / "a"
    before = bytes_of(folder)
    files = ["train", *write(tmp_path), *QUICK, "--out", folder]
    for remains, command in (
        ((), ["train", "--resume", folder]),
        (("lock",), files),
        (("lock", "config.toml.9.new"), ["train", "--resume", folder]),
    ):
        folder.rename(tmp_path / "a.replaced")
        for name in remains:
            folder.mkdir(exist_ok=True)
            (folder / name).touch()
        result = run(*command)
        assert f"Put back {folder}" in result.stderr
        assert bytes_of(folder) == before
        assert not (tmp_path / "a.replaced").exists()
        assert ("is finished" in result.stdout) or ("holds a run already" in result.stderr)


@pytest.mark.parametrize("how", ["resume", "force", "failing force"])
def test_a_run_set_aside_stays_until_its_replacement_is_finished(tmp_path, how):
    folder, aside = train_in(tmp_path) / "a", tmp_path / "a.replaced"
    before = bytes_of(folder)
    files = ["train", *write(tmp_path), *QUICK, "--out", folder, "--force"]
    shutil.copytree(folder, aside)
    killed_before_its_first_checkpoint(folder)
    if how == "resume":
        result = run("train", "--resume", folder)
        assert f"Removed {aside}" in result.stderr
    elif how == "force":
        result = run(*files, "--seed", "5")
        assert f"the one before it is in {aside}" in result.stderr
        assert config_of(folder)["train"]["seed"] == 5
    else:
        result = run(*files, "--learning-rate", "9e5")
    assert result.exit_code == (how == "failing force"), result.output
    assert not aside.exists()
    assert (bytes_of(folder) == before) == (how != "force")


def test_a_finished_replacement_removes_what_it_replaced(tmp_path):
    folder, aside = train_in(tmp_path) / "a", tmp_path / "a.replaced"
    shutil.copytree(folder, aside)
    (aside / "config.toml").unlink()  # it was killed while removing it
    assert "is finished" in run("train", "--resume", folder).stdout
    assert not aside.exists()


def test_names_of_runs_set_aside_and_no_names_are_refused(tmp_path):
    files = write(tmp_path)
    result = run("train", *files, *QUICK, "--out", tmp_path / "a.replaced")
    assert result.exit_code == 1
    assert "has the name of a run set aside" in result.stderr
    for option in ("--out", "--resume"):
        result = run("train", *files, *QUICK, option, "")
        assert result.exit_code == 2
        assert "Invalid value" in result.stderr


def test_folders_by_another_name(tmp_path, monkeypatch):
    files = write(tmp_path)
    for name in ("real", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    result = run("train", *files, *QUICK, "--learning-rate", "9e5", "--out", tmp_path / "link")
    assert result.exit_code == 1, result.output  # the loss, and not the link
    for force in ([], ["--force"]):
        result = run("train", *files, *QUICK, "--out", tmp_path / "link", *force)
        assert result.exit_code == 0, result.output
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "model.safetensors").exists()
    monkeypatch.chdir(tmp_path / "here")
    for force in ([], ["--force"]):
        result = run("train", *files, *QUICK, "--out", ".", *force)
        assert result.exit_code == 0, result.output
    assert (tmp_path / "here" / "model.safetensors").exists()
    assert not list(tmp_path.glob("*.replaced"))


def test_a_library_run_cannot_be_resumed_here(tmp_path):
    from apportion import Bags, fit
    from apportion.nets.build import build_net

    bags = Bags.from_rows(np.eye(4), [0, 0, 1, 1], truth=list("abab"))
    config = TrainConfig(epochs=1, device="cpu", threads=1)
    fit(build_net("mlp", bags), bags, config=config, run=tmp_path)
    result = run("train", "--resume", tmp_path)
    assert result.exit_code == 1
    assert "was not started by apportion train" in result.stderr


def test_remedies_are_those_of_the_command_line(tmp_path):
    files = write(tmp_path)
    for arguments, remedy in (
        (["--patience", "2"], "Hold out bags to validate on"),
        (["--order", "id"], "Pass --signal SIGNAL as well"),
    ):
        result = run("train", *files, *QUICK, *arguments, "--out", tmp_path / "a")
        assert result.exit_code == 1
        assert remedy in result.stderr


def test_help_shows_every_default():
    shown = " ".join(run("train", "--help").stdout.replace("│", " ").split())
    assert re.search(r"--seed <int> [^-]*\[default: \(0\)\]", shown)
    assert re.search(r"--device <str> [^-]*\[default: \(auto\)\]", shown)


def test_help_names_the_defaults_that_the_plan_has():
    assert PLANNED["weight_decay"] == str(WEIGHT_DECAY)
    longest = make_plan(Bags.from_rows(None, ["a"], {"a": [1.0]}), validation=held_out_share(1))
    assert PLANNED["epochs"].startswith(f"{longest.epochs.value} of a single net,")


def test_warnings_and_columns_that_are_left_out(tmp_path):
    frame = voters()
    yes = frame["vote"].eq("yes").groupby(frame["ward"]).transform("mean")
    files = write(tmp_path, frame.assign(share=yes, region=frame["ward"] % 4))
    result = run("train", *files, *QUICK, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("Column 'share' is the bag's own proportions, and left out.") == 1
    assert "--keep share" in result.stderr
    assert result.stderr.count("Column 'region' is constant within every bag") == 1
    assert "--exclude " in result.stderr
    lacking = frame.assign(region=1).drop(columns=["vote", "id"])
    lacking.to_csv(tmp_path / "more.csv", index=False)
    out = tmp_path / "predictions.csv"
    result = run("predict", tmp_path / "a", tmp_path / "more.csv", "--out", out)
    assert result.exit_code == 0, result.output
    assert len(out.read_text().splitlines()) == 401
    table = proportions_of(frame)
    table[["no", "yes"]] = 0.5
    table.to_csv(tmp_path / "wards.csv", index=False)
    result = run("train", *files, *QUICK, "--out", tmp_path / "b")
    assert result.stderr.count("The bags' proportions are nearly identical") == 1
