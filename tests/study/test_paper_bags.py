"""Published bags: those of the file, and files that are refused."""

from typing import Any

import numpy as np
import pytest

from apportion.bags.bags import Bags
from apportion.errors import DataError
from apportion.study.manifests import Manifest
from apportion.study.paper_bags import paper


def refused(function, *arguments):
    with pytest.raises(DataError) as caught:
        function(*arguments)
    return str(caught.value)


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
        train, valid = paper(path, 4)
        assert train.dtype == valid.dtype == np.int64
        assert train.tolist() == arrays["train_4"].tolist()
        assert valid.tolist() == arrays["val_4"].tolist()
    labels = np.arange(60_000) % 3
    assert Bags.from_members(labels, train, truth=labels).sizes.tolist() == [4, 4, 4]


@pytest.mark.parametrize("size", [8, 5, 0])
def test_paper_bags_list_the_sizes_that_are_there(bags_file, size):
    message = refused(paper, bags_file[0], size)
    assert message.startswith(f"{bags_file[0]} has no bags of size {size}.")
    assert message.endswith("Pass one of its sizes: 4, 16, 128.")


def test_paper_bags_of_another_kind_of_archive(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.arange(3))
    assert "it has none" in refused(paper, tmp_path / "other.npz", 4)


@pytest.mark.parametrize(
    "array", [np.zeros((3, 5), int), np.zeros(4, int), np.zeros((3, 4))], ids=str
)
def test_paper_bags_refuse_another_shape(tmp_path, array):
    np.savez(tmp_path / "bags.npz", train_4=np.zeros((3, 4), int), val_4=array)
    message = refused(paper, tmp_path / "bags.npz", 4)
    assert (
        f"val_4 of {tmp_path / 'bags.npz'} is of shape {array.shape} and {array.dtype}" in message
    )
    assert "(bags, 4)" in message


def test_paper_bags_never_unpickle(tmp_path):
    np.savez(tmp_path / "bags.npz", train_4=np.array([{}], object), val_4=np.zeros((1, 4), int))
    message = refused(paper, tmp_path / "bags.npz", 4)
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
    message = refused(paper, file, 4)
    assert message.startswith(
        f"{file} {'does not exist' if kind == 'missing' else 'cannot be read'}"
    )
    assert "train_S and val_S" in message


def test_a_manifest_cites_them(bags_file, tmp_path):
    train, _ = paper(bags_file[0], 16)
    labels = np.arange(60_000) % 3
    made = Manifest.from_members(train, labels, protocol="paper", settings={"size": 16}, seed=0)
    made.save(tmp_path / "train.npz")
    again = Manifest.load(tmp_path / "train.npz")
    assert again.sha256 == made.sha256
    assert again.bags(labels, labels).index.reshape(3, 16).tolist() == train.tolist()
