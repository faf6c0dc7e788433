"""How the columns of a table become the numbers that a network takes.

A numeric column is one column of float32, in which the mean over the rows learned from stands for a
missing value. If values were missing in these rows, a further column says where: 1 there, 0
elsewhere. All such columns follow the numeric ones. A column whose values differ by less than a
thousandth of their mean, times in seconds say, is stored less its mean: float32 has seven digits.

A categorical column is one column of codes. Code 0 stands for a missing value and for a category
that was not there in the rows learned from; 1, 2, … for the others, the most frequent first.

Learning takes one pass over the table, in pieces of any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from apportion.data._column_statistics import Statistics
from apportion.data.encoding import Codes, Numbers, encode_into
from apportion.errors import DataError

__all__ = ["Columns"]


@dataclass(frozen=True)
class Columns:
    """The columns of a table, and how each becomes numbers. Learn them with `Columns.learn`.

    Columns of numbers and booleans are numeric; those of text are categorical, and so are pandas
    categoricals whatever their categories are. Categories are told apart by their text.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [30, None, 50], "job": ["cook", "nurse", "cook"]})
    >>> columns = Columns.learn(frame)
    >>> columns
    Columns(1 numeric: age (with gaps); 1 categorical: job (2))
    >>> numbers, codes = columns.encode(frame)
    >>> numbers
    array([[30.,  0.],
           [40.,  1.],
           [50.,  0.]], dtype=float32)
    >>> codes.T
    array([[1, 2, 1]], dtype=int16)

    They come back from JSON as they were:

    >>> import json
    >>> Columns.from_dict(json.loads(json.dumps(columns.to_dict()))) == columns
    True
    """

    names: tuple[str, ...]  # of all columns, in the order of the table
    means: Mapping[str, float]  # of every numeric column
    shifted: tuple[str, ...]  # the numeric columns from which their mean is taken
    gaps: tuple[str, ...]  # the numeric columns that get a further one for missing values
    categories: Mapping[str, tuple[str, ...]]  # of every categorical column, from code 1 on
    left_out: Mapping[str, int]  # how many rarer categories have code 0, if there are any

    @classmethod
    def learn(cls, frames: pd.DataFrame | Iterable[pd.DataFrame]) -> Columns:
        """Learn the columns of a table.

        Parameters
        ----------
        frames : DataFrame, or iterable of DataFrames
            The rows to learn from, or pieces of them, all of which have the same columns.

        Raises
        ------
        DataError
            If a column is neither numbers nor text, or numbers in one piece and text in another,
            or there twice, or infinite somewhere.

        Examples
        --------
        >>> pieces = (pd.DataFrame({"x": [k, k + 1]}) for k in (0, 2))
        >>> Columns.learn(pieces).means
        {'x': 1.5}
        """
        statistics = Statistics()
        for frame in [frames] if isinstance(frames, pd.DataFrame) else frames:
            statistics.add(frame)
        return cls(**statistics.fields())

    @property
    def numeric(self) -> tuple[str, ...]:
        """The names of the numeric columns."""
        return tuple(name for name in self.names if name in self.means)

    @property
    def categorical(self) -> tuple[str, ...]:
        """The names of the categorical columns."""
        return tuple(name for name in self.names if name in self.categories)

    @property
    def n_numbers(self) -> int:
        """F, the number of columns of float32: one a numeric column, and one more for its gaps."""
        return len(self.means) + len(self.gaps)

    @property
    def codes(self) -> tuple[int, ...]:
        """The number of codes of every categorical column, code 0 among them."""
        return tuple(len(self.categories[name]) + 1 for name in self.categorical)

    def encode(self, frame: pd.DataFrame) -> Numbers | tuple[Numbers, Codes]:
        """Turn rows into arrays.

        Parameters
        ----------
        frame : DataFrame
            Its columns are found by their names, in any order; further ones are ignored.

        Returns
        -------
        ndarray of float32 of shape (n, F)
            If no column is categorical. Otherwise a tuple of it and of the codes, an ndarray of
            int16 of shape (n, K).

        Warns
        -----
        UserWarning
            If there are categories that were not learned. They count as missing.

        Raises
        ------
        DataError
            If a column is missing, or text where it was numbers, or infinite somewhere.

        Examples
        --------
        >>> columns = Columns.learn(pd.DataFrame({"height": [1.5, 2.0], "weight": [60, 80]}))
        >>> columns.encode(pd.DataFrame({"weight": [70, None], "name": "Jo", "height": 1.75}))
        array([[ 1.75, 70.  ],
               [ 1.75, 70.  ]], dtype=float32)
        """
        n_rows = len(frame)
        numbers = np.empty((n_rows, self.n_numbers), np.float32)
        codes = np.empty((n_rows, len(self.categories)), np.int16)
        encode_into(self, frame, np.arange(n_rows), numbers, codes).warn(stacklevel=2)
        return (numbers, codes) if self.categories else numbers

    def to_dict(self) -> dict[str, Any]:
        """Give what `from_dict` needs, in types that JSON has."""
        categories = {name: list(texts) for name, texts in self.categories.items()}
        names = {name: list(getattr(self, name)) for name in ("names", "shifted", "gaps")}
        return asdict(self) | names | {"categories": categories}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Columns:
        """Make columns of what `to_dict` gave.

        Raises
        ------
        DataError
            If it gave something else.
        """
        try:
            made = cls(
                names=tuple(map(str, fields["names"])),
                means={str(name): float(mean) for name, mean in fields["means"].items()},
                shifted=tuple(map(str, fields["shifted"])),
                gaps=tuple(map(str, fields["gaps"])),
                categories={str(n): tuple(map(str, c)) for n, c in fields["categories"].items()},
                left_out={str(name): int(n) for name, n in fields["left_out"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"these are not saved columns: {type(error).__name__} {error}.",
                "Pass what Columns.to_dict gave.",
            ) from error
        if sorted(made.names) != sorted([*made.means, *made.categories]):
            raise DataError(
                f"of {len(made.names):,} saved columns, {len(made.means):,} are numeric and "
                f"{len(made.categories):,} categorical.",
                "Pass what Columns.to_dict gave: every column is one of the two.",
            )
        return made

    def __repr__(self, most: int = 8) -> str:
        def say(names: tuple[str, ...], kind: str, more: Mapping[str, str]) -> str:
            texts = [name + more.get(name, "") for name in names[:most]]
            if len(names) > most:
                texts.append(f"… ({len(names) - most:,} more)")
            return f"{len(names):,} {kind}{': ' if names else ''}{', '.join(texts)}"

        sizes = {
            name: f" ({len(own):,} of {len(own) + self.left_out[name]:,})"
            if name in self.left_out
            else f" ({len(own):,})"
            for name, own in self.categories.items()
        }
        numeric = say(self.numeric, "numeric", dict.fromkeys(self.gaps, " (with gaps)"))
        return f"Columns({numeric}; {say(self.categorical, 'categorical', sizes)})"
