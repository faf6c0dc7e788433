"""Rows that are the items of a Dataset, read when they are needed.

An item is what ``dataset[row]`` returns: an array or a number, a tuple ``(x, y, …)``, or a mapping
of names to arrays, as a tokenizer returns. Whatever it draws at random (by torch, numpy or Python)
is a function of seed, epoch and the rows of its batch, or, where it is evaluated, of its row alone:
the same in any process, and after any interruption.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.bags.checks import Ints
from apportion.errors import BagError, DataError, count, listing, must_be
from apportion.randomness import kept_generators, seed_generators, seeds_of_rows

__all__ = ["Draw", "ItemPart", "Items", "is_dataset", "stacked"]

log = logging.getLogger("apportion")

LABELS = ("label", "labels", "label_ids")  # names of the truth among those of an item
PAD = "Return items of one shape: cut or pad them in the Dataset, for example to the longest."


class Draw(NamedTuple):
    """What the random numbers of a batch depend on, beside its rows."""

    seed: int
    epoch: int  # from 1 on


UNCHANGING = Draw(0, 0)  # of items that are not trained on


class Items:
    """The items of a Dataset as rows of bags.

    Parameters
    ----------
    dataset : map-style Dataset
        Anything with a length and items by number, from 0 on.
    evaluate : map-style Dataset, optional
        The same items without random augmentation, to compute confidences of.
    inputs : int or sequence of str, optional
        How many of the elements of a tuple are parts of the instance, or which entries of a mapping
        are. By default the first element, and all entries but the label.

    Examples
    --------
    >>> items = Items([(np.zeros(3), 1), (np.ones(3), 0)])
    >>> len(items), items.parts[0].shape, items.parts[0].dtype
    (2, (2, 3), dtype('float64'))
    >>> items.parts[0][[1]]
    array([[1., 1., 1.]])
    """

    def __init__(
        self, dataset: Any, evaluate: Any = None, inputs: int | Sequence[str] | None = None
    ) -> None:
        for name, given in (("dataset", dataset), ("evaluate", evaluate)):
            if given is not None or name == "dataset":
                _check_dataset(name, given)
        if evaluate is not None and len(evaluate) != len(dataset):
            raise BagError(
                f"evaluate has {count(len(evaluate), 'item')}, but dataset {len(dataset):,}.",
                "Pass the same items twice, for example with other transforms.",
            )
        whole = isinstance(inputs, int) and not isinstance(inputs, bool) and inputs >= 1
        named = isinstance(inputs, list | tuple) and all(isinstance(i, str) for i in inputs)
        if not (inputs is None or whole or (named and inputs)):
            raise must_be("inputs", "an integer ≥ 1, names of entries, or None", inputs)
        self.dataset, self.evaluate, self.inputs = dataset, evaluate, inputs

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, rows: Ints, draw: Draw | None = None) -> list[tuple[Any, ...]]:
        """Read the parts of a batch of items: to train on in an epoch, or else to evaluate.

        The generators of the process are left as they were. To train on, they are seeded once per
        batch: for each item it would take as long as a small item does.
        """
        clean = draw is None and self.evaluate is not None
        dataset, names = self.evaluate if clean else self.dataset, self.names
        seeds = seeds_of_rows(*(draw or UNCHANGING), rows if draw is None else rows[:1]).tolist()
        read = []
        with kept_generators():
            for number, row in enumerate(rows.tolist()):
                if number < len(seeds):
                    seed_generators(seeds[number])
                try:
                    item = dataset[row]
                except Exception as error:
                    error.add_note(f"It was raised by item {row} of the Dataset.")
                    raise
                read.append(self._taken(row, item, names))
        return read

    def truth(self) -> list[Any]:
        """Read the label of every item: what follows the instance, or the entry of that name."""
        with kept_generators():
            return [self._label(row) for row in range(len(self))]

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The names of the parts, as which a net takes them; None if it takes them by position."""
        return self._example[0]

    @cached_property
    def parts(self) -> tuple[ItemPart, ...]:
        """The parts of all items, as arrays that are read when they are indexed."""
        return tuple(
            ItemPart(self, number, (len(self), *shape), dtype)
            for number, (shape, dtype) in enumerate(self._example[1])
        )

    @cached_property
    def _example(self) -> tuple[tuple[str, ...] | None, list[tuple[tuple[int, ...], Any]]]:
        """The names, the shapes and the types of the parts of the first item."""
        dataset = self.dataset if self.evaluate is None else self.evaluate
        with kept_generators():
            seed_generators(int(seeds_of_rows(*UNCHANGING, np.zeros(1, np.int64))[0]))
            item = dataset[0]
        names = None
        chosen = self._chosen(item)
        if isinstance(chosen, Mapping):
            left_out = [name for name in chosen if name not in self._entries(chosen)]
            names = self._entries(chosen)
        else:
            left_out = list(range(self.inputs if isinstance(self.inputs, int) else 1, _n(item)))
        if left_out:
            what = "entry" if names else "element"
            log.info("The %s %s of each item is not learned from.", what, listing(left_out))
        values = self._taken(0, item, names)
        return names, [(_shape(value), _dtype(value, n)) for n, value in enumerate(values)]

    def _chosen(self, item: Any) -> Any:
        """Return the instance of an item, without its label."""
        if not isinstance(item, tuple | list):
            return item
        if not item:
            raise DataError("an item of the Dataset is empty.", "Return at least an instance.")
        if isinstance(self.inputs, int):
            return tuple(item[: self.inputs])
        numbers = len(item) > 1 and isinstance(item[0], int | float | np.generic)
        if numbers and self.inputs is None:
            raise DataError(
                f"an item of the Dataset is a {type(item).__name__} of {len(item)}, of which the "
                "first is a single number.",
                "Return an array of the numbers; or pass inputs=1 if that one is the instance.",
            )
        return item[0]

    def _entries(self, item: Mapping[str, Any]) -> tuple[str, ...]:
        if self.inputs is not None and not isinstance(self.inputs, int):
            return tuple(self.inputs)
        return tuple(name for name in item if name not in LABELS)

    def _taken(self, row: int, item: Any, names: tuple[str, ...] | None) -> tuple[Any, ...]:
        chosen = self._chosen(item)
        if isinstance(chosen, Mapping) != (names is not None):
            raise DataError(
                f"item {row} of the Dataset is a {type(chosen).__name__}, unlike the first.",
                "All items must be of one kind.",
            )
        if names is None:
            return tuple(chosen) if isinstance(chosen, tuple | list) else (chosen,)
        if missing := [name for name in names if name not in chosen]:
            raise DataError(
                f"item {row} of the Dataset has no entry {missing[0]!r}; it has {listing(chosen)}.",
                "All items must have the same entries; inputs=[…] names those that are used.",
            )
        return tuple(chosen[name] for name in names)

    def _label(self, row: int) -> Any:
        item = self.dataset[row] if self.evaluate is None else self.evaluate[row]
        place = self.inputs if isinstance(self.inputs, int) else 1
        if isinstance(item, Mapping):
            own = [name for name in LABELS if name in item]
            if not own:
                raise DataError(
                    f"item {row} has no label: its entries are {listing(item)}.",
                    f"Name the label {LABELS[0]!r}, or pass truth as a list.",
                )
            label = item[own[0]]
        elif isinstance(item, tuple | list) and len(item) > place:
            label = item[place]
        else:
            raise DataError(
                f"item {row} has no label behind its instance.",
                "Return (x, y) from the Dataset, or pass truth as a list.",
            )
        return label.item() if hasattr(label, "item") else label


