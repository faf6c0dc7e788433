"""`apportion train`: from files to a run folder, by flags, by TOML, interrupted and resumed."""

import signal
import subprocess
import tomllib

import numpy as np
import pandas as pd
import pytest

from apportion import LLPClassifier, Run, TrainConfig
from apportion.outcome import read_outcomes
from tests.commands.wards_on_disk import QUICK, process, records, run, voters, without_times, write


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with files, and a finished run of them in a."""
    folder = tmp_path_factory.mktemp("trained")
    files = write(folder)
    result = run("train", *files, *QUICK, "--out", folder / "a")
    assert result.exit_code == 0, result.output
    return folder


def config_of(folder):
    return tomllib.loads((folder / "config.toml").read_text())


def test_the_folder_tells_all(trained):
    config = config_of(trained / "a")
    assert config["data"] == {
        "kind": "table",
        "rows": str(trained / "rows.csv"),
        "bag": "ward",
        "proportions": str(trained / "wards.csv"),
        "exclude": ["id"],
    }
    assert config["model"] == {"net": "mlp", "validation": 0}
    assert config["method"]["class"] == "OnlinePseudoLabels"
    assert TrainConfig.from_dict(config["train"]).epochs == 3
    assert len(records(trained / "a")) == 3
    # Of 20 bags a tenth would be two, which select worse than the last epoch does.
    assert "valid_error" not in records(trained / "a")[-1]


def test_it_learns_what_the_estimator_learns(tmp_path):
    """Two doors to one house: the same defaults, the same bags, the same weights."""
    frame = voters(1200)
    files = write(tmp_path, frame)
    options = ["--exclude", "id", "--epochs", "2", "--device", "cpu", "--threads", "1"]
    assert run("train", *files, *options, "--out", tmp_path / "a").exit_code == 0
    loaded = LLPClassifier.load(tmp_path / "a", device="cpu")
    counts = pd.crosstab(frame["ward"], frame["vote"])
    direct = LLPClassifier(epochs=2, random_state=0, device="cpu")
    X = frame[["age", "job"]]
    direct.fit(X, bags=frame["ward"], proportions=counts.div(counts.sum(axis=1), axis=0))
    assert loaded.classes_.tolist() == direct.classes_.tolist()
    assert loaded.history_.best_epoch == direct.history_.best_epoch
    np.testing.assert_allclose(loaded.predict_proba(X), direct.predict_proba(X), atol=1e-5)


def test_a_configuration_does_what_its_flags_did(trained):
    result = run("train", trained / "a" / "config.toml", "--out", trained / "again")
    assert result.exit_code == 0, result.output
    assert without_times(records(trained / "again")) == without_times(records(trained / "a"))


def test_flags_go_over_a_configuration(trained):
    options = ["--method", "proportion-loss", "--epochs", 1, "--seed", 7]
    result = run("train", trained / "a" / "config.toml", *options, "--out", trained / "other")
    assert result.exit_code == 0, result.output
    config = config_of(trained / "other")
    assert config["method"]["class"] == "ProportionLoss"
    assert (config["train"]["epochs"], config["train"]["seed"]) == (1, 7)
    assert config["data"] == config_of(trained / "a")["data"]


def test_a_configuration_by_hand_names_files_from_its_own_folder(tmp_path, monkeypatch):
    write(tmp_path)
    (tmp_path / "mine.toml").write_text(
        '[data]\nrows = "rows.csv"\nbag = "ward"\nproportions = "wards.csv"\nexclude = ["id"]\n'
        '[model]\nhidden = [4]\n[method]\nname = "greedy"\n'
        '[train]\nepochs = 1\nthreads = 1\nlearning_rate = 0.5\ndevice = "cpu"\n'
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = run("train", tmp_path / "mine.toml")
    assert result.exit_code == 0, result.output
    config = config_of(tmp_path / "elsewhere" / "runs" / "1")
    assert config["method"]["eta"] == 0
    assert config["model"]["hidden"] == [4]
    assert config["train"]["learning_rate"] == 0.5
    assert run("train", tmp_path / "mine.toml").exit_code == 0
    assert (tmp_path / "elsewhere" / "runs" / "2" / "model.safetensors").exists()


def test_the_column_split_decides_what_bags_are_for(tmp_path):
    kinds = {0: "valid", 1: "test"}
    files = write(tmp_path, split=lambda ward: kinds.get(ward % 4, "train"))
    files = [tmp_path / "labelled.csv", *files[1:]]
    result = run("train", *files, *QUICK, "--label", "vote", "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    last = records(tmp_path / "a")[-1]
    assert {"valid_error", "test_error", "valid_accuracy", "test_accuracy"} <= last.keys()
    assert "Accuracy: validation" in result.output


@pytest.mark.parametrize(("share", "held_out"), [(0.1, 2), (0.3, 6), (0, None)])
def test_as_many_bags_are_held_out_as_are_asked_for(tmp_path, share, held_out):
    """Even where the default would rather hold out none."""
    files = write(tmp_path)
    result = run("train", *files, *QUICK, "--validation", share, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    _, outcomes = read_outcomes(Run(tmp_path / "a"))
    assert (len(outcomes["valid"].ids) if "valid" in outcomes else None) == held_out
    assert config_of(tmp_path / "a")["model"]["validation"] == share


def test_two_ways_of_holding_out_are_one_too_many(tmp_path):
    files = write(tmp_path, split=lambda ward: "valid" if ward < 5 else "train")
    result = run("train", *files, *QUICK, "--validation", 0.3, "--out", tmp_path / "a")
    assert result.exit_code == 1
    assert "column 'split'" in result.stderr
    assert run("train", *files, *QUICK, "--out", tmp_path / "a").exit_code == 0
    assert "validation" not in config_of(tmp_path / "a")["model"]


def test_log_lines_and_what_is_next(trained, tmp_path):
    files = [trained / "rows.csv", "--bag", "ward", "--proportions", trained / "wards.csv"]
    result = run("train", *files, *QUICK, "--out", tmp_path / "a")
    lines = [line for line in result.stderr.splitlines() if line.startswith("epoch")]
    assert len(lines) == 3
    assert "\x1b" not in result.output  # no bars where nobody looks
    assert f"apportion report {tmp_path / 'a'}" in result.stdout


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


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (["nowhere.csv"], "nowhere.csv is missing", "rows.csv"),
        (["rows.csv", "--bag", "wrad"], "no column 'wrad'", "Did you mean 'ward'?"),
        (["rows.csv"], "no column 'bag'", "There are ward"),
        (["rows.csv", "--bag", "ward"], "neither proportions nor labels", "--proportions"),
        (["nowhere.toml"], "nowhere.toml is missing", ".toml"),
        (["typo.toml"], "'epocs'", "Did you mean 'epochs'?"),
        (["sections.toml"], "section 'dta'", "Did you mean 'data'?"),
        (["broken.toml"], "is no TOML", "Correct it"),
        (["norows.toml"], "[data] has no rows", "rows ="),
        (["ALL", "--method", "flp"], "no method 'flp'", "Did you mean 'fpl'?"),
        (["ALL", "--method", "proportion-loss", "--eta", "1"], "no setting 'eta'", "form"),
        (["ALL", "--net", "mpl"], "no net 'mpl'", "Did you mean 'mlp'?"),
        (["ALL", "--epochs", "0"], "epochs is 0", "1 or more"),
        (["ALL", "--validation", "1.5"], "validation is 1.5", "from 0 to below 1"),
        (["ALL", "--preset", "papre"], "no preset 'papre'", "Did you mean 'paper'?"),
        (["ALL", "--exclude", "idd"], "no column 'idd'", "Did you mean 'id'?"),
        (["ALL", "--size", "8x8"], "size is given, but no images", "Pass images"),
        (["ALL", "--resume", "runs/a"], "--resume goes on", "Leave it out"),
        (["--resume", "."], "is not a run folder", "--out"),
        ([], "neither rows nor a configuration", "apportion train rows.csv"),
        (["leak.csv", "--bag", "ward", "--proportions", "wards.csv"], "'vote'", "--label vote"),
    ],
)
def test_mistakes_are_named_and_nothing_is_left(tmp_path, monkeypatch, arguments, problem, remedy):
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    voters().drop(columns="id").to_csv("leak.csv", index=False)
    (tmp_path / "typo.toml").write_text('[data]\nrows="rows.csv"\n[train]\nepocs = 3\n')
    (tmp_path / "sections.toml").write_text('[dta]\nrows="rows.csv"\n')
    (tmp_path / "broken.toml").write_text("[data\n")
    (tmp_path / "norows.toml").write_text("[train]\nepochs = 3\n")
    all_of_it = ["rows.csv", "--bag", "ward", "--proportions", "wards.csv"]
    arguments = [*all_of_it, *arguments[1:]] if arguments[:1] == ["ALL"] else arguments
    result = run("train", *arguments)
    assert result.exit_code == 1, result.output
    assert problem in result.stderr
    assert remedy in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "runs").exists()


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
        assert {"columns.json", "model.safetensors"} <= {path.name for path in folder.iterdir()}


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
    assert "a.replaced holds a run" in result.stderr
    assert (tmp_path / "a" / "model.safetensors").exists()
    assert (tmp_path / "a.replaced" / "thesis.txt").exists()


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


def test_a_preset_goes_over_a_whole_configuration(trained, tmp_path):
    options = ["--preset", "paper", "--epochs", 1, "--threads", 1, "--device", "cpu"]
    result = run("train", trained / "a" / "config.toml", *options, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    train = config_of(tmp_path / "a")["train"]
    wanted = TrainConfig.preset("paper", epochs=1, threads=1, device="cpu")
    assert TrainConfig.from_dict(train) == wanted


def test_whole_numbers_may_name_bags_and_classes(tmp_path):
    """In Parquet as numbers, in CSV as texts, counted from labels as numbers again."""
    frame = voters().replace({"vote": {"no": 0, "yes": 1}})
    files = write(tmp_path, frame)
    frame.to_parquet(tmp_path / "rows.parquet")
    table = pd.read_csv(tmp_path / "wards.csv").assign(population=9)
    table.to_csv(tmp_path / "more.csv", index=False)
    rows, bag = tmp_path / "rows.parquet", ["--bag", "ward"]
    given = ["--proportions", tmp_path / "more.csv", "--classes", "0,1", "--exclude", "id,vote"]
    result = run("train", rows, *bag, *given, *QUICK[2:], "--out", tmp_path / "wide")
    assert result.exit_code == 0, result.output
    result = run("train", rows, *bag, "--label", "vote", *QUICK, "--out", tmp_path / "counted")
    assert result.exit_code == 0, result.output
    for name in ("wide", "counted"):
        known = ["--proportions", files[-1], "--label", "vote", "--out", tmp_path / f"{name}.csv"]
        result = run("predict", tmp_path / name, rows, *known)
        assert result.exit_code == 0, result.output
        found = pd.read_csv(tmp_path / f"{name}.csv")
        counts = pd.crosstab(frame["ward"], found["label"])
        np.testing.assert_array_equal(counts, pd.crosstab(frame["ward"], frame["vote"]))


def test_test_bags_need_no_labels(tmp_path):
    files = write(tmp_path, split=lambda ward: "test" if ward < 5 else "train")
    result = run("train", *files, *QUICK, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    assert "test_error" in records(tmp_path / "a")[-1]


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("format = 1", "format = 2", "another format"),
        ('kind = "table"', 'kind = "tabel"', "kind 'tabel'"),
        ("accumulate = true", 'accumulate = "yes"', "true or false"),
        ("epochs = 3", 'epochs = "3"', "epochs is '3'"),
        ('net = "mlp"', 'net = "mlp"\nhiden = [3]', "Did you mean 'hidden'?"),
        ("[train]", "rows = 3\n[train]", "outside of a section"),
    ],
)
def test_hand_edits_that_make_no_sense_are_named(trained, tmp_path, before, after, problem):
    text = (trained / "a" / "config.toml").read_text()
    assert before in text
    (tmp_path / "mine.toml").write_text(text.replace(before, after))
    result = run("train", tmp_path / "mine.toml", "--out", tmp_path / "b")
    assert result.exit_code == 1
    assert problem in result.stderr
    assert not (tmp_path / "b").exists()


def test_a_library_run_cannot_be_resumed_here(tmp_path):
    from apportion import Bags, fit
    from apportion.nets import build

    bags = Bags.from_rows(np.eye(4), [0, 0, 1, 1], labels=list("abab"))
    config = TrainConfig(epochs=1, device="cpu", threads=1)
    fit(build("mlp", bags), bags, config=config, run=tmp_path)
    result = run("train", "--resume", tmp_path)
    assert result.exit_code == 1
    assert "was not started by apportion train" in result.stderr
