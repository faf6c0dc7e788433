"""Which share of the bags is held out: a tenth, unless these are few."""

import pytest

from apportion.errors import ConfigError
from apportion.plan.held_out import held_out_share


@pytest.mark.parametrize(
    ("n_bags", "share"), [(1, 0.0), (44, 0.0), (45, 0.0), (46, 0.1), (500, 0.1)]
)
def test_few_bags_are_not_held_out_unless_it_is_asked_for(n_bags, share):
    assert held_out_share(n_bags).value == share
    assert f"{n_bags} bag" in held_out_share(n_bags).reason
    assert held_out_share(n_bags, 0.2).value == 0.2
    assert held_out_share(n_bags, 0).value == 0


@pytest.mark.parametrize("asked", [1, -0.1, 1.5, "0.1", True, float("nan")])
def test_a_share_must_be_one(asked):
    with pytest.raises(ConfigError, match="must be a number from 0 to below 1; got"):
        held_out_share(100, asked)
