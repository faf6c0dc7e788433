"""The command line: quick where it should be, and errors that are messages."""

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import apportion
from apportion import __main__ as front_door
from apportion.engine.distributed import OF_TORCHRUN
from tests.cli.wards_on_disk import run

ROOT = Path(__file__).parents[2]


def test_version():
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.strip() == f"apportion {apportion.__version__}"


def test_python_dash_m():
    command = [sys.executable, "-m", "apportion", "--version"]
    environment = {"PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == f"apportion {apportion.__version__}"


def test_help_names_every_verb():
    result = run("--help")
    assert result.exit_code == 0
    for verb in ("check", "train", "predict", "report", "export", "bag", "reproduce", "doctor"):
        assert f"│ {verb} " in result.stdout


@pytest.mark.parametrize(
    "verb", ["check", "train", "predict", "report", "export", "bag", "reproduce"]
)
def test_every_help_teaches_by_example(verb):
    text = run(verb, "--help").stdout
    assert f"apportion {verb} " in text.partition("─ Arguments")[0].partition("Usage")[2]
    assert max(map(len, text.splitlines())) <= 80


def test_an_unknown_flag_is_met_with_the_one_that_was_meant():
    result = run("train", "rows.csv", "--proportion", "wards.csv")
    assert result.exit_code == 2
    assert "--proportions" in result.output


def test_an_unknown_verb_is_met_with_the_one_that_was_meant():
    assert "'train'" in run("trian").output


def test_errors_are_messages_and_with_debug_tracebacks(tmp_path):
    arguments = ["check", str(tmp_path / "nowhere.csv"), "--label", "x"]
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"apportion: {tmp_path / 'nowhere.csv'} does not exist.")
    assert isinstance(run("--debug", *arguments).exception, apportion.ApportionError)


def test_a_mistake_of_ours_is_told_as_one(monkeypatch):
    from apportion.cli import source

    def fail(*arguments, **options):
        raise ZeroDivisionError("by 0")

    monkeypatch.setattr(source.Source, "read", fail)
    result = run("check", "rows.csv")
    assert result.exit_code == 70
    assert "ZeroDivisionError: by 0" in result.stderr
    assert "--debug" in result.stderr
    assert isinstance(run("--debug", "check", "rows.csv").exception, ZeroDivisionError)


def test_ctrl_c_anywhere_is_no_traceback(monkeypatch):
    from apportion.cli import source

    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(source.Source, "read", interrupt)
    result = run("check", "rows.csv")
    assert result.exit_code == 130
    assert "stopped" in result.stderr


def test_of_several_processes_one_says_that_it_was_stopped(monkeypatch):
    from apportion.cli import source

    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(source.Source, "read", interrupt)
    monkeypatch.setattr("apportion.cli.app.speaks_for_all", lambda error: False)
    result = run("check", "rows.csv")
    assert result.exit_code == 130
    assert not result.output


@pytest.mark.parametrize("first", [True, False])
def test_of_several_processes_one_shows_warnings(monkeypatch, first):
    from apportion.cli import source

    def warn(*arguments, **options):
        warnings.warn("careful", stacklevel=1)
        raise KeyboardInterrupt

    monkeypatch.setattr(source.Source, "read", warn)
    monkeypatch.setattr("apportion.cli.app.is_first", lambda: first)
    assert ("apportion: careful" in run("check", "rows.csv").stderr) == first


@pytest.mark.parametrize("verb", ["predict", "check", "report", "pretrain", "export", "doctor"])
def test_what_works_in_one_process_is_refused_under_torchrun(monkeypatch, verb):
    for name, value in zip(OF_TORCHRUN, ("0", "2", "localhost", "1"), strict=True):
        monkeypatch.setenv(name, value)
    result = run(verb, *["a"] * (verb != "doctor"), *["b"] * (verb in ("predict", "export")))
    assert result.exit_code == 1
    told = f"apportion: {verb} works in one process, but WORLD_SIZE is 2"
    assert result.stderr.startswith(told)


def test_variables_of_torchrun_that_are_no_numbers_are_a_message(monkeypatch):
    for name in OF_TORCHRUN:
        monkeypatch.setenv(name, "many")
    result = run("train", "rows.csv")
    assert result.exit_code == 1
    assert (
        "apportion: the environment variable WORLD_SIZE is 'many', not a number." in result.stderr
    )


def test_ctrl_c_that_becomes_another_error_is_still_a_stop(monkeypatch):
    """As it does inside torch and safetensors."""
    from apportion.cli import source

    def interrupt(*arguments, **options):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise RecursionError("maximum recursion depth exceeded") from None

    monkeypatch.setattr(source.Source, "read", interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        result = run("check", "rows.csv")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 130
    assert "stopped" in result.stderr


def test_shells_can_complete():
    command = [sys.executable, "-m", "apportion"]
    environment = {
        "PYTHONPATH": str(ROOT / "src"),
        "_APPORTION_COMPLETE": "complete_bash",
        "COMP_WORDS": "apportion pre",
        "COMP_CWORD": "1",
    }
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "predict" in answer.stdout


def test_no_verb_shows_the_help():
    assert "Usage" in run().output


def test_unknown_verb_is_an_error_without_a_traceback():
    result = run("frobnicate")
    assert result.exit_code == 2
    assert "frobnicate" in result.output
    assert "Traceback" not in result.output


def test_front_door_names_a_missing_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "apportion.cli.app")
    monkeypatch.delattr(apportion, "cli")
    with pytest.raises(SystemExit, match="module 'typer' is not installed"):
        front_door.main()


def test_front_door_does_not_hide_our_own_mistakes(monkeypatch):
    monkeypatch.setitem(sys.modules, "apportion.cli.app", None)
    with pytest.raises(ModuleNotFoundError, match=r"apportion\.cli"):
        front_door.main()