class ItemPart:
    """One part of all items: an array (M, …) that is read when it is indexed."""

    def __init__(self, items: Items, number: int, shape: tuple[int, ...], dtype: Any) -> None:
        self.items, self.number, self.shape, self.dtype = items, number, shape, dtype
        self.ndim = len(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> NDArray[Any]:
        rows = np.arange(len(self))[key]
        values = [own[self.number] for own in self.items.read(np.atleast_1d(rows))]
        found: NDArray[Any] = stacked(_stack, values, np.atleast_1d(rows))
        return found if np.ndim(rows) else found[0]


def _stack(values: list[Any]) -> NDArray[Any]:
    return np.stack([np.asarray(v.detach().cpu() if hasattr(v, "detach") else v) for v in values])


def stacked(stack: Callable[[list[Any]], Any], values: list[Any], rows: Ints) -> Any:
    """Stack the values of one part; an error names the items whose shapes differ."""
    try:
        return stack(values)
    except (RuntimeError, ValueError, TypeError) as error:
        shapes = [_shape(value) for value in values]
        other = next((n for n, shape in enumerate(shapes) if shape != shapes[0]), None)
        if other is None:
            problem = f"item {rows[0]} of the Dataset, a {type(values[0]).__name__}, makes no array"
            remedy = "Return tensors, arrays or numbers."
            raise DataError(f"{problem}: {error}.", remedy) from error
        raise DataError(
            f"item {rows[0]} of the Dataset is of shape {shapes[0]}, but item {rows[other]} of "
            f"shape {shapes[other]}.",
            PAD,
        ) from error


def is_dataset(x: Any) -> bool:
    """Tell whether something is a Dataset, and no array, frame, list or tuple."""
    plain = isinstance(x, list | tuple | str | bytes | range | Mapping)
    if plain or not (hasattr(x, "__getitem__") and hasattr(x, "__len__")):
        return False
    return not any(hasattr(x, name) for name in ("shape", "__array__", "columns", "iloc"))


def _check_dataset(name: str, dataset: Any) -> None:
    kind = type(dataset).__name__
    if any(own.__name__ == "IterableDataset" for own in type(dataset).__mro__):
        raise BagError(
            f"{name} is a {kind}, whose items cannot be read by number.",
            "Pass a map-style Dataset, with __len__ and __getitem__; of few items, list(dataset).",
        )
    if hasattr(dataset, "batch_sampler") and hasattr(dataset, "dataset"):
        raise BagError(f"{name} is a {kind}.", "Pass its dataset: loader.dataset.")
    if isinstance(dataset, Mapping) or any(hasattr(dataset, n) for n in ("dtype", "iloc")):
        raise BagError(
            f"{name} is a {kind}, which is no Dataset.", "Bags.from_rows takes arrays as they are."
        )
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise BagError(
            f"{name} is a {kind}, without a length or without items by number.",
            "Pass a map-style Dataset, with __len__ and __getitem__.",
        )
    if not len(dataset):
        raise BagError(f"{name} has 0 items.", "Pass a Dataset of at least one item.")


def _n(item: Any) -> int:
    return len(item) if isinstance(item, tuple | list) else 1


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(map(int, getattr(value, "shape", ())))


def _dtype(value: Any, number: int) -> Any:
    """Return the type of a value once it is stacked: that of an array, or of a Python number."""
    given = str(getattr(value, "dtype", "")).removeprefix("torch.")
    plain = {bool: "bool", int: "int64", float: "float64"}
    try:
        dtype = np.dtype(given or plain[type(value)])
    except (KeyError, TypeError):
        dtype = np.dtype(object)
    if dtype.kind not in "fiub":
        kind = given or type(value).__name__
        raise DataError(
            f"part {number} of an item of the Dataset is of type {kind}, which is no number.",
            "Return tensors, arrays or numbers: an image by a transform such as ToTensor or "
            "np.asarray, a text by a tokenizer. inputs= says which parts are used.",
        )
    return dtype
