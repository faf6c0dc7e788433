"""Manifests: what is saved comes back, the same bytes each time, and nothing damaged passes."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from apportion.errors import BagError, DataError
from apportion.study import manifests
from apportion.study.manifests import ARRAYS, Manifest
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


def parts_of(path):
    """The text of a manifest's file, and its arrays."""
    with safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()["apportion"]), {n: file.get_tensor(n) for n in ARRAYS}


def rewrite(path, change, arrays=(), *, sign=True):
    """Change the text of a manifest's file, and arrays of it; sign the text as save would."""
    about, before = parts_of(path)
    about = change(about) or about
    if sign and isinstance(about, dict):
        about.pop("checksum", None)
        about["checksum"] = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    save_file({**before, **dict(arrays)}, path, {"apportion": json.dumps(about)})


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


@pytest.mark.parametrize("n", [1, 59, 61])
def test_bags_refuse_another_number_of_rows(n):
    for data in ({"x": np.eye(n)}, {"truth": LABELS[np.arange(n) % 60]}):
        with pytest.raises(BagError, match=rf"were made from 60 rows; got {n}\.\n.*same order"):
            made().bags(**data)


def test_bags_do_without_rows():
    manifest = made()
    bags = manifest.bags(truth=LABELS)
    assert bags.x is None
    assert bags.index.tolist() == manifest.index.tolist()
    assert bags.truth is not None
    assert [bags.classes[k] for k in bags.truth] == LABELS[manifest.index].tolist()


@pytest.mark.parametrize("x", [None, np.eye(60)])
def test_bags_refuse_labels_of_another_order(x):
    manifest = made()
    other = np.roll(LABELS, 1)
    true = [[int((other[bag] == c).sum()) for c in manifest.classes]
            for bag in np.split(manifest.index, manifest.offsets[1:-1])]  # fmt: skip
    bag = next(i for i, own in enumerate(true) if own != manifest.counts[i].tolist())
    with pytest.raises(BagError) as caught:
        manifest.bags(x, other)
    wanted = f"bag {bag} was made with counts {manifest.counts[bag].tolist()}, but by the truth it"
    assert str(caught.value).startswith(f"{wanted} has {true[bag]}.\n")


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
    first.save(folder / "a.safetensors")
    back = Manifest.load(folder / "a.safetensors")
    assert fields(back) == fields(first)
    assert list(map(type, back.classes)) == list(map(type, first.classes))
    back.save(folder / "b.safetensors")
    assert (folder / "a.safetensors").read_bytes() == (folder / "b.safetensors").read_bytes()


SAVE = """
import sys
from apportion.study.manifests import Manifest
settings = {"n": 2, "z": [1, 2.5], "a": None, "é": "ü"}
members, truth = {0: [2, 0], 1: [1, 4, 3]}, ["a", "b", "a", "b", "b"]
made = Manifest.from_members(members, truth, protocol="p", settings=settings, seed=0)
made.save(sys.argv[1])
print(made.sha256)
"""


def test_the_bytes_depend_on_the_manifest_alone(tmp_path, request):
    """Hashes differ from process to process, and with them the order of whatever is hashed."""
    files, told = [tmp_path / str(seed) for seed in range(3)], set()
    for seed, file in enumerate(files):
        environment = {
            "PYTHONHASHSEED": str(seed),
            "PYTHONPATH": str(request.config.rootpath / "src"),
        }
        command = [sys.executable, "-c", SAVE, str(file)]
        told.add(subprocess.check_output(command, env=environment, text=True)[:12])
    assert told == {"3041d21ea46f"}  # a promise: what was cited must be found again
    assert len({file.read_bytes() for file in files}) == 1


def test_safetensors_alone_reads_the_file(tmp_path):
    manifest = made()
    manifest.save(tmp_path / "a.safetensors")
    about, arrays = parts_of(tmp_path / "a.safetensors")
    assert (about["format"], about["kind"]) == (2, "manifest")
    assert about["sha256"] == manifest.sha256
    for name, array in arrays.items():
        assert array.dtype == np.uint8
        assert np.array_equal(array, getattr(manifest, name))


@pytest.mark.parametrize(("row", "kind"), [(255, "u1"), (256, "u2"), (65536, "u4"), (2**32, "u8")])
def test_numbers_are_as_short_as_the_largest_allows(tmp_path, row, kind):
    first = Manifest(
        "p", {}, 0, 0, row + 1, ("a",), np.array([row]), np.array([0, 1]), np.ones((1, 1), int)
    )
    first.save(tmp_path / "a")
    assert parts_of(tmp_path / "a")[1]["index"].dtype == np.dtype(kind)
    assert fields(Manifest.load(tmp_path / "a")) == fields(first)


