"""Image files in bags."""

import gc
import logging
import struct
import tempfile
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from apportion.data import _image_files, _row_store
from apportion.data.images import read_image_sets, read_images, read_images_alone
from apportion.errors import BagError, DataError

SHARES = {"n": {"cat": 0.5, "dog": 0.5}, "s": {"cat": 0.0, "dog": 1.0}}


def pixels(seed: int, height: int = 5, width: int = 7, channels: int = 3) -> np.ndarray:
    shape = (height, width) if channels == 1 else (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(folder: Path, name: str, array: np.ndarray, mode: str | None = None, **options) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array)
    (image if mode is None else image.convert(mode)).save(path, **options)


def filled(folder: Path, **options: Any) -> pd.DataFrame:
    """Three color images of one size, and their table."""
    for seed, name in enumerate(("a.png", "deep/b.png", "deep/c.png")):
        save(folder, name, pixels(seed, **options))
    files, bags = ["deep/b.png", "a.png", "deep/c.png"], ["n", "s", "n"]
    return pd.DataFrame({"file": files, "bag": bags, "kind": ["cat", "dog", "dog"]})


def as_stored(array: np.ndarray) -> np.ndarray:
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


# ------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_images_are_read_as_they_are(kind, tmp_path):
    frame = filled(tmp_path)
    frame.to_csv(tmp_path / "table.csv", index=False)
    frame.to_parquet(tmp_path / "table.parquet")
    table = frame if kind == "frame" else tmp_path / f"table.{kind}"
    bags = read_images(tmp_path, table, proportions=SHARES, label="kind")
    assert bags.x.dtype == np.uint8
    assert bags.x.shape == (3, 3, 5, 7)
    for row, seed in zip(bags.x, (1, 0, 2), strict=True):
        np.testing.assert_array_equal(row, as_stored(pixels(seed)))
    assert (bags.ids, bags.classes) == (("n", "s"), ("cat", "dog"))
    assert [bags.rows(i).tolist() for i in range(2)] == [[0, 2], [1]]
    assert bags.truth is not None
    assert bags.truth.tolist() == [0, 1, 1]


def test_proportions_may_be_a_file(tmp_path):
    table = filled(tmp_path).assign(bag=[7, 8, 7])
    table.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "shares.csv").write_text("bag,cat,dog\n8,0,1\n7,1,1\n")
    for rows in (table, tmp_path / "rows.csv"):
        bags = read_images(tmp_path, rows, proportions=tmp_path / "shares.csv", normalize=True)
        assert bags.ids == (8, 7)
        assert bags.proportions.tolist() == [[0, 1], [0.5, 0.5]]
    counted = read_images(str(tmp_path), str(tmp_path / "rows.csv"), label="kind")
    assert counted.ids == (7, 8)
    assert counted.counts.tolist() == [[1, 1], [0, 1]]


def test_columns_may_have_other_names(tmp_path):
    table = filled(tmp_path).rename(columns={"file": "path", "bag": "farm"})
    bags = read_images(tmp_path, table, bag="farm", file="path", proportions=SHARES)
    assert bags.x.shape == (3, 3, 5, 7)


def test_a_file_in_several_bags_is_read_once(tmp_path):
    table = filled(tmp_path)
    again = pd.DataFrame({"file": ["./a.png"], "bag": ["n"], "kind": ["dog"]})
    bags = read_images(tmp_path, pd.concat([table, again]), label="kind")
    assert len(bags.x) == 3
    assert [bags.rows(i).tolist() for i in range(2)] == [[0, 2, 1], [1]]
    assert bags.counts.tolist() == [[1, 2], [0, 1]]
    with pytest.raises(DataError, match=r"file 'a.png' has the label 'dog', but in row 3 .* 'cat'"):
        read_images(tmp_path, pd.concat([table, again.assign(kind="cat")]), label="kind")
    (tmp_path / "a.png").unlink()
    with pytest.raises(
        DataError, match=r"^'a.png' \(row 1 of the table, counted from 0\) does not exist"
    ):
        read_images(tmp_path, pd.concat([table, again]), label="kind")


