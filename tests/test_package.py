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
from apportion import Model, build_net, read_table
from apportion.model.model import describe_parts
from apportion.nets.average import Average
from tests.cli.wards_on_disk import write

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


def loaded_by(code):
    """The modules that a fresh interpreter has after some code."""
    return set(
        python("-c", f"{code}\nimport sys; print(); print(*sys.modules)").split("\n")[-1].split()
    )


def loaded_by_verb(*arguments):
    """The modules that a verb of the command line has imported when it is done."""
    command = list(map(str, arguments))
    return loaded_by(f"from apportion.cli.app import app; app({command}, standalone_mode=False)")


def test_import_loads_nothing_heavy():
    loaded = loaded_by("import apportion")
    assert "apportion" in loaded
    assert HEAVY.isdisjoint(loaded)


def test_import_of_the_command_line_loads_nothing_heavy():
    assert HEAVY.isdisjoint(loaded_by("import apportion.cli.app"))


def test_the_estimator_waits_for_nothing_but_scikit_learn_and_pandas():
    """What fits and loads models is imported when it does."""
    loaded = loaded_by("from apportion import LLPClassifier; LLPClassifier(epochs=3).get_params()")
    assert "apportion.estimator.classifier" in loaded
    assert {"torch", "numba", "matplotlib", "PIL", "rich", "sklearn.ensemble"}.isdisjoint(loaded)
    assert {"sklearn.linear_model", "sklearn.metrics", "pyarrow.dataset"}.isdisjoint(loaded)


def test_a_check_needs_no_torch(tmp_path):
    write(tmp_path)
    told = ["--bag", "ward", "--proportions", tmp_path / "wards.csv"]
    loaded = loaded_by_verb("check", tmp_path / "rows.csv", *told)
    assert "apportion.data.tables" in loaded
    assert {"torch", "numba", "sklearn", "matplotlib", "PIL", "scipy.stats"}.isdisjoint(loaded)


@pytest.mark.parametrize("average", [False, True])
def test_predictions_need_torch_but_not_its_compiler(tmp_path, average):
    """Nor numba and scikit-learn, which only solve and train; there are categories among these."""
    write(tmp_path)
    files = {"proportions": tmp_path / "wards.csv", "columns": ["age", "job"]}
    bags = read_table(tmp_path / "rows.csv", bag="ward", **files)
    nets = [build_net("mlp", bags, seed=seed) for seed in range(2)]
    net = Average([nets]) if average else nets[0]
    Model(net, bags.classes, describe_parts(bags), columns=bags.columns).save(tmp_path / "model")
    paths = tmp_path / "model", tmp_path / "rows.csv"
    loaded = loaded_by_verb("predict", *paths, "--out", tmp_path / "p.csv")
    assert "torch" in loaded
    assert {"torch._dynamo", "sympy", "numba", "sklearn", "matplotlib", "PIL"}.isdisjoint(loaded)


def test_decisions_need_no_torch():
    """Labels are decided for whoever trains, with whatever."""
    loaded = loaded_by("import apportion, apportion.metrics; apportion.Leader")
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
