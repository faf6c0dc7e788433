"""Running cells: what is trained, what is recorded, and what is started in time."""

import os
import signal
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from apportion import FPL, TrainConfig, fit
from apportion.cli.app import app
from apportion.errors import ConfigError, DataError
from apportion.methods.registry import describe
from apportion.runs.run import Run
from apportion.study.datasets.benchmarks import cifar10
from apportion.study.reproduce import running
from apportion.study.reproduce.paper import Cell, Paper
from apportion.study.reproduce.running import run
from apportion.study.reproduce.schedule import time_together
from apportion.training.history import History
from apportion.training.many import fit_many
from apportion.training.session import Session
from tests.study.reproduce.small import line_of, small_data, small_paper


def test_a_cell_is_trained_with_the_papers_preset_and_recorded(tmp_path):
    paper, data = small_paper(tmp_path / "p"), small_data(tmp_path / "data")
    cell = Cell("cifar10", "fpl", 8, 3, 2)
    assert run(paper, [cell], data=data, device="cpu", commit="abc") == [cell]
    line = paper.results()[cell]
    net, (train, valid, test) = running._problem(paper, lambda _: cifar10(data), "cifar10", 8)
    assert train.n_instances == valid.n_instances == 16
    history = fit(
        net(3),
        train,
        valid,
        test,
        config=TrainConfig.preset("paper", epochs=2, seed=3, device="cpu"),
    )
    best = history.records[(history.best_epoch or 0) - 1]
    assert line["best_epoch"] == best["epoch"]
    assert line["selected"] == round(100 * best["test_accuracy"], 2)
    assert line["last"] == round(100 * history["test_accuracy"][-1], 2)
    assert line["commit"] == "abc"
    assert line["versions"]["torch"] == torch.__version__
    assert line["together"] == 1
    assert line["seconds"] > line["share"] > 0
    curves = paper.curves()[cell]
    assert curves["changed"] == [round(value, 4) for value in history["changed"]]
    assert curves["valid_error"] == [round(value, 4) for value in history["valid_error"]]


def test_nets_differ_by_their_seed_and_leave_the_callers_numbers_alone(tmp_path):
    paper, data = small_paper(tmp_path / "p"), small_data(tmp_path / "data")
    state = torch.get_rng_state()
    net, _ = running._problem(paper, lambda _: cifar10(data), "cifar10", 4)
    weights = [net(seed).state_dict()["network.fc.weight"] for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_missing_is_named(tmp_path):
    paper = small_paper(tmp_path / "p")
    with pytest.raises(DataError, match=r"data_batch_1\.bin is missing"):
        run(paper, paper.cells(), data=tmp_path, device="cpu")
    with pytest.raises(ConfigError, match=r"(?s)no dataset 'cifar'.*cifar10"):
        run(paper, [Cell("cifar", "fpl", 8, 0, 2)], data=tmp_path, device="cpu")
    with pytest.raises(ConfigError, match="no method 'fpll'"):
        run(paper, [Cell("cifar10", "fpll", 8, 0, 2)], data=tmp_path, device="cpu")
    with pytest.raises(DataError, match=r"no bags of size 16"):
        run(
            paper, [Cell("cifar10", "fpl", 16, 0, 2)], data=small_data(tmp_path / "d"), device="cpu"
        )
    assert paper.results() == {}


def test_cells_of_one_dataset_share_what_was_read(tmp_path):
    paper, data = small_paper(tmp_path / "p"), cifar10(small_data(tmp_path / "data"))
    one, other = (running._problem(paper, lambda _: data, "cifar10", size)[1] for size in (4, 8))
    assert one[0].x is other[1].x
    assert one[2].x is other[2].x


def test_what_another_process_has_recorded_is_not_run_again(tmp_path, monkeypatch):
    paper, cell = small_paper(tmp_path / "p"), Cell("cifar10", "fpl", 8, 0, 2)
    paper.add(line_of("fpl", 8), {})
    monkeypatch.setattr(running, "fit_many", lambda *_, **__: pytest.fail("it was run"))
    assert run(paper, [cell], data=tmp_path, device="cpu") == []


def test_a_cell_that_fails_keeps_no_other_from_being_run(tmp_path, monkeypatch, caplog):
    paper, data = small_paper(tmp_path / "p"), small_data(tmp_path / "data")
    cells = [Cell("cifar10", "fpl", 4, 0, 2), Cell("cifar10", "fpl", 8, 0, 2)]
    tried = []

    def first_fails(jobs, at_once):
        tried.append(len(jobs))
        if len(tried) == 1:
            raise ExceptionGroup("1 of 1 jobs failed", [ValueError("it diverged")])
        return fit_many(jobs, at_once=at_once)

    monkeypatch.setattr(running, "fit_many", first_fails)
    assert run(paper, cells, data=data, device="cpu") == cells[1:]
    assert list(paper.results()) == cells[1:]
    assert "it diverged" in caplog.text


# ------------------------------------------------------------------------------------ run folders


KILLED = """
import os, signal, sys
from apportion.cli.app import app
from apportion.training.session import Session

evaluate = Session.evaluate

def last_thing(session):
    if len(session.history.records) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluate(session)

Session.evaluate = last_thing
app(sys.argv[1:])
"""


def without_times(line):
    return {name: line[name] for name in line if name not in ("seconds", "share")}


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there is no kill -9")
def test_a_cell_that_was_killed_goes_on_from_its_checkpoint(tmp_path, monkeypatch, request):
    """It dies at the end of its fourth epoch, after the checkpoint of the third."""
    papers, data = [small_paper(tmp_path / name) for name in "pq"], small_data(tmp_path / "data")
    cell = Cell("cifar10", "fpl", 8, 0, 6)
    trained: list[int] = []
    train = Session.train_epoch

    def watched(session, epoch):
        trained.append(epoch)
        return train(session, epoch)

    def command(paper):
        where = ["--only", "method=fpl,bag_size=8,seed=0", "--epochs", "6", "--commit", "abc"]
        return ["reproduce", str(paper.folder), "--data", str(data), "--device", "cpu", *where]

    source = {"PYTHONPATH": str(request.config.rootpath / "src")}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *command(papers[0])], env={**os.environ, **source}
    )
    assert killed.returncode == -signal.SIGKILL
    assert papers[0].results() == {}
    assert [path.name for path in (papers[0].folder / "runs").iterdir()] == [cell.name]

    monkeypatch.setattr(Session, "train_epoch", watched)
    for paper, epochs in zip(papers, (range(4, 7), range(1, 7)), strict=True):
        trained.clear()
        assert CliRunner().invoke(app, command(paper)).exit_code == 0
        assert trained == list(epochs)
        assert list((paper.folder / "runs").iterdir()) == []
    ours, theirs = (paper.results()[cell] for paper in papers)
    assert without_times(ours) == without_times(theirs)
    assert papers[0].curves() == papers[1].curves()
    assert papers[0].curves()[cell].keys() >= {"loss", "changed", "test_accuracy"}