def test_gray_images_have_one_channel_and_three_beside_colored_ones(tmp_path):
    gray, color = pixels(0, channels=1), pixels(1)
    save(tmp_path, "gray.png", gray)
    save(tmp_path, "bits.png", (gray > 127).astype(np.uint8) * 255, mode="1")
    save(tmp_path, "color.png", color)
    table = pd.DataFrame({"file": ["gray.png", "bits.png"], "bag": "n"})
    bags = read_images(tmp_path, table, proportions={"n": [1.0]})
    np.testing.assert_array_equal(bags.x, [[gray], [(gray > 127) * 255]])
    mixed = pd.DataFrame({"file": ["gray.png", "color.png"], "bag": "n"})
    x = read_images(tmp_path, mixed, proportions={"n": [1.0]}).x
    np.testing.assert_array_equal(x, [[gray] * 3, as_stored(color)])


def test_palettes_and_transparency_are_colors(tmp_path):
    flat = np.zeros((5, 7, 4), np.uint8)
    flat[:, :3], flat[:, 3:] = (255, 0, 0, 0), (0, 0, 255, 200)
    save(tmp_path, "alpha.png", flat)
    palette = Image.new("P", (7, 5), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    palette.save(tmp_path / "palette.png", transparency=b"\x00\x80")
    table = pd.DataFrame({"file": ["alpha.png", "palette.png"], "bag": "n"})
    x = read_images(tmp_path, table, proportions={"n": [1.0]}).x
    np.testing.assert_array_equal(x[0], as_stored(flat[:, :, :3]))
    assert (x[1] == np.array([10, 20, 30])[:, None, None]).all()


@pytest.mark.parametrize("kind", ["colors", "gray", "palette"])
def test_transparent_pixels_are_told_of_whose_colors_below_are_read(tmp_path, kind, caplog):
    """A drawing in black on nothing is black all over, below its transparency."""
    drawing = np.zeros((5, 7, 2), np.uint8)
    drawing[2, :, 1] = 255
    for name, changed in (
        ("opaque", np.maximum(drawing, [0, 255])),
        ("a", drawing),
        ("b", drawing),
    ):
        gray, alpha = np.moveaxis(changed.astype(np.uint8), -1, 0)
        image = Image.fromarray(gray.copy())
        image.putalpha(Image.fromarray(alpha.copy()))
        if kind == "colors":
            image = image.convert("RGBA")
        if kind == "palette":
            image = image.convert("RGBA").quantize(4)
        image.save(tmp_path / f"{name}.png")
    table = pd.DataFrame({"file": ["opaque.png"], "bag": "n"})
    read_images(tmp_path, table, proportions={"n": [1.0]})
    assert not caplog.text
    table = pd.DataFrame({"file": ["opaque.png", "a.png", "b.png"], "bag": "n"})
    assert read_images(tmp_path, table, proportions={"n": [1.0]}).x.max() == 0
    (told,) = caplog.messages
    assert "'a.png' (row 1 of the table" in told
    assert "has transparent pixels (and 1 more like it): transparency is left out" in told


@pytest.mark.parametrize("format_", ["png", "tiff"])
@pytest.mark.parametrize(
    ("orientation", "turn"), [(3, lambda a: a[::-1, ::-1]), (6, lambda a: np.rot90(a, -1))]
)
def test_images_are_turned_as_their_exif_says(orientation, turn, format_, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = orientation
    save(tmp_path, f"a.{format_}", pixels(0), exif=exif)
    save(tmp_path, "b.png", np.ascontiguousarray(turn(pixels(1))))
    table = pd.DataFrame({"file": [f"a.{format_}", "b.png"], "bag": "n"})
    x = read_images(tmp_path, table, proportions={"n": [1.0]}).x
    np.testing.assert_array_equal(x[0], as_stored(turn(pixels(0))))
    np.testing.assert_array_equal(x[1], as_stored(turn(pixels(1))))


def test_images_are_resized_if_asked_to(tmp_path):
    table = filled(tmp_path)
    save(tmp_path, "deep/c.png", np.full((9, 4, 3), 77, np.uint8))
    bags = read_images(tmp_path, table, proportions=SHARES, size=(4, 6))
    assert bags.x.shape == (3, 3, 4, 6)
    assert (bags.x[2] == 77).all()
    wanted = Image.fromarray(pixels(1)).resize((6, 4), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(bags.x[0], as_stored(np.asarray(wanted)))


def test_many_images_keep_their_places(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(_image_files, "TOGETHER", 3)
    monkeypatch.setattr(_image_files, "SAY_EVERY", 20)
    names = [f"{i:03}.png" for i in range(50)]
    for i, name in enumerate(names):
        save(tmp_path, name, np.full((2, 2), i, np.uint8))
    table = pd.DataFrame({"file": names[::-1], "bag": "n"})
    with caplog.at_level(logging.INFO, "apportion"):
        x = read_images(tmp_path, table, proportions={"n": [1.0]}).x
    assert x[:, 0, 1, 1].tolist() == list(range(50))[::-1]
    said = [
        record.getMessage()
        for record in caplog.records
        if "of 50 images" in record.msg % record.args
    ]
    assert [text.split(": ")[1].split()[0] for text in said] == ["21", "42", "50"]


# --------------------------------------------------------------------------------- the array


def test_the_array_may_be_a_file(tmp_path):
    table, store = filled(tmp_path), tmp_path / "new" / "store"
    bags = read_images(tmp_path, table, proportions=SHARES, store=store)
    assert isinstance(bags.x, np.memmap)
    assert not bags.x.flags.writeable
    np.testing.assert_array_equal(np.load(store / "images.npy"), bags.x)
    np.testing.assert_array_equal(bags.x[1], as_stored(pixels(0)))
    before = (store / "images.npy").read_bytes()
    with pytest.raises(DataError, match=r"store .* has 1 file already, such as images\.npy"):
        read_images(tmp_path, table, proportions=SHARES, store=store)
    assert (store / "images.npy").read_bytes() == before


def test_a_large_array_is_a_temporary_file(tmp_path, monkeypatch):
    table = filled(tmp_path)
    monkeypatch.setattr(_row_store, "IN_MEMORY", 3 * 3 * 5 * 7)
    assert not isinstance(read_images(tmp_path, table, proportions=SHARES).x, np.memmap)
    monkeypatch.setattr(_row_store, "IN_MEMORY", 3 * 3 * 5 * 7 - 1)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    bags = read_images(tmp_path, table, proportions=SHARES)
    assert isinstance(bags.x, np.memmap)
    np.testing.assert_array_equal(bags.x[1], as_stored(pixels(0)))
    assert len(list(folder.rglob("images.npy"))) == 1
    del bags
    gc.collect()
    assert not list(folder.iterdir())


def test_a_failure_leaves_no_file(tmp_path):
    table, store = filled(tmp_path), tmp_path / "store"
    whole = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot be read as an image"):
        read_images(tmp_path, table, proportions=SHARES, store=store)
    assert not list(store.glob("*"))


def test_a_store_that_cannot_be_made_is_named(tmp_path):
    table = filled(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"store .*file is a file\."):
        read_images(tmp_path, table, proportions=SHARES, store=tmp_path / "file")
    with pytest.raises(DataError, match=r"store .*inside cannot be used: Not a directory"):
        read_images(tmp_path, table, proportions=SHARES, store=tmp_path / "file" / "inside")


# ----------------------------------------------------------------------------- what is refused


def test_broken_images_are_named_and_counted(tmp_path):
    table = filled(tmp_path)
    save(tmp_path, "whole.jpg", pixels(3, 50, 70))
    data = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(data[: len(data) // 2])
    (tmp_path / "text.png").write_text("this is no image")
    (tmp_path / "empty.png").write_bytes(b"")

    def read(*names):
        more = pd.DataFrame({"file": names, "bag": "n"})
        read_images(tmp_path, pd.concat([table, more]), proportions=SHARES, size=(5, 7))

    read("whole.jpg")
    with pytest.raises(DataError) as caught:
        read("whole.jpg", "cut.jpg")
    problem, reason, remedy = str(caught.value).split("\n")
    assert problem == "'cut.jpg' (row 4 of the table, counted from 0) cannot be read as an image."
    assert "truncated" in reason
    assert remedy.strip() == "Save it again, or leave its row out of the table."
    with pytest.raises(DataError, match=r"^'text.png' \(row 3 .* image \(and 1 more like it\)\."):
        read("text.png", "empty.png")
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"file": ["a.png", "x.png", "y.png"]}, {}, r"^'x.png' \(row 1 .* not exist in .* 1 more"),
        ({"file": ["a.png", "deep", "deep/b.png"]}, {}, r"^'deep' \(row 1 .* not exist in"),
        (
            {"file": ["a.png", "deep/b.png", "a.png"]},
            {},
            "bag 'n' holds the file 'a.png' twice, in",
        ),
        ({"file": ["a.png", "deep/b.png", "./a.png"]}, {}, "rows 0 and 2"),
        (
            {"file": ["../a.png", "a.png", "b"]},
            {},
            r"file '\.\./a\.png' in row 0 .* is outside the",
        ),
        ({"file": ["deep/../a.png", "a.png", "b"]}, {}, "is outside the folder"),
        ({"file": ["a.png", r"..\a.png", "b"]}, {}, "in row 1 .* is outside the folder"),
        ({"file": ["a.png", "/a.png", "b"]}, {}, "'/a.png' in row 1 .* is outside the folder"),
        ({"file": ["a.png", r"C:\a.png", "b"]}, {}, "is outside the folder"),
        ({"file": ["a.png", None, "b"]}, {}, "row 1 .* has no 'file'; 1 of 3"),
        ({"bag": [None, "n", None]}, {}, "(?s)row 0 .* has no 'bag'; 2 of 3.*pass skip_un"),
        ({}, {"file": "fil"}, "^rows has no column 'fil'.\n  Did you mean 'file'"),
        ({}, {"bag": "bags"}, "no column 'bags'.\n  Did you mean 'bag'"),
        ({}, {"label": "kin"}, "no column 'kin'.\n  Did you mean 'kind'"),
        ({}, {"size": (5,)}, r"^size is \(5,\)"),
        ({}, {"size": 5}, "^size is 5"),
        ({}, {"size": (5, 0)}, r"^size is \(5, 0\)"),
        ({}, {"size": (5.0, 7.0)}, r"^size is \(5\.0, 7\.0\)"),
    ],
)
def test_what_is_wrong_with_the_table_is_named(change, options, message, tmp_path):
    table = filled(tmp_path).assign(**change)
    with pytest.raises(DataError, match=message):
        read_images(tmp_path, table, **{"proportions": SHARES, **options})


def test_a_table_without_rows_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"^rows has 0 rows"):
        read_images(tmp_path, filled(tmp_path).iloc[:0], proportions=SHARES)


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"nowhere is not a folder"):
        read_images(tmp_path / "nowhere", filled(tmp_path), proportions=SHARES)


