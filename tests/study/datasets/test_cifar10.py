"""CIFAR-10: images as the files of either version have them, and files that are refused."""

import hashlib
import os
import pickle
import struct
import warnings
from itertools import product

import numpy as np
import pytest

from apportion.errors import DataError
from apportion.study.datasets import cifar10 as reader
from apportion.study.datasets.benchmarks import cifar10

PYTHON_NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
BINARY_NAMES = [f"{name}.bin" for name in PYTHON_NAMES]
BINARY_ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
PYTHON_ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
FOLDERS = {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"}


def refused(folder=None):
    with pytest.raises(DataError) as caught:
        cifar10(folder)
    return str(caught.value)


def image_bytes(image):
    """Return the bytes of an image (row, column, RGB) in the official order, one by one."""
    places = product(range(3), range(32), range(32))
    return bytes(image[row, column, channel] for channel, row, column in places)


def python_2(rows, labels):
    """Return what Python 2 wrote with protocol 2: its opcodes and its names of numpy's parts."""

    def text(content):
        n = len(content)
        return (b"U" + bytes([n]) if n < 256 else b"T" + struct.pack("<i", n)) + content

    def whole(number):
        return b"J" + struct.pack("<i", number)

    dtype = (
        b"cnumpy\ndtype\nq\x03" + text(b"u1") + b"K\x00K\x01\x87Rq\x04"
        b"(K\x03" + text(b"|") + b"NNN" + whole(-1) + whole(-1) + b"K\x00tb"
    )
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85"
        + text(b"b") + b"\x87R(K\x01" + whole(len(rows)) + whole(len(rows[0])) + b"\x86"
        + dtype + b"\x89" + text(b"".join(rows)) + b"tb"
    )  # fmt: skip
    return (
        b"\x80\x02}q\x00(" + text(b"batch_label") + text(b"training batch 1 of 5")
        + text(b"data") + array
        + text(b"labels") + b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
        + text(b"filenames") + b"](" + b"".join(text(b"image.png") for _ in labels) + b"e"
        + b"u."
    )  # fmt: skip


def python_3(rows, labels):
    data = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
    return pickle.dumps({"data": data, "labels": labels, "batch_label": "training batch"})


def binary(rows, labels):
    return b"".join(bytes([label]) + row for label, row in zip(labels, rows, strict=True))


FORMATS = {"binary": binary, "python": python_2, "python 3": python_3}


