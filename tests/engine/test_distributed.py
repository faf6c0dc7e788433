"""Ranks: who computes which rows, and what a process alone does."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.engine.distributed import ALONE, OF_TORCHRUN, Ranks, is_one_of_many, together
from apportion.errors import ConfigError


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


def test_a_variable_of_torchrun_that_is_no_number_is_refused(monkeypatch):
    for name in OF_TORCHRUN:
        monkeypatch.setenv(name, "many")
    with pytest.raises(ConfigError, match="WORLD_SIZE is 'many'"):
        is_one_of_many()