@pytest.mark.parametrize("ending", ["gif", "tiff", "png", "webp"])
def test_frames_and_pages_that_are_left_out_are_told(tmp_path, ending, caplog):
    pages = [Image.fromarray(pixels(seed)) for seed in (0, 1, 2)]
    for name in ("a", "b"):
        path = tmp_path / f"{name}.{ending}"
        pages[0].save(path, save_all=True, append_images=pages[1:], lossless=True)
    pages[0].save(tmp_path / f"c.{ending}", lossless=True)
    table = pd.DataFrame({"file": [f"{name}.{ending}" for name in "abc"], "bag": "n"})
    x = read_images(tmp_path, table, proportions={"n": [1.0]}).x
    assert len(x) == 3
    (told,) = caplog.messages
    place = "(row 0 of the table, counted from 0)"
    rest = "has several frames or pages (and 1 more like it): only the first is read."
    assert told == f"'a.{ending}' {place} {rest}"


def test_bags_are_checked_before_images_are_read(tmp_path):
    table = filled(tmp_path)
    (tmp_path / "a.png").write_bytes(b"broken")
    with pytest.raises(BagError, match=r"bag 's' .* is unknown"):
        read_images(tmp_path, table, proportions={"n": [0.5, 0.5]})


def test_images_of_several_sizes_are_refused(tmp_path):
    table = filled(tmp_path)
    save(tmp_path, "deep/c.png", pixels(2, 6, 7))
    message = (
        r"^images are of several sizes: 'deep/b.png' \(row 0 .*\) is 5 × 7 \(height × width\), but "
        r"'deep/c.png' \(row 2 .*\) 6 × 7\.\n  Pass size=\(5, 7\)"
    )
    with pytest.raises(DataError, match=message):
        read_images(tmp_path, table, proportions=SHARES)


