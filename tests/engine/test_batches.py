"""Batches: every instance exactly once, bags whole, rows as they are stored."""

import gc
import itertools
import logging
import os
import weakref
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine import batches
from apportion.engine.batches import Instances, Shelf, Step, place, plan
from apportion.engine.distributed import Ranks
from apportion.engine.feed import Resident, Streamed
from apportion.errors import BagError
from apportion.methods.registry import METHODS
from apportion.metrics import bag_means
from apportion.randomness import Purpose, generator
from apportion.testing import Training, same, toy_bags, toy_net

CPU = torch.device("cpu")
UNITS: list[Any] = ["instances", "rows", "bags"]
SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=25)
LIMITS = st.integers(1, 40)
SEEDS = st.integers(0, 2**63 - 1)


def bags_of(sizes: Any, x: Any = None) -> Bags:
    """Bags of some sizes: the row of a position is not the position."""
    n, rng = sum(sizes), np.random.default_rng(0)
    x = np.arange(n, dtype=np.float32)[:, None] if x is None else x
    rows = rng.permutation(n)
    ends = np.cumsum([0, *sizes])
    members = {f"bag {i}": rows[a:b] for i, (a, b) in enumerate(itertools.pairwise(ends))}
    shares = rng.dirichlet(np.ones(3), len(sizes))
    return Bags.from_members(x, members, dict(zip(members, shares, strict=True)))


def on_cpu(bags: Bags) -> Instances:
    return place((bags, None, None), CPU)[0]


def streamed(bags: Bags) -> Instances:
    instances = place((bags, None, None), CPU, limit=0)[0]
    assert isinstance(instances.feed, Streamed)
    return instances


def rows_of(instances: Instances, rows: list[int]) -> Any:
    (found,) = instances.feed.batches(np.array(rows), [(0, len(rows))])
    return found


def steps_of(bags: Bags, unit: Any, epoch: int = 1, **options: Any) -> list[Step]:
    return list(on_cpu(bags).steps(unit, TrainConfig(**options), epoch))


def positions(steps: list[Step]) -> list[list[int]]:
    return [step.position.tolist() for step in steps]


# ------------------------------------------------------------------------------------------- steps


