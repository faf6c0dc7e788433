"""Trained learners of scikit-learn's kind as a net, so that a `Model` is the same for all.

A file has them as bytes without pickle, in a tensor beside those of their inputs. What they say is
checked when it is read: trees are followed by compiled code that trusts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.bags.sparse import is_sparse
from apportion.errors import RunError
from apportion.model._skops import dump, load, within
from apportion.runs.header import RESTORE, columns_of
from apportion.runs.tensors import check_tensors

if TYPE_CHECKING:
    from apportion.model.inputs import LearnerInputs

__all__ = ["Ensemble", "LearnerNet", "Member", "is_learner", "read_learner"]

LEAST = 1e-6  # confidence by a regressor
ROWS_PER_PASS = 2**17  # tables of more rows are made piece by piece

Floats = NDArray[Any]
Ints = NDArray[np.int64]


def is_learner(model: Any) -> bool:
    """Tell whether something is a learner of scikit-learn's kind, trained or not.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> is_learner(LogisticRegression()), is_learner(LogisticRegression), is_learner("mlp")
    (True, False, False)
    """
    return not isinstance(model, type | nn.Module) and all(
        hasattr(model, name) for name in ("fit", "get_params", "set_params")
    )


class Member(NamedTuple):
    """A fitted clone of the learner, and the positions of its classes among those of the bags."""

    learner: Any
    classes: Ints

    def confidence(self, table: Any, n_classes: int) -> Floats:
        """Return the class probabilities (M, C) of the rows of a learner's input."""
        from sklearn.base import is_regressor

        found = np.zeros((table.shape[0], n_classes))
        if not is_regressor(self.learner):
            found[:, self.classes] = self.learner.predict_proba(table)
            return found
        shares = self.learner.predict(table)
        found[:, -1 if shares.ndim == 1 else slice(None)] = np.clip(shares.T, LEAST, 1 - LEAST).T
        if shares.ndim == 1:
            found[:, :-1] = 1 - found[:, -1:]
        found /= found.sum(axis=1, keepdims=True)
        return found


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Fitted clones of a learner, whose confidences are averaged."""

    learner: Any  # as it was given, untrained
    members: tuple[Member, ...]
    inputs: LearnerInputs
    n_classes: int

    def confidence(self, x: Any) -> Floats:
        """Return the class probabilities (M, C) of rows as they come in `Bags.x`.

        They are NaN for rows with numbers that are not finite in float32.
        """
        given = x if isinstance(x, tuple) else (x,)
        parts = [part if is_sparse(part) else np.asarray(part) for part in given]
        found = np.empty((parts[0].shape[0], self.n_classes))
        for first in range(0, len(found), ROWS_PER_PASS):
            some = tuple(part[first : first + ROWS_PER_PASS] for part in parts)
            found[first : first + ROWS_PER_PASS] = self._of_some(some)
        return found

    def _of_some(self, parts: tuple[Any, ...]) -> Floats:
        numbers = parts[0]
        if is_sparse(numbers):
            return self._mean(self.inputs.table(parts))
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(numbers.astype(np.float32, copy=False)).all(axis=1)
        if bad.any():
            numbers = np.where(bad[:, None], 0, numbers)
        mean = self._mean(self.inputs.table((numbers, *parts[1:])))
        mean[bad] = np.nan
        return mean

    def _mean(self, table: Any) -> Floats:
        mean = self.members[0].confidence(table, self.n_classes)
        for member in self.members[1:]:
            mean += member.confidence(table, self.n_classes)
        mean /= len(self.members)
        return mean


class LearnerNet(nn.Module):
    """Trained learners as a net, which computes on the CPU.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from apportion.bags.bags import Bags
    >>> from apportion.model.inputs import LearnerInputs
    >>> x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
    >>> bags = Bags.from_rows(x, y, truth=y)
    >>> inputs = LearnerInputs.learn(bags, LogisticRegression())
    >>> fitted = LogisticRegression().fit(inputs.table(x), y)
    >>> members = (Member(fitted, np.arange(2)),)
    >>> net = LearnerNet(Ensemble(LogisticRegression(), members, inputs, n_classes=2))
    >>> net(torch.from_numpy(x)).argmax(dim=1)
    tensor([0, 0, 1, 1])
    """

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.ensemble = ensemble

    @property
    def name(self) -> str:
        """The name of the learner's class."""
        return type(self.ensemble.learner).__name__

    @property
    def recipe(self) -> dict[str, Any]:
        """What a file says of the learners beside their bytes, in types that JSON has."""
        inputs = self.ensemble.inputs
        categories = inputs.encoding.categories
        return {
            "net": "learner",
            "frame": inputs.frame,
            "most_categories": inputs.most_categories,
            "categories": None if categories is None else list(categories),
            "members": [member.classes.tolist() for member in self.ensemble.members],
        }

    def confidence(self, parts: tuple[Any, ...]) -> Floats:
        """Return the class probabilities (M, C) of rows, in double precision."""
        return self.ensemble.confidence(parts)

    def forward(self, *parts: Tensor) -> Tensor:
        """Return the logarithms of the class probabilities."""
        found = self.confidence(tuple(part.detach().cpu().numpy() for part in parts))
        return torch.from_numpy(found).log().to(parts[0].device)

    def _save_to_state_dict(self, destination: Any, prefix: str, *_: Any) -> None:
        encoding = self.ensemble.inputs.encoding
        learners = [self.ensemble.learner, *(member.learner for member in self.ensemble.members)]
        data = np.frombuffer(dump(learners, self.name), np.uint8)
        tensors = {"learners": data, "mean": encoding.mean, "std": encoding.std}
        for name, array in tensors.items():
            destination[prefix + name] = torch.from_numpy(array.copy())


