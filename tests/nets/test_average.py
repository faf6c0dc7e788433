"""The average of nets: the mathematics, its recipe, and a file that is checked before use."""

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from apportion import Bags, Model
from apportion.errors import ConfigError, RunError
from apportion.model.model import describe_parts
from apportion.nets.average import Average
from apportion.nets.build import build_net, from_recipe, move_to
from apportion.runs.header import metadata, read_header, seal
from tests.nets.small_data import CODES, NUMBERS, bags_of

BAGS = bags_of((NUMBERS, CODES))
X = tuple(map(torch.from_numpy, BAGS.parts))


def perceptron(seed: int, bags: Bags = BAGS, **options: Any) -> Any:
    return build_net("mlp", bags, seed=seed, **{"hidden": [5], **options}).eval()


def average() -> Average:
    nets = [perceptron(seed, skip=seed == 2) for seed in range(3)]
    net = Average([nets[:2], nets[2:]])
    net.slope.fill_(1.5)
    net.bias.copy_(torch.tensor([0.5, -1.0, 0.0]))
    return net.eval()


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def logits_of(net) -> Any:
    with torch.no_grad():
        return net(*X).double().numpy()


# ------------------------------------------------------------------------------ the mathematics


def test_log_probabilities_are_averaged_within_groups_and_probabilities_between_them():
    net = average()
    net.state_dict()["groups.0.0.network.3.bias"].add_(torch.tensor([0.0, 3.0, 1.0]))
    a, b, c = (softmax(logits_of(one)) for one in net.nets)
    geometric = np.sqrt(a * b)
    geometric /= geometric.sum(axis=1, keepdims=True)
    wanted = 1.5 * np.log((geometric + c) / 2) + np.array([0.5, -1.0, 0.0])
    np.testing.assert_allclose(logits_of(net), wanted, atol=1e-5)


def test_no_group_alone_makes_a_class_impossible():
    sure, other = perceptron(0), perceptron(1)
    sure.network[-1].bias.data += torch.tensor([100.0, 0, 0])
    found = np.exp(logits_of(Average([[sure], [other]])))
    least = np.exp(-8)
    wanted = (np.array([1, least, least]) / (1 + 2 * least) + softmax(logits_of(other))) / 2
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_one_net_is_itself():
    net = perceptron(3)
    np.testing.assert_allclose(softmax(logits_of(Average([[net]]))), softmax(logits_of(net)), 1e-5)


def test_it_is_moved_and_copied_whole():
    net = average()
    move_to(torch.device("meta"), copied := copy.deepcopy(net))
    assert {value.device.type for value in copied.state_dict().values()} == {"meta"}
    assert copied.recipe == net.recipe
    assert len(list(net.parameters())) == 4 + 4 + 6


# ----------------------------------------------------------------------------------- its recipe


def test_it_is_made_again_from_its_recipe():
    net = average()
    again = from_recipe(json.loads(json.dumps(net.recipe))).eval()
    assert isinstance(again, Average)
    again.load_state_dict(net.state_dict())
    np.testing.assert_array_equal(logits_of(again), logits_of(net))
    assert again.recipe == net.recipe
    empty = from_recipe(net.recipe, device="meta").state_dict()
    assert {name: value.shape for name, value in empty.items()} == {
        name: value.shape for name, value in net.state_dict().items()
    }
    assert {value.device.type for value in empty.values()} == {"meta"}


def recipe_of(**options: Any) -> dict[str, Any]:
    return dict(perceptron(0, **options).recipe)


