"""Trainings side by side: each as it is alone, whatever becomes of the others."""

import io
import itertools
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from apportion.config import TrainConfig
from apportion.errors import BagError, ConfigError
from apportion.nets.normalized import Normalized
from apportion.plan.choices import Choice
from apportion.runs.run import Run
from apportion.testing import toy_bags, toy_config, toy_net
from apportion.training import fit as training_fit
from apportion.training import many
from apportion.training.fit import fit
from apportion.training.history import History
from apportion.training.job import Job
from apportion.training.many import fit_many

PATIENCE = 20  # seconds until a test that waits for another thread is given up
NOISY = ("fpl", "pi-model", "llp-vat", "proportion-loss")
TRAIN, VALID = toy_bags(), toy_bags((6, 9), seed=1)


def job(method: str = "fpl", *, valid: bool = True, **options: Any) -> Job:
    """A net that draws, and bags that it shares with other jobs."""
    own: dict[str, Any] = {
        name: options.pop(name) for name in ("run", "on_epoch", "on_end") if name in options
    }
    net = toy_net(TRAIN, seed=options.get("seed", 0), dropout=0.4)
    held_out = VALID if valid else None
    return Job(net, TRAIN, held_out, method=method, config=toy_config(**options), **own)


def different() -> list[Job]:
    """Jobs of every noisy method, no two alike."""
    return [job(method, seed=i, epochs=2 + i % 2) for i, method in enumerate(NOISY)]


def plain(history: History) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history.records]


