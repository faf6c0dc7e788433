"""The run folder of a table: stopped after any net it ends as if it had not been, or is refused."""

import datetime
import shutil

import numpy as np
import pytest
import torch

from apportion import Run, TrainConfig, fit
from apportion.auto.members import members_of
from apportion.bags.bags import Bags
from apportion.errors import RunError
from apportion.model.model import Model
from apportion.nets.build import build_net
from apportion.report.read import read_run
from tests.auto.tables import ALIKE, VALID, leave, ring, ring_in_bags, train
from tests.faults.killing import left_behind
from tests.training.test_features import SIGNALS


def three_classes(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 2)).astype(np.float32)
    return Bags.from_rows(x, np.arange(60) // 6, truth=np.digitize(x[:, 0], [-0.5, 0.5]))


TABLES = {
    "alike": ALIKE,
    "differing": ring_in_bags(200, 0, 40, differing=True),
    "three classes": three_classes(0),
}


@pytest.fixture(autouse=True)
def _short(steps):
    steps(2)


@pytest.mark.parametrize("name", TABLES)
def test_dead_after_any_net_a_run_ends_as_if_it_had_lived(name, tmp_path):
    bags, whole = TABLES[name], tmp_path / "whole"
    n = len(members_of(bags))
    assert n == {"alike": 10, "differing": 12, "three classes": 10}[name]

    def copy(record, net):
        shutil.copytree(whole, tmp_path / str(record["epoch"]))

    first = train(whole, bags, on_net=copy)
    wanted = left_behind(whole)
    assert len(wanted[0]) == n
    files = ("checkpoint.safetensors", "config.toml", "evaluation.safetensors", "model.safetensors")
    assert tuple(sorted(wanted[1])) == files
    for done in range(1, n + 1):  # after the last, only model and evaluation are missing
        folder = tmp_path / str(done)
        assert len(Run(folder).records()) == done
        assert not Run(folder).model.exists()
        learned = train(folder, bags)
        assert left_behind(folder) == wanted, done
        assert learned.expectation == first.expectation
        assert len(learned.history.records) == n


@pytest.mark.parametrize("name", TABLES)
def test_stopped_after_every_net_in_turn_it_ends_as_well(name, tmp_path):
    bags = TABLES[name]
    train(tmp_path / "whole", bags)
    for after in range(1, len(members_of(bags)) + 1):
        leave(tmp_path / "a", after, bags)
    train(tmp_path / "a", bags)
    assert left_behind(tmp_path / "a") == left_behind(tmp_path / "whole")


@pytest.mark.parametrize("method", ["linear", "mean-map", "ridge"])
def test_a_linear_model_goes_on_to_its_end(method, tmp_path):
    train(tmp_path / "whole", method=method)
    leave(tmp_path / "a", 1, method=method)
    train(tmp_path / "a", method=method)
    assert left_behind(tmp_path / "a") == left_behind(tmp_path / "whole")


def test_a_linear_layer_on_summaries_of_signals_goes_on_to_its_end(tmp_path):
    train(tmp_path / "whole", SIGNALS, method="mean-map")
    leave(tmp_path / "a", 1, SIGNALS, method="mean-map")
    train(tmp_path / "a", SIGNALS, method="mean-map")
    assert left_behind(tmp_path / "a") == left_behind(tmp_path / "whole")
    train(tmp_path / "a", SIGNALS, method="mean-map")  # there is nothing left to do
    assert left_behind(tmp_path / "a") == left_behind(tmp_path / "whole")


@pytest.mark.parametrize("lost", [["model"], ["evaluation"], ["model", "evaluation"],
                                  ["model", "evaluation", "log"]], ids="-".join)  # fmt: skip
def test_what_a_finished_run_has_lost_is_made_again_except_its_log(lost, tmp_path):
    train(tmp_path)
    wanted = left_behind(tmp_path)
    for name in lost:
        getattr(Run(tmp_path), name).unlink()
    if "log" in lost:
        with pytest.raises(RunError, match="has 0 lines, but the checkpoint was saved after 10"):
            train(tmp_path)
        return
    train(tmp_path)
    assert left_behind(tmp_path) == wanted


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path):
    train(tmp_path / "whole")
    leave(tmp_path / "a", 1)
    Run(tmp_path / "a").checkpoint.unlink()
    train(tmp_path / "a")
    assert left_behind(tmp_path / "a") == left_behind(tmp_path / "whole")


