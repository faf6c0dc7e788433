"""The command line: quick where it should be, and a doctor who always answers."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import apportion
from apportion import __main__ as front_door
from apportion import plan
from apportion.cli import app as cli
from apportion.cli import doctor as _doctor

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return CliRunner().invoke(cli.app, arguments)


def findings():
    """The exit code of `doctor --json` and its findings by name."""
    result = run("doctor", "--json")
    report = json.loads(result.stdout)
    assert report["ok"] == (result.exit_code == 0)
    found = {
        group: {f["name"]: f for f in members} for group, members in report["findings"].items()
    }
    return result.exit_code, found


@pytest.fixture
def without(monkeypatch):
    """Make a module look as if it were not installed."""
    return lambda module: monkeypatch.setitem(sys.modules, module, None)


# ------------------------------------------------------------------------------------- the basics


def test_version():
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.strip() == f"apportion {apportion.__version__}"


def test_python_dash_m():
    command = [sys.executable, "-m", "apportion", "--version"]
    environment = {"PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == f"apportion {apportion.__version__}"


def test_demo_prints_a_table_and_no_log(monkeypatch, caplog, tmp_path):
    from apportion.cli.demo import SHOWN
    from apportion.report import build
    from apportion.study import demo

    monkeypatch.setattr(demo, "trial", lambda method, seed, **options: demo.Trial(0.5, 1.0))
    monkeypatch.setattr(build, "write_report", lambda runs, out: out)
    result = run("demo", "--seeds", "2", "--out", str(tmp_path / "demo"))
    assert result.exit_code == 0
    assert all(method in result.stdout for method in SHOWN)
    assert "means over 2 draws" in " ".join(result.stdout.split())
    assert run("demo", "--seeds", "0").exit_code == 2


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


def test_front_door_names_a_missing_module(monkeypatch, without):
    without("typer")
    monkeypatch.delitem(sys.modules, "apportion.cli.app")
    monkeypatch.delattr(apportion, "cli")
    with pytest.raises(SystemExit, match="module 'typer' is not installed"):
        front_door.main()


def test_front_door_does_not_hide_our_own_mistakes(without):
    without("apportion.cli.app")
    with pytest.raises(ModuleNotFoundError, match=r"apportion\.cli"):
        front_door.main()


# ----------------------------------------------------------------------------------------- doctor


def test_doctor_finds_a_working_installation():
    code, found = findings()
    assert code == 0
    assert found["dependencies"]["apportion"]["found"].startswith(apportion.__version__)
    assert {f["state"] for f in found["dependencies"].values()} == {"ok"}
    assert found["solver"]["assign"]["state"] == "ok"
    assert found["GPU"]


def test_doctor_examines_exactly_the_required_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {re.match(r"[\w-]+", line).group() for line in project["dependencies"]}  # type: ignore[union-attr]
    assert required == set(_doctor._required())


def test_doctor_prints_one_line_per_finding():
    result = run("doctor")
    assert result.exit_code == 0
    assert re.search(r"ok +torch +\d", result.stdout)
    assert "Everything needed works." in result.stdout


def test_doctor_names_a_missing_dependency_and_its_remedy(without):
    without("sklearn")
    code, found = findings()
    assert code == 1
    missing = found["dependencies"]["scikit-learn"]
    assert (missing["state"], missing["remedy"]) == ("broken", "pip install scikit-learn")
    result = run("doctor")
    assert result.exit_code == 1
    assert "Broken: dependencies: scikit-learn." in result.stdout


def test_doctor_goes_on_where_an_examination_needs_what_is_missing(without):
    without("torch")
    code, found = findings()
    assert code == 1
    assert found["dependencies"]["torch"]["state"] == "broken"
    assert found["GPU"]["not examined"]["found"] == "this needs torch"


def test_doctor_tells_a_dependency_that_does_not_load(monkeypatch):
    def broken(name):
        if name == "pyarrow":
            raise OSError("libarrow.so: cannot open shared object file")
        return import_module(name)

    monkeypatch.setattr(_doctor, "import_module", broken)
    code, found = findings()
    assert code == 1
    assert "libarrow.so" in found["dependencies"]["pyarrow"]["found"]
    assert "pip install --force-reinstall pyarrow" in found["dependencies"]["pyarrow"]["remedy"]


def test_doctor_names_what_a_dependency_needs_itself(monkeypatch):
    def lacking(name):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'sympy'", name="sympy")
        return import_module(name)

    monkeypatch.setattr(_doctor, "import_module", lacking)
    _, found = findings()
    assert found["dependencies"]["torch"]["found"] == "needs sympy, which is not installed"
    assert found["dependencies"]["torch"]["remedy"] == "pip install sympy"


# ------------------------------------------------------------------------------- doctor: the solver


def solver(monkeypatch, assign):
    """What doctor says of the solver if `assign` were this function."""
    fake = SimpleNamespace(assign=assign)
    real = import_module
    monkeypatch.setattr(
        _doctor,
        "import_module",
        lambda name: fake if name == "apportion.labels.assign" else real(name),
    )
    return {finding.name: finding for finding in _doctor._carefully(_doctor._solver)}


def test_doctor_calls_wrong_labels_broken(monkeypatch):
    found = solver(monkeypatch, lambda cost, counts: SimpleNamespace(labels=[0, 0, 1]))
    assert found["assign"].state == "broken"
    assert "[0, 0, 1]" in found["assign"].found


def test_doctor_tells_where_the_cache_could_go(monkeypatch):
    def assign(cost, counts):
        raise RuntimeError("cannot cache function 'scan': no locator available for file 'x.py'")

    found = solver(monkeypatch, assign)
    assert found["kernel cache"].state == "broken"
    assert "NUMBA_CACHE_DIR" in found["kernel cache"].remedy


def test_doctor_survives_a_solver_that_does_not_run(monkeypatch):
    def assign(cost, counts):
        raise RuntimeError("no such target")

    found = solver(monkeypatch, assign)
    assert found["examination"].state == "broken"
    assert "no such target" in found["examination"].found


def test_doctor_notes_that_the_jit_is_off(monkeypatch):
    import numba

    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    found = {finding.name: finding for finding in _doctor._solver()}
    assert found["compiled"].state == "note"
    assert "NUMBA_DISABLE_JIT" in found["compiled"].remedy


def test_doctor_says_where_the_kernel_cache_lies():
    found = {finding.name: finding for finding in _doctor._solver()}
    assert found["kernel cache"].state == "ok"
    assert Path(found["kernel cache"].found).is_dir()


def test_doctor_notes_a_cache_that_is_read_only(monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = {finding.name: finding for finding in _doctor._solver()}
    assert found["kernel cache"].state == "note"
    assert "not writable" in found["kernel cache"].found


# ------------------------------------------------------------------- doctor: threads and the GPU


@pytest.mark.parametrize(
    ("torch_threads", "cores", "state"), [(2, 2, "ok"), (8, 2, "note"), (1, 4, "note")]
)
def test_doctor_compares_threads_with_cores(monkeypatch, torch_threads, cores, state):
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", str(torch_threads))
    monkeypatch.setattr(plan, "available_cores", lambda: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: torch_threads)
    found = {finding.name: finding for finding in _doctor._threads()}
    assert found["torch"].state == state
    assert ("OMP_NUM_THREADS" in found["torch"].remedy) == (state == "note")


def test_doctor_describes_each_gpu(monkeypatch):
    import torch

    properties = SimpleNamespace(name="NVIDIA H200", total_memory=139 * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    found = list(_doctor._gpu())
    assert [finding.name for finding in found] == ["cuda:0", "cuda:1"]
    assert found[0].found == "NVIDIA H200, 139 GiB"


@pytest.mark.parametrize(("built_for", "remedy"), [(None, "pytorch.org"), ("12.8", "nvidia-smi")])
def test_doctor_says_what_to_do_without_a_gpu(monkeypatch, built_for, remedy):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", built_for)
    (finding,) = _doctor._gpu()
    assert finding.state == "note"
    assert remedy in finding.remedy