def test_a_cell_whose_training_had_ended_is_only_recorded(tmp_path, monkeypatch):
    paper, data = small_paper(tmp_path / "p"), small_data(tmp_path / "data")
    cell, runs = Cell("cifar10", "fpl", 8, 0, 2), tmp_path / "runs"
    add = paper.add
    monkeypatch.setattr(paper, "add", lambda *_: 1 / 0)
    assert run(paper, [cell], data=data, runs=runs, device="cpu") == []
    monkeypatch.setattr(paper, "add", add)
    monkeypatch.setattr(Session, "train_epoch", lambda *_: pytest.fail("it was trained again"))
    assert run(paper, [cell], data=data, runs=runs, device="cpu") == [cell]
    line = paper.results()[cell]
    assert line["share"] > 0
    assert line["seconds"] >= line["share"]
    assert list(runs.iterdir()) == []


def test_a_folder_that_stands_beside_its_line_is_removed(tmp_path):
    paper, cell = small_paper(tmp_path / "p"), Cell("cifar10", "fpl", 8, 0, 2)
    paper.add(line_of("fpl", 8), {})
    for name in (cell.name, "thesis"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert run(paper, [], runs=tmp_path / "runs", device="cpu") == []
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["thesis"]


def test_cells_have_folders_of_their_own_with_readable_names(tmp_path):
    cells = small_paper(tmp_path / "p").cells([0, 1])
    assert len({cell.name for cell in cells}) == len(cells)
    assert Cell("svhn", "llp-vat", 64, 2, 400).name == "svhn-llp-vat-64-seed-2-epochs-400"


def job_of(paper, cell, beside, monkeypatch, now):
    """The job of a cell, whose line is recorded without a training, at times of our own."""
    monkeypatch.setattr("apportion.study.reproduce.running.time.monotonic", lambda: now[0])
    data = small_data(paper.folder / "data")
    problem = running._problem(paper, lambda _: cifar10(data), "cifar10", cell.bag_size)
    folder, about = (
        paper.folder / "runs" / cell.name,
        {"hardware": "", "versions": {}, "commit": ""},
    )
    folder.mkdir(parents=True)
    return running._job(paper, cell, problem, folder, "cpu", about, beside, None)


def test_a_method_with_settings_of_the_table_is_trained_by_them(tmp_path, monkeypatch):
    paper = small_paper(tmp_path / "p")
    file = paper.folder / "table.toml"
    own = '\nown = ["decided"]\n[settings]\ndecided = { name = "greedy", first = "decide" }\n'
    file.write_text(file.read_text().replace("\n[paper]", f"{own}\n[paper]"))
    paper = Paper(paper.folder)
    cells = {cell.method: cell for cell in paper.cells() if cell.bag_size == 8}
    job = job_of(paper, cells["decided"], {cells["decided"]}, monkeypatch, [0.0])
    assert describe(job.method) == describe(FPL(eta=0, first="decide"))
    assert paper.settings_of(cells["fpl"]) == {"name": "fpl"}
    file.write_text(file.read_text().replace("first =", "fist ="))
    with pytest.raises(ConfigError, match="'greedy' has no setting 'fist'"):
        run(Paper(paper.folder), [cells["decided"]], data=tmp_path / "nowhere")


def records(n, seconds):
    common = {"valid_error": 0.5, "test_accuracy": 0.5, "loss": 1.0}
    return [{"epoch": i, "seconds": {"train": seconds}, **common} for i in range(1, n + 1)]


@pytest.mark.parametrize(
    ("first", "took", "share"),
    [
        (1, 60 + 9 * 5, 9 * 5 / 2),  # from its first epoch: that one took a minute
        (7, 6 * 4 + 60 + 3 * 5, 9 * 5 / 2),  # went on after six of four seconds each
        (10, 9 * 4 + 60, 9 * 4 / 2),  # one epoch alone: the lengths in the log have to do
        (11, 10 * 4, 9 * 4 / 2),  # all were trained already
    ],
)
def test_shares_of_a_cell_that_went_on_are_those_of_a_whole_one(
    tmp_path, monkeypatch, first, took, share
):
    paper, now = small_paper(tmp_path / "p"), [1000.0]
    cell, other = Cell("cifar10", "fpl", 8, 0, 10), Cell("cifar10", "fpl", 4, 0, 10)
    job = job_of(paper, cell, {cell, other}, monkeypatch, now)
    assert job.on_epoch is not None
    assert job.on_end is not None
    lengths = [60.0, *[5.0] * 9]
    for epoch, seconds in zip(range(first, 11), lengths, strict=False):
        now[0] += seconds
        job.on_epoch({"epoch": epoch}, job.net)
    job.on_end(History(records(10, 4.0), best_epoch=4))
    line = paper.results()[cell]
    assert (line["best_epoch"], line["together"]) == (4, 2)
    assert line["share"] == pytest.approx(share)
    assert line["seconds"] == pytest.approx(took)


# ------------------------------------------------------------------------------------------- times


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only while cells run; a share of 100 seconds each."""
    now = [0.0]
    started: list[list[Cell]] = []

    def fit_many(jobs, at_once):
        cells = [job["cell"] for job in jobs]
        now[0] += time_together([100.0] * len(cells))
        started.append(cells)
        for job in jobs:
            job["running"].discard(job["cell"])
            cell = job["cell"]
            job["paper"].add(line_of(cell.method, cell.bag_size, cell.seed, epochs=cell.epochs), {})

    def job(paper, cell, problem, folder, device, about, running, on_done):
        return {"cell": cell, "running": running, "paper": paper}

    monkeypatch.setattr(running, "fit_many", fit_many)
    monkeypatch.setattr("apportion.study.reproduce.running.time.monotonic", lambda: now[0])
    monkeypatch.setattr(running, "predicted", lambda cell, *_: 100.0)
    monkeypatch.setattr(running, "_problem", lambda *_: None)
    monkeypatch.setattr(running, "_job", job)
    monkeypatch.setattr(running, "device_for", lambda _: torch.device("cuda"))
    monkeypatch.setattr(running, "provenance", lambda *_: {"hardware": "a computer"})
    return started


@pytest.mark.parametrize(("logged", "left"), [(0, 1.0), (3, 1.0), (23, 0.5), (40, 0.0)])
def test_what_a_checkpoint_has_takes_no_time_again(tmp_path, clock, logged, left):
    """Of forty epochs, every fourth is saved."""
    paper, cell = small_paper(tmp_path / "p"), Cell("cifar10", "fpl", 8, 0, 40)
    log = Run(tmp_path / "runs" / cell.name)
    log.folder.mkdir(parents=True)
    for epoch in range(1, logged + 1):
        log.append({"epoch": epoch})
    told: list[float] = []
    run(paper, [cell], runs=tmp_path / "runs", time_limit=time_together([100.0 * left]),
        on_start=lambda group, seconds: told.append(seconds))  # fmt: skip
    assert told == [time_together([100.0 * left])]


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        (None, [4, 2]),
        (229.0, []),
        (230.0, [1]),  # the first of each method alone
        (460.0, [1, 1]),
        (689.0, [1, 1]),
        (690.0, [1, 1, 1]),
        (920.0, [1, 1, 4]),
    ],
)
def test_a_cell_is_started_only_if_it_will_end_in_time(tmp_path, clock, limit, sizes):
    paper = small_paper(tmp_path / "p")
    told: list[float] = []
    done = run(
        paper,
        paper.cells(),
        at_once=4,
        time_limit=limit,
        on_start=lambda group, seconds: told.append(seconds),
    )
    assert [len(group) for group in clock] == sizes
    assert [cell for group in clock for cell in group] == done
    assert told == [time_together([100.0] * n) for n in sizes]