def test_records_that_no_checkpoint_knows_of_are_cut_away(tmp_path):
    """A process may die between a record and its checkpoint."""
    train(tmp_path / "whole")
    leave(tmp_path / "a", 3)
    before = Run(tmp_path / "a").checkpoint.read_bytes()
    leave(tmp_path / "a", 4)
    Run(tmp_path / "a").checkpoint.write_bytes(before)
    train(tmp_path / "a")
    assert left_behind(tmp_path / "a") == left_behind(tmp_path / "whole")


def test_it_goes_on_with_the_threads_that_it_began_with(tmp_path):
    """Bits are equal with so many alone."""
    before, threads = torch.get_num_threads(), []

    def stop(record, net):
        threads.append(torch.get_num_threads())
        raise KeyboardInterrupt

    for own in (2, None):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, threads=own, on_net=stop)
    assert threads == [2, 2]
    assert torch.get_num_threads() == before


# ---------------------------------------------------------------------------- runs of others


CHANGES = {
    "training set": {"bags": ring_in_bags(80, 2, 8, differing=False)},
    "validation set": {"valid": None},
    "method: name 'auto', not 'ridge'": {"method": "ridge"},
    "configuration: seed 0, not 1": {"seed": 1},
}


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("what", CHANGES)
def test_a_run_of_something_else_is_refused_and_stays_as_it_is(what, finished, tmp_path):
    if finished:
        train(tmp_path)
    else:
        leave(tmp_path, 2)
    before = left_behind(tmp_path)
    with pytest.raises(RunError, match=f"holds a run of another {what}") as refused:
        train(tmp_path, **CHANGES[what])
    assert "or train in another folder" in str(refused.value)
    assert left_behind(tmp_path) == before


def of_fit(folder, method="count-likelihood"):
    config = TrainConfig(epochs=2, device="cpu", threads=1)
    return fit(build_net("mlp", ALIKE), ALIKE, VALID, method=method, config=config, run=folder)


def test_fit_and_auto_refuse_each_others_folders(tmp_path):
    of_fit(tmp_path / "fit")
    train(tmp_path / "auto")
    for folder, other, words in (
        ("fit", train, "method: name 'count-likelihood', not 'auto'"),
        ("auto", of_fit, "method: name 'auto', not 'count-likelihood'"),
    ):
        before = left_behind(tmp_path / folder)
        with pytest.raises(RunError, match="holds a run of another method") as refused:
            other(tmp_path / folder)
        assert words in str(refused.value)
        assert left_behind(tmp_path / folder) == before


# ------------------------------------------------------------------------------------- limits


def test_the_largest_seed_is_one(tmp_path):
    assert len(train(tmp_path, seed=2**63 - 1).history.records) == 10


def test_classes_that_no_file_keeps_are_kept_as_texts_as_in_other_runs(tmp_path):
    days = [datetime.date(2024, 1, day) for day in (1, 2)]
    x, y = ring(80, 0)
    bags = Bags.from_rows(x, np.arange(80) // 8, truth=np.array(days, object)[y], classes=days)
    learned = train(tmp_path, bags, valid=None)
    assert set(learned.model.predict(x)) <= set(days)
    assert list(Model.load(tmp_path, device="cpu").classes) == ["2024-01-01", "2024-01-02"]
    assert read_run(tmp_path, "a").is_finished


@pytest.mark.parametrize(
    ("name", "value"), [("HIDDEN", 32), ("MOST_SMALL_STEPS", 7), ("PENALTY", {2: 3.0})]
)
def test_nets_that_would_be_trained_otherwise_are_not_added(tmp_path, monkeypatch, name, value):
    from apportion.auto import nets

    leave(tmp_path, 3)
    monkeypatch.setattr(nets, name, value)
    with pytest.raises(RunError, match="another configuration: nets"):
        train(tmp_path)
