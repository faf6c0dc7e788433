"""Instances of one part and of two, bags that hold some of their rows, and a net made lively."""

import numpy as np
import torch

from apportion.bags.bags import Bags
from apportion.nets.resnet import ResNet

NUMBERS = np.random.default_rng(0).normal(5.0, 3.0, (6, 2))
CODES = np.array([[0, 1], [1, 4], [2, 0], [2, 2], [0, 3], [1, 1]])


def bags_of(x, *members) -> Bags:
    """Bags of three classes that hold the given rows of x; one bag of all rows if none are."""
    n_rows = len(x[0]) if isinstance(x, tuple) else len(x)
    rows = dict(enumerate(members or [range(n_rows)]))
    return Bags.from_members(x, rows, [[0.5, 0.25, 0.25]] * len(rows))


def as_memmap(x, folder):
    np.save(folder / "x.npy", x)
    return np.load(folder / "x.npy", mmap_mode="r")


def padded(behind=0.0, size=9):
    """Ten signals of two channels, the last of which is to stand in no bag."""
    generator = np.random.default_rng(1)
    frames = generator.normal([[3.0], [-50.0]], [[1.0], [9.0]], (10, 2, 9)).astype(np.float32)
    frames = np.concatenate([frames, np.zeros((10, 2, size - 9), np.float32)], axis=2)
    lengths = np.array([1, 9, 3, 4, 5, 2, 8, 9, 1, 0])
    frames[np.broadcast_to(np.arange(size) >= lengths[:, None, None], frames.shape)] = behind
    return frames, lengths


def lively(network: ResNet, seed: int = 0) -> ResNet:
    """The network in evaluation mode, with no statistic or weight left at its first value."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in network.state_dict().items():
        if ".bn" in name or name.startswith("bn") or "downsample.1" in name or name == "fc.bias":
            value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
    return network.eval()