def test_an_orientation_behind_the_pixels_is_not_overlooked(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path, "a.png", pixels(0), exif=exif)
    data = (tmp_path / "a.png").read_bytes()
    start = data.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(data[start : start + 4], "big")
    moved = data[:start] + data[end:-12] + data[start:end] + data[-12:]  # just before IEND
    (tmp_path / "a.png").write_bytes(moved)
    save(tmp_path, "b.png", pixels(1, 7, 5))
    save(tmp_path, "c.png", pixels(2, 5, 7))
    table = pd.DataFrame({"file": ["a.png", "b.png", "c.png"], "bag": "n"})
    x = read_images(tmp_path, table[:2], proportions={"n": [1.0]}).x
    np.testing.assert_array_equal(x[0], as_stored(np.rot90(pixels(0), -1)))
    with pytest.raises(DataError, match=r"'a.png' .* is 7 × 5 .* 'c.png' \(row 2 .*\) 5 × 7\."):
        read_images(tmp_path, table, proportions={"n": [1.0]}, store=tmp_path / "store")
    assert not list((tmp_path / "store").glob("*"))


@pytest.mark.parametrize("named", [True, False], ids=["a column split", "a share"])
def test_training_images_alone_decide_how_many_channels_there_are(tmp_path, named):
    files = [f"{i}.png" for i in range(4)]
    table = pd.DataFrame({"file": files, "bag": list("abcd")})
    shares = pd.DataFrame({"bag": list("abcd"), "split": ["train", "test", "train", "valid"]})
    shares = shares.assign(cat=0.0, dog=1.0) if named else shares[["bag"]].assign(dog=1.0)
    options: Any = {"bag": "bag", "file": "file", "label": None, "proportions": shares}
    options |= {"validation": None if named else 0.5, "seed": 2, "size": None}
    for i, file in enumerate(files):
        save(tmp_path, file, pixels(i, channels=1))
    gray = read_image_sets(tmp_path, table, **options)
    held_out = [i for name, bags in gray.items() if name != "train" for i in bags.index.tolist()]
    for i in held_out:
        save(tmp_path, files[i], pixels(i))
    sets = read_image_sets(tmp_path, table, **options)
    assert {name: bags.ids for name, bags in sets.items()} == {n: b.ids for n, b in gray.items()}
    rows = sets["train"].index
    assert sets["train"].x.shape == (4, 1, 5, 7)
    np.testing.assert_array_equal(sets["train"].x[rows], gray["train"].x[rows])
    for i in held_out:  # ITU-R 601-2
        luma = pixels(i) @ [0.299, 0.587, 0.114]
        np.testing.assert_allclose(sets["train"].x[i, 0], luma, atol=1)
    for i in rows.tolist():  # and the other way round
        save(tmp_path, files[i], pixels(i))
    save(tmp_path, files[held_out[0]], pixels(9, channels=1))
    assert read_image_sets(tmp_path, table, **options)["train"].x.shape == (4, 3, 5, 7)


