"""Items of a Dataset in batches: the same whoever reads them, and processes that end."""

import multiprocessing
import os
import random
import signal
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from apportion.bags.items import Draw, Items
from apportion.engine.items import Itemwise, taken_by_name
from apportion.errors import DataError, RunError

CPU = torch.device("cpu")
ROWS = np.array([5, 0, 7, 7, 3, 1, 2])
SPANS = [(0, 3), (3, 5), (5, 7)]


class Noisy(Dataset):
    """Items of several types, with random numbers, that say which process has read them."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, row: int) -> Any:
        drawn = [random.random(), np.random.rand(), float(torch.rand(()))]  # noqa: NPY002
        return {"x": np.array([row, *drawn]), "id": row, "image": torch.full((2, 2), row).byte()}


class Named(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, row: int) -> int:
        return os.getpid()


class Ragged(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, row: int) -> torch.Tensor:
        return torch.zeros(row + 1)


def read(feed, draw=None):
    return [tuple(part.clone() for part in parts) for parts in feed.batches(ROWS, SPANS, draw)]


@pytest.fixture
def two_workers():
    feeds = []

    def made(dataset):
        feeds.append(Itemwise(Items(dataset), CPU, workers=2))
        return feeds[-1]

    yield made
    for feed in feeds:
        feed.close()


def test_workers_read_what_is_read_without_them(two_workers):
    here, there = Itemwise(Items(Noisy()), CPU), two_workers(Noisy())
    for draw in (Draw(3, 1), Draw(3, 2), None):
        for ours, theirs in zip(read(here, draw), read(there, draw), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_items_are_stacked_as_a_data_loader_stacks_them():
    (x, ids, images), *others = read(Itemwise(Items(Noisy()), CPU))
    assert [len(parts[0]) for parts in others] == [2, 2]
    assert (x.dtype, x.shape) == (torch.float32, (3, 4))
    assert (ids.dtype, ids.tolist()) == (torch.int64, [5, 0, 7])
    assert (images.dtype, images.shape) == (torch.uint8, (3, 2, 2))
    assert x[:, 0].tolist() == [5, 0, 7]


def test_batches_within_batches_are_read_too(two_workers):
    feed = two_workers(Noisy())
    for _ in range(2):
        outer = feed.batches(ROWS, SPANS)
        first = next(outer)
        inner = [parts[1].tolist() for parts in feed.batches(ROWS[::-1].copy(), SPANS)]
        assert inner == [[2, 1, 3], [7, 7], [0, 5]]
        rest = [parts[1].tolist() for parts in outer]
        assert [first[1].tolist(), *rest] == [[5, 0, 7], [7, 3], [1, 2]]


def test_workers_stay_until_they_are_closed(two_workers):
    feed = two_workers(Named())
    pids = [{pid for (part,) in read(feed) for pid in part.tolist()} for _ in range(2)]
    assert pids[0] == pids[1]
    assert os.getpid() not in pids[0]
    assert len(multiprocessing.active_children()) == 2
    feed.close()
    assert not multiprocessing.active_children()


def test_one_batch_needs_no_process(two_workers):
    feed = two_workers(Named())
    ((part,),) = feed.batches(ROWS, [(0, 7)])
    assert set(part.tolist()) == {os.getpid()}
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("workers", [0, 2])
def test_ragged_items_are_named_whoever_reads_them(workers):
    feed = Itemwise(Items(Ragged()), CPU, workers)
    problem = r"item 5 of the Dataset is of shape \(6,\), but item 0 of shape \(1,\)"
    with pytest.raises(DataError, match=problem):
        read(feed)
    feed.close()


class Fragile(Noisy):
    """Items of which one cannot be read: by an error, or by a process that is killed."""

    def __init__(self, how: str) -> None:
        self.how, self.reader = how, os.getpid()

    def __getitem__(self, row: int) -> Any:
        if row == 3 and self.how == "error":
            raise OSError("no such file")
        if row == 3 and os.getpid() != self.reader:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(row)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_item_that_cannot_be_read_is_named(workers):
    feed = Itemwise(Items(Fragile("error")), CPU, workers=workers)
    with pytest.raises(OSError, match="no such file") as caught:
        read(feed)
    feed.close()
    told = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert "item 3 of the Dataset" in told


def test_a_worker_that_is_killed_is_told_with_the_remedy(two_workers):
    with pytest.raises(RunError, match=r"(?s)ended from outside.*last checkpoint.*Fewer workers"):
        read(two_workers(Fragile("kill")))


def test_reading_draws_nothing_from_the_run(two_workers):
    torch.manual_seed(3)
    wanted = torch.rand(2)
    for feed in (Itemwise(Items(Noisy()), CPU), two_workers(Noisy())):
        torch.manual_seed(3)
        read(feed, Draw(0, 1))
        assert torch.equal(torch.rand(2), wanted)


# ------------------------------------------------------------------------------- names of parts


class Keywords(nn.Module):
    def forward(self, *, a, b=None):
        return a - b


def test_a_net_takes_named_parts_as_keywords_within_the_block_alone():
    net, one, two = Keywords(), torch.ones(1), torch.full((1,), 2.0)
    with taken_by_name(net, ("b", "a")):
        assert net(one, two).item() == 1
        assert net(a=one, b=two).item() == -1
        with taken_by_name(net, ("b", "a")):  # as another thread
            assert net(one, two).item() == 1
    with pytest.raises(TypeError):
        net(one, two)
    with taken_by_name(net, None), pytest.raises(TypeError):
        net(one, two)


def test_nets_of_this_library_take_parts_by_position():
    net = nn.Identity()
    net.recipe = {"net": "mlp"}  # type: ignore[assignment]
    with taken_by_name(net, ("x",)):
        assert net(torch.ones(1)).item() == 1
