"""Rows on a device or on their way to it: the same batches, and a reader that leaves no trace."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.engine import feed as module
from apportion.engine.feed import AHEAD, Feed, Resident, Streamed, readable_part
from apportion.errors import BagError

CPU = torch.device("cpu")
ROWS = 7
PATIENCE = 20  # seconds until a test that waits for another thread is given up
KINDS: list[Any] = [Resident, Streamed]


def stored(dtype: Any, *shape: int) -> Any:
    """Rows that all differ, but for those of a type of few values."""
    numbers = np.random.default_rng(0).normal(0, 50, (ROWS, *shape))
    return (numbers > 0) if dtype is np.bool_ else numbers.astype(dtype)


STORED: dict[str, Any] = {
    "float64": stored(np.float64, 3),
    "float32": stored(np.float32, 3),
    "float16": stored(np.float16, 3),
    "uint8": np.arange(2 * ROWS, dtype=np.uint8).reshape(ROWS, 2) * 17,
    "bool": stored(np.bool_, 4),
    "int64": stored(np.int64, 2),
    "single numbers": stored(np.int32),
    "images": stored(np.float32, 2, 3, 4),
    "tensor of bfloat16": torch.from_numpy(stored(np.float32, 3)).bfloat16(),
    "tensor of float64": torch.from_numpy(stored(np.float64, 3)),
    "tensor with strides": torch.from_numpy(stored(np.float32, 3, 6))[:, :, ::2],
}


def feed_of(kind: Any, *x: Any) -> Feed:
    feed: Feed = kind(tuple(map(readable_part, x)), CPU)
    return feed


def wanted(x: Any, rows: Any) -> torch.Tensor:
    """Rows by plain indexing: float64 as float32, and everything else as it is."""
    taken = x[torch.from_numpy(rows)] if isinstance(x, torch.Tensor) else torch.from_numpy(x[rows])
    return taken.to(torch.float32) if taken.dtype == torch.float64 else taken


def identical(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def readers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("apportion-reader")]


@pytest.fixture(autouse=True)
def no_reader_is_left() -> Iterator[None]:
    yield
    assert not readers()


@st.composite
def rows_and_spans(draw: Any) -> tuple[Any, list[tuple[int, int]]]:
    """Rows in any order, any number of times; spans of them, from none to more than are ahead."""
    rows = np.array(draw(st.lists(st.integers(0, ROWS - 1), max_size=20)), np.int64)
    ends = st.integers(0, len(rows))
    spans = st.lists(st.tuples(ends, ends).map(lambda ends: (min(ends), max(ends))), max_size=9)
    return rows, draw(spans)


# -------------------------------------------------------------------------------- the same batches


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STORED)
@given(drawn=rows_and_spans())
@settings(max_examples=20, deadline=None)
def test_a_batch_is_the_rows_of_its_span(name, kind, drawn):
    (rows, spans), x = drawn, STORED[name]
    found = list(feed_of(kind, x).batches(rows, spans))
    assert len(found) == len(spans)
    for (part,), (first, end) in zip(found, spans, strict=True):
        assert identical(part, wanted(x, rows[first:end]))


@pytest.mark.parametrize("kind", KINDS)
@given(drawn=rows_and_spans())
@settings(max_examples=20, deadline=None)
def test_every_part_comes_in_its_own_type(kind, drawn):
    (rows, spans), x = drawn, tuple(STORED.values())
    for parts, (first, end) in zip(feed_of(kind, *x).batches(rows, spans), spans, strict=True):
        assert len(parts) == len(x)
        assert all(identical(p, wanted(s, rows[first:end])) for p, s in zip(parts, x, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_mapped_file_is_read_where_it_lies(kind, mode, tmp_path):
    x = stored(np.float64, 2, 2)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode=mode)
    feed = feed_of(kind, mapped)
    assert feed.parts[0].data_ptr() == mapped.ctypes.data
    rows = np.array([3, 6, 0, 3, 1])
    first, second = feed.batches(rows, [(0, 2), (1, 5)])
    assert identical(first[0], wanted(x, rows[:2]))
    assert identical(second[0], wanted(x, rows[1:]))


@pytest.mark.parametrize("kind", KINDS)
def test_spans_may_come_from_a_generator(kind):
    rows = np.arange(ROWS)
    spans = ((first, first + 1) for first in range(ROWS))
    found = list(feed_of(kind, STORED["float32"]).batches(rows, spans))
    assert torch.equal(torch.cat([part for (part,) in found]), wanted(STORED["float32"], rows))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["float32", "tensor of bfloat16", "uint8"])
def test_a_batch_may_be_changed_in_place(name, kind):
    x, rows = STORED[name], np.arange(ROWS)
    before = wanted(x, rows).clone()
    feed, spans = feed_of(kind, x), [(0, ROWS)] * (AHEAD + 3)
    for (part,) in feed.batches(rows, spans):
        assert identical(part, before)  # that of another batch was changed already
        part.zero_()
    assert identical(wanted(x, rows), before)


# -------------------------------------------------------------------------------------- the reader


class Watch:
    """What the reader has read, and from which threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, breaks_at: int | None = None) -> None:
        self.done, self.threads = threading.Condition(), list[threading.Thread]()
        read = module._taken

        def watched(*arguments: Any, **options: Any) -> torch.Tensor:
            if len(self.threads) == breaks_at:
                raise OSError("the disk is gone")
            with self.done:
                self.threads.append(threading.current_thread())
                self.done.notify_all()
            return read(*arguments, **options)

        monkeypatch.setattr(module, "_taken", watched)

    def has_read(self, n: int) -> bool:
        """Wait until so many batches were read."""
        with self.done:
            return self.done.wait_for(lambda: len(self.threads) >= n, PATIENCE)