def identical(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


def assert_same(ours: History, theirs: History) -> None:
    """Equal to the bit in all but the time they took."""
    assert plain(ours) == plain(theirs)
    assert (ours.best_epoch, ours.best_error) == (theirs.best_epoch, theirs.best_error)
    assert (ours.labels is None) == (theirs.labels is None)
    assert ours.labels is None or np.array_equal(ours.labels, theirs.labels)  # type: ignore[arg-type]


def alone(jobs: list[Job]) -> list[History]:
    names = [name for name in signature(fit).parameters if name != "progress"]
    arguments = [{name: getattr(one, name) for name in names} for one in jobs]
    return [fit(**one, progress=False) for one in arguments]


@pytest.fixture(scope="module")
def separate_jobs() -> list[Job]:
    return different()


@pytest.fixture(scope="module")
def separately(separate_jobs: list[Job]) -> list[History]:
    """What fits of their own give for `different`."""
    return alone(separate_jobs)


# ---------------------------------------------------------------------------------- each as alone


@pytest.mark.parametrize("at_once", [1, 3])
def test_every_job_gives_what_fit_gives(at_once, separate_jobs, separately):
    jobs = different()
    found = fit_many(jobs, at_once=at_once)
    for ours, theirs in zip(found, separately, strict=True):
        assert_same(ours, theirs)
    for one, other in zip(jobs, separate_jobs, strict=True):
        assert identical(one.net.state_dict(), other.net.state_dict())
        assert not one.net.training
    assert len({history["loss"][0] for history in found}) == len(jobs)


def test_the_caller_and_what_it_draws_make_no_difference(separately):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(77)
        jobs = different()
        state, threads = torch.get_rng_state(), torch.get_num_threads()
        found = fit_many(jobs)
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.get_num_threads() == threads
    for ours, theirs in zip(found, separately, strict=True):
        assert_same(ours, theirs)


def test_jobs_take_no_more_threads_than_torch_is_set_to(monkeypatch):
    monkeypatch.setattr(
        training_fit, "threads_of_steps", lambda *_: Choice(8, "as a large step is")
    )
    before, seen = torch.get_num_threads(), []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            fit_many([job(threads=None, on_epoch=lambda *_: seen.append(torch.get_num_threads()))])
    finally:
        torch.set_num_threads(before)
    assert seen == [1] * 3 + [2] * 3


def test_histories_come_in_the_order_of_the_jobs():
    epochs = [3, 1, 4, 2]
    assert [h.n_epochs for h in fit_many([job(epochs=n) for n in epochs])] == epochs


def test_what_a_job_leaves_out_is_as_in_fit(separately):
    config = toy_config(epochs=2)
    (found,) = fit_many([Job(toy_net(TRAIN), TRAIN, config=config)])
    assert_same(found, fit(toy_net(TRAIN), TRAIN, config=config))


def test_a_job_may_have_test_bags():
    jobs = [replace(job(), test=VALID) for _ in range(2)]
    (ours,), (theirs,) = fit_many(jobs[:1]), alone(jobs[1:])
    assert ours["test_accuracy"] == theirs["test_accuracy"]
    assert_same(ours, theirs)


def test_no_jobs_give_no_histories():
    assert fit_many([]) == []
    assert fit_many((), progress=True) == []


def test_a_job_has_the_arguments_of_fit_with_their_defaults():
    theirs = {name: p.default for name, p in signature(fit).parameters.items()}
    ours = {name: p.default for name, p in signature(Job).parameters.items()}
    assert ours.pop("on_end") is None
    assert theirs.pop("progress") is None
    assert list(ours) == list(theirs)
    assert theirs.pop("config") is None
    assert Job(toy_net(TRAIN), TRAIN).config == TrainConfig()
    assert {name: ours[name] for name in theirs} == theirs


def test_any_sequence_of_jobs_will_do(separately):
    for ours, theirs in zip(fit_many(tuple(different())), separately, strict=True):
        assert_same(ours, theirs)


# ------------------------------------------------------------------------------- epochs and folders


def test_on_epoch_gets_every_record_and_the_net_of_its_job():
    seen: list[tuple[int, int, nn.Module]] = []
    jobs = [
        job(seed=i, on_epoch=lambda record, model, i=i: seen.append((i, record["epoch"], model)))
        for i in range(3)
    ]
    histories = fit_many(jobs)
    for i, (one, history) in enumerate(zip(jobs, histories, strict=True)):
        mine = [(epoch, model) for who, epoch, model in seen if who == i]
        assert [epoch for epoch, _ in mine] == [1, 2, 3]
        assert all(model is one.net for _, model in mine)
        assert history["epoch"] == [1, 2, 3]


def test_jobs_on_the_cpu_are_done_one_after_the_other():
    seen: list[int] = []
    jobs = [job(seed=i, on_epoch=lambda *_, i=i: seen.append(i)) for i in range(3)]
    fit_many(jobs, at_once=3)
    assert seen == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_every_job_has_a_folder_of_its_own(tmp_path, separate_jobs, separately):
    runs = (str(tmp_path / "0"), tmp_path / "1", Run(tmp_path / "2"), None)
    fit_many([replace(one, run=run) for one, run in zip(different(), runs, strict=True)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    for i, theirs in enumerate(separately[:3]):
        run = Run(tmp_path / str(i))
        logged = [{k: v for k, v in r.items() if k != "seconds"} for r in run.records()]
        assert logged == plain(theirs)
        assert identical(load_file(run.model), separate_jobs[i].net.state_dict())


def test_finished_jobs_are_not_trained_again(tmp_path, separately):
    def with_folders(on_epoch: Any) -> list[Job]:
        return [
            replace(one, run=tmp_path / str(i), on_epoch=on_epoch)
            for i, one in enumerate(different())
        ]

    fit_many(with_folders(None))
    for ours, theirs in zip(fit_many(with_folders(lambda *_: 1 / 0)), separately, strict=True):
        assert_same(ours, theirs)


def test_on_end_gets_the_history_once_the_folder_is_complete(tmp_path):
    """In the job's thread, before any later job begins; a finished run ends at once."""
    seen: list[Any] = []

    def on_end(i: int) -> Any:
        def see(history: History) -> None:
            run = Run(tmp_path / str(i))
            with run.locked():  # nobody holds it any longer
                assert run.model.exists()
            seen.append((i, history, threading.current_thread().name))

        return see

    def jobs() -> list[Job]:
        return [job(seed=i, run=tmp_path / str(i), on_end=on_end(i),
                    on_epoch=lambda record, net, i=i: seen.append((i, record["epoch"])))
                for i in range(2)]  # fmt: skip

    histories = fit_many(jobs())
    assert [(one[0], *one[1:2]) for one in seen] == [
        (0, 1), (0, 2), (0, 3), (0, histories[0]), (1, 1), (1, 2), (1, 3), (1, histories[1]),
    ]  # fmt: skip
    assert all(name.startswith("apportion-job") for *_, name in (seen[3], seen[7]))
    seen.clear()
    again = fit_many(jobs())
    assert [one[:2] for one in seen] == list(enumerate(again))


def test_an_on_end_that_fails_fails_its_job(separately):
    ended: list[History] = []
    jobs = [job(on_end=lambda _: 1 / 0), replace(different()[0], on_end=ended.append)]
    with pytest.raises(ExceptionGroup, match="1 of 2 jobs failed"):
        fit_many(jobs)
    assert_same(ended[0], separately[0])


def test_a_job_that_fails_has_no_end():
    with pytest.raises(ExceptionGroup):
        fit_many([job(on_epoch=lambda *_: 1 / 0, on_end=lambda _: pytest.fail("it ended"))])


def test_lines_of_the_log_say_which_job_they_are_of(caplog):
    caplog.set_level("INFO", "apportion")
    fit_many([job(epochs=2), job(epochs=1, seed=1)])
    lines = [r.getMessage() for r in caplog.records if "epoch" in r.getMessage()]
    assert [line[: line.index(" · loss")] for line in lines] == [
        "job 0 · epoch 1/2",
        "job 0 · epoch 2/2",
        "job 1 · epoch 1/1",
    ]


def test_every_job_has_a_bar(monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    jobs = [job(epochs=2), job(epochs=3, seed=1)]
    fit_many(jobs, progress=False)
    assert screen.getvalue() == ""
    found = fit_many([job(epochs=2), job(epochs=3, seed=1)], progress=True)
    lines = screen.getvalue().splitlines()
    for number, history in enumerate(found):
        n, loss = history.n_epochs, history["loss"][-1]
        assert any(re.search(rf"{n}/{n}\b.*job {number} · loss {loss:.4f}", li) for li in lines)


# -------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("several", [False, True])
def test_jobs_of_several_processes_are_not_done_at_once(monkeypatch, several):
    """Simulated, for want of GPUs."""
    wide: list[int] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, at_most: int, name: str) -> None:
            wide.append(at_most)
            super().__init__(at_most, name)

    for name in ("current_stream", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: SimpleNamespace(synchronize=lambda: None))
    for name, instead in (
        ("ThreadPoolExecutor", Pool),
        ("device_for", lambda _: torch.device("cuda")),
        ("is_one_of_many", lambda: several),
        ("train_one", lambda *_, **__: History()),
    ):
        monkeypatch.setattr(many, name, instead, raising=False)
    fit_many([job(), job()], at_once=2)
    assert wide == [1 if several else 2]


@pytest.mark.parametrize("at_once", [0, -2, 11])
def test_less_than_one_at_once_is_refused_and_so_is_too_much(at_once):
    words = rf"at_once must be an integer from 1 to 10; got {at_once}\."
    with pytest.raises(ConfigError, match=words):
        fit_many([job()], at_once=at_once)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"config": {"epochs": 3}}, ConfigError, "config must be a TrainConfig"),
        ({"config": None}, ConfigError, "config must be a TrainConfig; got None"),
        ({"net": "mlp"}, ConfigError, "net must be an nn.Module; got 'mlp'"),
        ({"net": None}, ConfigError, "net must be an nn.Module; got None"),
        ({"train": None}, BagError, "train is of type NoneType"),
        ({"valid": 3}, BagError, "valid is of type int"),
    ],
)
def test_what_fit_would_not_take_is_refused_where_the_job_is_made(change, kind, words):
    with pytest.raises(kind, match=words):
        replace(job(), **change)