def write_cifar10(folder, form="binary", counts=(3, 1, 2, 4, 2, 3)):
    """Write files of an official format; give their images as (row, column, RGB), and labels."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = [], []
    for name, n in zip(BINARY_NAMES if form == "binary" else PYTHON_NAMES, counts, strict=True):
        own = rng.integers(0, 256, (n, 32, 32, 3), np.uint8)
        own_labels = rng.integers(10, size=n).tolist()
        (folder / name).write_bytes(FORMATS[form]([image_bytes(i) for i in own], own_labels))
        images += [*own]
        labels += own_labels
    return images, labels


@pytest.fixture
def binary_folder(tmp_path):
    write_cifar10(tmp_path)
    return tmp_path


@pytest.fixture
def python_folder(tmp_path):
    write_cifar10(tmp_path, "python")
    return tmp_path


# ---------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("unpacked", [False, True])
@pytest.mark.parametrize("passed", ["path", "text", "variable"])
def test_images_are_read_bit_by_bit(tmp_path, monkeypatch, form, unpacked, passed):
    place = tmp_path / FOLDERS[form.split()[0]] if unpacked else tmp_path
    images, labels = write_cifar10(place, form)
    monkeypatch.setenv("APPORTION_DATA", str(tmp_path if passed == "variable" else "nowhere"))
    data = cifar10({"path": tmp_path, "text": str(tmp_path), "variable": None}[passed])
    assert data.x.shape == (12, 3, 32, 32)
    assert data.x_test.shape == (3, 3, 32, 32)
    for x, own_labels in ((data.x, data.truth), (data.x_test, data.truth_test)):
        assert x.dtype == np.uint8
        assert own_labels.dtype == np.int64
        assert x.flags.c_contiguous
        assert x.flags.writeable
    for read, image in zip([*data.x, *data.x_test], images, strict=True):
        for channel in range(3):
            assert np.array_equal(read[channel], image[:, :, channel])
    assert [*data.truth, *data.truth_test] == labels
    assert " ".join(data.classes) == ("airplane automobile bird cat deer dog frog horse ship truck")


def test_the_pickles_of_these_tests_are_those_of_python_2(python_folder):
    content = (python_folder / "data_batch_1").read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy.core has a new name, which old files do not know
        batch = pickle.loads(content, encoding="bytes")  # noqa: S301 - to see that it is a pickle
    assert sorted(batch) == [b"batch_label", b"data", b"filenames", b"labels"]
    assert batch[b"data"].shape == (3, 3072)
    assert batch[b"data"].dtype == np.uint8
    assert np.array_equal(batch[b"data"].ravel(), cifar10(python_folder).x[:3].ravel())


def test_the_binary_version_is_preferred_where_both_are_whole(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-py", "python")
    write_cifar10(tmp_path, counts=(1, 1, 1, 1, 1, 1))
    assert len(cifar10(tmp_path).x) == 5
    (tmp_path / "data_batch_5.bin").unlink()
    assert len(cifar10(tmp_path).x) == 12


# ------------------------------------------------------------------------------- what is missing


@pytest.mark.parametrize(
    ("form", "name"), [("binary", "data_batch_4.bin"), ("python", "test_batch")]
)
def test_the_file_that_is_missing_is_named(tmp_path, form, name):
    write_cifar10(tmp_path, form)
    (tmp_path / name).unlink()
    message = refused(tmp_path)
    assert message.startswith(f"{name} is missing (1 of 6 files are).")
    for folder in (tmp_path, *(tmp_path / name for name in FOLDERS.values())):
        assert str(folder) in message
    assert f"the binary version from {BINARY_ADDRESS}" in message
    assert f"the Python version from {PYTHON_ADDRESS}" in message
    assert message.endswith("pass the folder or set the environment variable APPORTION_DATA to it.")


def test_without_a_folder_the_message_says_how_to_name_one(monkeypatch):
    monkeypatch.delenv("APPORTION_DATA", raising=False)
    message = refused()
    assert message.startswith("data_batch_1.bin is missing: no folder is given")
    assert BINARY_ADDRESS in message


# ------------------------------------------------------------------------ what is wrong in a file


@pytest.mark.parametrize("n_bytes", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_a_binary_file_of_the_wrong_size_is_refused(binary_folder, n_bytes):
    file = binary_folder / "data_batch_2.bin"
    file.write_bytes(bytes(n_bytes))
    message = refused(binary_folder)
    assert message.startswith(f"{file} has {n_bytes:,} bytes")
    assert "records of 3,073 bytes" in message
    assert f"Download it again, in its binary version: {BINARY_ADDRESS}" in message


def test_a_pickle_cut_off_anywhere_is_refused(python_folder):
    file = python_folder / "data_batch_2"
    content = file.read_bytes()
    inside = range(len(content) - 3000, len(content), 17)
    for n_bytes in (0, 1, 2, 3, 40, 100, 200, 300, *inside, len(content) - 1):
        file.write_bytes(content[:n_bytes])
        message = refused(python_folder)
        assert message.startswith(f"{file} cannot be read as a pickle of images and labels: ")
        assert f"Download it again, in its Python version: {PYTHON_ADDRESS}" in message


@pytest.mark.parametrize("content", [b"<html>no file</html>", bytes(3073), b"\x1f\x8b\x08 archive"])
def test_another_kind_of_file_is_refused(python_folder, content):
    (python_folder / "test_batch").write_bytes(content)
    message = refused(python_folder)
    assert message.startswith(f"{python_folder / 'test_batch'} cannot be read as a pickle")


class Calls:
    def __init__(self, function, argument):
        self.call = function, (argument,)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_malicious_pickle_is_refused_and_not_run(python_folder, protocol):
    mark = python_folder / "mark"
    call = Calls(os.system, f"echo > {mark}")
    batch = {"data": np.zeros((1, 3072), np.uint8).tolist(), "labels": [3], "more": call}
    (python_folder / "data_batch_3").write_bytes(pickle.dumps(batch, protocol))
    message = refused(python_folder)
    assert message.startswith(f"{python_folder / 'data_batch_3'} cannot be read as a pickle")
    assert f"it asks for {os.system.__module__}.system, which is refused" in message
    assert PYTHON_ADDRESS in message
    call = Calls(eval, f"open({str(mark)!r}, 'w')")
    (python_folder / "data_batch_3").write_bytes(pickle.dumps(call, protocol))
    assert ".eval, which is refused" in refused(python_folder)
    assert not mark.exists()


ROW = np.zeros((1, 3072), np.uint8)


@pytest.mark.parametrize(
    "batch",
    [
        [ROW, [3]], {"data": ROW}, {"labels": [3]}, {"data": ROW.tolist(), "labels": [3]},
        {"data": ROW, "labels": 3}, {"data": ROW, "labels": ROW}, {"data": ROW, "fine_labels": [3]},
    ],
    ids=range(7),
)  # fmt: skip
def test_a_pickle_of_something_else_is_refused(python_folder, batch):
    file = python_folder / "data_batch_1"
    file.write_bytes(pickle.dumps(batch))
    message = refused(python_folder)
    assert message.startswith(f"{file} is a pickle without an array 'data' and a list 'labels'")
    assert PYTHON_ADDRESS in message


@pytest.mark.parametrize(
    ("data", "labels"),
    [
        (ROW, [3, 4]), (ROW, []), (ROW[:0], []), (ROW[0], [3]), (ROW[:, 1:], [3]),
        (ROW.reshape(1, 3, 32, 32), [3]),
    ],
    ids=range(6),
)  # fmt: skip
def test_a_pickle_of_another_shape_is_refused(python_folder, data, labels):
    file = python_folder / "data_batch_1"
    file.write_bytes(pickle.dumps({b"data": data, b"labels": labels}))
    message = refused(python_folder)
    assert message.startswith(f"{file} has data of shape {data.shape} and {len(labels)} labels")
    assert "(10000, 3072)" in message
    assert PYTHON_ADDRESS in message


def test_a_pickle_of_other_numbers_is_refused(python_folder):
    content = pickle.dumps({b"data": ROW.astype(np.float32), b"labels": [3]})
    (python_folder / "data_batch_1").write_bytes(content)
    assert "it has an array of 'f4', not of bytes ('u1')" in refused(python_folder)


@pytest.mark.parametrize("label", [10, 255])
def test_a_label_that_is_no_class_is_refused(binary_folder, label):
    file = binary_folder / "test_batch.bin"
    content = bytearray(file.read_bytes())
    content[2 * 3073] = label
    file.write_bytes(content)
    message = refused(binary_folder)
    assert f"{file} has a label of {label} in record 2;" in message
    assert BINARY_ADDRESS in message


@pytest.mark.parametrize("label", [10, -1, 2**70, 3.0, True, "3", None, [3]], ids=repr)
def test_a_pickled_label_that_is_no_class_is_refused(python_folder, label):
    file = python_folder / "test_batch"
    file.write_bytes(pickle.dumps({b"data": ROW.repeat(3, axis=0), b"labels": [0, 9, label]}))
    message = refused(python_folder)
    assert message.startswith(f"{file} has a label of {label!r} in record 2; labels are 0 to 9.")
    assert PYTHON_ADDRESS in message


def test_the_sum_of_a_binary_file_of_official_size_is_checked(binary_folder, monkeypatch):
    content = bytes(10_000 * 3073)
    file = binary_folder / "data_batch_3.bin"
    file.write_bytes(content)
    message = refused(binary_folder)
    digest = hashlib.sha1(content).hexdigest()
    assert message.startswith(f"{file} has the SHA-1 {digest};")
    assert "official file is 1dd00a74ab1d17a6e7d73e185b69dbf31242f295" in message
    assert BINARY_ADDRESS in message
    sums = {**reader.BINARY_SHA1, "data_batch_3.bin": digest}
    monkeypatch.setattr(reader, "BINARY_SHA1", sums)
    assert len(cifar10(binary_folder).x) == 10_000 + 10


def test_the_sum_of_a_pickle_of_official_size_is_checked(python_folder, monkeypatch):
    content = python_2([bytes(3072)] * 10_000, [7] * 10_000)
    file = python_folder / "data_batch_3"
    file.write_bytes(content)
    message = refused(python_folder)
    digest = hashlib.md5(content).hexdigest()
    assert message.startswith(f"{file} has the MD5 {digest};")
    assert "official file is 54ebc095f3ab1f0389bbae665268c751" in message
    assert PYTHON_ADDRESS in message
    sums = {**reader.PYTHON_MD5, "data_batch_3": digest}
    monkeypatch.setattr(reader, "PYTHON_MD5", sums)
    data = cifar10(python_folder)
    assert len(data.x) == 10_000 + 10
    assert (data.truth[4:-6] == 7).all()
