r"""Training: Algorithm 1's outer loop, for every method.

The paper's objective (Eq. 1) is a minimum over both the network f and the labels of every bag,

.. math:: \min_{Y^1, \dots, Y^n, f} \sum_i \sum_j \ell(x^i_j, Y^i_j, f) \quad\text{where } Y^i
          \text{ has } k^i_c \text{ labels of each class } c,

and `fit` approaches it one epoch at a time: train f on the current labels, measure how unlikely
they turned out, decide the next ones. The value of the objective is the loss in the log. Methods
that compare proportions instead have nothing to decide, and share everything else.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from os import PathLike
from typing import Any

import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.batches import Shelf
from apportion.engine.device import device_for, own_stream, own_threads
from apportion.engine.distributed import ALONE, Ranks, together
from apportion.methods.base import Method
from apportion.methods.registry import method_named
from apportion.nets.augment import Augment
from apportion.plan.threads import threads_of_steps
from apportion.runs.run import Run
from apportion.training.archive import Archive
from apportion.training.checks import is_end
from apportion.training.history import History
from apportion.training.job import Job, OnEpoch
from apportion.training.optimizer import MakeOptimizer, MakeScheduler
from apportion.training.progress import Stopwatch, brief, progress_bars, readable
from apportion.training.ranks import check_alike
from apportion.training.session import Session

__all__ = ["fit", "train_one"]

log = logging.getLogger("apportion")


def fit(
    net: nn.Module,
    train: Bags,
    valid: Bags | None = None,
    test: Bags | None = None,
    *,
    method: str | Method = "fpl",
    config: TrainConfig | None = None,
    run: str | PathLike[str] | Run | None = None,
    on_epoch: OnEpoch | None = None,
    optimizer: MakeOptimizer | None = None,
    scheduler: MakeScheduler | None = None,
    augment: Augment | None = None,
    progress: bool | None = None,
) -> History:
    """Train a net to classify instances from bags with known proportions.

    Parameters
    ----------
    net : nn.Module
        Maps a batch, called as ``net(*x)``, to logits (b, C); of a Dataset whose items are
        mappings, called as ``net(**x)``. It is trained in place, and ends up
        with the selected weights: those of the epoch of least validation proportion error, or the
        last ones if there is no validation.
    train, valid, test : Bags
        Bags to train on, to select by, and to report accuracy on. Their truth, if known, is
        used for accuracies in the log, and for no decision.
    method : str or Method
        A name from `apportion.METHODS`, or settings such as ``FPL(eta=5)``.
    config : TrainConfig, optional
        How to train.
    run : path or Run, optional
        A folder for the log, the checkpoints and the models. If it holds a run of the same bags,
        method and configuration, training goes on from its last checkpoint. Without one, what
        was learned is lost if training is interrupted. More epochs than it began with are added:
        with η as it was, the result is that of so many epochs from the start. A learning rate that
        depends on the number of epochs (cosine, warmup) rules that out.
    on_epoch : callable, optional
        Called after every epoch with its record and the net, whose weights it may read. If it
        returns True, training ends there as it does by patience, and `History.ended` tells so:
        called again, `fit` trains no further, unless with more epochs than before. If it raises
        KeyboardInterrupt, a checkpoint is saved first.
    optimizer : callable, optional
        A function of the list of the net's trainable parameters that returns an optimiser of
        them, ``lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)``. For groups
        of parameters, name the net itself in it. By default AdamW as the configuration says.
    scheduler : callable, optional
        A function of the optimiser that returns one of `torch.optim.lr_scheduler`, which takes a
        step after each step of the optimiser (`apportion.count_steps` tells how many there will
        be); `ReduceLROnPlateau` takes one after each epoch, by the validation error. By default
        the learning rate follows the configuration.
    augment : callable, optional
        A function that changes training batches at random: called as the net is, ``augment(*x)``
        or, of items that are mappings, ``augment(**x)``, on the device, after the augmentations of
        the configuration. It returns what the net takes then. It must draw from torch's
        generators, which are seeded anew for every epoch.
    progress : bool, optional
        Whether to show a progress bar; by default on a terminal. The logger "apportion" also
        gets one line per epoch: ``logging.basicConfig(level="INFO")`` shows it.

    Returns
    -------
    History

    Examples
    --------
    >>> import numpy as np
    >>> from apportion.nets.build import build_net
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(2, size=300)
    >>> bag = np.where(rng.random(300) < 0.8, truth, 1 - truth)  # one bag has more of each class
    >>> bags = Bags.from_rows(truth[:, None] + 0.3 * rng.normal(size=(300, 1)), bag, truth=truth)
    >>> history = fit(build_net("mlp", bags), bags, bags, config=TrainConfig(epochs=20))
    >>> history["valid_accuracy"][-1] > 0.9
    True
    """
    config = TrainConfig() if config is None else config
    job = Job(
        net,
        train,
        valid,
        test,
        method=method,
        config=config,
        run=run,
        on_epoch=on_epoch,
        optimizer=optimizer,
        scheduler=scheduler,
        augment=augment,
    )
    with (
        together(config.device) as ranks,
        progress_bars([config.epochs], progress if ranks.leads else False) as (show,),
    ):
        return train_one(job, show, ranks=ranks)


def train_one(
    job: Job,
    show: Callable[[int, str], None],
    *,
    shelf: Shelf | None = None,
    name: str = "",
    ranks: Ranks = ALONE,
) -> History:
    """Train one net, with data that other trainings may share, and a name for the log.

    With several ranks, all of them do this together, and the first alone writes and shows anything.
    """
    if ranks.are_several:
        check_alike(ranks, (job.train, job.valid, job.test), job.run, job.told())
    config, archive, device = job.config, Archive(job.run, ranks), device_for(job.config.device)
    with (
        archive.opened(),
        own_threads(config.threads or archive.threads or _threads(job, device)),
        own_stream(device),
        ExitStack() as ending,
    ):
        session = Session(job, device, shelf, resumed=archive.saved is not None, ranks=ranks)
        ending.callback(session.close)
        if not archive.resume(session):
            session.begin()

        while not session.is_finished():
            epoch = session.history.n_epochs + 1
            record: dict[str, Any] = {"epoch": epoch}
            clock = Stopwatch(device)
            with session.turn():
                with clock("train"):
                    record["loss"] = session.train_epoch(epoch)  # line 5
                with clock("confidence"):
                    confidence = session.confidence_to_learn_from()
                with clock("labels"):
                    record |= session.learn_from(epoch, confidence)  # lines 6–10
                del confidence  # as large as the method's own state
                with clock("evaluation"):
                    record |= session.evaluate()
            record["seconds"] = clock.seconds
            record = ranks.told(record)
            session.keep(record)
            archive.save(session)

            log.info("%s%s", name, readable(record, config.epochs))
            show(epoch, name + brief(record))
            if job.on_epoch is not None:
                try:
                    ends = ranks.by_first(partial(_ends, job.on_epoch, record, session))
                except KeyboardInterrupt:  # between epochs a run can be left as it is
                    archive.save_checkpoint(session)
                    raise
                if ends and not session.is_finished():
                    session.is_ended = True
                    archive.save_checkpoint(session)
                    log.info("%sEnded by on_epoch after epoch %d.", name, epoch)

        history = session.finish()
        archive.save_models(session)
    if job.on_end is not None:
        job.on_end(history)
    return history


def _ends(on_epoch: OnEpoch, record: dict[str, Any], session: Session) -> bool:
    """Tell whether the caller ends the training."""
    return is_end(on_epoch(copy.deepcopy(record), session.kept))


def _threads(job: Job, device: torch.device) -> int | None:
    """Decide how many threads a step is worth, and no more than torch is set to."""
    if device.type != "cpu":
        return None
    planned = threads_of_steps(job.train, method_named(job.method).unit, job.config)
    return min(int(planned.value), torch.get_num_threads())
