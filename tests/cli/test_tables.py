"""`apportion train` on tables: auto by default, linear models by name, and all that follows."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from apportion import LLPClassifier, Model
from apportion.labels.linear import LINEAR_FITS
from apportion.report.advice import notices
from apportion.report.answers import answers
from apportion.report.read import read_run
from tests.cli.wards_on_disk import QUICK, config_of, records, run, train_in, voters, write

OWN = ["--exclude", "id", "--threads", "1", "--device", "cpu"]


def said_of(run_read):
    return " ".join(" ".join(own.sentences) for own in answers(run_read))


@pytest.fixture
def table(tmp_path, steps):
    steps(30)
    return [*write(tmp_path), *OWN]


def ended(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def test_without_an_option_auto_is_trained_as_the_estimator_does(table, tmp_path):
    told = ended("train", *table, "--out", tmp_path / "a").stdout
    assert "An average of nets was trained: bags that a net did not see are predicted with" in told
    config, log = config_of(tmp_path / "a"), records(tmp_path / "a")
    assert config["method"] == {"name": "auto"}
    assert "auto (the default for tables)" in config["plan"]["method"]
    assert "epochs" not in config["train"]
    assert len(log) == config["resolved"]["nets"] == 12
    assert [record["epoch"] for record in log] == [*range(1, 13)]
    assert log[-1]["skill"] > 0.5

    frame = voters()
    X = frame[["age", "job"]]
    counts = pd.crosstab(frame["ward"], frame["vote"])
    direct = LLPClassifier(random_state=0, device="cpu")
    direct.fit(X, bags=frame["ward"], proportions=counts.div(counts.sum(axis=1), axis=0))
    loaded = LLPClassifier.load(tmp_path / "a", device="cpu")
    np.testing.assert_allclose(loaded.predict_proba(X), direct.predict_proba(X), atol=1e-5)
    assert np.mean(loaded.predict(X) == frame["vote"]) > 0.85

    ended("predict", tmp_path / "a", table[0], "--out", tmp_path / "p.csv")
    found = pd.read_csv(tmp_path / "p.csv")
    np.testing.assert_allclose(found["probability_yes"], direct.predict_proba(X)[:, 1], atol=1e-5)


@pytest.mark.parametrize("method", LINEAR_FITS)
def test_linear_models_are_trained_by_name(table, tmp_path, method):
    told = ended("train", *table, "--method", method, "--out", tmp_path / "a").stdout
    assert "A linear model was trained. Proportion error: training 0.0" in told
    (record,) = records(tmp_path / "a")
    assert record["member"] == method
    model = Model.load(tmp_path / "a", device="cpu")
    frame = voters()
    assert np.mean(model.predict(frame[["age", "job"]]) == frame["vote"]) > 0.85
    run_read = read_run(tmp_path / "a", "a")
    assert "linear model" in said_of(run_read)


def test_an_option_of_one_net_trains_one_net(tmp_path):
    train_in(tmp_path)
    assert config_of(tmp_path / "a")["method"]["name"] == "count-likelihood"
    assert "which epochs asks for" in config_of(tmp_path / "a")["plan"]["method"]


def test_a_stop_is_continued_to_the_same_bits(table, tmp_path, monkeypatch):
    from apportion.cli import terminal

    ended("train", *table, "--out", tmp_path / "whole")

    def stop(interruption):
        if len(records(tmp_path / "a")) == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(terminal.Interruption, "after_epoch", stop)
        result = run("train", *table, "--out", tmp_path / "a")
    assert result.exit_code == 130
    assert "Stopped after 4 of 12 nets. To go on:" in result.stderr
    unfinished = read_run(tmp_path / "a", "a")
    assert not unfinished.is_finished
    assert "Not finished: 4 of 12 nets." in str(notices(unfinished))
    told = run("predict", tmp_path / "a", table[0])
    assert "4 of 12 nets are done" in told.stderr
    assert "--last" not in told.stderr
    assert "averages 12 nets" in run("predict", tmp_path / "a", table[0], "--last").stderr
    more = run("train", "--resume", tmp_path / "a", "--epochs", 9)
    assert "trains nets of a table" in more.stderr

    ended("train", "--resume", tmp_path / "a")
    for name in ("model.safetensors", "evaluation.safetensors", "checkpoint.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert "is finished: 12 nets" in run("train", "--resume", tmp_path / "a").stdout


def test_configurations_lead_from_one_net_to_auto_and_back(table, tmp_path):
    train_in(tmp_path, "--method", "fpl")
    changed = ["train", tmp_path / "a" / "config.toml", "--method", "auto"]
    ended(*changed, "--out", tmp_path / "b")
    assert config_of(tmp_path / "b")["method"] == {"name": "auto"}
    back = ["train", tmp_path / "b" / "config.toml", "--method", "fpl", "--epochs", 2]
    ended(*back, "--out", tmp_path / "c")
    assert config_of(tmp_path / "c")["train"]["epochs"] == 2


@pytest.mark.parametrize("method", ["auto", "ridge"])
def test_held_out_bags_are_only_reported(table, tmp_path, method):
    own = ["train", *table, "--method", method]
    ended(*own, "--validation", 0.2, "--out", tmp_path / "a")
    last = records(tmp_path / "a")[-1]
    assert 0 < last["valid_error"] < 0.3
    assert "only reported" in config_of(tmp_path / "a")["plan"]["validation"]
    files = write(tmp_path, split=lambda ward: "test" if ward < 5 else "train")
    ended("train", *files, *OWN, "--method", method, "--out", tmp_path / "b")
    assert 0 < records(tmp_path / "b")[-1]["test_error"] < 0.3


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            ["--method", "auto", "--eta", "2"],
            "eta is 2.0, which has no meaning for the method 'auto'",
        ),
        (["--method", "linear", "--device", "nowhere"], "nowhere"),
        (["--method", "auto", "--validation", "2"], "validation must be"),
        (["--method", "auto", "--epochs", "9"], "epochs is 9, which has no meaning"),
        (["--method", "ridge", "--net", "mlp"], "net is 'mlp', which has no meaning"),
        (["--method", "auto", "--preset", "paper"], "preset is 'paper', which has no meaning"),
        (["--method", "atuo"], "there is no method 'atuo'"),
    ],
)
def test_mistakes_are_named(table, tmp_path, options, problem):
    result = run("train", *table, *options, "--out", tmp_path / "a")
    assert result.exit_code == 1
    assert problem in result.stderr
    assert not (tmp_path / "a").exists()


def test_the_report_tells_why_and_what_to_expect(table, tmp_path):
    ended("train", *table, "--out", tmp_path / "a")
    read = read_run(tmp_path / "a", "a")
    said, plan = said_of(read), read.config["plan"]
    assert "times as much as by chance, in 20 bags: 4 nets of each kind" in plan["net"]
    assert re.search(r"had not seen: there they remove about \d+% of the error .*of new bags", said)
    ended("train", *table[:-4], *QUICK[2:], "--method", "fpl", "--out", tmp_path / "b")
    ended("report", tmp_path / "a")
    page = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    assert "linear start, without fold 4" in page
    assert "Learning curves" not in page
    ended("report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both.html")
    both = (tmp_path / "both.html").read_text(encoding="utf-8")
    assert "12 nets" in both
    assert "3 epochs" in both
    assert "Learning curves" in both


def test_bags_that_teach_nothing_are_told(tmp_path, steps):
    steps(20)
    frame = voters()
    rng = np.random.default_rng(0)
    frame["age"], frame["job"] = rng.normal(size=400).round(3), "cook"
    ended("train", *write(tmp_path, frame), *OWN, "--out", tmp_path / "a")
    told = " ".join(text for text, _ in notices(read_run(tmp_path / "a", "a")))
    assert "perhaps nothing can be learned" in told


def test_check_tells_what_auto_would_do(tmp_path):
    told = ended("check", *write(tmp_path), "--exclude", "id").stdout
    assert "average of 12 nets (proportions differ" in told
    assert "auto (the default for tables)" in told


@pytest.mark.parametrize("method", ["auto", "ridge", "fpl"])
def test_a_run_is_loaded_with_the_method_that_it_was_trained_by(table, tmp_path, method):
    more = ["--epochs", 2] if method == "fpl" else []
    own = ["--method", method, "--validation", 0.2, *more]
    ended("train", *table, *own, "--out", tmp_path / "a")
    loaded = LLPClassifier.load(tmp_path / "a", device="cpu")
    name = loaded.method if isinstance(loaded.method, str) else "fpl"
    assert name == method
    assert loaded.model == ("mlp" if method == "fpl" else None)
    assert (loaded.history_.best_epoch is None) == (method != "fpl")
    frame = voters()
    counts = pd.crosstab(frame["ward"], frame["vote"])
    shares = counts.div(counts.sum(axis=1), axis=0)
    again = clone(loaded).fit(frame[["age", "job"]], bags=frame["ward"], proportions=shares)
    assert again.plan_.method.value.lower() == method
