"""Image files in bags: a folder, a table that says which bag each file is in, and proportions.

Images are decoded once, by threads, into one array of uint8, which is what a network is trained on.
An array that is too large for memory, or that is to be kept, is a file that is mapped into memory.
Images alone, without bags, are all those of a folder, or an array in a file of numpy.
"""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from apportion.bags.bags import Bags
from apportion.bags.read import Placed, factorize
from apportion.data._image_files import ImageFiles
from apportion.data._named import agreed, names_in, put, read_columns
from apportion.data._row_store import check_store
from apportion.data.dialect import PLAIN, FormatOptions, TableFormat, formats
from apportion.data.pieces import Pieces, Rows
from apportion.data.proportions import BagTable, read_proportions
from apportion.data.tables import split_bags
from apportion.errors import DataError, Option, listing
from apportion.nets.measure import has_channels_last

__all__ = ["read_image_sets", "read_images", "read_images_alone"]

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
ARRAYS = (".npy", ".npz")


def read_images(
    folder: str | os.PathLike[str],
    table: Rows | Pieces,
    *,
    bag: str = "bag",
    file: str = "file",
    proportions: Any = None,
    counts: bool = False,
    normalize: bool = False,
    label: str | None = None,
    size: tuple[int, int] | None = None,
    follow_links: bool = False,
    store: str | os.PathLike[str] | None = None,
    skip_unplaced: bool = False,
    **form: Unpack[FormatOptions],
) -> Bags:
    """Read image files, and put them in bags.

    The instances are of shape (M, 3, height, width), in uint8, or (M, 1, height, width) if all
    images are gray. They are turned as their EXIF orientation says; transparency is left out, and
    so are all frames or pages but the first. A file that stands in several bags is read once.

    Parameters
    ----------
    folder : path
        Where the files are.
    table : path of a table, or a frame, as in `apportion.read_table`
        One row per image.
    bag, file : str
        The columns of bag ids, and of file names within the folder (``cats/1.png``).
    proportions : dict, Series, frame or path of a table, optional
        The proportions of the classes by bag: a file has a column that is called `bag`, and a
        column per class. Without it, the labels in each bag are counted.
    counts, normalize : bool
        As in `Bags.from_rows`.
    label : str, optional
        The column of classes, for evaluation only if there are proportions.
    size : (height, width), optional
        What to resize images to, bilinearly and without keeping their shape. By default all must
        be of one size.
    follow_links : bool
        Whether files may lie outside the folder, by links or by ``..`` in their names.
    store : path, optional
        A new or empty folder, in which the array becomes a file that is mapped into memory,
        ``images.npy``. By default an array of more than 1 GiB is a temporary file, which is removed
        when it is not used any more.
    skip_unplaced : bool
        Whether rows without a bag, or of a bag that `proportions` do not have, are left out.
    sep, decimal, encoding, sheet : str, optional
        The format of the file of rows, as in `apportion.read_table`.
    proportions_sep, proportions_decimal, proportions_encoding, proportions_sheet : str, optional
        The same of the table of proportions.

    Examples
    --------
    >>> import pandas as pd
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> table = pd.DataFrame({"file": ["a.png", "b.png"], "bag": ["north", "north"]})
    >>> with TemporaryDirectory() as folder:
    ...     for name, color in zip(table["file"], ["red", "blue"], strict=True):
    ...         Image.new("RGB", (4, 2), color).save(Path(folder, name))
    ...     bags = read_images(folder, table, proportions={"north": {"cat": 0.5, "dog": 0.5}})
    >>> bags.x.shape, bags.x[:, :, 0, 0].tolist()
    ((2, 3, 2, 4), [[255, 0, 0], [0, 0, 255]])
    """
    if size is not None and (np.shape(size) != (2,) or not all(map(_is_positive, size))):
        raise DataError(f"size is {size!r}.", "Pass (height, width), two whole numbers above 0.")
    shape = None if size is None else (int(size[0]), int(size[1]))
    target = None if store is None else Path(store).expanduser()
    if target is not None:
        check_store(target)
    how: dict[str, Any] = {
        "counts": counts,
        "normalize": normalize,
        "follow_links": follow_links,
        "skip_unplaced": skip_unplaced,
    }
    of_rows, of_proportions = formats(**form)
    known = None
    if proportions is not None:
        known = read_proportions(proportions, bag, form=of_proportions)
    bags, _, files = _place(folder, table, bag, file, label, known, form=of_rows, **how)
    return bags.with_rows(files.read(shape, target))


def read_image_sets(
    folder: Any, table: Any, validation: float | None, seed: int, *, size: Any, **options: Any
) -> dict[str, Bags]:
    """Read images to train on, to select by and to test on, as `apportion.read_sets` does.

    All have as many channels as those of the training bags. Further options are all of those of
    `read_images` but the store.
    """
    bags, known, files = _place(folder, table, **options)
    sets = split_bags(bags, known, validation, seed)
    x = files.read(size, None, like=np.unique(sets["train"].index).tolist())
    return {name: own.with_rows(x) for name, own in sets.items()}


