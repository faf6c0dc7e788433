"""Manifests: what is saved comes back, the same bytes each time, and nothing damaged passes."""

import hashlib
import json
import sys
import time
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.errors import BagError, DataError
from apportion.study import _manifest_file
from apportion.study.manifests import Manifest
from apportion.study.protocols import Drawn, rand, shuffle

LABELS = np.array(["no", "yes", "maybe"])[np.arange(60) % 3]


def made(seed=3, size=8, labels=LABELS):
    drawn = rand(labels, size, seed=seed)
    return Manifest.from_members(drawn, labels, protocol="rand", settings={"size": size}, seed=seed)


def fields(manifest):
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in vars(manifest).items()
    }


def rewrite(path, change, arrays=()):
    """Change the text of a manifest's file, and arrays of it."""
    with zipfile.ZipFile(path) as pack:
        entries = {name: pack.read(name) for name in pack.namelist()}
    about = json.loads(entries["manifest.json"])
    change(about)
    entries["manifest.json"] = json.dumps(about).encode()
    with zipfile.ZipFile(path, "w") as pack:
        for name, content in entries.items():
            if name not in dict(arrays):
                pack.writestr(name, content)
        for name, array in dict(arrays).items():
            with pack.open(name, "w") as file:
                np.lib.format.write_array(file, array)


# ------------------------------------------------------------------------------- making and using


def test_a_manifest_tells_how_its_bags_were_made():
    manifest = made()
    drawn = rand(LABELS, 8, seed=3)
    assert manifest.index.tolist() == drawn.members.ravel().tolist()
    assert manifest.offsets.tolist() == list(range(0, 65, 8))
    assert manifest.classes == ("maybe", "no", "yes")
    assert manifest.n_rows == 60
    counts = [[(LABELS[bag] == c).sum() for c in manifest.classes] for bag in drawn.members]
    assert manifest.counts.tolist() == counts
    assert (manifest.protocol, manifest.settings, manifest.seed) == ("rand", {"size": 8}, 3)
    assert repr(manifest).startswith("Manifest(rand, seed 3: 8 bags from 60 rows, 3 classes; SHA-2")


def test_redrawn_draws_are_kept():
    drawn = Drawn(np.array([[0, 1]]), 7)
    manifest = Manifest.from_members(drawn, [1, 2], protocol="rand", settings={}, seed=0)
    assert manifest.redrawn == 7


def test_bags_hold_the_rows_in_their_order():
    manifest, x = made(), np.arange(60.0)[:, None]
    bags = manifest.bags(x, LABELS)
    assert bags.x is x
    assert bags.index.tolist() == manifest.index.tolist()
    assert bags.counts.tolist() == manifest.counts.tolist()
    assert bags.truth is not None
    assert [bags.classes[k] for k in bags.truth] == LABELS[manifest.index].tolist()
    assert manifest.bags((x, x)).truth is None


@pytest.mark.parametrize("x", [np.eye(59), np.eye(61)])
def test_bags_refuse_another_number_of_rows(x):
    with pytest.raises(BagError, match=r"x has \d+ rows?, but the bags were made of 60\.\n.*all"):
        made().bags(x)


def test_bags_refuse_labels_of_another_order():
    with pytest.raises(BagError, match=r"bag \d was made with \d of class .* truth gives it \d"):
        made().bags(np.eye(60), np.roll(LABELS, 1))


def test_the_checksum_is_that_of_its_definition():
    manifest = made()
    text = b""
    for name in ("index", "offsets", "counts"):
        array = getattr(manifest, name)
        text += f"{name} {' '.join(map(str, array.shape))}\n".encode()
        text += b"".join(int(v).to_bytes(8, "little") for v in array.ravel())
    text += b'["maybe", "no", "yes"]'
    assert manifest.sha256 == hashlib.sha256(text).hexdigest()


def test_the_checksum_knows_the_bags_but_not_their_making():
    first = made()
    rows = np.split(first.index, first.offsets[1:-1])
    again = Manifest.from_members(
        dict(enumerate(rows)), LABELS, protocol="by hand", settings={}, seed=9
    )
    assert again.sha256 == first.sha256
    assert made(seed=4).sha256 != first.sha256
    renamed = np.char.replace(LABELS, "no", "nay")
    assert made(labels=renamed).sha256 != first.sha256


# ---------------------------------------------------------------------------------- file and back


NAMES = st.one_of(
    st.lists(st.integers(-(2**60), 2**60), min_size=2, max_size=5, unique=True),
    st.lists(st.text(max_size=5), min_size=2, max_size=5, unique=True),
    st.lists(st.floats(allow_nan=False), min_size=2, max_size=5, unique=True),
    st.just([False, True]),
)


@given(NAMES, st.integers(1, 300), st.integers(1, 80), st.integers(0, 2**64))
@settings(max_examples=60, deadline=None)
def test_what_is_saved_comes_back(tmp_path_factory, names, n_rows, size, seed):
    labels = [names[k % len(names)] for k in range(n_rows)]
    members = shuffle(n_rows, size, seed=seed)
    first = Manifest.from_members(
        members, labels, protocol="shuffle", settings={"size": size}, seed=seed
    )
    folder = tmp_path_factory.mktemp("manifests")
    first.save(folder / "a.npz")
    back = Manifest.load(folder / "a.npz")
    assert fields(back) == fields(first)
    assert list(map(type, back.classes)) == list(map(type, first.classes))
    back.save(folder / "b.npz")
    assert (folder / "a.npz").read_bytes() == (folder / "b.npz").read_bytes()