def test_a_device_that_does_not_exist_is_refused_before_anything_is_trained():
    jobs = [job(on_epoch=lambda *_: pytest.fail("it was trained")), job(device="tpu")]
    with pytest.raises(ConfigError, match=r"device must be .* got 'tpu'"):
        fit_many(jobs)


def test_two_jobs_with_the_same_net_are_refused():
    jobs = [job(), job()]
    jobs.append(replace(job(), net=jobs[0].net))
    before = {name: value.clone() for name, value in jobs[0].net.state_dict().items()}
    with pytest.raises(ConfigError, match=r"jobs 0 and 2 have the same weights\.\n  .*deepcopy"):
        fit_many(jobs)
    assert identical(jobs[0].net.state_dict(), before)


def test_two_nets_around_the_same_network_are_refused():
    first = job()
    around = Normalized(first.net.network, [0.0, 0.0], [1.0, 1.0])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="jobs 0 and 1 have the same weights"):
        fit_many([first, replace(job(), net=around)])


def folders(path: Path) -> dict[str, Any]:
    return {"path": path, "text": str(path), "run": Run(path)}


@pytest.mark.parametrize(
    ("one", "other"), [*itertools.combinations_with_replacement(["path", "text", "run"], 2)]
)
def test_two_jobs_with_the_same_folder_are_refused_however_it_is_given(one, other, tmp_path):
    kinds = folders(tmp_path / "a")
    jobs = [job(), job(run=kinds[one]), job(run=tmp_path / "b"), job(run=kinds[other])]
    with pytest.raises(ConfigError, match=r"jobs 1 and 3 have the same run folder"):
        fit_many(jobs)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("other", ["a/", "./a", "b/../a", "absolute"])
