"""A linear model as a net: the same logits, a recipe, and a file."""

import numpy as np
import pytest
import torch

from apportion.errors import ConfigError
from apportion.labels.linear import fit_linear, fit_mean_map
from apportion.learners.linear import linear_net, start_as
from apportion.model.model import Model, describe_parts
from apportion.nets.build import build_net, from_recipe
from tests.labels.tables import table_bags


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("categories", [False, True])
def test_logits_are_those_of_the_linear_model(categories, classes):
    bags = table_bags(300, classes=classes, categories=categories)
    linear = fit_mean_map(bags, l2=1.0)
    net = linear_net(linear)
    with torch.no_grad():
        found = net(*map(torch.from_numpy, bags.parts)).numpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, linear.logits(bags.x), atol=1e-5)


def test_net_is_rebuilt_from_its_recipe():
    bags = table_bags(100)
    net = linear_net(fit_linear(bags, l2=1.0))
    again = from_recipe(net.recipe or {})
    again.load_state_dict(net.state_dict())
    x = [*map(torch.from_numpy, bags.parts)]
    assert torch.equal(again(*x), net(*x))
    assert (net.recipe or {})["hidden"] == []


def test_net_is_kept_as_any_model(tmp_path):
    bags = table_bags(100)
    linear = fit_linear(bags, l2=1.0)
    Model(linear_net(linear), bags.classes, describe_parts(bags)).save(tmp_path / "model")
    again = Model.load(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(again.predict_proba(bags.x), linear.confidence(bags.x), atol=1e-5)


@pytest.mark.parametrize("hidden", [[], [8], [8, 5]])
@pytest.mark.parametrize("categories", [False, True])
def test_a_net_can_start_as_a_linear_model(categories, hidden):
    bags = table_bags(300, classes=4, categories=categories)
    linear = fit_mean_map(bags, l2=1.0)
    net = build_net("mlp", bags, hidden=hidden, skip=True)
    x = [*map(torch.from_numpy, bags.parts)]
    assert not np.allclose(net(*x).detach(), linear.logits(bags.x), atol=1e-2)
    net.mean.add_(1)  # as if it had been measured elsewhere
    start_as(net, linear)
    logits = net(*x)
    np.testing.assert_allclose(logits.detach(), linear.logits(bags.x), atol=1e-5)
    logits.square().sum().backward()
    last = [module for module in net.modules() if isinstance(module, torch.nn.Linear)][-1]
    assert last.weight.grad is not None
    assert (last.weight.grad != 0).any()  # so that the perceptron learns


def test_what_cannot_start_as_a_linear_model_is_refused():
    bags = table_bags(100, classes=2)
    linear = fit_mean_map(bags, l2=1.0)
    with pytest.raises(ConfigError, match=r"no layer from its inputs .*\n.*skip=True"):
        start_as(build_net("mlp", bags), linear)
    others = table_bags(100, classes=3)
    with pytest.raises(ConfigError, match=r"the net has \(3, \d+\) weights .* model \(2, \d+\)"):
        start_as(build_net("mlp", others, skip=True), linear)
