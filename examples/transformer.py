"""A small transformer that learns from bags of sentences, by an optimiser of your own."""

import numpy as np
import torch
from torch import nn, optim

from apportion import Bags, TrainConfig, count_steps, fit


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(20, 32, padding_idx=0), nn.Linear(32, 2)
        self.body = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

    def forward(self, ids):
        found = self.body(self.words(ids), src_key_padding_mask=ids == 0)
        return self.head(found.masked_fill(ids[..., None] == 0, -9).amax(dim=1))


def main():  # sentences with the words 18 or 19 are of class 1: only shares are known
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 20, (2000, 10)) * (np.arange(10) < rng.integers(2, 11, (2000, 1)))
    truth = (ids.max(axis=1) >= 18).astype(int)
    bag = np.argsort(np.argsort(truth + 2 * rng.random(2000))) // 20  # of differing shares
    train, valid, _ = Bags.from_rows(ids, bag, truth=truth).split(0.2, seed=0)
    torch.manual_seed(0)
    net, config = Transformer(), TrainConfig(epochs=6, batch_size=64, clip_norm=1.0)
    rest = [*net.body.parameters(), *net.head.parameters()]
    groups = [{"params": [*net.words.parameters()], "lr": 1e-2}, {"params": rest, "lr": 3e-3}]
    warmup = 0.1 * count_steps(train, config=config)
    history = fit(net, train, valid, config=config, optimizer=lambda _: optim.AdamW(groups),
        scheduler=lambda adamw: optim.lr_scheduler.LambdaLR(
            adamw, lambda step: min(1, (step + 1) / warmup)))  # fmt: skip
    print(f"{history.selected['valid_accuracy']:.1%} of the sentences of other bags are recognised")


if __name__ == "__main__":
    main()