def test_a_bag_that_is_not_in_the_proportions_is_named_with_both_tables(tmp_path):
    filled(tmp_path).to_csv(tmp_path / "files.csv", index=False)
    (tmp_path / "shares.csv").write_text("bag,cat,dog\nn,0.5,0.5\n")
    with pytest.raises(BagError, match=r"files\.csv and .*shares\.csv: bag 's' .* is unknown"):
        read_images(tmp_path, tmp_path / "files.csv", proportions=tmp_path / "shares.csv")


def test_images_of_more_than_8_bits_are_refused(tmp_path):
    table = filled(tmp_path)
    save(tmp_path, "deep/c.png", np.full((5, 7), 60_000, np.uint16))
    with pytest.raises(
        DataError, match=r"^'deep/c.png' \(row 2 .* more than 8 bits per pixel \(mode I"
    ):
        read_images(tmp_path, table, proportions=SHARES)


# ------------------------------------------------------------------------------- links and sizes


@pytest.mark.parametrize("how", ["file", "folder", "dots"])
def test_images_that_leave_their_folder_are_refused(tmp_path, how):
    folder, other = tmp_path / "images", tmp_path / "images-other"
    table = filled(folder)
    save(other, "x.png", pixels(9))
    name = {"file": "x.png", "folder": "linked/x.png", "dots": "../images-other/x.png"}[how]
    if how == "file":
        (folder / "x.png").symlink_to(other / "x.png")
    if how == "folder":
        (folder / "linked").symlink_to(other)
    table.loc[1, "file"] = name
    with pytest.raises(DataError, match=r"x\.png' .*row 1(.|\n)*follow_links=True"):
        read_images(folder, table, proportions=SHARES)
    read = read_images(folder, table, proportions=SHARES, follow_links=True)
    assert (read.x[1] == pixels(9).transpose(2, 0, 1)).all()


