"""Running cells: what is trained, what is recorded, and what is started in time."""

import numpy as np
import pytest
import torch

from apportion import TrainConfig, fit
from apportion.data.benchmarks import DataError
from apportion.reproduce import running
from apportion.reproduce.paper import Cell, PaperError
from apportion.reproduce.running import SETTING_UP, predicted, run
from tests.reproduce.small import line_of, small_data, small_paper


def test_a_cell_is_trained_with_the_papers_preset_and_recorded(tmp_path):
    paper, data = small_paper(tmp_path / "p"), small_data(tmp_path / "data")
    cell = Cell("cifar10", "fpl", 8, 3, 2)
    assert run(paper, [cell], data=data, device="cpu", commit="abc") == [cell]
    line = paper.results()[cell]
    problem = running._problem(paper, running._reader(data), "cifar10", 8)
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
    assert line["seconds"] > 0
    curves = paper.curves()[cell]
    assert curves["changed"] == [round(value, 4) for value in history["changed"]]
    assert curves["valid_error"] == [round(value, 4) for value in history["valid_error"]]


def test_networks_differ_by_their_seed_and_leave_the_callers_numbers_alone(tmp_path):
    paper, data = small_paper(tmp_path / "p"), small_data(tmp_path / "data")
    state = torch.get_rng_state()
    network = running._problem(paper, running._reader(data), "cifar10", 4).network
    weights = [network(seed).state_dict()["network.fc.weight"] for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), state)


def test_bags_that_the_paper_does_not_tell_are_drawn_from_two_halves(tmp_path, monkeypatch):
    paper, data = small_paper(tmp_path / "p"), small_data(tmp_path / "data", records=40)
    (paper.folder / "bags" / "cifar10.npz").unlink()
    monkeypatch.setattr(running, "DRAWN", 80)
    problem = running._problem(paper, running._reader(data), "cifar10", 8)
    assert problem.train.n_bags == problem.valid.n_bags == 10
    assert not set(problem.train.index.tolist()) & set(problem.valid.index.tolist())
    again = running._problem(paper, running._reader(data), "cifar10", 8)
    assert np.array_equal(problem.train.index, again.train.index)


def test_what_is_missing_is_named(tmp_path):
    paper = small_paper(tmp_path / "p")
    with pytest.raises(DataError, match=r"data_batch_1\.bin is missing"):
        run(paper, paper.cells(), data=tmp_path, device="cpu")
    with pytest.raises(PaperError, match=r"(?s)no dataset 'cifar'.*cifar10"):
        running._problem(paper, running._reader(tmp_path), "cifar", 8)
    assert paper.results() == {}


# ------------------------------------------------------------------------------------------- times


def test_a_prediction_is_what_the_like_took():
    lines = [
        line_of("fpl", 4, seconds=20.0, together=4, epochs=10),  # 0.5 s an epoch
        line_of("fpl", 8, seconds=10.0, together=2, epochs=5),  # 1 s
        line_of("fpl", 8, seconds=30.0, together=1, epochs=10),  # 3 s
        line_of("greedy", 8, seconds=70.0, together=1, epochs=10),
        line_of("greedy", 8, hardware="another", seconds=1.0),
    ]
    assert predicted(Cell("cifar10", "fpl", 64, 0, 400), lines, "a computer", "cpu") == 400
    assert predicted(Cell("svhn", "greedy", 64, 0, 10), lines, "a computer", "cpu") == 70
    assert predicted(Cell("svhn", "naive", 64, 0, 10), lines, "a computer", "cpu") == 20
    assert predicted(Cell("svhn", "naive", 64, 0, 10), [], "a computer", "cpu") == 6000


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only while cells run: each group takes as long as it was told."""
    now = [0.0]
    started: list[list[Cell]] = []

    def fit_many(jobs, at_once):
        now[0] += SETTING_UP + sum(job["seconds"] for job in jobs)
        started.append([job["cell"] for job in jobs])

    monkeypatch.setattr(running, "fit_many", fit_many)
    monkeypatch.setattr("apportion.reproduce.running.time.monotonic", lambda: now[0])
    monkeypatch.setattr(running, "predicted", lambda cell, *_: 100.0)
    monkeypatch.setattr(running, "_problem", lambda *_: None)
    monkeypatch.setattr(running, "_job", lambda _, cell, *__: {"seconds": 100.0, "cell": cell})
    monkeypatch.setattr(running, "device_for", lambda _: torch.device("cuda"))
    monkeypatch.setattr(running, "hardware_of", lambda _: "a computer")
    return started


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        (None, [4, 2]),
        (159.9, []),
        (160.0, [1]),
        (461.0, [4]),
        (619.9, [4]),
        (620.0, [4, 1]),
        (720.0, [4, 2]),
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
    assert done == paper.cells()[: sum(sizes)]
    assert [cell for group in clock for cell in group] == done
    assert told == [SETTING_UP + 100 * n for n in sizes]


def test_cells_of_one_dataset_share_what_was_read(tmp_path):
    paper, read = small_paper(tmp_path / "p"), running._reader(small_data(tmp_path / "data"))
    one, other = (running._problem(paper, read, "cifar10", size) for size in (4, 8))
    assert one.train.x is other.valid.x
    assert one.test.x is other.test.x
