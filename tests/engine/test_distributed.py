"""Ranks: who computes which rows, and what a process alone does."""

from datetime import timedelta
from socket import socket

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.engine import distributed
from apportion.engine.distributed import (
    ALONE,
    OF_TORCHRUN,
    Ranks,
    is_one_of_many,
    lost,
    speaks_for_all,
    together,
)
from apportion.errors import ConfigError, RunError, count


@given(st.integers(1, 60), st.integers(0, 9), st.integers(1, 9))
def test_every_row_counts_once_and_all_ranks_compute_two_at_least(n, first, world):
    rows = slice(first, first + n)
    counted: list[int] = []
    for rank in range(world):
        ranks = Ranks(rank, world)
        own = ranks.share(rows)
        assert rows.start <= own.start < own.stop <= rows.stop
        assert own.stop - own.start >= min(n, 2)
        assert ranks.counted(rows) in (0, own.stop - own.start)
        counted += range(own.start, own.start + ranks.counted(rows))
    assert counted == [*range(rows.start, rows.stop)]


@given(st.integers(1, 10**6), st.integers(2, 64))
def test_shares_are_of_almost_equal_size(n, world):
    sizes = [Ranks(rank, world).counted(slice(0, n)) for rank in range(world)]
    busy = [size for size in sizes if size]
    assert max(busy) - min(busy) <= 1
    assert len(busy) == world or n < 2 * world


def test_the_first_of_a_machine_is_told_by_the_number_there(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert Ranks(5, 8).first_here == 5  # each reads for itself
    for rank, here, first in ((0, 0, 0), (3, 3, 0), (4, 0, 4), (6, 2, 4)):
        monkeypatch.setenv("LOCAL_RANK", str(here))
        assert Ranks(rank, 8).first_here == first


def test_a_process_alone_gets_back_what_it_has_itself():
    x = torch.arange(3.0)
    assert ALONE.total(x) is x
    assert ALONE.gathered(x) is x
    assert ALONE.by_first(lambda: x) is x
    assert ALONE.told(x) is x
    ALONE.sum_([x])
    ALONE.as_of(0, [x])
    ALONE.wait()
    assert x.tolist() == [0, 1, 2]
    assert ALONE.leads
    assert not ALONE.are_several


@pytest.mark.parametrize("missing", [*OF_TORCHRUN, None])
def test_a_process_that_torchrun_did_not_start_is_alone(monkeypatch, missing):
    values = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    values |= {"WORLD_SIZE": "2"} if missing else {}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    if missing:
        monkeypatch.delenv(missing)
    assert not is_one_of_many()
    with together("cpu") as ranks:
        assert ranks is ALONE


def test_what_the_others_wait_for_the_first_does_alone(monkeypatch):
    for name, value in zip(OF_TORCHRUN, ("0", "2", "localhost", "1"), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Ranks, "told", lambda self, value, rank=0: value)
    assert is_one_of_many()
    assert Ranks(0, 2).by_first(is_one_of_many) is False
    assert is_one_of_many()
    with pytest.raises(ZeroDivisionError):
        Ranks(0, 2).by_first(lambda: 1 / 0)
    assert is_one_of_many()


def of_torchrun(monkeypatch, *values):
    for name, value in zip(OF_TORCHRUN, map(str, values), strict=True):
        monkeypatch.setenv(name, value)


def test_a_process_that_waits_for_others_that_do_not_come_says_so(monkeypatch, caplog):
    monkeypatch.setattr(distributed, "TO_CONNECT", 0.1)
    monkeypatch.setattr(distributed, "LONGEST", timedelta(seconds=1))
    with socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    of_torchrun(monkeypatch, 0, 2, "localhost", port)
    with pytest.raises(RunError, match="process 0 of 2 cannot reach the others"):
        together("cpu").__enter__()
    (message,) = caplog.messages
    assert message.startswith("Process 0 waits for the others: there are 2, by the environment")


def test_a_rank_that_is_none_of_the_world_is_refused(monkeypatch):
    of_torchrun(monkeypatch, 2, 2, "localhost", 1)
    with pytest.raises(ConfigError, match="RANK is 2, but WORLD_SIZE 2"):
        together("cpu").__enter__()


@pytest.mark.parametrize(("gpus", "fewer"), [(0, ""), (1, "--nproc_per_node=1 to torchrun, or ")])
def test_more_processes_than_gpus_are_refused(monkeypatch, gpus, fewer):
    of_torchrun(monkeypatch, 1, 2, "localhost", 1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    with pytest.raises(ConfigError) as raised:
        together("cuda").__enter__()
    problem, remedy = raised.value.worded(lambda option: option.flag).splitlines()
    assert problem == f"torch sees {count(gpus, 'GPU')} on this machine, for 4 processes."
    assert remedy.strip() == f"Pass {fewer}--device cpu."


def test_ranks_that_cannot_ask_each_other_tell_of_their_own_errors(monkeypatch):
    """As where another program than torchrun has started them."""
    for rank in (0, 1):
        of_torchrun(monkeypatch, rank, 2, "localhost", 1)
        monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
        assert speaks_for_all(ConfigError("the disk is full."))
        assert speaks_for_all(lost(2)) == (rank == 0)


def test_a_variable_of_torchrun_that_is_no_number_is_refused(monkeypatch):
    for name in OF_TORCHRUN:
        monkeypatch.setenv(name, "many")
    with pytest.raises(ConfigError, match="WORLD_SIZE is 'many'"):
        is_one_of_many()
