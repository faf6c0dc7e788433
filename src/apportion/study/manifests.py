"""Manifests: bags as one file, to be cited by a checksum and read again.

A manifest says which rows each bag holds, how many of every class, and how the bags were made. It
holds neither instances nor their labels: with the rows that it was made from it becomes `Bags`.

The file is a safetensors file of three arrays of integers, `index`, `offsets` and `counts` in the
layout of `Bags`, and of one JSON text under the metadata key ``apportion``. Equal manifests are
equal bytes: integers are as short as their largest value allows, and there is a single metadata
key, because safetensors writes several in no fixed order.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from apportion.bags.bags import Bags
from apportion.bags.checks import check_array, check_rows
from apportion.bags.counts import count_labels
from apportion.bags.read import as_instances, count_rows
from apportion.errors import BagError, DataError, count
from apportion.files import check_free, replacing
from apportion.study._pool import Ints
from apportion.study.protocols import Drawn

__all__ = ["Manifest"]

FORMAT = 2
ARRAYS = ("index", "offsets", "counts")
LONGEST_TEXT = 1_000_000  # characters, and a thousand for every bag or class


@dataclass(frozen=True, eq=False)
class Manifest:
    """Which rows the bags hold, how many of every class, and how they were made.

    Make one with `Manifest.from_members`, or read one with `Manifest.load`.

    Examples
    --------
    >>> from apportion.study.protocols import rand
    >>> truth, settings = np.repeat(["no", "yes"], 6), {"size": 4}
    >>> drawn = rand(truth, **settings, seed=1)
    >>> made = Manifest.from_members(drawn, truth, protocol="rand", settings=settings, seed=1)
    >>> made
    Manifest(rand, seed 1: 3 bags from 12 rows, 2 classes; SHA-256 c7b24bb0…)
    >>> made.bags(np.arange(12.0))
    Bags(3 bags of 4–4–4 instances, 12 in all, from 12 rows; 2 classes: no, yes; truth unknown)
    """

    protocol: str  # the name of what made them, such as "rand"
    settings: Mapping[str, Any]  # its options, as JSON keeps them
    seed: int
    redrawn: int  # draws that had to be made again
    n_rows: int  # of the data set that `index` counts
    classes: tuple[Any, ...]  # strings or plain numbers
    index: Ints  # (N,) bag after bag, the rows that each holds
    offsets: Ints  # (n + 1,) bag i is index[offsets[i]:offsets[i + 1]]
    counts: Ints  # (n, C) how many of every class each holds

    def __post_init__(self) -> None:
        """Check that the fields agree with one another, and that a file can keep them."""
        plain = [*self.classes, dict(self.settings), self.seed, self.redrawn, self.n_rows]
        if json.loads(json.dumps(plain, default=repr)) != plain:
            raise BagError(
                f"a manifest cannot keep all of {plain}.",
                "Pass strings and plain numbers, for example classes of truth.astype(str).",
            )
        n = self.offsets.size - 1
        check_array("offsets", self.offsets, (n + 1,), np.int64)
        check_array("index", self.index, (self.index.size,), np.int64)
        check_array("counts", self.counts, (n, len(self.classes)), np.int64)
        if not np.array_equal(self.bags().offsets, self.offsets):
            raise BagError(f"offsets must run from 0 to {len(self.index)}; got {self.offsets}.")
        check_rows(self.index, self.offsets[1:], range(n), self.n_rows)

    @classmethod
    def from_members(
        cls,
        members: Drawn | Mapping[Any, ArrayLike] | ArrayLike,
        truth: Any,
        *,
        protocol: str,
        settings: Mapping[str, Any],
        seed: int,
    ) -> Manifest:
        """Count the classes of bags, and record how they were made.

        Parameters
        ----------
        members : Drawn, mapping from bag to rows, or array of shape (n, size)
            What a protocol returned. Bags keep their order; their names are 0, 1, ….
        truth : array of shape (M,)
            The class name of every row of the data set, in a bag or not.
        protocol, settings, seed
            What was called and how.
        """
        redrawn = members.redrawn if isinstance(members, Drawn) else 0
        rows: Any = members.members if isinstance(members, Drawn) else members
        bags = Bags.from_members(None, rows, truth=truth)
        arrays = bags.index, bags.offsets, bags.counts
        return cls(protocol, dict(settings), int(seed), redrawn, len(truth), bags.classes, *arrays)

    @property
    def n_bags(self) -> int:
        """The number of bags."""
        return len(self.offsets) - 1

    @property
    def sha256(self) -> str:
        """The checksum of the bags themselves, however they were made: cite them by it.

        It is that of the arrays index, offsets and counts, each as a line of its name and shape
        followed by its values as little-endian 64-bit integers, and of the JSON list of classes.
        """
        digest = hashlib.sha256()
        for name in ARRAYS:
            array: Ints = getattr(self, name)
            digest.update(f"{name} {' '.join(map(str, array.shape))}\n".encode())
            digest.update(array.astype("<i8").tobytes())
        digest.update(json.dumps(list(self.classes)).encode())
        return digest.hexdigest()

    def bags(self, x: Any = None, truth: Any = None) -> Bags:
        """Return the bags, of the rows `x` of their data set, with its `truth`, or without them."""
        given = self.n_rows if truth is None else len(truth)
        n_rows = given if x is None else count_rows(as_instances(x))
        remedy = "Pass the data set that they were made from, with its rows in the same order."
        if n_rows != self.n_rows:
            was = count(self.n_rows, "row")
            raise BagError(f"the bags were made from {was}; got {n_rows:,}.", remedy)
        members = dict(enumerate(np.split(self.index, self.offsets[1:-1])))
        bags = Bags.from_members(
            x, members, self.counts, counts=True, classes=self.classes, truth=truth
        )
        if bags.truth is not None:
            true = count_labels(bags.truth, bags.sizes, bags.n_classes)
            for bag in np.flatnonzero((true != self.counts).any(axis=1))[:1]:
                both = f"{self.counts[bag].tolist()}, but by the truth it has {true[bag].tolist()}"
                raise BagError(f"bag {bag} was made with counts {both}.", remedy)
        return bags

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the manifest into one .safetensors file, whole or not at all."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        short = {name: a.astype(np.min_scalar_type(a.max())) for name, a in arrays.items()}
        check_free(Path(path), force=force)
        with replacing(Path(path)) as beside:
            beside.write_bytes(save(short, {"apportion": self._text()}))

    def _text(self) -> str:
        """Return all but the arrays as JSON, with a checksum of that text."""
        about = {"format": FORMAT, "kind": "manifest", **vars(self), "sha256": self.sha256}
        about = {name: value for name, value in about.items() if name not in ARRAYS}
        about["settings"] = dict(self.settings)
        checksum = hashlib.sha256(json.dumps(about).encode()).hexdigest()
        return json.dumps({**about, "checksum": checksum})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """Read a manifest; a file that is damaged, foreign or of a later format is a DataError."""
        try:
            with safe_open(path, framework="numpy") as file:
                text = (file.metadata() or {}).get("apportion", "{}")
                sizes = [n for name in file.keys() for n in file.get_slice(name).get_shape()]  # noqa: SIM118
                if len(text) > LONGEST_TEXT + 1000 * max(sizes, default=0):
                    raise ValueError(f"its text is of {len(text):,} characters")
                about = json.loads(text)
                if (kind := about.get("kind", "file")) != "manifest":
                    raise ValueError(f"it is another {kind}")
                if (version := about.get("format")) != FORMAT:
                    raise ValueError(f"it has format {version}, and this apportion reads {FORMAT}")
                own = {field.name: about.get(field.name) for field in fields(cls)}
                for name in ARRAYS:  # fractions would be a TypeError
                    own[name] = file.get_tensor(name).astype(np.int64, casting="same_kind")
            if not all(type(own[name]) is int for name in ("seed", "redrawn", "n_rows")):
                raise TypeError("seed, redrawn and n_rows must be integers")
            _check_layout(own)
            manifest = cls(**{**own, "classes": tuple(own["classes"])})
            if manifest._text() != text:
                raise ValueError("it was changed since it was saved")
        except (
            SafetensorError,
            OSError,
            AttributeError,
            TypeError,
            ValueError,
            RecursionError,
            OverflowError,
        ) as error:
            raise DataError(
                f"{path} cannot be read as a manifest: {error!s:.1000}".rstrip(".") + ".",
                "Pass a file that Manifest.save wrote; if it is damaged, restore it from a copy.",
            ) from error
        return manifest

    def __repr__(self) -> str:
        return (
            f"Manifest({self.protocol}, seed {self.seed}: {self.n_bags:,} bags from "
            f"{count(self.n_rows, 'row')}, {len(self.classes):,} classes; "
            f"SHA-256 {self.sha256[:8]}…)"
        )


def _check_layout(own: Mapping[str, Any]) -> None:
    """Check the arrays of a file against one another, before every bag becomes an object."""
    index, offsets, counts = (own[name] for name in ARRAYS)
    if not isinstance(own["classes"], list) or not isinstance(own["settings"], dict):
        raise TypeError("classes must be a list, and settings an object")
    if not isinstance(own["protocol"], str) or min(own["redrawn"], own["n_rows"]) < 0:
        raise ValueError("protocol must be a text, and redrawn and n_rows must be ≥ 0")
    if (index.ndim, offsets.ndim, counts.ndim) != (1, 1, 2):
        raise ValueError("index, offsets and counts must have 1, 1 and 2 axes")
    sizes = np.diff(offsets)
    if not len(sizes) or offsets[0] != 0 or offsets[-1] != len(index) or sizes.min() < 1:
        raise ValueError(f"offsets must rise from 0 to {len(index):,}")
    if counts.shape != (len(sizes), len(own["classes"])):
        raise ValueError(
            f"counts must be of shape ({len(sizes)}, {len(own['classes'])}); it is of shape "
            f"{counts.shape}"
        )