def read_images_alone(
    path: str | os.PathLike[str], *, size: tuple[int, int] | None = None, follow_links: bool = False
) -> NDArray[Any]:
    """Read all image files in a folder and the folders in it, or the array of a file of numpy.

    Parameters
    ----------
    path : path
        A folder, or a .npy or .npz file of shape (M, channels, height, width), with the channels
        last, or without them.
    size, follow_links
        As in `read_images`; for a folder alone.

    Returns
    -------
    ndarray of shape (M, channels, height, width)
        Files are in the order of their names.
    """
    source = Path(path).expanduser()
    if source.suffix.lower() in ARRAYS and source.is_file():
        if size is not None:
            raise DataError(
                f"size is {size!r}, but {source} holds an array.",
                "Leave it out: files of a folder alone are resized.",
            )
        return _array_in(source)
    if not source.is_dir():
        missing = "is neither a folder nor a .npy or .npz file" if source.exists() else "is missing"
        raise DataError(f"{source} {missing}.", "Pass the folder that the image files are in.")
    names = sorted(
        str(PurePosixPath(found.relative_to(source)))
        for found in source.rglob("*")
        if found.suffix.lower() in ENDINGS
        and not any(part.startswith(".") for part in found.relative_to(source).parts)
        and found.is_file()
    )
    if not names:
        raise DataError(
            f"{source} has no image files.", f"Their names must end in {listing(ENDINGS, most=20)}."
        )
    files = ImageFiles(source, names)
    if not follow_links:
        files.check_links()
    return files.read(size, None)


def _array_in(source: Path) -> NDArray[Any]:
    try:
        if source.suffix.lower() == ".npy":
            array = np.load(source, mmap_mode="r", allow_pickle=False)
        else:
            with source.open("rb") as file, np.load(file, allow_pickle=False) as read:
                array = read[_name_in(source, list(read))]
    except DataError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{source} cannot be read as an array: {error}.",
            "Save it by numpy.save, as numbers and not as objects.",
        ) from error
    shape = tuple(map(int, getattr(array, "shape", ())))
    if len(shape) not in (3, 4) or 0 in shape or array.dtype.kind not in "uif":
        raise DataError(
            f"{source} has an array of shape {shape} and type {getattr(array, 'dtype', '?')}.",
            "Images are numbers of shape (rows, channels, height, width).",
        )
    if len(shape) == 3:
        array = array[:, None]
    found: NDArray[Any]
    found = np.ascontiguousarray(np.moveaxis(array, -1, 1)) if has_channels_last(shape) else array
    return found


def _name_in(source: Path, names: list[str]) -> str:
    if len(names) != 1 and "x" not in names:
        found = f"the arrays {listing(names)}" if names else "no array"
        raise DataError(f"{source} has {found}.", "Name that of the images 'x'.")
    return "x" if "x" in names else names[0]


def _place(
    folder: Any,
    table: Any,
    bag: str,
    file: str,
    label: str | None,
    proportions: Any,
    follow_links: bool = False,
    form: TableFormat = PLAIN,
    **how: Any,
) -> tuple[Bags, BagTable | None, ImageFiles]:
    """Put files in bags, so that errors in the bags are raised before all files are read."""
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise DataError(f"{root} is not a folder.", "Pass the folder that the image files are in.")
    may_miss = [label, *([bag] if how.get("skip_unplaced") else [])]
    pieces, frame = read_columns(table, [file, bag, label], may_miss=may_miss, bag=bag, form=form)
    files = _check_names(pieces.source, frame[file].tolist(), follow_links)
    known = None if proportions is None else read_proportions(proportions, bag)
    ids = names_in(pieces, frame[bag], known)
    _check_once(pieces.source, files, ids)
    truth = None
    if label is not None:
        labels = agreed(
            pieces.source, "file", files, "label", names_in(pieces, frame[label], known)
        )
        truth = factorize(labels.values(), "label", len(labels), missing=None)
    distinct, place = factorize(files, "file", len(files))
    first_rows = np.unique(place, return_index=True)[1].tolist()
    placed = Placed(*factorize(ids, "bag id", len(ids), missing=None), place)
    bags = put(pieces, placed, known, truth=truth, **how)
    found = ImageFiles(root, list(map(str, distinct)), first_rows)
    if not follow_links:
        found.check_links()
    return bags, known, found


def _is_positive(n: Any) -> bool:
    return isinstance(n, int | np.integer) and bool(n > 0)


def _check_names(source: str, names: list[Any], follow_links: bool) -> list[str]:
    """Return the file names in one form, after a check that they lie within the folder."""
    files = []
    for row, name in enumerate(map(str, names)):
        up = not follow_links and ".." in re.split(r"[/\\]", name)
        if (
            up
            or PureWindowsPath(name).drive
            or PurePosixPath(name).is_absolute()
            or name.startswith("\\")
        ):
            raise DataError(
                f"{source}: the file {name!r} in row {row:,} (counted from 0) is outside the "
                "folder.",
                (
                    "Name files from the folder on, without '..', for example cats/1.png",
                    *((", or pass ", Option("follow_links")) if up else ()),
                    ".",
                ),
            )
        files.append(str(PurePosixPath(name)))
    return files


def _check_once(source: str, files: list[str], bags: list[Any]) -> None:
    seen: dict[tuple[str, Any], int] = {}
    for row, key in enumerate(zip(files, bags, strict=True)):
        first = seen.setdefault(key, row)
        if first != row:
            raise DataError(
                f"{source}: bag {key[1]!r} holds the file {key[0]!r} twice, in rows {first:,} and "
                f"{row:,} (counted from 0).",
                "A file may stand in several bags, but only once in each: leave out one row.",
            )
