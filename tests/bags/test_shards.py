"""Shards: runs of whole bags, of about as many instances."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from apportion.bags.bags import Bags
from apportion.bags.shards import shard_cuts

SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=30)


@given(SIZES, st.integers(1, 9))
def test_every_bag_is_in_one_shard_and_the_first_shard_has_one(sizes, world):
    cuts = shard_cuts(np.append(0, np.cumsum(sizes)), world).tolist()
    assert len(cuts) == world + 1
    assert cuts == sorted(cuts)
    assert (cuts[0], cuts[-1]) == (0, len(sizes))
    assert cuts[1] > 0


@given(SIZES, st.integers(1, 9))
def test_shards_miss_an_equal_share_by_no_more_than_a_bag(sizes, world):
    offsets = np.append(0, np.cumsum(sizes))
    of_each = np.diff(offsets[shard_cuts(offsets, world)])
    assert of_each.max() <= offsets[-1] / world + max(sizes)


@given(SIZES, st.integers(1, 5))
def test_shards_are_the_bags_one_after_the_other(sizes, world):
    bag = np.repeat(np.arange(len(sizes)), sizes)
    truth = np.arange(len(bag)) % 3
    bags = Bags.from_rows(np.arange(len(bag))[::-1, None], bag, truth=truth, classes=[0, 1, 2])
    shards = [bags.shard(rank, world) for rank in range(world)]
    for name in ("index", "proportions", "counts", "truth"):
        joined = np.concatenate([getattr(shard, name) for shard in shards])
        np.testing.assert_array_equal(joined, getattr(bags, name))
    np.testing.assert_array_equal(np.concatenate([s.sizes for s in shards]), bags.sizes)
    assert sum([shard.ids for shard in shards], ()) == bags.ids


def test_a_shard_without_bags_can_be_shown():
    bags = Bags.from_rows(None, ["a", "a"], truth=[0, 1])
    assert repr(bags.shard(1, 2)) == "Bags(0 bags)"
