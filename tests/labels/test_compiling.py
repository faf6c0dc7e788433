"""The solver before it is compiled: the same answers, processes that end, and who waits."""

import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from filelock import FileLock, Timeout
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.labels import assign as solving
from apportion.labels import compiling
from apportion.labels.assign import assign
from tests.labels.problems import MEDIUM, SMALL, instance, run_python

FIELDS = ("labels", "prices", "objective", "gap", "tolerance")


def interpreted(n_classes, n_costs):
    (name,) = compiling.entry_names(n_classes)
    return solving.SOLVERS.interpreted[name]


def assert_equal_bits(cost, counts, prices):
    compiled = assign(cost, counts, prices=prices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solving.SOLVERS, "of", interpreted)
        same = assign(cost, counts, prices=prices)
    for name in FIELDS:
        assert np.array_equal(getattr(compiled, name), getattr(same, name)), name
    return compiled


@given(st.one_of(SMALL, SMALL, SMALL, MEDIUM), st.sampled_from([0.0, 1.0, 1e6]))
@settings(max_examples=200, deadline=None)
def test_interpreted_answers_are_those_of_the_compiler_to_the_last_bit(drawn, noise):
    cost, counts = instance(*drawn)
    if cost.size > 8000:
        seed, kind, _, _, given_counts = drawn
        cost, counts = instance(seed, kind, 100, 20, given_counts)
    cold = assert_equal_bits(cost, counts, None)
    rng = np.random.default_rng(drawn[0])
    assert_equal_bits(cost, counts, cold.prices + noise * rng.normal(size=len(counts)))


@pytest.mark.parametrize(("n", "C"), [(3000, 3), (1500, 10), (3000, 2), (200, 60)])
def test_interpreted_answers_of_large_bags_are_the_same(n, C):
    for kind in ("gaussian", "small integers", "near ties", "forbidden"):
        cost, counts = instance(n + C, kind, n, C)
        cold = assert_equal_bits(cost, counts, None)
        similar = cost + np.random.default_rng(0).normal(size=cost.shape) / 50
        assert_equal_bits(similar, counts, cold.prices)


# Every process below has a cache of its own that is empty. Two classes compile fastest.
SETTING = """
import logging, os, sys, time
from pathlib import Path
import numpy as np
from apportion.labels import compiling
from apportion.labels.assign import SOLVERS, assign, compile_ahead
kernel = SOLVERS.kernel
records = []
logging.getLogger("apportion").addHandler(type("H", (logging.Handler,), {
    "emit": lambda self, record: records.append(record.getMessage())})())
folder = Path(os.environ["NUMBA_CACHE_DIR"])
def compiled():
    return sorted(file.name.split("-")[0] for file in folder.rglob("*.nbc"))
def children():
    try:
        return os.waitpid(-1, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False
def large(n=200_000):
    cost = np.random.default_rng(0).normal(size=(n, 2))
    return assign(cost, [n // 2, n // 2])
"""


def in_a_fresh_cache(tmp_path, script, **environment):
    return run_python(SETTING + script, NUMBA_CACHE_DIR=str(tmp_path / "cache"), **environment)


def test_a_small_problem_neither_waits_nor_starts_anything(tmp_path):
    script = """
assert assign([[0.1, 0.9], [0.2, 0.7], [0.4, 0.5]], [1, 2]).labels.tolist() == [0, 1, 1]
assert assign(np.eye(4)[:3], [1, 1, 1, 0]).objective == 0
assert not kernel.solve_two.signatures and not kernel.solve_bags.signatures
assert not SOLVERS.begun and not children() and not compiled() and not records
"""
    in_a_fresh_cache(tmp_path, script)


@pytest.mark.skipif(sys.platform == "win32", reason="asks for children as POSIX does")
def test_what_is_compiled_ahead_is_loaded_and_leaves_no_process_behind(tmp_path):
    script = """
compile_ahead(2)
compile_ahead(2)
assert SOLVERS.begun == ("solve_two",)
assert assign([[0.0, 1.0], [0.0, 3.0]], [1, 1]).labels.tolist() == [1, 0]
assert not kernel.solve_two.signatures  # nobody waited
end = time.monotonic() + 100
while not compiling.is_cached(kernel.solve_two):
    assert time.monotonic() < end
    time.sleep(0.05)
while children():
    assert time.monotonic() < end
    time.sleep(0.05)
large()
assert kernel.solve_two.stats.cache_hits and not kernel.solve_two.stats.cache_misses
assert compiled() == ["kernel.solve_two"] and not records
"""
    in_a_fresh_cache(tmp_path, script)


def test_many_small_problems_are_interpreted_while_somebody_compiles(monkeypatch):
    """A short training ends before the compiler does; waiting for it would only delay it."""
    solvers = compiling.Solvers(solving.SOLVERS.kernel)
    monkeypatch.setattr(compiling, "_is_loaded", lambda entry: False)
    monkeypatch.setattr(compiling, "is_cached", lambda entry: False)
    waiting = []

    def alone(entry):
        waiting.append(entry)
        return nullcontext()

    monkeypatch.setattr(compiling, "_alone", alone)
    running = [True]
    process = SimpleNamespace(poll=lambda: None if running[0] else 1, wait=lambda: None)
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kw: process)
    most = compiling.INTERPRETED
    for _ in range(5):
        assert solvers.of(2, most) is solvers.interpreted["solve_two"]
    assert not waiting
    solvers.of(2, most + 1)  # takes too long
    assert len(waiting) == 1
    running[0] = False  # it was killed: nobody compiles
    solvers.of(2, 1)
    assert len(waiting) == 2


