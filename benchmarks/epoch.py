"""One epoch of ours, by phases, beside two other ways to write it, in one run.

    python benchmarks/epoch.py [--data FOLDER] [--instances 102400] [--sizes 64 1024 4096]
                               [--together 4] [--decisions 100] [--device auto]

The network is the paper's ResNet-18 on 32 × 32 images, the preset `paper`, the method `fpl`, with
as many instances again to validate on; on a GPU also several runs together, and `proportion-loss`.
Images are random pixels, or with `--data` those of CIFAR-10, in the paper's bags. Beside it:

- *bare*: a hand-written PyTorch loop over the same tensors, network, optimiser and precision, which
  only trains;
- *as published*: in the manner of the authors' code: images transformed one by one in a DataLoader,
  confidences bag by bag, and a binary programme for every bag's labels, solved by CBC through
  python-mip (`pip install mip`; without it that line is left out). Training and confidences are
  measured on 10,240 instances at most, the binary programme on three bags, and scaled up.

Prints the seconds of an epoch (medians over epochs after the first three), and ratios.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from apportion import FPL, Bags, Job, TrainConfig, fit, fit_many
from apportion.engine.device import device_for, precision_for
from apportion.nets.normalized import Normalized
from apportion.nets.resnet import resnet18
from apportion.study.datasets.benchmarks import cifar10
from apportion.study.paper_bags import paper as paper_bags
from apportion.study.protocols import rand
from apportion.study.reproduce.running import MEAN, STD

CPU = torch.device("cpu")
CLASSES = 10
WARM_UP = 3  # epochs: compiling, recording, trying kernels
PAPER_BAGS = Path(__file__).parents[1] / "papers" / "matsuo2023" / "bags" / "cifar10.npz"


def network(device):
    torch.manual_seed(0)
    return Normalized(resnet18(CLASSES), MEAN, STD).to(device)


def seconds(do, device):
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    do()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def drawn(instances, size):
    """Bags to train on and to validate on, from 35 and 15 images for every 102."""
    rng = np.random.default_rng(0)
    pools = []
    for share in (0.35, 0.15):
        n = max(round(share * instances), 4 * size)
        labels = rng.integers(CLASSES, size=n)
        x = rng.integers(256, size=(n, 3, 32, 32), dtype=np.uint8)
        members = rand(labels, size, instances // size, seed=0).members
        pools.append(Bags.from_members(x, members, truth=labels, classes=range(CLASSES)))
    return pools


def published(folder, size):
    """The paper's bags of CIFAR-10."""
    data = cifar10(folder)
    return [
        Bags.from_members(data.x, rows, truth=data.truth, classes=range(CLASSES))
        for rows in paper_bags(PAPER_BAGS, size)
    ]


class Clock:
    """The times at which epochs ended."""

    def __init__(self):
        self.ends = []

    def __call__(self, *_):
        self.ends.append(time.perf_counter())

    def median(self):
        return float(np.median([b - a for a, b in pairwise(self.ends[WARM_UP - 1 :])]))


def ours(train, valid, config, method="fpl"):
    """The median seconds of a whole epoch, and of each of its phases."""
    clock = Clock()
    history = fit(
        network("cpu"),
        train,
        valid,
        method=method,
        config=config,
        on_epoch=clock,
        progress=False,
    )
    measured = history["seconds"][WARM_UP:]
    phases = {phase: float(np.median([s[phase] for s in measured])) for phase in measured[0]}
    return clock.median(), phases


def together(train, valid, config, n):
    """The seconds of an epoch of one of several runs: time over run-epochs while all are at it."""
    clocks = [Clock() for _ in range(n)]
    jobs = [Job(network("cpu"), train, valid, config=config, on_epoch=clock) for clock in clocks]
    fit_many(jobs, at_once=n, progress=False)
    first = max(clock.ends[WARM_UP - 1] for clock in clocks)
    last = min(clock.ends[-1] for clock in clocks)
    done = sum(first < end <= last for clock in clocks for end in clock.ends)
    return (last - first) / done


