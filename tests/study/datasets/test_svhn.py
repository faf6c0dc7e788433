"""SVHN: images as the MATLAB files have them, and files that are refused."""

from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from apportion.errors import DataError
from apportion.study.datasets.benchmarks import svhn

ADDRESS = "http://ufldl.stanford.edu/housenumbers/"
TRAIN, TEST = "train_32x32.mat", "test_32x32.mat"


def write(file, n, seed, *, compress=False, label_type: type = np.uint8):
    """Write a file of the official format; give its images as (row, column, RGB), and digits."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (n, 32, 32, 3), np.uint8)
    digits = [i % 10 for i in range(n)]
    x = np.empty((32, 32, 3, n), np.uint8)
    for i, image in enumerate(images):
        x[:, :, :, i] = image
    y: Any = np.array([[digit or 10] for digit in digits], label_type)
    savemat(file, {"X": x, "y": y}, do_compression=compress)
    return images, digits


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / TRAIN, 12, 0)
    write(tmp_path / TEST, 3, 1)
    return tmp_path


def refused(folder=None):
    with pytest.raises(DataError) as caught:
        svhn(folder)
    return str(caught.value)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("label_type", [np.uint8, np.float64])
@pytest.mark.parametrize("passed", ["path", "text", "variable"])
def test_images_are_read_bit_by_bit(tmp_path, monkeypatch, compress, label_type, passed):
    options = {"compress": compress, "label_type": label_type}
    images, digits = write(tmp_path / TRAIN, 23, 0, **options)
    test_images, test_digits = write(tmp_path / TEST, 11, 1, **options)
    monkeypatch.setenv("APPORTION_DATA", str(tmp_path if passed == "variable" else "nowhere"))
    data = svhn({"path": tmp_path, "text": str(tmp_path), "variable": None}[passed])
    assert data.x.shape == (23, 3, 32, 32)
    assert data.x_test.shape == (11, 3, 32, 32)
    for x, labels in ((data.x, data.truth), (data.x_test, data.truth_test)):
        assert x.dtype == np.uint8
        assert labels.dtype == np.int64
        assert x.flags.c_contiguous
    for read, image in zip([*data.x, *data.x_test], [*images, *test_images], strict=True):
        for channel in range(3):
            assert np.array_equal(read[channel], image[:, :, channel])
    assert data.truth.tolist() == digits
    assert data.truth_test.tolist() == test_digits
    assert data.classes == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")


def test_one_image_is_enough(folder):
    write(folder / TEST, 1, 1)
    assert svhn(folder).x_test.shape == (1, 3, 32, 32)


@pytest.mark.parametrize("name", [TRAIN, TEST])
def test_the_file_that_is_missing_is_named(folder, name):
    (folder / name).unlink()
    message = refused(folder)
    assert message.startswith(f"{name} is missing (1 of 2 files are).")
    assert f"looked in: {folder}\n" in message
    assert f"Download {TRAIN} and {TEST} from {ADDRESS}, and pass the folder or set" in message
    assert "APPORTION_DATA" in message


def test_without_a_folder_the_message_says_how_to_name_one(monkeypatch):
    monkeypatch.delenv("APPORTION_DATA", raising=False)
    message = refused()
    assert message.startswith(f"{TRAIN} is missing: no folder is given")
    assert ADDRESS in message


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("share", [0, 0.001, 0.2, 0.7, 0.999])
def test_a_file_that_was_cut_off_is_refused(folder, share, compress):
    write(folder / TRAIN, 12, 0, compress=compress)
    content = (folder / TRAIN).read_bytes()
    (folder / TRAIN).write_bytes(content[: int(share * len(content))])
    message = refused(folder)
    assert message.startswith(f"{folder / TRAIN} ")
    assert message.endswith(f"Download it again: {ADDRESS}{TRAIN}")


@pytest.mark.parametrize(
    "content", [b"<html>not found</html>" * 40, b"\x89HDF\r\n\x1a\n" + bytes(500), b"\x1f\x8b\x08"]
)
def test_another_kind_of_file_is_refused(folder, content):
    (folder / TEST).write_bytes(content)
    message = refused(folder)
    assert message.startswith(f"{folder / TEST} cannot be read as a MATLAB file: ")
    assert message.endswith(f"Download it again: {ADDRESS}{TEST}")


def test_matlab_files_of_the_other_kind_are_refused(folder):
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    (folder / TEST).write_bytes(header + bytes(600))
    assert f"{folder / TEST} cannot be read as a MATLAB file: " in refused(folder)


X, Y = np.zeros((32, 32, 3, 4), np.uint8), np.full((4, 1), 2, np.uint8)


@pytest.mark.parametrize(("content", "name"), [({"X": X}, "y"), ({"y": Y}, "X"), ({"x": X}, "X")])
def test_a_file_without_an_array_is_refused(folder, content, name):
    savemat(folder / TRAIN, content)
    message = refused(folder)
    assert message.startswith(f"{folder / TRAIN} has no array {name}.")
    assert message.endswith(f"Download it again: {ADDRESS}{TRAIN}")


@pytest.mark.parametrize(
    "x",
    [
        X.transpose(3, 0, 1, 2), X[:, :, :, 0], X[:, :, :2], X[:31], X[..., :0],
        X.astype(np.float64), X.astype(np.int8),
    ],
    ids=range(7),
)  # fmt: skip
def test_images_of_another_shape_or_kind_are_refused(folder, x):
    savemat(folder / TRAIN, {"X": x, "y": Y})
    message = refused(folder)
    assert message.startswith(f"X of {folder / TRAIN} is of shape {x.shape} and {x.dtype};")
    assert "(32, 32, 3, n) and uint8" in message
    assert message.endswith(f"Download it again: {ADDRESS}{TRAIN}")


@pytest.mark.parametrize(
    "y", [Y[:3], Y.T, Y.repeat(2, axis=1), np.array([["a"]] * 4)], ids=range(4)
)
def test_labels_of_another_shape_or_kind_are_refused(folder, y):
    savemat(folder / TRAIN, {"X": X, "y": y})
    message = refused(folder)
    assert message.startswith(f"y of {folder / TRAIN} is of shape {y.shape} and {y.dtype};")
    assert "its 4 images are numbers of shape (4, 1)" in message
    assert message.endswith(f"Download it again: {ADDRESS}{TRAIN}")


@pytest.mark.parametrize("label", [0, 11, -1, 2.5, float("nan")])
def test_a_label_that_is_no_digit_is_refused(folder, label):
    y = np.array([[1], [10], [label], [99]], np.float64)
    savemat(folder / TEST, {"X": X, "y": y})
    message = refused(folder)
    assert message.startswith(f"{folder / TEST} has a label of {y[2, 0]} for image 2;")
    assert "labels are 1 to 10, and 10 is the digit 0" in message
    assert message.endswith(f"Download it again: {ADDRESS}{TEST}")
