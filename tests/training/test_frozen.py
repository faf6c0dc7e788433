"""A linear layer on a frozen net."""

import numpy as np
import pytest
import torch
from torch import nn

from apportion.bags.items import Items
from apportion.errors import BagError, ConfigError
from apportion.training.frozen import fit_frozen
from tests.training.test_features import BAGS, image_bags


def backbone():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.5))


def test_only_a_linear_layer_is_learned_and_it_tells_new_images_apart():
    net = backbone()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    fresh = image_bags(seed=1)
    found = fit_frozen(net, BAGS, fresh, device="cpu")
    assert all(value.equal(before[name]) for name, value in found.net[0].state_dict().items())
    (record,) = found.history.records
    assert record["label_accuracy"] > 0.9
    assert (found.history.labels == BAGS.truth).mean() == record["label_accuracy"]
    with torch.no_grad():
        confidence = found.net(torch.from_numpy(fresh.x[fresh.index])).softmax(dim=1).numpy()
    right = (confidence.argmax(axis=1) == fresh.truth).mean()
    assert right == pytest.approx(record["valid_accuracy"])
    assert right > 0.85
    means = np.stack([c.mean(axis=0) for c in np.split(confidence, fresh.offsets[1:-1])])
    missed = 0.5 * np.abs(means - fresh.proportions).sum(axis=1).mean()
    assert missed == pytest.approx(record["valid_error"], abs=1e-5)


def test_truth_and_other_bags_decide_nothing():
    found = fit_frozen(backbone(), BAGS, image_bags(seed=1), device="cpu")
    blind = fit_frozen(backbone(), BAGS.without_truth(), device="cpu")
    ours, theirs = found.net.state_dict(), blind.net.state_dict()
    assert all(value.equal(theirs[name]) for name, value in ours.items())
    assert "label_accuracy" not in blind.history


def test_bags_of_other_classes_are_refused():
    other = image_bags(seed=1)
    other = type(other).from_rows(other.x, other.index, classes=range(4), truth=other.truth)
    with pytest.raises(BagError, match="the validation bags have the classes"):
        fit_frozen(backbone(), BAGS, other, device="cpu")


def test_instances_of_several_parts_are_refused():
    x = np.random.default_rng(0).normal(size=(BAGS.n_rows, 3))
    several = BAGS.with_rows((x, x))
    with pytest.raises(BagError, match="would take 2 parts of each instance"):
        fit_frozen(nn.Bilinear(3, 3, 4), several, device="cpu")
    named = BAGS.with_rows(Items([{"a": row, "b": row} for row in x]))
    with pytest.raises(BagError, match="2 parts named a, b"):
        fit_frozen(nn.Bilinear(3, 3, 4), named, device="cpu")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_features_of_another_precision_are_refused_before_anything_is_learned(dtype):
    class Other(nn.Module):
        def forward(self, x):
            return (100 * x.mean(dim=(2, 3))).to(dtype)

    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ConfigError, match=f"Other returns features of {name}, but"):
        fit_frozen(Other(), BAGS, device="cpu")
