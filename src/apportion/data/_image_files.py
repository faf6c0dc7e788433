"""Image files that become the rows of one array, decoded by threads."""

from __future__ import annotations

import logging
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from apportion.data._row_store import RowStore
from apportion.errors import DataError, Option, and_more

log = logging.getLogger("apportion")

Pixels = NDArray[np.uint8]
Size = tuple[int, int]  # height and width
T = TypeVar("T")

TOGETHER = 64  # images that one task reads
SAY_EVERY = 10_000  # images
MOST_PIXELS = 2**26  # of one image, which takes 200 MB: known from its header, before any memory

OPAQUE = 255
GRAY = ("1", "L", "LA", "La")
DEEP = ("I", "F")  # with I;16 and similar modes: more than 8 bits, too many for uint8

# What Pillow raises on files that are cut off, or that contain no image.
BROKEN = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


class Header(NamedTuple):
    """The mode and the size of an image, known before it is decoded."""

    mode: str
    size: Size  # maybe before the image is turned as its EXIF orientation says
    has_more: bool  # frames or pages than the first


class ImageFiles:
    """Files in a folder; `rows` has the row of each in the table that names them, if one does."""

    def __init__(
        self, folder: Path, names: Sequence[str], rows: Sequence[int] | None = None
    ) -> None:
        self.folder, self.names, self.rows = folder, names, rows
        self.see_through = set[int]()  # those with transparent pixels, as far as they are decoded

    def check_links(self) -> None:
        """Check that no file is a link, or in a linked folder, that leads out of the folder."""
        root = os.path.realpath(self.folder)
        inside: dict[Path, bool] = {}
        left = []
        for i, name in enumerate(self.names):
            path = self.folder / name
            if path.parent not in inside:
                inside[path.parent] = _is_within(path.parent, root)
            if not inside[path.parent] or (path.is_symlink() and not _is_within(path, root)):
                left.append(i)
        if left:
            raise DataError(
                f"{self._file(left[0])} is a link that leaves {self.folder}{and_more(len(left))}.",
                ("Copy the files there, or pass ", Option("follow_links"), "."),
            )

    def read(self, size: Size | None, store: Path | None, like: Iterable[int] = ()) -> Pixels:
        """Read the array (M, 1 or 3, height, width), mapped to a file in `store` if it is given.

        It has one channel if all files that it is to be `like` are gray; by default that is all.
        """
        absent = [i for i, name in enumerate(self.names) if not (self.folder / name).is_file()]
        if absent:
            raise DataError(
                f"{self._file(absent[0])} does not exist in {self.folder}{and_more(len(absent))}.",
                "Put it there, or correct its name, which is relative to the folder.",
            )
        with warnings.catch_warnings():  # here, since threads share their filters
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            headers = self._for_all(self._read_header)
        large = [
            i for i, (_, (height, width), _) in enumerate(headers) if height * width > MOST_PIXELS
        ]
        if large:
            height, width = headers[large[0]].size
            raise DataError(
                f"{self._file(large[0])} is of {height:,} × {width:,} (height × width), more than "
                f"{MOST_PIXELS:,} pixels{and_more(len(large))}.",
                f"Save it smaller or cut into tiles, or {self._leave_out}.",
            )
        deep = [i for i, header in enumerate(headers) if header.mode.startswith(DEEP)]
        if deep:
            raise DataError(
                f"{self._file(deep[0])} has more than 8 bits per pixel "
                f"(mode {headers[deep[0]].mode}){and_more(len(deep))}.",
                "Save such images with 8 bits, or pass arrays to Bags.from_rows.",
            )
        if several := [i for i, header in enumerate(headers) if header.has_more]:
            log.warning(
                "%s has several frames or pages%s: only the first is read.",
                self._file(several[0]),
                and_more(len(several)),
            )
        decisive = [headers[i] for i in like] or headers
        mode = "L" if all(header.mode in GRAY for header in decisive) else "RGB"
        if size is None:
            self._check_size(headers[0].size, [header.size for header in headers], turned=True)
        height, width = size or self._first_size(mode, headers[0].size)
        shape = len(self.names), len(mode), height, width
        kept = RowStore({"images": (shape, np.uint8)}, store)
        try:
            (place,) = kept.part(0, len(self.names))
            found = self._for_all(lambda i: self._decode(i, mode, size, place), say=True)
            self._check_size((height, width), found)
            if self.see_through:
                log.warning(
                    "%s has transparent pixels%s: transparency is left out, and the colours "
                    "below it are read, black or anything else. Save such images on a background.",
                    self._file(min(self.see_through)),
                    and_more(len(self.see_through)),
                )
        except BaseException:
            kept.remove()
            raise
        (pixels,) = kept.finish()
        return pixels

    def _read_header(self, i: int) -> Header:
        with Image.open(self.folder / self.names[i]) as image:
            width, height = image.size
            # A photograph's second frame is a preview or its depth.
            has_more = image.format != "MPO" and getattr(image, "is_animated", False)
            return Header(image.mode, (height, width), has_more)

    def _first_size(self, mode: str, before: Size) -> Size:
        """Return the size of the first image after turning it. A broken image is reported later."""
        try:
            height, width = self._pixels(0, mode, None).shape[1:]
        except BROKEN:
            return before
        return height, width

    def _pixels(self, i: int, mode: str, size: Size | None) -> Pixels:
        """Decode an image, to the shape (channels, height, width)."""
        with Image.open(self.folder / self.names[i]) as opened:
            image = ImageOps.exif_transpose(opened)
            if "transparency" in image.info and image.mode == "P":
                image = image.convert("RGBA")  # Pillow warns of palettes with transparent colors
            if "A" in image.getbands() and image.getchannel("A").getextrema()[0] != OPAQUE:
                self.see_through.add(i)
            image = image.convert(mode)
        if size is not None:
            image = image.resize(size[::-1], Image.Resampling.BILINEAR)
        pixels: Pixels = np.asarray(image)
        return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)

    def _decode(self, i: int, mode: str, size: Size | None, array: Pixels) -> Size:
        """Put an image in its place, if it is of the right size; return its size."""
        pixels = self._pixels(i, mode, size)
        if pixels.shape == array.shape[1:]:
            array[i] = pixels
        height, width = pixels.shape[1:]
        return height, width

    def _for_all(self, read: Callable[[int], T], *, say: bool = False) -> list[T]:
        """Read all files by threads, and check that none is broken."""
        bad: dict[int, Exception] = {}

        def some(first: int) -> list[T | None]:
            found: list[T | None] = []
            for i in range(first, min(first + TOGETHER, len(self.names))):
                try:
                    found.append(read(i))
                except BROKEN as error:
                    bad[i] = error
                    found.append(None)
            return found

        given: list[T | None] = []
        with ThreadPoolExecutor(min(os.cpu_count() or 1, 16), "apportion-images") as pool:
            try:
                for part in pool.map(some, range(0, len(self.names), TOGETHER)):
                    before, now = len(given) // SAY_EVERY, (len(given) + len(part)) // SAY_EVERY
                    given += part
                    if say and (now > before or len(given) == len(self.names)):
                        done, all_ = f"{len(given):,}", f"{len(self.names):,}"
                        log.info("%s: %s of %s images are read", self.folder, done, all_)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        if bad:
            first = min(bad)
            reason = str(bad[first]).replace(f" {str(self.folder / self.names[first])!r}", "")
            raise DataError(
                f"{self._file(first)} cannot be read as an image{and_more(len(bad))}.",
                f"{type(bad[first]).__name__}: {reason}",
                f"Save it again, or {self._leave_out}.",
            ) from bad[first]
        return [found for found in given if found is not None]

    def _check_size(self, wanted: Size, found: list[Size], *, turned: bool = False) -> None:
        """Check that images are of one size; with `turned`, some may still have to be turned."""
        allowed = (wanted, wanted[::-1]) if turned else (wanted,)
        other = [i for i, size in enumerate(found) if size not in allowed]
        if other:
            (height, width), (own_height, own_width) = wanted, found[other[0]]
            raise DataError(
                f"images are of several sizes: {self._file(0)} is {height} × {width} (height × "
                f"width), but {self._file(other[0])} {own_height} × {own_width}"
                f"{and_more(len(other))}.",
                (
                    "Pass ",
                    Option("size", f"({height}, {width})", f"{height}x{width}"),
                    ", or another size, to resize them all.",
                ),
            )

    @property
    def _leave_out(self) -> str:
        return "move it elsewhere" if self.rows is None else "leave its row out of the table"

    def _file(self, i: int) -> str:
        if self.rows is None:
            return repr(self.names[i])
        return f"{self.names[i]!r} (row {self.rows[i]:,} of the table, counted from 0)"


def _is_within(path: Path, root: str) -> bool:
    """Tell whether a path leads to a place in a folder, which is given without links."""
    real = os.path.realpath(path)
    return real == root or real.startswith(root.rstrip(os.sep) + os.sep)
