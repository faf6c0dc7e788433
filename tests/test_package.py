"""The package as a whole: what importing it costs, what its names mean, what its wheel holds."""

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from itertools import chain
from pathlib import Path

import pytest

import apportion

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
HEAVY = {"matplotlib", "numba", "numpy", "pandas", "pyarrow", "scipy", "sklearn", "torch"}


def python(*arguments, executable=sys.executable, path=SOURCE):
    """Run a fresh interpreter, by default on this source tree, and return what it printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = clean | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(
        [executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ----------------------------------------------------------------------------------- lazy imports


def test_import_loads_nothing_heavy():
    loaded = python("-c", "import apportion, sys; print(*sys.modules)").split()
    assert "apportion" in loaded
    assert HEAVY.isdisjoint(loaded)


def test_import_of_the_command_line_loads_nothing_heavy():
    loaded = python("-c", "import apportion.cli.app, sys; print(*sys.modules)").split()
    assert HEAVY.isdisjoint(loaded)


def test_decisions_need_no_torch():
    """Labels are decided for whoever trains, with whatever."""
    code = "import apportion, apportion.metrics, sys; apportion.Leader; print(*sys.modules)"
    loaded = python("-c", code).split()
    assert "apportion.labels.leader" in loaded
    assert {"torch", "pandas", "sklearn"}.isdisjoint(loaded)


def test_import_is_quick():
    """Under 150 ms beyond the start of the interpreter, which the clock inside leaves out."""
    timed = (
        "import time; began = time.perf_counter(); import apportion;"
        "print(time.perf_counter() - began)"
    )
    assert min(float(python("-c", timed)) for _ in range(5)) < 0.150


def test_every_public_name_resolves_and_is_listed():
    assert dir(apportion) == sorted(apportion.__all__)
    for name in apportion.__all__:
        assert getattr(apportion, name) is not None
    assert set(apportion.__all__) == {*apportion._HOME, "__version__"}


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'apportion' has no attribute 'asign'"):
        _ = apportion.asign
    with pytest.raises(ImportError):
        from apportion import asign  # noqa: F401


def test_no_room_shares_the_name_of_a_public_name():
    """Importing a submodule would bind it over the public name."""
    rooms = {path.stem for path in Path(apportion.__file__).parent.iterdir()}
    assert rooms.isdisjoint(apportion.__all__)


# -------------------------------------------------------------------------------------- the wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    python(*build, path=None)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The interpreter of a new environment that holds the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    executable = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    python("-m", "pip", "--python", str(executable), *install, path=None)
    return executable


def test_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    kinds = (".py", ".j2", ".css")  # a page and its style, beside the code
    sources = {str(f.relative_to(SOURCE)) for f in SOURCE.rglob("*") if f.suffix in kinds}
    assert sources | {"apportion/py.typed"} == {n for n in names if ".dist-info/" not in n}
    assert wheel.name == f"apportion-{apportion.__version__}-py3-none-any.whl"


def test_wheel_imports_without_its_dependencies(installed):
    code = "import apportion; print(apportion.__version__, apportion.__file__)"
    version, file = python("-c", code, executable=installed, path=None).split(maxsplit=1)
    assert version == apportion.__version__
    assert Path(file).is_relative_to(installed.parent.parent)


def test_wheel_without_dependencies_says_what_is_missing(installed):
    command = [installed, "-m", "apportion"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "'typer' is not installed" in done.stderr
    assert "Traceback" not in done.stderr


def test_wheel_works_with_its_dependencies(installed):
    """The dependencies are those of this environment, appended to the path of the new one."""
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    new = Path(python("-c", query, executable=installed, path=None))
    (new / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    code = """
import apportion
from apportion import Bags
from apportion import assign
print(*assign([[0.1, 0.9], [0.2, 0.8], [0.4, 0.6]], [2, 1]).labels, Bags.__module__)
print(apportion.__file__)
"""
    answer, file = python("-c", code, executable=installed, path=None).splitlines()
    assert answer == "0 0 1 apportion.bags.bags"
    assert Path(file).is_relative_to(new)


# ------------------------------------------------------------------- one place for the version


def test_version_is_kept_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    assert "version" not in project


def test_constraints_pin_every_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {requirement.partition(">")[0].strip() for requirement in wanted}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    normal = {name.lower().replace("_", "-") for name in pins}
    assert {name.lower() for name in names} <= normal
    assert pins["torch"] == "2.13.0"  # without a local version, so that any build of it will do
