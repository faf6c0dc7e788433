"""A linear layer on summaries of signals, learned from proportions in a second."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from apportion.bags.bags import Bags
from apportion.engine.batches import place
from apportion.engine.device import device_for
from apportion.labels.start import FIRM, LOOSE, fit_features
from apportion.nets.build import build_net
from apportion.nets.normalized import Normalized
from apportion.nets.summary import summaries
from apportion.training.checks import check_differ
from apportion.training.features import bags_of, chosen_fit, features_of
from apportion.training.frozen import ROWS_PER_PASS, layer_of

__all__ = ["fit_summaries"]


def fit_summaries(bags: Bags, *, seed: int = 0, device: str = "auto") -> Normalized:
    """Build the net ``summary`` and learn its layer by `apportion.labels.start.fit_features`.

    How far the fit is held back is chosen by bags that are held out.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> truth = np.arange(300) % 2
    >>> x = np.random.default_rng(0).normal(size=(300, 3, 20)) * (1 + truth[:, None, None])
    >>> bags = Bags.from_rows(x, np.arange(300) * (1 + truth) // 60, truth=truth)
    >>> net = fit_summaries(bags.without_truth(), device="cpu").eval()
    >>> float((net(torch.from_numpy(x)).argmax(dim=1).numpy() == truth).mean()) > 0.9
    True
    """
    check_differ(bags)
    there = device_for(device)
    net = build_net("summary", bags, seed=seed).to(there)
    network: Any = net.network

    def features(*x: Tensor) -> Tensor:
        return summaries(*net.prepare(*x))

    (instances, *_) = place((bags, None, None), there)
    own = bags_of(features_of(features, net, instances, ROWS_PER_PASS), instances)
    _, penalty = chosen_fit({"a firm fit": (own, FIRM), "a loose fit": (own, LOOSE)}, seed)
    network.fc = layer_of(fit_features(own, seed=seed, penalty=penalty).linear)
    return net.cpu()
