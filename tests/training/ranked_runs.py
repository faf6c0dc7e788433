"""Trainings that processes of torchrun do together: each writes what it has got, to be compared.

python ranked_runs.py FOLDER CASE…
torchrun --standalone --nproc_per_node=2 ranked_runs.py FOLDER CASE…

With PRECISE float32 is not mixed with bfloat16; with ONE a single process of torchrun says all that
several would, if only to itself: so NCCL can be tried on one GPU.
"""

import json
import os
import sys
from dataclasses import replace
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.data.tables import read_sets
from apportion.engine import distributed
from apportion.engine.batches import Instances
from apportion.engine.distributed import ALONE, Ranks, together
from apportion.engine.shared import read_once
from apportion.errors import ApportionError
from apportion.estimator.classifier import LLPClassifier
from apportion.methods.pseudo_labels import FPL
from apportion.methods.registry import METHODS
from apportion.methods.vat import LLPVAT
from apportion.nets.build import build_net
from apportion.training.archive import Archive
from apportion.training.fit import fit
from apportion.training.job import Job
from apportion.training.many import fit_many

SIZES = (1, 40, 7, 3, 1, 25, 60, 2, 2, 11, 9, 30, 4)  # bags of one; shares that are uneven
C = 3


def bags_of(sizes: tuple[int, ...] = SIZES, n_rows: int = 150) -> Bags:
    """Return bags that share rows."""
    rng = np.random.default_rng(0)
    truth = rng.integers(C, size=n_rows)
    x = np.eye(C)[truth] + rng.normal(size=(n_rows, C))
    members = [rng.choice(n_rows, size=n, replace=False) for n in sizes]
    counts = np.array([np.bincount(truth[own], minlength=C) for own in members])
    shares = counts / counts.sum(axis=1, keepdims=True)
    return Bags.from_members(x.astype(np.float32), members, shares, truth=truth)


def trained(
    net: nn.Module, method: Any = "fpl", *, bags: Bags | None = None, **options: Any
) -> Any:
    """Train on bags, select by some of them, and test on others."""
    bags = bags or bags_of()
    exact = {"precision": "float32"} if os.environ.get("PRECISE") else {}
    given = {"epochs": 2, "batch_size": 32, "learning_rate": 3e-3, **exact, **options}
    config = TrainConfig(**given)
    history = fit(net, bags, bags[:5], bags[-9:], method=method, config=config)
    return {
        "records": [{k: v for k, v in r.items() if k != "seconds"} for r in history.records],
        "weights": {k: v.double().flatten().tolist() for k, v in net.state_dict().items()},
        "labels": None if history.labels is None else history.labels.tolist(),
    }


class Floats(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.float()


def mlp() -> nn.Module:
    return build_net("mlp", bags_of(), seed=1).to(torch.get_default_dtype())


def of_method(name: str) -> Any:
    """Train by a method; where a name ends with a number, in steps of several passes."""
    name, _, most = name.partition("/")
    # At its default ξ float32 knows no direction of steepest change: rounding decides it.
    method = LLPVAT(xi=1e-2) if name == "llp-vat" else METHODS[name]
    return trained(mlp(), method, instances_per_pass=int(most or 4096))


def of_augmented(name: str) -> Any:
    return trained(mlp(), METHODS[name], augment=("noise",), average=0.9, clip_norm=0.1)


def of_known(name: str) -> Any:
    """Train where confidences are known, and so equal, whoever computes them."""
    called = {"n": 0}

    def known(self: Instances, *_: Any) -> Any:
        called["n"] += 1
        drawn = np.random.default_rng(called["n"]).dirichlet(np.ones(C), 150)
        found = torch.from_numpy(drawn[self.distinct].astype(np.float32))
        return found.to(self.inverse.device).index_select(0, self.inverse)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Instances, "confidence", known)
        bags = bags_of((5, 30)) if name == "few" else None
        of_first = {"few": "random", "all": "random"}.get(name, name)
        if name == "joint":  # labels follow from all bags of a row: no rank decides for its own
            sure = np.random.default_rng(0).dirichlet(np.ones(C), bags_of().n_instances)
            strong: Any = METHODS["strong"]
            method = replace(strong, first=sure, first_weight=2, memory=0.5)
        else:
            method = FPL(eta=1, first=of_first, memory=0.5, first_weight=2)
        return trained(mlp(), method, bags=bags, epochs=4)