def test_saving_replaces_nothing_unless_forced(tmp_path):
    path = tmp_path / "a.safetensors"
    made().save(path)
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"a\.safetensors already exists\.\n.*force=True"):
        made(seed=4).save(path)
    assert path.read_bytes() == before
    made(seed=4).save(path, force=True)
    assert Manifest.load(path).seed == 4
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    made().save(path)
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(manifests, "save", full)
    with pytest.raises(DataError, match=r"a\.safetensors cannot be written: No space left"):
        made(seed=4).save(path, force=True)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none.a\.safetensors cannot be written: No such file"):
        made().save(tmp_path / "none" / "a.safetensors")


# -------------------------------------------------------------------------------- what is refused


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none cannot be read as a manifest: No such file.*\n"):
        Manifest.load(tmp_path / "none")


def test_no_damage_passes(tmp_path):
    path = tmp_path / "a.safetensors"
    made().save(path)
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        changed = bytearray(content)
        changed[place] ^= 0x55
        path.write_bytes(changed)
        with pytest.raises(DataError, match=r"a\.safetensors cannot be read as a manifest: .*\.\n"):
            Manifest.load(path)
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"a\.safetensors cannot be read as a manifest: .*\.\n"):
            Manifest.load(path)


def drop(name):
    return lambda about: {key: value for key, value in about.items() if key != name}


@pytest.mark.parametrize(
    ("change", "arrays", "fact"),
    [
        (lambda about: about | {"format": 3}, {}, "has format 3, and this apportion reads 2"),
        (lambda about: about | {"kind": "model"}, {}, "it is another model"),
        (drop("format"), {}, "has format None"),
        (drop("kind"), {}, "it is another file"),
        (lambda about: 1, {}, "'int'"),
        (drop("seed"), {}, "must be integers"),
        (lambda about: about | {"n_rows": "many"}, {}, "must be integers"),
        (drop("settings"), {}, "settings an object"),
        (drop("sha256"), {}, "changed since"),
        (lambda about: about | {"extra": 1}, {}, "changed since"),
        (lambda about: about | {"classes": ["no", "maybe", "yes"]}, {}, "changed since"),
        (lambda about: about | {"n_rows": 9}, {}, "9 rows"),
        (lambda about: about | {"n_rows": 61, "sha256": "0"}, {}, "changed since"),
        (dict, {"index": np.arange(64, dtype=np.uint8)[::-1].copy()}, ""),
        (dict, {"index": np.arange(64.0)}, "Cannot cast"),
        (dict, {"index": np.full(64, 2**64 - 1, np.uint64)}, "holds row -1"),
        (dict, {"index": np.zeros((8, 8), np.uint8)}, "must have 1, 1 and 2 axes"),
        (dict, {"offsets": np.arange(8, dtype=np.uint8)}, "offsets must rise from 0 to 64"),
        (dict, {"offsets": np.zeros(0, np.uint8)}, "offsets must rise"),
        (dict, {"offsets": np.array(3)}, "must have 1, 1 and 2 axes"),
        (dict, {"offsets": np.full(9, 2**63, np.uint64)}, "offsets must rise"),
        (dict, {"offsets": np.zeros(10**6, np.uint8)}, "offsets must rise"),
        (lambda about: about | {"settings": {"a": [[]] * 10**6}}, {}, "4,000,3"),
        (dict, {"counts": np.ones((8, 2), np.uint8)}, "counts must be of shape (8, 3)"),
    ],
)  # fmt: skip
def test_load_refuses(tmp_path, change, arrays, fact):
    made().save(tmp_path / "a.safetensors")
    rewrite(tmp_path / "a.safetensors", change, arrays)
    with pytest.raises(DataError) as caught:
        Manifest.load(tmp_path / "a.safetensors")
    assert str(caught.value).startswith(
        f"{tmp_path / 'a.safetensors'} cannot be read as a manifest: "
    )
    assert fact in str(caught.value)


def test_a_text_that_was_changed_is_refused(tmp_path):
    made().save(tmp_path / "a")
    rewrite(tmp_path / "a", lambda about: about | {"seed": 4}, sign=False)
    with pytest.raises(DataError, match="changed since"):
        Manifest.load(tmp_path / "a")


def test_a_file_without_text_is_refused(tmp_path):
    save_file({"index": np.zeros(3)}, tmp_path / "a")
    with pytest.raises(DataError, match="it is another file"):
        Manifest.load(tmp_path / "a")


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"classes": (np.datetime64("2020"), "b", "c")}, ["datetime64", "astype(str)"]),
        ({"settings": {"size": np.int64(3)}}, ["int64", "plain"]),
        ({"offsets": np.array([0, 0, 64])}, ["counts must be of shape (2, 3)"]),
        ({"offsets": np.array([], int)}, ["counts must be of shape (-1, 3)"]),
        ({"index": np.zeros(64)}, ["index must be of shape (64,) and int64"]),
        ({"offsets": np.r_[1, 8:65:8]}, ["offsets must run from 0 to 64"]),
        ({"offsets": np.r_[0:57:8, 70]}, ["offsets must run from 0 to 64"]),
        ({"settings": {"size": (1, 2)}}, ["(1, 2)", "plain"]),
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