def test_a_large_problem_compiles_once_among_processes_and_says_so(tmp_path):
    script = """
found = large()
assert kernel.solve_two.signatures
assert records == ["The solver is being compiled, once per installation: about 2 s."]
large(300_000)
assert len(records) == 1
print(found.objective)
"""
    first = in_a_fresh_cache(tmp_path, script)
    again = script.replace("assert records ==", "assert not records #").replace("== 1", "== 0")
    assert in_a_fresh_cache(tmp_path, again) == first


def test_nothing_is_started_where_nothing_could_be(monkeypatch):
    started = []
    monkeypatch.setattr(compiling, "is_cached", lambda entry: False)
    solvers = compiling.Solvers(solving.SOLVERS.kernel)
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kw: started.append(args))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", "/opt/application")
        solvers.compile_ahead()
        patch.setattr(sys, "executable", "")
        solvers.compile_ahead()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "parent_process", lambda: SimpleNamespace())
        solvers.compile_ahead()
    assert not started

    def refused(*args, **kw):
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refused)
    solvers.compile_ahead()  # whoever needs it compiles it


# ------------------------------------------------------------------------ what may be in the way


def test_threads_may_be_the_first_together():
    """numba's registries are filled by the first to ask, which others must not see half done."""
    script = """
import sys, threading
import numpy as np
from apportion.labels.assign import assign
sys.setswitchinterval(1e-6)
start, found = threading.Barrier(16), []
def first():
    cost = np.random.default_rng(0).normal(size=(40, 2))
    start.wait()
    found.append(assign(cost, [20, 20]).labels.tolist())
threads = [threading.Thread(target=first) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 16 and all(labels == found[0] for labels in found)
"""
    for _ in range(4):
        run_python(script)


@pytest.mark.slow
def test_a_damaged_cache_is_compiled_again(tmp_path):
    in_a_fresh_cache(tmp_path, "large()")
    damage = """
for file in folder.rglob("*.nbc"): file.write_bytes(file.read_bytes()[:1000])
assert compiled()
found = large()
assert kernel.solve_two.signatures
"""
    in_a_fresh_cache(tmp_path, damage)
    in_a_fresh_cache(tmp_path, "large(); assert kernel.solve_two.stats.cache_hits")


def test_where_no_folder_is_writable_every_process_compiles(monkeypatch):
    kernel = solving.SOLVERS.kernel
    plain = kernel.plain

    def refusing(**options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'f': no locator available for file 'x.py'")
        return plain(**options)

    def f(x):
        return x + 1

    monkeypatch.setattr(kernel, "plain", refusing)
    entry = kernel.entry(f)
    assert entry(1) == 2
    assert entry.stats.cache_path is None
    with compiling._alone(entry):
        pass
    fresh = kernel.entry(lambda x: x)
    assert not compiling.is_cached(fresh)
    solvers = compiling.Solvers(SimpleNamespace(solve_two=fresh))  # type: ignore[arg-type]
    monkeypatch.setattr(subprocess, "Popen", None)  # nothing is started
    solvers.compile_ahead(2)


def test_nobody_waits_for_ever(monkeypatch, tmp_path):
    monkeypatch.setitem(compiling.SECONDS, "solve_two", 0.01)
    entry = SimpleNamespace(stats=SimpleNamespace(cache_path=tmp_path), __name__="solve_two")
    with FileLock(tmp_path / "apportion-solve_two.lock"):
        with compiling._alone(entry):  # after a while, without it
            pass
        with pytest.raises(Timeout), compiling._alone(entry, timeout=0):
            pass


def test_the_user_is_told_once_whoever_waits(monkeypatch, caplog):
    solvers = compiling.Solvers(solving.SOLVERS.kernel)
    monkeypatch.setattr(compiling, "_is_loaded", lambda entry: False)
    monkeypatch.setattr(compiling, "is_cached", lambda entry: False)
    monkeypatch.setattr(solvers, "compile_now", lambda n_classes: None)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n_classes: solvers.of(n_classes, 10**7), [2, 3] * 8))
    assert [record.getMessage()[:30] for record in caplog.records] == [
        "The solver is being compiled, "
    ]


@pytest.mark.parametrize("compiles", [True, False])
def test_what_cannot_be_kept_can_be_used(compiles):
    """A full disk, say: numba compiles, and then fails to save."""

    class Entry:
        stats, overloads = SimpleNamespace(cache_path=None), dict[str, bool]()
        __name__ = "solve_two"

        def compile(self, signature):
            if compiles:
                self.overloads["float64"] = True
            raise PermissionError("the folder of the cache")

    entry = Entry()
    entry.overloads = {}
    solvers = compiling.Solvers(SimpleNamespace(solve_two=entry))  # type: ignore[arg-type]
    if compiles:
        solvers.compile_now(2)
    else:
        with pytest.raises(PermissionError):
            solvers.compile_now(2)