def beside_bare(bags, config, device):
    """The median seconds of training an epoch, ours and a bare loop's, in turns."""
    model = network(device).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=0, fused=True
    )
    x, index = torch.from_numpy(bags.x).to(device), torch.from_numpy(bags.index).to(device)
    labels = torch.randint(CLASSES, (len(index),), device=device)
    precision = precision_for(config.precision, device)

    def epoch():
        order = torch.randperm(len(index), device=device)
        for chosen in order.split(config.batch_size):
            with torch.autocast(device.type, precision, enabled=precision is not torch.float32):
                logits = model(x[index[chosen]]).float()
            loss = nn.functional.cross_entropy(logits, labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    loop = []
    history = fit(
        network("cpu"),
        bags,
        config=config,
        on_epoch=lambda *_: loop.append(seconds(epoch, device)),
        progress=False,
    )
    own = [phases["train"] for phases in history["seconds"]]
    return float(np.median(own[WARM_UP:])), float(np.median(loop[WARM_UP:]))


class Images(Dataset):
    """Images that are transformed one by one, as torchvision's transforms would."""

    def __init__(self, x, labels):
        self.x, self.labels = x, labels
        self.mean, self.std = torch.from_numpy(MEAN), torch.from_numpy(STD)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        image = torch.from_numpy(self.x[i]).float()
        return (image - self.mean) / self.std, int(self.labels[i])


def as_published(bags, config, device):
    """The seconds of training and of confidences, each once, scaled from some of the bags."""
    some = bags[: max(1, 10_240 // int(bags.sizes[0]))]
    scale = bags.n_bags / some.n_bags
    model = network(device).network
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    labels = np.random.default_rng(0).integers(CLASSES, size=some.n_instances)
    loader = DataLoader(
        Images(some.x[some.index], labels), config.batch_size, shuffle=True, num_workers=2
    )

    def train():
        model.train()
        for images, own in loader:
            loss = nn.functional.cross_entropy(model(images.to(device)), own.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()

    @torch.no_grad()
    def confidences():
        model.eval()
        for bag in range(some.n_bags):
            rows = Images(some.x[some.rows(bag)], np.zeros(some.sizes[bag]))
            for images, _ in DataLoader(rows, len(rows)):
                model(images.to(device)).softmax(dim=1).cpu().numpy()

    return scale * seconds(train, device), scale * seconds(confidences, device)


def decisions(n_bags, size):
    """The seconds of one decision of ours about all bags, and its costs."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(size, rng.dirichlet(np.full(CLASSES, 2.0), n_bags))
    bag = np.repeat(np.arange(n_bags), size)
    bags = Bags.from_rows(np.zeros((len(bag), 1)), bag, counts, counts=True)
    state = FPL(eta=5).start(bags, epochs=400, device=CPU, seed=0, threads=None)
    logits = torch.from_numpy(rng.normal(size=(len(bag), CLASSES))).float()
    times = []
    for epoch in range(1, 8):
        confidence = (logits + torch.randn_like(logits)).softmax(dim=1)
        times.append(seconds(lambda e=epoch, c=confidence: state.epoch_end(e, c), CPU))
    noise = rng.normal(size=(len(bag), CLASSES))
    return float(np.median(times[2:])), state.leader.total + 5 * noise, bags


def binary_programme(cost, counts):
    """The labels of one bag by python-mip: a binary variable for every instance and class."""
    import mip

    model = mip.Model(solver_name=mip.CBC)
    model.verbose = 0
    n = len(cost)
    y = [[model.add_var(var_type=mip.BINARY) for _ in counts] for _ in range(n)]
    model.objective = mip.minimize(
        mip.xsum(float(cost[j, c]) * y[j][c] for j in range(n) for c in range(len(counts)))
    )
    for j in range(n):
        model += mip.xsum(y[j]) == 1
    for c, count in enumerate(counts):
        model += mip.xsum(y[j][c] for j in range(n)) == int(count)
    model.optimize()


def published_decisions(costs, bags, n_bags):
    """The seconds of as many binary programmes, from three of them; None without python-mip."""
    times = []
    try:
        for bag in range(3):
            own = costs[bags.offsets[bag] : bags.offsets[bag + 1]]
            began = time.perf_counter()
            binary_programme(own, bags.counts[bag])
            times.append(time.perf_counter() - began)
    except ImportError:
        return None
    return float(np.median(times)) * n_bags


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", help="where the official files of CIFAR-10 are")
    parser.add_argument("--instances", type=int, help="to train on: 2,048, or 102,400 on a GPU")
    parser.add_argument("--sizes", type=int, nargs="+", help="of bags: 1024, or three on a GPU")
    parser.add_argument("--together", type=int, nargs="+", default=[4], help="runs on a GPU")
    parser.add_argument("--decisions", type=int, default=100, help="bags to decide about")
    parser.add_argument("--epochs", type=int, help="8, or 20 on a GPU")
    options = parser.parse_args()
    logging.getLogger("apportion").setLevel(logging.ERROR)
    device = device_for(options.device)
    on_gpu = device.type == "cuda"
    instances = options.instances or (102_400 if on_gpu else 2_048)
    sizes = options.sizes or ([64, 1024, 4096] if on_gpu else [1024])
    config = TrainConfig.preset(
        "paper",
        epochs=options.epochs or (20 if on_gpu else 8),
        device=options.device,
        step_mode="compiled",  # as the preset's 400 epochs would be, and these few would not
    )
    name = torch.cuda.get_device_name(device) if on_gpu else "the CPU"
    print(f"{instances:,} instances to train and as many to validate on, {name}")

    def bags_of(size):
        return published(options.data, size) if options.data else drawn(instances, size)

    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}\n")

    for size in sizes:
        train, valid = bags_of(size)
        whole, phases = ours(train, valid, config)
        by_phase = " · ".join(f"{phase} {value:.3f}" for phase, value in phases.items())
        print(f"fpl, bags of {size}: {whole:.3f} s an epoch ({by_phase})", flush=True)
    size = 1024 if 1024 in sizes else sizes[0]
    train, valid = bags_of(size)
    whole, phases = ours(train, valid, config)
    if on_gpu:
        for n in options.together:
            each = together(train, valid, config, n)
            print(f"{n} runs together: {each:.3f} s a run-epoch ({whole / each:.2f}× one alone)")
        small, others = bags_of(64)
        took, by = ours(small, others, config, "proportion-loss")
        print(f"proportion-loss, 4 bags of 64 a step: {took:.3f} s (training {by['train']:.3f})")

    own, loop = beside_bare(train, config, device)
    theirs = as_published(train, config, device)
    print(f"\ntraining     ours {own:.3f} s · bare, in turns with it, {loop:.3f} s ", end="")
    print(f"({own / loop:.2f}×) · as published {theirs[0]:.2f} s")
    print(f"confidences  ours {phases['confidence']:.3f} s · as published {theirs[1]:.2f} s")
    decided, costs, many = decisions(options.decisions, size)
    labels = published_decisions(costs, many, options.decisions)
    print(f"labels       {options.decisions} bags of {size}: ours {decided:.4f} s", end="")
    if labels is None:
        print(" · as published not measured: python-mip is not installed")
    else:
        print(f" · as published {labels:.1f} s ({labels / decided:,.0f}×)")
    as_they_do = sum(theirs) + (labels or 0)
    without = " without its label decisions" if labels is None else ""
    print(f"whole epoch  ours {whole:.3f} s · as published {as_they_do:.1f} s{without}", end="")
    print(f" ({as_they_do / whole:,.0f}×)")


if __name__ == "__main__":
    main()