def of_net(name: str) -> Any:
    """Train a net whose layers see the share of a rank alone, or draw their own numbers."""
    torch.manual_seed(int(os.environ.get("RANK", 0)))  # what the first one has counts
    layer = {"batchnorm": nn.BatchNorm1d(8), "dropout": nn.Dropout(0.5)}[name]
    net = nn.Sequential(Floats(), nn.Linear(C, 8), layer, nn.ReLU(), nn.Linear(8, C))
    return trained(net, "pi-model")


def of_layers(name: str) -> Any:
    """Train a net of layers whose weights have no shape yet, or other types than numbers."""
    torch.manual_seed(0)
    linear = nn.LazyLinear(C) if name == "lazy" else nn.Linear(C, C)
    net = nn.Sequential(Floats(), linear)
    if name == "types":
        for dtype in (torch.uint16, torch.bool, torch.float16, torch.complex64):
            net.register_buffer(str(dtype)[6:], torch.ones(2, 0, 3).sum(1).to(dtype).t())
    if name == "sparse":
        net.append(nn.Embedding(2, 2, sparse=True))
    try:
        return trained(net)
    except ApportionError as error:
        return f"{type(error).__name__}: {error}"


def of_shard(name: str) -> Any:
    """Train on rows that each process shuffles by itself."""
    method = FPL(mixup=True) if name == "mixup" else "count-likelihood" if name == "bags" else "fpl"
    try:
        return trained(mlp(), method, shuffle="shard", augment=("noise",) * (name == "noise"))
    except ApportionError as error:
        return f"{type(error).__name__}: {error}"


def of_bags(name: str) -> Any:
    """Train with fewer bags than processes, or with bags of one alone."""
    sizes = {"two": (3, 4), "singles": (1,) * 9, "one": (50,)}[name]
    return trained(mlp(), METHODS["fpl" if name != "two" else "count-likelihood"],
                   bags=None if name == "one" else bags_of(sizes), batch_size=4)  # fmt: skip


def of_table(*, dated: bool) -> Any:
    """Train on a table that one process reads; or every one, if bags are named by dates."""
    rng, given = np.random.default_rng(0), []
    day, yes = rng.integers(1, 6, size=90), rng.random(90) < 0.5
    frame = pd.DataFrame({"day": day, "a": yes + rng.normal(size=90)})
    names = [date(2020, 1, own) for own in range(1, 6)] if dated else range(1, 6)
    counts = {
        n: [int((~yes)[day == k].sum()), int(yes[day == k].sum())] for k, n in enumerate(names, 1)
    }
    if dated:
        frame["day"] = [date(2020, 1, own) for own in day]

    def read(store: Path | None) -> dict[str, Bags]:
        given.append(store)
        return read_sets(frame, bag="day", proportions=counts, counts=True, store=store)

    with together("cpu"):
        sets = read_once(read)
        net, config = build_net("mlp", sets["train"], seed=1), TrainConfig(epochs=2, batch_size=32)
        history = fit(net, sets["train"], sets.get("valid"), config=config)
    assert not any(store and store.parent.exists() for store in given)
    return {"loss": history["loss"], "calls": len(given)}


