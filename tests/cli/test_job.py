"""What `apportion train` is told, by flags and by TOML, and what becomes of it."""

import re

import numpy as np
import pandas as pd
import pytest

from apportion import METHODS, ApportionError, ConfigError, LLPClassifier, Run, TrainConfig
from apportion.auto.members import TABLE_METHODS
from apportion.cli.job import Learning, TrainJob
from apportion.cli.source import Source
from apportion.config import help_texts
from apportion.estimator.learning import method_for
from apportion.nets.build import NETS
from apportion.runs.evaluation import read_evaluations
from apportion.runs.run import FORMAT_VERSION
from tests.cli.wards_on_disk import (
    QUICK,
    config_of,
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
    assert config["method"] == {"name": "count-likelihood", "ramp": 0.5}
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
    assert config["method"]["name"] == "proportion-loss"
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
    _, evaluations = read_evaluations(Run(tmp_path / "a"))
    assert (len(evaluations["valid"].ids) if "valid" in evaluations else None) == held_out
    assert config_of(tmp_path / "a")["model"]["validation"] == share


def test_two_ways_of_holding_out_are_one_too_many(tmp_path):
    files = write(tmp_path, split=lambda ward: "valid" if ward < 5 else "train")
    result = run("train", *files, *QUICK, "--validation", 0.3, "--out", tmp_path / "a")
    assert result.exit_code == 1
    assert "column 'split'" in result.stderr
    assert run("train", *files, *QUICK, "--out", tmp_path / "a").exit_code == 0
    assert "validation" not in config_of(tmp_path / "a")["model"]


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (["nowhere.csv"], "nowhere.csv does not exist", "rows.csv"),
        (["rows.csv", "--bag", "wrad"], "no column 'wrad'", "Did you mean 'ward'?"),
        (["rows.csv"], "no column 'bag'", "Known: ward"),
        (["rows.csv", "--bag", "ward"], "neither proportions nor labels", "--proportions"),
        (["nowhere.toml"], "nowhere.toml does not exist", ".toml"),
        (["typo.toml"], "'epocs'", "Did you mean 'epochs'?"),
        (["sections.toml"], "section 'dta'", "Did you mean 'data'?"),
        (["broken.toml"], "is not valid TOML", "Correct it"),
        (["norows.toml"], "[data] has no rows", "rows ="),
        (["ALL", "--method", "flp"], "no method 'flp'", "Did you mean 'fpl'?"),
        (["ALL", "--method", "proportion-loss", "--eta", "1"], "no setting 'eta'", "form"),
        (["ALL", "--net", "mpl"], "no net 'mpl'", "Did you mean 'mlp'?"),
        (["ALL", "--epochs", "0"], "epochs must be an integer ≥ 1", "got 0"),
        (["ALL", "--validation", "1.5"], "validation must be", "from 0 to below 1"),
        (["ALL", "--preset", "papre"], "no preset 'papre'", "Did you mean 'paper'?"),
        (["ALL", "--exclude", "idd"], "no column 'idd'", "Did you mean 'id'?"),
        (["ALL", "--size", "8x8"], "size is given, but no images", "Pass --images"),
        (["ALL", "--resume", "runs/a"], "--resume goes on", "Leave it out"),
        (["--resume", "."], "is not a run folder", "apportion train"),
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
        (f"format = {FORMAT_VERSION}", "format = 1", "another format"),
        ('kind = "table"', 'kind = "tabel"', "kind 'tabel'"),
        ("ramp = 0.5", "ramp = -1", "ramp must be"),
        ("epochs = 3", 'epochs = "3"', "epochs must be an integer ≥ 1; got '3'"),
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


def test_several_processes_are_told_before_images_are_read_that_one_pretrains(monkeypatch):
    monkeypatch.setattr("apportion.training.pretrained.is_one_of_many", lambda: True)
    source = Source("nope.csv", images="nowhere", bag="ward", proportions="wards.csv")
    with pytest.raises(ConfigError, match="which several processes would share"):
        TrainJob(source, train={"preset": "strong"}).prepare()
    with pytest.raises(ApportionError, match="does not exist"):
        TrainJob(source, train={"preset": "strong"}).prepare(begun=True)


@pytest.mark.parametrize(
    ("train", "method", "name"),
    [
        ({"preset": "strong"}, {"eta": 2.0}, "strong"),
        ({"preset": "paper"}, {"eta": 2.0}, "fpl"),
        ({}, {"eta": 2.0}, "fpl"),
        ({}, {}, "fpl"),
    ],
)
def test_settings_without_a_name_are_those_of_the_method_that_the_estimator_takes(
    train, method, name
):
    job = TrainJob(Source("files.csv", images="images"), train=train, method=method)
    assert job._method().value == name
    estimator = LLPClassifier(preset=train.get("preset"), eta=method.get("eta"))
    assert method_for(estimator, "images").value == name


@pytest.mark.parametrize(
    ("option", "names"), [("net", NETS), ("method", [*METHODS, *TABLE_METHODS])]
)
def test_the_help_knows_every_name(option, names):
    known = re.split(r"[^\w-]+", help_texts(Learning)[option])
    assert set(names) <= set(known)
