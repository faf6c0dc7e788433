"""Pre-training without labels: a net learns features of images before any labels are decided.

The net's last layer gives way to a projector of two layers, the rest is trained by
`apportion.methods.simclr`, and then the last layer comes back, as it was. Classes, proportions and
bags play no part. What is trained, checkpoints, captured steps and resuming are those of `fit`.

    pretrain(net, train, run="runs/pre")                     # or: load_pretrained(net, "runs/pre")
    fit(net, train, valid, method="strong", config=TrainConfig.preset("strong"))
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.batches import Instances, Shelf, place
from apportion.engine.device import device_for
from apportion.engine.distributed import together
from apportion.engine.items import taken_by_name
from apportion.errors import ConfigError, DataError, RunError, count
from apportion.methods.simclr import SimCLR
from apportion.model.model import describe_parts
from apportion.nets.build import move_to
from apportion.plan.images import steps_fitting
from apportion.plan.kinds import kind_of_instances
from apportion.runs.header import metadata, opened, seal
from apportion.runs.run import Run
from apportion.runs.tensors import check_tensors
from apportion.training.checks import check_differ
from apportion.training.features import last_layer
from apportion.training.fit import train_one
from apportion.training.history import History
from apportion.training.job import Job, OnEpoch
from apportion.training.progress import progress_bars

__all__ = ["load_pretrained", "pretrain", "pretraining_config"]

log = logging.getLogger("apportion")

KIND = "pretrained"
MOST_APART, MOST_WIDER = 3.0, 8.0  # standard deviations between means, and ratio of them
HIDDEN, PROJECTED = 1024, 256  # sizes of the projector
MOST_ROWS = 2**63
REMEDY = "Pass the folder of a run of pretrain, or its file pretrained.safetensors."
ALIKE = "Pass a net like the one that was pre-trained, with the same options."


def pretrain(
    net: nn.Module,
    train: Bags,
    *,
    others: Sequence[Bags] = (),
    config: TrainConfig | None = None,
    run: str | PathLike[str] | Run | None = None,
    on_epoch: OnEpoch | None = None,
    progress: bool | None = None,
) -> History:
    """Train all of a net but its last layer on images alone, in place.

    Parameters
    ----------
    net : nn.Module
        Its last layer is an nn.Linear that returns the logits.
    train : Bags
        Only the rows that stand in bags are used, each once per epoch.
    others : sequence of Bags
        Further bags of the same `x`, whose rows are to be used as well: those of validation bags,
        for example. None of what is known of the bags is used; but say in your results that the
        rows were.
    config : TrainConfig, optional
        By default `pretraining_config` of the number of rows. `augment` makes the views: add
        "flip" where a mirror image is of the same class, which digits and letters are not.
    run : path or Run, optional
        A folder for the log, the checkpoints and, at the end, the weights, which `load_pretrained`
        reads. The same call goes on with a training that was interrupted.
    on_epoch, progress
        As of `fit`.

    Examples
    --------
    >>> from apportion.nets.build import build_net
    >>> x = np.random.default_rng(0).integers(256, size=(64, 1, 8, 8), dtype=np.uint8)
    >>> bags = Bags.from_rows(x, np.arange(64) // 8, truth=np.arange(64) % 2)
    >>> net = build_net("resnet18", bags, stem="cifar")
    >>> config = pretraining_config(64, epochs=1, batch_size=32)
    >>> pretrain(net, bags, config=config)
    History(1 epoch, no selection)
    """
    carrier = _rows_of([train, *others])
    if (kind := kind_of_instances(carrier)) != "images":
        raise DataError(
            f"the instances are {kind}: views are known of images alone.",
            "Leave pre-training out; first labels of tables follow from a linear model.",
        )
    check_differ(carrier)
    config = config or pretraining_config(carrier.n_instances)
    _check(config)
    run = run if run is None or isinstance(run, Run) else Run(run)
    device, shelf = device_for(config.device), Shelf()
    move_to(device, net)
    memory = config.device_memory_gib
    limit = None if memory is None else int(memory * 2**30)
    (instances, *_) = place((carrier, None, None), device, limit=limit, shelf=shelf)
    with (
        together(config.device) as ranks,
        _projecting(net, instances, config.seed) as head,
        progress_bars([config.epochs], progress) as (show,),
    ):
        job = Job(net, carrier, method=SimCLR(), config=config, run=run, on_epoch=on_epoch)
        about: dict[str, Any] = {"shelf": shelf, "name": "pre-training · ", "ranks": ranks}
        history = train_one(job, show, **about)
        if run is not None and not run.pretrained.exists():
            with run.locked():
                _save(run, net, head, carrier)
    return history


def pretraining_config(n_rows: int, **changes: Any) -> TrainConfig:
    """Return how a net is pre-trained on so many rows: the preset `pretrain`, in steps that fit.

    Examples
    --------
    >>> pretraining_config(35_000).batch_size, pretraining_config(1_500).batch_size
    (1024, 128)
    """
    return TrainConfig.preset("pretrain", **{"batch_size": steps_fitting(n_rows), **changes})


def load_pretrained(net: nn.Module, path: str | PathLike[str]) -> int:
    """Load what `pretrain` learned into a net of the same kind, all but its last layer.

    Parameters
    ----------
    path : path
        The folder of the run, or its file ``pretrained.safetensors``.

    Returns
    -------
    int
        On how many rows it was pre-trained.
    """
    file = Run(path).pretrained if Path(path).is_dir() else Path(path)
    with opened(file, KIND, framework="pt", remedy=REMEDY) as (saved, header):
        tensors = {name: saved.get_tensor(name) for name in saved.keys()}  # noqa: SIM118
    head, rows = header.get("head"), header.get("rows")
    if not isinstance(head, str) or type(rows) is not int or not 1 <= rows < MOST_ROWS:
        raise RunError(f"{file} is damaged: its header lacks head or rows.", REMEDY)
    own = net.state_dict()
    like = {name: value for name, value in own.items() if not name.startswith(f"{head}.")}
    # What is under that name stays as it is: that must be one layer, and no block of them.
    layer = dict(net.named_modules()).get(head)
    if len(like) < len(own) and not isinstance(layer, nn.Linear):
        raise RunError(
            f"{file} was saved from another net: its last layer was {head!r:.60}, which is a "
            f"{type(layer).__name__} here and no nn.Linear.",
            ALIKE,
        )
    check_tensors(
        file,
        tensors,
        like,
        problem="was saved from another net",
        remedy=ALIKE,
        finite=[name for name, value in like.items() if value.is_floating_point()],
    )
    _check_scale(file, own, tensors)
    net.load_state_dict({**own, **tensors})
    return rows


def _check_scale(file: Path, own: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Check that a `Normalized` net was pre-trained on instances of the scale that it has now."""
    if not {"mean", "std"} <= own.keys() & saved.keys():
        return
    mean, std = (own[name].double().cpu() for name in ("mean", "std"))
    theirs, spread = (saved[name].double().cpu() for name in ("mean", "std"))
    if not (spread > 0).all():
        raise RunError(f"{file} is damaged: its standard deviations must be above 0.", REMEDY)
    apart = (mean - theirs).abs() / torch.maximum(std, spread)
    if (apart > MOST_APART).any() or ((std / spread).log().abs() > np.log(MOST_WIDER)).any():
        raise RunError(
            f"{file} was pre-trained on instances of mean {float(theirs.mean()):.3g} and standard "
            f"deviation {float(spread.mean()):.3g}, but these have {float(mean.mean()):.3g} and "
            f"{float(std.mean()):.3g}.",
            "Store both alike, for example as uint8 from 0 to 255; or pre-train on these.",
        )


def _rows_of(several: Sequence[Bags]) -> Bags:
    """Return the distinct rows of bags as one bag, of which nothing is known."""
    first = several[0]
    for bags in several[1:]:
        if bags.x is not first.x:
            raise DataError(
                "others are bags of another x than the training bags.",
                "Make all bags from one array of rows, as bags.split does.",
            )
    rows = np.unique(np.concatenate([bags.index for bags in several]))
    return Bags(
        x=first.x,
        index=rows,
        offsets=np.array([0, len(rows)]),
        proportions=np.array([[1.0, 0.0]]),
        counts=np.array([[len(rows), 0]]),
        classes=(0, 1),
        ids=("rows",),
    )


def _check(config: TrainConfig) -> None:
    if config.batch_size > config.instances_per_pass:
        raise ConfigError(
            f"batch_size is {config.batch_size:,}, but instances_per_pass "
            f"{config.instances_per_pass:,}: views are compared within one pass.",
            "Raise instances_per_pass, or lower batch_size.",
        )
    if not config.augment:
        raise ConfigError(
            "augment is empty: two views of an image would be the same.",
            "Leave it as it is in pretraining_config, or name augmentations: ('flip', 'views').",
        )


@contextmanager
def _projecting(net: nn.Module, instances: Instances, seed: int) -> Iterator[str]:
    """Put a projector in the place of the last layer meanwhile; yield the name of that place."""
    with taken_by_name(net, instances.feed.names):
        layer = last_layer(net, instances)
    own_weights = {id(weight) for weight in layer.parameters()}
    before = [weight for weight in net.parameters() if id(weight) not in own_weights]
    if not any(weight.requires_grad for weight in before):
        found = "is frozen before its last layer" if before else "is a last layer"
        raise ConfigError(
            f"{type(net).__name__} {found}: there is nothing before it to pre-train.",
            "Pass a net of several layers to train, or leave pre-training out.",
        )
    name = next(name for name, module in net.named_modules() if module is layer)
    owner, _, own = name.rpartition(".")
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        projector = nn.Sequential(
            nn.Linear(layer.in_features, HIDDEN, bias=False),
            nn.BatchNorm1d(HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, PROJECTED),
        )
    place_of = net.get_submodule(owner)
    setattr(place_of, own, projector.to(instances.device))
    try:
        yield name
    finally:
        setattr(place_of, own, layer)


def _save(run: Run, net: nn.Module, head: str, rows: Bags) -> None:
    tensors = {
        name: value.detach().cpu().contiguous().clone()
        for name, value in net.state_dict().items()
        if not name.startswith(f"{head}.")
    }
    about = {
        "head": head,
        "rows": rows.n_instances,
        "parts": describe_parts(rows),
        "recipe": getattr(net, "recipe", None),
    }
    with run.replacing(run.pretrained) as beside:
        save_file(tensors, beside, metadata(KIND, about))
        seal(beside)
    log.info("Pre-trained on %s: %s.", count(rows.n_instances, "row"), run.pretrained)
