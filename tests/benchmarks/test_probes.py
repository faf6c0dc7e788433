import math
from typing import Any

import pytest

from benchmarks._probes import PROBES, BareLoop, bags_of, table

SMALL: dict[str, dict[str, Any]] = {
    "one_row": {"calls": 2, "many": 30, "nets": ["mlp", "linear"]},
    "small_fit": {"n": 200, "columns": 3, "epochs": 2},
    "small_steps": {"n": 200, "columns": 3, "epochs": 5, "batch_sizes": [32, 64]},
    "solver": {"cases": [[8, 2], [300, 3]], "seconds_per_case": 0},
    "first_assign": {"n": 50, "classes": 3},
    "first_fit": {"n": 60, "columns": 3, "classes": 2, "size": 10},
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.filterwarnings("ignore")
def test_a_probe_returns_positive_numbers_with_units(name, monkeypatch):
    monkeypatch.setenv("BEGAN", "0")
    values = PROBES[name](**SMALL[name])
    assert values
    for value, unit in values.values():
        assert 0 < value < math.inf
        assert unit in ("s", "ms", "×")


def test_tables_have_whole_bags_and_all_classes():
    x, bag, truth = table(100, 4, 3, 10)
    assert x.shape == (100, 4)
    assert [int((bag == b).sum()) for b in range(10)] == [10] * 10
    assert set(truth) == {0, 1, 2}


def test_the_bare_loop_takes_the_steps_of_an_epoch_and_learns():
    bags = bags_of(200, 4, 2, 20)
    bare = BareLoop(bags, 32)
    before = [value.detach().clone() for value in bare.net.parameters()]
    assert bare.seconds(2, 1) > 0
    assert all((a != b).any() for a, b in zip(before, bare.net.parameters(), strict=True))
    steps = {int(state["step"]) for state in bare.optimizer.state.values()}
    assert steps == {2 * math.ceil(200 / 32)}
