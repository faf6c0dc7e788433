"""A doctor who always answers: what is needed, what was found, and what to do about it."""

import json
import os
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import joblib
import pytest

import apportion
from apportion.cli import doctor
from tests.cli.wards_on_disk import run

ROOT = Path(__file__).parents[2]


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
    assert required == set(doctor._required())


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

    monkeypatch.setattr(doctor, "import_module", broken)
    code, found = findings()
    assert code == 1
    assert "libarrow.so" in found["dependencies"]["pyarrow"]["found"]
    assert "pip install --force-reinstall pyarrow" in found["dependencies"]["pyarrow"]["remedy"]


def test_doctor_names_what_a_dependency_needs_itself(monkeypatch):
    def lacking(name):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'sympy'", name="sympy")
        return import_module(name)

    monkeypatch.setattr(doctor, "import_module", lacking)
    _, found = findings()
    assert found["dependencies"]["torch"]["found"] == "needs sympy, which is not installed"
    assert found["dependencies"]["torch"]["remedy"] == "pip install sympy"


# ------------------------------------------------------------------------------- doctor: the solver


def solver(monkeypatch, assign):
    """What doctor says of the solver if `assign` were this function."""
    fake = SimpleNamespace(assign=assign)
    real = import_module
    monkeypatch.setattr(
        doctor,
        "import_module",
        lambda name: fake if name == "apportion.labels.assign" else real(name),
    )
    return {finding.name: finding for finding in doctor._carefully(doctor._solver)}


def test_doctor_calls_wrong_labels_broken(monkeypatch):
    found = solver(monkeypatch, lambda cost, counts: SimpleNamespace(labels=[0, 0, 1]))
    assert found["assign"].state == "broken"
    assert "[0, 0, 1]" in found["assign"].found


def test_doctor_survives_a_solver_that_does_not_run(monkeypatch):
    def assign(cost, counts):
        raise RuntimeError("no such target")

    found = solver(monkeypatch, assign)
    assert found["examination"].state == "broken"
    assert "no such target" in found["examination"].found


def test_doctor_notes_that_the_jit_is_off(monkeypatch):
    import numba

    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    found = {finding.name: finding for finding in doctor._solver()}
    assert found["compiled"].state == "note"
    assert "NUMBA_DISABLE_JIT" in found["compiled"].remedy


def test_doctor_says_where_the_kernel_cache_lies():
    found = {finding.name: finding for finding in doctor._solver()}
    assert found["kernel cache"].state == "ok"
    assert Path(found["kernel cache"].found).is_dir()


def test_doctor_notes_a_cache_that_is_read_only(monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = {finding.name: finding for finding in doctor._solver()}
    assert found["kernel cache"].state == "note"
    assert "not writable" in found["kernel cache"].found


# ------------------------------------------------------------------- doctor: threads and the GPU


@pytest.mark.parametrize(
    ("torch_threads", "cores", "state"), [(2, 2, "ok"), (8, 2, "note"), (1, 4, "note")]
)
def test_doctor_compares_threads_with_cores(monkeypatch, torch_threads, cores, state):
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", str(torch_threads))
    monkeypatch.setattr(joblib, "cpu_count", lambda: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: torch_threads)
    found = {finding.name: finding for finding in doctor._threads()}
    assert found["torch"].state == state
    assert ("OMP_NUM_THREADS" in found["torch"].remedy) == (state == "note")


def test_doctor_describes_each_gpu(monkeypatch):
    import torch

    properties = SimpleNamespace(name="NVIDIA H200", total_memory=139 * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    found = list(doctor._gpu())
    assert [finding.name for finding in found] == ["cuda:0", "cuda:1"]
    assert found[0].found == "NVIDIA H200, 139 GiB"


@pytest.mark.parametrize(("built_for", "remedy"), [(None, "pytorch.org"), ("12.8", "nvidia-smi")])
def test_doctor_says_what_to_do_without_a_gpu(monkeypatch, built_for, remedy):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", built_for)
    (finding,) = doctor._gpu()
    assert finding.state == "note"
    assert remedy in finding.remedy
