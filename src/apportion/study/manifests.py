"""Manifests: bags as one file, to be cited by a checksum and read again.

A manifest says which rows each bag holds, how many of every class, and how that came about. It
holds neither instances nor their labels: with the rows that it was made of it becomes `Bags`.

The file is an .npz of three arrays of whole numbers, `index`, `offsets` and `counts` in the layout
of `Bags`, beside a text, `manifest.json`. There is no pickle in it, and numpy alone can read it:
``np.load(file)["index"]``. The same manifest is the same bytes, wherever and whenever it is saved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from apportion.bags.bags import Bags
from apportion.bags.counts import count_labels
from apportion.bags.read import as_instances, count_rows
from apportion.errors import BagError, DataError, count
from apportion.study._manifest_file import ARRAYS, REMEDY, checksum, read_manifest, write_manifest
from apportion.study._pool import Ints
from apportion.study.protocols import Drawn

__all__ = ["Manifest"]

ClassName = str | int | float | bool


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

    It comes back from its file as it was:

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     made.save(f"{folder}/bags.npz")
    ...     Manifest.load(f"{folder}/bags.npz").sha256 == made.sha256
    True
    """

    protocol: str  # the name of what made them, such as "rand"
    settings: Mapping[str, Any]  # and its options, as JSON has them
    seed: int
    redrawn: int  # draws that had to be made again
    n_rows: int  # rows of the data set that `index` counts
    classes: tuple[ClassName, ...]
    index: Ints  # (N,) bag after bag, the rows that each holds
    offsets: Ints  # (n + 1,) bag i is index[offsets[i]:offsets[i + 1]]
    counts: Ints  # (n, C) how many of every class each holds

    def __post_init__(self) -> None:
        """Check that the fields agree with one another, and that a file can keep them."""
        for name in self.classes:
            if not isinstance(name, ClassName):
                raise BagError(
                    f"class {name!r} is a {type(name).__name__}, which a manifest cannot keep.",
                    "Let class names be strings or plain numbers: truth.astype(str).",
                )
        try:
            json.dumps(dict(self.settings))
        except TypeError as error:
            raise BagError(
                f"the settings {dict(self.settings)} cannot be kept: {error}.",
                "Let them be plain numbers, strings, and lists and dicts of these.",
            ) from error
        dtypes = {array.dtype for array in self._arrays.values()}
        if (
            (self.index.ndim, self.offsets.ndim, self.counts.ndim) != (1, 1, 2)
            or dtypes != {np.dtype(np.int64)}
            or not self.offsets.size
            or not (np.diff(self.offsets) > 0).all()
            or self.offsets[[0, -1]].tolist() != [0, len(self.index)]
        ):
            raise BagError(
                "index, offsets and counts are not those of bags.",
                "Manifest.from_members makes them from the rows of your bags.",
            )
        if self.index.max() >= self.n_rows:
            raise BagError(
                f"a bag holds row {self.index.max()}, but there are {count(self.n_rows, 'row')}.",
                f"Rows are numbered from 0 to {self.n_rows - 1}.",
            )
        self.bags()

    @classmethod
    def from_members(
        cls,
        members: Drawn | Mapping[Any, ArrayLike] | ArrayLike,
        truth: Any,
        *,
        protocol: str,
        settings: Mapping[str, Any],
        seed: int,
        classes: Iterable[ClassName] | None = None,
    ) -> Manifest:
        """Count the classes of bags, and write down how they were made.

        Parameters
        ----------
        members : Drawn, mapping from bag to rows, or array of shape (n, size)
            What a protocol gave. Bags keep their order; their names are 0, 1, ….
        truth : array of shape (M,)
            The class name of every row of the data set, whether a bag holds it or not.
        protocol, settings, seed
            What was called and how, for whoever wants to do it again.
        classes : sequence of class names, optional
            By default those of `truth`, in their order.
        """
        redrawn = members.redrawn if isinstance(members, Drawn) else 0
        rows = members.members if isinstance(members, Drawn) else members
        bags = Bags.from_members(None, rows, truth=truth, classes=classes)
        names: Any = bags.classes  # what kinds they are is checked with the other fields
        arrays = bags.index, bags.offsets, bags.counts
        return cls(protocol, dict(settings), int(seed), redrawn, len(truth), names, *arrays)

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
        return checksum(self._arrays, self.classes)

    @property
    def _arrays(self) -> dict[str, Ints]:
        return {name: getattr(self, name) for name in ARRAYS}

    def bags(self, x: Any = None, truth: Any = None) -> Bags:
        """Put the rows of a data set into these bags.

        Parameters
        ----------
        x : array of shape (M, …), or a tuple of such arrays
            The rows that the bags were made of, in the same order.
        truth : array of shape (M,), optional
            The truth, for evaluation only.

        Raises
        ------
        BagError
            If x has another number of rows, or the truth gives a bag other counts.
        """
        n_rows = self.n_rows if x is None else count_rows(as_instances(x))
        if n_rows != self.n_rows:
            raise BagError(
                f"x has {count(n_rows, 'row')}, but the bags were made of {self.n_rows:,}.",
                "Pass all rows of the data set that they were made of, in the same order.",
            )
        members = dict(enumerate(np.split(self.index, self.offsets[1:-1])))
        bags = Bags.from_members(
            x, members, self.counts, counts=True, classes=self.classes, truth=truth
        )
        if bags.truth is not None:
            self._check_truth(bags.truth)
        return bags

    def _check_truth(self, truth: Ints) -> None:
        """Compare the counts with those of the truth: rows in another order would have others."""
        true = count_labels(truth, np.diff(self.offsets), len(self.classes))
        wrong = np.argwhere(true != self.counts)
        if len(wrong):
            bag, c = wrong[0]
            raise BagError(
                f"bag {bag} was made with {self.counts[bag, c]:,} of class {self.classes[c]!r}, "
                f"but the truth gives it {true[bag, c]:,}.",
                "Pass x and truth in the order of the data set that the bags were made of.",
            )

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the manifest into one file, whole or not at all.

        Parameters
        ----------
        path : path
            By custom it ends in .npz.
        force : bool
            Whether to replace a file that is there already.
        """
        about = {
            "protocol": self.protocol,
            "settings": dict(self.settings),
            "seed": self.seed,
            "redrawn": self.redrawn,
            "n_rows": self.n_rows,
            "classes": list(self.classes),
        }
        write_manifest(Path(path), self._arrays, about, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """Read a manifest from its file, and check that it is the one that was saved.

        Raises
        ------
        DataError
            If there is no such file, or it is damaged, or no manifest, or of a later format.
        """
        arrays, about = read_manifest(path)
        try:
            return cls(
                protocol=str(about["protocol"]),
                settings=dict(about["settings"]),
                seed=int(about["seed"]),
                redrawn=int(about["redrawn"]),
                n_rows=int(about["n_rows"]),
                classes=tuple(about["classes"]),
                **arrays,
            )
        except KeyError as error:
            raise DataError(f"{path} lacks {error} in its manifest.json.", REMEDY) from error
        except (TypeError, ValueError) as error:
            raise DataError(f"{path} contradicts itself: {error}", REMEDY) from error

    def __repr__(self) -> str:
        return (
            f"Manifest({self.protocol}, seed {self.seed}: {self.n_bags:,} bags from "
            f"{count(self.n_rows, 'row')}, {len(self.classes):,} classes; "
            f"SHA-256 {self.sha256[:8]}…)"
        )
