"""Trainings side by side: each as it is alone, whatever becomes of the others."""

import io
import itertools
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from apportion.errors import BagError, ConfigError
from apportion.nets.normalized import Normalized
from apportion.runs.run import Run
from apportion.testing import config_for, toy_bags, toy_network
from apportion.training import many
from apportion.training.fit import fit
from apportion.training.many import fit_many
from apportion.training.session import History

PATIENCE = 20  # seconds until a test that waits for another thread is given up
NOISY = ("fpl", "pi-model", "llp-vat", "proportion-loss")
TRAIN, VALID = toy_bags(), toy_bags((6, 9), seed=1)


def job(method: str = "fpl", *, valid: bool = True, **options: Any) -> dict[str, Any]:
    """What fit takes: a network that draws, and bags that it shares with other jobs."""
    settings: dict[str, Any] = {
        name: options.pop(name) for name in ("run", "on_epoch") if name in options
    }
    return {
        "model": toy_network(TRAIN, seed=options.get("seed", 0), dropout=0.4),
        "train": TRAIN,
        "valid": VALID if valid else None,
        "method": method,
        "config": config_for(**options),
        **settings,
    }


def different() -> list[dict[str, Any]]:
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
    assert identical(ours.selected, theirs.selected)
    assert identical(ours.last, theirs.last)
    assert (ours.labels is None) == (theirs.labels is None)
    assert ours.labels is None or torch.equal(ours.labels, theirs.labels)  # type: ignore[arg-type]


def alone(jobs: list[dict[str, Any]]) -> list[History]:
    return [fit(**one, progress=False) for one in jobs]


@pytest.fixture(scope="module")
def separately() -> list[History]:
    """What fits of their own give for `different`."""
    return alone(different())


# ---------------------------------------------------------------------------------- each as alone


@pytest.mark.parametrize("at_once", [1, 3])
def test_every_job_gives_what_fit_gives(at_once, separately):
    jobs = different()
    found = fit_many(jobs, at_once=at_once)
    for one, ours, theirs in zip(jobs, found, separately, strict=True):
        assert_same(ours, theirs)
        assert identical(one["model"].state_dict(), theirs.selected)
        assert not one["model"].training
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


def test_jobs_take_the_number_of_threads_that_torch_is_set_to():
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
    assert [h.epoch for h in fit_many([job(epochs=n) for n in epochs])] == epochs


def test_what_a_job_leaves_out_is_as_in_fit(separately):
    config = config_for(epochs=2)
    least = {"model": toy_network(TRAIN), "train": TRAIN, "config": config}
    (found,) = fit_many([least])
    assert_same(found, fit(toy_network(TRAIN), TRAIN, config=config))


def test_a_job_may_have_test_bags():
    jobs: list[dict[str, Any]] = [{**job(), "test": VALID} for _ in range(2)]
    (ours,), (theirs,) = fit_many(jobs[:1]), alone(jobs[1:])
    assert ours["test_accuracy"] == theirs["test_accuracy"]
    assert_same(ours, theirs)


def test_no_jobs_give_no_histories():
    assert fit_many([]) == []
    assert fit_many((), progress=True) == []


def test_any_sequence_of_mappings_will_do(separately):
    jobs = tuple(map(MappingProxyType, different()))
    for ours, theirs in zip(fit_many(jobs), separately, strict=True):
        assert_same(ours, theirs)


def test_the_jobs_are_left_as_they_were():
    jobs = [job(), job("pi-model")]
    before = [dict(one) for one in jobs]
    fit_many(jobs)
    assert all(one.keys() == was.keys() for one, was in zip(jobs, before, strict=True))
    assert all(
        one[name] is was[name] for one, was in zip(jobs, before, strict=True) for name in was
    )


# ------------------------------------------------------------------------------- epochs and folders


def test_on_epoch_gets_every_record_and_the_model_of_its_job():
    seen: list[tuple[int, int, nn.Module]] = []
    jobs = [
        job(seed=i, on_epoch=lambda record, model, i=i: seen.append((i, record["epoch"], model)))
        for i in range(3)
    ]
    histories = fit_many(jobs)
    for i, (one, history) in enumerate(zip(jobs, histories, strict=True)):
        mine = [(epoch, model) for who, epoch, model in seen if who == i]
        assert [epoch for epoch, _ in mine] == [1, 2, 3]
        assert all(model is one["model"] for _, model in mine)
        assert history["epoch"] == [1, 2, 3]


