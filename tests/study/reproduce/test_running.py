"""Running cells: what is trained, what is recorded, and what is started in time."""

import subprocess

import pytest
import torch

from apportion import TrainConfig, fit
from apportion.errors import ConfigError, DataError
from apportion.study.datasets.benchmarks import cifar10
from apportion.study.reproduce import running
from apportion.study.reproduce.paper import Cell
from apportion.study.reproduce.running import run
from apportion.study.reproduce.schedule import duration
from apportion.training.many import fit_many
from tests.study.reproduce.small import line_of, small_data, small_paper


def test_a_cell_is_trained_with_the_papers_preset_and_recorded(tmp_path):
    paper, data = small_paper(tmp_path / "p"), small_data(tmp_path / "data")
    cell = Cell("cifar10", "fpl", 8, 3, 2)
    assert run(paper, [cell], data=data, device="cpu", commit="abc") == [cell]
    line = paper.results()[cell]
    problem = running._problem(paper, lambda _: cifar10(data), "cifar10", 8)
    assert problem.train.n_instances == problem.valid.n_instances == 16
    history = fit(
        problem.network(3),
        problem.train,
        problem.valid,
        problem.test,
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


def test_networks_differ_by_their_seed_and_leave_the_callers_numbers_alone(tmp_path):
    paper, data = small_paper(tmp_path / "p"), small_data(tmp_path / "data")
    state = torch.get_rng_state()
    network = running._problem(paper, lambda _: cifar10(data), "cifar10", 4).network
    weights = [network(seed).state_dict()["network.fc.weight"] for seed in (0, 0, 1)]
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
    one, other = (running._problem(paper, lambda _: data, "cifar10", size) for size in (4, 8))
    assert one.train.x is other.valid.x
    assert one.test.x is other.test.x


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


def test_the_commit_is_that_of_the_code_and_tells_changes(tmp_path, monkeypatch):
    package = tmp_path / "src" / "apportion"
    (package / "reproduce").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    file = package / "reproduce" / "running.py"
    file.write_text("")
    monkeypatch.setattr(running, "__file__", str(file))
    assert running._commit() == "unknown"  # no git, or another's

    def git(*command):
        options = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", *options, *command], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "empty")
    assert running._commit() == "unknown"  # it is in a folder of git's, but not git's
    git("add", ".")
    git("commit", "-q", "-m", "all")
    assert running._commit() == git("rev-parse", "HEAD")
    (package / "train.py").write_text("changed")
    assert running._commit() == git("rev-parse", "HEAD") + " with changes"


# ------------------------------------------------------------------------------------------- times


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only while cells run; a share of 100 seconds each."""
    now = [0.0]
    started: list[list[Cell]] = []

    def fit_many(jobs, at_once):
        cells = [job["cell"] for job in jobs]
        now[0] += duration([100.0] * len(cells))
        started.append(cells)
        for job in jobs:
            job["running"].discard(job["cell"])
            job["paper"].add(
                line_of(job["cell"].method, job["cell"].bag_size, job["cell"].seed), {}
            )

    def job(paper, cell, problem, device, about, running, on_done):
        return {"cell": cell, "running": running, "paper": paper}

    monkeypatch.setattr(running, "fit_many", fit_many)
    monkeypatch.setattr("apportion.study.reproduce.running.time.monotonic", lambda: now[0])
    monkeypatch.setattr(running, "predicted", lambda cell, *_: 100.0)
    monkeypatch.setattr(running, "_problem", lambda *_: None)
    monkeypatch.setattr(running, "_job", job)
    monkeypatch.setattr(running, "device_for", lambda _: torch.device("cuda"))
    monkeypatch.setattr(running, "hardware_of", lambda _: "a computer")
    return started


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
    assert told == [duration([100.0] * n) for n in sizes]
