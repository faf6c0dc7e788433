"""Where reports are written, what is refused, and that a run's files are enough."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from apportion import Bags, TrainConfig, fit
from apportion.data.encoding import encode, learn_columns
from apportion.engine.device import own_threads
from apportion.errors import ApportionError, RunError
from apportion.nets.build import build_net
from apportion.report.build import write_report
from apportion.runs.evaluation import read_evaluations
from apportion.runs.run import FORMAT_VERSION, Run
from tests.report.made_runs import made_evaluation, made_run
from tests.report.reading_pages import read_page, section


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that `fit` has written, of bags with names and a truth."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=240)
    x = rng.normal(size=(240, 1, 6, 6)).astype(np.float32) + truth[:, None, None, None]
    wards = np.array([f"ward {n}" for n in range(24)])[rng.permutation(np.repeat(range(24), 10))]
    labels = np.array(["none", "mild", "severe"])[truth]
    bags = Bags.from_rows(x, wards, truth=labels)
    train, valid, _ = bags.split(0.25, seed=0)
    folder = tmp_path_factory.mktemp("runs") / "trained"
    with own_threads(1):
        fit(build_net("mlp", train, seed=0), train, valid, config=TrainConfig(epochs=4), run=folder)
    return folder


def test_a_run_of_fit_is_all_that_a_report_needs(trained, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("config.toml", "log.jsonl", "evaluation.safetensors"):  # no model, no checkpoint
        shutil.copy(trained / name, copy / name)
    page = read_page(write_report([copy]))
    _, evaluations = read_evaluations(Run(trained))
    confusion = evaluations["valid"].confusion
    assert confusion is not None
    share = np.trace(confusion) / confusion.sum()
    assert f"{share:.1%} on the validation bags" in page.one("header").text
    assert len(section(page, "unsure").one("table").rows()) == 1 + 24
    assert not list(page.all("img"))


def test_the_file_goes_into_the_folder_of_a_single_run(trained, tmp_path, monkeypatch):
    run, other = (tmp_path / name for name in ("a", "b"))
    for folder in (run, other):
        shutil.copytree(trained, folder)
    assert write_report([run]) == run / "report.html"
    monkeypatch.chdir(tmp_path)
    assert write_report([run, other]).resolve() == tmp_path / "report.html"
    assert write_report([str(run)], tmp_path / "new" / "page.html").exists()
    assert not list(tmp_path.rglob("*.new"))


def test_a_file_that_is_there_is_replaced_only_by_force(trained, tmp_path):
    out = tmp_path / "page.html"
    out.write_text("mine")
    with pytest.raises(RunError, match=r"page\.html already exists.\n.*force=True"):
        write_report([trained], out)
    assert out.read_text() == "mine"
    write_report([trained], out, force=True)
    assert "<html" in out.read_text()
    with pytest.raises(RunError, match="is a folder"):
        write_report([trained], tmp_path)


def test_a_failure_leaves_the_old_file(trained, tmp_path, monkeypatch):
    out = tmp_path / "page.html"
    out.write_text("mine")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(RunError, match=r"No space left.*\n.*out="):
        write_report([trained], out, force=True)
    assert out.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_same_run_gives_the_same_bytes(trained, tmp_path):
    date = datetime(2026, 2, 3, 4, 5, tzinfo=UTC)
    one, two = (write_report([trained], tmp_path / f"{n}.html", date=date) for n in "12")
    assert one.read_bytes() == two.read_bytes()
    assert "on 2026-02-03 04:05 UTC" in read_page(one).one("footer").text


def test_dates_are_those_of_the_log(tmp_path):
    run = made_run(tmp_path / "a", epochs=3)
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    for minute, record in enumerate(records):
        record |= {"at": 1_700_000_000 + 60 * minute, "seconds": {"train": 61.0}}
    (run / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    told = read_page(write_report([run])).one("header").text
    assert "from 2023-11-14 22:12 UTC to 2023-11-14 22:15 UTC" in told


def test_a_page_has_no_absolute_path(tmp_path, monkeypatch):
    """Nor has one of several runs, of the same name, from anywhere."""
    data = {
        "kind": "images",
        "rows": str(tmp_path / "secret" / "rows.csv"),
        "images": "/home/annika/slides",
        "proportions": "C:\\Users\\annika\\wards.csv",
    }
    evaluation = made_evaluation(6, 3)
    runs = [
        made_run(tmp_path / parent / "a", {"train": evaluation}, seed=n,
                 about={"data": {**data, "rows": str(tmp_path / parent / "rows.csv")}})
        for n, parent in enumerate(("x", "y"))
    ]  # fmt: skip
    unfinished = made_run(tmp_path / "b", about={"data": data}, epochs_wanted=99)
    for here in ("/", tmp_path, tmp_path / "x"):
        monkeypatch.chdir(here)
        for chosen in (runs[:1], runs, [unfinished]):
            text = write_report(chosen, tmp_path / "page.html", force=True).read_text()
            for path in (str(tmp_path), "/home", "annika", "secret"):
                assert path not in text, (here, path)
            assert "rows.csv" in text
            assert "wards.csv" in text
    monkeypatch.chdir(tmp_path)
    text = write_report(runs[:1], tmp_path / "page.html", force=True).read_text()
    assert "apportion report x/a --force" in text


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda run: shutil.rmtree(run), "does not exist"),
        (lambda run: (run / "config.toml").unlink(), "has no config.toml"),
        (lambda run: (run / "config.toml").write_text("a ="), "is not valid TOML"),
        (lambda run: (run / "config.toml").write_text("a = 1"), "not the configuration of a run"),
        (lambda run: (run / "log.jsonl").unlink(), "nothing to report yet"),
        (lambda run: (run / "log.jsonl").write_text(""), "nothing to report yet"),
        (lambda run: (run / "log.jsonl").write_text("{\n"), "is damaged"),
        (lambda run: (run / "model.safetensors").write_text("x"), "damaged or cut short"),
        (lambda run: (run / "evaluation.safetensors").write_text("x"), "damaged or cut short"),
    ],
)
def test_what_is_no_run_is_named_with_a_remedy(tmp_path, spoil, problem):
    run = made_run(tmp_path / "a", {"train": made_evaluation(3, 2)})
    spoil(run)
    with pytest.raises(ApportionError, match=problem) as caught:
        write_report([run], tmp_path / "page.html")
    assert isinstance(caught.value, RunError)
    told, *remedy = str(caught.value).split("\n")
    assert str(run) in told
    assert remedy
    assert not (tmp_path / "page.html").exists()


def test_a_newer_format_is_refused(tmp_path):
    run = made_run(tmp_path / "a")
    config = run / "config.toml"
    config.write_text(config.read_text().replace(f"format = {FORMAT_VERSION}", "format = 99"))
    with pytest.raises(RunError, match="is of format version 99; this apportion reads"):
        write_report([run])


def test_no_runs_are_an_error(tmp_path):
    with pytest.raises(RunError, match="Pass a list"):
        write_report([])
    with pytest.raises(RunError, match="Pass a list"):
        write_report(str(tmp_path))  # a text is a sequence, too


def test_the_last_line_of_a_log_may_be_unfinished(tmp_path):
    run = made_run(tmp_path / "a", epochs=5, epochs_wanted=9)
    with (run / "log.jsonl").open("a") as log:
        log.write('{"epoch": 6, "lo')
    assert "5 of 9 epochs" in read_page(write_report([run])).one("header").text


def test_numbers_that_are_missing_or_not_finite_are_left_out(tmp_path):
    run = made_run(tmp_path / "a", {"train": made_evaluation(3, 2)}, validated=False, epochs=5)
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    del records[1]["changed"]
    records[2]["regret"] = float("nan")
    (run / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    text = write_report([run]).read_text()
    assert "nan" not in text.lower().replace("finance", "")


def test_a_long_run_of_many_bags_stays_small_and_quick(tmp_path):
    evaluations = {"train": made_evaluation(1600, 10), "valid": made_evaluation(400, 10, seed=1)}
    run = made_run(tmp_path / "a", evaluations, epochs=400)
    began = time.perf_counter()
    page = write_report([run])
    assert (
        time.perf_counter() - began < 15
    )  # about a second, on a machine that has nothing else to do
    assert page.stat().st_size < 3_000_000
    assert "16,000 points of 1,600 bags" in page.read_text()


ALONE = """
import sys
from apportion.report.build import write_report
print(write_report(sys.argv[1:]))
heavy = {"torch", "numba", "pandas", "pyarrow", "scipy", "sklearn", "matplotlib.pyplot"}
print(heavy & sys.modules.keys())
"""


def test_a_report_loads_neither_torch_nor_numba_nor_pandas(tmp_path):
    """Of a run of a table that was really trained, in a process of its own."""
    frame = pd.DataFrame({"age": np.arange(40.0), "job": ["cook", "nurse"] * 20})
    columns = learn_columns(frame)
    bags = Bags.from_rows(encode(columns, frame), np.repeat(range(8), 5), truth=["no", "yes"] * 20)
    bags = replace(bags, columns=columns)
    with own_threads(1):
        net = build_net("mlp", bags, categories=columns.codes)
        fit(net, bags, config=TrainConfig(epochs=2, device="cpu"), run=tmp_path)
    source = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-c", ALONE, str(tmp_path)]
    told = subprocess.run(command, env=source, capture_output=True, text=True, check=True).stdout
    assert told == f"{tmp_path / 'report.html'}\nset()\n"
    page = read_page(tmp_path / "report.html")
    assert "Network: mlp (" in page.one("header").text
    assert "It learned from 2 columns: age and job" in page.one("header").text
    drawn = section(page, "columns").one("svg", class_="chart")
    assert {"age", "job"} <= {text.text for text in drawn.all("text")}
    assert "cook" not in page.text  # what is in the table is not in the page
    assert "nurse" not in page.text
    write_report([tmp_path], force=True, instances={"train": bags})
    header, *rows = section(read_page(tmp_path / "report.html"), "unsure").one("table").rows()
    assert header[5:] == ["age", "job"]
    for row in rows:
        at = int(row[0])
        assert row[5:] == [str(at), frame["job"][at]]


def test_a_plan_is_listed_with_its_reasons(tmp_path):
    plan = {"net": "mlp (a table)", "batch_size": "32 (<100 rows & few bags)"}
    with_plan = made_run(tmp_path / "a", about={"plan": plan})
    table = section(read_page(write_report([with_plan])), "plan").one("table")
    named = {option.replace("_", " "): value for option, value in plan.items()}
    assert table.rows()[1:] == [[option, value] for option, value in named.items()]
    without = made_run(tmp_path / "b")
    found = section(read_page(write_report([without])), "plan")
    assert not list(found.all("table"))
    both = read_page(write_report([with_plan, without], tmp_path / "both.html"))
    assert len(list(section(both, "plan").all("table"))) == 1


def test_the_plan_comes_before_the_results(trained, tmp_path):
    """Also of a run of `fit`, which says what it was given and what it decided."""
    page = read_page(write_report([trained], tmp_path / "page.html"))
    names = [own.attributes["aria-labelledby"] for own in page.one("main").all("section")]
    assert names.index("plan") == 0
    rows = dict(section(page, "plan").one("table").rows()[1:])
    assert rows["epochs"] == "4 (given to fit)"
    assert rows["validation"] == "6 bags, given to fit, select the epoch"
    assert rows["net"] == "mlp (given to fit)"
