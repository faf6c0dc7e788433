"""The graph that `apportion.model.onnx` writes: what a model computes, traced on like instances."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from apportion import __version__
from apportion.errors import RunError
from apportion.nets.average import Average
from apportion.nets.normalized import Normalized
from apportion.nets.normalized import parts as net_parts
from apportion.nets.resnet import ResNet
from apportion.nets.summary import Summary

if TYPE_CHECKING:
    from apportion.bags.columns import Columns
    from apportion.model.model import Model

TOLERANCE = 1e-5  # by how much a probability may differ from torch's
DIGITS = 1e-6  # the same for each unit of the largest logit: float32 has seven digits
LOOSEST = 1e-3  # and the most
LONG_ENOUGH = 64  # frames: of up to 32 one place is left, which the network takes in its own way

OUTPUTS = ("probabilities", "label")

# What the parts of an instance are called, by how many axes each has.
NAMES = {
    (1,): ("numbers",),
    (1, 1): ("numbers", "codes"),
    (2,): ("frames",),
    (2, 0): ("frames", "lengths"),
    (3,): ("images",),
}


class Instances:
    """What instances are, and some of them to try."""

    def __init__(self, model: Model) -> None:
        net, columns = model.net, model.columns
        self.shapes = [tuple(part["shape"]) for part in model.parts]
        self.dtypes = [np.dtype(part["dtype"]) for part in model.parts]
        if columns is not None:
            _check_columns(columns, self.shapes)
        self.names = NAMES.get(tuple(map(len, self.shapes)), ())
        if not self.names or self.dtypes[-1].kind not in ("iuf" if len(self.names) == 1 else "iu"):
            self.names = tuple(f"x{k}" for k in range(len(self.shapes)))

        nets = net.nets if isinstance(net, Average) else [net]
        networks = [net_parts(net)[1] for net in nets]
        signals = all(
            isinstance(n, Summary) or (isinstance(n, ResNet) and n.signals) for n in networks
        )
        self.free = signals and self.names[0] == "frames"  # whether any length will do
        self.scale: tuple[Any, Any] = (0.0, 1.0)
        self.codes: Any = 2 if columns is None else columns.codes  # 0 and 1: any embedding has them
        if isinstance(first := nets[0], Normalized):
            self.scale = first.mean.cpu().numpy(), first.std.cpu().numpy()
            if counts := (first.recipe or {}).get("categories"):
                self.codes = np.add(counts, 1)  # with one that is unknown

    def batch(self, size: int, length: int | None = None) -> tuple[Tensor, ...]:
        """Draw instances, the same ones every time. Signals may be of another length."""
        rng = np.random.default_rng(size)
        drawn: list[Tensor] = []
        for name, own, dtype in zip(self.names, self.shapes, self.dtypes, strict=True):
            shape = (size, *own)
            if self.free and length and name == "frames":
                shape = (size, own[0], length)
            values: Any
            if name == "lengths":
                values = rng.integers(1, drawn[0].shape[2] + 1, shape)
            elif dtype == np.uint8:
                values = rng.integers(256, size=shape)
            elif dtype.kind in "iub":
                values = rng.integers(self.codes if name == "codes" else 2, size=shape)
            else:
                mean, std = (0.0, 1.0) if drawn else self.scale
                values = mean + std * rng.normal(size=shape)
            drawn.append(torch.from_numpy(values.astype(dtype)))
        return tuple(drawn)

    def trials(self) -> list[tuple[Tensor, ...]]:
        """Return batches to compare results on: none of the size that is exported."""
        length = self.shapes[0][-1] if self.free else 0
        lengths = (length, length // 2 + 1, 2 * length + 1) if self.free else (None,)
        return [self.batch(size, length) for size in (1, 5) for length in lengths]


def _check_columns(columns: Columns, shapes: list[tuple[int, ...]]) -> None:
    wanted = [(columns.n_numbers,), *([(len(columns.codes),)] if columns.codes else [])]
    if shapes != wanted:
        raise RunError(
            f"the columns give rows of shape {wanted}, but the parts are of shape {shapes}.",
            "Pass the columns that the model was trained with.",
        )


# --------------------------------------------------------------------------------------- the graph


class _Probabilities(nn.Module):
    """A net of logits, up to what a reader wants."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.model = net  # which begins the names of the weights in the file

    def forward(self, *x: Tensor) -> tuple[Tensor, Tensor]:
        probabilities = self.model(*x).float().softmax(dim=1)
        return probabilities, probabilities.argmax(dim=1)


