"""Epochs on a Dataset of random crops: ours beside a plain DataLoader loop, in turns, in one run.

    python benchmarks/datasets.py [--workers 0 2] [--images 4096] [--epochs 8] [--device auto]

Images of 40 × 40 are cropped to 32 × 32 and flipped at random in `__getitem__`; the net is a small
convolutional one. After every epoch of `fit` the plain loop takes one, in the same process, with
the same Dataset, net, batch size, optimiser, threads and number of workers. Both only train: the
confidences that `fit` computes besides are printed apart. Prints medians over the epochs after the
first two, and the ratio of speeds, which is to be 0.9 or more.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from apportion import Bags, TrainConfig, fit
from apportion.engine.device import device_for

WARM_UP = 2  # epochs
CLASSES, BATCH = 4, 128


class Crops(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(0)
        self.images = torch.from_numpy(rng.integers(0, 256, (n, 3, 40, 40), np.uint8))
        self.labels = rng.integers(CLASSES, size=n)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, row):
        top, left, flipped = torch.randint(8, (3,)).tolist()
        image = self.images[row, :, top : top + 32, left : left + 32].float() / 255
        return image.flip(-1) if flipped < 4 else image, int(self.labels[row])


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, CLASSES),
    )  # fmt: skip


def plain_epoch(net, optimizer, loader, device):
    """Train for one epoch as the tutorials do; return the seconds."""
    began = time.perf_counter()
    net.train()
    losses = []
    for x, y in loader:
        loss = nn.functional.cross_entropy(
            net(x.to(device, non_blocking=True)), y.to(device, non_blocking=True)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch.stack(losses).mean().item()
    return time.perf_counter() - began


def measure(workers, n, epochs, device):
    """Return the seconds of ours, of the plain loop, and of our confidences, epoch by epoch."""
    dataset, net = Crops(n), network()
    plain = copy.deepcopy(net).to(device)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, fused=True)
    loader = DataLoader(
        dataset,
        BATCH,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
    )
    found = []

    def in_turn(record, _):
        seconds = record["seconds"]
        found.append(
            (seconds["train"], plain_epoch(plain, optimizer, loader, device), seconds["confidence"])
        )

    bags = Bags.from_dataset(dataset, np.arange(n) // 32, truth=dataset.labels)
    config = TrainConfig(
        epochs=epochs, batch_size=BATCH, workers=workers, device=str(device), precision="float32"
    )
    fit(net, bags, config=config, on_epoch=in_turn, progress=False)
    return found[WARM_UP:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = device_for(options.device)
    for workers in options.workers:
        found = measure(workers, options.images, options.epochs, device)
        ours, plain, confidence = (statistics.median(column) for column in zip(*found, strict=True))
        ratio = statistics.median(theirs / own for own, theirs, _ in found)
        print(
            f"{workers} workers: ours {ours:.3f} s per epoch, plain loop {plain:.3f} s, speed "
            f"{ratio:.2f} of the plain loop; confidences {confidence:.3f} s besides",
            flush=True,
        )


if __name__ == "__main__":
    main()
