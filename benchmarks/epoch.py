"""One epoch of ours, by phases, beside two other ways to write it, in one run.

    python benchmarks/epoch.py [--size 1024] [--bags 2] [--decisions 100] [--device auto]

The network is the paper's ResNet-18 on 32 × 32 images of random pixels, the method `fpl`, the
preset `paper`. Beside it:

- *bare*: a hand-written PyTorch loop over the same tensors, network, optimiser and precision, which
  only trains;
- *as published*: in the manner of the authors' code: images transformed one by one in a DataLoader,
  confidences bag by bag, and a binary programme for every bag's labels, solved by CBC through
  python-mip (`pip install mip`; without it that line is left out).

The decisions are measured on `--decisions` bags, the binary programme on three of them. Prints the
seconds of an epoch, and ratios.
"""

from __future__ import annotations

import argparse
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from apportion import Bags, OnlinePseudoLabels, TrainConfig, fit
from apportion.data.protocols import rand
from apportion.engine.device import device_for, precision_for
from apportion.nets import Normalized, resnet18

CLASSES = 10
MEAN = 255 * np.array([0.5071, 0.4865, 0.4409], np.float32).reshape(3, 1, 1)
STD = 255 * np.array([0.2673, 0.2564, 0.2762], np.float32).reshape(3, 1, 1)


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


def ours(bags, config):
    """The median seconds of each phase, without the first epoch."""
    logging.getLogger("apportion").setLevel(logging.ERROR)
    history = fit(network("cpu"), bags, method="fpl", config=config, progress=False)
    measured = history["seconds"][1:]
    return {phase: float(np.median([s[phase] for s in measured])) for phase in measured[0]}


def bare(bags, config, device):
    """The median seconds of an epoch of training, and nothing else."""
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

    return float(np.median([seconds(epoch, device) for _ in range(config.epochs)][1:]))


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
    """The seconds of training and of confidences, each once."""
    model = network(device).network
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    labels = np.random.default_rng(0).integers(CLASSES, size=bags.n_instances)
    loader = DataLoader(
        Images(bags.x[bags.index], labels), config.batch_size, shuffle=True, num_workers=2
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
        for bag in range(bags.n_bags):
            rows = Images(bags.x[bags.rows(bag)], np.zeros(bags.sizes[bag]))
            for images, _ in DataLoader(rows, len(rows)):
                model(images.to(device)).softmax(dim=1).cpu().numpy()

    return {"train": seconds(train, device), "confidence": seconds(confidences, device)}


def decisions(n_bags, size):
    """The seconds of one decision of ours about all bags, and its costs."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(size, rng.dirichlet(np.full(CLASSES, 2.0), n_bags))
    bag = np.repeat(np.arange(n_bags), size)
    bags = Bags.from_rows(np.zeros((len(bag), 1)), bag, counts, counts=True)
    state = OnlinePseudoLabels(eta=5).start(
        bags, epochs=400, device=torch.device("cpu"), seed=0, threads=None
    )
    logits = torch.from_numpy(rng.normal(size=(len(bag), CLASSES))).float()
    times = []
    for epoch in range(1, 8):
        confidence = (logits + torch.randn_like(logits)).softmax(dim=1)
        times.append(seconds(lambda e=epoch, c=confidence: state.epoch_end(e, c), CPU))
    noise = rng.normal(size=(len(bag), CLASSES))
    return float(np.median(times[2:])), state.total.numpy() + 5 * noise, bags


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


CPU = torch.device("cpu")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1024, help="instances in a bag")
    parser.add_argument("--bags", type=int, default=2, help="bags to train on")
    parser.add_argument("--decisions", type=int, default=100, help="bags to decide about")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = device_for(options.device)
    config = TrainConfig.preset("paper", epochs=4, device=options.device)
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=4 * options.size)
    x = rng.integers(256, size=(len(labels), 3, 32, 32), dtype=np.uint8)
    members = rand(labels, options.size, options.bags, seed=0).members
    bags = Bags.from_members(x, members, labels=labels, classes=range(CLASSES))

    own, loop = ours(bags, config), bare(bags, config, device)
    published = as_published(bags, config, device)
    print(f"{options.bags} bags of {options.size} images on {device}, torch {torch.__version__}")
    print(
        f"train       ours {own['train']:.3f} s · bare {loop:.3f} s ({own['train'] / loop:.2f}×)"
        f" · as published {published['train']:.3f} s ({published['train'] / own['train']:.1f}×)"
    )
    print(
        f"confidence  ours {own['confidence']:.3f} s · as published {published['confidence']:.3f} s"
        f" ({published['confidence'] / own['confidence']:.1f}×)"
    )
    decided, costs, many = decisions(options.decisions, options.size)
    print(f"labels      {options.decisions} bags: ours {decided:.4f} s", end="", flush=True)
    try:
        times = []
        for bag in range(3):
            own_costs = costs[many.offsets[bag] : many.offsets[bag + 1]]
            began = time.perf_counter()
            binary_programme(own_costs, many.counts[bag])
            times.append(time.perf_counter() - began)
    except ImportError:
        print(" · as published not measured: python-mip is not installed")
    else:
        theirs = float(np.median(times)) * options.decisions
        print(f" · as published {theirs:.1f} s, from three of them ({theirs / decided:,.0f}×)")


if __name__ == "__main__":
    main()
