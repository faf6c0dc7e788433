"""Recipes: a net is made again without the data, from what JSON keeps."""

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from apportion.errors import ConfigError
from apportion.nets.build import build_net, from_recipe
from apportion.nets.normalized import Normalized
from tests.nets.small_data import CODES, NUMBERS, bags_of, padded

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 2, 9, 9), dtype=np.uint8)
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "mlp": ("mlp", NUMBERS, {"hidden": (7, np.int64(5))}),
    "mlp of images": ("mlp", IMAGES, {"hidden": np.array([6])}),
    "mlp of codes": ("mlp", (NUMBERS, CODES), {"categories": (4, 5)}),
    "mlp of codes alone": ("mlp", (NUMBERS[:, :0], CODES), {"hidden": []}),
    "mlp with skip": ("mlp", (NUMBERS, CODES), {"hidden": [4], "skip": True}),
    "conv1d": ("conv1d", padded()[0], {}),
    "masked conv1d": ("conv1d", (padded()[0][:9], padded()[1][:9]), {}),
    "resnet18": ("resnet18", IMAGES, {}),
    "resnet18 of small images": ("resnet18", IMAGES, {"stem": "cifar"}),
    "resnet18 with mirror": ("resnet18", IMAGES, {"mirror": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_net_is_made_again_without_the_data(case):
    name, x, options = CASES[case]
    model = build_net(name, bags_of(x), seed=3, **options).eval()
    parts = tuple(map(torch.from_numpy, x if isinstance(x, tuple) else (x,)))
    saved = json.dumps(model.recipe)
    again = from_recipe(json.loads(saved)).eval()
    assert json.dumps(again.recipe) == saved
    assert again.load_state_dict(model.state_dict(), strict=True)
    copies = [again, copy.deepcopy(model), pickle.loads(pickle.dumps(model))]  # noqa: S301
    for other in copies:
        assert other.recipe == model.recipe
        assert torch.equal(other(*parts), model(*parts))


def test_a_recipe_says_all_that_was_chosen():
    mixed = build_net("mlp", bags_of((NUMBERS, CODES)))
    assert mixed.recipe == {
        "net": "mlp",
        "features": 2,
        "classes": 3,
        "hidden": [256],
        "categories": [3, 5],
        "skip": False,
        "mean_shape": [2],
        "std_shape": [2],
    }
    image = build_net("resnet18", bags_of(IMAGES))
    assert image.recipe == {
        "net": "resnet18",
        "classes": 3,
        "channels": 2,
        "stem": "imagenet",
        "mirror": False,
        "mean_shape": [2, 1, 1],
        "std_shape": [2, 1, 1],
    }
    signal = build_net("conv1d", bags_of(padded(), range(9)))
    assert signal.recipe is not None
    assert signal.recipe["masked"] is True
    assert Normalized(nn.Identity(), 0.0, 1.0).recipe is None


def test_the_callers_random_state_stays():
    recipe = build_net("mlp", bags_of(NUMBERS)).recipe
    assert recipe is not None
    before = torch.get_rng_state()
    from_recipe(recipe)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"net": "mpl"}, "^there is no net 'mpl'.\n  Did you mean 'mlp'"),
        ({"net": 3}, "is no recipe of a net.\n  Pass the unchanged recipe"),
        ({"hidden": None}, "^hidden is None in the recipe of mlp"),
        ({"hidden": [8, 0]}, r"^hidden is \[8, 0\] in"),
        ({"hidden": "8"}, "^hidden is '8' in"),
        ({"classes": True}, "^classes is True in"),
        ({"classes": 2.0}, r"^classes is 2\.0 in"),
        ({"features": -1}, "^features is -1 in"),
        ({"categories": [2, 2**40]}, r"^categories is \[2, 1099511627776\] in"),
        ({"skip": 1}, "^skip is 1 in"),
        ({"mean_shape": 2}, "^mean_shape is 2 in"),
        ({"hiden": [8]}, "^the recipe of mlp has an entry 'hiden'.\n  Did you mean 'hidden'"),
    ],
)
def test_what_is_no_recipe_is_refused(change, message):
    recipe = build_net("mlp", bags_of(NUMBERS)).recipe
    assert recipe is not None
    with pytest.raises(ConfigError, match=message):
        from_recipe({**recipe, **change})


def test_a_recipe_must_be_whole():
    recipe = build_net("mlp", bags_of(NUMBERS)).recipe
    assert recipe is not None
    for key in recipe:
        rest = {name: value for name, value in recipe.items() if name != key}
        with pytest.raises(ConfigError, match="no recipe of a net" if key == "net" else repr(key)):
            from_recipe(rest)
    others: list[Any] = [None, [], "mlp"]
    for other in others:
        with pytest.raises(ConfigError, match="is no recipe of a net"):
            from_recipe(other)
