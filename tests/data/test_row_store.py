"""Tables that are larger than memory: mapped files, which are kept or removed, and nothing else."""

import errno
import gc
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from apportion.data import _row_store as row_store
from apportion.data import pieces
from apportion.data.encoding import encode, learn_columns
from apportion.data.tables import read_table
from apportion.errors import DataError
from tests.data.wards import same, wards


@pytest.fixture
def small_pieces(monkeypatch):
    """Read pieces of three rows, of five columns each."""
    monkeypatch.setattr(pieces, "CELLS", 15)


def test_a_store_holds_mapped_files_that_numpy_can_read(tmp_path, small_pieces):
    rows, table = wards()
    options = {"bag": "ward", "proportions": table, "label": "sick"}
    store = tmp_path / "some/store"
    kept = read_table(rows, **options, store=store)
    same(kept, read_table(rows, **options))
    assert all(isinstance(part, np.memmap) for part in kept.x)
    assert sorted(path.name for path in store.iterdir()) == ["codes.npy", "numbers.npy"]
    np.testing.assert_array_equal(np.load(store / "numbers.npy"), kept.x[0])
    before = (store / "numbers.npy").read_bytes()
    with pytest.raises(DataError, match=r"has 2 files already, such as codes.npy"):
        read_table(rows, **options, store=store)
    assert (store / "numbers.npy").read_bytes() == before
    del kept
    gc.collect()
    assert (store / "numbers.npy").read_bytes() == before


def test_a_store_is_left_as_it_was_if_rows_cannot_be_encoded(tmp_path, small_pieces):
    rows, table = wards()
    bad = rows.assign(dose=rows["dose"].where(rows.index != 50, np.inf))
    (tmp_path / "empty").mkdir()
    options = {"bag": "ward", "proportions": table, "columns": learn_columns(rows[["dose"]])}
    for name in ("new", "empty"):
        with pytest.raises(DataError, match="rows: column 'dose' is inf in row 50 "):
            read_table(bad, **options, store=tmp_path / name)
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_store_without_room_is_refused_before_it_is_written(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    rows, table = wards()
    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    with pytest.raises(
        DataError, match=r"store .*/new cannot be used: No space left(.|\n)*1,440 b"
    ):
        read_table(
            rows[["ward", "age", "dose"]].assign(
                b=range(60), c=range(60, 0, -1), d=np.sqrt(range(60))
            ),
            bag="ward",
            proportions=table,
            store=tmp_path / "new",
        )
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"store .*/file is a file"):
        read_table(rows, bag="ward", proportions=table, store=tmp_path / "file")


def test_large_tables_go_to_a_temporary_folder_that_is_removed(
    tmp_path, small_pieces, monkeypatch, caplog
):
    monkeypatch.setattr(row_store, "IN_MEMORY", 100)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows, table = wards()
    with caplog.at_level(logging.INFO, "apportion"):
        read = read_table(rows, bag="ward", proportions=table, label="sick")
    (folder,) = tmp_path.iterdir()
    assert str(folder) in caplog.text
    bags = read[[0]]
    assert read.columns is not None
    expected = encode(read.columns, rows)[0].copy()
    del read
    gc.collect()
    assert folder.exists()  # some of its rows are still in use
    np.testing.assert_array_equal(bags.x[0], expected)
    del bags
    gc.collect()
    assert list(tmp_path.iterdir()) == []


LARGE = """
import sys, threading, time
import numpy as np, pandas as pd, pyarrow as pa, pyarrow.parquet as pq

folder, n, n_bags = sys.argv[1], 5_000_000, 10_000
if sys.argv[2] == "write":
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(f"{folder}/rows.parquet", pa.schema(
        [("bag", pa.int64()), *((f"x{j}", pa.float64()) for j in range(20))]
    )) as writer:
        for _ in range(5):
            columns = {f"x{j}": rng.normal(size=n // 5) for j in range(20)}
            bags = np.append(rng.integers(n_bags, size=n // 5 - n_bags), np.arange(n_bags))
            writer.write_table(pa.table({"bag": bags, **columns}), row_group_size=n)
    table = pd.DataFrame(rng.dirichlet(np.ones(3), size=n_bags), columns=["a", "b", "c"])
    table.rename_axis("bag").to_csv(f"{folder}/proportions.csv")
else:
    from apportion.data.tables import read_table
    most, ended = [0], threading.Event()
    def watch():  # without pages of files, which the system frees where memory is short
        while not ended.wait(0.01):
            (anonymous,) = [s for s in open("/proc/self/status") if s.startswith("RssAnon")]
            most.append(int(anonymous.split()[1]))
    threading.Thread(target=watch, daemon=True).start()
    start = time.perf_counter()
    table = read_table(
        f"{folder}/rows.parquet", bag="bag", proportions=f"{folder}/proportions.csv"
    )
    assert table.x.shape == (n, 20) and table.n_bags == n_bags
    assert "torch" not in sys.modules
    ended.set()
    print(time.perf_counter() - start, max(most) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at memory in /proc")
def test_five_million_rows_take_little_memory_and_time(tmp_path):
    def run(what):
        command = [sys.executable, "-c", LARGE, str(tmp_path), what]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    run("write")
    seconds, gib = map(float, run("read").split())
    assert seconds < 60
    assert gib < 1
