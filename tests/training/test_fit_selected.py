"""Which epoch is selected: that of the least validation error, or the last one if it is as good."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from apportion import Bags, TrainConfig, fit
from apportion.methods.base import Supervision
from apportion.model.model import Model
from apportion.report.read import read_run
from apportion.report.results import how_well

# Twenty bags around one half of each class: what a constant prediction is compared with.
SHARES = 0.5 + 0.1 * np.random.default_rng(0).standard_normal(20)
TRAIN, VALID = (
    Bags.from_rows(
        np.zeros((2000, 1), np.float32),
        np.arange(2000) // 100,
        {i: [share, 1 - share] for i, share in enumerate(SHARES)},
    )
    for _ in range(2)
)


class Constant(nn.Module):
    """Says the same of every instance."""

    def __init__(self) -> None:
        super().__init__()
        self.logit = nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.logit, -self.logit]).expand(len(x), 2)


@dataclass(frozen=True)
class Told:
    """Moves a constant to the share that it is told for each epoch, in one step."""

    shares: tuple[float, ...]
    unit: ClassVar[Any] = "instances"

    def start(self, bags: Bags, **run: Any) -> "ToldShares":
        return ToldShares(self.shares)


class ToldShares(Supervision):
    def __init__(self, shares: tuple[float, ...]) -> None:
        self.shares = shares
        self.logit = torch.tensor(0.0)
        self.epoch_end(0, None)

    def instance_loss(self, net: Any, batch: Any, logits: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = (net.logit - self.logit).square()
        return loss

    def epoch_end(self, epoch: int, confidence: Any) -> dict[str, float]:
        share = self.shares[min(epoch, len(self.shares) - 1)]
        self.logit.fill_(0.5 * np.log(share / (1 - share)))
        return {}


def trained(shares: tuple[float, ...], select: Any, valid: Bags | None = VALID, **options: Any):
    net = Constant()
    history = fit(
        net,
        TRAIN,
        valid,
        method=Told(shares),
        config=TrainConfig(epochs=len(shares), batch_size=2000, select=select, device="cpu"),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5),
        progress=False,
        **options,
    )
    return history, float(torch.sigmoid(2 * net.logit.detach()))


@pytest.mark.parametrize(
    ("shares", "select", "chosen"),
    [
        ((0.9, 0.5, 0.51), "least", 2),
        ((0.9, 0.5, 0.51), "last", 3),  # worse by less than chance
        ((0.9, 0.5, 0.8), "last", 2),  # worse beyond chance
        ((0.9, 0.8, 0.5), "last", 3),  # the best anyway
    ],
)
def test_the_last_epoch_is_selected_unless_it_is_worse_beyond_chance(
    shares, select, chosen, tmp_path
):
    history, share = trained(shares, select, run=tmp_path)
    assert history.best_epoch == chosen
    assert share == pytest.approx(shares[chosen - 1], abs=1e-6)
    assert history.best_error == history.selected["valid_error"]
    errors = history["valid_error"]
    assert select == "last" or errors[chosen - 1] == min(errors)
    assert Model.load(tmp_path, net=Constant()).epoch == chosen
    told = " ".join(how_well(read_run(tmp_path, "a")))
    assert f"Epoch {chosen} was selected" in told
    assert ("not worse beyond chance" in told) == (select == "last" and chosen == 3)


@pytest.mark.parametrize(("last", "chosen"), [(0.56, 16), (0.9, 8)])
def test_the_least_of_many_noisy_epochs_may_be_so_by_luck(last, chosen):
    around = (
        0.56,
        0.62,
        0.57,
        0.61,
        0.58,
        0.62,
        0.56,
        0.5,
        0.62,
        0.57,
        0.61,
        0.56,
        0.62,
        0.57,
        0.6,
    )
    history, _ = trained((*around, last), "last")
    assert history.best_epoch == chosen
    few, _ = trained((0.56, 0.62, 0.57, 0.5, 0.58), "last")  # too few to tell how much they vary
    assert few.best_epoch == 4


def test_one_validation_bag_leaves_nothing_to_chance():
    history, _ = trained((0.9, SHARES[0], 0.5 * SHARES[0] + 0.25), "last", VALID[:1])
    assert history.best_epoch == 2


def test_without_validation_the_last_epoch_is_kept_as_ever():
    history, share = trained((0.9, 0.5, 0.8), "last", None)
    assert history.best_epoch is None
    assert share == pytest.approx(0.8, abs=1e-6)
