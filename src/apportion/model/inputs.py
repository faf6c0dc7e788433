"""Rows of bags as learners take them: a frame for boosting machines, a matrix for all others.

Boosting machines split on missing values and on sets of categories by themselves. They get a frame
with NaN where a number is missing and pandas categories for codes. All other learners get what a
linear model gets: standardised numbers, a 0/1 column where values are missing, and a 0/1 column per
category, as one matrix, which is sparse if it is wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from apportion.bags.bags import Bags
from apportion.bags.columns import Columns
from apportion.errors import must_be
from apportion.labels.rows import RowEncoding

__all__ = ["Inputs", "LearnerInputs"]

Inputs = Literal["auto", "frame", "matrix"]
HISTOGRAMS = HistGradientBoostingClassifier, HistGradientBoostingRegressor
BOOSTING = ("lightgbm", "xgboost")  # packages whose learners take pandas categories


@dataclass(frozen=True, eq=False)
class LearnerInputs:
    """How rows as they come in `Bags.x` become a learner's input.

    Examples
    --------
    >>> numbers, codes = np.array([[1.0], [3.0]]), np.array([[2], [0]])
    >>> bags = Bags.from_rows((numbers, codes), ["a", "a"], {"a": [0.5, 0.5]})
    >>> LearnerInputs.learn(bags, HistGradientBoostingClassifier()).table(bags.x)
        x0   c0
    0  1.0    2
    1  3.0  NaN
    """

    encoding: RowEncoding
    columns: Columns | None
    frame: bool  # or else a matrix
    most_categories: int | None = None  # a column with more is one of numbers, in a frame

    @classmethod
    def learn(cls, bags: Bags, learner: Any, inputs: Inputs = "auto") -> LearnerInputs:
        """Choose and measure what a learner gets."""
        if inputs not in ("auto", "frame", "matrix"):
            raise must_be("inputs", "'auto', 'frame' or 'matrix'", inputs)
        histogram = isinstance(learner, HISTOGRAMS)
        frame = histogram or type(learner).__module__.partition(".")[0] in BOOSTING
        return cls(
            RowEncoding.learn(bags),
            bags.columns,
            frame if inputs == "auto" else inputs == "frame",
            min(learner.max_bins, 255) if histogram else None,
        )

    def table(self, x: Any, rows: NDArray[np.int64] | None = None) -> Any:
        """Return the learner's input for rows as they come in `Bags.x`, or for some of them."""
        return self._frame(x, rows) if self.frame else self.encoding.design(x, rows).matrix()

    def _frame(self, x: Any, rows: NDArray[np.int64] | None) -> pd.DataFrame:
        parts = x if isinstance(x, tuple) else (x,)
        chosen = slice(None) if rows is None else rows
        numbers = np.asarray(parts[0])[chosen]
        names = [f"x{j}" for j in range(numbers.shape[1])]
        if self.columns is not None:
            names, gaps = list(self.columns.numeric), self.columns.gaps
            numbers, missing = numbers[:, : len(names)].copy(), numbers[:, len(names) :] > 0
            for name, where in zip(gaps, missing.T, strict=True):
                numbers[where, names.index(name)] = np.nan
        made: dict[str, Any] = dict(zip(names, numbers.T, strict=True))
        sizes = self.encoding.categories or ()
        known = [f"c{j}" for j in range(len(sizes))]
        if self.columns is not None:
            known = list(self.columns.categorical)
        codes = np.asarray(parts[1])[chosen].T if sizes else ()
        for name, size, code in zip(known, sizes, codes, strict=True):
            made[name] = self._category(code, size)
        return pd.DataFrame(made)

    def _category(self, code: Any, size: int) -> Any:
        known = (code > 0) & (code < size)
        if self.most_categories is not None and size - 1 > self.most_categories:
            return np.where(known, code, np.nan).astype(np.float32)
        places = np.where(known, code - 1, -1)
        return pd.Categorical.from_codes(places, pd.Index(range(1, size)))