def test_a_folder_is_the_same_under_another_name(other, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = str(tmp_path / "a") if other == "absolute" else other
    with pytest.raises(ConfigError, match=r"jobs 0 and 1 have the same run folder"):
        fit_many([job(run="a"), job(run=other)])


# -------------------------------------------------------------------------------------- failures


def fails(record: dict[str, Any], model: nn.Module) -> None:
    if record["epoch"] == 2:
        raise ZeroDivisionError("by the second epoch")


def test_a_job_that_fails_keeps_no_other_from_its_end(tmp_path, separate_jobs, separately):
    jobs = different()
    jobs[1] = replace(jobs[1], on_epoch=fails, run=tmp_path / "1")
    with pytest.raises(ExceptionGroup, match="1 of 4 jobs failed") as caught:
        fit_many(jobs)
    (error,) = caught.value.exceptions
    assert isinstance(error, ZeroDivisionError)
    assert error.__notes__ == ["This was job 1 of 4; they are counted from 0."]
    for i in (0, 2, 3):
        assert identical(jobs[i].net.state_dict(), separate_jobs[i].net.state_dict())
    again = different()
    again[1] = replace(again[1], run=tmp_path / "1")  # and goes on from the epoch before
    assert Run(tmp_path / "1").records()[-1]["epoch"] == 2
    assert_same(fit_many(again)[1], separately[1])


def test_all_that_fail_are_told_in_the_order_of_the_jobs():
    jobs = [job(on_epoch=fails), job(), job(method="fpll"), job(on_epoch=fails, seed=1)]
    with pytest.raises(ExceptionGroup, match="3 of 4 jobs failed") as caught:
        fit_many(jobs)
    errors = caught.value.exceptions
    assert [type(error) for error in errors] == [ZeroDivisionError, ConfigError, ZeroDivisionError]
    assert [error.__notes__ for error in errors] == [
        [f"This was job {number} of 4; they are counted from 0."] for number in (0, 2, 3)
    ]
    assert caught.value.split(ConfigError)[0] is not None  # except* tells them apart


# ------------------------------------------------------------------------------------ interruption


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as it is in a terminal: where tests run in the background, it may be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_a_job_after_its_epoch_and_all_can_go_on(
    tmp_path, monkeypatch, interruptible, separately
):
    stop, waiting, waits = threading.Event(), threading.Event(), Future.exception
    monkeypatch.setattr(many, "threading", SimpleNamespace(Event=lambda: stop))

    def exception(future: Any, timeout: float | None = None) -> Any:
        waiting.set()
        return waits(future, timeout)

    monkeypatch.setattr(Future, "exception", exception)
    seen: list[tuple[int, int]] = []

    def press(record: dict[str, Any], model: nn.Module) -> None:
        """In job 1, once the main thread waits, and until it has noticed."""
        assert waiting.wait(PATIENCE)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        assert stop.wait(PATIENCE)

    def on_epoch(i: int) -> Any:
        def see(record: dict[str, Any], model: nn.Module) -> None:
            seen.append((i, record["epoch"]))
            if (i, record["epoch"]) == (1, 1):
                press(record, model)

        return see

    def jobs() -> list[Job]:
        return [replace(one, run=tmp_path / str(i)) for i, one in enumerate(different())]

    with pytest.raises(KeyboardInterrupt):
        fit_many([replace(one, on_epoch=on_epoch(i)) for i, one in enumerate(jobs())])
    assert seen == [(0, 1), (0, 2), (1, 1)]
    assert [len(Run(tmp_path / str(i)).records()) for i in range(4)] == [2, 1, 0, 0]
    assert not [t for t in threading.enumerate() if t.name.startswith("apportion-job")]

    monkeypatch.undo()
    for ours, theirs in zip(fit_many(jobs()), separately, strict=True):
        assert_same(ours, theirs)


@pytest.mark.usefixtures("separately")
def test_an_interruption_within_a_job_is_told_like_any_other_error(separate_jobs):
    def interrupt(record: dict[str, Any], model: nn.Module) -> None:
        raise KeyboardInterrupt

    jobs = different()
    jobs[0] = replace(jobs[0], on_epoch=interrupt)
    with pytest.raises(BaseExceptionGroup) as caught:
        fit_many(jobs)
    assert not isinstance(caught.value, ExceptionGroup)
    assert identical(jobs[3].net.state_dict(), separate_jobs[3].net.state_dict())


def test_what_is_not_a_list_of_jobs_is_refused():
    one = job()
    with pytest.raises(ConfigError, match=r"jobs is a Job.\n.*fit trains a single net"):
        fit_many(one)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"job 1 \(counted from 0\) is a dict.\n.*Job\(net"):
        fit_many([one, {"net": one.net}])  # type: ignore[list-item]


def test_jobs_with_one_run_folder_are_refused_without_talk_of_nets(tmp_path):
    jobs = [job(run=tmp_path / "a") for _ in range(2)]
    with pytest.raises(ConfigError, match="have the same run folder") as caught:
        fit_many(jobs)
    assert "deepcopy" not in str(caught.value)


def test_on_epoch_ends_its_own_job_alone():
    ended, whole = fit_many(
        [job(epochs=4, on_epoch=lambda record, net: record["epoch"] == 2), job(epochs=4)]
    )
    assert (ended.n_epochs, ended.ended) == (2, "on_epoch")
    assert (whole.n_epochs, whole.ended) == (4, "epochs")