def of_door(name: str) -> Any:
    """Train through another door, or with an answer that the first process alone gives."""
    bags = bags_of()
    if name == "classifier":
        found = LLPClassifier("fpl", model=mlp(), epochs=2, random_state=0).fit(bags)
        return found.predict_proba(bags.x).tolist()
    if name == "backend":
        with together():
            return torch.distributed.get_backend()
    if name == "many":
        jobs = [Job(mlp(), bags, config=TrainConfig(epochs=n)) for n in (1, 2)]
        return [history["loss"] for history in fit_many(jobs)]
    if name in ("shared", "dates"):
        return of_table(dated=name == "dates")
    if name == "within":
        found = []

        def probe(record: Any, net: Any) -> None:
            jobs = [Job(mlp(), bags, config=TrainConfig(epochs=1)) for _ in range(2)]
            several = [fit(mlp(), bags, config=TrainConfig(epochs=1)), *fit_many(jobs)]
            found.extend(history["loss"] for history in several)

        return [fit(mlp(), bags, config=TrainConfig(epochs=2), on_epoch=probe)["loss"], found]
    if name == "ended":
        leads = os.environ.get("RANK", "0") == "0"
        config = TrainConfig(epochs=9)
        ended = fit(mlp(), bags, config=config, on_epoch=lambda r, _: leads and r["epoch"] == 2)
        return [ended.n_epochs, ended.ended]
    other = bags_of(SIZES[int(os.environ.get("RANK", "0")) :])
    try:
        return str(fit(mlp(), other, config=TrainConfig(epochs=1)).n_epochs)
    except ApportionError as error:
        return f"{type(error).__name__}: {error}"


def of_slow(name: str) -> Any:
    """Return after which epochs a checkpoint is made, where clocks do not agree."""
    clock, saved = count(step=200), []
    save = Archive.save_checkpoint

    def noted(self: Archive, session: Any) -> None:
        saved.append(session.history.n_epochs)
        save(self, session)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Archive, "save_checkpoint", noted)
        if os.environ.get("RANK", "0") == name:
            patch.setattr("apportion.training.archive.monotonic", lambda: float(next(clock)))
        config = TrainConfig(epochs=5, batch_size=32, checkpoint_every=100)
        fit(mlp(), bags_of(), config=config, run=Path(sys.argv[1], f"slow{name}"))
    return saved


def of_apart(name: str) -> Any:
    """Pass something to the first process alone, or something else."""
    leads, bags, net = os.environ.get("RANK", "0") == "0", bags_of(), mlp()
    valid = bags[:5]
    given: dict[str, Any] = {}
    if name == "functions":
        given["on_epoch"] = (lambda record, net: None) if leads else None
    elif name == "run folder":
        given["run"] = Path(sys.argv[1], "run") if leads else None
    elif name == "net":
        net = net if leads else nn.Sequential(nn.Linear(C, C))
    elif name == "weights":
        rate = 0.1 if leads else 0.2
        given["optimizer"] = lambda parameters: torch.optim.SGD(parameters, lr=rate)
    elif not leads:
        valid = valid.without_truth()
    try:
        return str(fit(net, bags, valid, config=TrainConfig(epochs=1), **given))
    except ApportionError as error:
        return f"{type(error).__name__}: {error}"


KINDS = {
    "apart": of_apart,
    "door": of_door,
    "method": of_method,
    "augmented": of_augmented,
    "known": of_known,
    "net": of_net,
    "layers": of_layers,
    "bags": of_bags,
    "shard": of_shard,
    "slow": of_slow,
}


def main(folder: str, *cases: str) -> None:
    if os.environ.get("ONE"):
        distributed.is_one_of_many = lambda: True
        Ranks.are_several = property(lambda self: self is not ALONE)  # type: ignore[assignment]
    if os.environ.get("WIDE"):  # arithmetic of float64 wherever it is of float32
        torch.set_default_dtype(torch.float64)
        torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    found = {}
    for case in cases:
        kind, _, name = case.partition(":")
        found[case] = KINDS[kind](name)
    rank = os.environ.get("RANK", "alone")
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
