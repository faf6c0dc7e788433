"""Threads: as many as the work is worth, on the cores that are free."""

import os
import subprocess
import sys
import time

import joblib
import pytest

from apportion import threads
from apportion.threads import available_cores, idle_cores, threads_worth


@pytest.fixture
def sixteen(monkeypatch):
    """A machine of 16 cores, all of them ours."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(joblib, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(threads, "APART", 0)


@pytest.mark.parametrize(
    ("setting", "cores"), [(None, 16), ("4", 4), ("3,2", 3), ("64", 16), ("0", 1), ("many", 16)]
)
def test_a_limit_of_threads_is_one_of_cores(sixteen, monkeypatch, setting, cores):
    if setting is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert available_cores() == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinities")
def test_affinity_limits_the_cores():
    told = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    told += "from apportion.threads import available_cores; print(available_cores())"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize(
    ("running", "idle"),
    [([0], 16), ([1], 15), ([16], 1), ([40], 1), ([9, 3, 9], 13), ([5, 0], 16)],
)
def test_what_runs_all_the_time_leaves_fewer_idle(sixteen, monkeypatch, running, idle):
    seen = iter(running * 5)
    monkeypatch.setattr(threads, "_running_beside_us", lambda: next(seen))
    assert idle_cores() == idle


def test_a_quota_limits_the_idle_cores_of_a_large_machine(sixteen, monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 4)
    for running, idle in ((0, 4), (12, 4), (14, 2)):
        monkeypatch.setattr(threads, "_running_beside_us", lambda running=running: running)
        assert idle_cores() == idle


@pytest.mark.skipif(not os.path.exists("/proc/loadavg"), reason="the system does not tell")  # noqa: PTH110
def test_a_real_program_beside_us_is_seen():
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        until = time.monotonic() + 20
        while not threads._running_beside_us():
            assert time.monotonic() < until
    finally:
        busy.kill()
        busy.wait()


def test_larger_steps_are_worth_more_threads():
    worth = [threads_worth(n) for n in (0, 19_999, 20_000, 25_000, 10**9)]
    assert worth == [1, 1, 4, 5, threads.MOST]