def test_links_within_the_folder_and_a_folder_that_is_a_link_are_followed(tmp_path):
    table = filled(tmp_path / "images")
    (tmp_path / "images/x.png").symlink_to("deep/b.png")
    (tmp_path / "here").symlink_to(tmp_path / "images")
    table.loc[1, "file"] = "x.png"
    read = read_images(tmp_path / "here", table, proportions=SHARES)
    assert (read.x[1] == read.x[0]).all()


def test_a_huge_image_is_refused_by_its_header(tmp_path):
    table = filled(tmp_path)
    line = b"\0" + bytes(13_000 // 8)
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 13_000, 13_000, 1, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(line * 13_000)),
        (b"IEND", b""),
    ]
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    (tmp_path / "deep/c.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(packed))
    tracemalloc.start()
    said = r"'deep/c\.png' \(row 2 .* 13,000 × 13,000 .* 67,108,864 pixels"
    with pytest.raises(DataError, match=said):
        read_images(tmp_path, table, proportions=SHARES, size=(8, 8))
    assert tracemalloc.get_traced_memory()[1] < 5e7
    tracemalloc.stop()


# --------------------------------------------------------------------------- images without bags


def test_all_image_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path):
    filled(tmp_path)
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / ".hidden.png").write_text("no image")
    found = read_images_alone(tmp_path)
    assert found.shape == (3, 3, 5, 7)
    assert (found[1] == pixels(1).transpose(2, 0, 1)).all()
    save(tmp_path, ".thumbnails/0.png", pixels(0))
    assert len(read_images_alone(tmp_path)) == len(found)  # what is hidden is nobody's image
    assert read_images_alone(tmp_path, size=(4, 4)).shape == (3, 3, 4, 4)


def test_files_without_a_table_are_named_without_its_rows(tmp_path):
    filled(tmp_path)
    (tmp_path / "deep/c.png").write_bytes(b"broken")
    with pytest.raises(DataError) as refused:
        read_images_alone(tmp_path)
    assert "'deep/c.png' cannot be read as an image" in str(refused.value)
    assert "or move it elsewhere" in str(refused.value)
    assert "table" not in str(refused.value)


def test_links_out_of_the_folder_are_refused_unless_they_may_be_followed(tmp_path):
    filled(tmp_path / "images")
    save(tmp_path, "out.png", pixels(5))
    (tmp_path / "images/x.png").symlink_to(tmp_path / "out.png")
    with pytest.raises(DataError, match=r"'x\.png' is a link that leaves"):
        read_images_alone(tmp_path / "images")
    assert len(read_images_alone(tmp_path / "images", follow_links=True)) == 4


def test_an_array_of_a_file_has_its_channels_first(tmp_path):
    x = np.stack([pixels(seed) for seed in range(4)])
    np.save(tmp_path / "last.npy", x)
    np.savez(tmp_path / "one.npz", anything=np.moveaxis(x, -1, 1))
    np.savez(tmp_path / "two.npz", a=x, b=x)
    for name in ("last.npy", "one.npz"):
        found = read_images_alone(tmp_path / name)
        assert (found == np.moveaxis(x, -1, 1)).all()
    with pytest.raises(DataError, match=r"two\.npz has the arrays a, b\.\n"):
        read_images_alone(tmp_path / "two.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "one.npz").read_bytes()[:50])
    with pytest.raises(DataError, match="cannot be read as an array"):
        read_images_alone(tmp_path / "cut.npz")
