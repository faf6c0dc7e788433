"""`Model`: a trained net or learner with its columns and classes. What users keep and deploy.

Every door makes one, and every door loads it: `fit(run=…)`, `LLPClassifier` and `apportion train`
save the same file, a safetensors file whose tensors are the weights under their own names, so that
``net.load_state_dict(safetensors.torch.load_file(path))`` works too. Its header
(`apportion.runs.header`) says what the classes are, what an instance is, how the columns of a table
become numbers, and how to build the net again if it is one of this library. Trained learners are a
net as well, `apportion.model.learner.LearnerNet`, whose bytes are one of the tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.bags.columns import Columns
from apportion.bags.items import ItemPart, Items, is_dataset
from apportion.bags.names import class_array
from apportion.bags.sparse import is_sparse
from apportion.engine.device import device_for
from apportion.engine.inference import cut, fill_confidence, rows_per_pass, slices
from apportion.engine.items import Itemwise, taken_by_name
from apportion.errors import DataError, RunError, count
from apportion.files import replacing
from apportion.metrics import prevalence as prevalence_of
from apportion.model._read import Net, check_header, checked_parts, model_of, net_for
from apportion.model.learner import LearnerNet
from apportion.model.prevalence import read_prevalence, shifted
from apportion.nets.build import move_to
from apportion.nets.measure import channels_first
from apportion.runs.header import columns_of, metadata, opened, seal

__all__ = ["Model", "describe_parts", "net_for"]

ROWS_PER_PASS = 16_384


def describe_parts(bags: Bags) -> tuple[dict[str, Any], ...]:
    """Describe one instance: the shape and the type of each of its parts, as JSON keeps them.

    Examples
    --------
    >>> describe_parts(Bags.from_rows(np.zeros((2, 3)), ["a", "a"], {"a": [1.0]}))
    ({'shape': [3], 'dtype': 'float64'},)
    """
    described: list[dict[str, Any]] = [
        {"shape": list(map(int, p.shape[1:])), "dtype": str(p.dtype).removeprefix("torch.")}
        for p in bags.parts
    ]
    names = bags.x.names if isinstance(bags.x, Items) else None
    for part, name in zip(described, names or (), strict=names is not None):
        part["name"] = name
    return tuple(described)


class Model:
    """A trained net, and what it takes and returns.

    Several threads may predict by one model at once, if its net is in evaluation mode, as that of
    every model is that was loaded or belongs to an estimator. A net in training mode is switched
    for each call, and back. How many rows a call has changes a confidence at most by the rounding
    of float32.

    Parameters
    ----------
    net : nn.Module
        Maps a batch of instances, called as ``net(*x)``, to logits; of parts that have names,
        called as ``net(**x)``.
    classes : sequence
        Their names, in the order of the logits.
    parts : sequence of mappings
        What one instance is: `describe_parts` of the bags that it was trained on.
    columns : Columns, optional
        How the rows of a table become instances.
    epoch : int, optional
        The epoch of the weights.
    prevalence : sequence of float, optional
        The share of every class among the instances that it was trained on.
    device : str
        Where to compute: "auto" takes a CUDA device if there is one. Learners always compute on the
        CPU.

    Examples
    --------
    >>> from apportion.nets.build import build_net
    >>> bags = Bags.from_rows(np.eye(4), ["a", "a", "b", "b"], truth=["no", "yes", "no", "no"])
    >>> model = Model(build_net("mlp", bags), bags.classes, describe_parts(bags))
    >>> model.predict_proba(bags.x).shape, model.predict(bags.x).dtype
    ((4, 2), dtype('<U3'))
    """

    def __init__(
        self,
        net: nn.Module,
        classes: Sequence[Any],
        parts: Sequence[Mapping[str, Any]],
        *,
        columns: Columns | None = None,
        epoch: int | None = None,
        prevalence: Sequence[float] | NDArray[np.float64] | None = None,
        device: str = "auto",
    ) -> None:
        self.net, self.parts = net, checked_parts(parts)
        self.classes = tuple(c.item() if isinstance(c, np.generic) else c for c in classes)
        self.columns, self.epoch, self.device = columns, epoch, device
        self.prevalence = None if prevalence is None else tuple(map(float, prevalence))

    @classmethod
    def trained_on(
        cls, bags: Bags, net: nn.Module, *, epoch: int | None = None, device: str = "auto"
    ) -> Model:
        """Return the model of a net that was trained on bags, which say what it takes."""
        about: dict[str, Any] = {"columns": bags.columns, "prevalence": prevalence_of(bags)}
        return cls(net, bags.classes, describe_parts(bags), epoch=epoch, device=device, **about)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the parts, as which the net takes them, if it was trained so."""
        names = tuple(part["name"] for part in self.parts if "name" in part)
        return names or None

    # -------------------------------------------------------------------------- predictions

    def predict_proba(self, x: Any, *, prevalence: Any = None) -> NDArray[np.float64]:
        """Return the probability of every class for every row, of shape (n, C).

        Parameters
        ----------
        x : DataFrame, array, sparse matrix, tuple of arrays, Dataset, or Bags
            If the model has columns, a frame or an array holds rows of the table, an array in the
            order of its columns. All else are instances as they are stored; images may have their
            channels last. The items of a Dataset are read one after the other; a label beside
            them is not used.
        prevalence : mapping or sequence, optional
            The share of every class in the population that the rows are from, by class or in the
            order of `classes`, if it is another than in training: see
            `apportion.model.prevalence`. One class may be left out of a mapping.
        """
        if prevalence is None:
            return self._confidence(self._instances(x))
        share = read_prevalence(prevalence, self.classes)
        found = self._confidence(self._instances(x))
        return shifted(found, self.prevalence, share, self.classes)

    def predict(self, x: Any, *, prevalence: Any = None) -> NDArray[Any]:
        """Return the most likely class of every row."""
        likely = self.predict_proba(x, prevalence=prevalence)
        found: NDArray[Any] = class_array(self.classes)[likely.argmax(axis=1)]
        return found

    def confidence(self, bags: Bags) -> NDArray[np.float64]:
        """Return the probability of every class for every instance of bags, of shape (N, C)."""
        rows = bags.distinct()
        found = self._confidence(self._instances(bags), rows)
        return found[np.searchsorted(rows, bags.index)]

    def _confidence(
        self, parts: tuple[Any, ...], rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Return the confidences of all rows, or of some of them."""
        lazy = isinstance(parts[0], ItemPart)
        if lazy and rows is None:
            rows = np.arange(len(parts[0]))
        if rows is not None and not (lazy and not isinstance(self.net, LearnerNet)):
            parts = tuple(part[rows] for part in parts)
        n = int(parts[0].shape[0]) if rows is None else len(rows)
        if isinstance(self.net, LearnerNet):
            found = torch.from_numpy(self.net.confidence(parts))
        else:
            device = device_for(self.device)
            first = next(chain(self.net.parameters(), self.net.buffers()), None)
            if first is None or first.device != device:  # threads may share a net that is there
                move_to(device, self.net)
            found = torch.empty(n, len(self.classes), dtype=torch.float64, device=device)
            spans = cut(n, rows_per_pass(parts[0], ROWS_PER_PASS, device))
            if lazy and rows is not None:
                batches = Itemwise(parts[0].items, device).batches(rows, spans)
            else:
                batches = slices(parts, spans, device)
            with taken_by_name(self.net, self.names):
                fill_confidence(found, self.net, batches, spans)
        if not found.isfinite().all():
            bad = ~found.isfinite().all(dim=1)
            raise DataError(
                f"the confidences of {count(int(bad.sum()), 'row')} are not finite; row "
                f"{int(bad.int().argmax())} is the first.",
                "Replace values of x that are missing, infinite or very large.",
            )
        return found.cpu().numpy()

    def _instances(self, x: Any) -> tuple[Any, ...]:
        """Return rows as the net takes them, after a check that they are of the right kind."""
        if isinstance(x, Bags):
            if x.columns not in (None, self.columns):
                raise DataError(
                    f"the bags were encoded by other columns than the model's: {x.columns}.",
                    "Read them with read_table(…, columns=model.columns).",
                )
            x = self._items(x.x).parts if isinstance(x.x, Items) else x.parts
        elif is_dataset(x):
            x = Items(x, inputs=self.names).parts
        elif hasattr(x, "columns") or (self.columns is not None and not isinstance(x, tuple)):
            x = self._encoded(x)
        parts = tuple(map(_as_array, x if isinstance(x, tuple) else (x,)))
        if len(parts) == len(self.parts) == 1:
            parts = (channels_first(parts[0], self.parts[0]["shape"]),)
        wanted = [(1 + len(own["shape"]), *own["shape"][:1]) for own in self.parts]
        given = [(len(p.shape), *map(int, p.shape[1:2])) for p in parts]
        if given != wanted:
            raise DataError(
                f"instances have parts of (axes, features) {given}, but the model takes {wanted}.",
                "Pass instances of the kind that the model was trained on.",
            )
        return parts

    def _items(self, items: Items) -> Items:
        """Return items with their parts in the order of those that the model was trained on."""
        if self.names is None and items.names is not None:
            raise DataError(
                f"the items have parts by name, {', '.join(items.names)}, but the model was "
                "trained on parts without names.",
                "Return a tuple from the Dataset, in the order of training.",
            )
        return items if self.names is None else Items(items.dataset, items.evaluate, self.names)

    def _encoded(self, x: Any) -> Any:
        from apportion.data.encoding import encode, encode_array

        if self.columns is None:
            raise DataError(
                "x is a DataFrame, but the model was trained on arrays.",
                "Pass arrays like those that it was trained on.",
            )
        if is_sparse(x):
            x = x.toarray()  # as wide as the table
        if not hasattr(x, "columns"):
            if self.columns.categorical:
                raise DataError(
                    f"x is an array, but column {self.columns.categorical[0]!r} is one of "
                    "categories.",
                    f"Pass a DataFrame with the columns {', '.join(self.columns.names)}.",
                )
            return encode_array(self.columns, np.asarray(x))
        return encode(self.columns, x)

    # --------------------------------------------------------------------------------- files

    def class_names(self) -> list[bool | int | float | str | None]:
        """Return the classes as files keep them, after a check that files can."""
        for name in self.classes:
            if not isinstance(name, bool | int | float | str | None):
                raise RunError(
                    f"class {name!r} is a {type(name).__name__}, which a file cannot keep.",
                    "Class names must be texts or numbers.",
                )
        return list(self.classes)

    def save(
        self,
        path: str | PathLike[str],
        *,
        about: Mapping[str, Any] | None = None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write the model into one file, whole or not at all.

        Parameters
        ----------
        about : mapping, optional
            Further entries of the header, in types that JSON has.
        weights : mapping, optional
            To be saved instead of those that the net has.
        """
        path = Path(path)
        if path.is_dir():
            raise RunError(f"{path} is a folder.", "Pass the path of a file.")
        header = {
            **(about or {}),
            "classes": self.class_names(),
            "parts": self.parts,
            "columns": None if self.columns is None else self.columns.to_dict(),
            "recipe": getattr(self.net, "recipe", None),
            "epoch": self.epoch,
            "prevalence": None if self.prevalence is None else list(self.prevalence),
        }
        own = self.net.state_dict() if weights is None else weights
        tensors = {name: t.detach().cpu().contiguous().clone() for name, t in own.items()}
        with replacing(path, RunError) as beside:
            save_file(tensors, beside, metadata("model", header))
            seal(beside)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        net: Net | None = None,
        last: bool = False,
        device: str = "auto",
    ) -> Model:
        """Read the model of a file or of a finished run. Nothing in it is ever imported or run.

        Parameters
        ----------
        path : path
            A file that `save` wrote, or the folder of a run.
        net : nn.Module or callable, optional
            A net like the one that was trained, or a function that makes one, if that was no net of
            this library.
        last : bool
            Whether to take the weights of the last checkpoint of a run, which may be unfinished,
            instead of those of the selected epoch.
        device : str
            Where to compute.

        Raises
        ------
        RunError
            If there is no such file, or the weights in it are those of another net.
        """
        path = Path(path)
        if path.is_dir():
            path = model_of(path, last=last)
        elif last:
            raise RunError(f"{path} is no folder of a run.", "last is for such a folder alone.")
        remedy = (
            "Pass a file that Model.save or LLPClassifier.save wrote, or the folder of a run, "
            "which apportion train or fit has created."
        )
        kind, before = ("checkpoint", "model.") if last else ("model", "")
        with opened(path, kind, framework="pt", remedy=remedy) as (file, header):
            names = [name for name in file.keys() if name.startswith(before)]  # noqa: SIM118
            weights = {name.removeprefix(before): file.get_tensor(name).clone() for name in names}
        check_header(path, header, remedy)
        made = net_for(path, header, net, weights)
        about = {"columns": columns_of(header), "epoch": header["epoch"], "device": device}
        about["prevalence"] = header.get("prevalence")
        return cls(made.eval(), header["classes"], header["parts"], **about)

    def to_onnx(self, path: str | PathLike[str], *, force: bool = False) -> Path:
        """Write the model as ONNX, with its normalisation: see `apportion.model.onnx`."""
        from apportion.model.onnx import write_onnx

        return write_onnx(self, path, force=force)

    def __repr__(self) -> str:
        name = (getattr(self.net, "recipe", None) or {}).get("net", type(self.net).__name__)
        name = self.net.name if isinstance(self.net, LearnerNet) else name
        return f"Model({name}, {len(self.classes)} classes)"


def _as_array(part: Any) -> Any:
    if is_sparse(part):
        return part.tocsr()
    return part if hasattr(part, "shape") else np.asarray(part)
