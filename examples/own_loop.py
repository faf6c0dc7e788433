"""Learn from proportions in a training loop of your own.

    python examples/own_loop.py

Handwritten digits in bags of 64, of which only the counts of the ten digits are known. The loop is
plain PyTorch and could be anything else: a `Leader` says which labels to train on, and is told how
confident the network became. The true labels only tell, at the end, how well that worked.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from apportion import Bags, Leader

EPOCHS = 30


def main() -> float:
    images, truth = load_digits(return_X_y=True)
    order = np.argsort(truth + 4 * np.random.default_rng(0).random(len(truth)))
    images, truth = images[order], truth[order]
    bag = np.arange(len(truth)) // 64  # bags of different proportions
    counts = {b: np.bincount(truth[bag == b], minlength=10) for b in np.unique(bag)}
    bags = Bags.from_rows(None, bag, counts, counts=True)

    x = torch.from_numpy(images / 16).float()[bags.index]  # bag after bag, as the labels are
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    leader = Leader(bags, eta=5 * EPOCHS / 400, seed=0)
    labels = torch.from_numpy(leader.labels)  # shares memory: a decision changes it in place
    for epoch in range(1, EPOCHS + 1):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            cross_entropy(network(x[batch]), labels[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            decided = leader.decide(network(x).softmax(dim=1).numpy())
        if epoch % 10 == 0:
            print(f"epoch {epoch}: {decided.changed:.1%} of the labels changed")

    right = network(x).argmax(dim=1).numpy() == truth[bags.index]
    print(f"{right.mean():.1%} of the digits are recognised, from counts alone")
    return float(right.mean())


if __name__ == "__main__":
    main()