@pytest.mark.parametrize("unit", UNITS)
@given(sizes=SIZES, batch_size=LIMITS, seed=SEEDS, bags_per_step=st.none() | st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_an_epoch_uses_every_instance_exactly_once(unit, sizes, batch_size, seed, bags_per_step):
    options = {"batch_size": batch_size, "seed": seed, "bags_per_step": bags_per_step}
    for epoch in (1, 2):
        steps = positions(steps_of(bags_of(sizes), unit, epoch, **options))
        assert sorted(itertools.chain(*steps)) == list(range(sum(sizes)))
        assert all(len(step) > 1 for step in steps) or sum(sizes) == 1


@pytest.mark.parametrize("most", [2, 3, 100])
@given(sizes=SIZES, world=st.integers(1, 5), batch_size=LIMITS, seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_ranks_that_shuffle_runs_of_their_own_read_no_other_rows(
    most, sizes, world, batch_size, seed
):
    options: Any = {"batch_size": batch_size, "seed": seed, "instances_per_pass": most}
    bags, config = bags_of(sizes), TrainConfig(shuffle="shard", **options)
    taken: list[int] = []
    shapes: list[list[int]] = []
    for rank in range(world):
        instances, own, read = on_cpu(bags), [], []
        instances.ranks = ranks = Ranks(rank, world)
        shapes.append([])
        for step in instances.steps("instances", config, 1):
            shapes[-1].append(len(step.position))
            for piece, (x,) in instances.pieces(step, most * world):
                own += step.position[ranks.share(piece)][: ranks.counted(piece)].tolist()
                read += x.ravel().tolist()
        assert sorted(own) == list(range(min(own, default=0), max(own, default=-1) + 1))
        if own:
            assert set(read) == set(bags.index[own])
        taken += own
    assert sorted(taken) == list(range(sum(sizes)))
    assert all(shape == shapes[0] for shape in shapes)


def test_one_process_shuffles_all():
    bags = bags_of([3, 8, 5])
    alone = (steps_of(bags, "instances", batch_size=4, shuffle=how) for how in ("all", "shard"))
    assert positions(next(alone)) == positions(next(alone))


def test_the_order_is_that_of_a_permutation_of_wider_numbers():
    (step,) = steps_of(bags_of([50, 50]), "instances", epoch=3, batch_size=100, seed=5)
    known = generator(5, Purpose.SHUFFLE, 3).permutation(100)
    assert step.position.tolist() == known.tolist()


@pytest.mark.parametrize("most", [2, 3, 100])
@given(sizes=SIZES, n=st.integers(1, 60), batch_size=LIMITS, seed=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_steps_of_rows_take_every_row_of_a_bag_exactly_once(most, sizes, n, batch_size, seed):
    """Rows may stand in several bags, and some in none: those are never read."""
    rng = np.random.default_rng(seed)
    members = [rng.permutation(n)[:size] for size in sizes]
    bags = Bags.from_members(np.arange(10.0, 10 + n), members, [[0.5, 0.5]] * len(sizes))
    instances, config = on_cpu(bags), TrainConfig(batch_size=batch_size, instances_per_pass=most)
    rows: list[float] = []
    for step in instances.steps("rows", config, 1):
        assert step.unit == "rows"
        assert (step.proportions, step.bag, step.weight) == (None, None, None)
        assert (step.x is None) == (len(step.position) > most)
        for piece, (x,) in instances.pieces(step, most):
            assert instances.distinct[step.position[piece].numpy()].tolist() == (x - 10).tolist()
            rows += (x - 10).tolist()
    assert sorted(rows) == sorted(set(np.concatenate(members).tolist()))


@given(st.integers(1, 300), LIMITS)
@settings(max_examples=150, deadline=None)
def test_steps_of_instances_are_full_but_for_the_last(n, batch_size):
    sizes = [len(s) for s in positions(steps_of(bags_of([n]), "instances", batch_size=batch_size))]
    full, left = divmod(n, batch_size)
    wanted = [batch_size] * full + [left] * (left > 0)
    if left == 1 and full:  # a lone last instance joins its neighbour
        wanted[-2:] = [batch_size + 1]
    if batch_size > 1:
        assert sizes == wanted
    else:  # no step is of one instance, whatever is asked for
        assert sizes == [2] * (n // 2 - n % 2) + [3] * (n % 2) if n > 1 else sizes == [1]


@given(SIZES, LIMITS, st.none() | st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_bags_stay_whole_and_fill_steps_up_to_the_limit(sizes, batch_size, bags_per_step):
    bags = bags_of(sizes)
    home = np.repeat(np.arange(len(sizes)), sizes)
    steps = steps_of(bags, "bags", batch_size=batch_size, bags_per_step=bags_per_step)
    taken = []
    for step in steps:
        mine = home[step.position.numpy()]
        order = list(dict.fromkeys(mine.tolist()))
        for i in order:  # all of the bag, in its own order
            whole = np.flatnonzero(home == i).tolist()
            assert step.position.numpy()[mine == i].tolist() == whole
        assert step.bag is not None
        assert step.proportions is not None
        assert step.weight is not None
        assert [order[b] for b in step.bag.tolist()] == mine.tolist()
        np.testing.assert_allclose(step.proportions.numpy(), bags.proportions[order], atol=1e-7)
        np.testing.assert_allclose(step.weight.numpy(), 1 / np.array(sizes)[mine], rtol=1e-6)
        taken.append([sizes[i] for i in order])
    assert [1] not in taken or sizes == [1]
    for here, after in itertools.pairwise([*taken, []]):
        lone = min(here) == 1  # such a bag may have joined a step that was full
        if bags_per_step is None:
            assert sum(here) <= batch_size or len(here) == 1 or lone
            assert not after or sum(here) + after[0] > batch_size or lone or after[0] == 1
        else:
            assert len(here) == bags_per_step or lone or not after


@pytest.mark.parametrize("unit", UNITS)
def test_the_order_follows_from_seed_and_epoch(unit):
    bags = bags_of([4, 9, 2, 7, 5, 1, 8, 6])
    keys = [(0, 1), (0, 2), (1, 1), (1, 2)]
    found, again = (
        [positions(steps_of(bags, unit, t, seed=seed, batch_size=9)) for seed, t in keys]
        for _ in range(2)
    )
    assert found == again
    orders = [tuple(itertools.chain(*steps)) for steps in found]
    assert len(set(orders)) == 4
    assert tuple(range(42)) not in orders


def test_instances_are_shuffled_across_bags():
    steps = positions(steps_of(bags_of([50, 50]), "instances", batch_size=20))
    assert all(0 < sum(p < 50 for p in step) < 20 for step in steps)


def test_every_instance_is_as_likely_to_come_first():
    instances = on_cpu(bags_of([2, 3]))
    firsts = [
        int(next(instances.steps("instances", TrainConfig(batch_size=2), epoch)).position[0])
        for epoch in range(1, 1001)
    ]
    assert all(140 < firsts.count(i) < 260 for i in range(5))


@pytest.mark.parametrize("unit", UNITS)
def test_progress_rises_evenly_from_0_over_all_epochs(unit):
    bags = bags_of([5] * 8)
    progress = [
        step.progress
        for epoch in (1, 2, 3)
        for step in steps_of(bags, unit, epoch, epochs=3, batch_size=10)
    ]
    assert progress == pytest.approx([s / 12 for s in range(12)])


# ----------------------------------------------------------------------------- the rows of a step

REACH: list[Any] = [on_cpu, streamed]


@pytest.mark.parametrize("reach", REACH)
@pytest.mark.parametrize("unit", UNITS)
@given(sizes=SIZES, batch_size=LIMITS, most=LIMITS, epoch=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_a_step_of_one_pass_has_its_rows_and_a_larger_one_has_none(
    unit, reach, sizes, batch_size, most, epoch
):
    bags = bags_of(sizes, (np.arange(2 * sum(sizes)).reshape(-1, 2), np.arange(sum(sizes)) / 7))
    config = TrainConfig(batch_size=batch_size, instances_per_pass=most, epochs=3)
    for step in reach(bags).steps(unit, config, epoch):
        if len(step.position) > most:
            assert step.x is None
        else:
            of = np.unique(bags.index) if unit == "rows" else bags.index
            rows = of[step.position.numpy()]
            assert step.x is not None
            assert [part.dtype for part in step.x] == [torch.int64, torch.float32]
            assert step.x[0].tolist() == bags.x[0][rows].tolist()
            assert step.x[1].tolist() == bags.x[1][rows].astype(np.float32).tolist()


@pytest.mark.parametrize("reach", REACH)
@given(n=st.integers(1, 60), most=LIMITS, whole=st.booleans())
@settings(max_examples=60, deadline=None)
def test_pieces_are_the_rows_of_the_step_whether_it_has_them_or_not(reach, n, most, whole):
    bags = bags_of([n], (np.arange(3 * n).reshape(n, 3), np.arange(n) + 0.5))
    instances = reach(bags)
    limit = n if whole else max(n - 1, 1)
    (step,) = instances.steps("instances", TrainConfig(batch_size=n, instances_per_pass=limit), 1)
    assert (step.x is not None) == (n <= limit)
    rows = bags.index[step.position.numpy()]
    taken = []
    for piece, x in instances.pieces(step, most):
        assert x[0].tolist() == bags.x[0][rows[piece]].tolist()
        assert x[1].tolist() == bags.x[1][rows[piece]].tolist()
        taken.append(len(x[0]))
    assert sum(taken) == n
    assert max(taken) - min(taken) <= 1
    assert max(taken) <= max(most, 3)  # rather three at once than one alone
    assert min(taken) > 1 or most == 1 or n == 1


@pytest.mark.parametrize("unit", UNITS)
@given(sizes=SIZES, batch_size=LIMITS, bags_per_step=st.none() | st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_a_step_is_typical_if_a_quarter_of_the_epoch_has_its_shape(
    unit, sizes, batch_size, bags_per_step
):
    options = {"batch_size": batch_size, "bags_per_step": bags_per_step}
    steps = steps_of(bags_of(sizes), unit, **options)
    shapes = [(len(s.position), 0 if s.proportions is None else len(s.proportions)) for s in steps]
    assert [step.shape for step in steps] == shapes
    often = Counter(shapes)
    assert [s.typical for s in steps] == [often[shape] / len(steps) >= 0.25 for shape in shapes]


def test_a_rest_is_not_typical():
    steps = steps_of(bags_of([43]), "instances", batch_size=8)
    assert [step.typical for step in steps] == [True] * 5 + [False]


# -------------------------------------------------------------------------------------------- plan


@given(SIZES, LIMITS, st.none() | st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_a_plan_covers_all_units_in_order(sizes, batch_size, most):
    cuts = plan(np.array(sizes), batch_size, most).tolist()
    assert cuts[0] == 0
    assert cuts[-1] == len(sizes)
    assert all(a < b for a, b in itertools.pairwise(cuts))
    taken = [sum(sizes[a:b]) for a, b in itertools.pairwise(cuts)]
    assert 1 not in taken or sum(sizes) == 1


@pytest.mark.parametrize(
    ("sizes", "batch_size", "most", "cuts"),
    [
        ([4, 4, 4], 8, None, [0, 2, 3]),  # up to the limit, and not beyond it
        ([4, 4, 4], 7, None, [0, 1, 2, 3]),
        ([100, 2, 2], 8, None, [0, 1, 3]),  # one bag however large
        ([1, 9, 9], 9, None, [0, 2, 3]),  # a lone first one joins the next
        ([9, 9, 1], 9, None, [0, 1, 3]),  # a lone last one the one before
        ([9, 1, 9], 9, None, [0, 1, 3]),
        ([1, 9, 1], 9, None, [0, 3]),
        ([1, 1, 1, 1], 1, None, [0, 2, 4]),
        ([1, 1, 1], 1, None, [0, 3]),
        ([1], 9, None, [0, 1]),
        ([30, 40, 50, 60, 70], 1, 2, [0, 2, 4, 5]),  # so many bags, however large
        ([3, 1, 1, 5], 1, 1, [0, 1, 3, 4]),
    ],
)
def test_plans(sizes, batch_size, most, cuts):
    assert plan(np.array(sizes), batch_size, most).tolist() == cuts


# ------------------------------------------------------------------------------------- confidences


class Counting(nn.Module):
    """Counts the rows that it sees; in training mode it would drop some numbers."""

    def __init__(self, features: int = 2) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            self.linear = nn.Linear(features, 3)
        self.dropout = nn.Dropout(0.5)
        self.batches: list[int] = []
        self.seen: list[float] = []

    def forward(self, x: Any) -> Any:
        assert not self.training
        assert not torch.is_grad_enabled()
        self.batches.append(len(x))
        self.seen += x[:, 0].tolist()
        return self.linear(self.dropout(x))


def overlapping() -> Bags:
    """30 rows, of which 24 stand in bags, some of them in five."""
    rng = np.random.default_rng(1)
    members = {i: rng.choice(24, size, replace=False) for i, size in enumerate([20, 3, 9, 1, 17])}
    members[5] = np.arange(24)
    x = rng.normal(size=(30, 2)).astype(np.float32)
    return Bags.from_members(x, members, {i: [0.2, 0.3, 0.5] for i in members})


@pytest.mark.parametrize("most", [1, 5, 24, 1000])
def test_confidences_are_computed_once_for_each_distinct_row(most):
    bags, model = overlapping(), Counting()
    found = on_cpu(bags).confidence(model, torch.float32, most)
    assert sorted(model.seen) == sorted(bags.x[:24, 0].tolist())
    assert max(model.batches) <= most
    with torch.no_grad():
        x = torch.from_numpy(bags.x[bags.index])
        wanted = model.linear(x).softmax(dim=1)
    assert found.shape == (bags.n_instances, 3)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_in_the_mode_that_it_was_in(training):
    model = Counting().train(training)
    on_cpu(overlapping()).confidence(model, torch.float32, 10)
    assert model.training is model.dropout.training is training


def test_confidences_of_mixed_precision_are_float32_and_near():
    bags, model = overlapping(), Counting()
    exact, mixed = (
        on_cpu(bags).confidence(model, precision, 10)
        for precision in (torch.float32, torch.bfloat16)
    )
    assert mixed.dtype == torch.float32
    assert not torch.equal(exact, mixed)
    torch.testing.assert_close(exact, mixed, atol=0.02, rtol=0.02)
    torch.testing.assert_close(mixed.sum(dim=1), torch.ones(bags.n_instances))


def test_bag_means_on_the_device_are_those_of_arrays():
    bags = toy_bags()
    confidence = np.random.default_rng(0).dirichlet(np.ones(3), bags.n_instances)
    found = place((bags, None, None), CPU)[0].bag_means(torch.from_numpy(confidence).float())
    assert found.dtype is torch.float64
    np.testing.assert_allclose(found, bag_means(confidence, bags.offsets), rtol=1e-6)


def test_bag_means_are_summed_in_float64():
    """In float32 the mean of a large bag would be off in the fifth digit, and select by noise."""
    n = 300_000
    bags = Bags.from_rows(np.zeros((n, 1), np.float32), np.zeros(n, int), [[0.5, 0.5]])
    found = place((bags, None, None), CPU)[0].bag_means(torch.full((n, 2), 0.1))
    np.testing.assert_allclose(found, [[np.float64(np.float32(0.1))] * 2], rtol=1e-12)


# -------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize(
    ("stored", "given"),
    [
        (np.float64, torch.float32),
        (np.float32, torch.float32),
        (np.uint8, torch.uint8),
        (np.int64, torch.int64),
        (np.int32, torch.int32),
        (np.bool_, torch.bool),
    ],
)
def test_rows_come_as_they_are_stored_but_for_float64(stored, given):
    x = np.arange(12).reshape(6, 2).astype(stored)
    instances = on_cpu(bags_of([2, 4], x))
    (rows,) = rows_of(instances, [5, 0, 5])
    assert rows.dtype == given
    assert rows.tolist() == x[[5, 0, 5]].tolist()
    assert instances.feed.parts[0].dtype == torch.from_numpy(x).dtype  # on the device as stored


def test_every_part_of_the_instances_is_gathered():
    codes = np.arange(6)
    instances = on_cpu(bags_of([2, 4], (np.eye(6), codes)))
    numbers, of_category = rows_of(instances, [4, 1])
    assert numbers.dtype == torch.float32
    assert numbers.tolist() == np.eye(6)[[4, 1]].tolist()
    assert of_category.tolist() == [4, 1]


def test_arrays_that_bags_share_are_placed_once():
    train = bags_of([2, 4], (np.eye(6), np.arange(6)))
    valid = bags_of([3, 3], (train.x[0], np.arange(6)))
    one, two, three = place((train, valid, replace(train)), CPU)
    assert two is not None
    assert three is not None
    assert one.feed.parts[0] is two.feed.parts[0]
    assert one.feed.parts[1] is not two.feed.parts[1]
    assert all(a is b for a, b in zip(one.feed.parts, three.feed.parts, strict=True))


def test_there_need_be_no_validation_and_no_test_bags():
    assert place((bags_of([2, 4]), None, None), CPU)[1:] == (None, None)


def test_instances_do_not_know_the_truth():
    bags = replace(bags_of([2, 4]), truth=np.zeros(6, np.int64))
    assert on_cpu(bags).bags.truth is None


def test_read_only_arrays_are_taken_and_left_alone():
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    x.flags.writeable = False
    (rows,) = rows_of(on_cpu(bags_of([2, 4], x)), [3])
    rows += 1
    assert x[3].tolist() == [6, 7]


def test_memory_mapped_arrays_are_taken_without_a_copy(tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    np.save(tmp_path / "x.npy", x)
    for mode in ("r", "r+", "c"):
        mapped = np.load(tmp_path / "x.npy", mmap_mode=mode)
        instances = on_cpu(bags_of([2, 4], mapped))
        assert rows_of(instances, [2, 5])[0].tolist() == x[[2, 5]].tolist()
        assert instances.feed.parts[0].data_ptr() == mapped.ctypes.data


@pytest.mark.parametrize("change", ["transposed", "reversed", "strided"])
def test_arrays_of_any_layout_are_taken(change):
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    views = {"transposed": np.asfortranarray(x), "reversed": x[::-1], "strided": x[:, ::2]}
    (rows,) = rows_of(on_cpu(bags_of([2, 4], views[change])), [1, 4])
    assert rows.tolist() == views[change][[1, 4]].tolist()


def test_arrays_of_the_other_byte_order_are_taken():
    x = np.arange(12).reshape(6, 2).astype(">f4")
    (rows,) = rows_of(on_cpu(bags_of([2, 4], x)), [3])
    assert rows.tolist() == [[6, 7]]


def test_tensors_are_taken_and_no_gradient_leads_to_them():
    x = torch.arange(12.0).reshape(6, 2).requires_grad_()
    (rows,) = rows_of(on_cpu(bags_of([2, 4], x)), [3])
    assert rows.tolist() == [[6, 7]]
    assert not rows.requires_grad


@pytest.mark.parametrize(
    "x",
    [
        np.array([["a"], ["b"], ["c"]] * 2, object),
        np.array([["a"], ["b"], ["c"]] * 2),
        np.zeros((6, 1), complex),
        np.zeros((6, 1), "datetime64[D]"),
    ],
    ids=["object", "text", "complex", "dates"],
)
def test_arrays_that_no_network_can_take_are_refused(x):
    with pytest.raises(BagError) as caught:
        on_cpu(bags_of([2, 4], x))
    assert f"x is of type {x.dtype}" in str(caught.value)
    assert "Encode it as numbers" in str(caught.value)


# ------------------------------------------------------------------------------- kept or streamed


def wide(width: int) -> Any:
    """An array of 4 rows, of 32 times so many bytes."""
    return np.zeros((4, width))


def bags_over(*parts: Any) -> Bags:
    members = {"a": [0, 1], "b": [2, 3]}
    return Bags.from_members(parts, members, {"a": [0.5, 0.5], "b": [1, 0]})


@given(
    widths=st.lists(st.integers(1, 5), min_size=3, max_size=3),
    chosen=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=2), min_size=3, max_size=3),
    limit=st.integers(0, 15),
)
@settings(max_examples=200, deadline=None)
def test_what_is_within_the_limit_is_kept_in_turn_and_the_rest_is_streamed(widths, chosen, limit):
    arrays = [wide(width) for width in widths]
    train, valid, test = (bags_over(*(arrays[i] for i in some)) for some in chosen)
    room, kept = 32 * limit, set[int]()
    for some, instances in zip(chosen, place((train, valid, test), CPU, limit=room), strict=True):
        assert instances is not None
        more = set(some) - kept  # an array that is there already, or comes twice, counts once
        fits = 32 * sum(widths[i] for i in more) <= room
        assert isinstance(instances.feed, Resident if fits else Streamed)
        if fits:
            room -= 32 * sum(widths[i] for i in more)
            kept |= more
    del arrays


@pytest.mark.parametrize("kind", ["array", "tensor"])
def test_a_limit_is_in_bytes_as_stored(kind):
    for dtype, size in ((np.uint8, 1), (np.float32, 4), (np.float64, 8), (np.bool_, 1)):
        x: Any = np.zeros((4, 3), dtype)
        bags = bags_over(x if kind == "array" else torch.from_numpy(x))
        for limit, feed in ((12 * size, Resident), (12 * size - 1, Streamed)):
            assert isinstance(place((bags, None, None), CPU, limit=limit)[0].feed, feed)


def test_without_a_limit_arrays_in_memory_stay_where_they_are(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 1)
    assert isinstance(on_cpu(bags_over(wide(5))).feed, Resident)


def test_a_mapped_file_larger_than_the_memory_is_streamed(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", wide(4))
    bags = bags_over(np.load(tmp_path / "x.npy", mmap_mode="r"))
    memory = {"SC_PAGE_SIZE": 64, "SC_PHYS_PAGES": 4}
    monkeypatch.setattr(os, "sysconf", lambda name: memory[name])
    assert isinstance(on_cpu(bags).feed, Resident)
    memory["SC_PHYS_PAGES"] = 1
    assert isinstance(on_cpu(bags).feed, Streamed)


def test_the_log_says_what_is_streamed_and_how_much_room_there_was(caplog):
    caplog.set_level(logging.INFO, "apportion")
    mebibyte = 2**20 // 32
    several = bags_over(wide(3 * mebibyte)), bags_over(wide(mebibyte)), bags_over(wide(mebibyte))
    place(several, CPU, limit=3 * 2**19)
    assert [record.getMessage() for record in caplog.records] == [
        "3.0 MiB of training instances are streamed to cpu, with room for 1.5 MiB.",
        "1.0 MiB of test instances are streamed to cpu, with room for 0.5 MiB.",
    ]


def test_nothing_is_logged_of_what_stays(caplog):
    caplog.set_level(logging.INFO, "apportion")
    on_cpu(bags_over(wide(1)))
    assert not caplog.records


def test_a_shelf_shares_arrays_between_trainings():
    shelf, array = Shelf(), wide(3)
    one, _, _ = place((bags_over(array, wide(1)), None, None), CPU, shelf=shelf)
    other, valid, _ = place((bags_over(wide(2)), bags_over(array), None), CPU, shelf=shelf)
    apart, _, _ = place((bags_over(array), None, None), CPU, shelf=Shelf())
    assert valid is not None
    assert valid.feed.parts[0] is one.feed.parts[0]
    assert other.feed.parts[0] is not one.feed.parts[1]
    assert apart.feed.parts[0] is not one.feed.parts[0]


def test_what_is_on_the_shelf_takes_no_more_room():
    shelf, array = Shelf(), wide(3)
    first, _, _ = place((bags_over(array), None, None), CPU, shelf=shelf)
    again, _, _ = place((bags_over(array), None, None), CPU, limit=0, shelf=shelf)
    assert again.feed.parts[0] is first.feed.parts[0]
    mixed, _, _ = place((bags_over(array, wide(1)), None, None), CPU, limit=31, shelf=shelf)
    assert isinstance(mixed.feed, Streamed)


def test_a_shelf_gives_back_what_no_training_has_any_more():
    shelf, array = Shelf(), wide(3)
    placed, _, _ = place((bags_over(array), None, None), CPU, shelf=shelf)
    held = weakref.ref(placed.feed.parts[0])
    assert shelf.bytes_of((array,), CPU) == 0
    del placed
    assert held() is None
    assert shelf.bytes_of((array,), CPU) == array.nbytes


def test_a_part_of_the_memory_stays_free_however_many_sets_there_are(monkeypatch):
    """What is free is asked for once: a share of what is left, again and again, would be all."""
    several = bags_over(wide(79)), bags_over(wide(16)), bags_over(wide(4))
    sizes = [bags.x[0].nbytes for bags in several]
    asked: list[int] = []

    def memory(parts: Any, device: Any) -> int:
        asked.append(sum(part.nbytes for part in parts))
        return int(sizes[0] + sizes[1] - 1)

    monkeypatch.setattr(batches, "memory_for", memory)
    kinds = [type(own.feed) for own in place(several, CPU) if own is not None]
    assert kinds == [Resident, Streamed, Resident]
    assert asked == [sum(sizes)]


def test_what_was_streamed_is_not_on_the_shelf():
    shelf, bags = Shelf(), bags_over(wide(3))
    place((bags, None, None), CPU, limit=0, shelf=shelf)
    assert isinstance(place((bags, None, None), CPU, limit=0, shelf=shelf)[0].feed, Streamed)


def test_a_shelf_never_takes_one_array_for_another():
    shelf = Shelf()
    for number in range(50):  # each is forgotten by the caller, and its address free for the next
        placed = shelf.place(np.full((2, 2), number, ">i4"), CPU)
        assert placed.tolist() == [[number] * 2] * 2
        gc.collect(0)


# ------------------------------------------------------------------------------ streamed trainings


@pytest.mark.parametrize("most", [4096, 6])
@pytest.mark.parametrize("name", METHODS)
def test_a_training_is_the_same_to_the_bit_if_all_is_streamed(name, most, caplog):
    caplog.set_level(logging.INFO, "apportion")
    bags, valid = toy_bags((20, 1, 9, 3, 2)), toy_bags((5, 4), seed=1)
    here, there = (
        Training(
            toy_net(bags, dropout=0.3, norm=True),
            bags,
            METHODS[name],
            valid,
            epochs=2,
            instances_per_pass=most,
            device_memory_gib=memory,
        )
        for memory in (None, 0)
    )
    assert same(here, there)
    text = caplog.text
    assert text.count("of training instances are streamed to cpu, with room for 0.0 MiB.") == 1
    assert text.count("of validation instances are streamed to cpu, with room for 0.0 MiB.") == 1


@pytest.mark.parametrize("name", ["fpl", "proportion-loss"])
def test_a_training_from_a_mapped_file_is_the_same_to_the_bit(name, tmp_path):
    bags = toy_bags()
    np.save(tmp_path / "x.npy", bags.x.astype(np.float64))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    one, kept, read = (
        Training(toy_net(bags), replace(bags, x=x), METHODS[name], bags, device_memory_gib=memory)
        for x, memory in ((bags.x, None), (mapped, None), (mapped, 0))
    )
    assert same(one, kept)
    assert same(one, read)


@pytest.mark.parametrize("left", [0, 1e-7])
def test_a_limit_of_gibibytes_reaches_the_data(left, caplog):
    """1e-7 GiB are 107 bytes: the validation bags fit, and the training bags do not."""
    caplog.set_level(logging.INFO, "apportion")
    bags, valid = toy_bags(), toy_bags((3, 10), seed=1)
    assert valid.x.nbytes == 104
    Training(toy_net(bags), bags, METHODS["fpl"], valid, epochs=1, device_memory_gib=left)
    assert "of training instances are streamed" in caplog.text
    assert ("of validation instances are streamed" in caplog.text) == (left == 0)
