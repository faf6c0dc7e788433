import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import _trees
from benchmarks._trees import FailedError, Tree, earlier_tree, git

HAS_HISTORY = (_trees.ROOT / ".git").exists()


@pytest.fixture
def tree(tmp_path):
    return Tree("now", _trees.ROOT / "src", tmp_path, "abc")


def test_a_process_finds_the_code_of_its_tree_and_its_own_cache(tree, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    code = "import os, apportion; print(apportion.__file__, *sorted(os.environ.items()), sep='\\n')"
    took, printed = tree.run("-c", code)
    assert 0 < took < 60
    assert printed.startswith(str(tree.source))
    assert f"('NUMBA_CACHE_DIR', '{tree.folder / 'numba'}')" in printed
    assert "OMP_NUM_THREADS" not in printed


def test_a_cold_process_has_an_empty_cache_that_is_gone_afterwards(tree):
    code = (
        "import os; print(os.environ['NUMBA_CACHE_DIR'], os.listdir(os.environ['NUMBA_CACHE_DIR']))"
    )
    folder, empty = tree.run("-c", code, cold=True)[1].split()
    assert empty == "[]"
    assert not Path(folder).exists()


def test_a_failing_process_is_told_by_its_last_line(tree):
    with pytest.raises(FailedError, match="exit code 1: ValueError: too bad"):
        tree.run("-c", "raise ValueError('too bad')")


def test_a_process_that_takes_too_long_is_ended(tree, monkeypatch):
    monkeypatch.setattr(_trees, "LIMIT", 0.5)
    began = time.monotonic()
    with pytest.raises(FailedError, match="more than"):
        tree.run("-c", "import time; time.sleep(100)")
    assert time.monotonic() - began < 50


def test_what_a_process_leaves_behind_is_ended(tree):
    child = f"[{sys.executable!r}, '-c', 'import time; time.sleep(100)']"
    quiet = "stdin=s.DEVNULL, stdout=s.DEVNULL, stderr=s.DEVNULL"
    _, printed = tree.run("-c", f"import subprocess as s; print(s.Popen({child}, {quiet}).pid)")
    state = Path(f"/proc/{int(printed)}/stat")
    deadline = time.monotonic() + 30
    while state.exists() and ") Z " not in state.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not state.exists() or ") Z " in state.read_text()


def test_a_probe_of_other_code_is_refused(tree, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys; sys.path.insert(0, {str(tree.source)!r})"
    )
    other = Tree("before", tmp_path, tmp_path, "abc")
    with pytest.raises(FailedError, match="measured other code than that of 'before'"):
        other.probe("first_import", code="pass")


def test_a_probe_returns_values_with_units(tree):
    found = tree.probe("first_import", code="import apportion")
    assert found["import apportion"][0] > 0
    assert found["import apportion"][1] == "s"


@pytest.mark.skipif(not HAS_HISTORY, reason="this is no clone")
def test_an_earlier_tree_is_what_git_has(tmp_path):
    found = earlier_tree("HEAD", tmp_path)
    assert found.commit == git("rev-parse", "--short", "HEAD")
    text = subprocess.run(
        ["git", "show", "HEAD:src/apportion/__init__.py"],
        cwd=_trees.ROOT,
        capture_output=True,
        check=True,
    ).stdout
    assert (found.source / "apportion" / "__init__.py").read_bytes() == text


def test_an_earlier_tree_may_be_a_folder(tmp_path):
    root = tmp_path / "other"
    (root / "src").mkdir(parents=True)
    found = earlier_tree(str(root), tmp_path)
    assert (found.source, found.commit) == (root / "src", "other")
