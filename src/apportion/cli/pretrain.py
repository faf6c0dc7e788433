"""The verb `apportion pretrain`: features of images without labels, in a run folder."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.cli._folder import check_free, new_run, settled, stopped
from apportion.cli.options import (
    BegunFolder,
    NewFolder,
    Replaces,
    image_size,
    listed,
    options_of,
    takes,
)
from apportion.cli.source import Source
from apportion.cli.terminal import INTERRUPTED, interruptible, log_shown
from apportion.config import TrainConfig
from apportion.errors import ConfigError, DataError, RunError, count, listing
from apportion.runs.run import WITHOUT_LABELS, Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from apportion.bags.bags import Bags

__all__ = ["pretrain"]

TRAIN = ("epochs", "batch_size", "learning_rate", "weight_decay", "augment")
PLACE = ("seed", "device", "threads")
DEFAULTS = {
    "epochs": "500, fewer for large data",
    "batch_size": "an eighth of the images, from 32 to 1024",
    "learning_rate": "0.002",
    "weight_decay": "0.005",
    "augment": "views",
}


@dataclass(frozen=True)
class OfNet:
    """The net that is pre-trained.

    Parameters
    ----------
    net : str, optional
        resnet18 or mlp.
    stem : str, optional
        How resnet18 begins: imagenet, or cifar for small images.
    """

    net: str | None = None
    stem: str | None = None


@dataclass(frozen=True)
class PretrainJob:
    """A pre-training that is asked for. Options that are missing follow from the images."""

    images: str
    size: tuple[int, int] | None = None
    follow_links: bool = False
    net: str = "resnet18"
    stem: str | None = None
    train: dict[str, Any] = field(default_factory=dict)

    def about(self) -> dict[str, dict[str, Any]]:
        """Return the sections of a configuration that say all this again, but for [train]."""
        data: dict[str, Any] = {"kind": "images", "images": str(Path(self.images).resolve())}
        data |= {} if self.size is None else {"size": list(self.size)}
        data |= {"follow_links": True} if self.follow_links else {}
        return {"data": data, "model": {"net": self.net}}


@takes(
    options_of(Source, "Data", ("size", "follow_links")),
    options_of(OfNet, "Learning", ("net", "stem"), {"net": "resnet18", "stem": "by their size"}),
    options_of(TrainConfig, "Learning", (*TRAIN, *PLACE), DEFAULTS),
)
def pretrain(
    images: Annotated[
        Path | None,
        typer.Argument(
            help="A folder of image files, or a .npy or .npz file of shape (rows, channels, "
            "height, width)."
        ),
    ] = None,
    out: NewFolder = None,
    resume: BegunFolder = None,
    force: Replaces = False,
    **options: Any,
) -> None:
    """Learn features of images without labels: classes, bags and proportions play no part.

    Once for all trainings on such images, on a GPU:

      apportion pretrain slides/ --out runs/pre

      apportion train files.csv --images slides/ --proportions patients.csv \
