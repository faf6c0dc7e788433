"""Bags that processes share: what one writes is what the others map."""

import datetime
import json

import numpy as np
import pytest

from apportion.bags.bags import Bags
from apportion.data.tables import read_sets
from apportion.engine import shared
from apportion.errors import DataError
from tests.data.wards import same, wards


def through(folder, read):
    """Return the bags that a process writes, as another maps them."""
    shared._store(folder / "new", read)
    return shared._mapped(folder / "new")


def test_what_is_mapped_is_what_was_read(tmp_path):
    rows, table = wards()
    options = {"bag": "ward", "proportions": table, "label": "sick", "validation": 0.4}
    found = through(tmp_path, lambda store: read_sets(rows, store=store, **options))
    known = read_sets(rows, **options)
    assert list(found) == list(known) == ["train", "valid"]
    for name, bags in known.items():
        same(found[name], bags)
        assert found[name].columns == bags.columns
        assert repr((found[name].ids, found[name].classes)) == repr((bags.ids, bags.classes))
    first, second = found["train"].parts, found["valid"].parts
    assert all(own is other for own, other in zip(first, second, strict=True))
    assert isinstance(first[0], np.memmap)
    assert isinstance(found["train"].index, np.memmap)


def test_rows_that_reading_has_stored_are_not_written_again(tmp_path):
    rows, table = wards()
    options = {"bag": "ward", "proportions": table, "label": "sick"}
    through(tmp_path, lambda store: read_sets(rows, store=store, **options))
    about = json.loads((tmp_path / "new/about.json").read_text())
    assert about["train"]["x"] == ["rows/numbers.npy", "rows/codes.npy"]
    assert not {"0.npy", "1.npy"} & {path.name for path in (tmp_path / "new").iterdir()}


@pytest.mark.parametrize(
    "x",
    [
        np.arange(12.0).reshape(4, 3)[:, 1:],
        (np.zeros((4, 0), np.float32), np.arange(4, dtype=np.int16)[:, None]),
        np.arange(4, dtype=">u2"),
    ],
)
def test_rows_of_any_form_can_be_mapped(tmp_path, x):
    bags = Bags.from_rows(x, [2, 1, 2, 1], truth=["a", "b", "a", "a"])[::-1]
    found = through(tmp_path, lambda _: {"train": bags})["train"]
    same(found, bags)
    assert isinstance(found.x, tuple) == isinstance(x, tuple)


@pytest.mark.parametrize(
    ("x", "name"), [(np.zeros(2), datetime.date(2020, 1, 1)), (None, "a"), (np.zeros(2), ("a", 1))]
)
def test_what_cannot_be_written_is_left_to_every_process(tmp_path, x, name):
    bags = Bags.from_rows(x, [name, name], truth=[0, 1])
    assert through(tmp_path, lambda _: {"train": bags}) is None


def test_a_folder_that_cannot_be_written_is_one_message(tmp_path):
    (tmp_path / "new").touch()
    with pytest.raises(DataError, match=r"which processes share, cannot be written"):
        shared._store(tmp_path / "new", lambda _: {})


def test_a_process_alone_reads_and_stores_nothing():
    given = []

    def read(store):
        given.append(store)
        return {}

    assert shared.read_once(read) == {}
    assert given == [None]