def on_cpu(net: nn.Module) -> nn.Module:
    """Return a copy in the layout in which convolutions on the CPU are sound in every torch."""
    copied = copy.deepcopy(net)
    # mypy does not know this form, which torch documents
    copied.to("cpu", memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return copied


class ByPosition(nn.Module):
    """A net that takes its parts by name, called by position."""

    def __init__(self, net: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.net, self.names = net, names

    def forward(self, *x: Tensor) -> Any:
        return self.net(**dict(zip(self.names, x, strict=True)))


class Reference(NamedTuple):
    """A batch, the probabilities that torch computes, and by how much others may differ."""

    batch: tuple[Tensor, ...]
    probabilities: Tensor
    allowed: float


def try_on(net: nn.Module, batch: tuple[Tensor, ...], n_classes: int) -> Reference:
    """Check that a net takes a batch, and returns one logit per class."""
    shapes = " and ".join(f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}" for x in batch)
    try:
        with torch.no_grad():
            logits: Tensor = net(*batch).float()
    except Exception as error:
        raise RunError(
            f"the model does not take a batch of shape {shapes}: {brief(error)}",
            "Pass the parts of the instances that it was trained on.",
        ) from error
    if logits.shape != (len(batch[0]), n_classes):
        raise RunError(
            f"the model returns logits of shape {tuple(logits.shape)} for a batch of "
            f"{len(batch[0])}, but there are {n_classes} classes.",
            "Pass the classes that it was trained on, in their order.",
        )
    allowed = max(TOLERANCE, min(DIGITS * float(logits.abs().max()), LOOSEST))
    return Reference(batch, logits.softmax(dim=1), allowed)


def graph_of(net: nn.Module, instances: Instances) -> Any:
    """Return what a net, which may be changed, computes: a ModelProto."""
    try:
        return _exported(net, instances)
    except Exception as error:
        what, cause = _cause(net, instances, error)
        raise RunError(
            f"torch cannot export {what}: {brief(cause)}",
            "Its forward must be tensor operations alone, for a batch of any size: x.shape[0] in "
            "place of len(x), and no branches on values.",
        ) from error


def _cause(net: nn.Module, instances: Instances, error: Exception) -> tuple[str, Exception]:
    """Return which net cannot be exported, of an average the first such one, and why."""
    for name, member in net.named_modules():
        if isinstance(net, Average) and any(member is one for one in net.nets):
            try:
                _exported(member, instances)
            except Exception as own:  # noqa: BLE001 - whatever it is, it is told
                return f"{name} of the average", own
    return "the model", error


def _exported(net: nn.Module, instances: Instances) -> Any:
    axes = [{0: torch.export.Dim.DYNAMIC} for _ in instances.names]
    length = None
    if instances.free:
        axes[0][2] = torch.export.Dim.DYNAMIC
        length = max(instances.shapes[0][-1], LONG_ENOUGH)
    with torch.no_grad():
        program = torch.export.export(
            _Probabilities(net).eval(),
            instances.batch(2, length),
            dynamic_shapes=(tuple(axes),),
            strict=False,
        )
        made: Any = torch.onnx.export(
            program,
            dynamo=True,
            input_names=list(instances.names),
            output_names=list(OUTPUTS),
            verbose=False,
        )
    return made.model_proto


def brief(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:500]}"


def label_graph(graph: Any, names: tuple[str, ...], about: Mapping[str, str]) -> None:
    """Write into the graph what it is, and remove how torch made it, which names paths."""
    graph.doc_string = (
        f"Class probabilities of instances as they are stored ({', '.join(names)}). "
        f"Made with apportion {__version__}."
    )
    del graph.metadata_props[:]
    for key, value in about.items():
        graph.metadata_props.add(key=key, value=value)
    inner = graph.graph
    inner.name = "model"
    inner.doc_string = ""
    del inner.metadata_props[:], inner.value_info[:]  # the latter can be inferred
    for entry in (*inner.node, *inner.input, *inner.output, *inner.initializer):
        del entry.metadata_props[:]
        entry.doc_string = ""
    axes = {}
    for value in inner.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            axes[dim.dim_param] = "length" if axis else "batch"
    for value in (*inner.input, *inner.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = axes.get(dim.dim_param, "batch")


@contextmanager
def quiet() -> Iterator[None]:
    """Hide from the user what torch and onnxscript print and log about their own workings."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        logging.disable()
        try:
            yield
        finally:
            logging.disable(disabled)
