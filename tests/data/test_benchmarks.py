"""Benchmarks: arrays as the files have them, and files that are refused."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from apportion.bags import Bags
from apportion.data import benchmarks
from apportion.data.benchmarks import Benchmark, DataError, digits, paper_bags


def refused(function, *arguments):
    with pytest.raises(DataError) as caught:
        function(*arguments)
    return str(caught.value)


# ------------------------------------------------------------------------------------------ digits


def test_digits_are_those_of_scikit_learn():
    data, (x, labels) = digits(), load_digits(return_X_y=True)
    assert data.x.dtype == data.x_test.dtype == np.float32
    assert data.labels.dtype == data.labels_test.dtype == np.int64
    assert data.x.shape == (1258, 64)
    assert data.x_test.shape == (539, 64)
    assert data.classes == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
    pairs = [(data.x, data.labels), (data.x_test, data.labels_test)]
    found = sorted(
        (own.tobytes(), label)
        for rows, own_labels in pairs
        for own, label in zip(rows, own_labels, strict=True)
    )
    whole = zip(x.astype(np.float32), labels, strict=True)
    assert found == sorted((row.tobytes(), label) for row, label in whole)


def test_digits_are_cut_at_random_by_the_seed():
    data, again, other = digits(test=0.1, seed=4), digits(test=0.1, seed=4), digits(test=0.1)
    assert len(data.x_test) == 180
    assert np.array_equal(data.x_test, again.x_test)
    assert np.array_equal(data.labels, again.labels)
    assert not np.array_equal(data.x_test, other.x_test)


@pytest.mark.parametrize("test", [0, 1, -0.1, 30, float("nan")])
def test_digits_refuse_a_share_that_leaves_nothing(test):
    with pytest.raises(DataError, match=rf"test is {test!r}\.\n.*between 0 and 1"):
        digits(test=test)


def test_repr_says_what_there_is():
    assert repr(digits()) == (
        "Benchmark(1,258 rows to train on, 539 to test on, 64 float32 each; 10 classes: 0, 1, …, 9)"
    )
    x, labels = np.zeros((2, 3, 4), np.uint8), np.array([0, 1])
    assert repr(Benchmark(x, labels, ("no", "yes"), x[:1], labels[:1])) == (
        "Benchmark(2 rows to train on, 1 to test on, 3 × 4 uint8 each; 2 classes: no, yes)"
    )


# ---------------------------------------------------------------------------------------- imports


def test_import_costs_no_reader_of_files():
    source = Path(benchmarks.__file__).parents[2]
    code = "import apportion.data.benchmarks, sys; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    loaded = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert {"apportion.data.benchmarks", "scipy.io", "scipy", "sklearn", "torch"} & {
        *loaded.split()
    } == {"apportion.data.benchmarks"}


def test_error_is_known_by_its_public_name():
    assert f"{DataError.__module__}.{DataError.__name__}" == "apportion.data.benchmarks.DataError"


# -------------------------------------------------------------------------------------- paper bags


@pytest.fixture
def bags_file(tmp_path):
    file = tmp_path / "bags.npz"
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for size in (16, 4, 128):
        for part, n_bags in (("train", 3), ("val", 2)):
            rows = [rng.permutation(60_000)[:size] for _ in range(n_bags)]
            arrays[f"{part}_{size}"] = np.array(rows, np.uint16)
    others: dict[str, Any] = {"train_8": arrays["train_16"][:, :8], "notes": np.arange(3)}
    np.savez(file, **arrays, **others)
    return file, arrays


def test_paper_bags_are_those_of_the_file(bags_file):
    file, arrays = bags_file
    for path in (file, str(file)):
        train, valid = paper_bags(path, 4)
        assert train.dtype == valid.dtype == np.int64
        assert train.tolist() == arrays["train_4"].tolist()
        assert valid.tolist() == arrays["val_4"].tolist()
    labels = np.arange(60_000) % 3
    assert Bags.from_members(labels, train, labels=labels).sizes.tolist() == [4, 4, 4]


@pytest.mark.parametrize("size", [8, 5, 0])
def test_paper_bags_list_the_sizes_that_are_there(bags_file, size):
    message = refused(paper_bags, bags_file[0], size)
    assert message.startswith(f"{bags_file[0]} has no bags of size {size}.")
    assert message.endswith("Pass one of its sizes: 4, 16, 128.")


def test_paper_bags_of_another_kind_of_archive(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.arange(3))
    assert "it has none" in refused(paper_bags, tmp_path / "other.npz", 4)


@pytest.mark.parametrize(
    "array", [np.zeros((3, 5), int), np.zeros(4, int), np.zeros((3, 4))], ids=str
)
def test_paper_bags_refuse_another_shape(tmp_path, array):
    np.savez(tmp_path / "bags.npz", train_4=np.zeros((3, 4), int), val_4=array)
    message = refused(paper_bags, tmp_path / "bags.npz", 4)
    assert (
        f"val_4 of {tmp_path / 'bags.npz'} is of shape {array.shape} and {array.dtype}" in message
    )
    assert "(bags, 4)" in message


def test_paper_bags_never_unpickle(tmp_path):
    np.savez(tmp_path / "bags.npz", train_4=np.array([{}], object), val_4=np.zeros((1, 4), int))
    message = refused(paper_bags, tmp_path / "bags.npz", 4)
    assert f"{tmp_path / 'bags.npz'} cannot be read" in message
    assert "allow_pickle=False" in message


@pytest.mark.parametrize("kind", ["missing", "text", "empty", "zip", "damaged", "npy"])
def test_paper_bags_refuse_another_file(tmp_path, kind):
    file = tmp_path / "bags.npz"
    contents = {"text": b"train_4", "empty": b"", "zip": b"PK\x03\x04 no archive"}
    if kind == "damaged":
        np.savez_compressed(file, train_4=np.arange(4000).reshape(-1, 4), val_4=np.eye(4))
        content = bytearray(file.read_bytes())
        content[100:120] = bytes(20)
        file.write_bytes(content)
    elif kind in contents:
        file.write_bytes(contents[kind])
    elif kind == "npy":
        with file.open("wb") as opened:
            np.save(opened, np.zeros((2, 4), int))
    message = refused(paper_bags, file, 4)
    assert message.startswith(f"{file} {'is missing' if kind == 'missing' else 'cannot be read'}")
    assert "train_S and val_S" in message