def test_the_reader_is_ahead_but_not_far(monkeypatch):
    watch, asked = Watch(monkeypatch), list[int]()

    def spans() -> Iterator[tuple[int, int]]:
        for first in range(30):
            asked.append(first)
            yield first, first + 1

    rows = np.arange(30) % ROWS
    batches = feed_of(Streamed, STORED["float32"]).batches(rows, spans())
    for used in range(1, 31):
        next(batches)
        assert watch.has_read(min(used + AHEAD, 30))  # while the consumer is busy with its batch
        assert len(watch.threads) <= len(asked) <= used + AHEAD
    assert next(batches, None) is None
    assert len(watch.threads) == 30


def test_batches_are_read_by_one_thread_that_is_not_the_consumers(monkeypatch):
    watch = Watch(monkeypatch)
    list(feed_of(Streamed, STORED["float32"]).batches(np.arange(ROWS), [(0, 2)] * 9))
    assert len(set(watch.threads)) == 1
    assert watch.threads[0] is not threading.current_thread()


def test_nothing_is_read_before_it_is_asked_for(monkeypatch):
    watch = Watch(monkeypatch)
    batches = feed_of(Streamed, STORED["float32"]).batches(np.arange(ROWS), [(0, 2)] * 9)
    assert not readers()
    next(batches)
    assert len(readers()) == 1
    assert watch.has_read(1)
    batches.close()  # type: ignore[attr-defined]


def test_the_reader_is_gone_once_all_is_read():
    batches = feed_of(Streamed, STORED["float32"]).batches(np.arange(ROWS), [(0, 2)] * 9)
    assert len(list(batches)) == 9
    assert not readers()


@pytest.mark.parametrize("used", [1, 2, 8])
def test_the_reader_is_gone_once_the_consumer_has_enough(used):
    batches: Any = feed_of(Streamed, STORED["float32"]).batches(np.arange(ROWS), [(0, 2)] * 9)
    for _ in range(used):
        next(batches)
    batches.close()
    assert not readers()


def test_the_reader_is_gone_after_an_error_of_the_consumer():
    def consume() -> None:
        for _ in feed_of(Streamed, STORED["float32"]).batches(np.arange(ROWS), [(0, 2)] * 9):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        consume()
    assert not readers()


@pytest.mark.parametrize("good", [0, 1, 5])
def test_an_error_of_the_reader_comes_out_where_its_batch_would(good, monkeypatch):
    Watch(monkeypatch, breaks_at=good)
    x, rows = STORED["float32"], np.arange(ROWS)
    batches = feed_of(Streamed, x).batches(rows, [(0, 2)] * 9)
    for _ in range(good):
        assert identical(next(batches)[0], wanted(x, rows[:2]))
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)
    assert not readers()
    assert next(batches, None) is None


def test_two_consumers_of_one_feed_do_not_meet():
    x, rows = STORED["int64"], np.array([5, 1, 4, 2, 0, 3])
    feed = feed_of(Streamed, x)
    one = feed.batches(rows, [(i, i + 1) for i in range(6)])
    other = feed.batches(rows[::-1], [(i, i + 1) for i in range(6)])
    for i, ((ours,), (theirs,)) in enumerate(zip(one, other, strict=True)):
        assert identical(ours, wanted(x, rows[i : i + 1]))
        assert identical(theirs, wanted(x, rows[::-1][i : i + 1].copy()))


# ------------------------------------------------------------------------------- arrays as tensors


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (np.longdouble, torch.float64),
        (">f8", torch.float64),
        (">i8", torch.int64),
        (">u2", torch.uint16),
        (np.float16, torch.float16),
    ],
)
def test_numbers_that_torch_has_under_another_name_are_taken(given, taken):
    x = np.arange(12).reshape(6, 2).astype(given)
    part = readable_part(x)
    assert part.dtype == taken
    assert part.tolist() == x.tolist()


def test_an_array_that_torch_can_read_is_not_copied():
    x = np.arange(12.0).reshape(6, 2)
    x.flags.writeable = False
    assert readable_part(x).data_ptr() == x.ctypes.data
    tensor = torch.arange(3.0, requires_grad=True)
    assert readable_part(tensor).data_ptr() == tensor.data_ptr()
    assert not readable_part(tensor).requires_grad


def test_a_list_of_lists_is_an_array_too():
    assert readable_part([[1.5, 2.0], [3.0, 4.0]]).tolist() == [[1.5, 2], [3, 4]]


@pytest.mark.parametrize("x", [np.array(["a"]), np.zeros(2, complex), np.array([None])])
def test_what_is_no_number_is_refused_by_its_type(x):
    with pytest.raises(BagError, match=rf"x is of type {x.dtype}.*\n  Encode it as numbers"):
        readable_part(x)
