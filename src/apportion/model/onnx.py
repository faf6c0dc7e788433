"""A trained model as an ONNX file, which runs wherever ONNX does, without torch or apportion.

The graph takes instances as they are stored, a batch of any size: normalising is part of it. Its
inputs are named for what they are,

    numbers, codes     the rows of a table: numbers (batch, F), codes of categories (batch, K)
    images             (batch, channels, height, width)
    frames, lengths    signals (batch, channels, length), and how many frames of each are real

or else x0, x1 and so on. For `conv1d` and `summary` the length is free as well. Its outputs are
`probabilities`, float32 of shape (batch, C), and `label`, the position of the largest. The file's
metadata have the version of apportion, the names of the classes, and how the columns of a table
become numbers::

    import onnxruntime
    session = onnxruntime.InferenceSession("model.onnx")
    about = session.get_modelmeta().custom_metadata_map
    classes = json.loads(about["classes"])
    columns = Columns.from_dict(json.loads(about["columns"]))
    numbers, codes = encode(columns, frame)
    probabilities, label = session.run(None, {"numbers": numbers, "codes": codes})

What was written is run before it is kept, and compared with torch.
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from apportion import __version__
from apportion.errors import RunError
from apportion.files import check_free, replacing, writing
from apportion.model._onnx_graph import (
    ByPosition,
    Instances,
    Reference,
    brief,
    graph_of,
    label_graph,
    on_cpu,
    quiet,
    try_on,
)
from apportion.model.learner import LearnerNet

if TYPE_CHECKING:
    from apportion.model.model import Model

__all__ = ["write_onnx"]

ENCODING = (
    'numbers, float32: the columns of "means", in the order of "names". A missing value is the '
    'mean of its column; columns in "shifted" are less their mean. Then, for every column in '
    '"gaps", 1 where its value is missing and 0 elsewhere.\n'
    'codes, int16, if there are "categories": these columns, in the order of "names". A text is '
    "its place in the list, counted from 1; 0 is for what is missing or not in the list.\n"
    "In Python: apportion.data.encoding.encode(Columns.from_dict(json.loads(columns)), frame)"
)
ONE_FILE = 2**31 - 2**24  # bytes of weights that go into one file: protobuf ends at 2 GiB


def write_onnx(model: Model, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write a model as ONNX, whole or not at all, and return the file.

    It is exported in evaluation mode. The net itself stays as it is, and where it is.

    Parameters
    ----------
    path : path
        The file to write. Weights of more than 2 GB go to another one beside it, ``path.data``.
    force : bool
        Whether to replace a file that is there.

    Raises
    ------
    RunError
        If the model holds learners, onnx is not installed, the net does not fit the parts or the
        classes, torch cannot export it, the file is there or cannot be written, or it computes
        something else than the net: probabilities that differ by more than 1e-5, or where a logit
        is above 10 by more than a millionth of it.
    """
    path = Path(path)
    if isinstance(model.net, LearnerNet):
        raise RunError(
            f"a {model.net.name} cannot be written as ONNX: only nets can.",
            "Train a net, or a linear model by the method 'linear'; or predict with Model.load.",
        )
    if not path.parent.is_dir():
        raise RunError(
            f"{path.parent}, the folder of {path.name}, does not exist.",
            "Make it, or pass a path in another folder.",
        )
    check_free(path, force=force, error=RunError)
    onnx = _installed()
    instances = Instances(model)
    about = {"apportion": __version__, "classes": json.dumps(model.class_names())}
    if model.columns is not None:
        about |= {"columns": json.dumps(model.columns.to_dict()), "encoding": ENCODING}

    copied = on_cpu(model.net).eval()
    if model.names is not None and getattr(model.net, "recipe", None) is None:
        copied = ByPosition(copied, model.names)
    trials = [try_on(copied, batch, len(model.classes)) for batch in instances.trials()]
    with quiet():
        graph = graph_of(copied, instances)
    label_graph(graph, instances.names, about)

    with writing(path, RunError), TemporaryDirectory(prefix=".", dir=path.parent) as folder:
        written = Path(folder) / path.name
        weights = sum(len(tensor.raw_data) for tensor in graph.graph.initializer)
        aside = {"save_as_external_data": True, "location": f"{path.name}.data"}
        onnx.save_model(graph, written, **(aside if weights > ONE_FILE else {}))
        _verify(onnx, written, instances.names, trials)
        for file in sorted(Path(folder).iterdir(), reverse=True):  # the weights come first
            check_free(path.with_name(file.name), force=force, error=RunError)
            with replacing(path.with_name(file.name), RunError) as beside:
                file.replace(beside)
    return path


# ------------------------------------------------------------------------------- what is asked for


def _installed() -> Any:
    """Return the module onnx, if it and what torch needs besides are installed."""
    for name in ("onnx", "onnxscript"):
        try:
            with quiet():
                import_module(name)
        except ImportError as error:
            raise RunError(
                f"models are exported with {name}, which is not installed.",
                "Install it with: pip install 'apportion[onnx]'",
            ) from error
    return import_module("onnx")


# ---------------------------------------------------------------------------------------- the file


def _verify(onnx: Any, path: Path, names: tuple[str, ...], trials: list[Reference]) -> None:
    """Check that a file computes what the model does; without onnxruntime, that it is sound."""
    try:
        runtime: Any = import_module("onnxruntime")
    except ImportError:
        onnx.checker.check_model(str(path), full_check=True)
        return
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        inputs = [dict(zip(names, (x.numpy() for x in t.batch), strict=True)) for t in trials]
        given = [session.run(["probabilities"], batch)[0] for batch in inputs]
    except Exception as error:
        raise RunError(
            f"onnxruntime does not run the exported model: {brief(error)}",
            "Update onnxruntime, or remove branches of the model that depend on a batch's size.",
        ) from error
    for trial, probabilities in zip(trials, given, strict=True):
        off = float(np.abs(probabilities - trial.probabilities.numpy()).max())
        if not off <= trial.allowed:
            raise RunError(
                f"the exported model returns probabilities that differ by {off:.2g} from torch's, "
                f"on a batch of {len(trial.batch[0])}.",
                "In evaluation mode the model must compute the same every time, without branches "
                "that depend on a batch's size.",
            )
