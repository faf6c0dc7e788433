"""Threads of a step: by its work, and by the cores that are idle."""

import numpy as np
import pytest

from apportion.bags.bags import Bags
from apportion.plan import threads as module
from apportion.plan.choices import Choice
from apportion.plan.plan import make_plan
from apportion.plan.threads import threads_for, threads_of_steps
from tests.plan.planned_bags import bags_of

SHARE = Choice(0.0, "not asked for")


@pytest.mark.parametrize(
    ("n", "shape", "threads"),
    [(1_800, (64,), 1), (10_000, (20,), 1), (200_000, (20,), 4), (200_000, (400,), 6)],
)
def test_threads_follow_from_the_work_of_a_step(monkeypatch, n, shape, threads):
    """With one thread per core, 1,800 rows took over six times as long on 16 busy cores."""
    monkeypatch.setattr(module, "available_cores", lambda: 6)
    monkeypatch.setattr(module, "idle_cores", lambda: 6)
    plan = make_plan(bags_of(n, shape), validation=SHARE)
    assert plan.threads.value == threads
    assert plan.config({}).threads is None  # decided again when training begins
    assert plan.config({"threads": 3}).threads == 3


def test_steps_of_whole_bags_are_as_large_as_these(monkeypatch):
    """A plan says what training does, which counts the instances of a step in the same place."""
    for name in ("available_cores", "idle_cores"):
        monkeypatch.setattr(module, name, lambda: 16)
    x = np.broadcast_to(np.float32(0), (8_000, 20))
    bags = Bags.from_rows(x, np.arange(8_000) // 2_000, np.full((4, 2), 0.5))
    rows = {"instances": 64, "bags": 2_000}
    for unit, n in rows.items():
        plan = make_plan(bags, validation=SHARE, unit=unit)
        assert f"steps of {n:,} rows" in plan.threads.reason
        assert threads_of_steps(bags, unit, plan.config({})) == plan.threads
    for options, n in (({"bags_per_step": 2}, 4_000), ({"bags_per_step": 9}, 4_096)):
        plan = make_plan(bags, validation=SHARE, unit="bags", options=options)
        assert f"steps of {n:,} rows" in plan.threads.reason  # 4,096 go through the net at once


def test_steps_of_tables_are_shared_by_idle_cores_alone(monkeypatch):
    monkeypatch.setattr(module, "available_cores", lambda: 16)
    large, small = bags_of(200_000, (20,)), bags_of(300, (20,))
    for idle, threads in ((16, 4), (4, 4), (3, 3), (1, 1)):
        monkeypatch.setattr(module, "idle_cores", lambda idle=idle: idle)
        chosen = threads_for(large, 1024)
        assert chosen.value == threads
        assert ("idle" in chosen.reason) == (idle < 4)
    monkeypatch.setattr(module, "idle_cores", None)  # not asked for
    assert threads_for(small, 32).value == 1
    assert threads_for(bags_of(50, (1, 28, 28)), 50).value == 16
