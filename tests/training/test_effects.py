"""Effects of columns: what they are, on which bags, at what cost, and that nothing else changes."""

import logging

import numpy as np
import pandas as pd
import pytest
import torch

from apportion import TrainConfig, fit
from apportion.auto.train import train_table
from apportion.bags.bags import Bags
from apportion.data.encoding import encode, learn_columns
from apportion.engine.device import own_threads
from apportion.nets.build import build_net
from apportion.runs.evaluation import MOST_COLUMNS, read_evaluations
from apportion.runs.run import Run
from apportion.training import effects as module
from apportion.training.effects import columns_of_parts, measure_effects, with_effects
from apportion.training.evaluate import evaluate
from tests.auto.tables import few_steps


def frame_of(n_bags=40, size=25, seed=0):
    """Age decides, in bags that differ in it; shoe tells nothing; job has gaps and tells some."""
    rng = np.random.default_rng(seed)
    centre = np.repeat(rng.normal(size=n_bags), size)
    age = centre + rng.normal(size=n_bags * size)
    gone = rng.random(len(age)) < np.where(age > 0, 0.5, 0.05)
    frame = pd.DataFrame(
        {
            "shoe": rng.normal(size=len(age)),
            "pay": np.where(gone, np.nan, rng.normal(size=len(age))),
            "job": np.where(rng.random(len(age)) < 0.5, "cook", "nurse"),
            "age": age,
        }
    )
    return frame, np.repeat(np.arange(n_bags), size), age


def bags_of(n_bags=40, size=25, seed=0):
    frame, ward, age = frame_of(n_bags, size, seed)
    columns = learn_columns(frame)
    bags = Bags.from_rows(encode(columns, frame), ward, truth=(age > 0).astype(int))
    return bags.with_rows(bags.x, columns), columns


def by_age(parts):
    """The confidences of a model that knows that age decides, and looks at the gaps of pay."""
    numbers = parts[0]
    score = 3 * numbers[:, 2] + 0.5 * numbers[:, 3]
    yes = 1 / (1 + np.exp(-score))
    return np.stack([1 - yes, yes], axis=1)


def test_every_column_has_its_places_and_its_gaps_with_it():
    bags, columns = bags_of()
    assert columns.numeric == ("shoe", "pay", "age")
    assert columns_of_parts(bags) == {
        "shoe": [(0, 0)],
        "pay": [(0, 1), (0, 3)],
        "job": [(1, 0)],
        "age": [(0, 2)],
    }


def test_what_decides_has_the_largest_effect_and_what_is_not_used_none_at_all():
    bags, _ = bags_of()
    found = measure_effects(bags, columns_of_parts(bags), by_age, seed=0)
    assert found.names == ["shoe", "pay", "job", "age"]
    increase = dict(zip(found.names, found.increase.tolist(), strict=True))
    assert increase["shoe"] == increase["job"] == [0, 0, 0]
    assert increase["age"][1] > 0.05
    assert 0 < increase["pay"][0] < increase["age"][0] / 3  # by its gaps alone
    assert found.measured.tolist() == [40, 1000]


def test_the_effect_is_that_of_shuffles_done_by_hand():
    """The mean of many shuffles, each a loop over the bags."""
    bags, _ = bags_of(n_bags=12, size=30)
    given = bags.proportions

    def error(age):
        total = 0.0
        for bag in range(12):
            rows = bags.index[bags.offsets[bag] : bags.offsets[bag + 1]]
            parts = [part[rows].copy() for part in bags.parts]
            parts[0][:, 2] = age[rows]
            total += np.abs(given[bag] - by_age(parts).mean(axis=0)).sum() / 2 / 12
        return total

    age, rng = bags.parts[0][:, 2], np.random.default_rng(5)
    wanted = np.mean([error(rng.permutation(age)) for _ in range(60)]) - error(age)
    found = measure_effects(bags, {"age": [(0, 2)]}, by_age, seed=1)
    assert found.increase[0, 0] == pytest.approx(wanted, rel=0.15)


def test_nothing_is_changed_and_no_random_numbers_are_used_up():
    bags, _ = bags_of()
    before = [part.copy() for part in bags.parts]
    states = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    one, two = (measure_effects(bags, columns_of_parts(bags), by_age, seed=3) for _ in range(2))
    for part, old in zip(bags.parts, before, strict=True):
        np.testing.assert_array_equal(part, old)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert str(np.random.get_state()) == states[1]  # noqa: NPY002
    np.testing.assert_array_equal(one.increase, two.increase)