ONE = recipe_of()
HOSTILE: dict[str, tuple[Any, str]] = {
    "none": ([], "is no recipe of an average.\n  It must be of groups"),
    "text": ("mlp", "is no recipe of an average"),
    "an empty group": ([[ONE], []], r"group 2 of an average is \[\]"),
    "no group": ([ONE], "group 1 of an average is {"),
    "no recipe": ([[ONE, 3]], "3 is no recipe of a net"),
    "nested": ([[ONE, {"net": "average", "groups": [[ONE]]}]], "group 1 of .* holds an average"),
    "too many": ([[ONE] * 40, [ONE] * 25], "is of 65 nets.\n  Average at most 64"),
    "classes": ([[ONE], [{**ONE, "classes": 4}]], "classes is 3 in one net .* and 4 in another"),
    "features": ([[ONE, {**ONE, "features": 9}]], "features is 2 in one net .* and 9 in another"),
    "codes": ([[ONE, {**ONE, "categories": None}]], r"categories is \[3, 5\] in .* and None in"),
    "an entry": ([[ONE, {**ONE, "skip": "yes"}]], "skip is 'yes' in the recipe of mlp"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_recipe_of_an_average_is_refused(case):
    groups, message = HOSTILE[case]
    with pytest.raises(ConfigError, match=message):
        from_recipe({"net": "average", "groups": groups})


def test_a_recipe_of_an_average_has_groups_and_no_more():
    for recipe in ({"net": "average"}, {"net": "average", "groups": [[ONE]], "slope": 2}):
        with pytest.raises(ConfigError, match="is no recipe of an average"):
            from_recipe(recipe)


def test_nets_that_could_not_be_loaded_together_are_not_averaged():
    with pytest.raises(ConfigError, match=r"has no recipe.*\n  Average nets that build_net built"):
        Average([[perceptron(0), nn.Linear(2, 3)]])
    with pytest.raises(ConfigError, match="group 2 of an average holds an average"):
        Average([[perceptron(0)], [average()]])
    with pytest.raises(ConfigError, match="is no recipe of an average"):
        Average([])
    with pytest.raises(ConfigError, match="features is 2 in one"):
        Average([[perceptron(0)], [perceptron(0, bags_of((NUMBERS[:, :1], CODES)))]])
    with pytest.raises(ConfigError, match="is of 65 nets"):
        Average([[perceptron(0)] * 65])


# ------------------------------------------------------------------------------------- its file


def saved(path) -> Model:
    model = Model(average(), BAGS.classes, describe_parts(BAGS), device="cpu")
    model.save(path)
    return model


def test_a_file_has_all_of_it(tmp_path):
    model = saved(tmp_path / "m")
    again = Model.load(tmp_path / "m", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(BAGS.x), model.predict_proba(BAGS.x))
    assert isinstance(again.net, Average)
    assert again.net.slope.item() == 1.5
    assert again.net.bias.tolist() == [0.5, -1.0, 0.0]
    assert repr(again) == "Model(average, 3 classes)"


def resaved(path, *, groups=None, tensors=None):
    header, own = read_header(path, "model"), load_file(path)
    for entry in ("format", "kind"):
        del header[entry]
    if groups is not None:
        header["recipe"] = {"net": "average", "groups": groups}
    save_file({**own, **(tensors or {})}, path, metadata("model", header))
    seal(path)


def with_first(**change: Any) -> list[Any]:
    first, second = average().recipe["groups"]
    return [[{**first[0], **change}, first[1]], second]


FILES: dict[str, tuple[Any, str]] = {
    **{name: (groups, "has the recipe of no net") for name, (groups, _) in HOSTILE.items()},
    "wide": (
        with_first(hidden=[2**31 - 1]),
        r"groups.0.0.network.1.bias is .*\(2147483647,\) here",
    ),
    "deep": (with_first(hidden=[1] * 1000), "1,002 layers have"),
    "all deep": ([[{**ONE, "hidden": [1] * 20}] * 64], "1,280 layers have"),
    "mean": (with_first(mean_shape=[7, 2]), r"recipe of no net"),
    "fewer": ([[ONE, ONE]], "has the weights of another net"),
    "more": ([[ONE] * 4], "has the weights of another net"),
    "all of 2 classes": ([[{**ONE, "classes": 2}] * 3], r"logits of shape \(2,\) for 3 classes"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_hostile_file_is_refused_before_memory_is_taken(case, tmp_path):
    groups, message = FILES[case]
    saved(path := tmp_path / "m")
    resaved(path, groups=groups)
    with pytest.raises(RunError, match=f"{path} .*{message}"):
        Model.load(path)


@pytest.mark.parametrize("name", ["slope", "bias", "groups.1.0.mean"])
def test_a_calibration_is_finite_and_of_its_shape(name, tmp_path):
    saved(path := tmp_path / "m")
    tensor = load_file(path)[name]
    for damaged in (tensor * torch.nan, tensor.double(), torch.zeros(7)):
        resaved(path, tensors={name: damaged})
        with pytest.raises(RunError, match=f"{path} .*{name}"):
            Model.load(path)
