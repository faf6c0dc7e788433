"""Benchmarks: arrays as the files have them, and files that are refused."""

import hashlib
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from apportion.bags import Bags
from apportion.data import benchmarks
from apportion.data.benchmarks import Benchmark, DataError, cifar10, digits, paper_bags

TRAIN = [f"data_batch_{i}.bin" for i in range(1, 6)]
ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"


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


# ---------------------------------------------------------------------------------------- CIFAR-10


def write_cifar10(folder, n_train=(3, 1, 2, 4, 2), n_test=3):
    """Write files of the official format byte by byte; give their images as (row, column, RGB)."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = [], []
    for name, n in zip([*TRAIN, "test_batch.bin"], [*n_train, n_test], strict=True):
        content = bytearray()
        for _ in range(n):
            image = rng.integers(0, 256, (32, 32, 3), np.uint8)
            images.append(image)
            labels.append(int(rng.integers(10)))
            content.append(labels[-1])
            for channel in range(3):
                for row in range(32):
                    content += bytes(image[row, column, channel] for column in range(32))
        (folder / name).write_bytes(content)
    return images, labels


@pytest.fixture
def folder(tmp_path):
    write_cifar10(tmp_path)
    return tmp_path


@pytest.mark.parametrize("place", ["", "cifar-10-batches-bin"])
@pytest.mark.parametrize("passed", ["path", "text", "variable"])
def test_cifar10_is_read_bit_by_bit(tmp_path, monkeypatch, place, passed):
    images, labels = write_cifar10(tmp_path / place)
    monkeypatch.setenv("APPORTION_DATA", str(tmp_path if passed == "variable" else "nowhere"))
    data = cifar10({"path": tmp_path, "text": str(tmp_path), "variable": None}[passed])
    assert data.x.shape == (12, 3, 32, 32)
    assert data.x_test.shape == (3, 3, 32, 32)
    assert data.x.dtype == data.x_test.dtype == np.uint8
    assert data.labels.dtype == data.labels_test.dtype == np.int64
    assert data.x.flags.c_contiguous
    assert data.x_test.flags.c_contiguous
    for read, image in zip([*data.x, *data.x_test], images, strict=True):
        for channel in range(3):
            assert np.array_equal(read[channel], image[:, :, channel])
    assert [*data.labels, *data.labels_test] == labels
    assert " ".join(data.classes) == ("airplane automobile bird cat deer dog frog horse ship truck")


def test_cifar10_prefers_the_folder_that_has_all_files(tmp_path):
    _, labels = write_cifar10(tmp_path / "cifar-10-batches-bin")
    (tmp_path / "test_batch.bin").write_bytes(b"something else")
    assert cifar10(tmp_path).labels_test.tolist() == labels[-3:]


def test_cifar10_finds_the_home_folder(tmp_path, monkeypatch):
    write_cifar10(tmp_path / "images")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert len(cifar10("~/images").x) == 12


def test_cifar10_names_the_file_that_is_missing(folder):
    (folder / "data_batch_4.bin").unlink()
    message = refused(cifar10, folder)
    assert message.startswith("data_batch_4.bin is missing (1 of 6 files are).")
    assert f"looked in: {folder}, {folder / 'cifar-10-batches-bin'}" in message
    assert ADDRESS in message
    assert "APPORTION_DATA" in message


@pytest.mark.parametrize("value", [None, ""])
def test_cifar10_without_a_folder_says_how_to_name_one(monkeypatch, value):
    monkeypatch.delenv("APPORTION_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("APPORTION_DATA", value)
    message = refused(cifar10)
    assert message.startswith("data_batch_1.bin is missing: no folder is given")
    assert "APPORTION_DATA is not set" in message
    assert ADDRESS in message


def test_cifar10_looks_where_the_variable_points(tmp_path, monkeypatch):
    monkeypatch.setenv("APPORTION_DATA", str(tmp_path / "nowhere"))
    message = refused(cifar10)
    assert message.startswith("data_batch_1.bin is missing (6 of 6 files are).")
    assert str(tmp_path / "nowhere") in message


@pytest.mark.parametrize("n_bytes", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_cifar10_refuses_a_file_of_the_wrong_size(folder, n_bytes):
    (folder / "data_batch_2.bin").write_bytes(bytes(n_bytes))
    message = refused(cifar10, folder)
    assert message.startswith(f"{folder / 'data_batch_2.bin'} has {n_bytes:,} bytes")
    assert "records of 3,073 bytes" in message
    assert f"Download it again, in its binary version: {ADDRESS}" in message


@pytest.mark.parametrize("label", [10, 255])
def test_cifar10_refuses_a_label_that_is_no_class(folder, label):
    content = bytearray((folder / "test_batch.bin").read_bytes())
    content[2 * 3073] = label
    (folder / "test_batch.bin").write_bytes(content)
    message = refused(cifar10, folder)
    assert f"{folder / 'test_batch.bin'} has a label of {label} in record 2;" in message
    assert ADDRESS in message


def test_cifar10_checks_the_sum_of_a_file_of_official_size(folder, monkeypatch):
    content = bytes(10_000 * 3073)
    (folder / "data_batch_3.bin").write_bytes(content)
    message = refused(cifar10, folder)
    digest = hashlib.sha1(content).hexdigest()
    assert message.startswith(f"{folder / 'data_batch_3.bin'} has the SHA-1 {digest};")
    assert "official file is 1dd00a74ab1d17a6e7d73e185b69dbf31242f295" in message
    assert ADDRESS in message
    sums = {**benchmarks.CIFAR10_SHA1, "data_batch_3.bin": digest}
    monkeypatch.setattr(benchmarks, "CIFAR10_SHA1", sums)
    assert len(cifar10(folder).x) == 10_000 + 10


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