def test_jobs_on_the_cpu_are_done_one_after_the_other():
    seen: list[int] = []
    jobs = [job(seed=i, on_epoch=lambda *_, i=i: seen.append(i)) for i in range(3)]
    fit_many(jobs, at_once=3)
    assert seen == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_every_job_has_a_folder_of_its_own(tmp_path, separately):
    jobs = different()
    for i, one in enumerate(jobs):
        one["run"] = (str(tmp_path / "0"), tmp_path / "1", Run(tmp_path / "2"), None)[i]
    fit_many(jobs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    for i, theirs in enumerate(separately[:3]):
        run = Run(tmp_path / str(i))
        logged = [{k: v for k, v in r.items() if k != "seconds"} for r in run.records()]
        assert logged == plain(theirs)
        assert identical(load_file(run.model), theirs.selected)
        assert identical(load_file(run.last), theirs.last)


def test_finished_jobs_are_not_trained_again(tmp_path, separately):
    def with_folders(on_epoch: Any) -> list[dict[str, Any]]:
        return [
            {**one, "run": tmp_path / str(i), "on_epoch": on_epoch}
            for i, one in enumerate(different())
        ]

    fit_many(with_folders(None))
    for ours, theirs in zip(fit_many(with_folders(lambda *_: 1 / 0)), separately, strict=True):
        assert_same(ours, theirs)


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
        n, loss = history.epoch, history["loss"][-1]
        assert any(re.search(rf"{n}/{n}\b.*job {number} · loss {loss:.4f}", li) for li in lines)


# -------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("at_once", [0, -2, 11])
def test_less_than_one_at_once_is_refused_and_so_is_too_much(at_once):
    with pytest.raises(ConfigError, match=rf"at_once is {at_once}\.\n  Let it be from 1 to 10"):
        fit_many([job()], at_once=at_once)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("methd", "Did you mean 'method'?"), ("progress", "Known: model, train, valid, test,")],
)
def test_an_argument_that_fit_does_not_have_is_refused_by_the_job(name, hint):
    with pytest.raises(ConfigError) as refused:
        fit_many([job(), {**job(), name: True}])
    assert str(refused.value).startswith(f"job 1 has {name!r}.\n  ")
    assert hint in str(refused.value)
    assert "progress," not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"config": {"epochs": 3}}, ConfigError, "config is"),
        ({"model": "mlp"}, ConfigError, "the model is 'mlp'"),
        ({"train": None}, BagError, "train is of type NoneType"),
        ({"valid": 3}, BagError, "valid is of type int"),
        ({"config": config_for(device="tpu")}, ConfigError, "device is 'tpu'"),
    ],
)
def test_what_fit_would_not_take_is_refused_before_anything_is_trained(change, kind, words):
    trained: list[Any] = []
    jobs = [job(on_epoch=lambda *_: trained.append(1)), {**job(), **change}]
    with pytest.raises(kind, match=words):
        fit_many(jobs)
    assert not trained


def test_a_job_without_bags_or_without_a_model_is_refused():
    for name, kind in (("train", BagError), ("model", ConfigError)):
        with pytest.raises(kind):
            fit_many([{key: value for key, value in job().items() if key != name}])


def test_two_jobs_with_the_same_model_are_refused():
    jobs = [job(), job(), job()]
    jobs[2]["model"] = jobs[0]["model"]
    before = {name: value.clone() for name, value in jobs[0]["model"].state_dict().items()}
    with pytest.raises(ConfigError, match=r"jobs 0 and 2 have the same weights\.\n  .*deepcopy"):
        fit_many(jobs)
    assert identical(jobs[0]["model"].state_dict(), before)


def test_two_models_around_the_same_network_are_refused():
    jobs = [job(), job()]
    jobs[1]["model"] = Normalized(jobs[0]["model"].network, [0.0, 0.0], [1.0, 1.0])
    with pytest.raises(ConfigError, match="jobs 0 and 1 have the same weights"):
        fit_many(jobs)


def test_input_that_is_refused_names_its_job():
    with pytest.raises(ConfigError, match="the model is None") as caught:
        fit_many([job(), {**job(), "model": None}])
    assert caught.value.__notes__ == ["This was job 1; they are counted from 0."]


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


def test_a_job_that_fails_keeps_no_other_from_its_end(tmp_path, separately):
    jobs = different()
    jobs[1] |= {"on_epoch": fails, "run": tmp_path / "1"}
    with pytest.raises(ExceptionGroup, match="1 of 4 jobs failed") as caught:
        fit_many(jobs)
    (error,) = caught.value.exceptions
    assert isinstance(error, ZeroDivisionError)
    assert error.__notes__ == ["This was job 1 of 4; they are counted from 0."]
    for i in (0, 2, 3):
        assert identical(jobs[i]["model"].state_dict(), separately[i].selected)
    again = different()
    again[1]["run"] = tmp_path / "1"  # and goes on from the epoch before
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

    def jobs() -> list[dict[str, Any]]:
        return [{**one, "run": tmp_path / str(i)} for i, one in enumerate(different())]

    with pytest.raises(KeyboardInterrupt):
        fit_many([{**one, "on_epoch": on_epoch(i)} for i, one in enumerate(jobs())])
    assert seen == [(0, 1), (0, 2), (1, 1)]
    assert [len(Run(tmp_path / str(i)).records()) for i in range(4)] == [2, 1, 0, 0]
    assert not [t for t in threading.enumerate() if t.name.startswith("apportion-job")]

    monkeypatch.undo()
    for ours, theirs in zip(fit_many(jobs()), separately, strict=True):
        assert_same(ours, theirs)


def test_an_interruption_within_a_job_is_told_like_any_other_error(separately):
    def interrupt(record: dict[str, Any], model: nn.Module) -> None:
        raise KeyboardInterrupt

    jobs = different()
    jobs[0]["on_epoch"] = interrupt
    with pytest.raises(BaseExceptionGroup) as caught:
        fit_many(jobs)
    assert not isinstance(caught.value, ExceptionGroup)
    assert identical(jobs[3]["model"].state_dict(), separately[3].selected)