--preset strong --pretrained runs/pre

    Where a mirror image is of the same class, which digits and letters are not:

      apportion pretrain slides/ --augment flip,views --out runs/pre

    After Ctrl-C, a crash or a power cut, the same command again, or:

      apportion pretrain --resume runs/pre

    All images in the folder and its folders are learned from. Leave out those
    that a test is to be honest about: that a net has seen them, though not their
    labels, is to be said with its results. apportion train --preset strong
    pre-trains by itself, on the images of the training bags alone.
    """
    run: Run | None
    given = {n: value for n, value in options.items() if value is not None and value is not False}
    if resume is not None:
        free: dict[str, Any] = {n: given.pop(n) for n in ("device", "threads") if n in given}
        _check_alone(images, out, [*given, *(["force"] if force else [])])
        before = Run(settled(resume))
        job, run = _job_of(before, free), before
    else:
        job = _job_from(images, given)
        out = None if out is None else settled(out)
        run = None if out is None or force else _begun_in(out, job)
        if run is None:
            check_free(out, force=force)
        else:  # what was not said again is as it was
            free = {name: job.train[name] for name in ("device", "threads") if name in job.train}
            job = _job_of(run, free)
    if run is not None and run.is_finished():
        done = count(len(run.records()), "epoch")
        typer.echo(f"{run.folder} is finished: {done}. There is nothing to do. {_next(run, job)}")
        return
    _pretrain(job, out, run, force=force)


def _check_alone(images: Path | None, out: Path | None, options: list[str]) -> None:
    beside = [f"--{name.replace('_', '-')}" for name in options]
    beside += ["--out"] * (out is not None) + [str(images)] * (images is not None)
    if beside:
        raise ConfigError(
            f"--resume goes on with a run as it began, but there is also {', '.join(beside)}.",
            "Leave it out; or start another run with --out and another folder.",
        )


def _job_from(images: Path | None, given: dict[str, Any]) -> PretrainJob:
    if images is None:
        raise ConfigError(
            "no images are given.",
            "Pass a folder of image files, or a .npy file: apportion pretrain slides/ --out "
            "runs/pre; or --resume and the folder of a run.",
        )
    train = {name: given.pop(name) for name in (*TRAIN, *PLACE) if name in given}
    if "augment" in train:
        train["augment"] = list(listed(train["augment"]) or ())
    given["size"] = image_size(given.get("size"))
    return _checked(PretrainJob(str(images), **given, train=train))


def _begun_in(out: Path, job: PretrainJob) -> Run | None:
    """Return the pre-training in a folder, with which the same command goes on, if there is one."""
    run = Run(out)
    if run.foreign() or not run.config.is_file():
        return None
    settings = run.settings()
    if settings["method"]["name"] != WITHOUT_LABELS:
        return None
    model = settings.get("model", {})
    asked = {"net": job.net, **({} if job.stem is None else {"stem": job.stem})}
    free = ("device", "threads")
    train = {name: v for name, v in job.train.items() if name not in free}
    theirs = settings["train"]
    differ = [n for n, v in (asked | train).items() if (model | theirs).get(n) != v]
    data, ours = settings.get("data", {}), job.about()["data"]
    differ += sorted(n for n in data.keys() | ours.keys() if data.get(n) != ours.get(n))
    if differ:
        raise RunError(
            f"--out {out} holds a pre-training of other options: {listing(differ)}.",
            "Pass another folder, or --force to replace it.",
        )
    return run


def _job_of(run: Run, free: dict[str, Any]) -> PretrainJob:
    """Return the job that a run was started with, to go on with it."""
    settings = run.settings("Pass the folder of a run, which apportion pretrain has created.")
    folder = shlex.quote(str(run.folder))
    if settings["method"]["name"] != WITHOUT_LABELS:
        raise RunError(
            f"{run.folder} holds a run of training, not of pre-training alone.",
            f"Go on with it: apportion train --resume {folder}",
        )
    data, model = settings.get("data", {}), settings.get("model", {})
    if "images" not in data:
        raise RunError(
            f"{run.folder} was not started by apportion pretrain: {run.config.name} has no [data].",
            "Go on as it was started: with apportion train --resume and the folder above it, or "
            "by the same call in Python.",
        )
    known = {name for name in (option.name for option in fields(PretrainJob)) if name != "train"}
    said = {name: value for name, value in (data | model).items() if name in known}
    if isinstance(said.get("size"), list):
        said["size"] = tuple(said["size"])
    return _checked(PretrainJob(**said, train={**settings["train"], **free}))


def _checked(job: PretrainJob) -> PretrainJob:
    """Check what can be checked before images are read."""
    from apportion.engine.device import device_for
    from apportion.nets.augment import check_augmentations
    from apportion.nets.build import NETS
    from apportion.nets.recipe import check_name, check_options

    check_name(job.net, NETS)
    check_options(job.net, NETS, {} if job.stem is None else {"stem": job.stem})
    config = TrainConfig.preset("pretrain", **job.train)
    device_for(config.device)
    check_augmentations(config.augment)
    return job


def _pretrain(job: PretrainJob, out: Path | None, before: Run | None, *, force: bool) -> None:
    """Pre-train in a new folder or go on with the run before, and say what to do next."""
    from apportion.data.images import read_images_alone
    from apportion.nets.build import build_net
    from apportion.plan.images import Pretraining
    from apportion.training import pretrain as training
    from apportion.training.pretrained import plan_alone, warn_of_time
    from apportion.training.progress import announce

    with ExitStack() as stack:
        stack.enter_context(log_shown())
        x = read_images_alone(job.images, size=job.size, follow_links=job.follow_links)
        bags = _in_one_bag(x, job.images)
        plan, config = plan_alone(bags, net=job.net, stem=job.stem, options=job.train)
        job = replace(job, stem=None if plan.stem is None else plan.stem.value)
        of_net = {} if job.stem is None else {"stem": job.stem}
        net = build_net(job.net, bags, seed=config.seed, **of_net)
        interruption = stack.enter_context(interruptible())
        run = before or stack.enter_context(new_run(out, force=force))
        about = job.about()
        run.about = {**about, "model": about["model"] | of_net, "plan": plan.reasons()}

        def on_epoch(record: dict[str, Any], net: Any) -> None:  # noqa: ARG001
            interruption.after_epoch()

        height, width = x.shape[2:]
        size = f"{count(len(x), 'image')} of {height} × {width}"
        announce(f"Learning features of {size}, without labels. Folder: {run.folder}\n{plan}", None)
        warn_of_time(Pretraining(config.epochs, len(x)), config)
        try:
            training.pretrain(net, bags, config=config, run=run, on_epoch=on_epoch)
        except KeyboardInterrupt:
            begun = before is not None or run.has_begun()
            typer.echo(stopped(run, "pretrain", begun=begun), err=True)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            interruption.over = True
        if before is not None:
            settled(run.folder)
    typer.echo(f"Pre-trained on {count(len(x), 'image')}. {_next(run, job)}")


def _in_one_bag(x: NDArray[Any], source: str) -> Bags:
    """Return images as one bag, of which nothing is known."""
    import numpy as np

    from apportion.bags.bags import Bags

    if len(x) < 2:
        raise DataError(
            f"{source} has {count(len(x), 'image')}: there are no others to tell it apart from.",
            "Pass a folder of more.",
        )
    return Bags.from_rows(x, np.zeros(len(x), np.int64), {0: {"some": 1.0, "others": 0.0}})


# -------------------------------------------------------------------------------- messages


def _next(run: Run, job: PretrainJob) -> str:
    """Return what to do with what was pre-trained."""
    from apportion.plan.images import views_for

    folder, flips = shlex.quote(str(run.folder)), "flip" in views_for(job.train.get("augment", ()))
    augment = " --augment flip,strong" if flips else ""
    images, size = job.images, job.size
    if not Path(images).is_dir():
        also = ', augment=("flip", "strong")' if flips else ""
        return f'Next:\n  LLPClassifier(preset="strong", pretrain={str(run.folder)!r}{also})'
    named = f" --images {shlex.quote(images)}" + (f" --size {size[0]}x{size[1]}" if size else "")
    return (
        f"Next:\n  apportion train files.csv{named} --proportions bags.csv --preset strong"
        f"{augment} --pretrained {folder}"
    )