def test_the_bytes_depend_on_the_bags_alone(tmp_path, monkeypatch):
    members, labels = {0: [2, 0], 1: [1, 4, 3]}, ["a", "b", "a", "b", "b"]
    manifest = Manifest.from_members(members, labels, protocol="p", settings={"n": 2}, seed=0)
    manifest.save(tmp_path / "a.npz")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(time, "localtime", lambda *_: (2001, 2, 3, 4, 5, 6, 0, 0, 0))
    manifest.save(tmp_path / "b.npz")
    first = (tmp_path / "a.npz").read_bytes()
    assert first == (tmp_path / "b.npz").read_bytes()
    # Both are promises: what was cited under one format must be found again.
    assert manifest.sha256.startswith("3041d21ea46f")
    assert hashlib.sha256(first).hexdigest().startswith("667b1ba1d5c6")


def test_numpy_alone_reads_the_file(tmp_path):
    manifest = made()
    manifest.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as pack:
        assert np.array_equal(pack["index"], manifest.index)
        assert pack["index"].dtype == np.uint8
        assert np.array_equal(pack["counts"], manifest.counts)
        assert json.loads(pack["manifest.json"])["sha256"] == manifest.sha256


def test_saving_replaces_nothing_unless_forced(tmp_path):
    path = tmp_path / "a.npz"
    made().save(path)
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"a\.npz already exists\.\n.*force=True"):
        made(seed=4).save(path)
    assert path.read_bytes() == before
    made(seed=4).save(path, force=True)
    assert Manifest.load(path).seed == 4
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    made().save(path)
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_manifest_file.np.lib.format, "write_array", full)  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"a\.npz cannot be written: No space left"):
        made(seed=4).save(path, force=True)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none.a\.npz cannot be written: No such file"):
        made().save(tmp_path / "none" / "a.npz")


# -------------------------------------------------------------------------------- what is refused


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.npz is missing\.\n.*Manifest\.save"):
        Manifest.load(tmp_path / "none.npz")


def test_no_damage_passes(tmp_path):
    path = tmp_path / "a.npz"
    made().save(path)
    content, expected = path.read_bytes(), fields(made())
    messages = []
    for place in range(0, len(content), 5):
        changed = bytearray(content)
        changed[place] ^= 0x55
        path.write_bytes(changed)
        try:
            back = Manifest.load(path)
        except DataError as error:
            messages.append(str(error))
        else:
            assert fields(back) == expected  # as with a byte that nobody reads
    assert len(messages) > len(content) / 10
    assert all("a.npz" in message for message in messages)
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"a\.npz cannot be read as a manifest: .*\.\n"):
            Manifest.load(path)


def drop(name):
    return lambda about: about.pop(name)


@pytest.mark.parametrize(
    ("change", "arrays", "facts"),
    [
        (lambda about: about.update(format=2), {}, ["has format 2", "reads 1", "Install"]),
        (drop("format"), {}, ["format"]),
        (drop("seed"), {}, ["lacks 'seed'"]),
        (drop("sha256"), {}, ["saved with None"]),
        (lambda about: about.update(classes=["no", "maybe", "yes"]), {}, ["SHA-256", "changed"]),
        (lambda about: about.update(n_rows=9), {}, ["contradicts itself", "9 rows"]),
        (lambda about: about.update(n_rows="many"), {}, ["contradicts itself"]),
        (dict, {"index.npy": np.arange(64)[::-1]}, ["SHA-256", "changed"]),
        (dict, {"counts.npy": np.ones((8, 3))}, ["counts is of float64"]),
        (dict, {"index.npy": np.array([{}], dtype=object)}, ["cannot be read", "allow_pickle"]),
    ],
)
def test_load_refuses(tmp_path, change, arrays, facts):
    made().save(tmp_path / "a.npz")
    rewrite(tmp_path / "a.npz", change, arrays)
    with pytest.raises(DataError) as caught:
        Manifest.load(tmp_path / "a.npz")
    for fact in ("a.npz", *facts):
        assert fact in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"classes": (np.datetime64("2020"), "b", "c")}, ["datetime64", "astype(str)"]),
        ({"settings": {"size": np.int64(3)}}, ["int64", "plain"]),
        ({"offsets": np.array([0, 0, 64])}, ["offsets", "from_members"]),
        ({"offsets": np.array([], int)}, ["offsets", "from_members"]),
        ({"index": np.zeros(64)}, ["offsets", "from_members"]),
        ({"index": np.zeros(64, int)}, ["holds row 0 twice"]),
        ({"counts": np.ones((8, 3), int)}, ["8 instances", "sum to 3"]),
        ({"n_rows": 5}, ["5 rows"]),
    ],
)
def test_fields_that_contradict_one_another_are_refused(changes, facts):
    with pytest.raises(BagError) as caught:
        Manifest(**{**vars(made()), **changes})
    for fact in facts:
        assert fact in str(caught.value)