# ------------------------------------------------------------------------------------------ files


def read_learner(
    path: Path, header: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> LearnerNet:
    """Build the learners of a file, after a check that they take its instances to its classes."""
    try:
        n_features, members = _checked_recipe(header)
    except (KeyError, TypeError, ValueError) as error:
        problem = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise RunError(f"{path} has a damaged recipe of a learner: {problem}.", RESTORE) from error
    data = weights.get("learners", torch.empty(0))
    like = {
        "learners": torch.empty(data.numel(), dtype=torch.uint8, device="meta"),
        "mean": torch.empty(n_features, device="meta"),
        "std": torch.empty(n_features, device="meta"),
    }
    problem = "has the inputs of another learner"
    check_tensors(path, weights, like, problem=problem, remedy=RESTORE, finite=("mean", "std"))
    if not (weights["std"] > 0).all():
        raise RunError(f"{path} is damaged: std has values that are not positive.", RESTORE)
    try:
        learners = load(data.numpy().tobytes())
    except RunError as error:
        error.about(str(path))
        raise
    try:
        return LearnerNet(_ensemble(header, weights, learners, members))
    except Exception as error:  # whatever a learner raises that is not what the header says
        problem = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".")
        raise RunError(
            f"{path} has a learner that does not fit its instances and classes: {problem:.200}.",
            RESTORE,
        ) from error


def _checked_recipe(header: Mapping[str, Any]) -> tuple[int, list[list[int]]]:
    """Check what a header says of learners; return how many numbers a row has, and the classes."""
    recipe, n_classes = header["recipe"], len(header["classes"])
    shapes, columns = [part["shape"] for part in header["parts"]], columns_of(header)
    most, categories, members = (recipe[n] for n in ("most_categories", "categories", "members"))
    if len(recipe) != 5 or not isinstance(recipe["frame"], bool):
        raise ValueError(f"it is {recipe!r:.60}")
    if not (most is None or _whole(most, 1, 256)):
        raise ValueError(f"most_categories is {most!r:.60}")
    if not (categories is None or _all_whole(categories, 1, 2**31)):
        raise ValueError(f"categories are {categories!r:.60}")
    if any(len(shape) != 1 for shape in shapes) or [shape[0] for shape in shapes[1:]] != (
        [] if categories is None else [len(categories)]
    ):
        raise ValueError(f"instances are of shapes {shapes!r:.60}")
    if columns is not None and columns.codes != tuple(categories or ()):
        raise ValueError("the columns have other categories")
    if not isinstance(members, list) or not members:
        raise ValueError(f"members are {members!r:.60}")
    for own in members:
        if not own or not _all_whole(own, 0, n_classes) or sorted(set(own)) != own:
            raise ValueError(f"a member has the classes {own!r:.60}")
    return int(shapes[0][0]), members


def _ensemble(
    header: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    learners: Any,
    members: list[list[int]],
) -> Ensemble:
    from apportion.labels.rows import RowEncoding
    from apportion.model.inputs import LearnerInputs

    recipe, n_classes = header["recipe"], len(header["classes"])
    if not isinstance(learners, list) or len(learners) != 1 + len(members):
        raise ValueError(f"there are not {1 + len(members)} of them")
    categories = None if recipe["categories"] is None else tuple(recipe["categories"])
    encoding = RowEncoding(weights["mean"].numpy(), weights["std"].numpy(), categories)
    inputs = LearnerInputs(encoding, columns_of(header), recipe["frame"], recipe["most_categories"])
    row = tuple(np.zeros((1, *p["shape"]), p["dtype"]) for p in header["parts"])
    table = inputs.table(row)
    for one in within(learners[1:]):
        if one.n_features_in_ != table.shape[1]:
            raise ValueError(f"it takes {one.n_features_in_} features, not {table.shape[1]}")
        if getattr(one, "_preprocessor", None) is not None:  # of HistGradientBoosting
            width = one._preprocess_X(table, reset=False).shape[1]
            if width != one.n_features_in_:
                raise ValueError(f"its trees get {width} features, not {one.n_features_in_}")
    made = [Member(one, np.array(own)) for one, own in zip(learners[1:], members, strict=True)]
    for one, own in made:
        if len(getattr(one, "classes_", own)) != len(own):
            raise ValueError(f"it has {len(one.classes_)} classes, not {len(own)}")
    ensemble = Ensemble(learners[0], tuple(made), inputs, n_classes)
    if not abs(ensemble.confidence(row).sum() - 1) < 1e-3:
        raise ValueError("its confidences do not sum to 1")
    return ensemble


def _whole(value: Any, least: int, end: int) -> bool:
    return type(value) is int and least <= value < end


def _all_whole(values: Any, least: int, end: int) -> bool:
    return isinstance(values, list) and all(_whole(value, least, end) for value in values)
