"""Items of a Dataset as rows: what they are, that they are read late, and what they draw."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
)

from apportion.bags.bags import Bags
from apportion.bags.items import Draw, Items, is_dataset
from apportion.errors import ApportionError, BagError, ConfigError, DataError

X = torch.arange(18.0).reshape(6, 3)
Y = torch.tensor([0, 1, 1, 0, 0, 1])


class Noisy(Dataset):
    """Draws from every generator that Datasets draw from, and counts how often it is read."""

    def __init__(self, n=6):
        self.n, self.read = n, 0

    def __len__(self):
        return self.n

    def __getitem__(self, row):
        self.read += 1
        drawn = [random.random(), np.random.rand(), float(torch.rand(()))]  # noqa: NPY002
        return np.array([row, *drawn]), row % 2


def values(items, rows=range(6), draw=None):
    return np.array([own[0] for own in items.read(np.array(rows), draw)])


def as_dicts(*left_out):
    entries = {"ids": X.long(), "mask": X > 3, "labels": Y, "label": Y}
    kept = {name: all_ for name, all_ in entries.items() if name not in left_out}
    return [{name: own[i] for name, own in kept.items()} for i in range(6)]


@pytest.mark.parametrize(
    "dataset",
    [
        TensorDataset(X),
        TensorDataset(X, Y),
        TensorDataset(X, Y, Y),
        Subset(TensorDataset(torch.cat([X, X]), torch.cat([Y, Y])), range(6)),
        ConcatDataset([TensorDataset(X[:2], Y[:2]), TensorDataset(X[2:], Y[2:])]),
        list(X),
        [(own,) for own in X.numpy()],
        [[own, "a text"] for own in X],
    ],
)
def test_an_item_is_an_instance_or_begins_with_it(dataset):
    items = Items(dataset)
    assert items.names is None
    (part,) = items.parts
    assert (part.shape, part.dtype, part.ndim, len(part)) == ((6, 3), np.dtype("float32"), 2, 6)
    np.testing.assert_array_equal(part[:], X)
    np.testing.assert_array_equal(part[[4, 1]], X[[4, 1]])
    np.testing.assert_array_equal(part[2], X[2])


def test_parts_are_a_tuple_within_the_item_or_its_first_elements():
    for items in (
        Items([((own, n), 1) for n, own in enumerate(X)]),
        Items([(own, n, 1) for n, own in enumerate(X)], inputs=2),
    ):
        frames, lengths = items.parts
        assert (lengths.shape, lengths.dtype) == ((6,), np.dtype("int64"))
        np.testing.assert_array_equal(lengths[:], range(6))
        np.testing.assert_array_equal(frames[[3]], X[[3]])


def test_a_mapping_has_parts_by_name_without_the_label():
    items = Items(as_dicts())
    assert items.names == ("ids", "mask")
    assert [part.dtype for part in items.parts] == [np.dtype("int64"), np.dtype("bool")]
    chosen = Items([(own, 7) for own in as_dicts()], inputs=["mask"])
    assert chosen.names == ("mask",)
    np.testing.assert_array_equal(chosen.parts[0][:], X > 3)


def test_what_is_not_learned_from_is_said_once(caplog):
    with caplog.at_level("INFO", "apportion"):
        items = Items(TensorDataset(X, Y))
        for _ in range(2):
            assert items.parts[0][:].shape == (6, 3)
    assert caplog.messages == ["The element 1 of each item is not learned from."]


def test_bags_of_a_dataset_read_nothing_until_it_is_needed():
    noisy = Noisy()
    table = {name: [1, 1] for name in "abc"}
    bags = Bags.from_dataset(noisy, list("aabbcc"), table, counts=True)
    train, _, overlap = bags.split(0.4, seed=0)
    assert str(bags).startswith("Bags(3 bags")
    assert bags.describe().n_rows == 6
    assert overlap.shared_rows == 0
    assert train[[0]].without_truth().n_rows == 6
    assert noisy.read == 0
    assert bags.parts[0].shape == (6, 4)
    assert noisy.read == 1


def test_truth_can_be_read_from_the_items():
    for dataset in (TensorDataset(X, Y), as_dicts("label"), as_dicts("labels")):
        bags = Bags.from_dataset(dataset, list("aabbcc"), truth="items")
        assert bags.classes == (0, 1)
        np.testing.assert_array_equal(bags.truth, Y)
    with pytest.raises(DataError, match="item 0 has no label behind"):
        Bags.from_dataset(TensorDataset(X), list("aabbcc"), truth="items")
    with pytest.raises(DataError, match="its entries are ids, mask"):
        Bags.from_dataset(as_dicts("label", "labels"), list("aabbcc"), truth="items")


def test_a_dataset_may_replace_the_rows_of_bags():
    bags = Bags.from_rows(None, list("aab"), {"a": [1, 1], "b": [0, 1]}, counts=True)
    assert bags.with_rows(TensorDataset(X)).parts[0].shape == (6, 3)
    with pytest.raises(BagError, match="holds row 2, but x has 2 rows"):
        bags.with_rows(TensorDataset(X[:2]))


# ------------------------------------------------------------------------------------ randomness


def test_draws_are_a_function_of_seed_epoch_and_batch_or_of_the_row_alone():
    items = Items(Noisy())
    first = values(items, draw=Draw(0, 1))
    np.testing.assert_array_equal(first, values(items, draw=Draw(0, 1)))
    np.testing.assert_array_equal(values(items)[[4, 2]], values(items, [4, 2]))
    for other in (Draw(0, 2), Draw(1, 1), None):
        assert (values(items, draw=other)[:, 1:] != first[:, 1:]).all()
    assert len(np.unique(first[:, 1:])) == 18
    np.testing.assert_array_equal(values(items), values(Items(Noisy())))


def test_reading_leaves_the_generators_as_they_were():
    def states():
        numpys: Any = np.random.get_state()  # noqa: NPY002
        return random.getstate(), numpys[1].tolist(), torch.get_rng_state().tolist()

    before = states()
    items = Items(Noisy())
    items.parts[0][:]
    values(items, draw=Draw(0, 1))
    items.truth()
    assert states() == before


def test_confidences_are_of_the_dataset_to_evaluate():
    items = Items(Noisy(), TensorDataset(torch.zeros(6, 4)))
    assert not values(items).any()
    assert not items.parts[0][:].any()
    assert values(items, draw=Draw(0, 1)).any()


# ---------------------------------------------------------------------------------------- refusals


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(X)


@pytest.mark.parametrize(
    ("dataset", "problem", "remedy"),
    [
        (Numbers(), "dataset is a Numbers, whose items cannot be read by number", "map-style"),
        (DataLoader(TensorDataset(X)), "dataset is a DataLoader", "loader.dataset"),
        (iter(X), "without a length or without items by number", "__len__ and __getitem__"),
        (X.numpy(), "dataset is a ndarray, which is no Dataset", "Bags.from_rows"),
        ({"a": X}, "dataset is a dict, which is no Dataset", "Bags.from_rows"),
        (TensorDataset(X[:0]), "dataset has 0 items", "at least one"),
        (None, "dataset is a NoneType", "__len__"),
    ],
)
def test_what_is_no_map_style_dataset_is_refused_with_the_remedy(dataset, problem, remedy):
    with pytest.raises(BagError) as refused:
        Bags.from_dataset(dataset, list("aabbcc"), {})
    assert problem in str(refused.value)
    assert remedy in str(refused.value)


def test_other_wrong_arguments_are_refused():
    with pytest.raises(BagError, match="evaluate has 3 items, but dataset 6"):
        Items(TensorDataset(X), TensorDataset(X[:3]))
    for inputs in (0, True, [], [1], "ids", 1.5):
        with pytest.raises(ConfigError, match="inputs must be an integer ≥ 1, names of entries"):
            Items(TensorDataset(X), inputs=inputs)  # type: ignore[arg-type]
    with pytest.raises(BagError, match="x has 6 rows, but the bag ids are of shape"):
        Bags.from_dataset(TensorDataset(X), list("aab"), {"a": [1, 0]})


class Ragged(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, row):
        return np.zeros(row // 2 + 1)


PIL = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize(
    ("dataset", "problem", "remedy"),
    [
        (Ragged(), r"item 0 of the Dataset is of shape \(1,\), but item 2 of shape \(2,\)", "pad"),
        ([(1.0, 2.0, 3.0)] * 6, "a tuple of 3, of which the first is a single number", "inputs=1"),
        (["abc"] * 6, "of type str, which is no number", "a text by a tokenizer"),
        ([PIL.new("L", (2, 2))] * 6, "of type Image, which is no number", "ToTensor"),
        ([{"text": "a", "ids": X[0]}] * 6, "part 0 .* of type str", "inputs="),
        ([()] * 6, "is empty", "at least an instance"),
        (
            [{"a": X[0]}, {"b": X[0]}] * 3,
            "item 1 of the Dataset has no entry 'a'; it has b",
            "same",
        ),
        (
            [{"a": X[0]}, X[0]] * 3,
            "item 1 of the Dataset is a Tensor, unlike the first",
            "one kind",
        ),
        ([torch.zeros(3), np.array("a")] * 3, "item 0 of the Dataset", "Return"),
    ],
)
def test_items_that_make_no_rows_are_named_with_the_remedy(dataset, problem, remedy):
    items = Items(dataset)
    with pytest.raises(ApportionError, match=problem) as refused:
        items.parts[0][:]
    assert remedy in str(refused.value)


def test_a_single_number_may_be_the_instance():
    assert Items([(1.5, 0)] * 2, inputs=1).parts[0][:].tolist() == [1.5, 1.5]
    assert Items([3, 4]).parts[0].dtype == np.dtype("int64")


def test_arrays_frames_and_lists_are_no_datasets():
    import pandas as pd

    for x in (X, X.numpy(), [1, 2], (X, X), range(3), {"a": 1}, "text", pd.DataFrame({"a": [1]})):
        assert not is_dataset(x)
    assert is_dataset(TensorDataset(X))