@pytest.mark.parametrize(("n_bags", "size", "most"), [(400, 5, 9000), (40, 500, 9000), (3, 9, 1)])
def test_no_more_confidences_are_computed_than_allowed(n_bags, size, most):
    bags, _ = bags_of(n_bags, size)
    asked = []

    def counted(parts):
        asked.append(len(parts[0]))
        return by_age(parts)

    found = measure_effects(bags, columns_of_parts(bags), counted, 0, most)
    rows = min(max(most // (module.REPEATS * 4), module.FEWEST_ROWS), n_bags * size)
    assert set(asked) == {int(found.measured[1])}
    assert 0.8 * rows <= found.measured[1] <= rows
    assert found.measured[0] >= min(n_bags, module.DRAWN_BAGS)
    assert sum(asked[1:]) <= max(most, module.REPEATS * 4 * module.FEWEST_ROWS)


def chosen(n_train, **held_out):
    sets = {
        "train": bags_of(n_train)[0],
        **{of: bags_of(n, seed=7)[0] for of, n in held_out.items()},
    }
    known = {of: evaluate(own, by_age(tuple(p[own.index] for p in own.parts)))
             for of, own in sets.items()}  # fmt: skip
    found = with_effects(known, sets, by_age, 0)
    return [of for of, own in found.items() if own.effects is not None]


def test_held_out_bags_are_taken_if_there_are_enough():
    assert chosen(40, valid=30) == ["valid"]
    assert chosen(40, valid=30, test=30) == ["test"]
    assert chosen(40, valid=29) == ["train"]
    assert chosen(40) == ["train"]
    assert chosen(4) == []


@pytest.mark.parametrize(
    "x",
    [np.zeros((40, MOST_COLUMNS + 1)), np.zeros((40, 3, 4, 4)), np.zeros((40, 3), np.int64),
     np.zeros((40, 2, 9))],
)  # fmt: skip
def test_what_is_no_table_or_too_wide_is_left_as_it_is(x, caplog):
    bags = Bags.from_rows(x, np.arange(40) // 4, truth=[0, 1] * 20)
    known = {"train": evaluate(bags, np.full((40, 2), 0.5))}
    with caplog.at_level(logging.INFO, "apportion"):
        found = with_effects(known, {"train": bags}, lambda parts: pytest.fail("asked"), 0)
    assert found == known
    assert ("there are 201" in caplog.text) == (x.shape[1] > MOST_COLUMNS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_are_tables_too(dtype):
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    bags = Bags.from_rows(x, np.arange(200) // 10, truth=(x[:, 0] > 0).long().numpy())
    before = x.clone()

    def said(parts):
        yes = 1 / (1 + np.exp(-3 * parts[0][:, 0]))
        return np.stack([1 - yes, yes], axis=1)

    found = measure_effects(bags, columns_of_parts(bags), said, 0)
    assert found.names == ["x1", "x2"]
    assert found.increase[1].tolist() == [0, 0, 0]
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", ["f8", ">f4", "f2"])
def test_numbers_of_every_kind_are_columns(dtype):
    bags = Bags.from_rows(np.zeros((6, 2), dtype), [0, 1] * 3, truth=[0, 1] * 3)
    assert list(columns_of_parts(bags)) == ["x1", "x2"]


def test_confidences_that_are_not_finite_are_told_and_cost_no_run(caplog):
    from apportion.errors import DataError

    bags, _ = bags_of()
    known = {"train": evaluate(bags, np.full((bags.n_instances, 2), 0.5))}

    def broken(parts):
        raise DataError("the confidences of 3 rows are not finite.", "Replace them.")

    with caplog.at_level(logging.WARNING, "apportion"):
        assert with_effects(known, {"train": bags}, broken, 0) == known
    assert "3 rows are not finite" in caplog.text


def test_a_run_of_fit_and_one_of_auto_keep_them(tmp_path, monkeypatch):
    bags, _ = bags_of(20, 20)
    with own_threads(1):
        config = TrainConfig(epochs=15, learning_rate=0.01, device="cpu", threads=1)
        net = build_net("mlp", bags, seed=0)
        fit(net, bags, method="count-likelihood", config=config, run=tmp_path / "fit")
        few_steps(20, monkeypatch.setattr)
        train_table(bags, run=tmp_path / "auto", device="cpu", threads=1, progress=False)
    for name in ("fit", "auto"):
        effects = read_evaluations(Run(tmp_path / name))[1]["train"].effects
        assert effects is not None
        assert effects.names == ["shoe", "pay", "job", "age"]
        assert effects.names[effects.increase[:, 0].argmax()] == "age"
